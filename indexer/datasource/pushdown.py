"""Filters that Spark pushes to a Python source, as look-ups in an index.

A filter is accepted if it selects exactly the rows that Spark would select: it names values of a key column or of a
partition column. Spark applies all others, which prune nothing. Filters on the key are accepted when they name values
of all its columns, since it is hashed as a whole.
"""

import datetime as dt
import decimal
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from gnomon.btree.errors import KeyTypeError
from gnomon.btree.key_types import Stored, key_type
from gnomon.btree.keys import Key
from gnomon.shadow.lookup import KEY, PARTITION, EntryColumn

MOST_KEYS = 10_000  # keys that one query looks up; for more, the index is scanned
VALUE_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "boolean": (bool,),
    **dict.fromkeys(("tinyint", "smallint", "int", "bigint"), (int,)),
    "float": (float,),
    "double": (float,),
    "date": (dt.date,),
    "timestamp": (dt.datetime,),
    "timestamp_ntz": (dt.datetime,),
    "binary": (bytes, bytearray),
}

Values = dict[Stored, None]  # in the given order, each once; every NaN is `math.nan`


@dataclass(frozen=True)
class Selection:
    """The selection of a query: keys (None: all), in partitions that have one of the named values in each column. All
    values are in stored form."""

    keys: tuple[Key, ...] | None = None
    where: Mapping[str, frozenset[Stored]] = field(default_factory=dict)


def select(filters: Sequence[Any], columns: Mapping[str, EntryColumn]) -> tuple[Selection, list[Any]]:
    """The selection of a conjunction of filters, and the filters that remain for Spark. `columns` are the columns of
    the index by their names in Spark."""
    allowed: dict[str, Values] = {}  # by the column's name in Spark
    taken: dict[str, list[Any]] = {}
    left: list[Any] = []
    for one in filters:
        name = _column(one, columns)
        values = None if name is None else _values(one, columns[name])
        if name is None or values is None:
            left.append(one)
            continue
        both = [value for value in allowed.get(name, values) if value in values]
        allowed[name] = dict.fromkeys(both)
        taken.setdefault(name, []).append(one)
    keys = [name for name, column in columns.items() if column.part == KEY]
    found = None
    if all(name in allowed for name in keys) and math.prod(len(allowed[name]) for name in keys) <= MOST_KEYS:
        found = tuple(product(*(allowed[name] for name in keys)))
    else:
        left += [one for name in keys for one in taken.get(name, [])]
    parts = {name: column.source for name, column in columns.items() if column.part == PARTITION and name in allowed}
    return Selection(found, {source: frozenset(allowed[name]) for name, source in parts.items()}), left


def chosen(partitions: Mapping[str, Mapping[str, Stored]], selection: Selection) -> list[str]:
    """The partitions that match a selection. `partitions` has all partitions with their values."""
    return [
        name
        for name, values in partitions.items()
        if all(_one(values.get(column)) in allowed for column, allowed in selection.where.items())
    ]


def _one(value: Stored) -> Stored:
    """The value, with one NaN object for all NaNs, which a set can find."""
    return math.nan if isinstance(value, float) and value != value else value


def _column(one: Any, columns: Mapping[str, EntryColumn]) -> str | None:
    """The key or partition column of a filter; None for other columns."""
    path: Sequence[str] = getattr(getattr(one, "child", one), "attribute", ())
    column = columns.get(path[0]) if len(path) == 1 else None
    return path[0] if column is not None and column.part in (KEY, PARTITION) else None


def _values(one: Any, column: EntryColumn) -> Values | None:
    """The values of its column that a filter accepts; None where the filter is for Spark."""
    kind = type(one).__name__  # by name, since Spark 4.0 has no filter classes
    if kind == "IsNull":
        return {None: None}
    if (kind == "EqualTo" and one.value is not None) or kind == "EqualNullSafe":
        given = [one.value]
    elif kind == "In":
        given = [value for value in one.value if value is not None]  # in SQL no value equals null
    elif kind == "Not" and column.type == "boolean" and type(one.child).__name__ == "EqualTo":
        given = [not one.child.value]  # Spark's filter for a false boolean
    else:
        return None
    try:
        return dict.fromkeys(_stored(value, column) for value in given)
    except (KeyTypeError, _OtherValueError):
        return None


class _OtherValueError(Exception):
    """A value that is not exactly a value of the column's type."""


def _stored(value: object, column: EntryColumn) -> Stored:
    if value is None:
        return None
    kind = key_type(column.type)
    expected = (decimal.Decimal,) if kind.decimal else VALUE_TYPES[column.type]
    if type(value) not in expected:
        raise _OtherValueError
    if isinstance(value, dt.datetime) and (value.tzinfo is None) != (column.type == "timestamp_ntz"):
        raise _OtherValueError
    stored = _one(kind.to_stored(value, column.source))
    if isinstance(value, float) and value == value and stored != value:  # more digits than a float holds
        raise _OtherValueError
    return stored
