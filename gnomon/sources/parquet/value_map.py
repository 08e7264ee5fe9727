"""Where the values of a page lie, so that a fetch reads and unpacks a part of the page instead of all of it.

A map is made of a page that was read whole, with its checksum verified. `ValueMap` is for PLAIN values, of a flat
column or of a dictionary; `IndexMap` is for indices into a dictionary. `pieces` says which parts can be unpacked.

The pieces of a page's stored content can be read and unpacked without the rest of the page:

- Content that is not compressed consists of single bytes.
- A snappy stream may consist of independent fragments (`gnomon.base.kernel_python`).
- A zstandard, gzip or zlib stream is unpacked from its begin to the wanted values.
"""

from abc import ABC, abstractmethod
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from isal import isal_zlib

from gnomon.base import kernel
from gnomon.base.compression import SLICE, DecompressionError, decompress_begin
from gnomon.base.kernel import FRAGMENT
from gnomon.sources.parquet.footer import BINARY, Leaf
from gnomon.sources.parquet.page_header import VALUES_LIMIT
from gnomon.sources.parquet.page_map import Range
from gnomon.sources.parquet.page_values import WIDTH_LIMIT, NeedsPyarrow, flags_at, values_at

OBJECT_BYTES = 600  # memory of a map besides its numbers
INDEX_STEP = 4096  # content bytes of a page of indices that is not compressed, read as one
STREAM_UNITS = {"zstandard": -1, "gzip or zlib": -2}  # codecs of streams, as the `unit` of their pieces
STREAM_CODECS = {unit: codec for codec, unit in STREAM_UNITS.items()}
LEAST_MAPPED = FRAGMENT  # content bytes: a page of one fragment is read whole
LONGEST_LEVELS = 4096  # bytes of levels that a map keeps
LONGEST_INDICES = 4096  # bytes of a page's indices that a map keeps, so that they are not read
VALUES, INDICES = 0, 1  # kinds of map


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


class Stored(NamedTuple):
    """A map as numbers and bytes. `numbers`: the kind of map, then what its constructor takes."""

    numbers: tuple[int, ...]
    parts: tuple[bytes | None, ...]


class MappedPage(ABC):
    """Which values of a page its rows have, and in which parts of the page they lie. Positions are bytes of the page's
    unpacked content. Safe to share between threads."""

    __slots__ = ("count", "levels", "pieces")

    def __init__(self, pieces: AnyPieces | None, levels: bytes | None, count: int) -> None:
        """`pieces`: None where parts of the page cannot be unpacked alone. `levels`: the definition levels; empty where
        all values are set, None where the column has no nulls. `count`: the values of the page."""
        self.pieces = pieces
        self.levels = levels
        self.count = count

    @property
    @abstractmethod
    def saves_reads(self) -> bool:
        """Whether the map saves a fetch from reading the whole page."""

    @property
    def cache_bytes(self) -> int:
        return OBJECT_BYTES + len(self.levels or b"") + (self.pieces.cache_bytes if self.pieces else 0)

    def has(self, values: Sequence[int]) -> bool:
        """Whether the page has all of these values, which ascend."""
        return not values or values[-1] < self.count

    def wanted(self, rows: Sequence[int]) -> tuple[bytes, list[int]]:
        """`(flags, values)` of ascending rows: for each row whether it has a value, and the numbers of these values."""
        if not self.levels:
            return b"" if self.levels is None else b"\1" * len(rows), list(rows)
        flags = flags_at(memoryview(self.levels), rows)
        return bytes([is_set for is_set, _ in flags]), [rank for is_set, rank in flags if is_set]

    def parts(self, offset: int, values: Sequence[int]) -> list[PagePart]:
        """The parts of the page at `offset` that hold the ascending values, each less than `count`. Values of the same
        piece share one."""
        if self.pieces is None:
            return []
        unit = self.pieces.unit
        spans: list[tuple[int, int, list[int]]] = []
        for value in values:
            begin, end = self._bounds(value)
            begin -= begin % unit
            if spans and begin < -(-spans[-1][1] // unit) * unit:
                known = spans.pop()
                spans.append((known[0], max(end, known[1]), [*known[2], value]))
            else:
                spans.append((begin, end, [value]))
        return [self.pieces.part(offset, *span) for span in spans]

    @abstractmethod
    def _bounds(self, value: int) -> tuple[int, int]:
        """`(begin, end)` of content that holds a value."""

    @abstractmethod
    def is_sound(self, page_bytes: int) -> bool:
        """Whether all values that the map has lie within a page of `page_bytes`, so that no number of it leads
        elsewhere."""

    def suits(self, leaf: Leaf, is_dictionary: bool = False) -> bool:
        """Whether the map can be of a page of this leaf."""
        return (self.levels is None) == (is_dictionary or not leaf.definitions)

    def _is_sound(self, page_bytes: int) -> bool:
        is_small = 0 <= self.count <= VALUES_LIMIT and len(self.levels or b"") <= LONGEST_LEVELS
        return is_small and (self.pieces is None or self.pieces.is_sound(page_bytes))

    @abstractmethod
    def stored(self) -> Stored:
        """The map, for `restored`."""

    def _stored(self, kind: int, numbers: tuple[int, int, int], marks: bytes, kept: bytes | None) -> Stored:
        body, size, unit, bounds, checks = self.pieces or (-1, 0, 0, b"", b"")
        return Stored(
            (kind, self.count, *numbers, body, size, unit),
            (bytes(bounds), bytes(checks), self.levels, marks, kept),
        )


class ValueMap(MappedPage):
    """The map of a page of PLAIN values."""

    __slots__ = ("_firsts", "_lead", "_positions", "_size", "_width")

    def __init__(
        self,
        pieces: AnyPieces | None,
        levels: bytes | None,
        count: int,
        lead: int,
        size: int,
        width: int,
        marks: bytes,
    ) -> None:
        """`lead`: where the values begin in the content of `size` bytes. `width`: bytes of a value; 0 for byte arrays,
        which have `marks` (`kernel.byte_array_marks`)."""
        super().__init__(pieces, levels, count)
        self._lead = lead
        self._size = size
        self._width = width
        numbers = array("i", marks)
        self._firsts, self._positions = numbers[::2], numbers[1::2]

    @property
    def saves_reads(self) -> bool:
        return self.pieces is not None and self._size > LEAST_MAPPED

    @property
    def cache_bytes(self) -> int:
        return super().cache_bytes + 8 * len(self._firsts)

    def _bounds(self, value: int) -> tuple[int, int]:
        """For byte arrays the content begins where an earlier value may begin."""
        if self._width:
            begin = self._lead + value * self._width
            return begin, begin + self._width
        after = bisect_right(self._firsts, value)
        end = self._positions[after] if self._firsts[after] == value + 1 else FRAGMENT * after
        return self._positions[after - 1], min(end, self._size)

    def is_sound(self, page_bytes: int) -> bool:
        size = self._size
        if not self._is_sound(page_bytes) or not 0 <= self._lead <= size or self._width < 0:
            return False
        if self.pieces is not None and self.pieces.content_bytes != size:
            return False
        if self._width:
            return not self._firsts and self._lead + self.count * self._width <= size
        return (
            _are_marks(self._firsts, self._positions, FRAGMENT, size)
            and (self._firsts[0], self._firsts[-1], self._positions[0]) == (0, self.count, self._lead)
            and self._positions[-1] == size
        )

    def suits(self, leaf: Leaf, is_dictionary: bool = False) -> bool:
        width = 0 if leaf.kind == BINARY else leaf.width
        return super().suits(leaf, is_dictionary) and self._width == width and (width > 0 or leaf.kind == BINARY)

    def stored(self) -> Stored:
        marks = _interleaved(self._firsts, self._positions)
        return self._stored(VALUES, (self._lead, self._size, self._width), marks, None)

    def plain(self, content: bytes | memoryview, begin: int, values: Sequence[int]) -> list[bytes | memoryview]:
        """These values in their PLAIN encoding, from content that begins at `begin`."""
        if not self.has(values):
            raise NeedsPyarrow
        if self._width:
            starts = [self._lead + value * self._width - begin for value in values]
            if starts and not 0 <= starts[0] <= starts[-1] <= len(content) - self._width:
                raise NeedsPyarrow
            return [content[at : at + self._width] for at in starts]
        found: list[bytes | memoryview] = []
        while len(found) < len(values):
            after = bisect_right(self._firsts, values[len(found)])
            first, at, end = self._firsts[after - 1], self._positions[after - 1], self._positions[after]
            together = values[len(found) : bisect_left(values, self._firsts[after], len(found))]
            wanted = [value - first for value in together]
            some = kernel.byte_arrays(content, at - begin, wanted, self._firsts[after] - first, end - begin)
            if some is None:
                raise NeedsPyarrow
            found += some
        return found


class IndexMap(MappedPage):
    """The map of a page of indices into the dictionary of its chunk."""

    __slots__ = ("_firsts", "_positions", "_stops", "_width", "kept")

    def __init__(
        self, pieces: AnyPieces | None, levels: bytes | None, count: int, width: int, marks: bytes, kept: bytes | None
    ) -> None:
        """`width`: bits of an index. `marks`: see `kernel.hybrid_marks`. `kept`: all indices in their hybrid encoding,
        of a page that has few bytes of them; such a page is not read at all, and has no pieces and no marks."""
        super().__init__(pieces, levels, count)
        self._width = width
        self.kept = kept
        numbers = array("i", marks)
        self._firsts, self._positions, self._stops = numbers[::3], numbers[1::3], numbers[2::3]

    @property
    def saves_reads(self) -> bool:
        return self.pieces is not None or self.kept is not None

    @property
    def cache_bytes(self) -> int:
        return super().cache_bytes + 12 * len(self._firsts) + len(self.kept or b"")

    def _bounds(self, value: int) -> tuple[int, int]:
        """The content ends after the piece, unless the last run or group that begins in the piece may hold the value
        and ends after it."""
        assert self.pieces is not None
        after = bisect_right(self._firsts, value)
        end, next_piece = self._positions[after], self.pieces.unit * after
        next_is_run = self._stops[after] == self._firsts[after]
        if end > next_piece and not next_is_run and value < self._firsts[after] - 8:
            end = next_piece
        return self._positions[after - 1], end

    def is_sound(self, page_bytes: int) -> bool:
        pieces = self.pieces
        if not self._is_sound(page_bytes) or not 0 <= self._width <= WIDTH_LIMIT:
            return False
        if self.kept is not None:
            return pieces is None and len(self.kept) <= LONGEST_INDICES
        return (
            isinstance(pieces, Pieces)
            and self._width > 0
            and pieces.unit > 1
            and len(self._stops) == len(self._firsts)
            and _are_marks(self._firsts, self._positions, pieces.unit, pieces.size)
            and self._firsts[0] == 0 <= self.count <= self._firsts[-1]
            and all(first <= stop for first, stop in zip(self._firsts, self._stops, strict=True))
        )

    def stored(self) -> Stored:
        marks = _interleaved(self._firsts, self._positions, self._stops)
        return self._stored(INDICES, (0, 0, self._width), marks, self.kept)

    def kept_indices(self, values: Sequence[int], limit: int) -> list[int]:
        """The indices with these numbers, each less than `limit`, of a map that keeps them all."""
        if self.kept is None or not self.has(values):
            raise NeedsPyarrow
        return values_at(memoryview(self.kept), self._width, values, limit)

    def indices(self, content: bytes | memoryview, begin: int, values: Sequence[int], limit: int) -> list[int]:
        """The indices with these numbers, each less than `limit`, from content that begins at `begin`. ValueError where
        it does not hold them."""
        if not self.has(values):
            raise NeedsPyarrow
        found, data = [], memoryview(content)
        for value in values:
            after = bisect_right(self._firsts, value)
            first, stop = self._firsts[after - 1], self._stops[after - 1]
            at = self._positions[after - 1] - begin
            if value >= stop:
                runs = data[at + (stop - first) // 8 * self._width :]
                found += values_at(runs, self._width, [value - stop], limit)
                continue
            bit = (value - first) * self._width
            packed = data[at + (bit >> 3) : at + (bit + self._width + 7 >> 3)]
            index = int.from_bytes(packed, "little") >> (bit & 7) & (1 << self._width) - 1
            if index >= limit or 8 * len(packed) < (bit & 7) + self._width:
                raise ValueError(f"index {index} where there are {limit}")
            found.append(index)
        return found


def restored(stored: Stored, page_bytes: int) -> MappedPage | None:
    """The map that gave `stored`, of a page of this size; None for numbers that no map has."""
    try:
        made = _restored(stored)
    except ValueError:  # bytes that are no integers
        return None
    return made if made.is_sound(page_bytes) else None


def _restored(stored: Stored) -> MappedPage:
    kind, count, lead, all_bytes, width, body, size, unit = stored.numbers
    bounds, checks, levels, marks, kept = stored.parts
    pieces: AnyPieces | None = None
    if body >= 0:
        numbers = array("i", bounds or b""), array("I", checks or b"")
        pieces = StreamPieces(body, size, unit, *numbers) if unit < 0 else Pieces(body, size, unit, *numbers)
    if kind == VALUES:
        return ValueMap(pieces, levels, count, lead, all_bytes, width, marks or b"")
    return IndexMap(pieces, levels, count, width, marks or b"", kept)


def _are_marks(firsts: "array[int]", positions: "array[int]", unit: int, size: int) -> bool:
    """Whether marks of each `unit` bytes of `size` follow each other: a value that begins in a piece is found there."""
    if len(firsts) != len(positions) or len(firsts) != -(-size // unit) + 1:
        return False
    if not ascend(firsts) or not ascend((0, *positions, size)):
        return False
    for piece, ((first, at), (next_first, next_at)) in enumerate(pairwise(zip(firsts, positions, strict=True))):
        if first < next_first and not piece * unit <= at < min((piece + 1) * unit, next_at):
            return False
    return True


def are_alike(one: MappedPage, other: MappedPage) -> bool:
    """Whether two maps of a page are equal. The content bytes after each slice of a stream are not compared: they
    depend on the version of the decoder, and a fetch notices if there are fewer."""
    first, second = one.stored(), other.stored()
    begin = 1 if isinstance(one.pieces, StreamPieces) else 0
    return first.numbers == second.numbers and first.parts[begin:] == second.parts[begin:]


def _interleaved(*columns: "array[int]") -> bytes:
    """Numbers in the order first of each column, second of each, and so on."""
    together = array("i", bytes(4 * len(columns) * len(columns[0])))
    for place, column in enumerate(columns):
        together[place :: len(columns)] = column
    return together.tobytes()
