"""The only place that opens files: an index or a source root, and what can be done below it.

Paths are relative to the root, with forward slashes; an absolute path is taken as it is.
"""

import os
import shutil
import stat
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Protocol, Self

from shadow.errors import AlreadyExists, StorageError, UsageError

COPYING = "._COPYING_"  # what `hdfs dfs -put` calls a file it has not written whole


class FileInfo(NamedTuple):
    """A file as a listing shows it. `path` is relative to the root; the modification time is in nanoseconds."""

    path: str
    size: int
    mtime_ns: int


@dataclass
class ReadStats:
    """Ranged reads made and bytes they brought."""

    reads: int = 0
    bytes: int = 0


class OpenFile(Protocol):
    """An open file, closed by whoever opened it (it is a context manager)."""

    @property
    def name(self) -> str: ...

    @property
    def size(self) -> int: ...

    @property
    def mtime_ns(self) -> int: ...

    def read_range(self, offset: int, length: int) -> bytes:
        """Exactly `length` bytes from `offset`; StorageError when the file ends before."""

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Several (offset, length) at once, in the order asked."""

    def close(self) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Storage(Protocol):
    """A root on some store. Not bound to a thread."""

    @property
    def root(self) -> str: ...

    def open(self, path: str, stats: ReadStats | None = None) -> OpenFile:
        """Open for ranged reads. FileNotFoundError when there is no such file (NotADirectoryError when a folder of its
        path is a file), IsADirectoryError for a folder."""

    def read(self, path: str) -> bytes:
        """A whole small file. Errors as of `open`."""

    def put_new(self, path: str, chunks: Iterable[bytes]) -> None:
        """Write a file that appears whole, durable, and only if the name is free (AlreadyExists)."""

    def move_new(self, path: str, target: str) -> None:
        """Give a file another name, durable, and only if that is free (AlreadyExists)."""

    def list(self, prefix: str = "", hidden: bool = False) -> Iterator[FileInfo]:
        """The files below a folder, ordered by path; with `hidden` also those that `is_hidden` speaks of."""

    def delete(self, path: str) -> None:
        """Remove a file; nothing happens where it is gone already."""

    def delete_folder(self, path: str) -> None:
        """Remove a folder with all that is in it; nothing happens where it is gone already."""


def is_hidden(name: str) -> bool:
    """Whether engines skip a file or folder of this name: the rule of Spark, which reads a partition folder `_a=1`."""
    return name.startswith(".") or (name.startswith("_") and "=" not in name) or name.endswith(COPYING)


def storage_at(location: str) -> Storage:
    """The storage of a path or URL. What follows `file:` is taken as it is: a % in it is a % (as in Spark)."""
    if not location:
        raise UsageError("an empty path; expected a folder (. is the current one)")
    scheme, colon, rest = location.partition("://")
    if location.startswith("file:/") and not colon:
        return LocalStorage(location.removeprefix("file:"))
    if colon and scheme == "file":
        host, slash, path = rest.partition("/")
        if host not in ("", "localhost"):
            raise StorageError(f"{location}: a file URL names no host; expected file:///path")
        return LocalStorage(slash + path)
    if colon:
        raise StorageError(f"{location}: stores of {scheme}:// cannot be reached by this version; expected a path")
    return LocalStorage(location)


class LocalFile:
    """An open local file; reads do not move a position, so threads may share it."""

    def __init__(self, path: Path, stats: ReadStats | None) -> None:
        self._fd = -1
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a pipe would wait for a writer
        status = os.fstat(self._fd)
        if not stat.S_ISREG(status.st_mode):  # a folder opens, too
            raise IsADirectoryError(f"{path}: not a file")
        self.name = str(path)
        self.size = status.st_size
        self.mtime_ns = status.st_mtime_ns
        self._stats = stats if stats is not None else ReadStats()

    def read_range(self, offset: int, length: int) -> bytes:
        data = os.pread(self._fd, length, offset)
        while len(data) < length:
            more = os.pread(self._fd, length - len(data), offset + len(data))
            if not more:
                end = offset + len(data)
                raise StorageError(f"{self.name}: expected {length} bytes at {offset}, the file ends at {end}")
            data += more
        self._stats.reads += 1
        self._stats.bytes += length
        return data

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        return [self.read_range(offset, length) for offset, length in ranges]

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    __del__ = close  # where nobody did

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class LocalStorage:
    """A folder of the local file system. A put is a temporary name, synced, then link(2): create-only and durable."""

    def __init__(self, root: str) -> None:
        self._root = Path(os.path.abspath(root))
        self.root = str(self._root)

    def open(self, path: str, stats: ReadStats | None = None) -> LocalFile:
        return LocalFile(self._root / path, stats)

    def read(self, path: str) -> bytes:
        return (self._root / path).read_bytes()

    def put_new(self, path: str, chunks: Iterable[bytes]) -> None:
        target = self._root / path
        self._make_folders(target.parent)
        staged = target.parent / f"_staged-{uuid.uuid4().hex}"  # engines skip the name
        try:
            with staged.open("xb") as file:
                file.writelines(chunks)
                file.flush()
                os.fsync(file.fileno())
            _link(staged, target)
        finally:
            staged.unlink(missing_ok=True)
        _sync_folder(target.parent)

    def move_new(self, path: str, target: str) -> None:
        origin, goal = self._root / path, self._root / target
        self._make_folders(goal.parent)
        with origin.open("rb") as file:
            os.fsync(file.fileno())
        _link(origin, goal)
        origin.unlink()
        _sync_folder(goal.parent)

    def _make_folders(self, folder: Path) -> None:
        missing = [parent for parent in (folder, *folder.parents) if not parent.exists()]
        for parent in reversed(missing):
            parent.mkdir(exist_ok=True)
            _sync_folder(parent.parent)

    def list(self, prefix: str = "", hidden: bool = False) -> Iterator[FileInfo]:
        yield from self._list(prefix.strip("/"), hidden)

    def _list(self, folder: str, hidden: bool) -> Iterator[FileInfo]:
        try:
            with os.scandir(self._root / folder) as entries:
                found = [(entry.name + "/" * entry.is_dir(), entry) for entry in entries]
        except (FileNotFoundError, NotADirectoryError):
            return
        before = f"{folder}/" if folder else ""
        for name, entry in sorted(found, key=itemgetter(0)):  # a folder sorts as its files do: behind `folder.txt`
            if is_hidden(entry.name) and not hidden:
                continue
            if name.endswith("/"):
                yield from self._list(before + entry.name, hidden)
            elif info := _info(before + name, entry):
                yield info

    def delete(self, path: str) -> None:
        (self._root / path).unlink(missing_ok=True)

    def delete_folder(self, path: str) -> None:
        if (self._root / path).exists():
            shutil.rmtree(self._root / path)


def _info(path: str, entry: os.DirEntry[str]) -> FileInfo | None:
    """A file of a listing; None where it is gone since, and for what is no file (a pipe, a link to nothing)."""
    try:
        status = entry.stat()
    except FileNotFoundError:
        return None
    return FileInfo(path, status.st_size, status.st_mtime_ns) if stat.S_ISREG(status.st_mode) else None


def _link(staged: Path, target: Path) -> None:
    try:
        os.link(staged, target)
    except FileExistsError:
        raise AlreadyExists(f"{target}: the name is taken") from None


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
