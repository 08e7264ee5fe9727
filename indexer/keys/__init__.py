"""Key columns of DataFrames.

- `columns`  keys read in the types of the index and brought to their buckets
"""

from gnomon.indexer.keys.columns import (
    column,
    in_chunks,
    map_batches,
    quoted,
    to_buckets,
    with_keys,
)

__all__ = [
    "column",
    "in_chunks",
    "map_batches",
    "quoted",
    "to_buckets",
    "with_keys",
]
