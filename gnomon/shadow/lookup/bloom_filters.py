"""Bloom filters on a store: written and read back with their index files, and consulted by look-ups before the index
files.

A look-up consults a filter where that saves reads. For one key that only one file may hold, it does not: the filter
costs a read, and saves none if the key is there. It does so after a search of this file found nothing. For a key that
several files may hold (partitions, segments), and for many keys of one file, it always does.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager

import numpy as np
import numpy.typing as npt

from gnomon.base.errors import Action
from gnomon.btree.blocks import LookupStats
from gnomon.btree.bloom import BloomFilter, BloomFilterReader
from gnomon.shadow.errors import DamagedIndexFile
from gnomon.shadow.metadata import BloomFilterEntry, IndexFileEntry, StoredFile, put_again, read_back
from gnomon.shadow.storage import ByteCache, CacheCounts, Storage

FILTER_FOLDER = "_shadow/filters"
FILTER_SUFFIX = ".filter"
RATE = 0.001  # of absent keys pass, for 2.1 bytes a key. At 1 % (1.3 bytes) the passing keys cost most of a dedup check
MANY_KEYS = 8  # of one index file: their leaves cost more to read than its filter
MAX_RECORDED_MISSES = 100_000  # index files

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Numbers = Ints | list[int]
Places = Ints | Sequence[int]
Flags = Bools | list[bool]


def filter_path(segment_id: str, partition: str, bucket: int) -> str:
    """`_shadow/filters/<segment>/dt=2026-01-01/00003.filter`"""
    name = f"{bucket:05d}{FILTER_SUFFIX}"
    return "/".join(part for part in (FILTER_FOLDER, segment_id, partition, name) if part)


def write_filter(storage: Storage, path: str, hashes: Ints) -> BloomFilterEntry:
    """Write the filter of an index file from the hashes of its keys, read it back, and check that each of them
    passes."""
    made = BloomFilter.build(hashes, RATE)
    put_again(storage, path, [made.data])
    where = f"{storage.root}/{path}"
    if not BloomFilterReader.of(read_back(storage, path), where, made.crc32).may_contain_many(hashes).all():
        what = "the Bloom filter denies a key of its index file"
        raise DamagedIndexFile(what, where, 0, action=Action.BUILD_FULL_OR_NO_FILTERS)
    return BloomFilterEntry(path, len(made.data), made.crc32)


class BloomFilters:
    """The filters of an index for look-ups. They stay in memory whole when all of them fit into `cache_bytes`; else
    only their heads stay, and a check reads the page that it needs."""

    def __init__(self, storage: Storage, cache_bytes: int) -> None:
        self._storage = storage
        self._cache_bytes = cache_bytes
        self._open: ByteCache[BloomFilterReader] = ByteCache(cache_bytes)
        self._missed: set[str] = set()

    def pays(self, entry: IndexFileEntry, keys: int, spread: bool, filter_bytes: int) -> bool:
        """Whether to read the Bloom filter of an index file before a search for keys. `spread`: a key may lie in
        several files. `filter_bytes`: the size of all filters of the snapshot."""
        if entry.filter is None:
            return False
        fits = filter_bytes <= self._cache_bytes
        return spread or keys >= MANY_KEYS or (fits and entry.path in self._missed)

    def passes(
        self, entry: IndexFileEntry, places: Places, hashes: Numbers, filter_bytes: int, stats: LookupStats
    ) -> Flags:
        """For each place of a key among `hashes`, whether the index file may hold the key."""
        if entry.filter is None:
            return [True] * len(places)
        with self._filter(entry.filter, filter_bytes, stats) as filter_:
            if isinstance(hashes, list):
                return [filter_.may_contain(hashes[place], stats) for place in places]
            return filter_.may_contain_many(hashes[np.asarray(places, np.int64)], stats)

    def cached_answers(self, entries: Sequence[IndexFileEntry], hash_: int, stats: LookupStats) -> list[bool | None]:
        """For each index file, whether it may hold the key with this hash by the filter in memory; None where no whole
        filter is in memory. Nothing is read."""
        kept = self._open.get_kept([entry.filter.path if entry.filter is not None else None for entry in entries])
        return [
            filter_.may_contain(hash_, stats) if filter_ is not None and filter_.is_whole else None for filter_ in kept
        ]

    def all_cached_exclude(self, entries: Sequence[IndexFileEntry], hash_: int, stats: LookupStats) -> bool:
        """Whether the filters of all these index files are in memory and exclude the key with this hash. Nothing is
        read. The filters count as used only if the result is true; otherwise the caller checks them again."""
        paths = [entry.filter.path if entry.filter is not None else None for entry in entries]
        kept, asked = [self._open.peek(path) for path in paths], LookupStats()
        for filter_ in kept:
            if filter_ is None or not filter_.is_whole or filter_.may_contain(hash_, asked):
                return False
        self._open.get_kept(paths)
        stats.add(asked)
        return True

    def record_miss(self, entry: IndexFileEntry) -> None:
        """Record that a search of an index file found none of its keys."""
        if len(self._missed) >= MAX_RECORDED_MISSES:
            self._missed.clear()
        self._missed.add(entry.path)

    def needs_no_round_trip(self, entry: IndexFileEntry) -> bool:
        """Whether the whole filter of an index file is in memory."""
        found = self._open.peek(entry.filter.path) if entry.filter is not None else None
        return found is not None and found.is_whole

    @property
    def cache_bytes(self) -> int:
        return self._open.cache_bytes

    @property
    def counts(self) -> CacheCounts:
        return self._open.counts

    def _filter(
        self, file: BloomFilterEntry, filter_bytes: int, stats: LookupStats
    ) -> AbstractContextManager[BloomFilterReader]:
        keep = filter_bytes <= self._cache_bytes
        return self._open.use(file.path, lambda: open_filter(self._storage, file, keep, stats))


def open_filter(
    storage: Storage, file: BloomFilterEntry, keep: bool = True, stats: LookupStats | None = None
) -> BloomFilterReader:
    """A filter that a segment names. IndexFileGone or DamagedIndexFile where it is missing or has other bytes than were
    written."""
    return BloomFilterReader(
        StoredFile(storage, file.path, file.size, Action.BUILD_FULL_OR_NO_FILTERS), file.crc32, keep, stats
    )
