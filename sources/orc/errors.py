"""What the parts of the reader raise; `reader` adds the file, and `naming` the column and where its stripe lies."""

from collections.abc import Iterator
from contextlib import contextmanager


class OrcError(ValueError):
    """`offset`: a byte position in the file, where it is known."""

    def __init__(self, message: str, offset: int | None = None) -> None:
        self.offset = offset
        super().__init__(message)


class Damage(OrcError):
    """The bytes are not what the ORC specification says they must be."""


class Unknown(OrcError):
    """The bytes may be sound, but hold something this reader does not know."""


@contextmanager
def naming(what: str, offset: int) -> Iterator[None]:
    """Errors of the bytes, with what they are of and where that lies."""
    try:
        yield
    except OrcError as error:
        raise type(error)(f"{what}: {error}", offset) from error
