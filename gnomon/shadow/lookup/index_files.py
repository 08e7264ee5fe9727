"""Index files on a store. A build writes them with their Bloom filters and reads them back. Look-ups open
both, and keep them in caches bounded by bytes."""

import hashlib
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from gnomon.base.errors import Action
from gnomon.base.readers import MemoryFile
from gnomon.btree import BTreeReader, BTreeWriter, DamagedIndexFile
from gnomon.btree.blocks import Block, Leaves, LookupStats
from gnomon.btree.bloom import BloomFilter, BloomFilterReader
from gnomon.btree.format import SYNC_BYTES
from gnomon.btree.hashing import plain_column, xxhash64_columns
from gnomon.btree.key_types import key_type
from gnomon.shadow.errors import IndexFileGone
from gnomon.shadow.metadata import (
    MISSING,
    BloomFilterEntry,
    IndexFileEntry,
    IndexSpec,
    Segment,
    SegmentFile,
    SourceFileEntry,
    StoredFile,
    View,
    put_again,
    read_back,
)
from gnomon.shadow.storage import ByteCache, CacheCounts, CacheShare, Storage, looked_twice

INDEX_FILE_SUFFIX = ".btree.avro"
ELSEWHERE = "?"  # no partition has this name
FILTER_FOLDER = "_shadow/filters"
FILTER_SUFFIX = ".filter"
PROOF_BYTES = 8 << 20
RATE = 0.001  # of absent keys pass, for 2.1 bytes a key. At 1 % (1.3 bytes) the passing keys cost most of a dedup check
MANY_KEYS = 8  # of one index file: their leaves cost more to read than its filter
MAX_RECORDED_MISSES = 100_000  # index files

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Numbers = Ints | list[int]
Places = Ints | Sequence[int]
Flags = Bools | list[bool]


def index_file_path(segment_id: str, partition: str, bucket: int) -> str:
    """`dt=2026-01-01/<segment>_00003.btree.avro`: Spark reads the bucket number from `_00003`."""
    name = f"{segment_id}_{bucket:05d}{INDEX_FILE_SUFFIX}"
    return f"{partition}/{name}" if partition else name


def write_index_file(
    storage: Storage,
    spec: IndexSpec,
    segment_id: str,
    partition: str,
    bucket: int,
    batches: Iterable[pa.RecordBatch | pa.Table],
) -> IndexFileEntry:
    """Write one index file from sorted batches (columns of `spec.entry_schema`), and its Bloom filter; read both back.

    DamagedIndexFile when a file is read back with other bytes."""
    writer = BTreeWriter(spec.entry_schema, sync=_sync_marker(segment_id, partition, bucket))
    hashes = []
    for batch in batches:
        writer.write(batch)
        keys = [plain_column(batch.column(i), kind) for i, kind in enumerate(spec.key_types)]
        hashes.append(xxhash64_columns(keys))
    file = writer.finish()
    path = index_file_path(segment_id, partition, bucket)
    put_again(storage, path, file.chunks)
    entry = IndexFileEntry(path, partition, bucket, file.entries, file.size, file.crc32)
    _read_back(storage, entry)
    filter_ = write_filter(
        storage, filter_path(segment_id, partition, bucket), np.concatenate([np.empty(0, np.int64), *hashes])
    )
    return replace(entry, filter=filter_)


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


def _sync_marker(segment_id: str, partition: str, bucket: int) -> bytes:
    """Avro's sync marker, made from the file's name instead of at random, so that a task that runs again writes the
    same bytes."""
    name = index_file_path(segment_id, partition, bucket)
    return hashlib.blake2b(name.encode(), digest_size=SYNC_BYTES).digest()


def _read_back(storage: Storage, entry: IndexFileEntry) -> None:
    where = f"{storage.root}/{entry.path}"
    data = read_back(storage, entry.path)
    crc = zlib.crc32(data)
    if crc != entry.crc32 or len(data) != entry.size:
        wrote = f"CRC {entry.crc32:08x}"
        raise DamagedIndexFile("read back", where, 0, expected=wrote, found=f"{crc:08x}", action=Action.RUN_AGAIN)
    count = BTreeReader(MemoryFile(data, where), action=Action.RUN_AGAIN).check()
    if count != entry.entries:
        wrote = f"{entry.entries} entries"
        raise DamagedIndexFile("read back", where, 0, expected=wrote, found=count, action=Action.RUN_AGAIN)


def read_index_file(storage: Storage, spec: IndexSpec, entry: IndexFileEntry) -> bytes:
    """The bytes of an index file. IndexFileGone or DamagedIndexFile where, twice, it is missing or not the one that its
    segment names."""
    return looked_twice(storage, partial(_read_index_file, storage, spec, entry), (IndexFileGone, DamagedIndexFile))


def _read_index_file(storage: Storage, spec: IndexSpec, entry: IndexFileEntry) -> bytes:
    where = f"{storage.root}/{entry.path}"
    try:
        data = storage.read(entry.path)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        raise IndexFileGone(MISSING, where, action=spec.remedy) from None
    if len(data) != entry.size:
        at = min(len(data), entry.size)
        raise DamagedIndexFile("", where, at, expected=f"{entry.size} bytes", found=len(data), action=spec.remedy)
    crc = zlib.crc32(data)
    if crc != entry.crc32:
        raise DamagedIndexFile("", where, 0, expected=f"CRC {entry.crc32:08x}", found=f"{crc:08x}", action=spec.remedy)
    return data


def prove_index_file(storage: Storage, spec: IndexSpec, entry: IndexFileEntry) -> None:
    """Read a file once, in pieces of PROOF_BYTES. IndexFileGone or DamagedIndexFile where, twice, it is missing or not
    the one that its segment names."""
    looked_twice(storage, partial(_prove, storage, spec, entry), (DamagedIndexFile,))


def _prove(storage: Storage, spec: IndexSpec, entry: IndexFileEntry) -> None:
    file, crc = StoredFile(storage, entry.path, entry.size, spec.remedy), 0
    for begin in range(0, entry.size, PROOF_BYTES):
        crc = zlib.crc32(file.read_range(begin, min(PROOF_BYTES, entry.size - begin)), crc)
    if crc != entry.crc32:
        expected, found = f"CRC {entry.crc32:08x}", f"{crc:08x}"
        raise DamagedIndexFile("", file.name, 0, expected=expected, found=found, action=spec.remedy)


class _IndexFile(StoredFile):
    """An index file, with a checksum over all its bytes."""

    def __init__(self, storage: Storage, spec: IndexSpec, entry: IndexFileEntry) -> None:
        super().__init__(storage, entry.path, entry.size, spec.remedy)
        self._crc32 = entry.crc32

    def _read_range(self, offset: int, length: int) -> bytes:
        data = super()._read_range(offset, length)
        if not self._is_sound(data):
            expected, found = f"CRC {self._crc32:08x}", f"{zlib.crc32(data):08x}"
            raise DamagedIndexFile("", self.name, 0, expected=expected, found=found, action=self.action)
        return data

    def _is_sound(self, data: bytes) -> bool:
        """Whether the CRC of the file, if it was read whole, is right."""
        return len(data) != self.size or zlib.crc32(data) == self._crc32


def open_index_file(
    storage: Storage,
    place: SegmentFile,
    spec: IndexSpec,
    stats: LookupStats,
    whole: bool = False,
    leaves: Leaves | None = None,
) -> BTreeReader:
    """Open an index file of a segment, and check its size, its columns, its number of entries, and the place of its
    first entry. A file of Dione's, whose keys may have another order, states no number, and is refused. With `whole`,
    it is read in one read and stays in memory. `leaves` keeps its decoded leaves."""
    look = partial(_open_index_file, storage, place, spec, stats, whole, leaves)
    return looked_twice(storage, look, (DamagedIndexFile,))


def _open_index_file(
    storage: Storage, place: SegmentFile, spec: IndexSpec, stats: LookupStats, whole: bool, leaves: Leaves | None
) -> BTreeReader:
    segment, entry = place
    file = _IndexFile(storage, spec, entry)
    tree = BTreeReader(file, stats, entry.size if whole else None, leaves, spec.remedy)
    expected = [key_type(column.type).avro for column in spec.entry_schema.columns]
    found = [key_type(column.type).avro for column in tree.schema.columns]
    if found != expected or tree.entries != entry.entries or not _belongs(tree, segment, entry, spec):
        raise DamagedIndexFile(
            f"not the index file of {entry.entries} entries that was written", file.name, 0, action=spec.remedy
        )
    return tree


def _belongs(tree: BTreeReader, segment: Segment, entry: IndexFileEntry, spec: IndexSpec) -> bool:
    """Whether the first entry is in its bucket and names a source file of its partition."""
    return all(
        spec.bucketing_in(entry.partition).of(key) == entry.bucket
        and spec.folder_of(segment.partition_of.get(spec.entries.file_name(segment, entry.partition, value), ELSEWHERE))
        == entry.partition
        for key, value in tree.sample(1)
    )


def covered_in(spec: IndexSpec, segment: Segment, folder: str) -> Sequence[SourceFileEntry]:
    """The source files that the index files of a segment in one folder may name, dead ones included."""
    return segment.source_files if spec.flat else segment.source_files_in.get(folder, ())


WHOLE_BYTES = 4 << 20  # an index file of a remote store up to this size is read whole
LEAVES_SHARE = 2  # one part in this many of the memory for index files is for decoded leaves


class IndexFileCache:
    """Index files by path: their upper levels, the files that were read whole, as far as the cache has room, and the
    decoded leaves used last."""

    def __init__(self, storage: Storage, cache_bytes: int) -> None:
        self._storage = storage
        self._cache_bytes = cache_bytes - cache_bytes // LEAVES_SHARE
        self._open: ByteCache[BTreeReader] = ByteCache(self._cache_bytes)
        self._leaves: ByteCache[Block] = ByteCache(cache_bytes // LEAVES_SHARE)

    def use(
        self, view: View, segment: Segment, entry: IndexFileEntry, stats: LookupStats
    ) -> AbstractContextManager[BTreeReader]:
        """An index file, open."""
        whole = self._storage.is_remote and self.reads_whole(entry)
        used = self._open.use(entry.path, partial(self._opened, view, segment, entry, stats, whole))
        return self._forgetting(used) if whole and view.index_bytes > self._cache_bytes else used

    def _opened(
        self, view: View, segment: Segment, entry: IndexFileEntry, stats: LookupStats, whole: bool
    ) -> BTreeReader:
        leaves = CacheShare(self._leaves, entry.path)  # files never change, and no two have the same path
        return open_index_file(self._storage, SegmentFile(segment, entry), view.spec, stats, whole, leaves)

    @contextmanager
    def _forgetting(self, used: AbstractContextManager[BTreeReader]) -> Iterator[BTreeReader]:
        with used as tree:
            yield tree
            tree.forget_leaves()

    def reads_whole(self, entry: IndexFileEntry) -> bool:
        """Whether to read an index file whole when it is opened. From a remote store a few MB take as long as a few
        bytes, and a later read of a leaf would be another round trip."""
        return self._storage.is_remote and entry.size <= WHOLE_BYTES

    def is_open(self, entry: IndexFileEntry) -> bool:
        return self._open.peek(entry.path) is not None

    def needs_no_round_trip(self, entry: IndexFileEntry) -> bool:
        """Whether a search of an index file needs no round trip: the file is local, or in memory."""
        if not self._storage.is_remote:
            return True
        tree = self._open.peek(entry.path)
        return tree is not None and tree.is_whole

    @property
    def is_remote(self) -> bool:
        """Whether a search of an index file that is not in memory is a round trip."""
        return self._storage.is_remote

    @property
    def root(self) -> str:
        """Where the index lies."""
        return self._storage.root

    @property
    def caches(self) -> tuple[ByteCache[BTreeReader], ByteCache[Block]]:
        """The caches of the open index files, and of the leaves."""
        return self._open, self._leaves

    @property
    def counts(self) -> dict[str, CacheCounts]:
        return {"index_files": self._open.counts, "leaves": self._leaves.counts}


class BloomFilters:
    """The filters of an index for look-ups. They stay in memory whole when all of them fit into `cache_bytes`; else
    only their heads stay, and a check reads the page that it needs.

    A look-up consults a filter where that saves reads. For one key that only one file may hold, it does not: the filter
    costs a read, and saves none if the key is there. It does so after a search of this file found nothing. For a key
    that several files may hold (partitions, segments), and for many keys of one file, it always does."""

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
    def caches(self) -> tuple[ByteCache[BloomFilterReader]]:
        return (self._open,)

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
    stored = StoredFile(storage, file.path, file.size, Action.BUILD_FULL_OR_NO_FILTERS)
    return looked_twice(storage, partial(BloomFilterReader, stored, file.crc32, keep, stats), (DamagedIndexFile,))
