"""Page maps: where each page of a flat column chunk lies, and which rows it holds.

A map comes from the file's OffsetIndex, else from the page headers, which are read in small ranges. The chunks of
several columns are walked in step, to save round trips on a remote store. There, chunks of moderate size are read
whole, in one round, because a column may have hundreds of pages.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gnomon.base.readers import RangeReader
from gnomon.sources.errors import DamagedSource
from gnomon.sources.parquet.footer import ChunkPlace
from gnomon.sources.parquet.page_header import DICTIONARY, check_sizes, read_header
from gnomon.sources.parquet.thrift import CutShort, Decoder, ThriftError

Range = tuple[int, int]  # (offset in the file, length)

NARROW = 512  # bytes: a page header with statistics of usual length
WIDE = 64 << 10  # bytes: for small pages, many headers in one read
FAR_BYTES = 64 << 20  # limit of all chunks together, up to which remote ones are read whole
PIECE = 8 << 20  # bytes of one piece of a chunk that is read whole, in parallel
EMPTY_PAGES = 1000  # pages without a row that a chunk may hold


class PageShare(NamedTuple):
    """The part of a fetch that lies in one page: its wanted `rows`, which count from its first. `goes_on`: the wanted
    last row of an earlier page may go on here, up to the first row that begins in this page."""

    page: int
    rows: list[int]
    goes_on: bool


@dataclass(frozen=True, slots=True)
class PageMap:
    """Data pages of one chunk in order. `first_rows` has one more entry than there are pages: the chunk's rows.

    `needs_dictionary` has a flag for each page, or is None where only the pages themselves show it."""

    dictionary: Range | None
    offsets: NDArray[np.int64]
    lengths: NDArray[np.int64]
    first_rows: NDArray[np.int64]
    needs_dictionary: NDArray[np.bool_] | None

    @property
    def cache_bytes(self) -> int:
        return 400 + 25 * len(self.offsets)

    def is_possible(self, start: int, end: int) -> bool:
        """Whether the pages follow each other within these bytes of the file, and their rows, too."""
        offsets, lengths, firsts = self.offsets, self.lengths, self.first_rows
        if not len(offsets) or firsts[0] != 0 or (firsts[1:] < firsts[:-1]).any():
            return False
        if (lengths <= 0).any() or (lengths > end).any() or offsets[0] < start or (offsets > end).any():
            return False
        ends = offsets + lengths
        if ends[-1] > end or (offsets[1:] < ends[:-1]).any():
            return False
        at, length = self.dictionary or (start, 0)
        return start <= at <= at + max(length, 0) <= offsets[0] and (length > 0) == (self.dictionary is not None)

    def pages_of(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """The page of each row. Never a page without rows."""
        return np.searchsorted(self.first_rows, rows, side="right") - 1

    def holding(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The pages that hold ascending `rows`, and the index of the first row of each, then the number of rows."""
        if len(rows) < len(self.offsets):
            page_of = self.pages_of(rows)
            begins = np.flatnonzero(np.diff(page_of, prepend=-1))
            return page_of[begins], np.append(begins, len(rows))
        begins = rows.searchsorted(self.first_rows)
        chosen = np.flatnonzero(begins[1:] > begins[:-1])
        return chosen, np.append(begins[chosen], len(rows))

    def shares(self, rows: NDArray[np.int64], repeated: bool) -> list[PageShare]:
        """The pages of ascending `rows`. A row of a repeated leaf may go on in the next pages, up to one in which a row
        begins: writers need not begin a page with a row. Only the levels in these pages say whether it does."""
        if len(rows) == 1:
            page = int(self.first_rows.searchsorted(rows[0], side="right")) - 1
            found = {page: [int(rows[0] - self.first_rows[page])]}
        else:
            chosen, begins = self.holding(rows)
            local = rows - np.repeat(self.first_rows[chosen], np.diff(begins))
            shares = np.split(local, begins[1:-1])
            found = {page: share.tolist() for page, share in zip(chosen.tolist(), shares, strict=True)}
        if not repeated:
            return [PageShare(page, share, False) for page, share in found.items()]
        later = {page for first, share in found.items() for page in self._pages_after(first, share[-1])}
        return [PageShare(page, found.get(page, []), page in later) for page in sorted({*found, *later})]

    def _pages_after(self, page: int, row: int) -> range:
        """The pages in which this row of a page may go on."""
        row += int(self.first_rows[page])
        if row + 1 < self.first_rows[page + 1]:
            return range(0)
        after = int(self.first_rows.searchsorted(row + 1, side="right"))  # the page after the one that has the next row
        return range(page + 1, min(after, len(self.offsets)))


def map_pages(
    reader: RangeReader, places: Sequence[ChunkPlace], size: int, slack: int, indexed: bool = True
) -> list[PageMap | None]:
    """The page map of each chunk. One round of reads gets all OffsetIndexes; then come the page headers of the chunks
    that have no OffsetIndex or an invalid one. None for chunks whose rows can only be told apart by the levels in their
    pages. The caller has checked the places against the file's `size`; `slack` is `legacy_slack`. `indexed`: whether to
    use OffsetIndexes."""
    maps: list[PageMap | None] = [None] * len(places)
    having = [i for i, place in enumerate(places) if indexed and _has_index(place, size)]
    ranges = [(places[i].chunk.index_offset, places[i].chunk.index_length) for i in having]
    for i, data in zip(having, reader.read_ranges(ranges) if ranges else [], strict=True):
        maps[i] = from_offset_index(data, places[i])
    walks = {
        i: _HeaderWalk(places[i], min(size, places[i].chunk.start + places[i].chunk.compressed + slack))
        for i, found in enumerate(maps)
        if found is None
    }
    # the walk of a repeated chunk may end at its first page
    counted = [walk for walk in walks.values() if not walk.is_repeated]
    if reader.is_remote and sum(walk.left for walk in counted) <= FAR_BYTES:
        for walk in counted:
            walk.take_whole()
    while active := [walk for walk in walks.values() if not walk.done]:
        for walk, data in zip(active, _read(reader, [walk.window() for walk in active]), strict=True):
            walk.feed(data)
    return [found if found is not None else walks[i].result() for i, found in enumerate(maps)]


def _read(reader: RangeReader, windows: Sequence[Range]) -> list[bytes]:
    """The bytes of each window; long windows in pieces, all in one round of reads."""
    pieces = [
        [(at, min(PIECE, begin + length - at)) for at in range(begin, begin + length, PIECE)] or [(begin, 0)]
        for begin, length in windows
    ]
    parts = iter(reader.read_ranges([piece for each in pieces for piece in each]))
    return [next(parts) if len(each) == 1 else b"".join(islice(parts, len(each))) for each in pieces]


def from_offset_index(data: bytes, place: ChunkPlace) -> PageMap | None:
    """The page map in an OffsetIndex; None where the index contradicts itself or its chunk. The pages of a chunk follow
    each other without gaps up to its end. Old versions of parquet-go wrote their lengths without the page headers."""
    chunk, end = place.chunk, place.chunk.start + place.chunk.compressed
    try:
        table = np.array(_locations(Decoder(data)), dtype=np.int64).reshape(-1, 3)
    except (ThriftError, OverflowError):
        return None
    offsets, lengths, starts = table[:, 0].copy(), table[:, 1].copy(), table[:, 2]
    before = int(offsets[0]) - chunk.start if len(table) else 0
    dictionary = (chunk.start, before) if before else None
    found = PageMap(dictionary, offsets, lengths, np.append(starts, place.rows), None)
    if not found.is_possible(chunk.start, end):
        return None
    ends = offsets + lengths
    return found if ends[-1] == end and (offsets[1:] == ends[:-1]).all() else None


def _locations(decoder: Decoder) -> list[tuple[int, int, int]]:
    """`(offset, length with header, first row)` of each page in an OffsetIndex."""
    locations: list[tuple[int, int, int]] = []
    for field_id, wire in decoder.fields():
        if field_id != 1:
            decoder.skip(wire)
            continue
        for _ in range(decoder.structs(wire)):
            numbers = dict.fromkeys((1, 2, 3), -1)
            for number_id, number_wire in decoder.fields():
                if number_id in numbers:
                    numbers[number_id] = decoder.number(number_wire)
                else:
                    decoder.skip(number_wire)
            locations.append((numbers[1], numbers[2], numbers[3]))
    return locations


def _has_index(place: ChunkPlace, size: int) -> bool:
    offset, length = place.chunk.index_offset, place.chunk.index_length
    return offset > 0 and length > 0 and offset + length <= size


class _HeaderWalk:
    """Walks the page headers of one chunk, until it has found all its rows; of a repeated chunk, whose last row may
    have several pages, all its values. In a repeated chunk only pages of version 2 state their number of rows. An error
    in a nested chunk ends the walk without a map, since pyarrow can decode the chunk as a whole."""

    def __init__(self, place: ChunkPlace, end: int) -> None:
        self._place = place
        self._position = place.chunk.start
        self._end = end
        self._reach = WIDE if place.chunk.compressed <= 4 * WIDE else NARROW
        self._rows = self._values = 0
        self._dictionary: Range | None = None
        self._pages: list[tuple[int, int, int, bool]] = []  # offset, length, first row, dictionary needed
        self._empty = 0
        self._unmappable = False

    @property
    def done(self) -> bool:
        if self._place.repeated:
            return self._unmappable or self._values >= self._place.chunk.values
        return self._unmappable or self._rows >= self._place.rows

    @property
    def is_repeated(self) -> bool:
        return self._place.repeated

    @property
    def left(self) -> int:
        """Bytes of the chunk from the current position on."""
        return self._end - self._position

    def take_whole(self) -> None:
        """Make the next window reach to the end of the chunk."""
        self._reach = self.left

    def window(self) -> Range:
        return self._position, min(self._reach, self._end - self._position)

    def feed(self, data: bytes) -> None:
        """Read all headers that lie entirely in the bytes of `window`. Advances the window, or widens it."""
        try:
            self._read_headers(data)
            if not self.done and self._position >= self._end:
                message = f"pages of {self._rows} rows, the row group has {self._place.rows}"
                raise self._place.damaged(message, self._position)
        except DamagedSource:
            if not self._place.nested:
                raise
            self._unmappable = True

    def _read_headers(self, data: bytes) -> None:
        start = self._position
        while not self.done and self._position - start < len(data):
            try:
                length = self._step(data, self._position - start)
            except CutShort:
                if self._position > start:
                    return
                if start + len(data) >= self._end:
                    raise self._place.damaged("truncated page header", start) from None
                self._reach = 4 * len(data)
                return
            except ThriftError as error:
                raise self._place.damaged(f"no page header: {error}", self._position) from error
            self._reach = WIDE if length < WIDE // 4 else NARROW

    def _step(self, data: bytes, at: int) -> int:
        header = read_header(data, at)
        offset, length = self._position, header.length + header.compressed
        check_sizes(header, self._place, offset)
        if offset + length > self._end:
            raise self._place.damaged(f"page of {length} bytes runs beyond its chunk", offset)
        if header.kind == DICTIONARY:
            self._dictionary = (offset, length)
        elif header.is_data:
            self._unmappable = self._place.repeated and not header.is_v2
            self._values += max(header.values, 0)
            rows = header.rows if self._place.repeated else header.values
            if not self._unmappable:
                self._data_page(offset, length, rows, header.in_dictionary)
        self._position += length
        return length

    def _data_page(self, offset: int, length: int, rows: int, needs_dictionary: bool) -> None:
        self._empty += rows == 0
        if rows < 0 or self._rows + rows > self._place.rows or self._empty > EMPTY_PAGES:
            message = f"page of {rows} rows after {self._rows}, the row group has {self._place.rows}"
            raise self._place.damaged(message, offset)
        self._pages.append((offset, length, self._rows, needs_dictionary))
        self._rows += rows

    def result(self) -> PageMap | None:
        contradicted = self._place.repeated and (self._rows, self._values) != (
            self._place.rows,
            self._place.chunk.values,
        )
        if self._unmappable or contradicted:
            return None
        table = np.array(self._pages, dtype=np.int64).reshape(-1, 4)
        first_rows = np.append(table[:, 2], self._rows)
        return PageMap(
            self._dictionary, table[:, 0].copy(), table[:, 1].copy(), first_rows, table[:, 3].astype(np.bool_)
        )
