"""The base of open files of remote stores, and several ranged reads as few larger ones: a request costs more than the
bytes between two ranges."""

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

from gnomon.shadow.errors import StorageError
from gnomon.shadow.storage.contract import NO_INODE, FileInfo, ReadStats

GAP = 128 << 10  # bytes between two ranges that are read to save a request
LARGEST = 8 << 20  # bytes of a merged read; larger ones are faster as concurrent reads

Range = tuple[int, int]  # offset, length


def check(name: str, size: int, ranges: Sequence[Range]) -> None:
    """Raise StorageError for a range beyond the file."""
    for offset, length in ranges:
        if offset + length > size:
            raise StorageError(f"expected {length} bytes at {offset}, the file ends at {size}", name)


def read_merged(ranges: Sequence[Range], read: Callable[[Sequence[Range]], Sequence[bytes]]) -> list[bytes]:
    """The bytes of each range, in the given order. `read` gets the merged ranges, in file order, none empty."""
    spans = merged(ranges)
    starts = [start for start, _ in spans]
    parts = read(spans) if spans else []
    answer = []
    for offset, length in ranges:
        if not length:
            answer.append(b"")
            continue
        place = bisect_right(starts, offset) - 1
        begin = offset - starts[place]
        part = parts[place]
        answer.append(part if length == len(part) else part[begin : begin + length])
    return answer


def merged(ranges: Sequence[Range]) -> list[Range]:
    """Ranges that contain all of these, in file order, with close ones merged."""
    spans: list[Range] = []
    for offset, length in sorted({span for span in ranges if span[1]}):
        if spans:
            start, before = spans[-1]
            end = max(start + before, offset + length)
            if offset < start + before or (offset <= start + before + GAP and end - start <= LARGEST):
                spans[-1] = (start, end - start)
                continue
        spans.append((offset, length))
    return spans


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
