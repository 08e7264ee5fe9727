"""Single rows of flat columns as Python values, where memory says which bytes of the file hold them: the page is kept,
or it has a value map. No numpy or Arrow object is made for a value, and only the parts of pages that hold wanted values
are read. `row_reads` reads all other rows."""

from array import array
from bisect import bisect_right
from collections.abc import Callable, Sequence
from struct import Struct
from struct import error as WrongLength
from typing import Any, NamedTuple

import pyarrow as pa

from gnomon.base.errors import check_memory
from gnomon.base.readers import RangeReader
from gnomon.sources.errors import DamagedSource
from gnomon.sources.parquet.dictionary import MOST_OF_A_PAGE, DictionaryRead, PageCaches
from gnomon.sources.parquet.footer import BINARY, BOOLEAN, ChunkPlace, Column, Leaf
from gnomon.sources.parquet.page import DecompressedPage
from gnomon.sources.parquet.page_map import PageMap, PageShare, Range
from gnomon.sources.parquet.page_values import LENGTH_BYTES, NeedsPyarrow
from gnomon.sources.parquet.value_map import Content, IndexMap, MappedPage, PagePart, ValueMap

Values = Sequence[Sequence[Any]]  # of each column
Convert = Callable[[bytes | memoryview], Any]
# After one of these, `row_reads` reads the row, and reports what is wrong.
DOUBTS = (NeedsPyarrow, DamagedSource, ValueError, IndexError, WrongLength, pa.ArrowException, OSError)
NULL = object()

INT32, INT64, FLOAT, DOUBLE = 1, 2, 4, 5  # physical types (Type in parquet.thrift)


def _numbers(form: str) -> Convert:
    unpack = Struct(form).unpack
    return lambda data: unpack(data)[0]


def _bytes(data: bytes | memoryview) -> bytes:
    """A byte array, which has its length before it."""
    if int.from_bytes(data[:LENGTH_BYTES], "little") != len(data) - LENGTH_BYTES:
        raise NeedsPyarrow
    return bytes(data[LENGTH_BYTES:])


def _text(data: bytes | memoryview) -> str | bytes:
    """Text; bytes where it is not UTF-8, which some writers allow."""
    found = _bytes(data)
    try:
        return found.decode()
    except UnicodeDecodeError:
        return found


# The Python value of bytes in the PLAIN encoding, by physical type and Arrow type: a number, or the ticks of a moment.
FORMS: dict[tuple[int, int], Convert] = {
    (INT32, pa.int32().id): _numbers("<i"),
    (INT32, pa.date32().id): _numbers("<i"),
    (INT64, pa.int64().id): _numbers("<q"),
    (INT64, pa.timestamp("us").id): _numbers("<q"),
    (FLOAT, pa.float32().id): _numbers("<f"),
    (DOUBLE, pa.float64().id): _numbers("<d"),
    (BINARY, pa.string().id): _text,
    (BINARY, pa.binary().id): _bytes,
    (BOOLEAN, pa.bool_().id): lambda data: data[0] != 0,
}


class _Place(NamedTuple):
    """A part of a page that has to be read for a value."""

    map: MappedPage
    value: int
    part: PagePart


class _Entry(NamedTuple):
    """A dictionary entry that has to be read for a value."""

    dictionary: DictionaryRead
    number: int
    ranges: list[Range]


class ChunkRows:
    """The rows of a flat column in one row group. Safe to share between threads.

    A value is found in up to three steps: from memory, from a part of its page, from a part of the dictionary. Errors
    are those in DOUBTS."""

    def __init__(self, place: ChunkPlace, leaf: Leaf, pages: PageMap, caches: PageCaches, convert: Convert) -> None:
        self._place = place
        self._leaf = leaf
        self._key = (place.row_group, leaf.ordinal)
        self._caches = caches
        self._convert = convert
        self._firsts = array("q", pages.first_rows.tobytes())
        self._offsets = array("q", pages.offsets.tobytes())
        self._lengths = array("q", pages.lengths.tobytes())
        self._dictionary = pages.dictionary
        self._maps: dict[int, MappedPage] = {}

    @property
    def cache_bytes(self) -> int:
        return 1000 + 24 * len(self._offsets)

    def find(self, row: int) -> Any:
        """The value of a row, NULL, or what has to be read for it."""
        page = bisect_right(self._firsts, row) - 1
        row -= self._firsts[page]
        span = (self._offsets[page], self._lengths[page])
        kept: DecompressedPage | None = None
        if self._caches.pages is not None:
            kept = self._caches.pages.get((self._leaf.ordinal, span))
        if kept is not None:
            return self._in_page(kept, row)
        map = self._maps.get(page) or self._map(page, span)
        flags, values = map.wanted([row])
        if flags == b"\0":
            return NULL
        if not map.has(values):
            raise NeedsPyarrow
        if isinstance(map, IndexMap) and map.kept is not None:
            return self._entry(lambda limit: map.kept_indices(values, limit))
        [part] = map.parts(span[0], values)
        if isinstance(map, ValueMap) and part.range[1] > MOST_OF_A_PAGE * span[1]:
            raise NeedsPyarrow  # the whole page is read
        content: Content | None = None
        if self._caches.pages is not None:
            content = self._caches.pages.get((self._leaf.ordinal, part.range))
        found = _Place(map, values[0], part)
        return found if content is None else self._in_content(found, content)

    def _map(self, page: int, span: Range) -> MappedPage:
        found = self._caches.maps.get((*self._key, *span))
        if found is None or not found.suits(self._leaf):
            raise NeedsPyarrow
        self._maps[page] = found
        return found

    def _in_page(self, page: DecompressedPage, row: int) -> Any:
        share = PageShare(0, [row], False)
        if not page.needs_dictionary:
            rows = page.rows(share)
            return NULL if rows.definitions == b"\0" else self._convert(rows.values)

        def indices(limit: int) -> list[int]:
            return page.indices(share, limit)[1]

        return self._entry(indices)

    def in_part(self, found: _Place, data: bytes) -> Any:
        """The value from the bytes of its part; or an entry that has to be read."""
        pieces, part = found.map.pieces, found.part
        assert pieces is not None
        if self._caches.pages is None:
            content = pieces.unpacked(part, data)
        else:  # other fetches may want values behind this one
            content = pieces.unpacked(pieces.entire(part), data)
            self._caches.pages.put((self._leaf.ordinal, part.range), content)
        return self._in_content(found, content)

    def _in_content(self, found: _Place, content: Content) -> Any:
        map, value, part = found
        if isinstance(map, ValueMap):
            return self._convert(map.plain(content.data, part.begin, [value])[0])
        assert isinstance(map, IndexMap)
        return self._entry(lambda limit: map.indices(content.data, part.begin, [value], limit))

    def _entry(self, indices: Callable[[int], list[int]]) -> Any:
        """The value of the dictionary entry with this index, NULL where there is none, or what has to be read."""
        if self._dictionary is None:
            raise NeedsPyarrow
        whole = self._caches.dictionaries.get(self._key)
        if whole is None and self._caches.pages is not None:
            whole = self._caches.pages.get((self._leaf.ordinal, self._dictionary))
        if whole is not None:
            found = indices(whole.count)
            return self._convert(whole.entry(found[0])) if found else NULL
        dictionary = DictionaryRead(self._place, self._leaf, self._dictionary, self._caches)
        found = indices(dictionary.count)
        if not found:
            return NULL
        ranges = dictionary.select(found)
        if ranges:
            return _Entry(dictionary, found[0], ranges)
        dictionary.read(iter(()))
        return self._convert(dictionary.at(found))

    def in_dictionary(self, found: _Entry, parts: Sequence[bytes]) -> Any:
        """The value, from the bytes of the parts of the dictionary."""
        found.dictionary.read(iter(parts))
        return self._convert(found.dictionary.at([found.number]))


def convert_of(column: Column, kind: pa.DataType) -> Convert | None:
    """How values of a flat column become Python values; None where they do not."""
    return FORMS.get((column.leaves[0].kind, kind.id)) if column.flat else None


def known_values(reader: RangeReader, wanted: Sequence[tuple[ChunkRows, int]]) -> list[Any] | None:
    """The value of each row of a chunk. None where one of them has to be read in another way; all bytes that this one
    reads come in one round for pages, and one for dictionaries."""
    try:
        found = [chunk.find(row) for chunk, row in wanted]
    except DOUBTS as error:
        check_memory(error)
        return None
    places = [i for i, one in enumerate(found) if type(one) is _Place]
    if places and not _take(reader, wanted, found, places, [[found[i].part.range] for i in places]):
        return None
    entries = [i for i, one in enumerate(found) if type(one) is _Entry]
    if entries and not _take(reader, wanted, found, entries, [found[i].ranges for i in entries]):
        return None
    return [None if one is NULL else one for one in found]


def _take(
    reader: RangeReader,
    wanted: Sequence[tuple[ChunkRows, int]],
    found: list[Any],
    which: Sequence[int],
    ranges: Sequence[list[Range]],
) -> bool:
    """Read some ranges for each of some values, and put what they give into `found`. False for a doubt."""
    spans = list(dict.fromkeys(span for some in ranges for span in some))
    read = dict(zip(spans, reader.read_ranges(spans), strict=True))
    try:
        for i, some in zip(which, ranges, strict=True):
            chunk, one = wanted[i][0], found[i]
            if type(one) is _Place:
                found[i] = chunk.in_part(one, read[some[0]])
            else:
                found[i] = chunk.in_dictionary(one, [read[span] for span in some])
    except DOUBTS as error:
        check_memory(error)
        return False
    return True
