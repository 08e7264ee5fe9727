"""The writer and the hash of Dione's index files.

- `writer`   sorted Arrow batches to a file with the bytes of Dione's own writer
- `hashing`  the hash that chooses the file of a key
"""

from gnomon.btree.dione.hashing import HASHED_TYPES, check_hashed, dione_hashes
from gnomon.btree.dione.writer import DioneWriter

__all__ = ["HASHED_TYPES", "DioneWriter", "check_hashed", "dione_hashes"]
