"""One index file: an Avro B-Tree of entries (key, value), as docs/btree-format.md describes it.

- `format`   every constant and byte rule of the file
- `schema`   the Avro record schema of an entry
- `keys`     key types: from outside values to the stored form, and their order
- `hashing`  Spark's hash of a key, and its bucket
- `shape`    when a node is full, by arithmetic
- `encode`   Arrow columns to Avro records
- `codecs`   block compression
- `layout`   finished nodes to their order in the file, and their links
- `writer`   sorted Arrow batches to one index file
- `node`     one decoded block
- `blocks`   an open file as blocks
- `reader`   get, get_many, scan, check over one open index file
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
