"""Key types: one `KeyType` for each, with its casts, its Arrow and Avro types, its JSON form, its hash and its order.

A new key type begins with an entry in `_TYPES`; CONTRIBUTING.md lists the other places that name key types.

The *stored form* of a value is its form in an index file, as plain Python:
string -> str, boolean -> bool, tinyint/smallint/int/bigint -> int, float/double -> float, date -> int (days since
1970-01-01), timestamp/timestamp_ntz -> int (microseconds since 1970-01-01T00:00), decimal -> int (unscaled), binary ->
bytes, null -> None. Type names are Spark's.

A *source type* is the name of a type that Spark does not accept as a key, in an index's spec. MAPPED has the type that
stores each without loss. Dictionaries, run-end encoding, views and extension types count as the type of their values;
they have no name of their own. The rules are in docs/reference/key-types.md.
"""

import base64
import binascii
import datetime as dt
import decimal
import math
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from gnomon.base.arrow import compute as pc
from gnomon.base.json_forms import date_text, json_float, timestamp_text
from gnomon.btree.errors import BTreeError, KeyTypeError

Stored = str | bool | int | float | bytes | None
Json = str | bool | int | float | None

LONGEST_DECIMAL = 38  # digits
LONG_DIGITS = 18  # digits of a decimal that Spark hashes as a long
DECIMAL_NAME = re.compile(r"decimal\(([0-9]{1,2}),([0-9]{1,2})\)")
INTEGER_TEXT = re.compile(r"[+-]?[0-9]+")
NUMBER_TEXT = re.compile(r"[!-^`-~]+")  # visible ASCII without _: Python would read " 1.5" and 1_000, too
FINER_TEXT = re.compile(r"[.,][0-9]{7}")  # a fraction finer than microseconds
# a date outside of years 1 to 9999, which Python cannot read, alone or before a time
FAR_DATE = re.compile(r"(?:0000|-(?!0000)[0-9]{4}|[+-]?[1-9][0-9]{4,6})-[0-9]{2}-[0-9]{2}(?=[T ]|\Z)")
EPOCH = dt.datetime(1970, 1, 1)
EPOCH_UTC = EPOCH.replace(tzinfo=dt.UTC)
MICROSECOND = dt.timedelta(microseconds=1)
DAY = dt.timedelta(days=1)
DAY_MICROS = DAY // MICROSECOND
FLOAT_SIGN = {4: np.int64(0x7FFFFFFF), 8: np.int64(0x7FFFFFFFFFFFFFFF)}  # reverses the order of negative floats' bits
LONGEST_UNSIGNED = 20  # digits of 64 bits
MAPPED: dict[str, pa.DataType] = {
    "uint8": pa.int16(),
    "uint16": pa.int32(),
    "uint32": pa.int64(),
    "uint64": pa.decimal128(LONGEST_UNSIGNED, 0),
    "half": pa.float32(),
    "bool8": pa.bool_(),
    "fixed": pa.binary(),
    "uuid": pa.binary(),
    "time(s)": pa.int64(),
    "time(ms)": pa.int64(),
    "time(us)": pa.int64(),
    "time(ns)": pa.int64(),
    "timestamp(ns)": pa.int64(),
    "timestamp_ntz(ns)": pa.int64(),
}


class DecimalType(NamedTuple):
    """Precision and scale of a decimal column."""

    precision: int
    scale: int


def _unchanged(value: Stored) -> Json:
    assert not isinstance(value, bytes)
    return value


@dataclass(frozen=True)
class KeyType:
    """A type that a column of an index file may have."""

    name: str  # Spark's
    arrow: pa.DataType  # Arrow type of a column in stored form
    avro: object  # the schema in a file
    cast: Callable[[object], Stored]  # from a value in its own, its text or its JSON form; ValueError
    hash_format: str | None  # the `struct` format in which Spark hashes a value; None where it hashes bytes
    comparable: Callable[[pa.Array], pa.Array]  # converts a column to one that Arrow compares in key order
    show: Callable[[Stored], Json] = _unchanged  # from a stored value to JSON
    hint: str = ""  # how to write a value, for errors
    decimal: DecimalType | None = None

    def to_stored(self, value: object, column: str) -> Stored:
        """The stored form of a value given in its own type, its text form or its JSON form; None stays None.

        Raises KeyTypeError, which names the column and the type."""
        if value is None:
            return None
        try:
            return self.cast(value)
        except (ValueError, OverflowError):
            raise KeyTypeError(column, self.name, value, self.hint) from None

    @property
    def least(self) -> Stored:
        """The least value, in stored form. Null is less."""
        if self.decimal:
            return 1 - int(10**self.decimal.precision)
        if pa.types.is_floating(self.arrow):
            return -math.inf
        if pa.types.is_boolean(self.arrow):
            return False
        if self.arrow in (pa.string(), pa.binary()):
            return "" if self.arrow == pa.string() else b""
        return -(1 << int(self.arrow.bit_width) - 1)

    def after(self, value: Stored) -> tuple[Stored, ...]:
        """The least value that is greater than a stored value, alone; nothing where there is none."""
        if value is None:
            return (self.least,)
        if isinstance(value, str | bytes):
            return (value + "\0",) if isinstance(value, str) else (value + b"\0",)
        if isinstance(value, bool):
            return () if value else (True,)
        if isinstance(value, float):
            if math.isinf(value) and value > 0:
                return (math.nan,)
            kind = np.float32 if self.arrow == pa.float32() else np.float64
            return () if math.isnan(value) else (float(np.nextafter(kind(value), kind(math.inf))),)
        most = 10**self.decimal.precision - 1 if self.decimal else (1 << self.arrow.bit_width - 1) - 1
        return (value + 1,) if value < most else ()

    def to_json(self, value: Stored) -> Json:
        """The JSON form of a stored value: bytes in base64, decimals as text with their scale, dates and timestamps in
        ISO 8601 (timestamp: UTC with Z), NaN and infinities as text."""
        return None if value is None else self.show(value)


# -- from outside values to the stored form ----------------------------------------------------------------------------


def _integer(value: object, bits: int) -> int:
    if type(value) is not int:
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
    if isinstance(value, str) and not NUMBER_TEXT.fullmatch(value):
        raise ValueError
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
    """The day number; ValueError for a date that does not exist."""
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
        if FINER_TEXT.search(value):  # Python would truncate it
            raise ValueError
        far = FAR_DATE.match(value)
        if far:  # Python reads the time with a date that it supports
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
    if isinstance(value, str) and not NUMBER_TEXT.fullmatch(value):
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


# -- from the stored form to JSON --------------------------------------------------------------------------------------


def _show_float(value: Stored) -> Json:
    assert isinstance(value, int | float)
    return json_float(float(value))


def _show_binary(value: Stored) -> Json:
    assert isinstance(value, bytes)
    return base64.b64encode(value).decode()


def _show_date(days: Stored) -> str:
    return date_text(int(days or 0))


def _show_timestamp(micros: Stored, utc: bool) -> str:
    return timestamp_text(int(micros or 0), "us", utc, zeros=True)


def _show_decimal(unscaled: Stored, scale: int) -> str:
    number = int(unscaled or 0)
    digits = str(abs(number)).rjust(scale + 1, "0")
    text = f"{digits[:-scale]}.{digits[-scale:]}" if scale else digits
    return f"-{text}" if number < 0 else text


# -- columns that Arrow compares ---------------------------------------------------------------------------------------


def _same(array: pa.Array) -> pa.Array:
    return array


def _as_long(array: pa.Array) -> pa.Array:
    return array.cast(pa.int64())


def _days(array: pa.Array) -> pa.Array:
    return array.view(pa.int32()).cast(pa.int64())


def _moments(array: pa.Array) -> pa.Array:
    return array.view(pa.int64())


def _utf8(array: pa.Array) -> pa.Array:
    return array.view(pa.binary())


def _ordered_floats(array: pa.Array) -> pa.Array:
    values: npt.NDArray[np.floating] = pc.fill_null(array, 0).to_numpy(zero_copy_only=False) + 0  # -0.0 + 0 is 0.0
    values = np.where(np.isnan(values), values.dtype.type(np.nan), values)
    bits = values.view(f"<i{values.itemsize}").astype(np.int64)
    ordered = np.where(bits < 0, bits ^ FLOAT_SIGN[values.itemsize], bits)
    nulls = array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None
    return pa.array(ordered, mask=nulls)


# -- the types ---------------------------------------------------------------------------------------------------------


def _integer_type(name: str, arrow: pa.DataType, avro: str) -> KeyType:
    bits = arrow.bit_width
    compare = _same if bits == 64 else _as_long
    return KeyType(name, arrow, avro, partial(_integer, bits=bits), "<q" if bits == 64 else "<i", compare)


def _moment_type(name: str, arrow: pa.DataType, logical: str, utc: bool) -> KeyType:
    hint = " (like 2026-01-01T00:00:00Z)" if utc else " (like 2026-01-01T00:00:00, without an offset)"
    avro = {"type": "long", "logicalType": logical}
    show = partial(_show_timestamp, utc=utc)
    return KeyType(name, arrow, avro, lambda value: _timestamp(value, utc), "<q", _moments, show, hint)


def _float_type(name: str, arrow: pa.DataType, single: bool) -> KeyType:
    form = "<f" if single else "<d"
    return KeyType(name, arrow, name, lambda value: _floating(value, single), form, _ordered_floats, _show_float)


_TYPES = {
    kind.name: kind
    for kind in (
        KeyType("string", pa.string(), "string", _text, None, _utf8),
        KeyType("boolean", pa.bool_(), "boolean", _boolean, "<i", _as_long, hint=" (true or false)"),
        _integer_type("tinyint", pa.int8(), "int"),
        _integer_type("smallint", pa.int16(), "int"),
        _integer_type("int", pa.int32(), "int"),
        _integer_type("bigint", pa.int64(), "long"),
        _float_type("float", pa.float32(), single=True),
        _float_type("double", pa.float64(), single=False),
        KeyType(
            "date",
            pa.date32(),
            {"type": "int", "logicalType": "date"},
            _date,
            "<i",
            _days,
            _show_date,
            " (like 2026-01-01)",
        ),
        _moment_type("timestamp", pa.timestamp("us", "UTC"), "timestamp-micros", utc=True),
        _moment_type("timestamp_ntz", pa.timestamp("us"), "local-timestamp-micros", utc=False),
        KeyType("binary", pa.binary(), "bytes", _binary, None, _same, _show_binary, " (bytes, or text in base64)"),
    )
}


def key_types() -> list[KeyType]:
    """All types except the decimals."""
    return list(_TYPES.values())


@lru_cache(1024)
def find_key_type(name: str) -> KeyType | None:
    """The type of this name; None where no column of an index file can have it."""
    match = DECIMAL_NAME.fullmatch(name)
    if match is None:
        return _TYPES.get(name)
    kind = DecimalType(int(match[1]), int(match[2]))
    if not kind.scale <= kind.precision <= LONGEST_DECIMAL or not kind.precision:
        return None
    return KeyType(
        name,
        pa.decimal128(kind.precision, kind.scale),
        {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale},
        lambda value: _decimal(value, kind),
        "<q" if kind.precision <= LONG_DIGITS else None,
        _same,
        partial(_show_decimal, scale=kind.scale),
        decimal=kind,
    )


def is_key_type(name: str) -> bool:
    """Whether a column of this type can be part of a key."""
    return find_key_type(name) is not None


@lru_cache(1024)
def key_type(name: str) -> KeyType:
    """The type of this name. BTreeError where no column of an index file can have it."""
    found = find_key_type(name)
    if found is None:
        raise BTreeError(f"no column of an index file can be of type {name}")
    return found


# -- source types ------------------------------------------------------------------------------------------------------


def source_type(arrow: pa.DataType) -> str | None:
    """The name in MAPPED of an Arrow type; None for a type that is not mapped."""
    if isinstance(arrow, pa.UuidType):
        return "uuid"
    if isinstance(arrow, pa.Bool8Type):
        return "bool8"
    arrow = value_type(arrow)
    if pa.types.is_unsigned_integer(arrow):
        return f"uint{arrow.bit_width}"
    if pa.types.is_float16(arrow):
        return "half"
    if pa.types.is_fixed_size_binary(arrow):
        return "fixed"
    if pa.types.is_time(arrow):
        return f"time({arrow.unit})"
    if pa.types.is_timestamp(arrow) and arrow.unit == "ns":
        return "timestamp(ns)" if arrow.tz else "timestamp_ntz(ns)"
    return None


def value_type(arrow: pa.DataType) -> pa.DataType:
    """The type of the values of a dictionary, of run-end encoding or of an extension type; other types unchanged."""
    if isinstance(arrow, pa.BaseExtensionType):
        return value_type(arrow.storage_type)
    if pa.types.is_dictionary(arrow) or pa.types.is_run_end_encoded(arrow):
        return value_type(arrow.value_type)
    return arrow


def mapped(array: pa.Array) -> pa.Array:
    """The column in the type that MAPPED gives to its source type. Times and timestamps become numbers of their units.
    A column of a type that is not mapped keeps the type of its values."""
    arrow = array.type
    if pa.types.is_dictionary(arrow):
        return mapped(array.dictionary_decode())
    if pa.types.is_run_end_encoded(arrow):
        return mapped(pc.run_end_decode(array))
    name = source_type(arrow)
    if isinstance(arrow, pa.BaseExtensionType):
        array = array.storage
        if name is None:
            return mapped(array)
    if name is None:
        return array
    if is_number_of_units(name):
        array = array.view(pa.int32() if arrow.bit_width == 32 else pa.int64())
    return array.cast(MAPPED[name])


def is_number_of_units(name: str | None) -> bool:
    """Whether the values of a source type are stored as a number of its units, which has no meaning without the
    unit."""
    return name is not None and name.startswith(("time(", "timestamp"))


def mean_the_same(one: str | None, other: str | None) -> bool:
    """Whether values of these two source types, if both are stored as one key type, have the same stored form: files of
    both may hold one column. None stands for a type that is not mapped."""
    return one == other or not (is_number_of_units(one) or is_number_of_units(other))
