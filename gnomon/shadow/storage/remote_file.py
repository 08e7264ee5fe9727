"""The base of open files of remote stores."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from gnomon.shadow.errors import StorageError
from gnomon.shadow.storage.contract import NO_INODE, FileInfo, ReadStats
from gnomon.shadow.storage.ranges import Range, check, read_merged


class RemoteFile(ABC):
    """One state of a file. Nothing is held open on the store, so there is nothing to close."""

    is_remote = True

    def __init__(self, name: str, info: FileInfo, stats: ReadStats | None) -> None:
        self.name = name
        self.size, self.mtime_ns, self.etag = info.size, info.mtime_ns, info.etag
        self.ctime_ns, self.inode = 0, NO_INODE
        self._path = info.path
        self._stats = stats if stats is not None else ReadStats()

    @abstractmethod
    def _fetch(self, spans: Sequence[Range]) -> Sequence[bytes]:
        """The bytes of each span. FileChanged where the file has changed."""

    def read_range(self, offset: int, length: int) -> bytes:
        return self.read_ranges([(offset, length)])[0]

    def read_ranges(self, ranges: Sequence[Range]) -> list[bytes]:
        check(self.name, self.size, ranges)
        return read_merged(ranges, self._read)

    def _read(self, spans: Sequence[Range]) -> Sequence[bytes]:
        self._stats.reads += len(spans)
        self._stats.bytes += sum(length for _, length in spans)
        parts = self._fetch(spans)
        for (offset, length), part in zip(spans, parts, strict=True):
            if len(part) != length:
                raise StorageError(f"expected {length} bytes at {offset}, the store sent {len(part)}", self.name)
        return parts

    def close(self) -> None:  # noqa: B027  nothing is held open
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(  # noqa: B027  nothing is held open
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass
