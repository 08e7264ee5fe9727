"""Values of a table as JSON that loses nothing: both the writer of the tables and their tests use it."""

import datetime
import decimal
import math
from typing import Any

import pyarrow as pa


def exact(value: Any) -> Any:
    """A Python value of Arrow's `to_pylist` as JSON. A decimal becomes text with all its digits. A date, a time and a
    timestamp become ISO text; a timestamp has six digits of a second, and a Z if it is a point in time. Bytes become
    hexadecimal text. NaN, the infinities and the keys of maps become text."""
    match value:
        case float() if not math.isfinite(value):
            return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(value)]
        case datetime.datetime():
            text = value.replace(tzinfo=None).isoformat(timespec="microseconds")
            if value.tzinfo is None:
                return text
            return value.astimezone(datetime.UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"
        case datetime.date() | datetime.time():
            return value.isoformat()
        case decimal.Decimal():
            return format(value, "f")
        case bytes():
            return value.hex()
        case dict():
            return {str(name): exact(part) for name, part in value.items()}
        case list() | tuple():
            return [exact(part) for part in value]
    return value


def exact_rows(table: pa.Table, key: tuple[str, ...]) -> list[dict[str, Any]]:
    """The rows of an Arrow table as dicts of `exact` values, sorted by the key, nulls first. Maps become dicts."""
    rows = [exact(row) for row in table.to_pylist(maps_as_pydicts="strict")]
    return sorted(rows, key=lambda row: [(row[name] is not None, row[name]) for name in key])
