"""Selects the pages of a chunk that hold the rows of a fetch, and decodes only these rows."""

from collections.abc import Sequence
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
from gnomon.sources.parquet.page_header import check_page
from gnomon.sources.parquet.page_map import PageMap, Range
from gnomon.sources.parquet.schema import Column, Leaf

Rows = NDArray[np.int64]


class _SelectedPage(NamedTuple):
    """A page with wanted rows: its place, its number of rows, the wanted rows counted from its first, and the
    decompressed page if cached."""

    range: Range
    in_all: int
    rows: list[int]
    kept: DecompressedPage | None


class LeafRead:
    """The pages of one leaf's chunk that hold the wanted rows."""

    def __init__(
        self,
        place: ChunkPlace,
        leaf: Leaf,
        pages: PageMap,
        chosen: Sequence[tuple[int, list[int]]],
        dictionaries: DictionaryCache,
        kept: KeptPages | None,
    ) -> None:
        """`chosen`: each page, and its wanted rows, counted from its first. `ranges` are the bytes to read: without the
        pages and the dictionary that are cached."""
        self._place = place
        self._leaf = leaf
        self._dictionaries = dictionaries
        self._kept = kept
        self._key = (place.row_group, leaf.ordinal)
        self._pages = []
        for page, rows in chosen:
            span = (int(pages.offsets[page]), int(pages.lengths[page]))
            in_all = int(pages.first_rows[page + 1] - pages.first_rows[page])
            self._pages.append(_SelectedPage(span, in_all, rows, kept.get((leaf.ordinal, span)) if kept else None))
        self.ranges: list[Range] = [page.range for page in self._pages if page.kept is None]
        self._dictionary: Dictionary | None = None
        needed = pages.needs_dictionary
        self._reads_dictionary = False
        if pages.dictionary is not None and (needed is None or any(needed[page] for page, _ in chosen)):
            self._dictionary = dictionaries.get(self._key)
            if self._dictionary is None:
                self._reads_dictionary = True
                self.ranges.insert(0, pages.dictionary)

    def rows(self, parts: Sequence[bytes]) -> LeafRows:
        """The rows, from the bytes of `ranges`. NeedsPyarrow where pyarrow has to decode whole pages."""
        read = iter(parts)
        if self._reads_dictionary:
            self._dictionary = self._read_dictionary(next(read))
        return concatenate(
            [
                self._rows_of_read_page(next(read), page)
                if page.kept is None
                else self._rows_of_kept_page(page.kept, page.rows)
                for page in self._pages
            ]
        )

    def _read_dictionary(self, part: bytes) -> Dictionary:
        offset = self.ranges[0][0]
        header = check_page(part, self._place, offset, None)
        made = Dictionary(part, header, self._place, offset, self._leaf)
        self._dictionaries.put(self._key, made)
        return made

    def _rows_of_read_page(self, part: bytes, wanted: _SelectedPage) -> LeafRows:
        offset = wanted.range[0]
        header = check_page(part, self._place, offset, wanted.in_all)
        page = DecompressedPage(part, header, self._place, offset, self._leaf, wanted.in_all)
        found = page.rows(wanted.rows, self._dictionary)
        if self._kept is not None:
            self._kept.put((self._leaf.ordinal, wanted.range), page)
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
