"""One index file: an Avro B-Tree of entries (key, value), as docs/internals/btree-format.md describes it.

- `format`     every constant and byte rule of the file
- `geometry`   the size of nodes, and their order in the file
- `schema`     the Avro record schema of an entry
- `key_types`  one `KeyType` for each: casts, Arrow, Avro and JSON forms, hash and order; source types stored as these
- `keys`       the order of keys, key columns as Arrow, and many keys sorted
- `hashing`    Spark's hashes of keys and of whole columns, and the bucket
- `bloom`      Bloom filters: surely not here, or perhaps
- `errors`     errors of index files and keys
- `encode`     sorted Arrow batches to Avro records, with the checks that every writer makes
- `codecs`     block compression, and the checksum of a block
- `writer`     sorted Arrow batches to one index file
- `dione`      the same for the files of Dione, and its hash
- `node`       one block, searched by bisection
- `blocks`     an open file as blocks
- `traversal`  visits nodes from parent to child, along the links
- `columns`    the records of many blocks to Arrow columns at once
- `scan`       a whole file as Arrow batches, with all checks
- `batch`      many keys matched with the leaves that may hold them
- `reader`     get, get_many, contains_many, match, scans and check over one open index file
- `__main__`   `python -m gnomon.btree` prints and checks an index file

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
