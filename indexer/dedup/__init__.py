"""Appends of the rows of a batch whose key is new.

- `check`           the rows whose key is new
- `append`          appends these rows, each key once
- `bootstrap`       an append to a source that has no index yet
- `finish`          finishes appends that were interrupted
- `staging`         new rows in files that no reader sees
- `layout`          format, columns and folders of new files
- `rejected`        the report of rows that were not appended
- `batch_reader`    a batch as a DataFrame
- `batch_files`     the files of a batch
- `batch_columns`   the columns of a batch
- `batch_names`     the columns of JSON lines
- `row_digest`      a digest of the rows of a batch
- `parquet_output`  rows as Parquet files on a local disk
- `streaming`       micro-batches of a streaming query
"""

from gnomon.indexer.dedup.append import DedupResult, append_new
from gnomon.indexer.dedup.batch_files import batch_digest
from gnomon.indexer.dedup.batch_reader import read_batch
from gnomon.indexer.dedup.bootstrap import Origin, existing, ready
from gnomon.indexer.dedup.check import filter_new
from gnomon.indexer.dedup.parquet_output import check_rows_here, write_parquet
from gnomon.indexer.dedup.streaming import append_batches

__all__ = [
    "DedupResult",
    "Origin",
    "append_batches",
    "append_new",
    "batch_digest",
    "check_rows_here",
    "existing",
    "filter_new",
    "read_batch",
    "ready",
    "write_parquet",
]
