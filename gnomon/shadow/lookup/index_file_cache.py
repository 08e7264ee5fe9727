"""The index files that look-ups have opened, kept in a cache bounded by bytes."""

from collections.abc import Iterator
from contextlib import contextmanager

from gnomon.btree import BTreeReader
from gnomon.btree.blocks import Block
from gnomon.btree.reader import LookupStats
from gnomon.shadow.lookup.index_files import open_index_file
from gnomon.shadow.metadata import IndexFileEntry, Segment, SegmentFile, View
from gnomon.shadow.storage import ByteCache, CacheCounts, CacheShare, Storage

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

    @contextmanager
    def use(self, view: View, segment: Segment, entry: IndexFileEntry, stats: LookupStats) -> Iterator[BTreeReader]:
        """An index file, open."""
        whole = self.reads_whole(entry)

        def opened() -> BTreeReader:
            leaves = CacheShare(self._leaves, entry.path)  # files never change, and no two have the same path
            return open_index_file(self._storage, SegmentFile(segment, entry), view.spec, stats, whole, leaves)

        with self._open.use(entry.path, opened) as tree:
            yield tree
            if whole and view.index_bytes > self._cache_bytes:
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
    def root(self) -> str:
        """Where the index lies."""
        return self._storage.root

    @property
    def cache_bytes(self) -> int:
        """Bytes of the open index files and of the leaves."""
        return self._open.cache_bytes + self._leaves.cache_bytes

    @property
    def counts(self) -> dict[str, CacheCounts]:
        return {"index_files": self._open.counts, "leaves": self._leaves.counts}
