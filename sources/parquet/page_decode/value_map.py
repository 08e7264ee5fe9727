"""Where the values of a data page lie, so that a fetch reads and unpacks a part of the page instead of all of it.

A map is made of a page that was read whole, with its checksum verified. It serves flat columns whose values are PLAIN,
in pages that are snappy streams of independent fragments (`gnomon.base.kernel_python`) or not compressed."""

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from gnomon.base import kernel
from gnomon.base.kernel import FRAGMENT
from gnomon.sources.parquet.page_decode.plain_values import NeedsPyarrow
from gnomon.sources.parquet.page_decode.rle import flags_at
from gnomon.sources.parquet.page_map import Range

OBJECT_BYTES = 600  # memory of a map besides its numbers
LEAST_MAPPED = FRAGMENT  # content bytes: a page of one fragment is read whole
LONGEST_LEVELS = 4096  # bytes of levels that a map keeps


class PagePart(NamedTuple):
    """A part of a page that holds wanted values: its bytes in the file, the content position where it begins, the
    content bytes to unpack, and the wanted values."""

    range: Range
    begin: int
    size: int
    values: list[int]


class Content(NamedTuple):
    """The unpacked bytes of a part, as they are cached."""

    data: bytes
    cache_bytes: int


class ValueMap:
    """The map of one page. Positions are bytes of the page's unpacked content. Safe to share between threads."""

    __slots__ = ("_body", "_count", "_firsts", "_lead", "_levels", "_positions", "_size", "_starts", "_width")

    def __init__(
        self,
        body: int | None,
        levels: bytes | None,
        lead: int,
        size: int,
        starts: bytes | None,
        width: int,
        marks: bytes,
        count: int,
    ) -> None:
        """`body`: where the content begins in the page; None where parts of it cannot be unpacked alone. `levels`: the
        definition levels; empty where all values are set, None where the column has no nulls. `lead`: where the values
        begin in the content of `size` bytes. `starts`: of the fragments, counted from `body`; None where the content is
        not compressed. `width`: bytes of a value; 0 for byte arrays, which have `marks` (`kernel.byte_array_marks`).
        `count`: the values."""
        self._body = body
        self._levels = levels
        self._lead = lead
        self._size = size
        self._starts = None if starts is None else array("i", starts)
        self._width = width
        numbers = array("i", marks)
        self._firsts, self._positions = numbers[::2], numbers[1::2]
        self._count = count

    @property
    def saves_reads(self) -> bool:
        """Whether parts of the page can be read instead of all of it, and are smaller."""
        return self._body is not None and self._size > LEAST_MAPPED

    @property
    def cache_bytes(self) -> int:
        numbers = 2 * len(self._firsts) + len(self._starts or ())
        return OBJECT_BYTES + len(self._levels or b"") + 4 * numbers

    def has(self, values: Sequence[int]) -> bool:
        """Whether the page has these ascending values."""
        return not values or values[-1] < self._count

    def wanted(self, rows: Sequence[int]) -> tuple[bytes, list[int]]:
        """`(flags, values)` of ascending rows: for each row whether it has a value, and the numbers of these values."""
        if not self._levels:
            return b"" if self._levels is None else b"\1" * len(rows), list(rows)
        flags = flags_at(memoryview(self._levels), rows)
        return bytes([is_set for is_set, _ in flags]), [rank for is_set, rank in flags if is_set]

    def parts(self, offset: int, values: Sequence[int]) -> list[PagePart]:
        """The parts of the page at `offset` that hold the ascending values, each less than `count`. Values of the same
        fragment share one."""
        unit = FRAGMENT if self._starts else 1
        spans: list[tuple[int, int, list[int]]] = []
        for value in values:
            begin, end = self._bounds(value)
            begin -= begin % unit
            if spans and begin < -(-spans[-1][1] // unit) * unit:
                known = spans.pop()
                spans.append((known[0], max(end, known[1]), [*known[2], value]))
            else:
                spans.append((begin, end, [value]))
        return [self._part(offset + (self._body or 0), *span) for span in spans]

    def _part(self, body: int, begin: int, end: int, values: list[int]) -> PagePart:
        at, stop = begin, end
        if self._starts:
            at, stop = self._starts[begin // FRAGMENT], self._starts[-(-end // FRAGMENT)]
        return PagePart((body + at, stop - at), begin, end - begin, values)

    def _bounds(self, value: int) -> tuple[int, int]:
        """`(begin, end)` of content that holds a value. For byte arrays it begins where an earlier value may begin."""
        if self._width:
            begin = self._lead + value * self._width
            return begin, begin + self._width
        after = bisect_right(self._firsts, value)
        end = self._positions[after] if self._firsts[after] == value + 1 else FRAGMENT * after
        return self._positions[after - 1], min(end, self._size)

    def unpacked(self, part: PagePart, data: bytes) -> Content:
        """The content of a part, from its bytes. NeedsPyarrow where they do not give it."""
        content: bytes | None = data
        if self._starts:
            content = kernel.unpack_fragments(data, 0, len(data), part.size)
        if content is None or len(content) != part.size:
            raise NeedsPyarrow
        return Content(content, OBJECT_BYTES + len(content))

    def plain(self, content: bytes | memoryview, begin: int, values: Sequence[int]) -> bytes:
        """These values in their PLAIN encoding, from content that begins at `begin`."""
        if not self.has(values):
            raise NeedsPyarrow
        if self._width:
            starts = [self._lead + value * self._width - begin for value in values]
            return b"".join([content[at : at + self._width] for at in starts])
        found = []
        for value in values:
            after = bisect_right(self._firsts, value)
            first, at, end = self._firsts[after - 1], self._positions[after - 1], self._positions[after]
            numbers = value - first, self._firsts[after] - first
            span = kernel.byte_array_span(content, at - begin, *numbers, end - begin)
            if span is None:
                raise NeedsPyarrow
            found.append(content[span[0] : span[1]])
        return b"".join(found)
