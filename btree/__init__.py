"""One index file: an Avro B-Tree of entries (key, value), as docs/internals/btree-format.md describes it.

- `format`        every constant and byte rule of the file
- `schema`        the Avro record schema of an entry
- `source_types`  source types that Spark does not accept as keys, and the key type that stores each
- `key_types`     one `KeyType` for each: casts, Arrow, Avro and JSON forms, hash and order
- `keys`          the order of keys, and key columns as Arrow
- `key_arrays`    Arrow columns of keys in stored form
- `key_batch`     many distinct keys, sorted, in a form that Arrow compares
- `hashing`       Spark's hashes of a key, and its bucket
- `hash_columns`  Spark's hashes of whole columns
- `bloom`         Bloom filters: surely not here, or perhaps
- `errors`        errors of index files and keys
- `geometry`      the size of nodes, and their order in the file
- `encode`        Arrow columns to Avro records
- `rows`          sorted batches to records, with the checks that every writer makes
- `codecs`        block compression, and the checksum of a block
- `writer`        sorted Arrow batches to one index file
- `dione`         index files of Dione: key order, look-ups, scans, writer and hash
- `node`          one block, searched by bisection
- `blocks`        an open file as blocks
- `traversal`     visits nodes from parent to child, along the links
- `columns`       the records of many nodes to Arrow columns at once
- `block_batch`   blocks decompressed and decoded together
- `scan`          a whole file as Arrow batches, with all checks
- `inner_levels`  the levels above the leaves as columns
- `batch`         many keys matched with the leaves that may hold them
- `tree`          the look-ups in one tree
- `reader`        get, get_many, contains_many, match, scans and check over one open index file
- `display`       stored values as JSON
- `__main__`      `python -m gnomon.btree` prints and checks an index file

The package has no notion of pointers or sources: a value consists of columns.
"""

from gnomon.btree.errors import BTreeError, DamagedIndexFile, KeyTypeError, UnsortedKeys
from gnomon.btree.hashing import bucket_of
from gnomon.btree.reader import BTreeReader
from gnomon.btree.schema import Column, EntrySchema
from gnomon.btree.writer import BTreeWriter

__all__ = [
    "BTreeError",
    "BTreeReader",
    "BTreeWriter",
    "Column",
    "DamagedIndexFile",
    "EntrySchema",
    "KeyTypeError",
    "UnsortedKeys",
    "bucket_of",
]
