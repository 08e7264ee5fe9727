"""Local disks. No object-store library does this: they neither sync files nor stage them under names that engines
skip."""

import errno
import os
import shutil
import stat
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from operator import itemgetter
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

from gnomon.base.errors import Action
from gnomon.shadow.errors import AlreadyExists, Denied, FileChanged, StorageError, Unreadable
from gnomon.shadow.storage.contract import STAGED, FileInfo, Hidden, ReadStats, difference, is_skipped, words_of
from gnomon.shadow.storage.waiting import check_may_wait, check_opens, note_file_system, read_at

ACTIONS = {
    errno.ENOSPC: Action.FREE_SPACE,
    errno.EDQUOT: Action.FREE_SPACE_OR_RAISE_QUOTA,
    errno.EROFS: Action.USE_WRITABLE_DISK,
    errno.EACCES: Action.USE_WRITABLE_FOLDER,
    errno.EPERM: Action.USE_HARD_LINKS,
    errno.ENOTDIR: Action.USE_FOLDERS,
    errno.EEXIST: Action.USE_FOLDERS,
    errno.ELOOP: Action.MEND_LINKS,
    errno.EMFILE: Action.RAISE_OPEN_FILES,
    errno.ENFILE: Action.RAISE_OPEN_FILES,
    errno.ENAMETOOLONG: Action.USE_SHORTER_NAME,
    errno.EAGAIN: Action.RUN_AGAIN_LATER,
}
READ_ACTIONS = ACTIONS | {errno.EACCES: Action.LET_READ, errno.EPERM: Action.LET_READ}
MEANING = (FileNotFoundError, NotADirectoryError, IsADirectoryError)  # of the contract of a store
TRIES = 100  # of steps that other programs undo; each time one made progress, so more tries mean an error
AGAIN = "other programs change the folder again and again"
_durable: set[tuple[str, int, int]] = set()  # folders whose names this process has synced: path, device, inode


class LocalFile:
    """An open local file. Reads do not move a position, so threads may share it. It is not affected by another file
    that takes its name. A file that is written in place, or cut, is noticed: each read checks its size and times
    again."""

    etag, is_remote = "", False

    def __init__(self, path: str, stats: ReadStats | None) -> None:
        self._fd = -1
        check_opens(path)
        with _Reading(path):
            self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # else a pipe would wait for a writer
        status = os.fstat(self._fd)
        if not stat.S_ISREG(status.st_mode):  # open succeeds for a folder, too
            raise IsADirectoryError(f"{path}: not a file")
        note_file_system(self._fd, status.st_dev)
        self.name = path
        self.size = status.st_size
        self.mtime_ns = status.st_mtime_ns
        self.ctime_ns = status.st_ctime_ns
        self.inode = (status.st_dev, status.st_ino)
        self._attributes = _attributes(status)
        self._stats = stats if stats is not None else ReadStats()

    def read_range(self, offset: int, length: int) -> bytes:
        return self.read_ranges([(offset, length)])[0]

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        with _Reading(self.name):
            parts = [self._read(offset, length) for offset, length in ranges]
            self._check()
        return parts

    def _read(self, offset: int, length: int) -> bytes:
        data = read_at(self._fd, length, offset)
        while len(data) < length:
            more = read_at(self._fd, length - len(data), offset + len(data))
            if not more:
                self._check()
                end = offset + len(data)
                raise StorageError(f"expected {length} bytes at {offset}, the file ends at {end}", self.name)
            data += more
        self._stats.reads += 1
        self._stats.bytes += length
        return data

    def _check(self) -> None:
        """Raise FileChanged where the last read may be of another state of the file than earlier reads."""
        status = os.fstat(self._fd)
        now = FileInfo(self.name, status.st_size, status.st_mtime_ns, "", status.st_ctime_ns)
        how = difference(self, now)
        if not how and now.ctime_ns != self.ctime_ns and _attributes(status) == self._attributes:
            # A new owner, permission or link does not explain the change.
            how = "its ctime differs: it may have been written to, and its time put back"
        if how:
            raise FileChanged(self.name, how, now.size)

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    __del__ = close  # where the caller did not

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class LocalStorage:
    """A folder of the local file system. A put writes and syncs a temporary file, and gives it its name with link(2),
    which is create-only and durable. An absolute path is used unchanged."""

    is_remote = False

    def __init__(self, root: str) -> None:
        self._root = Path(os.path.abspath(root))
        self.root = str(self._root)

    def open(self, path: str, stats: ReadStats | None = None, known: FileInfo | None = None) -> LocalFile:
        file = LocalFile(os.path.join(self.root, path), stats)
        if known is not None and (how := difference(known, file)):
            file.close()
            raise FileChanged(file.name, how, file.size)
        return file

    def read(self, path: str) -> bytes:
        check_may_wait(path)
        with _Reading(self._root / path):
            return (self._root / path).read_bytes()

    def put_new(self, path: str, chunks: Iterable[bytes]) -> None:
        target = self._root / path
        staged = target.parent / f"{STAGED}{uuid.uuid4().hex}"
        with writing(target):
            try:
                with self._create(staged) as file:
                    file.writelines(chunks)
                    file.flush()
                    os.fsync(file.fileno())
                _link(staged, target)
            finally:
                staged.unlink(missing_ok=True)
            _sync_folder(target.parent)

    def _create(self, path: Path) -> BinaryIO:
        for _ in range(TRIES):
            self._make_folders(path.parent)
            with suppress(FileNotFoundError):  # another program removed the empty folder
                return path.open("xb")
        raise OSError(errno.EAGAIN, AGAIN)

    def move_new(self, path: str, target: str) -> None:
        """Move a file. The old name goes when the new one is durable and refers to the same file."""
        origin, goal = self._root / path, self._root / target
        with writing(origin, FileNotFoundError), self._relying_on(goal):
            file = origin.open("rb")
        with file, writing(goal, FileNotFoundError), self._relying_on(goal):
            moved = os.fstat(file.fileno())
            os.fsync(file.fileno())
            for _ in range(TRIES):
                if not _is_at(origin, moved):
                    raise FileNotFoundError(errno.ENOENT, "moved by another program", str(origin))
                self._make_folders(goal.parent)
                with suppress(FileNotFoundError):  # another program moved the file, or removed the empty folder
                    _link(origin, goal)
                    _sync_folder(goal.parent)
                    if _is_at(goal, moved):
                        origin.unlink(missing_ok=True)
                        return
            raise OSError(errno.EAGAIN, AGAIN)

    @contextmanager
    def _relying_on(self, goal: Path) -> Iterator[None]:
        """Sync the folder of a name that another program gave to the file: it may not be durable yet, and the caller
        relies on it."""
        try:
            yield
        except (AlreadyExists, FileNotFoundError):
            for folder in (goal.parent, *goal.parent.parents):
                with suppress(FileNotFoundError, NotADirectoryError):
                    _sync_folder(folder)
                if folder in (self._root, *self._root.parents):
                    break
            raise

    def _make_folders(self, folder: Path) -> None:
        """Make the missing folders, durably. Another program may have made an existing one and not synced it yet, so
        each folder below the root is synced once."""
        for parent in reversed((folder, *folder.parents)):
            with suppress(FileNotFoundError):  # removed by another program: the caller notices it
                is_new = not parent.exists()
                if is_new:
                    parent.mkdir(exist_ok=True)
                elif self._root not in parent.parents:
                    continue
                status = parent.stat()
                known = (str(parent), status.st_dev, status.st_ino)
                if is_new or known not in _durable:
                    _sync_folder(parent.parent)
                    _durable.add(known)

    def list(self, prefix: str = "", hidden: Hidden = False, witness: str = "") -> Iterator[FileInfo]:
        yield from self._list(prefix.strip("/"), hidden)

    def _list(self, folder: str, hidden: Hidden) -> Iterator[FileInfo]:
        check_may_wait(folder)
        try:
            with _Reading(self._root / folder), os.scandir(self._root / folder) as entries:
                found = [(entry.name + "/" * entry.is_dir(), entry) for entry in entries]
        except (FileNotFoundError, NotADirectoryError):
            return
        before = f"{folder}/" if folder else ""
        for name, entry in sorted(found, key=itemgetter(0)):  # a folder sorts like its files, after `folder.txt`
            if is_skipped(entry.name, hidden):
                continue
            if name.endswith("/"):
                yield from self._list(before + entry.name, hidden)
            elif info := _info(before + name, entry):
                yield info

    def delete(self, path: str) -> None:
        with writing(self._root / path):
            (self._root / path).unlink(missing_ok=True)

    def delete_folder(self, path: str) -> None:
        folder = self._root / path
        with writing(folder):
            for _ in range(TRIES):
                try:
                    shutil.rmtree(folder)
                except FileNotFoundError:  # another program removed it, too
                    pass
                except OSError as error:
                    if error.errno != errno.ENOTEMPTY:  # another program writes there
                        raise
                if not folder.exists():
                    return
            raise OSError(errno.EAGAIN, AGAIN)

    def delete_empty(self, path: str) -> None:
        with writing(self._root / path):
            for folder, _, _ in os.walk(self._root / path, topdown=False):
                try:
                    os.rmdir(folder)
                except (FileNotFoundError, NotADirectoryError):
                    pass
                except OSError as error:
                    if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                        raise


def _info(path: str, entry: os.DirEntry[str]) -> FileInfo | None:
    """A file of a listing; None where it is gone since, or is not a file (a pipe, a broken link)."""
    try:
        with _Reading(entry.path):
            status = entry.stat()
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(status.st_mode):
        return None
    inode = (status.st_dev, status.st_ino)
    return FileInfo(path, status.st_size, status.st_mtime_ns, "", status.st_ctime_ns, inode)


def _attributes(status: os.stat_result) -> tuple[int, ...]:
    """The attributes that change a file's ctime and not its content: permissions, owner, group, number of links."""
    return status.st_mode, status.st_uid, status.st_gid, status.st_nlink


class _Reading:
    """Turn errors of the operating system into one line with the file and the advice, except those in MEANING. A class,
    because entering a generator costs each read more."""

    def __init__(self, target: Path | str) -> None:
        self._target = target

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError) and not isinstance(error, (*MEANING, StorageError)):
            kind = Denied if isinstance(error, PermissionError) else Unreadable
            reason, number = error.strerror or type(error).__name__, error.errno or 0
            where = str(error.filename or self._target)
            raised = kind(reason, where, action=READ_ACTIONS.get(number, Action.CHECK_DISK))
            raised.errno, raised.strerror, raised.filename = error.errno, error.strerror, where
            raise raised from error


@contextmanager
def writing(target: Path, *meaning: type[OSError]) -> Iterator[None]:
    """Turn errors of the operating system into one line with the file and the advice, except errors in `meaning`."""
    check_may_wait(str(target))
    try:
        yield
    except meaning:
        raise
    except StorageError:  # of a file that is read meanwhile
        raise
    except OSError as error:
        reason = error.strerror or words_of(error) or type(error).__name__
        raise StorageError(reason, str(target), action=ACTIONS.get(error.errno or 0, Action.CHECK_DISK)) from error


def _link(staged: Path, target: Path) -> None:
    try:
        os.link(staged, target)
    except FileExistsError:
        raise AlreadyExists("the name is taken", str(target), action=Action.RUN_AGAIN) from None


def _is_at(path: Path, file: os.stat_result) -> bool:
    """Whether `path` is a name of `file`."""
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return (status.st_dev, status.st_ino) == (file.st_dev, file.st_ino)


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
