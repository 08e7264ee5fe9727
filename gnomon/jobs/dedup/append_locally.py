"""`gnomon.append_new` and `gnomon.read_batch` where pyspark is not installed."""

from typing import Any

import pyarrow as pa

from gnomon.jobs.dedup.append import AppendRequest, DedupResult, append_rows
from gnomon.jobs.dedup.local_rows import LocalRows, as_rows, read_batch_locally
from gnomon.jobs.stages import Progress
from gnomon.shadow import Index, UsageError
from gnomon.shadow.storage import Place
from gnomon.sources import Options


def append_new(
    spark: None,
    index: Place,
    batch: LocalRows | pa.Table,
    batch_id: str,
    scope: str = "table",
    progress: Progress | None = None,
    **options: Any,
) -> DedupResult:
    """Append the rows of `batch` whose key the source does not have, and index them, as `append_rows`; the options are
    those of `AppendRequest`. `spark` is None."""
    _check_session(spark)
    return append_rows(as_rows(batch), index, AppendRequest(batch_id, scope, **options), progress)


def read_batch(
    spark: None, path: Place, index: Index | Place | None, format: str = "auto", options: Options | None = None
) -> LocalRows:
    """The rows of a file, or of the files of a folder, for `append_new`. `spark` is None."""
    _check_session(spark)
    return read_batch_locally(path, index, format, options)


def _check_session(spark: object) -> None:
    if spark is not None:
        raise UsageError("a session of Spark was given, and pyspark is not installed; pass None")
