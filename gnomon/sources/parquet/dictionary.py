"""The dictionary page of a chunk, and what fetches from one file keep for later ones: dictionaries, maps of pages, and
pages.

The entries that a fetch needs come from memory, from parts of the page, or from all of it. All pages of a chunk share
its dictionary. One limit of bytes holds for the dictionaries of all files together, so that they do not evict footers
and page maps, which cost more to read, from other caches.
"""

import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import ClassVar, NamedTuple, Protocol

from gnomon.base import kernel
from gnomon.sources.contract import KeptPages
from gnomon.sources.errors import DamagedSource
from gnomon.sources.parquet.footer import BINARY, ChunkPlace, Leaf
from gnomon.sources.parquet.page_header import PageHeader, check_page
from gnomon.sources.parquet.page_map import Range
from gnomon.sources.parquet.page_values import (
    LENGTH_BYTES,
    ByteArrayValues,
    FixedWidthValues,
    NeedsPyarrow,
    decoding,
    decompress_page,
)
from gnomon.sources.parquet.value_map import Content, IndexMap, MappedPage, PagePart, ValueMap, pieces_of

MAPS_LIMIT = 4 << 20  # bytes, for the maps of a file
DICTIONARIES_LIMIT = 32 << 20  # bytes, for the dictionaries of all files
MOST_IN_PARTS = 16  # wanted values of a page; to find and unpack the parts of more takes longer than to unpack the page
MOST_OF_A_PAGE = 0.75  # a page is read whole where its wanted parts take a larger share of it
KEPT_WHOLE = 256 << 10  # unpacked bytes of a dictionary that is kept whole although it has a map

Key = tuple[int, int]  # row group, leaf
PageKey = tuple[int, int, int, int]  # row group, leaf, offset and length of the page


class Recorded(Protocol):
    """The recorded maps of the pages of a file."""

    def get(self, key: PageKey) -> MappedPage | None:
        """The map of a page; None where there is none."""


class ValueMaps:
    """Maps by page, as many as `MAPS_LIMIT` allows. Safe to share between threads: maps are added, never changed."""

    def __init__(self, recorded: Recorded | None = None) -> None:
        """`recorded`: maps that the index has. They are made again where the limit leaves no room to keep them."""
        self.cache_bytes = 0
        self._recorded = recorded
        self._learned: dict[PageKey, MappedPage] = {}
        self._restored: dict[PageKey, MappedPage] = {}
        self._lock = threading.Lock()

    @property
    def count(self) -> int:
        """The number of maps that were learned."""
        return len(self._learned)

    def learned(self) -> dict[PageKey, MappedPage]:
        """The maps that were learned until now."""
        with self._lock:
            return dict(self._learned)

    def get(self, key: PageKey) -> MappedPage | None:
        found = self._restored.get(key) or self._learned.get(key)
        if found is None and self._recorded is not None:
            found = self._recorded.get(key)
            if found is not None:
                self._keep(self._restored, key, found)
        return found

    def learn(self, key: PageKey, made: MappedPage) -> None:
        """Keep the map of a page that was read whole, while there is room."""
        if self._recorded is None or self._recorded.get(key) is None:
            self._keep(self._learned, key, made)

    def _keep(self, maps: dict[PageKey, MappedPage], key: PageKey, made: MappedPage) -> None:
        with self._lock:
            if key not in maps and self.cache_bytes < MAPS_LIMIT:
                maps[key] = made
                self.cache_bytes += made.cache_bytes


class Dictionary:
    """A dictionary page that was read whole. `map` is the map of the page; None where it has none. Entry i is value i.
    Safe to share between threads."""

    def __init__(self, page: bytes, header: PageHeader, place: ChunkPlace, offset: int, leaf: Leaf) -> None:
        """`header` is the page's, already checked. Damage is reported where a value is used."""
        self.cache_bytes = 1000 + len(page) + header.uncompressed + LENGTH_BYTES * max(header.values, 0)
        self.count = max(header.values, 0)
        self.map: ValueMap | None = None
        self._page = page, header
        self._place = place
        self._offset = offset
        self._leaf = leaf
        self._values: FixedWidthValues | ByteArrayValues | None = None
        with suppress(NeedsPyarrow, DamagedSource), decoding(place, offset):
            self._values = self._unpacked()
            self._page = b"", header

    def at(self, indices: Sequence[int]) -> bytes:
        """The values with these indices, concatenated. Each index is less than `count`."""
        with decoding(self._place, self._offset):
            return (self._values or self._unpacked()).at(indices)

    def entry(self, index: int) -> bytes:
        """As `at`, of one value, without its errors: the caller looks again."""
        if self._values is None:
            raise NeedsPyarrow
        return self._values.at((index,))

    def _unpacked(self) -> FixedWidthValues | ByteArrayValues:
        """The values of the page. Makes its map, too."""
        page, header = self._page
        unpacked = decompress_page(page, header, self._place, self._offset)[1]
        content, width, marks = unpacked.content, self._leaf.width, None
        values: FixedWidthValues | ByteArrayValues
        if self._leaf.kind == BINARY:
            values, width = ByteArrayValues(content, self.count), 0
            marks = kernel.byte_array_marks(content, 0, self.count) if kernel.COMPILED else None
        elif width:
            values = FixedWidthValues(content, width)
            marks = b"" if kernel.COMPILED and self.count * width <= len(content) else None
        else:
            raise NeedsPyarrow
        if marks is not None:
            pieces = pieces_of(page, unpacked.body, len(content), unpacked.starts)
            self.map = ValueMap(pieces, None, self.count, 0, len(content), width, marks)
        return values


class DictionaryCache:
    """The dictionaries of one file. All files together hold at most DICTIONARIES_LIMIT bytes: the ones that were used
    last. `cache_bytes`: bytes of those that the file holds now. Safe to share between threads."""

    _all: ClassVar["OrderedDict[tuple[DictionaryCache, Key], Dictionary]"] = OrderedDict()
    _total: ClassVar[int] = 0  # bytes of all files
    _lock = threading.Lock()

    def __init__(self) -> None:
        self.cache_bytes = 0

    def get(self, key: Key) -> Dictionary | None:
        with self._lock:
            found = self._all.get((self, key))
            if found is not None:
                self._all.move_to_end((self, key))
            return found

    def put(self, key: Key, made: Dictionary) -> None:
        """Cache a dictionary, unless it takes more than a quarter of the limit."""
        if made.cache_bytes > DICTIONARIES_LIMIT // 4:
            return
        with self._lock:
            if (self, key) in self._all:
                return
            self._all[self, key] = made
            self._count(made.cache_bytes)
            while DictionaryCache._total > DICTIONARIES_LIMIT:
                (owner, _), dropped = self._all.popitem(last=False)
                owner._count(-dropped.cache_bytes)

    def _count(self, size: int) -> None:
        DictionaryCache._total += size
        self.cache_bytes += size


class PageCaches(NamedTuple):
    """The parts of a file that its fetches keep for later ones: dictionaries, maps of pages, and unpacked pages with
    their parts (None where the index keeps no pages)."""

    dictionaries: DictionaryCache
    maps: ValueMaps
    pages: KeptPages | None


class PartReads:
    """The parts of one mapped page that hold wanted values. Parts that are in the cache are not read."""

    def __init__(self, map: MappedPage, span: Range, values: Sequence[int], leaf: int, pages: KeptPages | None) -> None:
        """`span`: the place of the page. `values` ascend, and the page has them."""
        self.map = map
        self.values = values
        self._leaf = leaf
        self._pages = pages
        is_few = len(values) <= MOST_IN_PARTS
        parts = map.parts(span[0], values) if is_few else []
        wanted = sum(part.range[1] for part in parts)
        is_index = isinstance(map, IndexMap)
        is_kept = is_index and map.pieces is None
        self.pays = is_kept or (is_few and (is_index or wanted <= MOST_OF_A_PAGE * span[1]))
        self._parts = [(part, pages.get((leaf, part.range)) if pages else None) for part in parts]
        self.ranges: list[Range] = [part.range for part, content in self._parts if content is None]

    def contents(self, read: Iterator[bytes]) -> Iterator[tuple[PagePart, bytes | memoryview]]:
        """Each part with its content; `read` has the bytes of `ranges`. NeedsPyarrow where a part is damaged."""
        for part, known in self._parts:
            content: Content | None = known
            if content is None:
                pieces = self.map.pieces
                assert pieces is not None
                if self._pages is None:
                    content = pieces.unpacked(part, next(read))
                else:  # other fetches may want values behind the ones of this fetch
                    content = pieces.unpacked(pieces.entire(part), next(read))
                    self._pages.put((self._leaf, part.range), content)
            yield part, content.data


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
        if made.map is not None and made.map.saves_reads:
            self._caches.maps.learn((*self._key, *self._span), made.map)
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
