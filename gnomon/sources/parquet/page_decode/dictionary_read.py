"""The entries of a chunk's dictionary that a fetch needs: from memory, from parts of the page, or from all of it."""

from collections.abc import Iterator, Sequence

from gnomon.sources.parquet.footer import ChunkPlace
from gnomon.sources.parquet.page_decode.dictionary import Dictionary
from gnomon.sources.parquet.page_decode.part_reads import PageCaches, PartReads
from gnomon.sources.parquet.page_decode.plain_values import NeedsPyarrow
from gnomon.sources.parquet.page_decode.value_map import ValueMap
from gnomon.sources.parquet.page_header import check_page
from gnomon.sources.parquet.page_map import Range
from gnomon.sources.parquet.schema import Leaf

KEPT_WHOLE = 256 << 10  # unpacked bytes of a dictionary that is kept whole although it has a map


class DictionaryRead:
    """The dictionary of a chunk in one fetch."""

    def __init__(self, place: ChunkPlace, leaf: Leaf, span: Range, caches: PageCaches) -> None:
        """`span`: the place of the dictionary page."""
        self._place = place
        self._leaf = leaf
        self._span = span
        self._caches = caches
        self._key = (place.row_group, leaf.ordinal)
        self._whole: Dictionary | None = caches.dictionaries.get(self._key)
        if self._whole is None and caches.pages is not None:
            self._whole = caches.pages.get((leaf.ordinal, span))
        self._map: ValueMap | None = None
        if self._whole is None:
            found = caches.maps.get((*self._key, *self._span))
            self._map = found if isinstance(found, ValueMap) and found.suits(leaf, is_dictionary=True) else None
        self._reads_all = False
        self._parts: PartReads | None = None
        self._values: dict[int, bytes | memoryview] = {}

    @property
    def in_parts(self) -> bool:
        """Whether single entries can be read: the dictionary is not in memory, but has a map."""
        return self._map is not None

    @property
    def count(self) -> int:
        """The number of entries. NeedsPyarrow before `read`, unless it is known from memory or from the map."""
        known = self._whole or self._map
        if known is None:
            raise NeedsPyarrow
        return known.count

    def all(self) -> list[Range]:
        """The bytes to read if any entry may be needed."""
        self._map = None
        self._reads_all = self._whole is None
        return [self._span] if self._reads_all else []

    def select(self, indices: Sequence[int]) -> list[Range]:
        """The bytes to read for these entries, each less than `count`."""
        if self._map is None:
            return self.all()
        parts = PartReads(self._map, self._span, sorted(set(indices)), self._leaf.ordinal, self._caches.pages)
        if not parts.pays:
            return self.all()
        self._parts = parts
        return parts.ranges

    def read(self, read: Iterator[bytes]) -> None:
        """Take the bytes of the selected ranges."""
        if self._parts is not None and self._map is not None:
            for part, content in self._parts.contents(read):
                found = self._map.plain(content, part.begin, part.values)
                self._values.update(zip(part.values, found, strict=True))
        elif self._reads_all:
            self._whole = self._made(next(read))

    def _made(self, page: bytes) -> Dictionary:
        """The dictionary of a page that was read whole. A large one with a map is kept among the pages, where it evicts
        no metadata: single entries of it can be read again."""
        header = check_page(page, self._place, self._span[0], None)
        made = Dictionary(page, header, self._place, self._span[0], self._leaf)
        found = made.value_map()
        if found is not None and found.saves_reads:
            self._caches.maps.learn((*self._key, *self._span), found)
            if header.uncompressed > KEPT_WHOLE:
                if self._caches.pages is not None:
                    self._caches.pages.put((self._leaf.ordinal, self._span), made)
                return made
        self._caches.dictionaries.put(self._key, made)
        return made

    def at(self, indices: Sequence[int]) -> bytes:
        """The values of these entries, concatenated. They were selected and read."""
        if self._whole is not None:
            return self._whole.at(indices)
        if self._parts is None:
            raise NeedsPyarrow
        return b"".join([self._values[index] for index in indices])
