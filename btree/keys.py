"""The order of stored keys, and key columns as Arrow.

Order: nulls first, then Spark's order: strings by UTF-8 bytes (equal to code points, as Python compares), binary
unsigned, numbers by value, all NaN equal and greatest; -0.0 is stored as 0.0. `key_types` has the stored form of each
type.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gnomon.btree.errors import BTreeError
from gnomon.btree.key_types import LONGEST_DECIMAL, Stored, key_type, key_types
from gnomon.btree.source_types import MAPPED, mapped, source_type, value_type

Key = tuple[Stored, ...]
OrderKey = tuple[tuple[int, Stored], ...]

DECIMAL_BYTES = 16  # bytes of a decimal in Arrow


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
