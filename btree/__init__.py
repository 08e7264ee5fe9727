"""One index file: an Avro B-Tree of entries (key, value), as docs/btree-format.md describes it.

- `format`   every constant and byte rule of the file
- `schema`   the Avro record schema of an entry
- `mapping`  types of sources that Spark does not know as keys, and what each is stored as
- `keys`     key types: from outside values to the stored form, and their order
- `hashing`  Spark's hashes of a key, and its bucket
- `hash_columns`  the same of whole columns
- `filters`  Bloom filters: surely not here, or perhaps
- `shape`    when a node is full, and so how high a tree is: arithmetic
- `encode`   Arrow columns to Avro records
- `rows`     sorted batches to records: what each writer checks
- `codecs`   block compression, and the checksum of a block
- `layout`   finished nodes to their order in the file, and their links
- `writer`   sorted Arrow batches to one index file
- `dione`    the same, byte for byte as Dione's own writer makes it
- `records`  where the records of a node lie, and their keys and links
- `node`     one block, searched by bisection
- `blocks`   an open file as blocks
- `walk`     the way from a node to its children
- `columns`  the records of many nodes to Arrow columns at once
- `parts`    nodes unpacked and decoded together
- `scan`     a whole file as Arrow batches, proved
- `sought`   many keys, sorted, each once, in a form that Arrow compares
- `fences`   the levels above the leaves as columns
- `batch`    many keys matched with the leaves that may hold them
- `reader`   get, get_many, contains_many, match, scans and check over one open index file
- `display`  stored values as JSON; `python -m btree` prints them

Knows neither pointers nor sources: a value is just columns.
"""

from btree.errors import BTreeError, DamagedIndexFile, KeyTypeError, UnsortedKeys
from btree.hashing import bucket_of
from btree.reader import BTreeReader
from btree.schema import Column, EntrySchema
from btree.writer import BTreeWriter

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
