"""Selects the pages of a chunk that hold the rows of a fetch, and decodes only these rows."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gnomon.sources.contract import KeptPages
from gnomon.sources.errors import DamagedSource
from gnomon.sources.parquet.footer import ChunkPlace
from gnomon.sources.parquet.page_decode.dictionary_cache import DictionaryCache
from gnomon.sources.parquet.page_decode.leaf_rows import LeafRows, concatenate
from gnomon.sources.parquet.page_decode.page import DecompressedPage
from gnomon.sources.parquet.page_decode.plain_values import Dictionary, NeedsPyarrow
from gnomon.sources.parquet.page_decode.value_map import Content, PagePart, ValueMap
from gnomon.sources.parquet.page_decode.value_maps import ValueMaps
from gnomon.sources.parquet.page_header import check_page
from gnomon.sources.parquet.page_map import PageMap, Range
from gnomon.sources.parquet.schema import Column, Leaf

Rows = NDArray[np.int64]
MOST_OF_A_PAGE = 0.75  # a page is read whole where its wanted parts take a larger share of it


class PageCaches(NamedTuple):
    """What fetches from one file keep for later ones. `pages` is None where no pages are kept."""

    dictionaries: DictionaryCache
    maps: ValueMaps
    pages: KeptPages | None


class _Parts(NamedTuple):
    """The parts of a mapped page that hold wanted rows, with their content where it is cached, and a flag for each row:
    whether it has a value."""

    map: ValueMap
    flags: bytes
    parts: list[tuple[PagePart, Content | None]]


class _SelectedPage(NamedTuple):
    """A page with wanted rows: its number in the chunk, its place, its number of rows, and the wanted rows counted from
    its first. It is decompressed already where it is cached; else, where it is mapped, only parts of it are read."""

    number: int
    range: Range
    in_all: int
    rows: list[int]
    kept: DecompressedPage | None
    parts: _Parts | None

    def ranges(self) -> list[Range]:
        """The bytes to read."""
        if self.kept is not None:
            return []
        if self.parts is None:
            return [self.range]
        return [part.range for part, content in self.parts.parts if content is None]


class LeafRead:
    """The pages of one leaf's chunk that hold the wanted rows."""

    def __init__(
        self,
        place: ChunkPlace,
        leaf: Leaf,
        pages: PageMap,
        chosen: Sequence[tuple[int, list[int]]],
        caches: PageCaches,
    ) -> None:
        """`chosen`: each page, and its wanted rows, counted from its first. `ranges` are the bytes to read: without the
        pages and the dictionary that are cached."""
        self._place = place
        self._leaf = leaf
        self._caches = caches
        self._key = (place.row_group, leaf.ordinal)
        self._pages = [self._select(pages, number, rows) for number, rows in chosen]
        self.ranges: list[Range] = [span for page in self._pages for span in page.ranges()]
        self._dictionary: Dictionary | None = None
        needed = pages.needs_dictionary
        self._reads_dictionary = False
        if pages.dictionary is not None and (needed is None or any(needed[page] for page, _ in chosen)):
            self._dictionary = caches.dictionaries.get(self._key)
            if self._dictionary is None and not all(page.parts for page in self._pages):
                self._reads_dictionary = True
                self.ranges.insert(0, pages.dictionary)

    def _select(self, pages: PageMap, number: int, rows: list[int]) -> _SelectedPage:
        span = (int(pages.offsets[number]), int(pages.lengths[number]))
        in_all = int(pages.first_rows[number + 1] - pages.first_rows[number])
        kept = self._caches.pages.get((self._leaf.ordinal, span)) if self._caches.pages else None
        parts = None if kept is not None else self._parts_of(number, span, rows)
        return _SelectedPage(number, span, in_all, rows, kept, parts)

    def _parts_of(self, number: int, span: Range, rows: list[int]) -> _Parts | None:
        """The parts of a page to read instead of it; None where it has no map, or they are most of it."""
        found = self._caches.maps.get((*self._key, number))
        if found is None:
            return None
        flags, values = found.wanted(rows)
        if not found.has(values):
            return None
        parts = found.parts(span[0], values)
        if MOST_OF_A_PAGE * span[1] < sum(part.range[1] for part in parts):
            return None
        pages, leaf = self._caches.pages, self._leaf.ordinal
        return _Parts(found, flags, [(part, pages.get((leaf, part.range)) if pages else None) for part in parts])

    def rows(self, parts: Sequence[bytes]) -> LeafRows:
        """The rows, from the bytes of `ranges`. NeedsPyarrow where pyarrow has to decode whole pages."""
        read = iter(parts)
        if self._reads_dictionary:
            self._dictionary = self._read_dictionary(next(read))
        return concatenate([self._rows_of(page, read) for page in self._pages])

    def _rows_of(self, page: _SelectedPage, read: Iterator[bytes]) -> LeafRows:
        if page.kept is not None:
            return self._rows_of_kept_page(page.kept, page.rows)
        if page.parts is not None:
            return self._rows_of_parts(page, page.parts, read)
        return self._rows_of_read_page(next(read), page)

    def _rows_of_parts(self, page: _SelectedPage, wanted: _Parts, read: Iterator[bytes]) -> LeafRows:
        values = []
        for part, known in wanted.parts:
            content = known
            if content is None:
                content = wanted.map.unpacked(part, next(read))
                if self._caches.pages is not None:
                    self._caches.pages.put((self._leaf.ordinal, part.range), content)
            values.append(wanted.map.plain(content.data, part.begin, part.values))
        return LeafRows(len(page.rows), b"", wanted.flags, b"".join(values))

    def _read_dictionary(self, part: bytes) -> Dictionary:
        offset = self.ranges[0][0]
        header = check_page(part, self._place, offset, None)
        made = Dictionary(part, header, self._place, offset, self._leaf)
        self._caches.dictionaries.put(self._key, made)
        return made

    def _rows_of_read_page(self, part: bytes, wanted: _SelectedPage) -> LeafRows:
        offset = wanted.range[0]
        header = check_page(part, self._place, offset, wanted.in_all)
        page = DecompressedPage(part, header, self._place, offset, self._leaf, wanted.in_all)
        found = page.rows(wanted.rows, self._dictionary)
        if self._caches.pages is not None:
            self._caches.pages.put((self._leaf.ordinal, wanted.range), page)
        if page.map is not None and page.map.saves_reads:
            self._caches.maps.learn((*self._key, wanted.number), page.map)
        return found

    def _rows_of_kept_page(self, page: DecompressedPage, rows: list[int]) -> LeafRows:
        """Rows of a cached page. If it is damaged, the page is read again, which reports the damage."""
        try:
            return page.rows(rows, self._dictionary)
        except DamagedSource as error:
            raise NeedsPyarrow from error


class RowRead:
    """The wanted rows of a column in one row group, few in each page."""

    def __init__(
        self, column: int, of: Column, places: Sequence[ChunkPlace], leaves: Sequence[LeafRead], wanted: Rows
    ) -> None:
        """`column` is the position in the list of requested columns, `wanted` are rows of the row group."""
        self.column = column
        self.of = of
        self.places = places
        self.wanted = wanted
        self._leaves = leaves
        self.ranges: list[Range] = [span for leaf in leaves for span in leaf.ranges]

    def leaf_rows(self, parts: Sequence[bytes]) -> list[LeafRows]:
        """The rows of each leaf, from the bytes of `ranges`."""
        found, at = [], 0
        for leaf in self._leaves:
            found.append(leaf.rows(parts[at : at + len(leaf.ranges)]))
            at += len(leaf.ranges)
        return found
