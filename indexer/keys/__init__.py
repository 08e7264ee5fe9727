"""Key columns of DataFrames.

- `columns`  keys cast to the types of the index and brought to their buckets
- `udfs`     keys that Spark's casts do not read
"""

from gnomon.indexer.keys.columns import (
    column,
    in_chunks,
    map_batches,
    quoted,
    to_buckets,
    typed_keys,
    with_keys,
)

__all__ = [
    "column",
    "in_chunks",
    "map_batches",
    "quoted",
    "to_buckets",
    "typed_keys",
    "with_keys",
]
