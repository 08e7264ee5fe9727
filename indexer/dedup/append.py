"""Appends of the rows of a batch with Spark: the batch as a DataFrame in the types of the source, whose rows tasks
check and write; and the micro-batches of a streaming query, each once, even if the query starts again."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import cached_property, reduce
from operator import or_
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import AtomicType, BooleanType, StringType, StructType

from gnomon.indexer.build import SparkEngine
from gnomon.indexer.dedup.check import arrow_types, stage, with_status, with_texts
from gnomon.indexer.spark import (
    AtSnapshot,
    JobCounters,
    ReadColumn,
    arrow_schema,
    as_frame,
    column,
    context_of,
    cores_of,
    hands_errors_over,
    spark_stage,
    spark_type,
    spark_types,
    task_errors,
    with_read_columns,
)
from gnomon.jobs import Progress, Stages
from gnomon.jobs.dedup import (
    DELETES,
    DIGEST,
    NULLS,
    AppendRequest,
    BatchFile,
    BatchPlan,
    BatchRows,
    ChangeResult,
    DedupResult,
    DeleteMarker,
    LocalRows,
    Origin,
    SourceCast,
    Staged,
    Staging,
    append_rows,
    as_rows,
    cast_to,
    digest_of,
    first_cast,
    hashed_text,
    hashed_type,
    members_of,
    of_source,
    plan_batch,
    read_batch_locally,
    rows_of,
    task_shares,
    upsert_rows,
)
from gnomon.jobs.load import common_type
from gnomon.shadow import OpenIndex, UsageError
from gnomon.shadow.metadata import IndexSpec, SourceRoot
from gnomon.shadow.storage import Place, as_location, source_storage
from gnomon.shadow.values import KEY_PREFIX, key_names
from gnomon.sources import Options, Split

ORDER_PREFIX, HASHED_PREFIX = f"{KEY_PREFIX}order_", f"{KEY_PREFIX}hashed_"
IN_UTC = ("UTC", "Etc/UTC", "GMT", "Z", "+00:00")  # time zones in which the text of a moment is that of UTC


class SparkRows:
    """A DataFrame as the rows of a batch."""

    deletes: DeleteMarker | None = None

    def __init__(self, spark: SparkSession, batch: object) -> None:
        self.spark = spark
        self.batch = as_frame(spark, batch, "batch")
        self.engine = SparkEngine(spark)

    @cached_property
    def columns(self) -> Mapping[str, str | None]:
        kinds = {one.name: one.dataType for one in self.batch.schema}
        return {name: None if isinstance(kind, AtomicType) else kind.simpleString() for name, kind in kinds.items()}

    @property
    def schema(self) -> pa.Schema:
        return arrow_types(self.batch)

    def check_columns(self, index: OpenIndex) -> None:
        self._cast(index, index.spec)

    def _cast(self, index: OpenIndex | None, spec: IndexSpec) -> SourceCast:
        columns = of_source(self.schema, self.deletes)
        if index is None:
            return first_cast(columns, spec)
        if spec.is_of_table and not spec.is_of_lake:
            check_zone(spec, str(self.spark.conf.get("spark.sql.session.timeZone")))
        return cast_to(index, columns, common_type)

    def as_source(self, index: OpenIndex | None, spec: IndexSpec) -> pa.Schema:
        return self._cast(index, spec).columns

    def reported(self, index: OpenIndex) -> pa.Schema:
        return arrow_schema(spark_types(self._cast(index, index.spec).columns))

    def digest(self, partitions: Sequence[str], stages: Stages) -> str:
        with spark_stage(stages, self.spark, "compare with the known batch"):
            hashes = with_hash(self.batch, self.schema, partitions).select(column(DIGEST).cast("decimal(38,0)"))
            rows, total = hashes.toDF("hash").agg(F.count(F.lit(1)), F.sum("hash")).collect()[0]
            return digest_of(rows, int(total or 0))

    def stage(self, staging: Staging, stages: Stages) -> Staged:
        spec, check = staging.spec, staging.check
        at = None if staging.index is None else AtSnapshot.of(staging.index)
        cast = self._cast(staging.index, spec)
        order = [(f"{ORDER_PREFIX}{i}", down) for i, (_, down) in enumerate(check.order)]  # of the batch's own columns
        ordered = [column(name).alias(ours) for (name, _), (ours, _) in zip(check.order, order, strict=True)]
        hashed = with_hash(self.batch, self.schema, spec.partitions)
        kept = [column(DIGEST), *ordered]
        if (deletes := self.deletes) is not None:
            hashed = with_read_columns(hashed, [ReadColumn(DELETES, BooleanType(), deletes.column, deletes)])
            kept.append(column(DELETES))
        rows = with_texts(hashed, cast.texts, _in_source(cast, self.schema), kept)
        checked = with_status(rows, spec, at, replace(check, order=order), self._counters)
        has_null = reduce(or_, [column(name).isNull() for name in key_names(spec)])
        with spark_stage(stages, self.spark, "check and write"):
            return stage(
                checked.withColumn(NULLS, has_null),
                cast.columns.names,
                staging.layout,
                staging.folder,
                staging.name,
                staging.rejected,
                staging.keys,
            )

    @cached_property
    def _counters(self) -> JobCounters:
        return JobCounters()

    @property
    def index_bytes_read(self) -> int:
        return self._counters.value.index_bytes


def _in_source(cast: SourceCast, batch: pa.Schema) -> dict[str, Column]:
    """The columns of a batch in the types of its source. Spark casts only narrower numbers."""
    kinds = spark_types(cast.columns)
    alike = {one.name for one in cast.columns if batch.field(one.name).type == one.type or one.name in cast.texts}
    return {one.name: column(one.name) if one.name in alike else column(one.name).cast(one.dataType) for one in kinds}


def with_hash(batch: DataFrame, schema: pa.Schema, partitions: Sequence[str]) -> DataFrame:
    """The batch with the hash of each row in DIGEST (`gnomon.jobs.dedup.row_digest`). Spark hashes the columns; tasks
    make those that are hashed as text."""
    kinds = {one.name: hashed_type(one, partitions) for one in sorted(schema, key=lambda one: one.name)}
    as_text = [name for name, kind in kinds.items() if kind == pa.string() != schema.field(name).type]
    named = {name: f"{HASHED_PREFIX}{i}" for i, name in enumerate(as_text)}
    made = [ReadColumn(ours, StringType(), name, hashed_text) for name, ours in named.items()]
    parts = [F.lit("\0".join(kinds))]
    for name, kind in kinds.items():
        value = column(name) if kind == schema.field(name).type else column(name).cast(spark_type(kind))
        parts += [column(name).isNull(), column(named[name]) if name in named else value]
    kept = [column(name) for name in batch.columns]
    return with_read_columns(batch, made).select(*kept, F.xxhash64(*parts).alias(DIGEST))


def check_zone(spec: IndexSpec, zone: str) -> None:
    """Raise UsageError where the catalog would write a moment as a text that an index reads as another moment: Spark
    registers a partition by the text of the session's time zone, and an index reads it in UTC."""
    moments = [name for name, kind in spec.partition_types.items() if kind == "timestamp"]
    if moments and zone not in IN_UTC:
        raise UsageError(
            f"the partition column {moments[0]} is timestamp, and Spark would register its partitions in the time zone "
            f"of the session, {zone}; set spark.sql.session.timeZone to UTC; nothing was written",
            spec.source.name,
        )


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


def upsert(
    spark: SparkSession | None,
    index: Place,
    batch: DataFrame | LocalRows | pa.Table,
    batch_id: str,
    progress: Progress | None = None,
    **options: Any,
) -> ChangeResult:
    """Put the rows of `batch` in the place of those with their key, and add the others:
    `gnomon.jobs.dedup.upsert_rows`, which has the options. With None in place of the session this process does the
    work; the batch is an Arrow table, or of `read_batch(None, ...)`."""
    rows: BatchRows = as_rows(batch) if spark is None else SparkRows(spark, batch)
    return upsert_rows(rows, index, batch_id, progress, **options)


QUERY_ID = "sql.streaming.queryId"  # a property of a query's thread; its checkpoint keeps it, unlike the run's id


def append_batches(
    index: Place,
    scope: str = "table",
    order_by: Sequence[str] = (),
    null_keys: str = "dedup",
    on_result: Callable[[DedupResult], None] | None = None,
    origin: Origin | None = None,
    stream: str | None = None,
) -> Callable[[DataFrame, int], None]:
    """Make the function for `stream.writeStream.foreachBatch`: it appends the new rows of each micro-batch
    (`append_new`).

    The id of a batch is the id of the query, which its checkpoint keeps, and the number of the micro-batch. `stream` is
    a name of your own in place of the query's id, which Spark Connect does not tell: one for each checkpoint. A
    micro-batch that runs again is recognised; other rows with a known id are a UsageError. So the query must give the
    same rows when it runs again: no rand(), no uuid(). `on_result` is called with the result of each micro-batch.
    `origin` says how to build the index where there is none."""
    place = as_location(index)

    def append_batch(batch: DataFrame, number: int) -> None:
        batch_id = f"{stream or _query_id(place, batch)}-{number}"
        spark = batch.sparkSession
        result = append_new(
            spark, place, batch, batch_id, scope=scope, order_by=order_by, null_keys=null_keys, origin=origin
        )
        if on_result is not None:
            on_result(result)

    return append_batch


def _query_id(index: str, batch: DataFrame) -> str:
    """The id of the query whose micro-batch this is."""
    context = context_of(batch.sparkSession)
    if context is None:
        raise UsageError(
            "Spark Connect does not tell the id of the query; name it: append_batches(..., stream='orders'), with "
            "another name for each checkpoint; nothing was appended",
            index,
        )
    found = context.getLocalProperty(QUERY_ID)
    if not found:
        raise UsageError(
            f"this is no micro-batch of a query: the thread has no {QUERY_ID}; hand append_batches to "
            "writeStream.foreachBatch, and leave PYSPARK_PIN_THREAD on; nothing was appended",
            index,
        )
    return str(found)


TASKS_PER_CORE = 4


def read_batch(
    spark: SparkSession | None,
    path: Place,
    index: OpenIndex | Place | None,
    format: str = "auto",
    options: Options | None = None,
) -> DataFrame | LocalRows:
    """The rows of a file, or of the files of a folder, on any store, with all of their columns.

    Columns of partition folders are text, and come last. A column of the source of `index` gets the source's type, if
    that holds it (`batch_columns`). Other columns keep their type, and so do the source's partition columns inside the
    files, and all columns without an index (text for CSV). Files may differ in columns: a missing column is null. CSV
    columns are matched by the names in the header, or by place without a header. JSON lines are read twice, first for
    their names: columns of the source that no row has are null, except the columns of the key and of the partitions.
    `options` are the options of the format, by default the source's if it has the same format; the option `schema`
    gives the types of text.

    This call lists the files and reads their metadata; their rows are read when the DataFrame is used. Each use reads
    them in the same order, by path and row, so that `monotonically_increasing_id()` directly on the DataFrame increases
    in that order. A damaged file, a value that the source's type does not hold, and a file that changed are errors that
    name it. With None in place of the session, the rows are for `append_new(None, ...)`."""
    if spark is None:
        return read_batch_locally(path, index, format, options)
    reading = _SparkReading(spark)
    plan = plan_batch(path, index, format, options, reading)
    schema = spark_types(plan.schema)
    shares = task_shares(plan.files, reading.tasks)
    scanned = _scan(plan, shares, schema)
    return spark.range(0, len(shares), 1, len(shares)).mapInArrow(scanned, schema)


class _SparkReading:
    """Spark as the engine that reads a batch."""

    name = "Spark"

    def __init__(self, spark: SparkSession) -> None:
        self.engine = SparkEngine(spark)
        self.tasks = cores_of(spark) * TASKS_PER_CORE

    def held(self, kind: pa.DataType) -> pa.DataType:
        spark_type(kind)  # raises NoType
        return common_type(kind)

    def names_in(self, root: SourceRoot, files: Sequence[BatchFile]) -> set[str | None]:
        place, shares = root.storage.root, task_shares(files, self.tasks)
        opened = [(file.info, file.options) for file in files]

        @hands_errors_over
        def named(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            storage, names = source_storage(place), set[str | None]()
            for file, split in (piece for batch in batches for i in batch.column(0).to_pylist() for piece in shares[i]):
                info, options = opened[file]
                names |= members_of(storage, info, options, split)
            yield pa.RecordBatch.from_arrays([pa.array(list(names), pa.string())], names=["name"])

        tasks = self.engine.spark.range(0, len(shares), 1, len(shares))
        return {row.name for row in tasks.mapInArrow(named, "name string").distinct().collect()}

    def errors(self) -> AbstractContextManager[None]:
        return task_errors()


def _scan(
    plan: BatchPlan, shares: Sequence[Sequence[tuple[int, Split]]], schema: StructType
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function of a task. Its input rows are the numbers of the shares to read."""
    place, format_name, opened, columns = plan.root.storage.root, plan.format, plan.opened(), plan.schema
    target = arrow_schema(schema)

    @hands_errors_over
    def scanned(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        storage = source_storage(place)
        for share in (share for batch in batches for share in batch.column(0).to_pylist()):
            for file, split in shares[share]:
                for rows in rows_of(storage, format_name, opened[file], split, columns):
                    arrays = [array.cast(kind) for array, kind in zip(rows.columns, target.types, strict=True)]
                    yield pa.RecordBatch.from_arrays(arrays, schema=target)

    return scanned
