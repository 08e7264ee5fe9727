"""Dedup: the rows of a batch whose key the source does not have (`append` adds them).

The rows go to the tasks of their keys' buckets, and are sorted there by key, with the copies of a key in the requested
order. Only keys go to Python, which looks the first copy of each up in the index, Bloom filter first.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import AtomicType, LongType, StringType

from gnomon.btree.key_batch import comparable
from gnomon.btree.key_types import key_type
from gnomon.btree.keys import adjacent
from gnomon.indexer.keys import column, to_buckets, with_keys
from gnomon.indexer.spark import AtSnapshot, open_in_worker, with_column_in_arrow
from gnomon.indexer.tables import no_null_text
from gnomon.jobs.load import KEY_PREFIX, LookupCounters, key_names, narrowing, stored_keys
from gnomon.shadow import ShadowError, UsageError, open_index
from gnomon.shadow.lookup import MatchStats
from gnomon.shadow.metadata import IndexSpec, check_names
from gnomon.shadow.storage import Place

SCOPES = ("table", "partition")
NULL_KEYS = ("dedup", "keep", "reject")
NEW, DUPLICATE, PRESENT, REJECTED = range(4)  # the outcome of a row
OF_ROW, TASK_BITS, ATTEMPT_BITS = 7, 3, 40  # fields of a status: outcome of the row, and its task and attempt
ALL_PRESENT = "present"  # for null keys: the source has all of them
OF_NULLS = {"keep": NEW, "reject": REJECTED, ALL_PRESENT: PRESENT}
STATUS, PLACE = f"{KEY_PREFIX}status", f"{KEY_PREFIX}place"
WITHIN_PREFIX = f"{KEY_PREFIX}within_"  # of partition columns that separate equal keys
DESCENDING = " desc"
CHUNK_ROWS, CHUNK_BYTES = 1_000_000, 64 << 20  # of keys that a task looks up at once

Columns = list[pa.Array]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class CheckOptions:
    """The options of a check: `scope` and `null_keys` as in `filter_new`, the order of copies as in `order_of`."""

    scope: str
    order: Sequence[tuple[str, bool]]
    null_keys: str


def filter_new(
    spark: SparkSession,
    index: Place,
    batch: DataFrame,
    scope: str = "table",
    order_by: Sequence[str] = (),
    null_keys: str = "dedup",
    counters: LookupCounters | None = None,
) -> DataFrame:
    """The rows of `batch` whose key no covered row of the source has, one row for each key.

    Of several copies of a key in the batch, the first by `order_by` is kept: a list of column names, each of which may
    end in " desc"; nulls come last. Among equal ones, the first that Spark reads is kept. With scope="partition" a key
    counts as present only where its own partition has it. `null_keys` is the treatment of rows whose key holds a null:
    "dedup" treats nulls as equal, like any other value; "keep" treats all of them as new; "reject" none. Lazy;
    `counters` are complete once the result was computed. UsageError for invalid arguments."""
    check_arguments(scope, order_by, null_keys)
    opened = open_index(index)
    options = CheckOptions(scope, order_of(batch, order_by), null_keys)
    checked = with_status(batch, opened.spec, AtSnapshot.of(opened), options, counters)
    return checked.where(column(STATUS).bitwiseAND(OF_ROW) == NEW).select(*map(column, batch.columns))


def check_arguments(scope: str, order_by: Sequence[str], null_keys: str) -> None:
    """Raise UsageError for invalid arguments of a check."""
    if scope not in SCOPES:
        raise UsageError(f"scope: expected one of {', '.join(SCOPES)}, found {scope!r}")
    if null_keys not in NULL_KEYS:
        raise UsageError(f"null_keys: expected one of {', '.join(NULL_KEYS)}, found {null_keys!r}")
    check_names("order_by", order_by)


def with_status(
    batch: DataFrame,
    spec: IndexSpec,
    at: AtSnapshot | None,
    options: CheckOptions,
    counters: LookupCounters | None,
) -> DataFrame:
    """The batch with its keys (`with_keys`), the partition columns `within` which they are compared, and STATUS: the
    outcome of each row in the lowest bits, and above them the task and the attempt that found it. `at` is the index,
    None where there is none yet."""
    within = columns_within(spec, options.scope)
    missing = [name for name in within if name not in batch.columns]
    if missing:
        raise UsageError(f"batch: scope partition needs the column {', '.join(missing)}")
    ordered = [column(n).desc_nulls_last() if down else column(n).asc_nulls_last() for n, down in options.order]
    keyed = with_keys(batch, spec, "batch", every_key_counts=True).withColumn(PLACE, F.monotonically_increasing_id())
    for key, name in zip(spec.keys, key_names(spec), strict=True):
        if key.partition:
            keyed = keyed.withColumn(name, folder_value(keyed, name))
    for ours, name in zip(within_names(within), within, strict=True):
        keyed = keyed.withColumn(ours, folder_value(keyed, name))
    compared = [*key_names(spec), *within_names(within)]
    # One shuffle serves both: rows with one key are in one task, and a task holds keys of one bucket.
    # The hash comes first: keys with a common prefix (URLs) would be compared byte by byte.
    sorted_by = [F.xxhash64(*map(column, compared)), *map(column, compared), *ordered, column(PLACE)]
    status = _status(spec, at, within, options.null_keys, counters)
    rows = to_buckets(keyed, spec).sortWithinPartitions(*sorted_by)
    return with_column_in_arrow(rows, STATUS, LongType(), compared, status)


def columns_within(spec: IndexSpec, scope: str) -> tuple[str, ...]:
    """The partition columns that separate equal keys, without the columns of the key."""
    return tuple(name for name in spec.partitions if scope == "partition")


def within_names(within: Sequence[str]) -> list[str]:
    """The columns that `with_status` adds for them."""
    return [f"{WITHIN_PREFIX}{i}" for i in range(len(within))]


def folder_value(frame: DataFrame, name: str) -> Column:
    """A partition column, null where its folder would be Hive's null."""
    is_text = isinstance(frame.schema[name].dataType, StringType)
    return no_null_text(column(name)) if is_text else column(name)


def order_of(batch: DataFrame, order_by: Sequence[str]) -> list[tuple[str, bool]]:
    """The columns that order copies, and whether each descends. UsageError for one that the batch does not have, or
    that has no order."""
    kinds = {field.name: field.dataType for field in batch.schema}
    order = []
    for asked in order_by:
        is_descending = asked not in kinds and asked.lower().endswith(DESCENDING)
        name = asked[: -len(DESCENDING)].rstrip() if is_descending else asked
        if name not in kinds:
            raise UsageError(f"order_by: the batch has no column {name}; it has {', '.join(kinds)}")
        if not isinstance(kinds[name], AtomicType):
            raise UsageError(f"order_by: column {name} is {kinds[name].simpleString()}; name one of an atomic type")
        order.append((name, is_descending))
    return order


def _status(
    spec: IndexSpec, at: AtSnapshot | None, within: Sequence[str], null_keys: str, counters: LookupCounters | None
) -> Callable[[Iterator[Sequence[pa.Array]]], Iterator[pa.Array]]:
    """The function from the keys of sorted rows, and their partition columns `within`, to their STATUS."""
    kinds = [key.type for key in spec.keys] + [spec.partition_type(name) for name in within]
    names = [*key_names(spec), *within_names(within)]

    def status(batches: Iterator[Sequence[pa.Array]]) -> Iterator[pa.Array]:
        last: Columns | None = None
        task = _task() << TASK_BITS
        for given in _gathered(batches):
            arrays = [array.cast(key_type(kind).arrow) for array, kind in zip(given, kinds, strict=True)]
            first, last = _begins(arrays, kinds, last)
            nulls = np.logical_or.reduce([_nulls(array) for array in arrays[: len(spec.keys)]])
            found = np.where(first, NEW, DUPLICATE).astype(np.int64)
            if null_keys != "dedup":
                found[nulls] = OF_NULLS[null_keys]
                first = first & ~nulls
            asked = np.flatnonzero(first)
            if at is not None and len(asked):
                rows = pa.RecordBatch.from_arrays([array.take(pa.array(asked)) for array in arrays], names)
                stats = MatchStats()
                held = open_in_worker(at).holds(*held_keys(rows, spec, within), stats)
                found[asked[held.to_numpy(zero_copy_only=False)]] = PRESENT
                if counters is not None:
                    counters.add(stats)
                    counters.keys.add(len(asked))
                    counters.matched.add(held.true_count)
            yield pa.array(found | task)

    return status


def _task() -> int:
    """This task's number in the upper bits, and the number of its attempt, which is unique, below."""
    context = TaskContext.get()
    if context is None:
        raise ShadowError("not in a Spark task")
    return int(context.partitionId()) << ATTEMPT_BITS | int(context.taskAttemptId()) & ((1 << ATTEMPT_BITS) - 1)


def are_of_one_attempt(tasks: Collection[int]) -> bool:
    """Whether all statuses of a batch are from one attempt of each task. Spark may run a task again if its output was
    lost after others had read it. If the batch's rows then come in another order, another copy of a key is the
    first."""
    return len({task >> ATTEMPT_BITS for task in tasks}) == len(set(tasks))


def held_keys(
    rows: pa.RecordBatch, spec: IndexSpec, within: Sequence[str]
) -> tuple[pa.RecordBatch, dict[str, pa.Array]]:
    """The look-up of rows with the columns of `with_status`: the keys, and the partition values that each must
    match."""
    narrow = narrowing(rows, spec)
    narrow |= {
        name: rows.column(ours) for ours, name in zip(within_names(within), within, strict=True) if name not in narrow
    }
    return stored_keys(rows, spec), narrow


def _nulls(array: pa.Array) -> Bools:
    nulls: Bools = array.is_null().to_numpy(zero_copy_only=False)
    return nulls


def _gathered(batches: Iterator[Sequence[pa.Array]]) -> Iterator[Columns]:
    """The rows of small batches in larger ones, so that many keys share one read of a part of an index file."""
    some: list[Sequence[pa.Array]] = []
    rows = size = 0
    for batch in batches:
        some.append(batch)
        rows, size = rows + len(batch[0]), size + sum(array.nbytes for array in batch)
        if rows >= CHUNK_ROWS or size >= CHUNK_BYTES:
            yield [pa.concat_arrays(list(column)) for column in zip(*some, strict=True)]
            some, rows, size = [], 0, 0
    if some:
        yield [pa.concat_arrays(list(column)) for column in zip(*some, strict=True)]


def _begins(arrays: Columns, kinds: Sequence[str], last: Columns | None) -> tuple[Bools, Columns]:
    """Which rows are the first of their key, and the key of the last row; `last` is that of the rows before."""
    compared = [comparable(array, kind) for array, kind in zip(arrays, kinds, strict=True)]
    rows = len(compared[0])
    joined = compared if last is None else [pa.concat_arrays(pair) for pair in zip(last, compared, strict=True)]
    same = adjacent(joined)[0]
    begins = ~same if last is not None else np.concatenate([np.ones(min(rows, 1), bool), ~same])
    return begins, [array.slice(rows - 1) for array in compared] if rows else (last or compared)
