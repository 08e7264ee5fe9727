"""Appends of the rows of a batch whose key is new.

- `batch_plan`     a batch in the types of the source
- `check`          the rows whose key is new
- `source_cast`    casts to the columns of the source
- `row_digest`     a digest of the rows of a batch
- `layout`         format, columns and folders of new files
- `rejected`       the report of rows that were not appended
- `staging`        the rows of a batch, and new ones in files that no reader sees
- `local_rows`     the rows of a batch in this process
- `target`         the index of an append, brought up to date
- `append`         appends the rows whose key is new, each key once
- `row_search`     the rows of a table with the keys of a change
- `change`         deletes and replaces rows of a lake table by key
"""

from gnomon.jobs.dedup.append import AppendRequest, DedupResult, append_new, append_rows, read_batch
from gnomon.jobs.dedup.batch_plan import (
    BatchFile,
    BatchPlan,
    batch_digest,
    members_of,
    plan_batch,
    rows_of,
    task_shares,
)
from gnomon.jobs.dedup.change import (
    ChangeResult,
    change_rows,
    convert_equality_deletes,
    delete,
    key_table,
    upsert,
    upsert_rows,
)
from gnomon.jobs.dedup.check import (
    ATTEMPT_BITS,
    DELETES,
    NEW,
    OF_ROW,
    STATUS,
    TASK_BITS,
    CheckOptions,
    DeleteMarker,
    KeyCheck,
    check_arguments,
    check_within,
    columns_within,
    of_source,
    order_of,
    within_names,
)
from gnomon.jobs.dedup.layout import Layout
from gnomon.jobs.dedup.local_rows import LocalRows, as_rows, read_batch_locally
from gnomon.jobs.dedup.rejected import SideFilesAt
from gnomon.jobs.dedup.row_digest import digest_of, hashed_text, hashed_type
from gnomon.jobs.dedup.source_cast import PartitionText, SourceCast, cast_to, first_cast, partition_texts, text_of
from gnomon.jobs.dedup.staging import (
    DIGEST,
    NULLS,
    NUMBERS,
    PART_PREFIX,
    BatchRows,
    Piece,
    Staged,
    Staging,
    StagingWriter,
    part_columns,
    staged_of,
)
from gnomon.jobs.dedup.target import Origin, Target

__all__ = [
    "ATTEMPT_BITS",
    "DELETES",
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
    "ChangeResult",
    "CheckOptions",
    "DedupResult",
    "DeleteMarker",
    "KeyCheck",
    "Layout",
    "LocalRows",
    "Origin",
    "PartitionText",
    "Piece",
    "SideFilesAt",
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
    "change_rows",
    "check_arguments",
    "check_within",
    "columns_within",
    "convert_equality_deletes",
    "delete",
    "digest_of",
    "first_cast",
    "hashed_text",
    "hashed_type",
    "key_table",
    "members_of",
    "of_source",
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
    "upsert",
    "upsert_rows",
    "within_names",
]
