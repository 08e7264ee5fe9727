"""A storage whose n-th call fails, in one of the ways of stores and programs."""

import enum
import errno
import os
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, Self, TypeVar

from gnomon.shadow.errors import StorageError
from gnomon.shadow.storage import FileInfo, LocalStorage, OpenFile, ReadStats, Storage
from gnomon.shadow.storage.contract import Hidden

T = TypeVar("T")
NEVER = 1 << 60
PUTS = {"put_new", "move_new"}


class Fault(enum.Enum):
    """The fault at call n. Only a put can be torn, and only a write can lack space."""

    ONCE = "fails once"
    FROM_THEN_ON = "fails from then on"
    NO_SPACE = "no space from then on"
    LOST_REPLY = "done, but said to have failed"
    TORN = "fails half way"
    KILL = "kill -9, half way where it is a put"

    def hits(self, call: "Call") -> bool:
        """Whether the fault at this call differs from the fault at the next."""
        return call.name in PUTS if self in (Fault.NO_SPACE, Fault.TORN) else True


class Call(NamedTuple):
    """A call: the method of Storage or OpenFile, and the path."""

    name: str
    path: str


class FaultyStorage:
    """Forwards calls, numbered from 0, to another storage until number `at`."""

    def __init__(self, inner: Storage, fault: Fault = Fault.ONCE, at: int = NEVER) -> None:
        self._inner, self._fault, self._at = inner, fault, at
        self.calls: list[Call] = []

    @property
    def root(self) -> str:
        return self._inner.root

    @property
    def is_remote(self) -> bool:
        return self._inner.is_remote

    @property
    def has_failed(self) -> bool:
        return len(self.calls) > self._at

    def open(self, path: str, stats: ReadStats | None = None, known: FileInfo | None = None) -> OpenFile:
        return FaultyFile(self.call("open", path, lambda: self._inner.open(path, stats, known)), self)

    def read(self, path: str) -> bytes:
        return self.call("read", path, lambda: self._inner.read(path))

    def put_new(self, path: str, chunks: Iterable[bytes]) -> None:
        def put(how: Callable[[Iterable[bytes]], Iterable[bytes]] = iter) -> None:
            self._inner.put_new(path, how(chunks))

        self.call("put_new", path, put, lambda: put(self._half))

    def move_new(self, path: str, target: str) -> None:
        self.call("move_new", target, lambda: self._inner.move_new(path, target))

    def list(self, prefix: str = "", hidden: Hidden = False, witness: str = "") -> Iterator[FileInfo]:
        return iter(self.call("list", prefix, lambda: list(self._inner.list(prefix, hidden))))

    def delete(self, path: str) -> None:
        self.call("delete", path, lambda: self._inner.delete(path))

    def delete_folder(self, path: str) -> None:
        self.call("delete_folder", path, lambda: self._inner.delete_folder(path))

    def delete_empty(self, path: str) -> None:
        self.call("delete_empty", path, lambda: self._inner.delete_empty(path))

    def call(self, name: str, path: str, do: Callable[[], T], do_half: Callable[[], T] | None = None) -> T:
        number = len(self.calls)
        self.calls.append(Call(name, path))
        if number < self._at:
            return do()
        first = number == self._at
        if self._fault is Fault.NO_SPACE:
            if name in PUTS:
                raise OSError(errno.ENOSPC, "No space left on device", path)
            return do()
        if not first and self._fault is not Fault.FROM_THEN_ON:
            return do()
        if self._fault is Fault.LOST_REPLY:
            do()
        elif self._fault in (Fault.TORN, Fault.KILL) and do_half is not None:
            do_half()
        elif self._fault is Fault.KILL:
            die()
        raise StorageError(f"{path}: call {number} ({name}): {self._fault.value}")

    def _half(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        data = b"".join(chunks)
        yield data[: len(data) // 2]
        if self._fault is Fault.KILL:
            die()
        raise OSError(errno.EIO, "Input/output error")


class Interrupted(LocalStorage):
    """Calls a function before its first put (or deletion) below a path."""

    def __init__(self, root: str, path: str, happens: Callable[[], object], at: str = "put_new") -> None:
        super().__init__(root)
        self._path, self._happens, self._at = path, happens, at
        self.interrupted = False

    def _before(self, step: str, path: str) -> None:
        if step == self._at and path.startswith(self._path) and not self.interrupted:
            self.interrupted = True
            self._happens()

    def put_new(self, path: str, chunks: Iterable[bytes]) -> None:
        self._before("put_new", path)
        super().put_new(path, chunks)

    def delete(self, path: str) -> None:
        self._before("delete", path)
        super().delete(path)


class FaultyFile:
    """An open file whose reads are calls of its storage."""

    def __init__(self, inner: OpenFile, storage: FaultyStorage) -> None:
        self._inner, self._storage = inner, storage
        self.name, self.size, self.mtime_ns, self.etag = inner.name, inner.size, inner.mtime_ns, inner.etag
        self.ctime_ns, self.inode, self.is_remote = inner.ctime_ns, inner.inode, inner.is_remote

    def read_range(self, offset: int, length: int) -> bytes:
        return self._storage.call("read_range", self.name, lambda: self._inner.read_range(offset, length))

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        return self._storage.call("read_ranges", self.name, lambda: self._inner.read_ranges(ranges))

    def close(self) -> None:
        self._inner.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def die() -> None:
    """End the process as `kill -9` does, without cleanup."""
    os.kill(os.getpid(), signal.SIGKILL)
