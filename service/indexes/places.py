"""The served indexes as the settings name them: their names, paths, and the columns that their answers show.

Paths of requests use the names. A request for a hidden column fails like one for an unknown column. Queries may name
all key columns, shown or hidden."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from gnomon.service.settings import Settings, name_and_path
from gnomon.shadow import UsageError
from gnomon.shadow.metadata import KeyColumn, View


@dataclass(frozen=True)
class Place:
    """One index of the service. It shows the columns in `columns` (None: all) without the ones in `hidden`.
    `columns_given` and `hidden_given` are the places of these settings, for errors."""

    name: str
    path: str
    columns: tuple[str, ...] | None = None
    hidden: tuple[str, ...] = ()
    columns_given: str = field(default="setting columns", compare=False)
    hidden_given: str = field(default="setting hidden_columns", compare=False)


def places(settings: Settings) -> list[Place]:
    """The indexes of the settings, the default first. An index without `NAME=` is called after its last folder.

    UsageError for a name that is invalid in a path, that two indexes have, or that occurs only in the settings of
    columns."""
    found: dict[str, Place] = {}
    where = settings.where("indexes")
    for given in settings.indexes:
        name, path = name_and_path(given, where)
        if name in found:
            raise UsageError(f"{where}: two are called {name}; give each a name of its own, like {name}2={path}")
        shown, hidden = settings.columns.get(name), settings.hidden_columns.get(name, ())
        stands = (settings.where(setting, name) for setting in ("columns", "hidden_columns"))
        found[name] = Place(name, path, shown, hidden, *stands)
    for setting in ("columns", "hidden_columns"):
        unknown = [name for name in getattr(settings, setting) if name not in found]
        if unknown:
            at = settings.where(setting, unknown[0])
            raise UsageError(f"{at}: there is no index {unknown[0]}; there are {', '.join(found)}")
    return list(found.values())


def visible(place: Place, names: Iterable[str]) -> list[str]:
    """The names that are shown, in their order."""
    shown = place.columns
    if shown is None and not place.hidden:
        return list(names)
    return [name for name in names if name not in place.hidden and (shown is None or name in shown)]


def visible_keys(place: Place, keys: Iterable[KeyColumn]) -> list[str]:
    """The names of the key columns that are shown, in their order. A key in a struct is shown as the struct is."""
    return [key.name for key in keys if visible(place, [key.column])]


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


def hidden_keys(place: Place, keys: Iterable[KeyColumn]) -> tuple[str, ...]:
    """The names of the key columns that are not shown."""
    return tuple(key.name for key in keys if not visible(place, [key.column]))


def hidden_of(place: Place, names: Iterable[str]) -> tuple[str, ...]:
    """The names that are not shown."""
    given = list(names)
    shown = set(visible(place, given))
    return tuple(name for name in given if name not in shown)
