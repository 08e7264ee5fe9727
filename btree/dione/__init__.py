"""Index files of Dione: their key order, look-ups, scans and writer.

- `order`    Java's order of keys
- `hashing`  the hash that chooses the file of a key
- `node`     blocks whose keys are in Java's order
- `scan`     a whole file as Arrow batches
- `tree`     look-ups
- `rows`     sorted batches to records
- `writer`   sorted Arrow batches to a file with the bytes of Dione's own writer

`BTreeReader` uses this package for a file whose header does not have `gnomon.entries`.
"""

from gnomon.btree.dione.hashing import check_hashed, dione_hashes
from gnomon.btree.dione.writer import DioneWriter

__all__ = ["DioneWriter", "check_hashed", "dione_hashes"]
