"""Open files: the protocol `RangeReader`, readers over bytes or over another reader, and second looks at files."""

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol

_SECOND: ContextVar[bool] = ContextVar("a second look", default=False)


class RangeReader(Protocol):
    """An open file. The caller that opened it closes it.

    To index or fetch from a place that Gnomon has no storage for, write a class with these five members and give it to
    `sources.open_source` or `btree.BTreeReader`. If threads share the objects that these functions return, they share
    the reader, too."""

    @property
    def name(self) -> str:
        """The name of the file in error messages: its path or its address."""

    @property
    def size(self) -> int:
        """Length of the file in bytes."""

    @property
    def is_remote(self) -> bool:
        """Whether each read is a round trip over a network. Formats then make fewer and longer reads."""

    def read_range(self, offset: int, length: int) -> bytes:
        """Exactly `length` bytes from `offset`. Raises an error if the file has fewer."""

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """The bytes of each `(offset, length)`, in the given order. A store that can takes one round trip; no ranges
        cost no read."""


def is_second_look() -> bool:
    """Whether a file is looked at again, so that copies of its bytes must not be used."""
    return _SECOND.get()


@contextmanager
def looking_again() -> Iterator[None]:
    """Reads of the block get the bytes that the store has now."""
    token = _SECOND.set(True)
    try:
        yield
    finally:
        _SECOND.reset(token)


class MemoryFile:
    """Bytes as an open file. A range beyond the end gives the bytes up to the end."""

    is_remote = False

    def __init__(self, data: bytes, name: str = "<memory>") -> None:
        self.name = name
        self.size = len(data)
        self._data = data

    def read_range(self, offset: int, length: int) -> bytes:
        return self._data[offset : offset + length]

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        return [self.read_range(*span) for span in ranges]


class PrefetchedReader:
    """A reader that holds some bytes, from `start` on, in memory. Ranges within them need no read."""

    def __init__(self, reader: RangeReader, start: int, data: bytes) -> None:
        self.name, self.size, self.is_remote = reader.name, reader.size, reader.is_remote
        self._reader = reader
        self._start = start
        self._data = data

    def read_range(self, offset: int, length: int) -> bytes:
        return self.read_ranges([(offset, length)])[0]

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        missing = [span for span in ranges if not self._holds(span)]
        parts = iter(self._reader.read_ranges(missing) if missing else [])
        return [self._cut(span) if self._holds(span) else next(parts) for span in ranges]

    def _holds(self, span: tuple[int, int]) -> bool:
        offset, length = span
        return self._start <= offset and offset + length <= self._start + len(self._data)

    def _cut(self, span: tuple[int, int]) -> bytes:
        offset, length = span
        return self._data[offset - self._start : offset - self._start + length]


class RangeFile(io.RawIOBase):
    """A reader as a binary file, for libraries that need one.

    `tail` follows the last byte of the real file, so that pyarrow finds another footer at the end. `failure` keeps the
    error of a read, since the library may wrap it. Closing the file leaves the reader open."""

    def __init__(self, reader: RangeReader, tail: bytes = b"") -> None:
        super().__init__()
        self._reader = reader
        self._split = reader.size
        self._tail = tail
        self._position = 0
        self.failure: Exception | None = None

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def size(self) -> int:
        return self._split + len(self._tail)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self.size()}[whence]
        self._position = max(base + offset, 0)
        return self._position

    def read(self, size: int = -1) -> bytes:
        start = self._position
        end = self.size() if size < 0 else min(start + size, self.size())
        if end <= start:
            return b""
        self._position = end
        tail = self._tail[max(start - self._split, 0) : max(end - self._split, 0)]
        if start >= self._split:
            return tail
        try:
            return self._reader.read_range(start, min(end, self._split) - start) + tail
        except Exception as error:
            self.failure = error
            raise
