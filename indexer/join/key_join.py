"""Join with an index: the pointers and included columns of many keys, without a shuffle of the index.

The sample, or the key columns of a file, go to the index's buckets, sorted by key, and each task looks its keys up in
its own index files."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import DataType, IntegerType, LongType, StringType, StructField, StructType

from gnomon.btree.key_types import is_number_of_units, key_type, source_type
from gnomon.indexer.spark import (
    AtSnapshot,
    JobCounters,
    arrow_schema,
    as_frame,
    as_spark,
    column,
    hands_errors_over,
    key_spark_type,
    map_batches_counted,
    open_in_worker,
    spark_type,
    to_buckets,
    with_keys,
)
from gnomon.jobs.load import FILE, OFFSET, SIZE, SUB_OFFSET, KeyFile, LookupCounters, NoType, check_sample, gathered
from gnomon.shadow import OpenIndex, UsageError, to_json
from gnomon.shadow.lookup import MatchStats
from gnomon.shadow.metadata import IndexSpec, check_names
from gnomon.shadow.storage import Place
from gnomon.shadow.values import (
    KEY_PREFIX,
    as_returned,
    key_names,
    narrowing,
    python_values,
    sample_types,
    stored_keys,
    typed_keys,
)
from gnomon.sources import POINTER_COLUMNS

POINTER_FIELDS = [
    StructField(FILE, StringType()),
    StructField(OFFSET, LongType()),
    StructField(SUB_OFFSET, IntegerType()),
    StructField(SIZE, IntegerType()),
]
CHUNK_ROWS, CHUNK_BYTES = 200_000, 32 << 20  # that a task looks up at once
ENTRY_PREFIX = "__gnomon_entry_"  # included and partition columns, until they get their names
OUTPUT_BYTES, ENTRY_BYTES = 16 * 1024 * 1024, 200  # of a batch for Spark, and of an entry, about


@dataclass(frozen=True)
class JoinOptions:
    """The options of a join. `how`: a row without a match is dropped ("inner") or kept with nulls ("left").
    `null_safe`: nulls match nulls. `within`: the partition columns of the sample that an entry must match. `columns`:
    the included and partition columns to return with the pointers."""

    how: str = "inner"
    null_safe: bool = False
    within: Sequence[str] = ()
    columns: Sequence[str] = ()


def join_with_index(
    spark: SparkSession,
    index: Place,
    sample: DataFrame,
    how: str = "inner",
    null_safe: bool = False,
    within: Sequence[str] = (),
    counters: JobCounters | None = None,
) -> DataFrame:
    """Each row of `sample` with each entry of its key: all columns of `sample`, then the columns of the index that it
    lacks (included columns, in stored types, and partition columns), then data_filename, data_offset, data_sub_offset,
    data_size. The entries of a key-value folder have no pointer: they are its rows.

    With how="left" a row without a match is kept, with nulls. As in SQL, a key with a null matches nothing; with
    `null_safe` nulls match nulls. `within` names partition columns that `sample` has: an entry matches only in the
    partition that the row names. `counters` gets what the tasks read and find. Lazy; errors of a task fail the job."""
    opened = OpenIndex.of(index)
    sample = as_frame(spark, sample, "sample")
    keyed = with_keys(sample, opened.spec, "sample")
    has_pointers = not opened.spec.holds_values
    taken = [name for name in POINTER_COLUMNS if name in sample.columns and has_pointers]
    if taken:
        raise UsageError(f"sample: it has a column {', '.join(taken)}, which the join adds; rename it")
    # Not `column` in the comprehension: Python 3.12.0 and 3.12.1 then lose the function of this name.
    added = [one.name for one in opened.spec.include if one.name not in sample.columns]
    folders = [name for name in opened.spec.partitions if name not in sample.columns]
    options = JoinOptions(how, null_safe, within, (*added, *folders))
    found = located(opened, keyed, options, counters)
    entries = [column(f"{ENTRY_PREFIX}{i}").alias(name) for i, name in enumerate(options.columns)]
    given = zip(POINTER_FIELDS, POINTER_COLUMNS, strict=True) if has_pointers else ()
    pointers = [column(field.name).alias(name) for field, name in given]
    return found.select(*[column(name) for name in sample.columns], *entries, *pointers)


def located(
    opened: OpenIndex, sample: DataFrame, options: JoinOptions, counters: JobCounters | None = None
) -> DataFrame:
    """A sample with the key columns of `with_keys`, each row with its entries: the columns that the options name, as
    ENTRY_PREFIX0 ..., and the pointers (POINTER_FIELDS)."""
    spec = opened.spec
    names = [name for name in sample.columns if not name.startswith(KEY_PREFIX)]
    check_sample(names, options.how)
    check_within(names, spec, options.within)
    types = _entry_types(spec)
    kinds = [spark_type(key_type(types[name]).arrow) for name in options.columns]
    entries = [StructField(f"{ENTRY_PREFIX}{i}", kind) for i, kind in enumerate(kinds)]
    look_up = _look_up(AtSnapshot.of(opened), options)
    schema = StructType([*sample.schema, *entries, *(() if spec.holds_values else POINTER_FIELDS)])
    rows = to_buckets(sample, spec).sortWithinPartitions(*key_names(spec))
    return map_batches_counted(rows, look_up, schema, LookupCounters, counters)


def _entry_types(spec: IndexSpec) -> dict[str, str]:
    """The key types of the included columns and the partition columns."""
    folders = {name: spec.partition_type(name) for name in spec.partitions}
    return folders | {one.name: one.type for one in spec.include}


def check_within(names: Sequence[str], spec: IndexSpec, within: Sequence[str]) -> None:
    """Raise UsageError for columns `within` that are no partition columns, or that a sample of these columns lacks."""
    check_names("within", within)
    unknown = [name for name in within if name not in spec.partitions]
    if unknown:
        known = ", ".join(spec.partitions) or "none"
        raise UsageError(f"within: {', '.join(unknown)} is not a partition column (there are: {known})")
    missing = [name for name in within if name not in names]
    if missing:
        raise UsageError(f"within: the sample has no column {', '.join(missing)}")


def _look_up(
    at: AtSnapshot, options: JoinOptions
) -> Callable[[Iterator[pa.RecordBatch], LookupCounters], Iterator[pa.RecordBatch]]:
    def look_up(batches: Iterator[pa.RecordBatch], counters: LookupCounters) -> Iterator[pa.RecordBatch]:
        index = open_in_worker(at)
        types = _entry_types(index.spec)
        kinds = [key_type(types[name]).arrow for name in options.columns]
        kinds += [key_type(column.type).arrow for column in index.spec.entries.pointer_columns]
        for batch in gathered(batches, CHUNK_ROWS, CHUNK_BYTES):
            stats = MatchStats()
            asked = np.flatnonzero(_is_held(batch, index.spec))
            some = batch if len(asked) == batch.num_rows else batch.take(pa.array(asked))
            keys, narrow = stored_keys(some, index.spec), narrowing(some, index.spec, options.within)
            is_matched = np.zeros(batch.num_rows, bool)
            for rows, entries in index.match_pieces(keys, narrow, stats, options.null_safe):
                given, chosen = asked[rows.to_numpy()], _chosen(entries, index.spec, options.columns)
                is_matched[given] = True
                yield from _beside(batch, given, chosen)
            counters.add(stats)
            counters.keys += batch.num_rows
            counters.matched += int(is_matched.sum())
            alone = np.flatnonzero(~is_matched & (options.how == "left"))
            yield from _beside(batch, alone, [pa.nulls(len(alone), kind) for kind in kinds])

    return look_up


def _is_held(batch: pa.RecordBatch, spec: IndexSpec) -> npt.NDArray[np.bool_]:
    """Flags of the rows whose keys the types of the index hold. Other keys are null here and not null in the sample."""
    held = np.ones(batch.num_rows, bool)
    for key, name in zip(spec.keys, key_names(spec), strict=True):
        typed, given = batch.column(name), key.values_in(batch)
        if typed.null_count > given.null_count:
            nulls = [one.is_null().to_numpy(zero_copy_only=False) for one in (typed, given)]
            held &= ~nulls[0] | nulls[1]
    return held


def _chosen(entries: pa.RecordBatch, spec: IndexSpec, columns: Sequence[str]) -> list[pa.Array]:
    """These columns of entries, and the pointer columns."""
    names = [*(one.name for one in spec.include), *spec.partitions]
    return [*(entries.column(names.index(name)) for name in columns), *entries.columns[len(names) :]]


def _beside(
    batch: pa.RecordBatch, rows: npt.NDArray[np.int64], entries: Sequence[pa.Array]
) -> Iterator[pa.RecordBatch]:
    """Yield rows of the sample, each with its entry, in batches of at most OUTPUT_BYTES."""
    row_bytes = batch.nbytes // max(batch.num_rows, 1) + ENTRY_BYTES
    most = max(1, OUTPUT_BYTES // row_bytes)
    for begin in range(0, len(rows), most):
        some = batch.take(pa.array(rows[begin : begin + most]))
        arrays = [*some.columns, *(one.slice(begin, most) for one in entries)]
        yield pa.RecordBatch.from_arrays(arrays, [str(i) for i in range(len(arrays))])


KEYS = "keys"


def keys_of_file(spark: SparkSession, file: KeyFile, spec: IndexSpec) -> DataFrame:
    """The key columns of a file as a load returns them, and again in the types of the index, in the columns
    `key_names`. Types that Spark lacks are text here: a time of day as HH:MM:SS.f. UsageError for a column whose values
    cannot be compared with the index's."""
    shown = sample_types(file.schema, spec, KEYS)
    typed_keys(pa.RecordBatch.from_pylist([], file.schema), spec, KEYS)  # refuses a type before any row is read
    fields = [StructField(f"c{i}", _type(field.type)) for i, field in enumerate(shown)]
    keys = [StructField(name, key_spark_type(key.type)) for name, key in zip(key_names(spec), spec.keys, strict=True)]
    schema = StructType([*fields, *keys])
    target = arrow_schema(schema)

    @hands_errors_over
    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for rows in file.batches([piece for batch in batches for piece in batch.column(0).to_pylist()]):
            typed, _ = typed_keys(rows, spec, KEYS)
            given = as_returned(rows, typed, shown, spec)
            columns = zip(given.columns, fields, target, shown.names, strict=False)
            arrays = [_given(array, field, to.type, name, file.root) for array, field, to, name in columns]
            yield pa.RecordBatch.from_arrays(
                [*arrays, *(one.cast(to) for one, to in zip(typed, target.types[len(fields) :], strict=True))],
                schema=target,
            )

    tasks = spark.range(0, len(file.pieces), 1, max(len(file.pieces), 1))
    return tasks.mapInArrow(read, schema).toDF(*shown.names, *key_names(spec))


def _type(kind: pa.DataType) -> DataType:
    """The Spark type of a column; text for numbers of units that Spark lacks."""
    try:
        return StringType() if is_number_of_units(source_type(kind)) else spark_type(kind)
    except NoType:
        return StringType()


def _given(array: pa.Array, field: StructField, target: pa.DataType, name: str, path: str) -> pa.Array:
    if not isinstance(field.dataType, StringType) or pa.types.is_string(array.type) or pa.types.is_null(array.type):
        return as_spark(array, field.dataType, target, name, pa.array(range(len(array))), path)
    return pa.array([_text(value) for value in python_values(array)], pa.string())


def _text(value: object) -> str | None:
    """A value as the text of a key."""
    if value is None or isinstance(value, str):
        return value
    text = to_json(value)
    return str(json.loads(text)) if text.startswith('"') else text
