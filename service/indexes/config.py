"""The names and paths of the served indexes. Paths of requests use these names."""

import re
from dataclasses import dataclass, field

from gnomon.service.settings import Settings
from gnomon.shadow import UsageError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_NAMED = re.compile(r"([^/=]*)=(.*)", re.DOTALL)


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
        name, path = _name_and_path(given, where)
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


def _name_and_path(given: str, where: str) -> tuple[str, str]:
    named = _NAMED.fullmatch(given)
    if named:
        name, path = named.groups()
        if not _NAME.fullmatch(name):
            raise UsageError(f"{where}: {given}: expected letters, digits and _.- before =, found {name!r}")
        if not path:
            raise UsageError(f"{where}: {given}: expected a path or URL after =")
        return name, path
    last = given.rstrip("/").rpartition("/")[2]
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", last).strip("-.") or "index"
    return name[:64], given
