"""The check of a batch: which of its rows have a key that the source does not have, or, for a change, which of them
become the row of their key.

Rows are checked in the order of their keys, with the copies of a key in the requested order: the first copy of each is
looked up in the index, Bloom filter first."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from gnomon.btree.key_types import key_type
from gnomon.btree.keys import adjacent, comparable, stored_values
from gnomon.jobs.load import LookupCounters
from gnomon.shadow import OpenIndex, UsageError
from gnomon.shadow.lookup import MatchStats
from gnomon.shadow.metadata import IndexSpec, check_names
from gnomon.shadow.values import KEY_PREFIX, is_text, key_names, narrowing, shown_key, stored_keys, to_json

SCOPES = ("table", "partition")
NULL_KEYS = ("dedup", "keep", "reject")
# The outcome of a row. In a change NEW rows are written, whether their key is there or not; ABSENT ones are left out,
# since their key is not there; DELETING ones only delete.
NEW, DUPLICATE, PRESENT, REJECTED, ABSENT, DELETING = range(6)
OF_ROW, TASK_BITS, ATTEMPT_BITS = 7, 3, 40  # fields of a status: outcome of the row, and its task and attempt
REFUSE = "refuse"  # for null keys of a change
NULL_KEYS_OF_CHANGE = (REFUSE, "reject", "dedup")
ALL_PRESENT = "present"  # for null keys: the source has all of them
OF_NULLS = {"keep": NEW, "reject": REJECTED, ALL_PRESENT: PRESENT}
STATUS = f"{KEY_PREFIX}status"
WITHIN_PREFIX = f"{KEY_PREFIX}within_"  # of partition columns that separate equal keys
DESCENDING = " desc"
DELETES = f"{KEY_PREFIX}deletes"  # whether a row deletes the rows with its key
# The words of change feeds, without regard to case.
DELETE_WORDS = ("d", "delete")
WRITE_WORDS = ("c", "r", "i", "u", "create", "read", "insert", "update", "upsert", "update_postimage")

Columns = list[pa.Array]
Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class DeleteMarker:
    """Which rows of a batch only delete the rows with their key: those that `column` marks (true, or a word of
    DELETE_WORDS), or with `where_null` those in which it is null. A column that marks is no column of the source."""

    column: str
    where_null: bool = False

    def __call__(self, given: pa.Array) -> pa.Array:
        """A flag for each value. UsageError for a value that is neither a mark nor none."""
        if self.where_null:
            return given.is_null()
        kind = given.type.value_type if pa.types.is_dictionary(given.type) else given.type
        if not (pa.types.is_boolean(kind) or is_text(kind)):
            raise UsageError(f"batch: column {self.column}: {given.type} marks no deletes; expected boolean or string")
        words = given.cast(kind).cast(pa.string())
        lower = pc.utf8_lower(words)
        flags = pc.is_in(lower, pa.array(["true", *DELETE_WORDS]))
        odd = pc.invert(pc.or_(flags, pc.is_in(lower, pa.array(["false", *WRITE_WORDS]))))
        if pc.any(odd).as_py():
            raise UsageError(
                f"batch: column {self.column}",
                expected=f"true, false, or one of {', '.join((*DELETE_WORDS, *WRITE_WORDS))}",
                found=repr(words.filter(odd)[0].as_py()),
            )
        return flags

    def without(self, names: pa.Schema) -> pa.Schema:
        """The columns of a batch that are columns of the source. UsageError where it lacks the marker's, or has it
        twice."""
        if names.names.count(self.column) > 1:
            raise UsageError(f"batch: {self.column}, which marks deletes, is there more than once")
        if self.column not in names.names:
            raise UsageError(f"batch: no column {self.column}, which marks deletes; it has {', '.join(names.names)}")
        return names if self.where_null else pa.schema([one for one in names if one.name != self.column])


def of_source(batch: pa.Schema, deletes: DeleteMarker | None) -> pa.Schema:
    """The columns of a batch that are columns of the source."""
    return batch if deletes is None else deletes.without(batch)


@dataclass(frozen=True)
class ChangeOptions:
    """The options of a change. A batch `adds` rows, or has only keys to delete. With `inserts`, rows with new keys are
    added. With `replaces_all`, all rows of a key are replaced; without it, a key with several rows is refused. With
    `named`, the batch is recorded even if it changes nothing."""

    adds: bool = True
    inserts: bool = True
    replaces_all: bool = False
    named: bool = True


@dataclass(frozen=True)
class CheckOptions:
    """The options of a check: `scope` and `null_keys` as in `filter_new`, the order of copies as in `order_of`. In a
    `change`, rows are written whether their key is there or not, and copies in the batch are refused where no order
    tells the last one."""

    scope: str
    order: Sequence[tuple[str, bool]]
    null_keys: str
    change: ChangeOptions | None = None


def check_arguments(scope: str, order_by: Sequence[str], null_keys: str, is_change: bool = False) -> None:
    """Raise UsageError for invalid arguments of a check."""
    known = NULL_KEYS_OF_CHANGE if is_change else NULL_KEYS
    if scope not in SCOPES:
        raise UsageError(f"scope: expected one of {', '.join(SCOPES)}, found {scope!r}")
    if null_keys not in known:
        raise UsageError(f"null_keys: expected one of {', '.join(known)}, found {null_keys!r}")
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
    no index yet. Up to `threads` threads look keys up."""

    def __init__(
        self,
        spec: IndexSpec,
        index: Callable[[], OpenIndex] | None,
        options: CheckOptions,
        counters: LookupCounters | None,
        threads: int = 1,
    ) -> None:
        within = columns_within(spec, options.scope)
        self._spec = spec
        self._options = options
        self._index = None if options.change is not None and options.change.inserts else index
        self._within = within
        self._counters = counters
        self._threads = threads
        self._kinds = [key.type for key in spec.keys] + [spec.partition_type(name) for name in within]
        self._names = [*key_names(spec), *within_names(within)]
        self._last: Columns | None = None

    def outcomes(self, given: Sequence[pa.Array]) -> Ints:
        """The outcomes of the next rows, from the columns of their keys and `within`."""
        arrays = [array.cast(key_type(kind).arrow) for array, kind in zip(given, self._kinds, strict=True)]
        first, self._last = _begins(arrays, self._kinds, self._last)
        nulls = np.logical_or.reduce([_nulls(array) for array in arrays[: len(self._spec.keys)]])
        found = np.where(first, NEW, DUPLICATE).astype(np.int64)
        null_keys = self._options.null_keys
        if null_keys == REFUSE and nulls.any():
            raise UsageError(
                "batch: a row has a null in its key; leave such rows out (--null-keys reject), or take null as a value "
                "that equals null (--null-keys dedup); nothing was changed"
            )
        if null_keys in OF_NULLS:
            found[nulls] = OF_NULLS[null_keys]
            first = first & ~nulls
        is_change = self._options.change is not None
        if is_change and not self._options.order and (found == DUPLICATE).any():
            self._refuse_copies(arrays, int(np.flatnonzero(found == DUPLICATE)[0]))
        asked = np.flatnonzero(first)
        if self._index is not None and len(asked):
            rows = pa.RecordBatch.from_arrays([array.take(pa.array(asked)) for array in arrays], self._names)
            stats = MatchStats()
            held = self._index().holds(*held_keys(rows, self._spec, self._within), stats, self._threads)
            there = held.to_numpy(zero_copy_only=False)
            if is_change:
                found[asked[~there]] = ABSENT
            else:
                found[asked[there]] = PRESENT
            if self._counters is not None:
                self._counters.add(stats)
                self._counters.keys += len(asked)
                self._counters.matched += held.true_count
        return found

    def _refuse_copies(self, arrays: Columns, row: int) -> NoReturn:
        raise UsageError(
            f"batch: two rows have the key {shown_row(self._spec, arrays, row)}, and nothing says which is the last; "
            "name the column that orders them with --order-by (order_by=); nothing was changed"
        )


def shown_row(spec: IndexSpec, arrays: Sequence[pa.Array], row: int) -> str:
    """The key of a row, for a message. `arrays` begin with the key columns."""
    pairs = [
        (key, stored_values(array.slice(row, 1), key.type)[0]) for key, array in zip(spec.keys, arrays, strict=False)
    ]
    return ", ".join(f"{key.name} {to_json(shown_key(stored, key))}" for key, stored in pairs)


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
