"""Rows and pointers of many keys.

- `key_join`   keys to pointers, without a shuffle of the index
- `load_rows`  rows of many keys
"""

from gnomon.indexer.join.key_join import join_with_index, keys_of_file
from gnomon.indexer.join.load_rows import load, load_by_index, load_keyed, write_files

__all__ = [
    "join_with_index",
    "keys_of_file",
    "load",
    "load_by_index",
    "load_keyed",
    "write_files",
]
