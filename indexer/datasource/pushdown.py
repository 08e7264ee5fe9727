"""Filters that Spark pushes to a Python source, as look-ups in an index.

A filter is accepted if it selects exactly the rows that Spark would select: it names values of a key column or of a
partition column, or compares a key column. Spark applies all others, which prune nothing. Filters that name values of
all columns of the key are look-ups. Otherwise they are ranges of keys: values of the first columns, and a comparison of
the column behind these.
"""

import datetime as dt
import decimal
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product, takewhile
from typing import Any

from gnomon.btree.errors import KeyTypeError
from gnomon.btree.key_types import Stored, key_type
from gnomon.btree.keys import Key
from gnomon.shadow.lookup import (
    AT_LEAST,
    AT_MOST,
    BEGINS,
    KEY,
    LESS,
    MORE,
    PARTITION,
    EntryColumn,
    Interval,
    Range,
    interval,
    ranges_of,
)

MOST_KEYS = 10_000  # keys that one query looks up; for more, the index is scanned
MOST_RANGES = 100  # of keys that one query reads
COMPARISONS = {
    "LessThan": LESS,
    "LessThanOrEqual": AT_MOST,
    "GreaterThan": MORE,
    "GreaterThanOrEqual": AT_LEAST,
    "StringStartsWith": BEGINS,
}
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
    """The selection of a query: keys, or ranges of keys (None: all), in partitions that have one of the named values in
    each column. All values are in stored form."""

    keys: tuple[Key, ...] | None = None
    where: Mapping[str, frozenset[Stored]] = field(default_factory=dict)
    ranges: tuple[Range, ...] | None = None


class _Conditions:
    """The conditions on one column: the values that they name, if any, and the interval that others leave."""

    def __init__(self) -> None:
        self.values: Values | None = None
        self.within: Interval | None = None
        self.filters: list[Any] = []

    def add(self, one: Any, found: "Values | Interval") -> None:
        self.filters.append(one)
        if isinstance(found, Interval):
            self.within = found if self.within is None else self.within.meets(found)
        else:
            before = found if self.values is None else self.values
            self.values = dict.fromkeys(value for value in before if value in found)

    @property
    def allowed(self) -> Values | None:
        """The values that meet all of them; None where they name none."""
        if self.values is None or self.within is None:
            return self.values
        return dict.fromkeys(filter(self.within.holds, self.values))


def select(filters: Sequence[Any], columns: Mapping[str, EntryColumn]) -> tuple[Selection, list[Any]]:
    """The selection of a conjunction of filters, and the filters that remain for Spark. `columns` are the columns of
    the index by their names in Spark."""
    found: dict[str, _Conditions] = {}  # by the column's name in Spark
    left: list[Any] = []
    for one in filters:
        name = _column(one, columns)
        accepted = None if name is None else _accepted(one, columns[name])
        if name is None or accepted is None:
            left.append(one)
        else:
            found.setdefault(name, _Conditions()).add(one, accepted)
    parts = {name: one.allowed for name, one in found.items() if columns[name].part == PARTITION}
    where = {columns[name].source: frozenset(values) for name, values in parts.items() if values is not None}
    keys = {name: column.type for name, column in columns.items() if column.part == KEY}
    taken, selection = _selected(keys, found, where)
    left += [one for name in list(keys)[taken:] if name in found for one in found[name].filters]
    return selection, left


def _selected(
    keys: Mapping[str, str], found: Mapping[str, _Conditions], where: Mapping[str, frozenset[Stored]]
) -> tuple[int, Selection]:
    """The number of key columns whose conditions are taken, and the selection."""
    conditions = [found.get(name, _Conditions()) for name in keys]
    allowed = takewhile(lambda values: values is not None, (one.allowed for one in conditions))
    firsts = [values for values in allowed if values is not None]
    if len(firsts) == len(keys) and math.prod(map(len, firsts)) <= MOST_KEYS:
        return len(keys), Selection(tuple(product(*firsts)), where)
    within = conditions[len(firsts)].within if len(firsts) < len(keys) else None
    taken, ranges = ranges_of(list(keys.values()), firsts, within, MOST_RANGES)
    return taken, Selection(None, where, tuple(ranges) if taken else None)


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


def _accepted(one: Any, column: EntryColumn) -> Values | Interval | None:
    """The values of its column that a filter accepts; None where the filter is for Spark."""
    kind = type(one).__name__  # by name, since Spark 4.0 has no filter classes
    if kind == "IsNull":
        return {None: None}
    given = getattr(one, "value", None)
    try:
        if kind in COMPARISONS and column.part == KEY and given is not None:
            is_text = column.type == "string" or kind != "StringStartsWith"
            return interval(column.type, COMPARISONS[kind], _stored(given, column)) if is_text else None
        values = _named(one, kind, column)
        return None if values is None else dict.fromkeys(_stored(value, column) for value in values)
    except (KeyTypeError, _OtherValueError):
        return None


def _named(one: Any, kind: str, column: EntryColumn) -> list[Any] | None:
    """The values that a filter names."""
    if (kind == "EqualTo" and one.value is not None) or kind == "EqualNullSafe":
        return [one.value]
    if kind == "In":
        return [value for value in one.value if value is not None]  # in SQL no value equals null
    if kind == "Not" and column.type == "boolean" and type(one.child).__name__ == "EqualTo":
        return [not one.child.value]  # Spark's filter for a false boolean
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
