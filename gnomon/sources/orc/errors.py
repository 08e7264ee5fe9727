"""Errors without a file. `reader` adds the file, `error_context` the column and the position of its stripe."""

from collections.abc import Iterator
from contextlib import contextmanager


class OrcError(ValueError):
    """`offset` is a byte position in the file, where known."""

    def __init__(self, message: str, offset: int | None = None) -> None:
        self.offset = offset
        super().__init__(message)


class Damage(OrcError):
    """The bytes violate the ORC specification."""


class Unsupported(OrcError):
    """The bytes may be sound, but hold something that this reader does not know."""


@contextmanager
def error_context(what: str, offset: int) -> Iterator[None]:
    """Add `what` and `offset` to errors of the bytes."""
    try:
        yield
    except OrcError as error:
        raise type(error)(f"{what}: {error}", offset) from error
