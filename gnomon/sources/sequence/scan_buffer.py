"""The part of a file that a scan holds in memory, and the search for sync markers.

Splits follow Hadoop's rule: a file consists of runs of records (or single blocks), each of which begins at the end of
the header or at a sync marker. A split has the runs that begin in it.
"""

from gnomon.base.readers import RangeReader
from gnomon.sources.contract import Split
from gnomon.sources.errors import DamagedSource, SourceError, UnsupportedFormat
from gnomon.sources.sequence.codecs import LARGEST
from gnomon.sources.sequence.header import Header

CHUNK = 4 << 20  # bytes read at a time
BEYOND = 64 << 10  # bytes read at a time after the split's end, up to the next marker


class ScanBuffer:
    """A moving part of the file, from `base` on. `end`: end of the split. `size`: size of the file."""

    def __init__(self, path: str, size: int, base: int, end: int, data: bytes = b"") -> None:
        self.path = path
        self.size = size
        self.base = base
        self.end = end
        self.data = data

    def move(self, reader: RangeReader, position: int, length: int) -> None:
        """Hold at least `length` bytes from `position` on. `position` lies in the buffer. The caller has checked that
        the file has the bytes."""
        kept = self.data[position - self.base :]
        begin = position + len(kept)
        ahead = min(CHUNK, self.end - begin) if begin < self.end else BEYOND
        wanted = min(max(ahead, length - len(kept)), self.size - begin)
        self.base = position
        self.data = kept + reader.read_range(begin, wanted)

    def lacks(self, position: int, length: int, what: str) -> SourceError | None:
        """The error for `length` bytes from `position` on that exceed the file or a limit of this reader."""
        if position + length > self.size:
            message = f"{what} takes {length} bytes, the file ends after {self.size - position}"
            return DamagedSource(message, self.path, position)
        if length > LARGEST:
            return UnsupportedFormat(f"{what} takes {length} bytes; the limit is {LARGEST}", self.path, position)
        return None


def first_run(reader: RangeReader, header: Header, split: Split) -> int | None:
    """The position of the first run of records that begins in the split."""
    begin, end = split
    if begin <= header.end:
        return header.end if header.end < end else None
    marker, size = header.marker, reader.size
    at, held = begin, b""
    last = min(end + len(marker) - 1, size)  # the end of the last marker that begins before `end`
    while at < last:
        held += reader.read_range(at, min(CHUNK, last - at))
        at = min(at + CHUNK, last)
        found = held.find(marker)
        if found >= 0:
            return at - len(held) + found
        held = held[-len(marker) + 1 :]
    return None
