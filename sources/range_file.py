"""A range reader dressed as a binary file, for libraries that want one (pyarrow's scan).

`tail` stands after the last byte of the real file, so that a library which looks for a footer at the end finds
the one we wrote for it.
"""

import io

from sources.ranges import PlainReader, size_of


class RangeFile(io.RawIOBase):
    """Reads go to the reader, one range a call. `failure` keeps what the reader raised, because a library
    between may wrap it. Closing it leaves the reader open."""

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
