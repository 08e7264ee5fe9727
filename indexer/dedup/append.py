"""Append the rows of a batch, with Spark or in this process."""

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from gnomon.indexer.dedup.spark_rows import SparkRows
from gnomon.jobs import Progress
from gnomon.jobs.dedup import AppendRequest, BatchRows, DedupResult, LocalRows, Origin, append_rows, as_rows
from gnomon.shadow.storage import Place


def append_new(
    spark: SparkSession | None,
    index: Place,
    batch: DataFrame | LocalRows | pa.Table,
    batch_id: str,
    scope: str = "table",
    progress: Progress | None = None,
    *,
    order_by: Sequence[str] = (),
    null_keys: str = "dedup",
    report: Place | None = None,
    origin: Origin | None = None,
    full: bool = False,
    accept_vanished: bool = False,
) -> DedupResult:
    """Append the rows of `batch` whose key the source does not have, and index them: `gnomon.jobs.dedup.append_rows`;
    `gnomon.jobs.dedup.AppendRequest` has the arguments. With None in place of the session this process does the work;
    the batch is an Arrow table, or of `read_batch(None, ...)`."""
    rows: BatchRows = as_rows(batch) if spark is None else SparkRows(spark, batch)
    request = AppendRequest(batch_id, scope, order_by, null_keys, report, origin, full, accept_vanished)
    return append_rows(rows, index, request, progress)
