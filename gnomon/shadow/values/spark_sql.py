"""Keys as a condition of Spark SQL, so that a MERGE or a DELETE names them as literals."""

import decimal
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pyarrow as pa

from gnomon.base.json_forms import date_text, timestamp_text
from gnomon.shadow.errors import UnknownColumn, UsageError

MOST_KEYS = 100_000  # of one condition


def key_filter(rows: Any, keys: Sequence[str], alias: str = "") -> str:
    """The condition that a row has one of the keys of `rows`, in Spark SQL: `t.id IN (5L, 7L)`.

    `rows` is a DataFrame of Spark, pandas or Polars, an Arrow table, or any other object that exports Arrow; `keys`
    names its key columns. `alias` is the name of the table in the statement. A null key equals null. Without rows the
    condition is `false`.

    UnknownColumn for a column that the rows do not have; UsageError for more than MOST_KEYS keys, and for a column of a
    type that has no literal in Spark SQL."""
    table = _table(rows)
    if missing := [name for name in keys if table.column_names.count(name) != 1]:
        raise UnknownColumn(f"the rows do not have one column {missing[0]}; they have {', '.join(table.column_names)}")
    if not keys:
        raise UsageError("keys: expected the names of one or more columns")
    columns = [_literals(table.column(name), name) for name in keys]
    found = list(dict.fromkeys(zip(*columns, strict=True)))
    if len(found) > MOST_KEYS:
        raise UsageError(f"a condition names at most {MOST_KEYS:,} keys, found {len(found):,}; split the batch")
    names = [f"{_quoted(alias)}.{_quoted(name)}" if alias else _quoted(name) for name in keys]
    by_first: dict[tuple[str, ...], list[str]] = {}  # the values of the last column, by those of the others
    for *first, last in found:
        by_first.setdefault(tuple(first), []).append(last)
    parts = [
        " AND ".join([*map(_equal, names[:-1], first), _is_among(names[-1], last)]) for first, last in by_first.items()
    ]
    if len(parts) > 1:
        return f"({' OR '.join(f'({part})' for part in parts)})"
    return parts[0] if parts else "false"


def _table(rows: Any) -> pa.Table:
    if hasattr(rows, "toArrow"):  # of Spark
        rows = rows.toArrow()
    if isinstance(rows, pa.RecordBatch):
        return pa.Table.from_batches([rows])
    return rows if isinstance(rows, pa.Table) else pa.table(rows)


def _equal(name: str, literal: str) -> str:
    return f"{name} IS NULL" if literal == "NULL" else f"{name} = {literal}"


def _is_among(name: str, literals: Sequence[str]) -> str:
    values = [literal for literal in literals if literal != "NULL"]
    parts = [f"{name} IN ({', '.join(values)})"] if len(values) > 1 else [_equal(name, value) for value in values]
    if len(values) < len(literals):
        parts.append(f"{name} IS NULL")
    return parts[0] if len(parts) == 1 else f"({' OR '.join(parts)})"


def _quoted(name: str) -> str:
    """A name in backticks: `true` and `current_date` mean something else without. UsageError for one in which Spark
    would put the value of a variable."""
    if "${" in name:
        raise UsageError("Spark puts the value of a variable in place of ${...} in a statement", column=name)
    return f"`{name.replace('`', '``')}`"


def _literals(column: pa.ChunkedArray, name: str) -> list[str]:
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _literals(column.cast(kind.value_type), name)
    make: Callable[[Any], str] | None
    if pa.types.is_timestamp(kind):
        make = partial(_moment, kind.tz is not None)
        column = _micros(column, name)
    elif pa.types.is_date32(kind):
        make, column = _date, column.cast(pa.int32())
    else:
        make = next((make for test, make in _MAKERS if test(kind)), None)
    if make is None:
        raise UsageError(f"Spark SQL has no literal of type {kind}", column=name)
    return ["NULL" if value is None else make(value) for value in column.to_pylist()]


def _micros(column: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
    try:
        return column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())
    except pa.ArrowInvalid as error:
        raise UsageError(f"Spark has timestamps in microseconds ({error})", column=name) from None


def _moment(has_zone: bool, micros: int) -> str:
    return f"TIMESTAMP_{'LTZ' if has_zone else 'NTZ'} '{timestamp_text(micros, 'us', has_zone)}'"


def _date(days: int) -> str:
    return f"DATE '{date_text(days)}'"


def _text(value: str) -> str:
    """A literal of a text, without any $: Spark puts the values of variables into statements before it parses them."""
    escaped = value.replace("\\", "\\\\").replace("'", "\\'").replace("$", "\\u0024")
    return f"'{escaped}'"


def _real(value: float) -> str:
    if math.isfinite(value):
        return f"{value!r}D"
    return "DOUBLE('NaN')" if math.isnan(value) else f"DOUBLE('{'-' if value < 0 else ''}Infinity')"


def _exact(value: decimal.Decimal) -> str:
    return f"{value:f}BD"


_MAKERS: tuple[tuple[Callable[[pa.DataType], bool], Callable[[Any], str]], ...] = (
    (pa.types.is_null, str),
    (pa.types.is_boolean, lambda value: str(value).upper()),
    (pa.types.is_int64, lambda value: f"{value}L" if value > -(2**63) else "(-9223372036854775807L - 1L)"),
    (pa.types.is_signed_integer, str),
    (pa.types.is_floating, _real),
    (pa.types.is_decimal, _exact),
    (lambda kind: pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind), _text),
    (lambda kind: pa.types.is_binary(kind) or pa.types.is_large_binary(kind), lambda value: f"X'{value.hex()}'"),
)
