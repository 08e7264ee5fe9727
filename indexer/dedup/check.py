"""Dedup: the rows of a batch whose key the source does not have, checked and staged in Spark's tasks.

The rows go to the tasks of their keys' buckets, and are sorted there by key, with the copies of a key in the requested
order. Only keys go to Python, which looks the first copy of each up in the index, Bloom filter first. The new rows are
then grouped by partition of the source and written (`gnomon.jobs.dedup.StagingWriter`). Other rows pass the same
tasks, as a few bytes each, so that the counts of the batch are exact even if tasks run again."""

from collections.abc import Callable, Iterator, Mapping, Sequence

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import AtomicType, LongType, StringType, StructField, StructType

from gnomon.indexer.spark import (
    AtSnapshot,
    JobCounters,
    ReadColumn,
    arrow_of,
    as_frame,
    column,
    key_spark_type,
    map_batches,
    open_in_worker,
    rebalanced,
    this_task,
    to_buckets,
    with_column_counted,
    with_column_in_arrow,
    with_keys,
    with_read_columns,
)
from gnomon.jobs import dedup as jobs
from gnomon.jobs.dedup import (
    ATTEMPT_BITS,
    DELETES,
    DIGEST,
    NEW,
    NULLS,
    NUMBERS,
    OF_ROW,
    PART_PREFIX,
    STATUS,
    TASK_BITS,
    CheckOptions,
    KeyCheck,
    Layout,
    PartitionText,
    Piece,
    SideFilesAt,
    Staged,
    StagingWriter,
    check_arguments,
    check_within,
    columns_within,
    part_columns,
    partition_texts,
    staged_of,
    text_of,
    within_names,
)
from gnomon.jobs.load import LookupCounters, NoType, gathered
from gnomon.shadow import OpenIndex, ShadowError, UsageError
from gnomon.shadow.metadata import IndexSpec
from gnomon.shadow.storage import Place, storage_at
from gnomon.shadow.tables import TEXT
from gnomon.shadow.values import KEY_PREFIX, key_names

PLACE = f"{KEY_PREFIX}place"
TEXT_PREFIX = f"{KEY_PREFIX}text_"  # of the texts of partition columns
GIVEN_PREFIX = f"{KEY_PREFIX}given_"  # of partition columns as they are in a batch
CHUNK_ROWS, CHUNK_BYTES = 1_000_000, 64 << 20  # of keys that a task looks up at once


def filter_new(
    spark: SparkSession,
    index: Place,
    batch: DataFrame,
    scope: str = "table",
    order_by: Sequence[str] = (),
    null_keys: str = "dedup",
    counters: JobCounters | None = None,
) -> DataFrame:
    """The rows of `batch` whose key no covered row of the source has, one row for each key.

    Of several copies of a key in the batch, the first by `order_by` is kept: a list of column names, each of which may
    end in " desc"; nulls come last. Among equal ones, the first that Spark reads is kept. With scope="partition" a key
    counts as present only where its own partition has it. `null_keys` is the treatment of rows whose key holds a null:
    "dedup" treats nulls as equal, like any other value; "keep" treats all of them as new; "reject" none. Lazy;
    `counters` counts what the tasks read and find. UsageError for invalid arguments."""
    check_arguments(scope, order_by, null_keys)
    opened, batch = OpenIndex.of(index), as_frame(spark, batch, "batch")
    given = {name: f"{GIVEN_PREFIX}{i}" for i, name in enumerate(batch.columns) if name in opened.spec.partitions}
    order = [(given.get(name, name), down) for name, down in order_of(batch, order_by)]
    options = CheckOptions(scope, order, null_keys)
    rows = _with_given(batch, opened.spec, given)
    checked = with_status(rows, opened.spec, AtSnapshot.of(opened), options, counters)
    kept = [column(given.get(name, name)).alias(name) for name in batch.columns]
    return checked.where(column(STATUS).bitwiseAND(OF_ROW) == NEW).select(*kept)


def _with_given(batch: DataFrame, spec: IndexSpec, given: Mapping[str, str]) -> DataFrame:
    """The batch with its partition columns as text, and as they are under the names `given`."""
    kinds = arrow_types(batch.select(*map(column, given)))
    as_given = [column(name).alias(ours) for name, ours in given.items()]
    return with_texts(batch, partition_texts(kinds, spec), {name: column(name) for name in batch.columns}, as_given)


def arrow_types(frame: DataFrame) -> pa.Schema:
    """The columns of a frame in the Arrow types of their values. UsageError for a column that has none."""
    fields = []
    for one in frame.schema:
        try:
            fields.append(pa.field(one.name, arrow_of(one.dataType)))
        except NoType:
            shown = one.dataType.simpleString()
            raise UsageError(f"batch: column {one.name} of type {shown} has no Arrow type; cast it") from None
    return pa.schema(fields)


def with_texts(
    batch: DataFrame, texts: Mapping[str, PartitionText], columns: Mapping[str, Column], more: Sequence[Column]
) -> DataFrame:
    """The `columns` of a batch, by name, and more. Those of `texts` are text, which tasks make as an append in this
    process does."""
    named = {name: f"{TEXT_PREFIX}{i}" for i, name in enumerate(texts)}
    made = [ReadColumn(ours, StringType(), name, texts[name]) for name, ours in named.items()]
    texts_first = {**columns, **{name: column(ours) for name, ours in named.items()}}
    kept = [texts_first[name].alias(name) for name in columns]
    return with_read_columns(batch, made).select(*kept, *more)


def with_status(
    batch: DataFrame,
    spec: IndexSpec,
    at: AtSnapshot | None,
    options: CheckOptions,
    counters: JobCounters | None = None,
) -> DataFrame:
    """The batch, whose partition columns are text, with its keys (`with_keys`), the partition columns `within` which
    keys are compared, and STATUS: the outcome of each row in the lowest bits, and above them the task and the attempt
    that found it. `at` is the index, None where there is none yet. `counters` counts what the tasks read and find."""
    within = columns_within(spec, options.scope)
    check_within(batch.columns, within)
    ordered = [column(n).desc_nulls_last() if down else column(n).asc_nulls_last() for n, down in options.order]
    keyed = with_keys(batch, spec, "batch", every_key_counts=True).withColumn(PLACE, F.monotonically_increasing_id())
    named = [(ours, name, spec.partition_type(name)) for ours, name in zip(within_names(within), within, strict=True)]
    keyed = keyed.select("*", *[column(name).alias(ours) for ours, name, kind in named if kind == TEXT])
    typed = [(ours, key_spark_type(kind), name) for ours, name, kind in named if kind != TEXT]
    keyed = with_read_columns(keyed, [ReadColumn(*one, text_of(spec, one[2]).typed) for one in typed])
    compared = [*key_names(spec), *within_names(within)]
    # One shuffle serves both: rows with one key are in one task, and a task holds keys of one bucket.
    # The hash comes first: keys with a common prefix (URLs) would be compared byte by byte.
    sorted_by = [F.xxhash64(*map(column, compared)), *map(column, compared), *ordered, column(PLACE)]
    rows = to_buckets(keyed, spec).sortWithinPartitions(*sorted_by)
    return with_column_counted(rows, STATUS, LongType(), compared, _status(spec, at, options), LookupCounters, counters)


def order_of(batch: DataFrame, order_by: Sequence[str]) -> list[tuple[str, bool]]:
    """The columns that order copies, as `gnomon.jobs.dedup.order_of`."""
    kinds = {one.name: one.dataType for one in batch.schema}
    shown = {name: None if isinstance(kind, AtomicType) else kind.simpleString() for name, kind in kinds.items()}
    return jobs.order_of(shown, order_by)


def _status(
    spec: IndexSpec, at: AtSnapshot | None, options: CheckOptions
) -> Callable[[Iterator[Sequence[pa.Array]], LookupCounters], Iterator[pa.Array]]:
    """The function from the keys of sorted rows, and their partition columns `within`, to their STATUS."""

    def status(batches: Iterator[Sequence[pa.Array]], counters: LookupCounters) -> Iterator[pa.Array]:
        index = None if at is None else lambda: open_in_worker(at)
        check, task = KeyCheck(spec, index, options, counters), _task() << TASK_BITS
        named = (pa.RecordBatch.from_arrays(list(one), [str(i) for i in range(len(one))]) for one in batches)
        for keys in gathered(named, CHUNK_ROWS, CHUNK_BYTES):
            yield pa.array(check.outcomes(keys.columns) | task)

    return status


def _task() -> int:
    """This task's number in the upper bits, and the number of its attempt, which is unique, below."""
    context = this_task()
    if context is None:
        raise ShadowError("not in a Spark task")
    return int(context.partitionId()) << ATTEMPT_BITS | int(context.taskAttemptId()) & ((1 << ATTEMPT_BITS) - 1)


TEXTS = ("partition", "folder", "path")
PIECE = StructType(
    [*(StructField(name, StringType()) for name in TEXTS), *(StructField(name, LongType()) for name in NUMBERS)]
)


def stage(
    checked: DataFrame,
    names: Sequence[str],
    layout: Layout,
    folder: str,
    name: str,
    rejected: SideFilesAt | None,
    keys: Sequence[str] | None,
) -> Staged:
    """Write the new rows of a batch, checked by `with_status`, to a folder below the source's root. `name` is the
    prefix of the file names. `names` are the batch's columns; `checked` has DIGEST and NULLS, too. With `rejected` the
    other rows are written there, with `keys` those of a change. StageRunAgain where the job has to run again."""
    for i, partition in enumerate(layout.partitions):
        checked = checked.withColumn(f"{PART_PREFIX}{i}", column(partition))
    checked = _with_split(checked, layout)
    parts = part_columns(layout)
    if rejected is None:
        is_new = column(STATUS).bitwiseAND(OF_ROW) == NEW
        columns = [F.when(is_new, column(one)).alias(one) for one in names]
        kept = [STATUS, NULLS, DIGEST, *parts, *(keys or ()), *(one for one in checked.columns if one == DELETES)]
    else:
        columns = [column(one) for one in names]
        kept = [one for one in checked.columns if one.startswith(KEY_PREFIX)]
    # Rows of a partition go to one task; Spark, which knows their bytes, divides them where they are many.
    rows, by = checked.select(*columns, *map(column, kept)), parts or [DIGEST]
    is_adaptive = rows.sparkSession.conf.get("spark.sql.adaptive.enabled") == "true"
    rows = rebalanced(rows, by) if is_adaptive else rows.repartition(*by)
    rows = rows.sortWithinPartitions(*map(column, parts)) if parts else rows
    writing = _writing(layout, folder, rejected, keys)
    pieces = [Piece(*row) for row in map_batches(rows, writing, PIECE).collect()]
    return staged_of(storage_at(layout.root), folder, name + layout.style.ending, pieces)


def _with_split(checked: DataFrame, layout: Layout) -> DataFrame:
    split = layout.split
    if split is None:
        return checked
    inputs = [f"{KEY_PREFIX}of_split_{i}" for i in range(len(split.columns))]
    named = [column(name).alias(ours) for name, ours in zip(split.columns, inputs, strict=True)]

    def texts(batches: Iterator[Sequence[pa.Array]]) -> Iterator[pa.Array]:
        return (split.value_of(arrays) for arrays in batches)

    rows = checked.select("*", *named)
    return with_column_in_arrow(rows, part_columns(layout)[-1], StringType(), inputs, texts).drop(*inputs)


def _writing(
    layout: Layout, folder: str, rejected: SideFilesAt | None, keys: Sequence[str] | None
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    kinds = [pa.string()] * len(TEXTS) + [pa.int64()] * len(NUMBERS)

    def writing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task = StagingWriter(layout, folder, rejected, keys)
        for batch in batches:
            task.add(batch)
        columns = zip(*task.end(), strict=True)
        arrays = [pa.array(values, kind) for values, kind in zip(columns, kinds, strict=False)]
        if arrays:
            yield pa.RecordBatch.from_arrays(arrays, names=list(Piece._fields))

    return writing
