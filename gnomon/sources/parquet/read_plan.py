"""Plans the reads of a fetch: for each column and row group the rows, their pages, and how to decode them. Makes page
maps where there are none yet, and caches them.
"""

import threading
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from gnomon.base import kernel
from gnomon.base.readers import PrefetchedReader, RangeReader
from gnomon.sources.contract import KeptPages
from gnomon.sources.parquet.dictionary import DictionaryCache, PageCaches, PageKey, ValueMaps
from gnomon.sources.parquet.footer import (
    Chunk,
    ChunkPlace,
    Column,
    Footer,
    denies_compression,
    legacy_slack,
    packed_upwards,
)
from gnomon.sources.parquet.known_rows import ChunkRows, convert_of, known_values
from gnomon.sources.parquet.map_codec import DamagedMaps, RecordedMaps, RecordedValues, encode_maps, stored_bytes
from gnomon.sources.parquet.page import make_maps
from gnomon.sources.parquet.page_map import PageMap, map_pages
from gnomon.sources.parquet.row_reads import LeafRead, RowRead
from gnomon.sources.parquet.synthetic_file import ArrowTypes
from gnomon.sources.parquet.value_map import MappedPage, are_alike
from gnomon.sources.parquet.whole_reads import GroupRead, PageRead, Read, Rows, split_pages
from gnomon.sources.pointers import group_of_rows, in_rounds

TOGETHER = 16 << 20  # bytes requested, and held, at once in a fetch of many rows
PART = 4 << 20  # of these that a thread decodes
UNPACKED_TOGETHER = 8 << 20  # uncompressed bytes, as the footer counts them, of whole pages decoded at once
FEW = 8  # wanted rows of a page, up to which they are picked from it
# The share of wanted rows of pages up to which they are picked: beyond, pyarrow, which decodes all values, is faster.
SPARSE = 0.01 if kernel.COMPILED else 0.0
WHOLE_BYTES = 4000  # of a value, with which all rows are picked: pyarrow copies each value that it decodes
MAP_BYTES = 100  # memory of an entry for a chunk without a map
PLACE_BYTES = 400  # memory of a checked place
RECORDED_VALUES = 1 << 20  # bytes, before compression, of the value maps that are recorded for a file
EXPORTED_TOGETHER = 256  # chunks of columns whose page headers are walked in step: up to 64 KB of each at a time


class ReadPlanner:
    """The reads of one file, and its page maps. Safe to share between threads: page maps are added, never changed."""

    def __init__(
        self,
        footer: Footer,
        types: ArrowTypes,
        size: int,
        held: tuple[int, bytes] | None,
        recorded: RecordedMaps | None,
    ) -> None:
        """`held`: `(offset, bytes)` of the page index that came with the footer; None to use no page index. `recorded`:
        page maps made before."""
        self._footer = footer
        self._types = types
        self._size = size
        self._held = held
        self._recorded = recorded
        self._learned: RecordedMaps | None = None  # by fetches of an earlier process
        self._slack = legacy_slack(footer)
        self._compressed_throughout = denies_compression(footer)
        self._packed_upwards = packed_upwards(footer)
        self._group_begins = [group.first_row for group in footer.row_groups]
        self._first_rows = np.array(self._group_begins, dtype=np.int64)
        self._maps: dict[tuple[int, int], PageMap | None] = {}
        self._map_bytes = 0
        self._dropped = 0  # maps of the planner before, see `from_headers`
        self._places: dict[tuple[str, int, int], list[ChunkPlace]] = {}
        self._known: dict[tuple[int, int], ChunkRows | None] = {}  # of columns with a page map
        # pyarrow is faster than value maps with loops in Python
        values = recorded.values if recorded and kernel.COMPILED else None
        self._caches = PageCaches(DictionaryCache(), ValueMaps(values), None)
        self._lock = threading.Lock()

    @property
    def cache_bytes(self) -> int:
        recorded = sum(maps.cache_bytes for maps in (self._recorded, self._learned) if maps)
        learned = self._caches.dictionaries.cache_bytes + self._caches.maps.cache_bytes
        return self._map_bytes + (len(self._held[1]) if self._held else 0) + recorded + learned

    def from_headers(self) -> "ReadPlanner | None":
        """A planner of the same file that uses page headers alone, after a page contradicted its map; None if this one
        does. It has no maps of repeated chunks: only levels count their rows. A writer's page index may be wrong where
        the pages, which most readers use, are right."""
        if self._held is None:
            return None
        made = ReadPlanner(self._footer, self._types, self._size, None, None)
        made._caches = self._caches
        made._dropped = self.learned
        return made

    def keep_in(self, pages: KeptPages) -> None:
        """Cache decompressed pages of row reads in `pages`."""
        self._caches = self._caches._replace(pages=pages)
        self._known = {}

    def places(self, path: str, ordinal: int, column: Column) -> list[ChunkPlace]:
        """The column's chunks in a row group, checked against the file."""
        group = self._footer.row_groups[ordinal]
        places = []
        for leaf in column.leaves:
            chunk = group.chunks[leaf.ordinal]
            levels = (leaf.repetitions > 0, not column.flat)
            throughout, upwards = self._compressed_throughout, self._packed_upwards
            place = ChunkPlace(path, column.name, ordinal, group.rows, chunk, *levels, throughout, leaf, upwards)
            place.check(self._size, leaf.kind)
            places.append(place)
        return places

    def _known_places(self, path: str, ordinal: int, column: Column) -> list[ChunkPlace]:
        """`places`, kept for later fetches."""
        key = (path, ordinal, column.ordinal)
        found = self._places.get(key)
        if found is None:
            found = self._places[key] = self.places(path, ordinal, column)
            with self._lock:
                self._map_bytes += PLACE_BYTES * len(found)
        return found

    def group_of_rows(self, rows: Rows) -> Rows:
        """The row group of each row of the file."""
        return group_of_rows(rows, self._first_rows)

    def plan(self, reader: RangeReader, path: str, requested: Sequence[Column], rows: Rows) -> list[Read | RowRead]:
        """The reads that give `rows` (ordinals in the file, ascending), by row group and then by column."""
        if not len(rows):
            return []
        shares = []
        for ordinal, share in self._by_group(rows):
            local = share - self._first_rows[ordinal]
            for position, column in enumerate(requested):
                shares.append((position, column, self._known_places(path, ordinal, column), local))
        self._map(reader, [(column, places) for _, column, places, _ in shares])
        reads: list[Read | RowRead] = []
        for position, column, places, local in shares:
            parts = self._parts(column, places[0], local)
            picks = [self._row_reads(column, places, part, reader.is_remote) for part in parts]
            found = [
                RowRead(position, column, places, leaves, part)
                for part, leaves in zip(parts, picks, strict=True)
                if leaves is not None
            ]
            reads += found if len(found) == len(parts) else self.whole_page_reads(position, column, places, local)
        return reads

    def _parts(self, column: Column, place: ChunkPlace, rows: Rows) -> list[Rows]:
        """Rows of a chunk whose pages are decoded together: the pages of a flat column take about PART bytes."""
        pages = self._maps.get((place.row_group, column.leaves[0].ordinal)) if column.flat else None
        if pages is None or len(rows) <= FEW:
            return [rows]
        return split_pages(pages, rows, PART)

    def values(
        self, reader: RangeReader, path: str, requested: Sequence[Column], rows: Sequence[int]
    ) -> list[list[Any]] | None:
        """The values of each column in these rows; None where they have to be read by `plan`."""
        wanted = []
        for column in requested:
            for row in rows:
                group = bisect_right(self._group_begins, row) - 1
                chunk = self._known.get((group, column.ordinal)) or self._learn_chunk(path, group, column)
                if chunk is None:
                    return None
                wanted.append((chunk, row - self._group_begins[group]))
        found, count = known_values(reader, wanted), len(rows)
        return found and [found[at : at + count] for at in range(0, len(found), count)]

    def _learn_chunk(self, path: str, group: int, column: Column) -> ChunkRows | None:
        """The rows of a flat column in a row group, kept for later fetches; None where `plan` reads them."""
        key = (group, column.ordinal)
        convert = convert_of(column, self._types.kinds[column.ordinal])
        pages = self._maps.get((group, column.leaves[0].ordinal)) if convert is not None else None
        if convert is None or pages is None:
            return None
        [place] = self._known_places(path, group, column)
        if not place.chunk.decodable:
            return None
        made = self._known[key] = ChunkRows(place, column.leaves[0], pages, self._caches, convert)
        with self._lock:
            self._map_bytes += made.cache_bytes
        return made

    def _by_group(self, rows: Rows) -> Iterator[tuple[int, Rows]]:
        """The row groups of ascending rows, each with its rows."""
        group_of = self.group_of_rows(rows)
        if len(rows) == 1:
            yield int(group_of[0]), rows
            return
        groups, starts = np.unique(group_of, return_index=True)
        yield from zip(groups.tolist(), np.split(rows, starts[1:]), strict=True)

    def _row_reads(
        self, column: Column, places: Sequence[ChunkPlace], rows: Rows, is_remote: bool
    ) -> list[LeafRead] | None:
        """The pages of each leaf that hold `rows`; None where single rows cannot, or should not, be decoded."""
        picks, read, total = [], 0, 0
        for place, leaf in zip(places, column.leaves, strict=True):
            pages = self._maps.get((place.row_group, leaf.ordinal))
            if pages is None or not place.chunk.decodable:
                return None
            if column.flat and not _are_sparse(rows, pages, place):
                return None
            shares = pages.shares(rows, place.repeated)
            if not column.flat:
                read += int(pages.lengths[[share.page for share in shares]].sum())
                total += place.chunk.compressed
            picks.append(LeafRead(place, leaf, pages, shares, self._caches, is_remote))
        return picks if column.flat or len(rows) <= FEW or 2 * read <= total else None

    def whole_page_reads(self, position: int, column: Column, places: Sequence[ChunkPlace], rows: Rows) -> list[Read]:
        """Reads of whole pages, or of the column's whole row group, which pyarrow decodes."""
        template = self._types.template([column])
        if not column.flat:
            slack = min(self._slack, *(self._size - p.chunk.start - p.chunk.compressed for p in places))
            return [GroupRead(position, places, template, slack, rows)]
        kind = self._types.kinds[column.ordinal]
        pages = self._maps[places[0].row_group, column.leaves[0].ordinal]
        assert pages is not None  # a flat column has a map
        return [
            PageRead(position, places[0], template, kind, pages, share)
            for share in split_pages(pages, rows, _bytes_together(places[0].chunk))
        ]

    def _map(self, reader: RangeReader, chunks: Sequence[tuple[Column, Sequence[ChunkPlace]]]) -> None:
        """Make the page maps of the chunks that have none yet, with one round of reads. Leaves out nested columns with
        pages that pyarrow has to decode."""
        missing: dict[tuple[int, int], ChunkPlace] = {}
        for column, places in chunks:
            if not column.flat and not all(place.chunk.decodable for place in places):
                continue
            for place, leaf in zip(places, column.leaves, strict=True):
                key = (place.row_group, leaf.ordinal)
                if self._held is None and place.repeated:
                    self._keep(key, None)
                elif key not in self._maps and not self._use_recorded(key):
                    missing[key] = place
        if not missing:
            return
        indexed = self._held is not None
        source = PrefetchedReader(reader, *self._held) if self._held else reader
        made = map_pages(source, list(missing.values()), self._size, self._slack, indexed)
        for key, pages in zip(missing, made, strict=True):
            self._keep(key, pages)

    def _use_recorded(self, key: tuple[int, int]) -> bool:
        """Use the chunk's recorded or learned page map; False if there is none."""
        for maps in (self._recorded, self._learned):
            if maps is not None and key in maps:
                try:
                    self._keep(key, self._map_in(maps, key))
                except DamagedMaps:
                    continue
                return True
        return False

    def _map_in(self, maps: RecordedMaps, key: tuple[int, int]) -> PageMap | None:
        """The map of a chunk. DamagedMaps where the chunk cannot have it."""
        group, leaf = key
        groups = self._footer.row_groups
        if not 0 <= group < len(groups) or not 0 <= leaf < len(groups[group].chunks):
            raise DamagedMaps(f"a page map of row group {group}, leaf {leaf}, which the file does not have")
        chunk = groups[group].chunks[leaf]
        end = min(self._size, chunk.start + chunk.compressed + self._slack)
        return maps.map_of(key, groups[group].rows, chunk.start, end)

    def _keep(self, key: tuple[int, int], pages: PageMap | None) -> None:
        with self._lock:
            if key not in self._maps:
                self._maps[key] = pages
                self._map_bytes += pages.cache_bytes if pages else MAP_BYTES

    @property
    def learned(self) -> int:
        """The number of page maps and value maps. It only grows."""
        return self._dropped + len(self._maps) + self._caches.maps.count

    def export_learned(self, digest: str) -> bytes:
        """The maps that are known now, for `learn`."""
        before = self._learned
        with self._lock:
            pages = dict(self._maps)
        if before is not None:
            for key in before:
                if key not in pages:
                    with suppress(DamagedMaps):
                        pages[key] = self._map_in(before, key)
        return encode_maps(pages, digest, self._caches.maps.learned())

    def learn(self, data: bytes, digest: str) -> None:
        """Use maps that `export_learned` gave for the same file. DamagedMaps for anything else."""
        learned = RecordedMaps(data, digest)
        self._learned = learned
        if kernel.COMPILED and learned.values is not None:
            for key in learned.values:
                found = learned.values.get(key)
                if found is not None:
                    self._caches.maps.learn(key, found)

    def export(self, reader: RangeReader, path: str, digest: str, deep: bool) -> bytes:
        """The page maps of all chunks that can be read, for `RecordedMaps`. `deep`: with value maps of their pages, up
        to RECORDED_VALUES, where loops are compiled."""
        chunks = [
            (column, self.places(path, ordinal, column))
            for ordinal, group in enumerate(self._footer.row_groups)
            for column in self._readable(ordinal)
            if group.rows
        ]
        for begin in range(0, len(chunks), EXPORTED_TOGETHER):
            self._map(reader, chunks[begin : begin + EXPORTED_TOGETHER])
        if not (deep and kernel.COMPILED):
            return encode_maps(self._maps, digest)
        values, size = {}, 0
        for key, made in self._made_values(reader, path):
            size += stored_bytes(made)
            if size > RECORDED_VALUES:
                break
            values[key] = made
        return encode_maps(self._maps, digest, values)

    def _readable(self, ordinal: int) -> list[Column]:
        """The columns that can be read in a row group."""
        chunks = self._footer.row_groups[ordinal].chunks
        columns = [column for column in self._footer.columns if column.ordinal not in self._types.refusals]
        return [column for column in columns if not any(chunks[leaf.ordinal].refusal for leaf in column.leaves)]

    def _made_values(self, reader: RangeReader, path: str) -> Iterator[tuple[PageKey, MappedPage]]:
        """The value maps of all pages with a page map, chunk by chunk."""
        for ordinal in range(len(self._footer.row_groups)):
            for column in self._readable(ordinal):
                pages = self._maps.get((ordinal, column.leaves[0].ordinal))
                if column.flat and pages is not None:
                    [place] = self.places(path, ordinal, column)
                    for span, made in make_maps(reader, place, column.leaves[0], pages):
                        yield (ordinal, column.leaves[0].ordinal, *span), made

    def has_values(self, reader: RangeReader, path: str, recorded: RecordedValues) -> bool:
        """Whether recorded value maps equal those that the pages give now. The page maps are known."""
        left = len(recorded)
        for key, made in self._made_values(reader, path):
            if not left:
                break
            found = recorded.get(key)
            if found is not None and not are_alike(found, made):
                return False
            left -= found is not None
        return not left


def _are_sparse(rows: Rows, pages: PageMap, place: ChunkPlace) -> bool:
    """Whether few rows of these pages are wanted, for their length."""
    if len(rows) <= FEW:
        return True
    chosen, _ = pages.holding(rows)
    share = SPARSE and max(SPARSE, place.chunk.uncompressed / place.rows / WHOLE_BYTES)
    of_pages = int((pages.first_rows[chosen + 1] - pages.first_rows[chosen]).sum())
    return len(rows) <= max(FEW * len(chosen), share * of_pages)


def _bytes_together(chunk: Chunk) -> int:
    """The bytes of a chunk's pages that are decoded at once."""
    if chunk.compressed <= 0 or chunk.uncompressed <= chunk.compressed:
        return TOGETHER
    return max(1, min(TOGETHER, UNPACKED_TOGETHER * chunk.compressed // chunk.uncompressed))


def read_batches(reads: Sequence[Read | RowRead]) -> Iterator[list[Read | RowRead]]:
    """The reads in batches of about `TOGETHER` bytes. A read is never split."""
    return in_rounds(reads, lambda read: sum(length for _, length in read.ranges), TOGETHER)
