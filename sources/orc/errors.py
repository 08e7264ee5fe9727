"""Errors without a file: `reader` adds the file, `error_context` adds the column and the place of its stripe."""

from collections.abc import Iterator
from contextlib import contextmanager


class OrcError(ValueError):
    """`offset`: a byte position in the file, where it is known."""

    def __init__(self, message: str, offset: int | None = None) -> None:
        self.offset = offset
        super().__init__(message)


class Damage(OrcError):
    """The bytes are not what the ORC specification says they must be."""


class Unsupported(OrcError):
    """The bytes may be sound, but hold something this reader does not know."""


@contextmanager
def error_context(what: str, offset: int) -> Iterator[None]:
    """Errors of the bytes, with what they are of and where that lies."""
    try:
        yield
    except OrcError as error:
        raise type(error)(f"{what}: {error}", offset) from error
