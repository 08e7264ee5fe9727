"""The file that pyarrow scans, with an eye on the page headers that pass: pyarrow allocates whatever a header claims,
before it looks whether the bytes are there."""

from collections.abc import Sequence

from sources.errors import DamagedSource
from sources.parquet.footer import LEGACY_SLACK, ChunkPlace
from sources.parquet.page_header import check_sizes, read_header
from sources.parquet.thrift import CutShort, ThriftError
from sources.range_file import RangeFile
from sources.ranges import PlainReader

HEADER_LIMIT = 16 << 20  # bytes of one page header, as pyarrow has it


class WatchedFile(RangeFile):
    """Raises, and keeps as `failure`, DamagedSource for a page that cannot be, before its header is handed on."""

    def __init__(self, reader: PlainReader, tail: bytes, places: Sequence[ChunkPlace]) -> None:
        super().__init__(reader, tail)
        self._watches = [_Watch(place) for place in places]

    def read(self, size: int = -1) -> bytes:
        start = self.tell()
        data = super().read(size)
        for watch in self._watches:
            if watch.seen == start:
                try:
                    watch.see(data)
                except DamagedSource as error:
                    self.failure = error
                    raise
        return data


class _Watch:
    """Of one chunk, which pyarrow reads from its begin to its end. `seen`: where the bytes not seen yet begin."""

    def __init__(self, place: ChunkPlace) -> None:
        self.seen = place.chunk.start
        self._place = place
        self._header = place.chunk.start  # the next one
        self._end = place.chunk.start + place.chunk.compressed + LEGACY_SLACK
        self._values = place.chunk.values  # still to come; what stands behind them is never looked at
        self._held = b""  # the begin of a header

    def see(self, data: bytes) -> None:
        begin = self.seen - len(self._held)
        self.seen += len(data)
        if self._held:
            data = self._held + data
        while self._values > 0 and begin <= self._header < min(begin + len(data), self._end):
            try:
                self._step(data, self._header - begin)
            except CutShort as error:
                self._held = data[self._header - begin :]
                if len(self._held) > HEADER_LIMIT:
                    raise self._place.damaged(f"no page header: {error}", self._header) from error
                return
            except ThriftError as error:
                raise self._place.damaged(f"no page header: {error}", self._header) from error
        self._held = b""

    def _step(self, data: bytes, at: int) -> None:
        header = read_header(data, at)
        check_sizes(header, self._place, self._header)
        length = header.length + header.compressed
        if self._header + length > self._end:
            raise self._place.damaged(f"page of {length} bytes runs beyond its chunk", self._header)
        self._header += length
        if header.is_data:
            self._values -= header.values
