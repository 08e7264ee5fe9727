"""Appends of the rows of a batch whose key is new, by Spark's tasks (`gnomon.jobs.dedup` has what they do).

- `check`         the rows whose key is new, checked and staged
- `batch_reader`  a batch as a DataFrame
- `append`        appends the rows whose key is new, each key once
"""

from gnomon.indexer.dedup.append import SparkRows, append_batches, append_new
from gnomon.indexer.dedup.batch_reader import read_batch
from gnomon.indexer.dedup.check import filter_new

__all__ = [
    "SparkRows",
    "append_batches",
    "append_new",
    "filter_new",
    "read_batch",
]
