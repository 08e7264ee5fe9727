"""Key columns of DataFrames.

- `columns`  keys read in the types of the index and brought to their buckets
"""

from gnomon.indexer.keys.columns import (
    column,
    map_batches,
    quoted,
    to_buckets,
    with_keys,
)

__all__ = [
    "column",
    "map_batches",
    "quoted",
    "to_buckets",
    "with_keys",
]
