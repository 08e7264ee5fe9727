"""The status of a local file, from the memory of the system alone: for callers that must never wait.

Linux can be asked to look a path up without a wait: it refuses where it would have to ask a disk or a network. Only
file systems of this machine count. A network file system may show an old status until it asks its server."""

import ctypes
import os
import stat
import struct
import sys
from typing import Any, NamedTuple

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
