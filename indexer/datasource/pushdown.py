"""Filters that Spark pushes to a Python source, as look-ups and ranges of keys in an index.

A filter is accepted if it selects exactly the rows that Spark would select: it names values of a key column or of a
partition column, or compares a key column (`gnomon.shadow.lookup.conditions`). Spark applies all others, which prune
nothing.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from gnomon.btree.errors import KeyTypeError
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
    NotExact,
    Selection,
    Values,
    exact,
    interval,
    selected,
)

COMPARISONS = {
    "LessThan": LESS,
    "LessThanOrEqual": AT_MOST,
    "GreaterThan": MORE,
    "GreaterThanOrEqual": AT_LEAST,
    "StringStartsWith": BEGINS,
}


def select(filters: Sequence[Any], columns: Mapping[str, EntryColumn]) -> tuple[Selection, list[Any]]:
    """The selection of a conjunction of filters, and the filters that remain for Spark. `columns` are the columns of
    the index by their names in Spark."""
    found: list[tuple[Any, EntryColumn, Values | Interval]] = []
    left: list[Any] = []
    for one in filters:
        column = _column(one, columns)
        accepted = None if column is None else _accepted(one, column)
        if column is None or accepted is None:
            left.append(one)
        else:
            found.append((one, column, accepted))
    selection, taken = selected([(column, accepted) for _, column, accepted in found], columns.values())
    beyond = [column for column in columns.values() if column.part == KEY][taken:]
    return selection, [*left, *(one for one, column, _ in found if column in beyond)]


def _column(one: Any, columns: Mapping[str, EntryColumn]) -> EntryColumn | None:
    """The key or partition column of a filter; None for other columns."""
    path: Sequence[str] = getattr(getattr(one, "child", one), "attribute", ())
    column = columns.get(path[0]) if len(path) == 1 else None
    return column if column is not None and column.part in (KEY, PARTITION) else None


def _accepted(one: Any, column: EntryColumn) -> Values | Interval | None:
    """The values of its column that a filter accepts; None where the filter is for Spark."""
    kind = type(one).__name__  # by name, since Spark 4.0 has no filter classes
    if kind == "IsNull":
        return {None: None}
    given = getattr(one, "value", None)
    try:
        if kind in COMPARISONS and column.part == KEY and given is not None:
            is_text = column.type == "string" or kind != "StringStartsWith"
            return interval(column.type, COMPARISONS[kind], exact(given, column)) if is_text else None
        values = _named(one, kind, column)
        return None if values is None else dict.fromkeys(exact(value, column) for value in values)
    except (KeyTypeError, NotExact):
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
