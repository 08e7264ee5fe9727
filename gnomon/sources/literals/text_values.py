"""Converts text to values of a type: a column at once where Arrow reads text as Spark does, else value by value.

The rules are those of Spark's CSV and JSON readers: dates `2020-1-31`, timestamps `2020-01-31[ T]23:59:59.5[Z|+01:00]`,
years of up to seven digits. An instant without a zone is in UTC; digits below a microsecond are truncated. `NaN`, `Inf`
and `Infinity` are numbers. A decimal with more fractional digits than its type is refused.

`texts_of` formats values as text, which `from_text` reads back to the same values.
"""

import datetime as dt
import re
from collections.abc import Callable
from decimal import Context, Decimal, Inexact, InvalidOperation

import numpy as np
import pyarrow as pa
from pyarrow import types

from gnomon.base.arrow import compute as pc
from gnomon.base.errors import GnomonError

WHOLE = r"^-?[0-9]+$"
SPELLED = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}  # Arrow's spelling: the readers' spelling
NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,9})?")
INTEGER = re.compile(r"[+-]?[0-9]{1,40}")
SPECIAL = {
    "NaN": float("nan"),
    **dict.fromkeys(("Inf", "+Inf", "Infinity", "+Infinity"), float("inf")),
    **dict.fromkeys(("-Inf", "-Infinity"), float("-inf")),
}
BOOLEANS = {"true": True, "false": False}
DAY = r"([+-]?[0-9]{4,7})(?:-([0-9]{1,2})(?:-([0-9]{1,2})"
CLOCK = r"([0-9]{1,2}):([0-9]{1,2})(?::([0-9]{1,2})(?:\.([0-9]{1,9}))?)?"
ZONE = r"\s?(Z|UTC|GMT|[+-][0-9]{1,2}(?::[0-9]{2})?|[+-][0-9]{4})"
DATE = re.compile(rf"\s*{DAY}(?:[ T].*)?)?)?\s*")
TIMESTAMP = re.compile(rf"\s*{DAY}(?:[ T]{CLOCK}{ZONE}?)?)?)?\s*")
TIME = re.compile(rf"\s*{CLOCK}\s*")
# The spellings that Arrow's own conversion reads as this module does. On other texts it reads hexadecimal as a number
# and 1 as true, loses decimals and, on exponents of eight digits, crashes the process.
DAY_TIME = r"[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?"
OFFSET = r"(0[0-9]|1[0-7]):[0-5][0-9]"
ARROW_READS: tuple[tuple[Callable[[pa.DataType], bool], str, pa.DataType | None], ...] = (
    (types.is_integer, r"^-?[0-9]{1,19}$", None),
    (types.is_floating, r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?$", None),
    (types.is_boolean, r"(?i)^(true|false)$", None),
    (types.is_decimal, r"^[+-]?[0-9]{1,30}(\.[0-9]{0,30})?$", None),
    (types.is_date32, r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$", None),
    (types.is_timestamp, rf"^{DAY_TIME}$", pa.timestamp("us")),
    (lambda kind: types.is_timestamp(kind) and kind.tz is not None, rf"^{DAY_TIME}(Z|[+-]{OFFSET})$", None),
)
EXACT = Context(prec=80, traps=[Inexact, InvalidOperation])
EXPONENT_LIMIT = 100  # for the first and last digit of a decimal: no decimal of 38 digits exceeds it
MICROS_A_DAY = 86_400_000_000


def texts_of(array: pa.Array) -> pa.Array:
    """The values as strings; nulls stay null. TypeError for a type without a text form, ValueError for bytes that are
    not UTF-8."""
    kind = array.type
    if types.is_string(kind):
        return array
    if types.is_binary(kind):
        return _utf8(array)
    if types.is_floating(kind):
        return _float_texts(array)
    if types.is_decimal(kind):
        return _decimal_texts(array)
    if types.is_timestamp(kind):
        return _moment_texts(array)
    if types.is_date32(kind) or types.is_time(kind) or types.is_signed_integer(kind) or types.is_boolean(kind):
        return array.cast(pa.string())
    if types.is_null(kind):
        return pa.nulls(len(array), pa.string())
    raise TypeError(f"values of type {kind} have no text form")


def _utf8(array: pa.Array) -> pa.Array:
    try:
        return array.cast(pa.string())
    except pa.ArrowInvalid:
        raise ValueError("expected bytes that are valid UTF-8, found others") from None


def _float_texts(array: pa.Array) -> pa.Array:
    """The shortest text that gives the number back. A whole number has a point, which also keeps the sign of zero."""
    texts = array.cast(pa.string())
    for found, spelled in SPELLED.items():
        texts = pc.if_else(pc.equal(texts, found), spelled, texts)
    return pc.if_else(pc.match_substring_regex(texts, WHOLE), pc.binary_join_element_wise(texts, ".0", ""), texts)


def _decimal_texts(array: pa.Array) -> pa.Array:
    texts = array.cast(pa.string())
    if pc.any(pc.match_substring(texts, "E")).as_py():
        return pa.array([None if text is None else f"{Decimal(text):f}" for text in texts.to_pylist()], pa.string())
    return texts


def _moment_texts(array: pa.Array) -> pa.Array:
    """`2020-01-31T23:59:59.500000Z`, without the Z where the type has no zone. A fraction has six digits, or is left
    out."""
    kind = array.type
    texts = array.cast(pa.timestamp("us", kind.tz)).view(pa.int64()).view(pa.timestamp("us")).cast(pa.string())
    texts = pc.replace_substring(texts, " ", "T")
    whole = pc.ends_with(texts, ".000000")
    texts = pc.if_else(whole, pc.utf8_slice_codeunits(texts, 0, -7), texts)
    return pc.binary_join_element_wise(texts, "Z", "") if kind.tz else texts


class RefusedValue(GnomonError, ValueError):
    """A value is not of its type. `index` is its position among the given values."""

    def __init__(self, index: int, message: str) -> None:
        super().__init__(message)
        self.index = index


def from_text(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """Convert a column of strings to a type. Nulls stay null. `RefusedValue` for the first string that is not a value
    of the type."""
    if types.is_string(kind):
        return texts
    if types.is_binary(kind):
        return texts.cast(kind)
    at_once = _at_once(texts, kind)
    if at_once is not None:
        return at_once
    convert = converter(kind)
    values = []
    for index, text in enumerate(texts.to_pylist()):
        try:
            values.append(None if text is None else convert(text))
        except ValueError as error:
            raise RefusedValue(index, str(error)) from None
    if types.is_date32(kind):
        return pa.array(values, pa.int32()).view(kind)
    return pa.array(values, pa.int64()).view(kind) if types.is_temporal(kind) else pa.array(values, kind)


def converter(kind: pa.DataType) -> Callable[[str], object]:
    """The function that converts one text to a value of the type (for a temporal type, the number that Arrow stores).
    It raises `ValueError`. `TypeError` for a type without a text form."""
    if types.is_integer(kind):
        return lambda text: _integer(text, kind)
    if types.is_floating(kind):
        return lambda text: _float(text, kind)
    if types.is_boolean(kind):
        return _boolean
    if types.is_decimal(kind):
        return lambda text: _decimal(text, kind)
    if types.is_date32(kind):
        return _date
    if types.is_timestamp(kind):
        return lambda text: _timestamp(text, kind.tz is not None)
    if types.is_time(kind):
        return _time
    if types.is_null(kind):
        return _nothing
    raise TypeError(f"values of type {kind} have no text form")


def _at_once(texts: pa.Array, kind: pa.DataType) -> pa.Array | None:
    """The column by Arrow's own conversion; None unless all texts are in a spelling that Arrow reads as this module
    does."""
    for is_kind, pattern, between in ARROW_READS:
        if is_kind(kind) and pc.all(pc.match_substring_regex(texts, pattern), min_count=0).as_py():
            try:
                return texts.cast(between or kind).cast(kind)
            except pa.ArrowInvalid:
                return None
    return None


def _nothing(text: str) -> None:
    raise ValueError(f"expected no value, found {shown(text)}")


def _integer(text: str, kind: pa.DataType) -> int:
    limit = 1 << (kind.bit_width - 1)
    if INTEGER.fullmatch(text) and -limit <= int(text) < limit:
        return int(text)
    raise ValueError(f"expected an integer of {kind.bit_width} bits, found {shown(text)}")


def _float(text: str, kind: pa.DataType) -> float:
    text = text.strip()
    if text == "-0":  # an integer has one zero, so the sign would be lost
        return 0.0
    if NUMBER.fullmatch(text):  # by way of a double, a float would be rounded twice
        return float(pa.scalar(text).cast(kind).as_py())
    if text in SPECIAL:
        return SPECIAL[text]
    raise ValueError(f"expected a number, found {shown(text)}")


def _boolean(text: str) -> bool:
    found = BOOLEANS.get(text.lower())
    if found is None:
        raise ValueError(f"expected true or false, found {shown(text)}")
    return found


def _decimal(text: str, kind: pa.DataType) -> Decimal:
    number = Decimal(text) if NUMBER.fullmatch(text) else None
    if number is not None and (not number or abs(number.adjusted()) < EXPONENT_LIMIT):
        try:
            exact = number.quantize(Decimal(1).scaleb(-kind.scale), context=EXACT) if number else Decimal(0)
        except (Inexact, InvalidOperation):
            exact = None
        if exact is not None and len(exact.as_tuple().digits) <= kind.precision:
            return exact
    raise ValueError(f"expected a decimal({kind.precision},{kind.scale}), found {shown(text)}")


def _date(text: str) -> int:
    match = DATE.fullmatch(text)
    try:
        if match is not None:
            return _days(*match.groups())
    except ValueError:
        pass
    raise ValueError(f"expected a date, found {shown(text)}")


def _days(year: str, month: str | None, day: str | None) -> int:
    """Days since 1970, proleptic Gregorian. `ValueError` where the day does not exist, or exceeds 32 bits."""
    numbers = int(year), int(month or 1), int(day or 1)
    if 1 <= numbers[0] <= 9999:
        return dt.date(*numbers).toordinal() - dt.date(1970, 1, 1).toordinal()
    days = int(np.datetime64(f"{numbers[0]:05d}-{numbers[1]:02d}-{numbers[2]:02d}", "D").astype(np.int64))
    if abs(days) >= 1 << 31:
        raise ValueError
    return days


def _timestamp(text: str, instant: bool) -> int:
    """Microseconds since 1970. An instant without a zone is in UTC; a local time may not have a zone."""
    match = TIMESTAMP.fullmatch(text)
    try:
        if match is not None and (instant or match[8] is None):
            micros = _days(*match.groups()[:3]) * MICROS_A_DAY
            micros += _time_of_day(*match.groups()[3:7]) if match[4] else 0
            micros -= _zone(match[8]) if match[8] else 0
            if abs(micros) < 1 << 63:
                return micros
    except ValueError:
        pass
    what = "a timestamp" if instant else "a timestamp without a time zone"
    raise ValueError(f"expected {what}, found {shown(text)}")


def _time(text: str) -> int:
    match = TIME.fullmatch(text)
    try:
        if match is not None:
            return _time_of_day(*match.groups())
    except ValueError:
        pass
    raise ValueError(f"expected a time of day, found {shown(text)}")


def _time_of_day(hour: str, minute: str, second: str | None, fraction: str | None) -> int:
    if int(hour) > 23 or int(minute) > 59 or int(second or 0) > 59:
        raise ValueError
    seconds = int(hour) * 3600 + int(minute) * 60 + int(second or 0)
    return seconds * 1_000_000 + int((fraction or "0").ljust(6, "0")[:6])


def _zone(text: str) -> int:
    """Microseconds that the zone is ahead of UTC: at most 18 hours, as in Java."""
    if text[0] not in "+-":
        return 0
    hours, _, minutes = text[1:].partition(":") if len(text) != 5 else (text[1:3], "", text[3:])
    ahead = int(hours) * 60 + int(minutes or 0)
    if int(minutes or 0) > 59 or ahead > 18 * 60:
        raise ValueError
    return ahead * 60_000_000 * (-1 if text[0] == "-" else 1)


def shown(text: str) -> str:
    """A value as error messages show it."""
    return repr(text) if len(text) <= 60 else f"{text[:60]!r} and {len(text) - 60} more characters"
