"""Stored values as JSON shows them: the form in which a key may be given back."""

import base64
import math

import numpy as np

from gnomon.btree.keys import Key, Stored, decimal_type
from gnomon.btree.schema import Column

DAY_MICROS = 24 * 60 * 60 * 1_000_000

Json = str | bool | int | float | None


def to_json(value: Stored, type_name: str) -> Json:
    """The JSON form of a stored value: bytes in base64, decimals as text with their scale, dates and timestamps in
    ISO 8601 (timestamp: UTC with Z), NaN and infinities as text."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
    if not isinstance(value, int) or isinstance(value, bool):
        return value
    if type_name == "date":
        return _date(value)
    if type_name in ("timestamp", "timestamp_ntz"):
        return _timestamp(value) + ("Z" if type_name == "timestamp" else "")
    kind = decimal_type(type_name)
    return _decimal(value, kind.scale) if kind else value


def to_json_object(row: Key, columns: tuple[Column, ...]) -> dict[str, Json]:
    """Columns by name."""
    return {column.name: to_json(value, column.type) for column, value in zip(columns, row, strict=True)}


def _date(days: int) -> str:
    text = str(np.datetime64(days, "D"))  # Python's own dates end at year 9999
    if text.startswith("-"):
        return f"-{text[1:]:0>10}"  # numpy shows the year -44 as -044
    return text if len(text) == len("9999-12-31") else f"+{text}"  # as ISO 8601 has it


def _timestamp(micros: int) -> str:
    days, rest = divmod(micros, DAY_MICROS)
    seconds, fraction = divmod(rest, 1_000_000)
    minutes, second = divmod(seconds, 60)
    time = f"{minutes // 60:02}:{minutes % 60:02}:{second:02}"
    return f"{_date(days)}T{time}" + (f".{fraction:06}" if fraction else "")


def _decimal(unscaled: int, scale: int) -> str:
    digits = str(abs(unscaled)).rjust(scale + 1, "0")
    text = f"{digits[:-scale]}.{digits[-scale:]}" if scale else digits
    return f"-{text}" if unscaled < 0 else text
