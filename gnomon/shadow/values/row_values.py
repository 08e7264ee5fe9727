"""Values of a row: from Arrow to Python, and from Python to JSON.

Python: as from pyarrow, but a map is a dict (pairs where its keys repeat, or cannot be keys of a dict); timestamps with
a time zone are in UTC; dates and timestamps that Python cannot hold, or finer than microseconds, are ISO strings; a
UUID is its 36 characters; a time is HH:MM:SS with its fraction; text that is not UTF-8 is bytes; JSON text is parsed.
JSON: bytes in base64, decimals as strings, timestamps ISO 8601 (UTC with Z), NaN and the infinities as strings, a
duration in microseconds with its unit, a map as an object, or as pairs where its keys are not strings.
"""

import base64
import datetime as dt
import decimal
import json
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import types

from gnomon.base.arrow import compute as pc
from gnomon.base.json_forms import DIGITS, MICROS, date_text, json_float, time_text, timestamp_text

EPOCH = dt.datetime(1970, 1, 1)
FIRST_DAY, LAST_DAY = -719162, 2932896  # 0001-01-01 and 9999-12-31, Python's first and last day
TEXTS = frozenset(kind.id for kind in (pa.string(), pa.large_string(), pa.string_view()))
NUMBERS = frozenset(
    kind.id
    for kind in (
        *(pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
        *(pa.float32(), pa.float64(), pa.bool_(), pa.binary()),
    )
)


def python_values(array: pa.Array | pa.ChunkedArray) -> list[Any]:
    """The values of a column."""
    if isinstance(array, pa.ChunkedArray):
        if array.num_chunks != 1:
            return [value for chunk in array.chunks for value in python_values(chunk)]
        array = array.chunk(0)
    kind = array.type
    if kind.id in NUMBERS:
        return list(array.to_pylist())
    if kind.id in TEXTS:
        return _text(array)
    if isinstance(kind, pa.BaseExtensionType):
        return _extension(array)
    if types.is_dictionary(kind):
        return python_values(array.dictionary_decode())
    if types.is_run_end_encoded(kind):
        return python_values(pc.run_end_decode(array))
    if types.is_nested(kind):
        return _nested(array)
    if types.is_temporal(kind) and not types.is_interval(kind):
        return _temporal(array)
    return list(array.to_pylist())


def of_plain(kind: pa.DataType, values: Sequence[Any]) -> Sequence[Any]:
    """As `python_values`, of a column as `gnomon.sources.PlainValues` has it."""
    if kind.id in NUMBERS or kind.id in TEXTS:
        return values
    convert = _converter(kind)
    return [None if value is None else convert(value) for value in values]


def _extension(array: pa.ExtensionArray) -> list[Any]:
    """Values of an extension type in its storage type, except UUIDs, JSON and booleans in a byte."""
    name = array.type.extension_name
    if name == "arrow.uuid":
        return [None if v is None else str(uuid.UUID(bytes=v)) for v in array.storage.to_pylist()]
    if name == "arrow.json":
        return [None if v is None else _parsed(v) for v in _text(array.storage)]
    if name == "arrow.bool8":
        return [None if v is None else v != 0 for v in array.storage.to_pylist()]
    return python_values(array.storage)


def _temporal(array: pa.Array) -> list[Any]:
    """Dates, times, timestamps and durations, from their numbers."""
    convert = _converter(array.type)
    ticks = array.view(pa.int32() if array.type.bit_width == 32 else pa.int64()).to_pylist()
    return [None if tick is None else convert(tick) for tick in ticks]


def _converter(kind: pa.DataType) -> Callable[[int], Any]:
    if types.is_date32(kind):
        return _date
    if types.is_date64(kind):
        return lambda tick: _date(tick // 86_400_000)
    if types.is_time(kind):
        return lambda tick: time_text(tick, kind.unit)
    if types.is_timestamp(kind):
        return lambda tick: _timestamp(tick, kind.unit, kind.tz is not None)
    return lambda tick: _duration(tick, kind.unit)


def _text(array: pa.Array) -> list[Any]:
    """Texts; a value that is not UTF-8, which some writers allow, is bytes."""
    try:
        return list(array.to_pylist())
    except UnicodeDecodeError:
        return [_decoded(value) for value in array.cast(pa.large_binary()).to_pylist()]


def _decoded(value: bytes | None) -> str | bytes | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return value


def _parsed(text: str | bytes) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):  # not JSON, or nested too deeply for Python: the text itself
        return text


def _date(day: int) -> dt.date | str:
    if FIRST_DAY <= day <= LAST_DAY:
        return EPOCH.date() + dt.timedelta(days=day)
    return date_text(day)


def _timestamp(tick: int, unit: str, utc: bool) -> dt.datetime | str:
    per_day = 86400 * 10 ** DIGITS[unit]
    exact = unit != "ns" or tick % 1000 == 0
    if not exact or not FIRST_DAY <= tick // per_day <= LAST_DAY:
        return timestamp_text(tick, unit, utc)
    micros = tick // 1000 if unit == "ns" else tick * MICROS[unit]
    moment = EPOCH + dt.timedelta(microseconds=micros)
    return moment.replace(tzinfo=dt.UTC) if utc else moment


def _duration(tick: int, unit: str) -> dt.timedelta | str:
    if unit == "ns" and tick % 1000:
        return f"{tick}ns"
    try:
        return dt.timedelta(microseconds=tick // 1000 if unit == "ns" else tick * MICROS[unit])
    except OverflowError:
        return f"{tick}{unit}"


def _nested(array: pa.Array) -> list[Any]:
    kind = array.type
    valid = array.is_valid().to_pylist()
    if types.is_struct(kind):
        names = [kind.field(i).name for i in range(kind.num_fields)]
        # Not with `flatten`, which ends the process for a union in a record with nulls (Arrow's issue 14736).
        columns = [python_values(array.field(i)) for i in range(kind.num_fields)]
        rows: list[Any] = list(zip(*columns, strict=True)) if columns else [()] * len(array)
        return [_record(names, row) if ok else None for ok, row in zip(valid, rows, strict=True)]
    if types.is_map(kind):
        begin = array.offsets[0].as_py() if len(array) else 0
        ends = [offset - begin for offset in array.offsets.to_pylist()] if len(array) else [0]
        size = ends[-1]
        keys = python_values(array.keys.slice(begin, size))
        items = python_values(array.items.slice(begin, size))
        pairs = list(zip(keys, items, strict=True))
        return [_mapping(pairs[ends[i] : ends[i + 1]]) if ok else None for i, ok in enumerate(valid)]
    if types.is_union(kind):
        return _union(array)
    # Lists: element by element, so that every layout (fixed size, views) is read by pyarrow's own rules.
    return [python_values(array[i].values) if ok else None for i, ok in enumerate(valid)]


def _union(array: pa.UnionArray) -> list[Any]:
    """The values alone. The buffers are read because pyarrow's `type_codes` of a slice belong to the whole array."""
    if not len(array):
        return []
    kind, rows = array.type, slice(array.offset, array.offset + len(array))
    children = {code: python_values(array.field(i)) for i, code in enumerate(kind.type_codes)}
    codes = np.frombuffer(array.buffers()[1], np.int8)[rows].tolist()
    dense = kind.mode == "dense"
    places = np.frombuffer(array.buffers()[2], np.int32)[rows].tolist() if dense else range(len(array))
    return [children[code][place] for code, place in zip(codes, places, strict=True)]


def _record(names: list[str], row: tuple[Any, ...]) -> Any:
    record = dict(zip(names, row, strict=True))
    return record if len(record) == len(names) else [list(pair) for pair in zip(names, row, strict=True)]


def _mapping(pairs: list[tuple[Any, Any]]) -> Any:
    try:
        mapping = dict(pairs)
    except TypeError:  # keys that are lists or records
        mapping = {}
    return mapping if len(mapping) == len(pairs) else [list(pair) for pair in pairs]


def _json_other(value: object) -> object:
    convert = _JSON.get(type(value))
    if convert is None:
        convert = next((convert for kind, convert in _JSON.items() if isinstance(value, kind)), str)
    return convert(value)


def _json_datetime(value: dt.datetime) -> str:
    since = value - (EPOCH if value.tzinfo is None else EPOCH.replace(tzinfo=dt.UTC))
    return timestamp_text(since // dt.timedelta(microseconds=1), "us", value.tzinfo is not None)


_JSON: dict[type, Callable[[Any], object]] = {
    bytes: lambda value: base64.b64encode(value).decode("ascii"),
    decimal.Decimal: lambda value: format(value, "f"),
    dt.datetime: _json_datetime,
    dt.date: lambda value: value.isoformat(),
    dt.timedelta: lambda value: f"{value // dt.timedelta(microseconds=1)}us",
}


_PLAIN = frozenset({str, int, bool, type(None)})


def json_value(value: Any) -> Any:
    """The value as JSON has it: of texts, numbers, true, false, null, lists and dictionaries, and of no subclass
    of their types, which some writers refuse."""
    if type(value) in _PLAIN:
        return value
    if isinstance(value, float):
        return json_float(float(value))
    if isinstance(value, dict):
        if all(isinstance(key, str) for key in value):
            return {key: json_value(item) for key, item in value.items()}
        return [[json_value(key), json_value(item)] for key, item in value.items()]
    if isinstance(value, (list, tuple)):
        return [json_value(item) for item in value]
    if isinstance(value, str):
        return str.__str__(value)  # of a subclass, too, whose own form may be another
    return int(value) if isinstance(value, int) else _json_other(value)


def to_json(value: Any) -> str:
    """A row, or anything made of rows, as JSON text on one line."""
    return json.dumps(json_value(value), ensure_ascii=False, allow_nan=False)


def csv_fields(row: Mapping[str, Any], columns: Iterable[str]) -> list[str]:
    """The values of a row as fields of CSV: a text as it is, null as an empty field, all else as in JSON."""
    return [_csv_field(row[name]) for name in columns]


def _csv_field(value: Any) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    text = to_json(value)
    return str(json.loads(text)) if text.startswith('"') else text
