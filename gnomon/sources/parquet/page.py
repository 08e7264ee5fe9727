"""A decompressed data page. Single rows are decoded without the others. It can be cached for later fetches.

`make_maps` gives the value maps of all pages of a chunk, to be recorded. Each page is read and unpacked once.
"""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager

import numpy as np
from numpy.typing import NDArray

from gnomon.base import kernel
from gnomon.base.kernel import FRAGMENT
from gnomon.base.readers import RangeReader
from gnomon.sources.errors import DamagedSource, UnsupportedFormat
from gnomon.sources.parquet.dictionary import Dictionary
from gnomon.sources.parquet.footer import CODECS, ChunkPlace, Leaf
from gnomon.sources.parquet.page_header import PLAIN, RLE, PageHeader, check_page
from gnomon.sources.parquet.page_map import PageMap, PageShare, Range
from gnomon.sources.parquet.page_values import (
    LOOK_AHEAD,
    STREAMS_OF,
    BooleanBits,
    BooleanRuns,
    ByteArrayValues,
    DictionaryIndices,
    FixedWidthValues,
    LeafRows,
    NeedsPyarrow,
    Span,
    Unpacked,
    decoding,
    decompress_page,
    flags_at,
    level_section,
    page_values,
)
from gnomon.sources.parquet.synthetic_file import decode_hybrid
from gnomon.sources.parquet.thrift import ThriftError
from gnomon.sources.parquet.value_map import (
    INDEX_STEP,
    LONGEST_INDICES,
    LONGEST_LEVELS,
    AnyPieces,
    IndexMap,
    MappedPage,
    ValueMap,
    pieces_of,
    stream_pieces_of,
)
from gnomon.sources.pointers import in_rounds

OBJECT_BYTES = 1500  # memory that a page takes besides its bytes
NUMBER_BYTES = 4  # memory of one index, or of one position of a byte array

Levels = NDArray[np.int32]
TOGETHER = 8 << 20  # bytes of pages that are read at once; a larger page is read alone
READ_IN_PARTS = ("UNCOMPRESSED", "SNAPPY")  # codecs of pages, also of dictionaries, that have parts
KEPT_PAGE = 2 * (LONGEST_INDICES + LONGEST_LEVELS)  # bytes of a page whose indices a map may keep, with its header

Page = tuple[Range, int | None]  # place, and rows of a data page; None for the dictionary


class DecompressedPage:
    """A decompressed data page, safe to share between threads. Raises NeedsPyarrow where single rows cannot be decoded,
    and DamagedSource."""

    def __init__(self, page: bytes, header: PageHeader, place: ChunkPlace, offset: int, leaf: Leaf, count: int) -> None:
        """`header` is the page's, already checked; `count` is its number of rows; `offset` is its position, for
        errors."""
        self._header = header
        self._place = place
        self._offset = offset
        self._leaf = leaf
        self._count = count
        self._marks: bytes | None = None  # of byte arrays
        with self._decoding():
            levels, unpacked = decompress_page(
                page, header, place, offset, self._is_mappable and header.encoding == PLAIN
            )
            self._content = unpacked.content
            self._repetitions, self._definitions, body = self._sections(levels)
            self._values = page_values(body, header, leaf)
            if self._is_mappable and count and not self._is_whole(body):
                raise NeedsPyarrow
            self.map = self._map(page, unpacked, body)
        numbers = NUMBER_BYTES * header.values if isinstance(self._values, ByteArrayValues | DictionaryIndices) else 0
        mapped = self.map.cache_bytes if self.map is not None else 0
        self.cache_bytes = OBJECT_BYTES + header.uncompressed + numbers + mapped

    @property
    def _is_mappable(self) -> bool:
        """Whether the page may have a map."""
        return kernel.COMPILED and not self._leaf.repetitions and self._leaf.definitions <= 1

    def _is_whole(self, values: memoryview) -> bool:
        """Whether the levels and the values of a flat page end where they should. Picked rows of another page may be
        wrong; pyarrow, which decodes all of it, says what is damaged, or knows what its writer meant. ThriftError where
        pyarrow would not notice: for byte arrays, and for bytes after values of one width."""
        count = self._count
        if self._leaf.definitions:
            if not _ends_with(self._definitions, 0, 1, count):
                return False
            [(is_set, rank)] = flags_at(self._definitions, [count - 1])
            count = rank + is_set
        if isinstance(self._values, DictionaryIndices):
            return not count or (len(values) > 0 and (not values[0] or _ends_with(values, 1, values[0], count)))
        if isinstance(self._values, BooleanRuns):
            return not count or _ends_with(level_section(values)[0], 0, 1, count)
        if isinstance(self._values, BooleanBits):
            return count <= 8 * len(values)
        if isinstance(self._values, FixedWidthValues):
            if (size := count * self._leaf.width) < len(values):  # as after a level that became null
                raise ThriftError(f"{count} values take {size} bytes of a page of {len(values)} bytes")
            return size == len(values)
        self._marks = kernel.byte_array_marks(self._content, len(self._content) - len(values), count)
        if self._marks is None:  # pyarrow would not notice a wrong length of the last
            raise ThriftError(f"{count} byte arrays do not fill a page of {len(values)} bytes")
        return True

    @property
    def needs_dictionary(self) -> bool:
        """Whether the values of the page are indices into the dictionary of its chunk."""
        return isinstance(self._values, DictionaryIndices)

    def rows(self, share: PageShare) -> LeafRows:
        """The wanted rows. NeedsPyarrow for a page that needs a dictionary."""
        if isinstance(self.map, ValueMap):
            flags, values = self.map.wanted(share.rows)
            return LeafRows(len(share.rows), b"", flags, b"".join(self.map.plain(self._content, 0, values)))
        with self._decoding():
            entries, spans, end = self._entries(share)
            return entries._replace(values=self._plain(spans, end)) if spans else entries

    def indices(self, share: PageShare, limit: int) -> tuple[LeafRows, list[int]]:
        """The wanted rows without their values, and the indices of the values in the dictionary,
        each less than `limit`."""
        if not isinstance(self._values, DictionaryIndices):
            raise NeedsPyarrow
        with self._decoding():
            entries, spans, _ = self._entries(share)
            return entries, self._values.indices(spans, limit)

    def _plain(self, spans: list[Span], end: int) -> bytes:
        """The values of spans, the last of which ends with entry `end`."""
        if isinstance(self._values, DictionaryIndices):
            raise NeedsPyarrow
        if isinstance(self._values, ByteArrayValues):
            return self._values.plain(spans, (end + LOOK_AHEAD) / self._header.values)
        return self._values.plain(spans)

    def _entries(self, share: PageShare) -> tuple[LeafRows, list[Span], int]:
        """The rows without their values, the spans of their values, and where the last row ends among the entries."""
        nested = self._leaf.repetitions or self._leaf.definitions > 1
        return self._nested(share) if nested else (*self._flat(share.rows), share.rows[-1] + 1)

    def _decoding(self) -> AbstractContextManager[None]:
        return decoding(self._place, self._offset)

    def _map(self, page: bytes, unpacked: Unpacked, values: memoryview) -> ValueMap | IndexMap | None:
        """The map of the page, by which compiled loops find its values; None for other pages. `values`: the content of
        the page after its levels."""
        leaf, content, body, starts = self._leaf, unpacked.content, unpacked.body, unpacked.starts
        if not self._is_mappable or len(self._definitions) > LONGEST_LEVELS:
            return None
        levels, count, size = None, self._count, len(content)
        lead = size - len(values)
        if leaf.definitions:
            [(is_set, rank)] = flags_at(self._definitions, [count - 1])
            levels = b"" if rank + is_set == count else bytes(self._definitions)
            count = rank + is_set
        if isinstance(self._values, DictionaryIndices) and len(values):
            if len(values) <= LONGEST_INDICES:
                return IndexMap(None, levels, count, values[0], b"", bytes(values[1:]))
            unit = FRAGMENT if starts else INDEX_STEP
            marks = kernel.hybrid_marks(content, lead + 1, values[0], count, unit) if values[0] and body else None
            pieces = pieces_of(page, body, size, starts, INDEX_STEP)
            return IndexMap(pieces, levels, count, values[0], marks, None) if marks else None
        if isinstance(self._values, FixedWidthValues) and lead + count * leaf.width <= size:
            return ValueMap(_pieces_of(page, unpacked), levels, count, lead, size, leaf.width, b"")
        if isinstance(self._values, ByteArrayValues):
            marks = self._marks
            return ValueMap(_pieces_of(page, unpacked), levels, count, lead, size, 0, marks) if marks else None
        return None

    def _sections(self, levels: memoryview) -> tuple[memoryview, memoryview, memoryview]:
        """Repetition levels, definition levels, values."""
        header, body = self._header, self._content
        if header.is_v2:
            levels = memoryview(bytes(levels))  # a view of the page would keep the whole page in memory
            at = header.repetition_bytes
            return levels[:at], levels[at : at + header.definition_bytes], body
        sections = []
        for highest, encoding in (
            (self._leaf.repetitions, header.repetition_encoding),
            (self._leaf.definitions, header.definition_encoding),
        ):
            if not highest:
                section = body[:0]
            elif encoding == RLE:
                section, body = level_section(body)
            else:
                raise NeedsPyarrow
            sections.append(section)
        return sections[0], sections[1], body

    def _flat(self, rows: list[int]) -> tuple[LeafRows, list[Span]]:
        if not self._leaf.definitions:
            return LeafRows(len(rows), b"", b"", b""), [(row, row + 1) for row in rows]
        flags = flags_at(self._definitions, rows)
        spans = [(rank, rank + 1) for is_set, rank in flags if is_set]
        return LeafRows(len(rows), b"", bytes([is_set for is_set, _ in flags]), b""), spans

    def _nested(self, share: PageShare) -> tuple[LeafRows, list[Span], int]:
        """As `_entries`. Decodes all levels of the page: only levels show where a row begins. WrongPageMap where they
        contradict the page map. NeedsPyarrow where they do not prove which row is which: of writers whose pages begin
        within a row, some count this row to the page before, others to both."""
        leaf, wanted, entries = self._leaf, np.array(share.rows, np.int64), self._header.values
        repetitions = _levels(self._repetitions, leaf.repetitions, entries)
        definitions = _levels(self._definitions, leaf.definitions, entries)
        starts = np.append(np.flatnonzero(repetitions == 0), entries)
        if len(starts) != self._count + 1:
            what = f"page with {len(starts) - 1} rows where the page map says {self._count}"
            raise self._place.wrong_map(what, self._offset)
        if len(wanted) and starts[0] != 0:
            raise NeedsPyarrow
        ranks = np.concatenate(([0], np.cumsum(definitions == leaf.definitions)))
        bounds = list(zip(starts[wanted].tolist(), starts[wanted + 1].tolist(), strict=True))
        if share.goes_on:
            bounds.insert(0, (0, int(starts[0])))
        spans = [(int(ranks[begin]), int(ranks[end])) for begin, end in bounds]
        found = LeafRows(
            sum([end - begin for begin, end in bounds]),
            _of_rows(repetitions, bounds) if leaf.repetitions else b"",
            _of_rows(definitions, bounds) if leaf.definitions else b"",
            b"",
        )
        return found, [span for span in spans if span[0] < span[1]], bounds[-1][1]


def _ends_with(numbers: memoryview, begin: int, width: int, count: int) -> bool:
    """Whether a hybrid of `count` numbers, at least one, ends where the bytes end."""
    return kernel.hybrid_marks(numbers, begin, width, count, len(numbers) + 1) is not None


def _pieces_of(page: bytes, unpacked: Unpacked) -> AnyPieces | None:
    if unpacked.stream is not None and unpacked.body is not None:
        return stream_pieces_of(page, unpacked.body, *unpacked.stream)
    return pieces_of(page, unpacked.body, len(unpacked.content), unpacked.starts)


def _of_rows(levels: Levels, bounds: Sequence[Span]) -> bytes:
    return b"".join([levels[begin:end].astype(np.uint8).tobytes() for begin, end in bounds])


def _levels(section: memoryview, highest: int, count: int) -> Levels:
    if not highest:
        return np.zeros(count, np.int32)
    if highest > 255:
        raise NeedsPyarrow
    return decode_hybrid(section, highest.bit_length(), count, highest + 1)


def make_maps(reader: RangeReader, place: ChunkPlace, leaf: Leaf, pages: PageMap) -> Iterator[tuple[Range, MappedPage]]:
    """The places of the pages of a flat column's chunk that can have a value map, each with its map. A page that is
    damaged has none: the fetch that reads it reports the damage."""
    if not place.chunk.decodable:
        return
    for together in in_rounds(_candidates(place, pages), lambda page: page[0][1], TOGETHER):
        for (span, rows), page in zip(together, reader.read_ranges([span for span, _ in together]), strict=True):
            made = _map_of(page, place, span[0], leaf, rows)
            if made is not None and made.saves_reads:
                yield span, made


def _candidates(place: ChunkPlace, pages: PageMap) -> list[Page]:
    """The pages that may have a map. With codecs that unpack whole pages only, these are small pages of indices; with
    codecs of streams, no dictionaries."""
    spans = zip(pages.offsets.tolist(), pages.lengths.tolist(), strict=True)
    rows = (pages.first_rows[1:] - pages.first_rows[:-1]).tolist()
    found: list[Page] = [(span, count) for span, count in zip(spans, rows, strict=True) if count]
    if CODECS[place.chunk.codec] in STREAMS_OF:
        return found
    if CODECS[place.chunk.codec] in READ_IN_PARTS:
        return [(pages.dictionary, None), *found] if pages.dictionary else found
    return [page for page in found if page[0][1] <= KEPT_PAGE] if pages.dictionary else []


def _map_of(page: bytes, place: ChunkPlace, offset: int, leaf: Leaf, rows: int | None) -> MappedPage | None:
    try:
        header = check_page(page, place, offset, rows)
        if rows is None:
            return Dictionary(page, header, place, offset, leaf).map
        return DecompressedPage(page, header, place, offset, leaf, rows).map
    except (NeedsPyarrow, DamagedSource, UnsupportedFormat):
        return None
