"""Appends of the rows of a batch whose key is new, by Spark's tasks (`gnomon.jobs.dedup` has what they do).

- `check`   the rows whose key is new, checked and staged
- `append`  a batch as a DataFrame; appends the rows whose key is new, or puts rows in the place of others
"""

from gnomon.indexer.dedup.append import SparkRows, append_batches, append_new, read_batch, upsert
from gnomon.indexer.dedup.check import filter_new

__all__ = [
    "SparkRows",
    "append_batches",
    "append_new",
    "filter_new",
    "read_batch",
    "upsert",
]
