"""A batch of distinct keys, sorted, in a form that Arrow compares in key order.

The *comparable* form of a key column is int64 (numbers, days, timestamps, booleans; floats by their bits, changed so
that they order like integers), binary (text and bytes) or decimal128. Nulls come first and equal each other.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gnomon.btree.columns import Bools, Ints
from gnomon.btree.key_types import key_type
from gnomon.btree.keys import Key, adjacent, compare, stored_values


def comparable(array: pa.Array | pa.ChunkedArray, type_name: str) -> pa.Array:
    """A key column in comparable form."""
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    kind = key_type(type_name)
    return kind.comparable(array.cast(kind.arrow))


class SortedKeys:
    """Distinct keys in key order; `columns` hold their comparable form."""

    def __init__(
        self, given: Sequence[pa.Array], types: Sequence[str], rows: Ints, columns: Sequence[pa.Array]
    ) -> None:
        """`given` are key columns of these types; `rows` are their rows with the keys."""
        self._given, self._types, self._rows = given, types, rows
        self.columns = columns

    def __len__(self) -> int:
        return len(self._rows)

    def given(self) -> list[pa.Array]:
        """The keys as the caller gave them."""
        if len(self._rows) == len(self._given[0]) and (np.diff(self._rows) == 1).all():
            return list(self._given)
        return [column.take(pa.array(self._rows)) for column in self._given]

    def stored(self) -> list[Key]:
        """The keys in stored form."""
        values = [stored_values(column, name) for column, name in zip(self.given(), self._types, strict=True)]
        return list(zip(*values, strict=True))

    def some(self, which: Ints) -> "SortedKeys":
        """The keys at these ascending indexes."""
        if len(which) == len(self):
            return self
        columns = [column.take(pa.array(which)) for column in self.columns]
        return SortedKeys(self._given, self._types, self._rows[which], columns)


class KeyBatch:
    """The distinct `keys` of rows, and the rows that have each key."""

    def __init__(self, given: Sequence[pa.Array], types: Sequence[str]) -> None:
        """`given` are the key columns of the rows, of these key types."""
        rows = len(given[0])
        columns = [comparable(key, name) for key, name in zip(given, types, strict=True)]
        equal, rising = adjacent(columns)
        order: Ints = np.arange(rows)  # rows in key order
        if not rising.all():
            order = _sorted(columns)
            columns = [column.take(pa.array(order)) for column in columns]
            equal, _ = adjacent(columns)
        is_new = np.ones(rows, bool)  # whether the key differs from that of the row before
        is_new[1:] = ~equal
        self._order = order
        self._firsts = np.append(np.flatnonzero(is_new), rows)  # the first row of each key, in that order
        if not is_new.all():
            columns = [column.filter(pa.array(is_new)) for column in columns]
        self.keys = SortedKeys(given, types, order[is_new], columns)

    def by_row(self, values: Bools) -> Bools:
        """For each row, the value of its key. `values` has a value for each key."""
        out = np.empty(len(self._order), bool)
        out[self._order] = np.repeat(values, np.diff(self._firsts))
        return out

    def spread(self, found: Ints, most: int | None = None) -> Iterator[tuple[Ints, Ints]]:
        """Yield the hits of the rows as (row, index of the hit), in the order of the hits. `found` has the key of each
        hit; a hit comes once for each row with this key. Each step yields about `most` pairs, by default all."""
        counts = (self._firsts[found + 1] - self._firsts[found]).astype(np.int64)
        ends = np.cumsum(counts)
        begin = 0
        while begin < len(found):
            before = int(ends[begin - 1]) if begin else 0
            end = len(found) if most is None else max(begin + 1, int(np.searchsorted(ends, before + most, "right")))
            some = counts[begin:end]
            place = np.repeat(np.arange(begin, end), some)
            nth = np.arange(len(place)) - np.repeat(ends[begin:end] - some - before, some)
            yield self._order[self._firsts[found[place]] + nth], place
            begin = end


def _sorted(columns: Sequence[pa.Array]) -> Ints:
    """The order of rows of comparable columns. Equal rows keep their order."""
    names = [str(i) for i in range(len(columns))]
    keys = [(name, "ascending", "at_start") for name in names]
    order: Ints = (
        pc.sort_indices(pa.RecordBatch.from_arrays(columns, names), sort_keys=keys).to_numpy().astype(np.int64)
    )
    return order


# -- sorted comparable columns -------------------------------------------------------------------------------------


def places(rows: Sequence[pa.Array], keys: Sequence[pa.Array]) -> tuple[Ints, Ints]:
    """For each row, the number of keys that are less, and the number of keys that are not greater. Rows and keys are
    sorted; keys are distinct."""
    if len(rows[0]) <= len(keys[0]):
        before = _bisect(keys, rows, False)
        nearest = np.minimum(before, max(len(keys[0]) - 1, 0))
        at = pa.array(nearest)
        equal = compare([key.take(at) for key in keys], rows)[0] & (before == nearest) if len(keys[0]) else before > 0
        return before, before + equal
    left, right = _bisect(rows, keys, False), _bisect(rows, keys, True)
    every = np.arange(len(rows[0]))
    return np.searchsorted(right, every, side="right"), np.searchsorted(left, every, side="right")


def _bisect(columns: Sequence[pa.Array], wanted: Sequence[pa.Array], past_equal: bool) -> Ints:
    """For each wanted row, how many rows of sorted columns are less, or, with `past_equal`, not greater."""
    if len(columns) == 1 and columns[0].type == pa.int64() and not columns[0].null_count and not wanted[0].null_count:
        found: Ints = np.searchsorted(columns[0].to_numpy(), wanted[0].to_numpy(), "right" if past_equal else "left")
        return found
    low = np.zeros(len(wanted[0]), np.int64)
    high = np.full(len(wanted[0]), len(columns[0]))
    while (active := np.flatnonzero(low < high)).size:
        middle = (low[active] + high[active]) // 2
        middles, requested = pa.array(middle), pa.array(active)
        all_ = len(active) == len(low)
        equal, greater = compare(
            [column.take(middles) for column in columns],
            wanted if all_ else [column.take(requested) for column in wanted],
        )
        before = greater | equal if past_equal else greater
        low[active[before]] = middle[before] + 1
        high[active[~before]] = middle[~before]
    return low


def index_in(rows: Sequence[pa.Array], keys: Sequence[pa.Array]) -> Ints:
    """The index of each row among distinct keys; -1 for a row that equals none of them."""
    if len(rows) == 1:
        return _index_in(rows[0], keys[0])
    place, wanted = np.zeros(len(rows[0]), np.int64), np.zeros(len(keys[0]), np.int64)
    for row, key in zip(rows, keys, strict=True):
        values = key.unique()
        code = _index_in(row, values)
        place = np.where((place < 0) | (code < 0), -1, place * len(values) + code)
        wanted = wanted * len(values) + _index_in(key, values)
        pairs = pa.array(wanted)
        distinct = pairs.unique()
        place, wanted = _index_in(pa.array(place), distinct), _index_in(pairs, distinct)
    if len(keys[0]) == 0:
        return np.full(len(rows[0]), -1)
    turn = np.empty(len(keys[0]), np.int64)
    turn[wanted] = np.arange(len(wanted))
    return np.where(place < 0, -1, turn[place])


def _index_in(values: pa.Array, among: pa.Array) -> Ints:
    found: Ints = pc.fill_null(pc.index_in(values, value_set=among), -1).to_numpy().astype(np.int64)
    return found


def is_rising(columns: Sequence[pa.Array], borders: Ints) -> Bools:
    """Whether each row is not less than the row before it. True for borders, the rows that begin a new sequence."""
    _, rising = adjacent(columns)
    rising[borders - 1] = True
    return rising
