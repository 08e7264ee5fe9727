"""Appends of the rows of a batch whose key is new.

- `batch_files`     the files of a batch
- `batch_columns`   the columns of a batch
- `batch_plan`      a batch in the types of the source
- `check`           the rows whose key is new
- `partition_text`  the texts of partition columns
- `row_digest`      a digest of the rows of a batch
- `layout`          format, columns and folders of new files
- `rejected`        the report of rows that were not appended
- `staged_files`    new rows in files that no reader sees
- `batch_rows`      the interface of the engine that checks the rows and writes the new ones
- `source_cast`     casts to the columns of the source
- `local_rows`      the rows of a batch in this process
- `bootstrap`       the index of an append, and the source of one that does not exist yet
- `finish`          finishes appends that were interrupted
- `append`          appends the rows whose key is new, each key once
- `append_locally`  the append in this process
"""

from gnomon.jobs.dedup.append import AppendRequest, DedupResult, append_rows
from gnomon.jobs.dedup.append_locally import append_new, read_batch
from gnomon.jobs.dedup.batch_files import BatchFile, batch_digest, task_shares
from gnomon.jobs.dedup.batch_plan import BatchPlan, members_of, plan_batch, rows_of
from gnomon.jobs.dedup.batch_rows import BatchRows, Staging
from gnomon.jobs.dedup.bootstrap import Origin, Target
from gnomon.jobs.dedup.check import (
    ATTEMPT_BITS,
    NEW,
    OF_ROW,
    STATUS,
    TASK_BITS,
    CheckOptions,
    KeyCheck,
    check_arguments,
    check_within,
    columns_within,
    order_of,
    within_names,
)
from gnomon.jobs.dedup.layout import Layout
from gnomon.jobs.dedup.local_rows import LocalRows, as_rows, read_batch_locally
from gnomon.jobs.dedup.partition_text import PartitionText, partition_texts, text_of
from gnomon.jobs.dedup.rejected import RejectedAt
from gnomon.jobs.dedup.row_digest import digest_of, hashed_text, hashed_type
from gnomon.jobs.dedup.source_cast import SourceCast, cast_to, first_cast
from gnomon.jobs.dedup.staged_files import (
    DIGEST,
    NULLS,
    NUMBERS,
    PART_PREFIX,
    Piece,
    Staged,
    StagingWriter,
    part_columns,
    staged_of,
)

__all__ = [
    "ATTEMPT_BITS",
    "DIGEST",
    "NEW",
    "NULLS",
    "NUMBERS",
    "OF_ROW",
    "PART_PREFIX",
    "STATUS",
    "TASK_BITS",
    "AppendRequest",
    "BatchFile",
    "BatchPlan",
    "BatchRows",
    "CheckOptions",
    "DedupResult",
    "KeyCheck",
    "Layout",
    "LocalRows",
    "Origin",
    "PartitionText",
    "Piece",
    "RejectedAt",
    "SourceCast",
    "Staged",
    "Staging",
    "StagingWriter",
    "Target",
    "append_new",
    "append_rows",
    "as_rows",
    "batch_digest",
    "cast_to",
    "check_arguments",
    "check_within",
    "columns_within",
    "digest_of",
    "first_cast",
    "hashed_text",
    "hashed_type",
    "members_of",
    "order_of",
    "part_columns",
    "partition_texts",
    "plan_batch",
    "read_batch",
    "read_batch_locally",
    "rows_of",
    "staged_of",
    "task_shares",
    "text_of",
    "within_names",
]
