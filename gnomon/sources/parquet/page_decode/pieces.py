"""The pieces of a page's stored content that can be read and unpacked without the rest of the page.

- Content that is not compressed consists of single bytes.
- A snappy stream may consist of independent fragments (`gnomon.base.kernel_python`).
- A zstandard, gzip or zlib stream is unpacked from its begin to the wanted values."""

from array import array
from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from isal import isal_zlib

from gnomon.base import kernel
from gnomon.base.compression import SLICE, DecompressionError, decompress_begin
from gnomon.base.kernel import FRAGMENT
from gnomon.sources.parquet.page_decode.plain_values import NeedsPyarrow
from gnomon.sources.parquet.page_map import Range

OBJECT_BYTES = 600  # memory of a map besides its numbers
INDEX_STEP = 4096  # content bytes of a page of indices that is not compressed, read as one
STREAM_UNITS = {"zstandard": -1, "gzip or zlib": -2}  # codecs of streams, as the `unit` of their pieces
STREAM_CODECS = {unit: codec for codec, unit in STREAM_UNITS.items()}


class PagePart(NamedTuple):
    """A part of a page that holds wanted values: its bytes in the file, the content position where it begins, the
    content bytes to unpack, and the wanted values."""

    range: Range
    begin: int
    size: int
    values: list[int]


class Content(NamedTuple):
    """The content bytes of a part of a page, in the form in which a cache keeps them."""

    data: bytes | memoryview
    cache_bytes: int


class Pieces(NamedTuple):
    """How the content of a page is stored in it. Pieces of `unit` content bytes can be unpacked alone: a single byte or
    `INDEX_STEP` bytes where the content is not compressed, else a snappy fragment.

    `body` is the position in the page where the content of `size` bytes begins. `starts` are the positions of the
    pieces, counted from `body`, and that of their end. `checks` are the CRC-32 of the pieces, as they are stored. Both
    are empty for single bytes."""

    body: int
    size: int
    unit: int
    starts: "array[int]"
    checks: "array[int]"

    def part(self, offset: int, begin: int, end: int, values: list[int]) -> PagePart:
        """The part of the page at `offset` with this content. `begin` is where a piece begins."""
        at, stop = begin, end
        if self.starts:
            at, stop = self.starts[begin // self.unit], self.starts[-(-end // self.unit)]
        return PagePart((offset + self.body + at, stop - at), begin, end - begin, values)

    def entire(self, part: PagePart) -> PagePart:
        """The part with all content of its pieces."""
        end = min(-(-(part.begin + part.size) // self.unit) * self.unit, self.size)
        return part._replace(size=end - part.begin)

    def unpacked(self, part: PagePart, data: bytes) -> Content:
        """The content of a part, from its bytes. NeedsPyarrow where they changed or do not give it."""
        if self.starts:
            first, view = part.begin // self.unit, memoryview(data)
            starts = self.starts[first : 1 - (-(part.begin + part.size) // self.unit)]
            for check, (at, stop) in zip(self.checks[first:], pairwise(starts), strict=False):
                if isal_zlib.crc32(view[at - starts[0] : stop - starts[0]]) != check:
                    raise NeedsPyarrow
        content: bytes | None = data[: part.size]
        if self.unit == FRAGMENT:
            content = kernel.unpack_fragments(data, 0, len(data), part.size)
        if content is None or len(content) != part.size:
            raise NeedsPyarrow
        return Content(content, OBJECT_BYTES + len(content))

    @property
    def cache_bytes(self) -> int:
        return 4 * (len(self.starts) + len(self.checks))

    @property
    def content_bytes(self) -> int:
        return self.size

    def is_sound(self, page_bytes: int) -> bool:
        """Whether the pieces lie within a page of `page_bytes`, and follow each other. Numbers of a saved map may be
        anything."""
        if not 0 < self.body <= page_bytes or self.size < 0 or self.unit not in (1, INDEX_STEP, FRAGMENT):
            return False
        if self.unit == 1:
            return not self.starts and not self.checks and self.size <= page_bytes - self.body
        count = -(-self.size // self.unit)
        return (len(self.starts), len(self.checks)) == (count + 1, count) and ascend(
            (0, *self.starts, page_bytes - self.body)
        )


class StreamPieces(NamedTuple):
    """How the content of a page is stored in one compressed stream. All values have one part, which begins where the
    stream begins.

    `body` is the position in the page where the stream of `size` bytes begins. `codec` is one of `STREAM_UNITS`.
    `ends` are the content bytes that are complete after each `SLICE` bytes of the stream, `checks` the CRC-32 of these
    slices."""

    body: int
    size: int
    codec: int
    ends: "array[int]"
    checks: "array[int]"

    @property
    def unit(self) -> int:
        """The content bytes that can be unpacked alone: all of them."""
        return self.ends[-1]

    @property
    def cache_bytes(self) -> int:
        return 4 * (len(self.ends) + len(self.checks))

    @property
    def content_bytes(self) -> int:
        return self.ends[-1]

    def is_sound(self, page_bytes: int) -> bool:
        """As `Pieces.is_sound`."""
        count = -(-self.size // SLICE)
        within = 0 < self.body <= page_bytes and 0 < self.size <= page_bytes - self.body
        known = self.codec in STREAM_CODECS and len(self.ends) == len(self.checks) == count
        return within and known and ascend((0, *self.ends))

    def part(self, offset: int, begin: int, end: int, values: list[int]) -> PagePart:
        """As `Pieces.part`, for content from the begin of the page."""
        slices = bisect_left(self.ends, end) + 1
        return PagePart((offset + self.body, min(slices * SLICE, self.size)), 0, end, values)

    def entire(self, part: PagePart) -> PagePart:
        """As `Pieces.entire`, for the slices of the part."""
        return part._replace(size=self.ends[bisect_left(self.ends, part.size)])

    def unpacked(self, part: PagePart, data: bytes) -> Content:
        """As `Pieces.unpacked`."""
        view = memoryview(data)
        for check, at in zip(self.checks, range(0, len(view), SLICE), strict=False):
            if isal_zlib.crc32(view[at : at + SLICE]) != check:
                raise NeedsPyarrow
        try:
            content = decompress_begin(STREAM_CODECS[self.codec], data, part.size)
        except (DecompressionError, MemoryError):  # a saved map may claim any size
            raise NeedsPyarrow from None
        return Content(content, OBJECT_BYTES + len(content))


AnyPieces = Pieces | StreamPieces


def ascend(numbers: Sequence[int]) -> bool:
    """Whether no number is less than the one before it."""
    return all(one <= other for one, other in pairwise(numbers))


def stream_pieces_of(page: bytes, body: int, codec: str, ends: "array[int]") -> StreamPieces:
    """The pieces of a page whose content is one stream, from `body` to the end of the page. `ends`: see
    `StreamPieces`."""
    view = memoryview(page)[body:]
    checks = array("I", [isal_zlib.crc32(view[at : at + SLICE]) for at in range(0, len(view), SLICE)])
    return StreamPieces(body, len(view), STREAM_UNITS[codec], ends, checks)


def pieces_of(page: bytes, body: int | None, size: int, starts: bytes | None, step: int = 1) -> Pieces | None:
    """The pieces of a page whose content of `size` bytes begins at `body`; None where `body` is. `starts` are those of
    snappy fragments; None where the content is not compressed and has pieces of `step` bytes."""
    if body is None:
        return None
    if starts is None and step == 1:
        return Pieces(body, size, 1, array("i"), array("I"))
    bounds = array("i", [*range(0, size, step), size] if starts is None else starts)
    view = memoryview(page)[body:]
    checks = array("I", [isal_zlib.crc32(view[at:stop]) for at, stop in pairwise(bounds)])
    return Pieces(body, size, step if starts is None else FRAGMENT, bounds, checks)
