"""The interface of every store: the root of an index or a source, and the operations below it.

Paths are relative to the root, with forward slashes. A name that the store cannot hold is a StorageError. So is a store
that refuses, does not answer, or keeps failing, and a local file that the system does not let be read (Unreadable). The
error is one line: what is wrong, where, and what to do.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import NamedTuple, Protocol, Self

from gnomon.base.readers import RangeReader

COPYING = "._COPYING_"  # suffix of a file that `hdfs dfs -put` has not written completely
STAGED = "_staged-"  # prefix of a file that is being written, or was left behind; engines skip it


NO_INODE = (0, 0)  # of a file that is not on a local disk


class FileInfo(NamedTuple):
    """A file in a listing. `path` is relative to the root; the modification time is in nanoseconds; `etag` is the
    store's name of this state of the file, empty where it has none (`fingerprint` compares). `ctime_ns`, on local
    disks, is the time of the last change of the file or its attributes, which no program can set; 0 elsewhere.
    `inode`, on local disks, is the device and the number of the file on it: two files that take one name within a tick
    of the clock may have the same times."""

    path: str
    size: int
    mtime_ns: int
    etag: str = ""
    ctime_ns: int = 0
    inode: tuple[int, int] = NO_INODE


@dataclass
class ReadStats:
    """The number of ranged reads, and their bytes."""

    reads: int = 0
    bytes: int = 0


class OpenFile(RangeReader, Protocol):
    """An open file. It is a context manager, closed by the caller that opened it. Threads may share it.

    Reads give bytes of the file that was opened. They raise StorageError where the file ends early. They raise
    FileChanged or FileNotFoundError where another file has its name now and the store does not keep the old one."""

    @property
    def mtime_ns(self) -> int: ...

    @property
    def etag(self) -> str: ...

    @property
    def ctime_ns(self) -> int: ...

    @property
    def inode(self) -> tuple[int, int]: ...

    def close(self) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


Hidden = bool | frozenset[str]  # the hidden names that a listing shows: all, none, or these


class Readable(Protocol):
    """A root on some store, to read from. Any thread may use it. It can be pickled, and used after a fork, where it
    makes its own connections."""

    @property
    def root(self) -> str: ...

    @property
    def is_remote(self) -> bool:
        """Whether each read is a network round trip, so that independent reads are better made concurrently."""

    def open(self, path: str, stats: ReadStats | None = None, known: FileInfo | None = None) -> OpenFile:
        """Open for ranged reads. FileNotFoundError when there is no such file (NotADirectoryError when a folder of its
        path is a file), IsADirectoryError for a folder.

        `known` is the file on record: another one is FileChanged. A store that compares during a read makes no call
        here. Then FileChanged or FileNotFoundError may come from a read."""

    def list(self, prefix: str = "", hidden: Hidden = False, witness: str = "") -> Iterator[FileInfo]:
        """Yield the files below a folder, ordered by path. Files and folders for which `is_hidden` is true are left
        out. With `hidden` True none is left out; with a set of names, hidden ones with these names are listed, too.

        `witness` is a file that should exist, after all files below the folder in the order of names, in the folder or
        beside it. A listing of an object store that lacks it, though it exists, is not believed. Without it a second
        listing proves the end of the first."""


class Storage(Readable, Protocol):
    """A root on some store, to read from and to write to."""

    def read(self, path: str) -> bytes:
        """A whole small file. FileNotFoundError, NotADirectoryError, IsADirectoryError when there is none."""

    def put_new(self, path: str, chunks: Iterable[bytes]) -> None:
        """Write a file that appears whole and durable, and only if the name is free (AlreadyExists). After a lost reply
        the put is repeated, and an existing file is compared with ours. StorageError where that fails, too: the file
        may or may not have been written."""

    def move_new(self, path: str, target: str) -> None:
        """Give a file another name, durable, and only if that is free (AlreadyExists). The file may have both names for
        a while, or, after a crash, for good; it never has none. Several programs may move the same file: one succeeds,
        and the others get AlreadyExists or FileNotFoundError, or succeed as well. On return the file is durable under
        its new name."""

    def delete(self, path: str) -> None:
        """Remove a file, if it exists."""

    def delete_folder(self, path: str) -> None:
        """Remove a folder, if it exists, with all its content. Several programs may do so at once."""

    def delete_empty(self, path: str) -> None:
        """Remove a folder, and the folders below it, if no file is in them. Nothing happens on a store without folders.
        Other programs may put files there at the same time."""


def is_skipped(name: str, hidden: Hidden) -> bool:
    """Whether `Readable.list` leaves out a file or folder of this name."""
    return is_hidden(name) and hidden is not True and (hidden is False or name not in hidden)


def is_hidden(name: str) -> bool:
    """Whether engines skip a file or folder of this name, by the rule of Spark, which reads a partition folder
    `_a=1`."""
    return name.startswith(".") or (name.startswith("_") and "=" not in name) or name.endswith(COPYING)
