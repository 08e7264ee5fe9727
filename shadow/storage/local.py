"""Local disk, our own few lines: object-store libraries neither sync nor stage under names that engines skip."""

import errno
import os
import shutil
import stat
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from operator import itemgetter
from pathlib import Path
from types import TracebackType
from typing import Self

from shadow.errors import AlreadyExists, FileChanged, StorageError
from shadow.fingerprint import difference
from shadow.storage.contract import STAGED, FileInfo, ReadStats, is_hidden

CURES = {
    errno.ENOSPC: "free space there",
    errno.EDQUOT: "free space there, or raise the quota",
    errno.EROFS: "expected a file system that can be written to",
    errno.EACCES: "expected a folder that this user may write to",
    errno.EPERM: "expected a folder that this user may write to, on a file system with hard links",
    errno.ENOTDIR: "a folder of the path is a file",
    errno.ENAMETOOLONG: "expected a shorter name",
}


class LocalFile:
    """An open local file; reads do not move a position, so threads may share it. A file that takes its name later is
    not seen. One that is written to in place, or cut, is: after each read its size and time are looked at again."""

    etag = ""

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
        return self.read_ranges([(offset, length)])[0]

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        parts = [self._read(offset, length) for offset, length in ranges]
        self._check()
        return parts

    def _read(self, offset: int, length: int) -> bytes:
        data = os.pread(self._fd, length, offset)
        while len(data) < length:
            more = os.pread(self._fd, length - len(data), offset + len(data))
            if not more:
                self._check()
                end = offset + len(data)
                raise StorageError(f"{self.name}: expected {length} bytes at {offset}, the file ends at {end}")
            data += more
        self._stats.reads += 1
        self._stats.bytes += length
        return data

    def _check(self) -> None:
        """FileChanged where what was read may be of another state than what was read before."""
        status = os.fstat(self._fd)
        now = FileInfo(self.name, status.st_size, status.st_mtime_ns)
        if how := difference(self, now):
            raise FileChanged(self.name, how, now.size)

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
    """A folder of the local file system. A put is a temporary name, synced, then link(2): create-only and durable. An
    absolute path is taken as it is."""

    def __init__(self, root: str) -> None:
        self._root = Path(os.path.abspath(root))
        self.root = str(self._root)

    def open(self, path: str, stats: ReadStats | None = None, known: FileInfo | None = None) -> LocalFile:
        file = LocalFile(self._root / path, stats)
        if known is not None and (how := difference(known, file)):
            file.close()
            raise FileChanged(file.name, how, file.size)
        return file

    def read(self, path: str) -> bytes:
        return (self._root / path).read_bytes()

    def put_new(self, path: str, chunks: Iterable[bytes]) -> None:
        target = self._root / path
        staged = target.parent / f"{STAGED}{uuid.uuid4().hex}"
        with _writing(target):
            self._make_folders(target.parent)
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
        with origin.open("rb") as file, _writing(goal):
            self._make_folders(goal.parent)
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
        with _writing(self._root / path):
            (self._root / path).unlink(missing_ok=True)

    def delete_folder(self, path: str) -> None:
        with _writing(self._root / path):
            if (self._root / path).exists():
                shutil.rmtree(self._root / path)


def _info(path: str, entry: os.DirEntry[str]) -> FileInfo | None:
    """A file of a listing; None where it is gone since, and for what is no file (a pipe, a link to nothing)."""
    try:
        status = entry.stat()
    except FileNotFoundError:
        return None
    return FileInfo(path, status.st_size, status.st_mtime_ns) if stat.S_ISREG(status.st_mode) else None


@contextmanager
def _writing(target: Path) -> Iterator[None]:
    """What the operating system refuses, as one line that names the file and the cure."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise StorageError(f"{target}: {reason}; {CURES.get(error.errno or 0, 'see the disk')}") from error


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
