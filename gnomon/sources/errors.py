"""Errors of data files. Each message says what is wrong, where (path, offset, column), and what to do.

A process that runs out of memory says nothing about the file: that stays a MemoryError (`base.errors.check_memory`)."""

from collections.abc import Collection

from gnomon.base.errors import Action, GnomonError


class SourceError(GnomonError):
    """A data file cannot be used. `path` names it; `offset` is a byte position in it, where known."""

    path: str

    def __init__(
        self,
        what: str,
        path: str,
        offset: int | None = None,
        *,
        column: str | None = None,
        expected: object = None,
        found: object = None,
        action: Action | None = None,
    ) -> None:
        super().__init__(what, path, offset, column=column, expected=expected, found=found, action=action)


class DamagedSource(SourceError):
    """The bytes violate the format."""


class UnsupportedFormat(SourceError):
    """The bytes may be sound, but hold something that this reader does not know."""


class NotReadBack(SourceError):
    """A written file does not give back the values that were put in it."""


class OptionError(GnomonError, ValueError):
    """The format does not know the option, or does not accept its value."""


class ColumnNotFound(GnomonError, KeyError):
    """The file has no such column."""


class StalePointer(SourceError):
    """The file is not the indexed one: it changed, vanished, or holds another row at the pointer."""


def check_column(name: str, known: Collection[str], path: str) -> None:
    """ColumnNotFound unless the file at `path` has the column."""
    if name not in known:
        raise ColumnNotFound(f"no column {name!r}; it has {', '.join(known)}", path)
