"""Where the values of a page lie, so that a fetch reads and unpacks a part of the page instead of all of it.

A map is made of a page that was read whole, with its checksum verified. `ValueMap` is for PLAIN values, of a flat
column or of a dictionary; `IndexMap` is for indices into a dictionary. `pieces` says which parts can be unpacked."""

from abc import ABC, abstractmethod
from array import array
from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from gnomon.base import kernel
from gnomon.base.kernel import FRAGMENT
from gnomon.sources.parquet.page_decode.pieces import (
    OBJECT_BYTES,
    AnyPieces,
    PagePart,
    Pieces,
    StreamPieces,
    ascend,
)
from gnomon.sources.parquet.page_decode.plain_values import NeedsPyarrow
from gnomon.sources.parquet.page_decode.rle import WIDTH_LIMIT, flags_at, values_at
from gnomon.sources.parquet.page_header import VALUES_LIMIT
from gnomon.sources.parquet.schema import BINARY, Leaf

LEAST_MAPPED = FRAGMENT  # content bytes: a page of one fragment is read whole
LONGEST_LEVELS = 4096  # bytes of levels that a map keeps
LONGEST_INDICES = 4096  # bytes of a page's indices that a map keeps, so that they are not read
VALUES, INDICES = 0, 1  # kinds of map


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
        found = []
        for value in values:
            after = bisect_right(self._firsts, value)
            first, at, end = self._firsts[after - 1], self._positions[after - 1], self._positions[after]
            numbers = value - first, self._firsts[after] - first
            span = kernel.byte_array_span(content, at - begin, *numbers, end - begin)
            if span is None:
                raise NeedsPyarrow
            found.append(content[span[0] : span[1]])
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
