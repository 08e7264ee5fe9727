"""The check of a batch: which of its rows have a key that the source does not have.

Rows are checked in the order of their keys, with the copies of a key in the requested order: the first copy of each is
looked up in the index, Bloom filter first."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from gnomon.btree.key_types import key_type
from gnomon.btree.keys import adjacent, comparable
from gnomon.jobs.load import KEY_PREFIX, LookupCounters, key_names, narrowing, stored_keys
from gnomon.shadow import Index, UsageError
from gnomon.shadow.lookup import MatchStats
from gnomon.shadow.metadata import IndexSpec, check_names

SCOPES = ("table", "partition")
NULL_KEYS = ("dedup", "keep", "reject")
NEW, DUPLICATE, PRESENT, REJECTED = range(4)  # the outcome of a row
OF_ROW, TASK_BITS, ATTEMPT_BITS = 7, 3, 40  # fields of a status: outcome of the row, and its task and attempt
ALL_PRESENT = "present"  # for null keys: the source has all of them
OF_NULLS = {"keep": NEW, "reject": REJECTED, ALL_PRESENT: PRESENT}
STATUS = f"{KEY_PREFIX}status"
WITHIN_PREFIX = f"{KEY_PREFIX}within_"  # of partition columns that separate equal keys
DESCENDING = " desc"

Columns = list[pa.Array]
Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class CheckOptions:
    """The options of a check: `scope` and `null_keys` as in `filter_new`, the order of copies as in `order_of`."""

    scope: str
    order: Sequence[tuple[str, bool]]
    null_keys: str


def check_arguments(scope: str, order_by: Sequence[str], null_keys: str) -> None:
    """Raise UsageError for invalid arguments of a check."""
    if scope not in SCOPES:
        raise UsageError(f"scope: expected one of {', '.join(SCOPES)}, found {scope!r}")
    if null_keys not in NULL_KEYS:
        raise UsageError(f"null_keys: expected one of {', '.join(NULL_KEYS)}, found {null_keys!r}")
    check_names("order_by", order_by)


def order_of(columns: Mapping[str, str | None], order_by: Sequence[str]) -> list[tuple[str, bool]]:
    """The columns that order copies, and whether each descends. `columns` has the columns of the batch, with the type
    of each that has no order. UsageError for one that the batch does not have, or that has no order."""
    order = []
    for asked in order_by:
        is_descending = asked not in columns and asked.lower().endswith(DESCENDING)
        name = asked[: -len(DESCENDING)].rstrip() if is_descending else asked
        if name not in columns:
            raise UsageError(f"order_by: the batch has no column {name}; it has {', '.join(columns)}")
        if columns[name] is not None:
            raise UsageError(f"order_by: column {name} is {columns[name]}; name one of an atomic type")
        order.append((name, is_descending))
    return order


def columns_within(spec: IndexSpec, scope: str) -> tuple[str, ...]:
    """The partition columns that separate equal keys. UsageError for the scope of a partition where there are none:
    rows of a former partition would count as copies of those of another."""
    if scope == "partition" and not spec.partitions:
        raise UsageError("scope partition: the source has no partition columns; expected scope table", spec.source.name)
    return tuple(name for name in spec.partitions if scope == "partition")


def check_within(names: Collection[str], within: Sequence[str]) -> None:
    """Raise UsageError where a batch with these columns lacks one of the partition columns `within`."""
    missing = [name for name in within if name not in names]
    if missing:
        raise UsageError(f"batch: scope partition needs the column {', '.join(missing)}")


def within_names(within: Sequence[str]) -> list[str]:
    """The names of the columns that a check adds for the partition columns `within`."""
    return [f"{WITHIN_PREFIX}{i}" for i in range(len(within))]


class KeyCheck:
    """Finds the outcome of each row. The rows come sorted by their keys and the partition columns `within`; keys are
    compared only between rows with the same values of these columns. `index` returns the index; it is None if there is
    no index yet."""

    def __init__(
        self,
        spec: IndexSpec,
        index: Callable[[], Index] | None,
        within: Sequence[str],
        null_keys: str,
        counters: LookupCounters | None,
    ) -> None:
        self._spec = spec
        self._index = index
        self._within = within
        self._null_keys = null_keys
        self._counters = counters
        self._kinds = [key.type for key in spec.keys] + [spec.partition_type(name) for name in within]
        self._names = [*key_names(spec), *within_names(within)]
        self._last: Columns | None = None

    def outcomes(self, given: Sequence[pa.Array]) -> Ints:
        """The outcomes of the next rows, from the columns of their keys and `within`."""
        arrays = [array.cast(key_type(kind).arrow) for array, kind in zip(given, self._kinds, strict=True)]
        first, self._last = _begins(arrays, self._kinds, self._last)
        nulls = np.logical_or.reduce([_nulls(array) for array in arrays[: len(self._spec.keys)]])
        found = np.where(first, NEW, DUPLICATE).astype(np.int64)
        if self._null_keys != "dedup":
            found[nulls] = OF_NULLS[self._null_keys]
            first = first & ~nulls
        asked = np.flatnonzero(first)
        if self._index is not None and len(asked):
            rows = pa.RecordBatch.from_arrays([array.take(pa.array(asked)) for array in arrays], self._names)
            stats = MatchStats()
            held = self._index().holds(*held_keys(rows, self._spec, self._within), stats)
            found[asked[held.to_numpy(zero_copy_only=False)]] = PRESENT
            if self._counters is not None:
                self._counters.add(stats)
                self._counters.keys.add(len(asked))
                self._counters.matched.add(held.true_count)
        return found


def held_keys(
    rows: pa.RecordBatch, spec: IndexSpec, within: Sequence[str]
) -> tuple[pa.RecordBatch, dict[str, pa.Array]]:
    """The look-up of rows with the columns of a check: the keys, and the partition values that each must match."""
    narrow = narrowing(rows, spec)
    narrow |= {
        name: rows.column(ours) for ours, name in zip(within_names(within), within, strict=True) if name not in narrow
    }
    return stored_keys(rows, spec), narrow


def are_of_one_attempt(tasks: Collection[int]) -> bool:
    """Whether all statuses of a batch are from one attempt of each task. Spark may run a task again if its output was
    lost after others had read it. If the batch's rows then come in another order, another copy of a key is the
    first."""
    return len({task >> ATTEMPT_BITS for task in tasks}) == len(set(tasks))


def _nulls(array: pa.Array) -> Bools:
    nulls: Bools = array.is_null().to_numpy(zero_copy_only=False)
    return nulls


def _begins(arrays: Columns, kinds: Sequence[str], last: Columns | None) -> tuple[Bools, Columns]:
    """For each row, whether it is the first with its key; and the key of the last row. `last` is the key of the row
    before these rows."""
    compared = [comparable(array, kind) for array, kind in zip(arrays, kinds, strict=True)]
    rows = len(compared[0])
    joined = compared if last is None else [pa.concat_arrays(pair) for pair in zip(last, compared, strict=True)]
    same = adjacent(joined)[0]
    begins = ~same if last is not None else np.concatenate([np.ones(min(rows, 1), bool), ~same])
    return begins, [array.slice(rows - 1) for array in compared] if rows else (last or compared)
