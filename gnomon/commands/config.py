"""`gnomon.toml`: indexes by name, and defaults of commands. It is the TOML file of the service's settings, which serve
reads, too (docs/reference/settings.md)."""

import importlib
import os
from pathlib import Path
from typing import Any

import typer

from gnomon.shadow import UsageError

FILE = "gnomon.toml"
NAMES_IT = "GNOMON_CONFIG"
# The variables of settings that commands take. Other ones may be meant for a service, so commands do not check them.
VARIABLES = (NAMES_IT, "GNOMON_INDEXES", "GNOMON_MASTER", "GNOMON_CACHE_FOLDER", "GNOMON_CACHE_FOLDER_BYTES")


def found_file() -> str | None:
    """The `gnomon.toml` of the current folder, else of the nearest folder above it that has one, else of the user's
    own configuration. None if there is none, or if GNOMON_CONFIG names another file. A file of another user than this
    one and root is left aside: a folder above may be one that everybody writes to."""
    if NAMES_IT in os.environ:
        return None
    here, own = Path.cwd(), os.environ.get("XDG_CONFIG_HOME", "")
    own = own if os.path.isabs(own) else os.path.expanduser("~/.config")
    places = [*(os.path.join(folder, FILE) for folder in (here, *here.parents)), os.path.join(own, "gnomon", FILE)]
    return next((place for place in places if os.path.isfile(place) and _is_ours(place)), None)


def _is_ours(place: str) -> bool:
    if os.stat(place).st_uid in (0, os.getuid()):
        return True
    typer.echo(f"gnomon: {place} is of another user, and left aside; name it by {NAMES_IT} to use it", err=True)
    return False


def _settings() -> Any:
    """The settings of the file and of the variables that commands take; None where there are none. UsageError names the
    file with its line, or the variable, that is wrong."""
    file, given = found_file(), {name: os.environ[name] for name in VARIABLES if name in os.environ}
    if file is None and not given:
        return None
    settings = importlib.import_module("gnomon.service.settings")  # most calls have no file
    return settings.load_settings(environment=given, found=file, needs_index=False)


def _named() -> tuple[dict[str, str], str]:
    """The indexes by name, and where they are named."""
    settings = _settings()
    if settings is None or not settings.is_given("indexes"):
        return {}, ""
    name_and_path = importlib.import_module("gnomon.service.settings").name_and_path
    where = settings.where("indexes")
    return dict(name_and_path(one, where) for one in settings.indexes), where


def _may_be_name(place: str) -> bool:
    return not (set("/:~=") & set(place) or place in ("", ".", "..") or os.path.lexists(place))


def place_of(index: str) -> str:
    """The path or URL of an index that is given by its name or its path. A path that exists, or has a slash or a
    scheme, wins over a name. UsageError, with the names that there are, for a name that is not known."""
    names, where = _named() if _may_be_name(index) else ({}, "")
    if not names or index in names:
        return names.get(index, index)
    raise UsageError(
        "no folder and no index of this name", index, expected=f"a path, or a name of {where}: {', '.join(names)}"
    )


def place_of_new(index: str) -> str:
    """As `place_of`, for a command that may make the index: another name is a new folder."""
    return _named()[0].get(index, index) if _may_be_name(index) else index


def index_argument(context: typer.Context, index: str) -> str:
    """The callback of an argument for an index. Completion only looks at the words."""
    return index if context.resilient_parsing else place_of(index)


def served_indexes(given: list[str] | None) -> list[str] | None:
    """The indexes of `gnomon serve`, with the places of those that are given by name alone."""
    names = _named()[0] if any(map(_may_be_name, given or ())) else {}
    return [f"{one}={names[one]}" if _may_be_name(one) and one in names else one for one in given or ()] or None


def completed_names(incomplete: str) -> list[str]:
    """The names of indexes that begin with a text, for the shell; none where the file is wrong."""
    try:
        return [name for name in _named()[0] if name.startswith(incomplete)]
    except UsageError:
        return []


def master() -> str | None:
    """Spark's master, of the settings; None where they name none."""
    settings = _settings()
    return None if settings is None else settings.master


def cache() -> dict[str, Any]:
    """The cache folder of the settings and its size, as parameters of `open_index`; empty where there is none."""
    settings = _settings()
    if settings is None or settings.cache_folder is None:
        return {}
    return {"cache_folder": settings.cache_folder, "cache_folder_bytes": settings.cache_folder_bytes}
