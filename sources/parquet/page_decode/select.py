"""The few rows wanted of a column, taken out of their pages without decoding the rest: what most fetches are."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sources.contract import KeptPages
from sources.errors import DamagedSource
from sources.parquet.footer import ChunkPlace
from sources.parquet.page_decode.dictionary_cache import Dictionaries
from sources.parquet.page_decode.leaf_rows import LeafRows, joined
from sources.parquet.page_decode.page import UnpackedPage
from sources.parquet.page_decode.plain_values import Dictionary, Unpickable
from sources.parquet.page_header import check_page
from sources.parquet.page_map import PageMap, Range
from sources.parquet.schema import Column, Leaf

Rows = NDArray[np.int64]


class _Wanted(NamedTuple):
    """A page: where it lies, how many rows it has, those wanted counted from its first; itself, where it was kept."""

    range: Range
    in_all: int
    rows: list[int]
    kept: UnpackedPage | None


class LeafPick:
    """The pages of one leaf's chunk that hold the rows wanted."""

    def __init__(
        self,
        place: ChunkPlace,
        leaf: Leaf,
        pages: PageMap,
        chosen: Sequence[tuple[int, list[int]]],
        dictionaries: Dictionaries,
        kept: KeptPages | None,
    ) -> None:
        """`chosen`: each page, and its rows that are wanted, counted from its first. `ranges` is what is to be read:
        neither pages nor a dictionary that are kept."""
        self._place = place
        self._leaf = leaf
        self._dictionaries = dictionaries
        self._kept = kept
        self._key = (place.row_group, leaf.ordinal)
        self._pages = []
        for page, rows in chosen:
            span = (int(pages.offsets[page]), int(pages.lengths[page]))
            in_all = int(pages.first_rows[page + 1] - pages.first_rows[page])
            self._pages.append(_Wanted(span, in_all, rows, kept.get((leaf.ordinal, span)) if kept else None))
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
        """The rows, from the bytes of `ranges`. `Unpickable` where pyarrow has to decode whole pages."""
        read = iter(parts)
        if self._reads_dictionary:
            self._dictionary = self._read_dictionary(next(read))
        return joined(
            [
                self._of_read(next(read), page) if page.kept is None else self._of_kept(page.kept, page.rows)
                for page in self._pages
            ]
        )

    def _read_dictionary(self, part: bytes) -> Dictionary:
        offset = self.ranges[0][0]
        header = check_page(part, self._place, offset, None)
        made = Dictionary(part, header, self._place, offset, self._leaf)
        self._dictionaries.put(self._key, made)
        return made

    def _of_read(self, part: bytes, wanted: _Wanted) -> LeafRows:
        offset = wanted.range[0]
        header = check_page(part, self._place, offset, wanted.in_all)
        page = UnpackedPage(part, header, self._place, offset, self._leaf, wanted.in_all)
        found = page.rows(wanted.rows, self._dictionary)
        if self._kept is not None:
            self._kept.put((self._leaf.ordinal, wanted.range), page)
        return found

    def _of_kept(self, page: UnpackedPage, rows: list[int]) -> LeafRows:
        """What is wrong with a page that was kept is for a new reading of it to say."""
        try:
            return page.rows(rows, self._dictionary)
        except DamagedSource as error:
            raise Unpickable from error


class PickRead:
    """A column's share of one row group, of which few rows are wanted."""

    def __init__(
        self, column: int, of: Column, places: Sequence[ChunkPlace], leaves: Sequence[LeafPick], wanted: Rows
    ) -> None:
        """`column` is the place in the list of columns asked for, `wanted` are rows of the row group."""
        self.column = column
        self.of = of
        self.places = places
        self.wanted = wanted
        self._leaves = leaves
        self.ranges: list[Range] = [span for leaf in leaves for span in leaf.ranges]

    def pick(self, parts: Sequence[bytes]) -> list[LeafRows]:
        """The rows of each leaf, from the bytes of `ranges`."""
        found, at = [], 0
        for leaf in self._leaves:
            found.append(leaf.rows(parts[at : at + len(leaf.ranges)]))
            at += len(leaf.ranges)
        return found
