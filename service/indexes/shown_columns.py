"""The columns that answers of an index show. A request for a hidden column fails like one for an unknown column.
Queries may name all key columns, shown or hidden."""

from collections.abc import Iterable

from gnomon.service.indexes.config import Place
from gnomon.shadow import UsageError
from gnomon.shadow.metadata import View


def visible(place: Place, names: Iterable[str]) -> list[str]:
    """The names that are shown, in their order."""
    shown = place.columns
    return [name for name in names if name not in place.hidden and (shown is None or name in shown)]


def check_columns(place: Place, view: View) -> None:
    """UsageError where the settings name a column that the index does not have, since a misspelt hidden column would be
    shown. UsageError also where they hide all columns."""
    if place.columns == ():
        raise UsageError(f"{place.columns_given}: index {place.name}: expected at least one column, found none")
    for where, names in ((place.columns_given, place.columns or ()), (place.hidden_given, place.hidden)):
        unknown = [name for name in names if name not in view.columns]
        if unknown:
            there = ", ".join(view.columns)
            raise UsageError(f"{where}: index {place.name} has no column {unknown[0]}; it has {there}")


def hidden_of(place: Place, names: Iterable[str]) -> tuple[str, ...]:
    """The names that are not shown."""
    given = list(names)
    shown = set(visible(place, given))
    return tuple(name for name in given if name not in shown)
