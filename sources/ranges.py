"""What a format asks of an open reader: its size, its name, and many ranges at once.

Readers of other people may be poorer than `RangeReader`: `read_ranges`, `name` and `is_far` may be missing, `size`
may be a method. The tolerance for that lives here and nowhere else.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

NO_NAME = "<unnamed file>"


class PlainReader(Protocol):
    """The least a reader must have."""

    @property
    def size(self) -> int | Callable[[], int]: ...

    def read_range(self, offset: int, length: int) -> bytes: ...


def read_ranges(reader: PlainReader, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
    """The bytes of each `(offset, length)`, in the order asked: one call where the reader knows how."""
    if not ranges:
        return []
    together = getattr(reader, "read_ranges", None)
    if together is not None:
        return list(together(ranges))
    return [reader.read_range(offset, length) for offset, length in ranges]


def size_of(reader: PlainReader) -> int:
    """Length of the file in bytes."""
    size = reader.size
    return size() if callable(size) else size


def is_far(reader: PlainReader) -> bool:
    """Whether each read is a round over a network, so that bytes read in vain cost less than to ask once more."""
    return bool(getattr(reader, "is_far", False))


def name_of(reader: PlainReader) -> str:
    """What error messages call the file."""
    return str(getattr(reader, "name", NO_NAME))


class HeldRange:
    """A reader of which some bytes, from `start` on, are in memory already. Ranges within them cost no read."""

    def __init__(self, reader: PlainReader, start: int, data: bytes) -> None:
        self.size = size_of(reader)
        self.is_far = is_far(reader)
        self._reader = reader
        self._start = start
        self._data = data

    def read_range(self, offset: int, length: int) -> bytes:
        return self.read_ranges([(offset, length)])[0]

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        elsewhere = iter(read_ranges(self._reader, [span for span in ranges if not self._holds(span)]))
        return [self._cut(span) if self._holds(span) else next(elsewhere) for span in ranges]

    def _holds(self, span: tuple[int, int]) -> bool:
        offset, length = span
        return self._start <= offset and offset + length <= self._start + len(self._data)

    def _cut(self, span: tuple[int, int]) -> bytes:
        offset, length = span
        return self._data[offset - self._start : offset - self._start + length]
