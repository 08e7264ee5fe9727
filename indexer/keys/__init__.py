"""Key columns of DataFrames.

- `columns`  keys cast to the types of the index and brought to their buckets
- `udfs`     keys that Spark's casts do not read
"""

from gnomon.indexer.keys.columns import (
    KEY_PREFIX,
    column,
    in_chunks,
    key_names,
    map_batches,
    narrowing,
    quoted,
    stored_keys,
    to_buckets,
    typed_keys,
    with_keys,
)

__all__ = [
    "KEY_PREFIX",
    "column",
    "in_chunks",
    "key_names",
    "map_batches",
    "narrowing",
    "quoted",
    "stored_keys",
    "to_buckets",
    "typed_keys",
    "with_keys",
]
