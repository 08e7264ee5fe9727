"""Join with an index: the pointers and included columns of many keys, without a shuffle of the index.

The sample goes to the index's buckets, sorted by key, and each task looks its keys up in its own index files.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.accumulators import Accumulator
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from btree.keys import arrow_type
from btree.reader import LookupStats
from indexer.keys import KEY_PREFIX, column, key_names, map_batches, to_buckets, wanted_keys, with_keys
from indexer.spark_types import spark_type
from indexer.tables import source_types
from indexer.tasks import open_in_worker
from shadow import Index, UsageError, open_index
from shadow.spec import IndexSpec
from sources import POINTER_COLUMNS

OURS = "__gnomon_"  # what the columns begin with that a join adds on its way
FILE, OFFSET, SUB_OFFSET, SIZE = "__gnomon_file", "__gnomon_offset", "__gnomon_sub_offset", "__gnomon_size"
POINTER_FIELDS = [
    StructField(FILE, StringType()),
    StructField(OFFSET, LongType()),
    StructField(SUB_OFFSET, IntegerType()),
    StructField(SIZE, IntegerType()),
]
ENTRY_PREFIX = "__gnomon_entry_"  # included and partition columns, until they get their names
HOWS = ("inner", "left")


@dataclass
class LookupCounters:
    """Sums over the tasks of a join, complete once its result was computed; a retried task counts twice."""

    index_bytes: Accumulator[int]


def lookup_counters(spark: SparkSession) -> LookupCounters:
    return LookupCounters(spark.sparkContext.accumulator(0))


def join_with_index(
    spark: SparkSession,
    index: str,
    sample: DataFrame,
    how: str = "inner",
    null_safe: bool = False,
    within: Sequence[str] = (),
    counters: LookupCounters | None = None,
) -> DataFrame:
    """Each row of `sample` beside each entry of the index with its key: all columns of `sample`, then those of the
    index that it lacks (included columns, in the types they are stored in, and partition columns), then data_filename,
    data_offset, data_sub_offset, data_size.

    With how="left" a row without a match is kept, beside nulls. As in SQL, a key with a null matches nothing; with
    `null_safe` nulls match nulls. `within` names partition columns that `sample` has: an entry matches only in the
    partition that the row names. Lazy; errors of a task fail the job."""
    opened = open_index(index)
    keyed = with_keys(sample, opened.spec, "sample")
    taken = [name for name in POINTER_COLUMNS if name in sample.columns]
    if taken:
        raise UsageError(f"sample: it has a column {', '.join(taken)}, which the join adds; rename it")
    added = [column.name for column in opened.spec.include if column.name not in sample.columns]
    folders = [name for name in opened.spec.partitions if name not in sample.columns]
    found = _found(spark, opened, keyed, how, null_safe, within, counters, [*added, *folders])
    kinds = {field.name: field.dataType for field in source_types(spark, opened, folders)}
    entries = [column(f"{ENTRY_PREFIX}{i}").alias(name) for i, name in enumerate(added)]
    entries += [
        column(f"{ENTRY_PREFIX}{i}").cast(kinds[name]).alias(name) for i, name in enumerate(folders, len(added))
    ]
    pointers = [column(field.name).alias(name) for field, name in zip(POINTER_FIELDS, POINTER_COLUMNS, strict=True)]
    return found.select(*[column(name) for name in sample.columns], *entries, *pointers)


def located(
    spark: SparkSession,
    opened: Index,
    sample: DataFrame,
    how: str = "inner",
    null_safe: bool = False,
    within: Sequence[str] = (),
    counters: LookupCounters | None = None,
) -> DataFrame:
    """A sample that `with_keys` gave its key columns, each row beside the pointers (POINTER_FIELDS) of its key."""
    return _found(spark, opened, sample, how, null_safe, within, counters, [])


def _found(
    spark: SparkSession,
    opened: Index,
    sample: DataFrame,
    how: str,
    null_safe: bool,
    within: Sequence[str],
    counters: LookupCounters | None,
    columns: Sequence[str],
) -> DataFrame:
    """`located`, with these columns of the entries as ENTRY_PREFIX0 ... before the pointers."""
    spec = opened.spec
    check_sample(sample, spec, how, within)
    stored = {one.name: spark_type(arrow_type(one.type)) for one in spec.include}
    entries = [StructField(f"{ENTRY_PREFIX}{i}", stored.get(name, StringType())) for i, name in enumerate(columns)]
    look_up = _look_up(
        opened.location,
        opened.view.snapshot.number,
        how,
        null_safe,
        tuple(within),
        tuple(columns),
        counters or lookup_counters(spark),
    )
    schema = StructType([*sample.schema, *entries, *POINTER_FIELDS])
    return map_batches(to_buckets(sample, spec).sortWithinPartitions(*key_names(spec)), look_up, schema)


def check_sample(sample: DataFrame, spec: IndexSpec, how: str, within: Sequence[str]) -> None:
    """UsageError for what cannot be joined."""
    if how not in HOWS:
        raise UsageError(f"how: expected {' or '.join(HOWS)}, found {how!r}")
    names = [name for name in sample.columns if not name.startswith(KEY_PREFIX)]
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise UsageError(f"keys: it has more than one column {twice[0]}; rename one")
    ours = [name for name in names if name.startswith(OURS)]
    if ours:
        raise UsageError(f"keys: names that begin with {OURS} are taken; rename {', '.join(ours)}")
    unknown = [name for name in within if name not in spec.partitions]
    if unknown:
        known = ", ".join(spec.partitions) or "none"
        raise UsageError(f"within: {', '.join(unknown)} is not a partition column (there are: {known})")
    missing = [name for name in within if name not in names]
    if missing:
        raise UsageError(f"within: the sample has no column {', '.join(missing)}")


def _look_up(
    location: str,
    snapshot: int,
    how: str,
    null_safe: bool,
    within: Sequence[str],
    columns: Sequence[str],
    counters: LookupCounters,
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def look_up(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        index = open_in_worker(location, snapshot)
        for batch in batches:
            stats = LookupStats()
            wanted = wanted_keys(batch, index.spec, within)
            may_match = _may_match(batch, index.spec, within, null_safe)
            asked = np.flatnonzero(may_match).tolist()
            hits: list[list[Any]] = [[] for _ in wanted]
            for i, found in zip(asked, index.find([wanted[i] for i in asked], stats), strict=True):
                hits[i] = found
            counters.index_bytes.add(stats.bytes)
            yield _with_entries(batch, hits, how, columns, index)

    return look_up


def _may_match(batch: pa.RecordBatch, spec: IndexSpec, within: Sequence[str], null_safe: bool) -> npt.NDArray[np.bool_]:
    """Which rows have a key that an entry may have. One that the index's type cannot hold is null beside its key, and
    matches nothing."""
    may = np.ones(batch.num_rows, bool)
    for key, name in zip(spec.keys, key_names(spec), strict=True):
        valid = batch.column(name).is_valid().to_numpy(zero_copy_only=False)
        may &= valid if not null_safe else valid | batch.column(key.name).is_null().to_numpy(zero_copy_only=False)
    for name in within if not null_safe else ():
        may &= batch.column(name).is_valid().to_numpy(zero_copy_only=False)
    return may


def _with_entries(
    batch: pa.RecordBatch, hits: list[list[Any]], how: str, columns: Sequence[str], index: Index
) -> pa.RecordBatch:
    """The rows of the sample, each as often as it has hits, beside these."""
    nothing: list[Any] = [None] if how == "left" else []
    entries = [hit for found in hits for hit in found or nothing]
    repeats = [len(found or nothing) for found in hits]
    rows = batch.take(pa.array(np.repeat(np.arange(len(hits)), repeats)))
    pointers = [hit and hit.pointer for hit in entries]
    included = {one.name: i for i, one in enumerate(index.spec.include)}
    values = []
    for name in columns:
        if name in included:
            kind = arrow_type(index.spec.include[included[name]].type)
            raw = [hit and hit.included[included[name]] for hit in entries]
            values.append(_stored_array(raw, kind))
        else:
            values.append(
                pa.array(
                    [hit and index.view.partition_values[hit.file.partition][name] for hit in entries], pa.string()
                )
            )
    arrays = [
        *rows.columns,
        *values,
        pa.array([p and p.data_filename for p in pointers], pa.string()),
        pa.array([p and p.data_offset for p in pointers], pa.int64()),
        pa.array([p and p.data_sub_offset for p in pointers], pa.int32()),
        pa.array([p and p.data_size for p in pointers], pa.int32()),
    ]
    return pa.RecordBatch.from_arrays(arrays, [str(i) for i in range(len(arrays))])


def _stored_array(values: list[Any], kind: pa.DataType) -> pa.Array:
    """Stored forms as an Arrow column."""
    if pa.types.is_decimal(kind):
        unscaled = pa.array(values, pa.decimal128(kind.precision, 0))
        return pa.Array.from_buffers(kind, len(values), unscaled.buffers())
    if pa.types.is_temporal(kind):
        return pa.array(values, pa.int32() if pa.types.is_date(kind) else pa.int64()).view(kind)
    return pa.array(values, kind)
