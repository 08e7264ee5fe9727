"""Several ranged reads as few larger ones: a request costs more than the bytes between two ranges."""

from bisect import bisect_right
from collections.abc import Callable, Sequence

from gnomon.shadow.errors import StorageError

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
