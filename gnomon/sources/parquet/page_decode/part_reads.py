"""Reads of parts of a page, and what fetches from one file keep for later ones."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gnomon.sources.contract import KeptPages
from gnomon.sources.parquet.page_decode.dictionary_cache import DictionaryCache
from gnomon.sources.parquet.page_decode.pieces import Content, PagePart
from gnomon.sources.parquet.page_decode.value_map import IndexMap, MappedPage
from gnomon.sources.parquet.page_decode.value_maps import ValueMaps
from gnomon.sources.parquet.page_map import Range

MOST_OF_A_PAGE = 0.75  # a page is read whole where its wanted parts take a larger share of it


class PageCaches(NamedTuple):
    """What fetches from one file keep for later ones: dictionaries, maps of pages, and unpacked pages with their parts
    (None where the index keeps no pages)."""

    dictionaries: DictionaryCache
    maps: ValueMaps
    pages: KeptPages | None


class PartReads:
    """The parts of one mapped page that hold wanted values. Parts that are in the cache are not read."""

    def __init__(self, map: MappedPage, span: Range, values: Sequence[int], leaf: int, pages: KeptPages | None) -> None:
        """`span`: the place of the page. `values` ascend, and the page has them."""
        self._map = map
        self._leaf = leaf
        self._pages = pages
        parts = map.parts(span[0], values)
        wanted = sum(part.range[1] for part in parts)
        self.pays = isinstance(map, IndexMap) or wanted <= MOST_OF_A_PAGE * span[1]
        self._parts = [(part, pages.get((leaf, part.range)) if pages else None) for part in parts]
        self.ranges: list[Range] = [part.range for part, content in self._parts if content is None]

    def contents(self, read: Iterator[bytes]) -> Iterator[tuple[PagePart, bytes | memoryview]]:
        """Each part with its content; `read` has the bytes of `ranges`. NeedsPyarrow where a part is damaged."""
        for part, known in self._parts:
            content: Content | None = known
            if content is None:
                pieces = self._map.pieces
                assert pieces is not None
                if self._pages is None:
                    content = pieces.unpacked(part, next(read))
                else:  # other fetches may want values behind the ones of this fetch
                    content = pieces.unpacked(pieces.entire(part), next(read))
                    self._pages.put((self._leaf, part.range), content)
            yield part, content.data
