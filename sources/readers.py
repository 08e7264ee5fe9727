"""Open readers: many ranges in one call, a reader as a binary file, and byte ranges for parallel scans."""

import io
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Protocol

from gnomon.sources.contract import Split

NO_NAME = "<unnamed file>"


class PlainReader(Protocol):
    """The least that a reader must have."""

    @property
    def size(self) -> int | Callable[[], int]: ...

    def read_range(self, offset: int, length: int) -> bytes: ...


def read_ranges(reader: PlainReader, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
    """The bytes of each `(offset, length)`, in the order given; one call where the reader has `read_ranges`."""
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
    """Whether each read is a round trip over a network, so that extra bytes cost less than another read."""
    return bool(getattr(reader, "is_far", False))


def name_of(reader: PlainReader) -> str:
    """The name of the file in error messages."""
    return str(getattr(reader, "name", NO_NAME))


class PrefetchedReader:
    """A reader that has some bytes, from `start` on, in memory. Ranges within them need no read."""

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


class RangeFile(io.RawIOBase):
    """A reader as a binary file, for libraries that need one (pyarrow's scan). `tail` follows the last byte of the real
    file, so that pyarrow finds our footer at the end. `failure` keeps the error of a read, which the library may wrap.
    Closing it leaves the reader open."""

    def __init__(self, reader: PlainReader, tail: bytes = b"") -> None:
        super().__init__()
        self._reader = reader
        self._split = size_of(reader)
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


def even_splits(size: int, target: int) -> list[Split]:
    """Ranges of equal length, about `target` bytes each, that cover a file of `size` bytes; at least one."""
    count = max(1, round(size / max(target, 1)))
    cuts = [size * i // count for i in range(count + 1)]
    return list(pairwise(cuts))
