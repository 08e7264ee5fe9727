"""What can go wrong with a data file. Each message says what, where (path, offset, column), and what to do.

A process that runs out of memory says nothing about the file: that stays a MemoryError (`check_memory`)."""

import re

# pyarrow's memory errors have a class of their own. Libraries that it calls report theirs as text.
NO_MEMORY = re.compile(
    r"malloc of size|not enough memory|out of memory|bad_alloc|cannot allocate memory", re.IGNORECASE
)


def check_memory(error: Exception) -> None:
    """Raise MemoryError if `error`, which a decoder or an encoder raised, says that memory ran out.

    Each handler that turns errors of pyarrow (whose ArrowMemoryError is an ArrowException) or of a codec into an error
    about the file calls this first."""
    if isinstance(error, MemoryError):
        raise error
    if not isinstance(error, ValueError) and NO_MEMORY.search(str(error)):  # a ValueError may quote the data
        raise MemoryError(str(error)) from error


class SourceError(Exception):
    """A data file cannot be used. `path` names it; `offset` is a byte position in it where that is known."""

    def __init__(self, message: str, path: str, offset: int | None = None) -> None:
        self.path = path
        self.offset = offset
        where = path if offset is None else f"{path} at byte {offset}"
        super().__init__(f"{where}: {message}")


class DamagedSource(SourceError):
    """The bytes are not what the format says they must be."""


class UnsupportedFormat(SourceError):
    """The bytes may be sound, but hold something this reader does not know."""


class NotReadBack(SourceError):
    """A file that was written does not give back what was put in it."""


class OptionError(ValueError):
    """An option that the format does not know, or a value that it does not take."""


class StalePointer(SourceError):
    """The file is not the one that was indexed: it changed, vanished, or holds another row at the pointer."""
