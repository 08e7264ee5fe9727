"""Rows and pointers of many keys.

- `key_join`   keys to pointers, without a shuffle of the index
- `load_rows`  rows of many keys
- `fetch`      pointers to rows, in tasks
- `key_files`  key columns of Parquet files that Spark does not read
"""

from gnomon.indexer.join.key_files import parquet_keys
from gnomon.indexer.join.key_join import join_with_index, lookup_counters
from gnomon.indexer.join.load_rows import load, load_by_index, load_counters

__all__ = [
    "join_with_index",
    "load",
    "load_by_index",
    "load_counters",
    "lookup_counters",
    "parquet_keys",
]
