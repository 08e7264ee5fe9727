"""Conversion of keys between the form in rows and the form stored in an index.

A column whose source type was mapped (`gnomon.btree.key_types`) accepts text in the form of the source type, and
other values in this form or in the stored form: a UUID as 36 characters (or 32 without the dashes, or bytes), a time of
day as HH:MM:SS.f or a number of its units, a timestamp in nanoseconds as ISO 8601 with up to 9 digits of a fraction or
a number."""

import datetime as dt
import decimal
import re
import struct
import uuid
from collections.abc import Callable
from typing import Any, NamedTuple

from gnomon.base.json_forms import DIGITS, date_text, time_text, timestamp_text
from gnomon.btree.errors import KeyTypeError
from gnomon.btree.key_types import Stored, key_type
from gnomon.shadow.metadata import KeyColumn

UUID_TEXT = re.compile(r"[0-9a-f]{8}(-?)[0-9a-f]{4}\1[0-9a-f]{4}\1[0-9a-f]{4}\1[0-9a-f]{12}", re.IGNORECASE | re.ASCII)
TIME_TEXT = re.compile(r"([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:[.,]([0-9]{1,9}))?)?")
NANOSECONDS = re.compile(r"([.,][0-9]{6})([0-9]{1,3})(?![0-9])")  # digits of a fraction after the microseconds
DAY_SECONDS = 86400
UUID_BYTES = 16
_EXACT = decimal.Context(prec=80)  # more digits than any decimal key


class Form(NamedTuple):
    """How to read and show a key of a source type, and its name in an error. `read` raises ValueError or
    OverflowError."""

    read: Callable[[Any, KeyColumn], Stored]
    show: Callable[[Any], Any]
    hint: str


def read_key(value: object, column: KeyColumn) -> Stored:
    """The stored form of a key column's value. KeyTypeError names the column and its type."""
    form = _FORMS.get(column.source_type or "")
    if form is None or value is None:
        return key_type(column.type).to_stored(value, column.name)
    try:
        return form.read(value, column)
    except (KeyTypeError, ValueError, OverflowError):
        raise KeyTypeError(column.name, str(column.source_type), value, form.hint) from None


def shown_key(stored: Any, column: KeyColumn) -> Any:
    """A stored value in the form of rows; dates and timestamps as text."""
    form = _FORMS.get(column.source_type or "")
    if stored is None:
        return None
    if form is not None:
        return form.show(stored)
    if column.type == "date":
        return date_text(stored)
    if column.type in ("timestamp", "timestamp_ntz"):
        return timestamp_text(stored, "us", column.type == "timestamp")
    kind = key_type(column.type).decimal
    return decimal.Decimal(stored).scaleb(-kind.scale, _EXACT) if kind else stored


def has_form(column: KeyColumn) -> bool:
    """Whether keys of a column are read in another form than that of the stored type."""
    return column.source_type in _FORMS


def _read_uuid(value: Any, column: KeyColumn) -> Stored:
    if isinstance(value, uuid.UUID):
        return value.bytes
    if isinstance(value, str) and UUID_TEXT.fullmatch(value):
        return uuid.UUID(value).bytes
    return key_type(column.type).to_stored(value, column.name)


def _show_uuid(stored: bytes) -> Any:
    return str(uuid.UUID(bytes=stored)) if len(stored) == UUID_BYTES else stored


def _read_half(value: Any, column: KeyColumn) -> Stored:
    """The number as a float. If no half float equals it, the nearest one, as a row shows 0.1."""
    number = key_type("double").to_stored(value, column.name)
    single = key_type(column.type).to_stored(value, column.name)
    if number == single or number != number:
        return single
    half: float = struct.unpack("<e", struct.pack("<e", number))[0]
    return half + 0.0  # turns -0.0 into 0.0


def _read_time(value: Any, column: KeyColumn, unit: str) -> Stored:
    if isinstance(value, dt.time) and value.tzinfo is None:
        value = value.isoformat()
    if not isinstance(value, str):
        return key_type(column.type).to_stored(value, column.name)
    match = TIME_TEXT.fullmatch(value)
    if not match:
        raise ValueError
    hours, minutes, seconds = (int(part or 0) for part in match.groups()[:3])
    nanos, most = int((match[4] or "").ljust(DIGITS["ns"], "0")), 60
    seconds_of_day = (hours * 60 + minutes) * 60 + seconds
    if max(minutes, seconds) >= most or seconds_of_day * 10**9 + nanos > DAY_SECONDS * 10**9:
        raise ValueError
    fraction, lost = divmod(nanos, 10 ** (DIGITS["ns"] - DIGITS[unit]))
    if lost:  # no value of the column has these digits
        raise ValueError
    return int(seconds_of_day * 10 ** DIGITS[unit] + fraction)


def _read_nanoseconds(value: Any, column: KeyColumn, type_name: str) -> Stored:
    """`type_name`: the type of the moment in whole microseconds."""
    if not isinstance(value, (str, dt.datetime)):
        return key_type(column.type).to_stored(value, column.name)
    rest = getattr(value, "nanosecond", 0)  # a Timestamp of pandas has it
    if isinstance(value, str):
        found = NANOSECONDS.search(value)
        rest = int(found[2].ljust(3, "0")) if found else 0
        value = NANOSECONDS.sub(r"\1", value, count=1)
    elif rest:
        value = dt.datetime.combine(value.date(), value.time(), value.tzinfo)
    micros = key_type(type_name).to_stored(value, column.name)
    return key_type(column.type).to_stored(int(micros or 0) * 1000 + rest, column.name)


def _time_form(unit: str) -> Form:
    return Form(
        lambda value, column: _read_time(value, column, unit),
        lambda stored: time_text(stored, unit),
        " (like 12:30:00.5, no finer than its unit)",
    )


def _nanosecond_form(type_name: str) -> Form:
    utc = type_name == "timestamp"
    return Form(
        lambda value, column: _read_nanoseconds(value, column, type_name),
        lambda stored: timestamp_text(stored, "ns", utc),
        f" (like 2026-01-01T00:00:00.123456789{'Z' if utc else ', without an offset'})",
    )


_FORMS = {
    "uint64": Form(
        lambda value, column: key_type(column.type).to_stored(value, column.name), lambda stored: stored, ""
    ),
    "half": Form(_read_half, lambda stored: stored, ""),
    "uuid": Form(_read_uuid, _show_uuid, " (36 characters, or bytes)"),
    **{f"time({unit})": _time_form(unit) for unit in DIGITS},
    "timestamp(ns)": _nanosecond_form("timestamp"),
    "timestamp_ntz(ns)": _nanosecond_form("timestamp_ntz"),
}
