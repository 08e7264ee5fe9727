"""Work that must not wait, for callers that have other work to do meanwhile. It reads a bounded number of bytes, and
only from files of this machine's own disks whose bytes the system has in memory."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from gnomon.shadow.storage.local_status import is_tmpfs, status_in_memory

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
