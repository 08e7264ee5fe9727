"""Key types: from outside values to the stored form, the order of stored keys, and back.

The *stored form* of a value is what an index file holds, as plain Python:
string -> str, boolean -> bool, tinyint/smallint/int/bigint -> int, float/double -> float, date -> int (days since
1970-01-01), timestamp/timestamp_ntz -> int (microseconds since 1970-01-01T00:00), decimal -> int (unscaled),
binary -> bytes, null -> None. Type names are Spark's.

Order: nulls first, then Spark's: strings by UTF-8 bytes (equal to code points, as Python compares), binary
unsigned, numbers by value, every NaN one value and greatest; -0.0 is stored as 0.0.
"""

import base64
import binascii
import datetime as dt
import decimal
import math
import re
import struct
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gnomon.btree.errors import BTreeError, KeyTypeError
from gnomon.btree.source_types import MAPPED, mapped, source_type, value_type

Stored = str | bool | int | float | bytes | None
Key = tuple[Stored, ...]
OrderKey = tuple[tuple[int, Stored], ...]

LONGEST_DECIMAL = 38  # digits
DECIMAL_BYTES = 16  # of one in Arrow
INTEGER_BITS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
DECIMAL_NAME = re.compile(r"decimal\(([0-9]{1,2}),([0-9]{1,2})\)")
INTEGER_TEXT = re.compile(r"[+-]?[0-9]+")
FINER_TEXT = re.compile(r"[.,][0-9]{7}")  # a fraction finer than microseconds
# a date outside of years 1 to 9999, which Python cannot read, alone or before a time
FAR_DATE = re.compile(r"(?:0000|-(?!0000)[0-9]{4}|[+-]?[1-9][0-9]{4,6})-[0-9]{2}-[0-9]{2}(?=[T ]|\Z)")
SIGNED_TO_UNSIGNED = bytes(byte ^ 0x80 for byte in range(256))
LARGEST_LONG = (1 << 63) - 1
EPOCH = dt.datetime(1970, 1, 1)
EPOCH_UTC = EPOCH.replace(tzinfo=dt.UTC)
MICROSECOND = dt.timedelta(microseconds=1)
DAY = dt.timedelta(days=1)


class DecimalType(NamedTuple):
    """Precision and scale of a decimal column."""

    precision: int
    scale: int


def decimal_type(type_name: str) -> DecimalType | None:
    """Precision and scale of a type named decimal(p,s); None for another type."""
    match = DECIMAL_NAME.fullmatch(type_name)
    kind = DecimalType(int(match[1]), int(match[2])) if match else None
    return kind if kind and kind.scale <= kind.precision <= LONGEST_DECIMAL and kind.precision else None


def _integer(value: object, bits: int) -> int:
    if isinstance(value, str) and INTEGER_TEXT.fullmatch(value):
        value = int(value)
    if isinstance(value, np.integer):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise ValueError
    return value


def _floating(value: object, single: bool) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, str, np.floating, np.integer)):
        raise ValueError
    if isinstance(value, str) and not (value.isascii() and "_" not in value):
        raise ValueError  # Python would read 1_000, too
    number = float(value)
    if single and math.isfinite(number):
        number = struct.unpack("<f", struct.pack("<f", number))[0]
    return 0.0 if number == 0 else number


def _boolean(value: object) -> bool:
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    if value in ("true", "false"):
        return value == "true"
    raise ValueError


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError
    value.encode()  # a lone surrogate has no UTF-8 form (UnicodeEncodeError is a ValueError)
    return value


def _binary(value: object) -> bytes:
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    if isinstance(value, str):
        try:
            return base64.b64decode(value, validate=True)
        except binascii.Error:
            raise ValueError from None
    raise ValueError


def _far_days(date: str) -> int:
    """The day number; ValueError for what is no day of the calendar."""
    return int(np.datetime64(date.removeprefix("+"), "D").astype(np.int64))


def _date(value: object) -> int:
    if isinstance(value, str):
        if FAR_DATE.fullmatch(value):
            return _integer(_far_days(value), 32)
        value = dt.date.fromisoformat(value)
    if isinstance(value, dt.datetime) or not isinstance(value, dt.date):
        raise ValueError
    return (value - EPOCH.date()).days


def _timestamp(value: object, utc: bool) -> int:
    if isinstance(value, str):
        if FINER_TEXT.search(value):  # Python would cut it
            raise ValueError
        far = FAR_DATE.match(value)
        if far:  # Python reads the rest on a day that it knows
            rest = _timestamp(f"{EPOCH.date()}{value[far.end() :]}", utc)
            return _integer(_far_days(far[0]) * (DAY // MICROSECOND) + rest, 64)
        value = dt.datetime.fromisoformat(value)
    if not isinstance(value, dt.datetime) or getattr(value, "nanosecond", False):  # pandas' has nanoseconds
        raise ValueError
    if value.tzinfo is None:  # without an offset it is UTC; the session time zone never matters
        return (value - EPOCH) // MICROSECOND
    if not utc:
        raise ValueError
    return (value - EPOCH_UTC) // MICROSECOND


def _decimal(value: object, kind: DecimalType) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, str, decimal.Decimal)):
        raise ValueError
    if isinstance(value, str) and not (value.isascii() and "_" not in value):
        raise ValueError
    try:
        sign, digits, exponent = decimal.Decimal(value).as_tuple()
    except decimal.InvalidOperation:
        raise ValueError from None
    if not isinstance(exponent, int):  # an infinity or NaN
        raise ValueError
    unscaled, shift = int("".join(map(str, digits))), exponent + kind.scale
    if unscaled == 0:
        return 0
    if shift > kind.precision or -shift > len(digits):
        raise ValueError
    lost = 0
    if shift >= 0:
        unscaled *= int(10**shift)
    else:
        unscaled, lost = divmod(unscaled, int(10**-shift))
    if lost or unscaled >= 10**kind.precision:
        raise ValueError
    return -unscaled if sign else unscaled


_CASTS: dict[str, Callable[[object], Stored]] = {
    "string": _text,
    "boolean": _boolean,
    "float": lambda value: _floating(value, single=True),
    "double": lambda value: _floating(value, single=False),
    "date": _date,
    "timestamp": lambda value: _timestamp(value, utc=True),
    "timestamp_ntz": lambda value: _timestamp(value, utc=False),
    "binary": _binary,
}
_HINTS = {
    "boolean": " (true or false)",
    "date": " (like 2026-01-01)",
    "timestamp": " (like 2026-01-01T00:00:00Z)",
    "timestamp_ntz": " (like 2026-01-01T00:00:00, without an offset)",
    "binary": " (bytes, or text in base64)",
}


def is_key_type(type_name: str) -> bool:
    """Whether a column of this type can be part of a key."""
    return type_name in _CASTS or type_name in INTEGER_BITS or decimal_type(type_name) is not None


def to_stored(value: object, type_name: str, column: str) -> Stored:
    """The stored form of a value given in its own type, its text form or its JSON form; None stays None.

    Raises KeyTypeError, which names the column and the type."""
    if value is None:
        return None
    try:
        if type_name in INTEGER_BITS:
            return _integer(value, INTEGER_BITS[type_name])
        kind = decimal_type(type_name)
        return _decimal(value, kind) if kind else _CASTS[type_name](value)
    except (ValueError, OverflowError):
        raise KeyTypeError(column, type_name, value, _HINTS.get(type_name, "")) from None


def order_key(key: Key) -> OrderKey:
    """A tuple that Python compares as the keys of our files are ordered."""
    return tuple([(0, None) if v is None else (2, 0.0) if v != v else (1, v) for v in key])


class KeyOrder:
    """The order of the keys in one file. Ours is `order_key`'s. A file of Dione's is in Java's: nulls may be greatest,
    bytes (decimals are given as the bytes that lie in the file) compare signed, and -0.0 comes before 0.0."""

    def __init__(self, nulls_last: Sequence[bool], java_types: Sequence[str] = ()) -> None:
        """`java_types` are the types of the key columns, where they are in Java's order."""
        signed = [has_signed_bytes(name) for name in java_types] or [False] * len(nulls_last)
        self._columns = list(zip(nulls_last, signed, strict=True))
        self._as_java = bool(java_types)
        self.is_ours = not java_types and not any(nulls_last)

    def __call__(self, key: Key) -> OrderKey:
        """A tuple that Python compares as this file's keys are ordered."""
        if self.is_ours:
            return order_key(key)
        out: list[tuple[int, Stored]] = []
        for value, (null_last, signed) in zip(key, self._columns, strict=True):
            if value is None:
                out.append((3 if null_last else 0, None))
            elif signed and isinstance(value, bytes):
                out.append((1, value.translate(SIGNED_TO_UNSIGNED)))
            elif self._as_java and isinstance(value, float) and value == value:
                out.append((1, _total_order(value)))
            else:
                out += order_key((value,))
        return tuple(out)


def _total_order(value: float) -> int:
    """An integer that compares as Java's Double.compare does: the bits, those of negative numbers turned around."""
    bits: int = struct.unpack("<q", struct.pack("<d", value))[0]
    return bits if bits >= 0 else bits ^ LARGEST_LONG


def has_signed_bytes(type_name: str) -> bool:
    """Whether Java compares values of this type as signed bytes."""
    return type_name == "binary" or decimal_type(type_name) is not None


# -- Arrow ---------------------------------------------------------------------------------------------------------

_ARROW_TYPES = {
    "string": pa.string(),
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "binary": pa.binary(),
}


def arrow_type(type_name: str) -> pa.DataType:
    """The Arrow type that carries a column of this type."""
    kind = decimal_type(type_name)
    return pa.decimal128(kind.precision, kind.scale) if kind else _ARROW_TYPES[type_name]


def type_of_arrow(arrow: pa.DataType) -> str | None:
    """The key type that a column of an Arrow type is stored as, or None where there is none without loss."""
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
    return next((name for name, known in _ARROW_TYPES.items() if known == arrow), None)


def key_array(array: pa.Array | pa.ChunkedArray, type_name: str, column: str) -> pa.Array:
    """A column in the Arrow type of its key type, each value exactly. One of type null is so many nulls.

    BTreeError, which names the column, where the values are of another kind than the type, or one does not fit it or is
    text that is not UTF-8."""
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    target = arrow_type(type_name)
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
    if pa.types.is_string(target):
        try:
            array.validate(full=True)
        except pa.ArrowInvalid:
            raise BTreeError("a value is not UTF-8", column=column, expected=type_name) from None
    return array


def _is_of_kind(arrow: pa.DataType, target: pa.DataType) -> bool:
    """Whether a safe cast keeps each value or refuses it. Between other kinds Arrow's cast would cut, round or read
    text."""
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
    array = array.cast(arrow_type(type_name))
    if type_name in ("timestamp", "timestamp_ntz"):
        return list(array.view(pa.int64()).to_pylist())
    if type_name == "date":
        return list(array.view(pa.int32()).to_pylist())
    kind = decimal_type(type_name)
    if kind:
        return [None if v is None else _decimal(v, kind) for v in array.to_pylist()]
    if type_name in ("float", "double"):
        return [0.0 if v == 0 else v for v in array.to_pylist()]
    return list(array.to_pylist())


def adjacent(columns: Sequence[pa.Array], nulls_last: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Compare each row of key columns with the row before it: (equal, greater or equal), both of n - 1 booleans, or
    none of no rows."""
    rows = max(len(columns[0]) - 1, 0)
    last = len(columns[0]) - rows
    equal, greater = compare([c.slice(0, rows) for c in columns], [c.slice(last) for c in columns], nulls_last)
    return equal, greater | equal


def compare(
    befores: Sequence[pa.Array], afters: Sequence[pa.Array], nulls_last: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Compare rows of key columns with rows of others: (equal, the other one is greater)."""
    equal = np.ones(len(befores[0]), bool)
    greater = np.zeros(len(befores[0]), bool)
    for before, after in zip(befores, afters, strict=True):
        same, more = _compare(before, after, nulls_last)
        greater |= equal & more
        equal &= same
    return equal, greater


def _compare(before: pa.Array, after: pa.Array, nulls_last: bool) -> tuple[np.ndarray, np.ndarray]:
    """(after equals before, after is greater than before), NaN one value and greatest but for nulls at that end."""
    more = _filled(pc.greater(after, before))
    if before.null_count or after.null_count:
        no_before, no_after = _filled(before.is_null()), _filled(after.is_null())
        more |= no_after & ~no_before if nulls_last else no_before & ~no_after
    if pa.types.is_floating(before.type):
        more |= ~_filled(pc.is_nan(before)) & _filled(pc.is_nan(after))
    return same_values(before, after), more


def same_values(one: pa.Array, other: pa.Array) -> np.ndarray:
    """Whether two key columns of one type hold the same value, row by row: null is one, NaN is one."""
    same = _filled(pc.equal(one, other))
    if one.null_count or other.null_count:
        same |= _filled(one.is_null()) & _filled(other.is_null())
    if pa.types.is_floating(one.type):
        same |= _filled(pc.is_nan(one)) & _filled(pc.is_nan(other))
    return same


def _filled(mask: pa.Array) -> np.ndarray:
    """Null is false. Not by `fill_null` nor `to_numpy`, which import pandas where that is installed."""
    if mask.null_count:
        mask = pc.and_kleene(mask, mask.is_valid())
    bits = np.frombuffer(mask.buffers()[1] or b"", np.uint8)
    flags: np.ndarray = np.unpackbits(bits, count=mask.offset + len(mask), bitorder="little").view(np.bool_)
    return flags[mask.offset :].copy()
