"""Open readers for tests, over bytes and over a local file. They record their reads."""

import os
from collections.abc import Sequence
from pathlib import Path


class BytesReader:
    """A reader of bytes. `reads` has the `(offset, length)` of each read, `rounds` the number of calls."""

    is_remote = False

    def __init__(self, data: bytes, name: str = "memory/file") -> None:
        self.data = data
        self.name = name
        self.size = len(data)
        self.reads: list[tuple[int, int]] = []
        self.rounds = 0

    def read_range(self, offset: int, length: int) -> bytes:
        self.rounds += 1
        return self._read(offset, length)

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        self.rounds += 1
        return [self._read(offset, length) for offset, length in ranges]

    def _read(self, offset: int, length: int) -> bytes:
        if offset < 0 or length < 0 or offset + length > self.size:
            raise AssertionError(f"{length} bytes at {offset} asked of a file of {self.size}")
        self.reads.append((offset, length))
        return self._bytes(offset, length)

    def _bytes(self, offset: int, length: int) -> bytes:
        return self.data[offset : offset + length]

    @property
    def bytes_read(self) -> int:
        return sum(length for _, length in self.reads)

    def forget(self) -> None:
        self.reads.clear()
        self.rounds = 0


class FileReader(BytesReader):
    """A reader of a file on disk, for files too large for memory."""

    def __init__(self, path: Path) -> None:
        super().__init__(b"", str(path))
        self.path = path
        self.size = path.stat().st_size

    def _bytes(self, offset: int, length: int) -> bytes:
        with self.path.open("rb") as file:
            return os.pread(file.fileno(), length, offset)
