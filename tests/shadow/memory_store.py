"""A store in memory. It is cheap to copy, so that thousands of crashes can start from one state."""

import itertools
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Self

from gnomon.shadow.errors import AlreadyExists, FileChanged, StorageError
from gnomon.shadow.storage import NO_INODE, FileInfo, ReadStats
from gnomon.shadow.storage.contract import Hidden, difference, is_skipped

_clock = itertools.count(time.time_ns())  # modification times: no two files share one


class MemoryStorage:
    """A `Storage` whose files are bytes with a modification time."""

    is_remote = False

    def __init__(self, root: str = "/memory") -> None:
        self.root = root
        self._files: dict[str, tuple[bytes, int]] = {}
        self._lock = threading.Lock()

    def copy(self) -> "MemoryStorage":
        """A separate store with the same files."""
        other = MemoryStorage(self.root)
        other._files = dict(self._files)
        return other

    def open(self, path: str, stats: ReadStats | None = None, known: FileInfo | None = None) -> "MemoryOpenFile":
        file = self._open(path, stats)
        if known is not None and (how := difference(known, file)):
            raise FileChanged(file.name, how, file.size)
        return file

    def _open(self, path: str, stats: ReadStats | None) -> "MemoryOpenFile":
        try:
            data, mtime_ns = self._files[path]
        except KeyError:
            if any(name.startswith(f"{path}/" if path else "") for name in self._files):
                raise IsADirectoryError(f"{self.root}/{path}: not a file") from None
            raise FileNotFoundError(f"{self.root}/{path}") from None
        return MemoryOpenFile(f"{self.root}/{path}", data, mtime_ns, stats if stats is not None else ReadStats())

    def read(self, path: str) -> bytes:
        return self._open(path, None).data

    def put_new(self, path: str, chunks: Iterable[bytes]) -> None:
        data = b"".join(chunks)
        with self._lock:
            if path in self._files:
                raise AlreadyExists(f"{self.root}/{path}: the name is taken")
            self._files[path] = (data, next(_clock))

    def move_new(self, path: str, target: str) -> None:
        with self._lock:
            if target in self._files:
                raise AlreadyExists(f"{self.root}/{target}: the name is taken")
            if path not in self._files:
                raise FileNotFoundError(f"{self.root}/{path}")
            self._files[target] = self._files.pop(path)

    def list(self, prefix: str = "", hidden: Hidden = False, witness: str = "") -> Iterator[FileInfo]:
        before = f"{prefix.strip('/')}/" if prefix else ""
        with self._lock:
            found = [(path, *file) for path, file in sorted(self._files.items()) if path.startswith(before)]
        for path, data, mtime_ns in found:
            if not any(is_skipped(name, hidden) for name in path.removeprefix(before).split("/")):
                yield FileInfo(path, len(data), mtime_ns)

    def delete(self, path: str) -> None:
        with self._lock:
            self._files.pop(path, None)

    def delete_folder(self, path: str) -> None:
        with self._lock:
            self._files = {name: file for name, file in self._files.items() if not name.startswith(f"{path}/")}

    def delete_empty(self, path: str) -> None:
        """Do nothing: there are no folders."""


class MemoryOpenFile:
    """An open file, which stays readable after its name is removed."""

    etag, ctime_ns, inode, is_remote = "", 0, NO_INODE, False

    def __init__(self, name: str, data: bytes, mtime_ns: int, stats: ReadStats) -> None:
        self.name, self.data, self.mtime_ns, self.size = name, data, mtime_ns, len(data)
        self._stats = stats

    def read_range(self, offset: int, length: int) -> bytes:
        if offset + length > self.size:
            raise StorageError(f"{self.name}: expected {length} bytes at {offset}, the file ends at {self.size}")
        self._stats.reads += 1
        self._stats.bytes += length
        return self.data[offset : offset + length]

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        return [self.read_range(offset, length) for offset, length in ranges]

    def close(self) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass
