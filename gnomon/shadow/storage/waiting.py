"""How long a call may wait: the deadline of a caller for its work in all threads, before which it may leave; a
second look at a file after a short wait; and work that must not wait, for callers that have other work meanwhile.

Work that must not wait reads a bounded number of bytes, and only from files of this machine's own disks whose bytes the
system has in memory. Linux can be asked to look a path up without a wait: it refuses where it would have to ask a disk
or a network. A network file system may show an old status until it asks its server."""

import ctypes
import errno
import os
import stat
import struct
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from typing import Any, NamedTuple, ParamSpec, TypeVar

from gnomon.base.readers import looking_again
from gnomon.shadow.errors import OutOfTime
from gnomon.shadow.storage.contract import Readable

PAUSE = 0.1  # seconds before a second look at a file
P = ParamSpec("P")
Result = TypeVar("Result")


class _Deadline(NamedTuple):
    end: float  # of the monotonic clock
    seconds: float  # the duration that errors show
    left: "Future[None] | None"  # is done when the caller has left


_DEADLINE: ContextVar[_Deadline | None] = ContextVar("deadline", default=None)


@contextmanager
def within(seconds: float | None, left: "Future[None] | None" = None, shown: float | None = None) -> Iterator[None]:
    """Limit the storage calls of the block to a number of seconds; later calls raise OutOfTime. The earliest of nested
    deadlines counts. None sets no limit. Once `left` is done, the next check or wait raises OutOfTime, too. Errors name
    `shown` seconds, where the caller's time began before the block."""
    known = _DEADLINE.get()
    if seconds is not None:
        known_left = left if left is not None or known is None else known.left
        mine = _Deadline(time.monotonic() + seconds, seconds if shown is None else shown, known_left)
        known = mine if known is None or mine.end < known.end else known._replace(left=known_left)
    token = _DEADLINE.set(known)
    try:
        yield
    finally:
        _DEADLINE.reset(token)


def left() -> float | None:
    """The seconds left, at least 0; None without a deadline."""
    deadline = _DEADLINE.get()
    return None if deadline is None else max(deadline.end - time.monotonic(), 0.0)


def check_deadline(what: str) -> None:
    """Raise OutOfTime once the deadline has passed or the caller has left. `what` names the work waited for."""
    deadline = _DEADLINE.get()
    if deadline is not None and (time.monotonic() >= deadline.end or _has_left(deadline)):
        raise out_of_time(what)


def _has_left(deadline: _Deadline) -> bool:
    return deadline.left is not None and deadline.left.done()


def out_of_time(what: str) -> OutOfTime:
    deadline = _DEADLINE.get()
    if deadline is not None and _has_left(deadline):
        return OutOfTime(f"the caller has left: waited for {what}")
    seconds = 0.0 if deadline is None else deadline.seconds
    return OutOfTime(f"not answered within {seconds:g} s: waited for {what}; ask for less, or with more time")


def carried(call: Callable[P, Result]) -> Callable[P, Result]:
    """The call with the deadline of this context, for one call in another thread."""
    context = copy_context()

    def run(*args: P.args, **kwargs: P.kwargs) -> Result:
        return context.run(call, *args, **kwargs)

    return run


def awaited(future: "Future[Result]", what: str) -> Result:
    """The result of a call in another thread. OutOfTime where the deadline passes or the caller leaves first: a waiting
    call is then cancelled, and a running one goes on in its thread."""
    deadline = _DEADLINE.get()
    futures: list[Future[Any]] = [future]
    if deadline is not None and deadline.left is not None:
        futures.append(deadline.left)
    if future not in wait(futures, left(), FIRST_COMPLETED).done:
        future.cancel()
        raise out_of_time(what)
    return future.result()


def looked_twice(storage: Readable, look: Callable[[], Result], doubtful: tuple[type[Exception], ...]) -> Result:
    """The result of a look at a file. On a remote store the look is made again after one of the `doubtful` errors,
    which say that the file is damaged or gone; the error of the second look is raised."""
    try:
        return look()
    except doubtful:
        if not storage.is_remote:
            raise
    return looked_again(look)


def looked_again(look: Callable[[], Result]) -> Result:
    """The result of a second look at a file, after a pause."""
    remaining = left()
    time.sleep(PAUSE if remaining is None else min(PAUSE, remaining))
    with looking_again():
        return look()


# ext2 to ext4, XFS, Btrfs, F2FS, tmpfs: they keep the status of a known file in memory, and nobody else changes it.
_TMPFS = 0x01021994
LOCAL = frozenset({0xEF53, 0x58465342, 0x9123683E, 0xF2F52010, _TMPFS})
_STATFS_BYTES = 256  # more than the structure has
_OPENAT2, _RESOLVE_CACHED = 437, 0x20  # the same number on all Linux architectures except alpha
_HOW = struct.pack("=QQQ", os.O_CLOEXEC | getattr(os, "O_PATH", 0), 0, _RESOLVE_CACHED)
_AT_FDCWD, _AT_EMPTY_PATH, _AT_STATX_DONT_SYNC, _BASIC_STATS = -100, 0x1000, 0x4000, 0x7FF
_STATX = struct.Struct("=28xH2xQQ48xqI4xqI12xII112x")  # mode, inode, size, ctime, mtime, device


class Status(NamedTuple):
    """The fingerprint of a regular file. Files of local disks have no etag."""

    size: int
    mtime_ns: int
    ctime_ns: int
    inode: tuple[int, int]
    etag: str = ""


def _system() -> Any:
    """The system calls. They keep the interpreter's lock, since they do not wait. None where the system lacks them."""
    found = ctypes.PyDLL(None) if sys.platform == "linux" else None
    return found if hasattr(found, "statx") else None


class LocalStatus:
    """Reads the status of files on the file systems that `note_file_system` has recorded. Safe to share between
    threads."""

    def __init__(self) -> None:
        self._system = _system()
        self._devices: dict[int, int] = {}  # the kind of the file system of a device, 0 where it is not local

    def note_file_system(self, descriptor: int, device: int) -> None:
        """Record the file system of an open file, by its device (`st_dev`). This may wait if the device is not known
        yet."""
        if device in self._devices or self._system is None:
            return
        found = ctypes.create_string_buffer(_STATFS_BYTES)
        failed = ctypes.CDLL(None).fstatfs(descriptor, found)
        kind = int.from_bytes(found.raw[: struct.calcsize("l")], sys.byteorder)
        self._devices[device] = kind if not failed and kind in LOCAL else 0

    def is_tmpfs(self, descriptor: int) -> bool:
        """Whether an open file is on a tmpfs, whose files are always in memory."""
        return self._devices.get(os.fstat(descriptor).st_dev) == _TMPFS

    def of(self, path: str) -> Status | None:
        """The status of a regular file; None where it is not known without a wait, or there is no such file."""
        system = self._system
        if system is None:
            return None
        descriptor: int = system.syscall(_OPENAT2, _AT_FDCWD, os.fsencode(path), _HOW, len(_HOW))
        if descriptor < 0:
            return None
        try:
            found = ctypes.create_string_buffer(_STATX.size)
            flags = _AT_EMPTY_PATH | _AT_STATX_DONT_SYNC
            if system.statx(descriptor, b"", flags, _BASIC_STATS, found):
                return None
        finally:
            os.close(descriptor)
        mode, number, size, ctime, ctime_ns, mtime, mtime_ns, major, minor = _STATX.unpack(found)
        device = os.makedev(major, minor)
        if not stat.S_ISREG(mode) or not self._devices.get(device):
            return None
        return Status(size, mtime * 10**9 + mtime_ns, ctime * 10**9 + ctime_ns, (device, number))


_shared = LocalStatus()
note_file_system, status_in_memory, is_tmpfs = _shared.note_file_system, _shared.of, _shared.is_tmpfs


_NOWAIT = getattr(os, "RWF_NOWAIT", None)  # of Linux


class WouldWait(Exception):
    """The work needs a wait, or reads too many bytes. The caller repeats it where it may wait."""


class _Work:
    """The number of bytes that one block of `without_waiting` may still read."""

    def __init__(self, most_bytes: int) -> None:
        self.left = most_bytes


_WORK: ContextVar[_Work | None] = ContextVar("work without waiting", default=None)


@contextmanager
def without_waiting(most_bytes: int) -> Iterator[None]:
    """Storage calls of the block that could wait raise WouldWait, and so do reads of more than `most_bytes` in all."""
    token = _WORK.set(_Work(most_bytes))
    try:
        yield
    finally:
        _WORK.reset(token)


def may_wait() -> bool:
    """Whether the caller may wait."""
    return _WORK.get() is None


def check_may_wait(what: str) -> None:
    """Raise WouldWait where the caller must not wait. `what` names what waits."""
    if _WORK.get() is not None:
        raise WouldWait(what)


def check_opens(path: str) -> None:
    """Raise WouldWait where the caller must not wait and the system would have to look for a local file on a disk or a
    network."""
    if _WORK.get() is not None and status_in_memory(path) is None:
        raise WouldWait(path)


def read_at(descriptor: int, length: int, offset: int) -> bytes:
    """The bytes at an offset of a local file, fewer at its end. WouldWait where the caller must not wait and the system
    does not have all of them in memory, or the file ends before."""
    work = _WORK.get()
    if work is None:
        return os.pread(descriptor, length, offset)
    work.left -= length
    if work.left < 0 or _NOWAIT is None:
        raise WouldWait("a read")
    data = bytearray(length)
    try:
        found = os.preadv(descriptor, [data], offset, _NOWAIT)
    except OSError as error:
        if not (error.errno == errno.EOPNOTSUPP and is_tmpfs(descriptor)):
            raise WouldWait("a read") from None
        found = os.preadv(descriptor, [data], offset)
    if found < length:
        raise WouldWait("a read")
    return bytes(data)
