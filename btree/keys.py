"""Keys: their order, key columns as Arrow, and many keys sorted. `key_types` has the stored form of each type.

Order: nulls first, then Spark's order: strings by UTF-8 bytes (equal to code points, as Python compares), binary
unsigned, numbers by value, all NaN equal and greatest; -0.0 is stored as 0.0.

The *comparable* form of a key column is int64 (numbers, days, timestamps, booleans; floats by their bits, changed so
that they order like integers), binary (text and bytes) or decimal128. Nulls come first and equal each other.
"""

from array import array
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from gnomon.base.arrow import compute as pc
from gnomon.btree.errors import BTreeError
from gnomon.btree.key_types import LONGEST_DECIMAL, MAPPED, Stored, key_type, key_types, mapped, source_type, value_type

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Key = tuple[Stored, ...]
OrderKey = tuple[tuple[int, Stored], ...]

DECIMAL_BYTES = 16  # bytes of a decimal in Arrow
LONGEST = (1 << 31) - 1  # bytes of all texts of a column
LONG_RUN = 8  # mean rows of an ascending run


def order_key(key: Key) -> OrderKey:
    """A tuple that Python compares in the key order of our files."""
    return tuple([(0, None) if v is None else (2, 0.0) if v != v else (1, v) for v in key])


# -- Arrow ---------------------------------------------------------------------------------------------------------


def type_of_arrow(arrow: pa.DataType) -> str | None:
    """The key type that stores a column of an Arrow type, or None where none does without loss."""
    name = source_type(arrow)
    arrow = MAPPED[name] if name else value_type(arrow)
    if pa.types.is_large_string(arrow) or pa.types.is_string_view(arrow):
        return "string"
    if pa.types.is_large_binary(arrow) or pa.types.is_binary_view(arrow):
        return "binary"
    if pa.types.is_date64(arrow):
        return "date"
    if pa.types.is_decimal(arrow) and 0 <= arrow.scale <= arrow.precision <= LONGEST_DECIMAL:
        return f"decimal({arrow.precision},{arrow.scale})"
    if pa.types.is_timestamp(arrow):
        return "timestamp" if arrow.tz else "timestamp_ntz"
    return next((kind.name for kind in key_types() if kind.arrow == arrow), None)


def key_array(array: pa.Array | pa.ChunkedArray, type_name: str, column: str) -> pa.Array:
    """A column in the Arrow type of its key type, with each value exact. A column of type null gives as many nulls.

    BTreeError, with the column's name, where the values are of another kind than the type, or one exceeds it or is text
    that is not UTF-8."""
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    target = key_type(type_name).arrow
    if array.type != target:
        is_mapped = type_of_arrow(array.type) == type_name
        if not is_mapped and not _is_of_kind(value_type(array.type), target):
            found = f"values of Arrow type {array.type}"
            raise BTreeError("", column=column, expected=type_name, found=found)
        try:
            array = (mapped(array) if is_mapped else array).cast(target)
        except MemoryError:  # ArrowMemoryError, which says nothing about the values
            raise
        except pa.ArrowException as error:
            raise BTreeError(str(error), column=column, expected=type_name) from None
    if pa.types.is_string(target) or pa.types.is_decimal(target):
        try:
            array.validate(full=True)
        except pa.ArrowInvalid:
            what = "a value is not UTF-8" if pa.types.is_string(target) else "a value has more digits than its type"
            raise BTreeError(what, column=column, expected=type_name) from None
    return array


def _is_of_kind(arrow: pa.DataType, target: pa.DataType) -> bool:
    """Whether a safe cast keeps each value or refuses it. Between other kinds Arrow's cast would truncate, round or
    read text."""
    if pa.types.is_timestamp(arrow) and pa.types.is_timestamp(target):
        return bool(arrow.tz) == bool(target.tz)
    if pa.types.is_floating(arrow) and pa.types.is_floating(target):
        return bool(arrow.bit_width <= target.bit_width)
    kinds = (pa.types.is_integer, pa.types.is_decimal, pa.types.is_date)
    return pa.types.is_null(arrow) or any(is_kind(arrow) and is_kind(target) for is_kind in kinds)


def stored_values(array: pa.Array, type_name: str) -> list[Stored]:
    """The stored forms of an Arrow column (one that `type_of_arrow` maps to `type_name`)."""
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    kind = key_type(type_name)
    array = array.cast(kind.arrow)
    if pa.types.is_temporal(kind.arrow):
        array = array.view(pa.int32() if kind.arrow.bit_width == 32 else pa.int64())
    values = array.to_pylist()
    if kind.decimal:
        return [None if value is None else kind.cast(value) for value in values]
    if pa.types.is_floating(kind.arrow):
        return [0.0 if value == 0 else value for value in values]
    return list(values)


def adjacent(columns: Sequence[pa.Array]) -> tuple[np.ndarray, np.ndarray]:
    """Compare each row of key columns with the row before it: (equal, greater or equal), both of n - 1 booleans, or
    none if there are no rows."""
    rows = max(len(columns[0]) - 1, 0)
    last = len(columns[0]) - rows
    equal, greater = compare([c.slice(0, rows) for c in columns], [c.slice(last) for c in columns])
    return equal, greater | equal


def compare(befores: Sequence[pa.Array], afters: Sequence[pa.Array]) -> tuple[np.ndarray, np.ndarray]:
    """Compare rows of key columns with rows of others: (equal, the other one is greater)."""
    equal = np.ones(len(befores[0]), bool)
    greater = np.zeros(len(befores[0]), bool)
    for before, after in zip(befores, afters, strict=True):
        same, more = _compare(before, after)
        greater |= equal & more
        equal &= same
    return equal, greater


def _compare(before: pa.Array, after: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """(after equals before, after is greater than before). Nulls are least, all NaN are equal, and greatest."""
    more = _filled(pc.greater(after, before))
    if before.null_count or after.null_count:
        more |= _filled(before.is_null()) & ~_filled(after.is_null())
    if pa.types.is_floating(before.type):
        more |= ~_filled(pc.is_nan(before)) & _filled(pc.is_nan(after))
    return same_values(before, after), more


def as_bits(array: pa.Array) -> pa.Array:
    """A column whose floats are numbers of their bits, so that -0.0 differs from 0.0, and all NaN are equal. Other
    columns are unchanged."""
    if not pa.types.is_floating(array.type):
        return array
    numbers = pc.fill_null(array, 0).to_numpy(zero_copy_only=False)
    numbers = np.where(np.isnan(numbers), numbers.dtype.type(np.nan), numbers)
    return pa.array(numbers.view(f"<i{numbers.itemsize}"), mask=array.is_null().to_numpy(zero_copy_only=False))


def same_values(one: pa.Array, other: pa.Array) -> np.ndarray:
    """Whether two key columns of one type hold the same value, row by row: null equals null, NaN equals NaN."""
    same = _filled(pc.equal(one, other))
    if one.null_count or other.null_count:
        same |= _filled(one.is_null()) & _filled(other.is_null())
    if pa.types.is_floating(one.type):
        same |= _filled(pc.is_nan(one)) & _filled(pc.is_nan(other))
    return same


def _filled(mask: pa.Array) -> np.ndarray:
    """The mask with false for null. `fill_null` and `to_numpy` are not used: they import pandas, if installed."""
    if mask.null_count:
        mask = pc.and_kleene(mask, mask.is_valid())
    bits = np.frombuffer(mask.buffers()[1] or b"", np.uint8)
    flags: np.ndarray = np.unpackbits(bits, count=mask.offset + len(mask), bitorder="little").view(np.bool_)
    return flags[mask.offset :].copy()


# -- stored forms to Arrow ---------------------------------------------------------------------------------------------


def stored_array(values: Sequence[Stored], type_name: str) -> pa.Array:
    """The column whose `stored_values` are these stored forms."""
    kind = key_type(type_name).arrow
    valid = None
    if None in values:
        there = np.array([value is not None for value in values], dtype=np.bool_)
        valid = pa.py_buffer(np.packbits(there, bitorder="little"))
    buffers: Sequence[Any]  # any object with bytes
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        buffers = _texts(values)
    elif pa.types.is_boolean(kind):
        buffers = [np.packbits(np.array([bool(value) for value in values], dtype=np.bool_), bitorder="little")]
    elif pa.types.is_decimal(kind):
        buffers = [b"".join([int(value or 0).to_bytes(DECIMAL_BYTES, "little", signed=True) for value in values])]
    else:
        number = np.dtype(f"{'float' if pa.types.is_floating(kind) else 'int'}{kind.bit_width}")
        buffers = [np.array([0 if value is None else value for value in values], dtype=number)]
    return pa.Array.from_buffers(kind, len(values), [valid, *map(pa.py_buffer, buffers)])


def _texts(values: Sequence[Stored]) -> tuple[Any, bytes]:
    texts = [
        value.encode() if isinstance(value, str) else value if isinstance(value, bytes) else b"" for value in values
    ]
    data = b"".join(texts)
    if len(data) > LONGEST:
        raise OverflowError(f"keys of {len(data)} bytes at once")
    return array("i", accumulate(map(len, texts), initial=0)), data


# -- many keys ---------------------------------------------------------------------------------------------------------


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
        self._given, self._types, self.rows = given, types, rows
        self.columns = columns

    def __len__(self) -> int:
        return len(self.rows)

    def arrays(self) -> list[pa.Array]:
        """The keys as columns, in the Arrow types of their key types."""
        rows = pa.array(self.rows)
        taken = [column.take(rows).cast(key_type(n).arrow) for column, n in zip(self._given, self._types, strict=True)]
        return [one.combine_chunks() if isinstance(one, pa.ChunkedArray) else one for one in taken]

    def stored(self) -> list[Key]:
        """The keys in stored form."""
        rows = pa.array(self.rows)
        values = [stored_values(column.take(rows), name) for column, name in zip(self._given, self._types, strict=True)]
        return list(zip(*values, strict=True))

    def some(self, which: Ints) -> "SortedKeys":
        """The keys at these ascending indexes."""
        if len(which) == len(self):
            return self
        columns = [column.take(pa.array(which)) for column in self.columns]
        return SortedKeys(self._given, self._types, self.rows[which], columns)


class KeyBatch:
    """The distinct `keys` of rows, and the rows that have each key."""

    def __init__(self, given: Sequence[pa.Array], types: Sequence[str]) -> None:
        """`given` are the key columns of the rows, of these key types."""
        rows = len(given[0])
        columns = [comparable(key, name) for key, name in zip(given, types, strict=True)]
        equal, rising = adjacent(columns)
        order: Ints = np.arange(rows)  # rows in key order
        if not rising.all():
            order = key_order(columns)
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


def key_order(columns: Sequence[pa.Array]) -> Ints:
    """The order of rows of columns, nulls first. Equal rows keep their order."""
    numbers = [one for one in map(_signed, columns) if one is not None]
    if len(numbers) == len(columns):
        return stable_order(*numbers)
    names = [str(i) for i in range(len(columns))]
    keys = [(name, "ascending", "at_start") for name in names]
    order: Ints = (
        pc.sort_indices(pa.RecordBatch.from_arrays(columns, names), sort_keys=keys).to_numpy().astype(np.int64)
    )
    return order


def _signed(column: pa.Array) -> npt.NDArray[np.signedinteger[Any]] | None:
    """A column whose values order like signed integers of their bytes; None for another, or one with nulls."""
    kind = column.type
    if column.null_count or not (pa.types.is_signed_integer(kind) or pa.types.is_temporal(kind)) or kind.bit_width > 64:
        return None
    size = kind.bit_width // 8
    return np.frombuffer(column.buffers()[1] or b"", f"<i{size}", len(column), size * column.offset)


def stable_order(*columns: npt.NDArray[np.signedinteger[Any]]) -> Ints:
    """The order of rows by their columns. Equal rows keep their order. numpy sorts 64-bit integers several times faster
    than it finds their stable order: where the values of a row and its number fit into 63 bits, these are sorted."""
    rows = len(columns[0])
    if rows < 2:
        return np.arange(rows)
    first = columns[0]
    if len(columns) == 1 and LONG_RUN * np.count_nonzero(first[1:] < first[:-1]) < rows:
        return np.argsort(first, kind="stable")  # it merges runs
    least = [int(one.min()) for one in columns]
    widths = [(int(one.max()) - low).bit_length() for one, low in zip(columns, least, strict=True)]
    place = rows.bit_length()
    if len(columns) == 1 and widths[0] <= 16:  # numpy sorts so few bits by radix, in a sixth of the time
        return np.argsort(np.subtract(first, least[0], dtype=np.int64).astype(np.uint16), kind="stable")
    if sum(widths) + place < 64:
        packed = np.zeros(rows, np.int64)
        for one, low, width in zip(columns, least, widths, strict=True):
            packed <<= width
            packed += np.subtract(one, low, dtype=np.int64)
        packed <<= place
        packed += np.arange(rows)
        packed.sort()
        packed &= (1 << place) - 1
        return packed
    if len(columns) == 1:
        return _order_of_wide(first)
    order = stable_order(columns[-1])
    for one in reversed(columns[:-1]):
        order = order[stable_order(one[order])]
    return order


def _order_of_wide(values: npt.NDArray[np.signedinteger[Any]]) -> Ints:
    """As `stable_order`, of values of up to 64 bits: sorted in any order, then equal ones put back into theirs."""
    rows = len(values)
    order = np.argsort(values)
    ordered = values[order]
    same = ordered[1:] == ordered[:-1]
    if same.any():
        before = np.zeros(rows, np.int64)  # distinct values below each, times the number of rows
        np.cumsum(~same, out=before[1:])
        before *= rows
        order += before
        order.sort()
        order -= before
    return order


# -- sorted comparable columns -------------------------------------------------------------------------------------


def places(rows: Sequence[pa.Array], keys: Sequence[pa.Array]) -> tuple[Ints, Ints]:
    """For each row, the number of keys that are less, and the number of keys that are not greater. Rows and keys are
    sorted; keys are distinct."""
    if len(rows[0]) <= len(keys[0]):
        before = bisect(keys, rows, False)
        nearest = np.minimum(before, max(len(keys[0]) - 1, 0))
        at = pa.array(nearest)
        equal = compare([key.take(at) for key in keys], rows)[0] & (before == nearest) if len(keys[0]) else before > 0
        return before, before + equal
    left, right = bisect(rows, keys, False), bisect(rows, keys, True)
    every = np.arange(len(rows[0]))
    return np.searchsorted(right, every, side="right"), np.searchsorted(left, every, side="right")


def bisect(columns: Sequence[pa.Array], wanted: Sequence[pa.Array], past_equal: bool) -> Ints:
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
