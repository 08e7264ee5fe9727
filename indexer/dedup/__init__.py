"""Appends of the rows of a batch whose key is new, by Spark's tasks (`gnomon.jobs.dedup` has what they do).

- `check`           the rows whose key is new
- `staging`         new rows in files that no reader sees
- `spark_rows`      the rows of a batch as a DataFrame
- `append`          appends the rows whose key is new, each key once
- `batch_reader`    a batch as a DataFrame
- `streaming`       micro-batches of a streaming query
"""

from gnomon.indexer.dedup.append import append_new
from gnomon.indexer.dedup.batch_reader import read_batch
from gnomon.indexer.dedup.check import filter_new
from gnomon.indexer.dedup.spark_rows import SparkRows
from gnomon.indexer.dedup.streaming import append_batches

__all__ = [
    "SparkRows",
    "append_batches",
    "append_new",
    "filter_new",
    "read_batch",
]
