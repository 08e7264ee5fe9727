"""A cache of dictionaries, which all pages of a chunk share. One limit of bytes holds for all files together. So
dictionaries do not evict footers and page maps, which cost more to read, from other caches.
"""

import threading
from collections import OrderedDict

from gnomon.sources.parquet.page_decode.dictionary import Dictionary

LIMIT = 32 << 20  # bytes

Key = tuple[int, int]  # row group, leaf


class _SharedCache:
    """The dictionaries of all files, least recently used first. Safe to share between threads."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._total = 0
        self._all: OrderedDict[tuple[DictionaryCache, Key], Dictionary] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, file: "DictionaryCache", key: Key) -> Dictionary | None:
        with self._lock:
            found = self._all.get((file, key))
            if found is not None:
                self._all.move_to_end((file, key))
            return found

    def put(self, file: "DictionaryCache", key: Key, made: Dictionary) -> None:
        """Cache a dictionary, unless it takes more than a quarter of the limit."""
        if made.cache_bytes > self._limit // 4:
            return
        with self._lock:
            if (file, key) in self._all:
                return
            self._all[file, key] = made
            self._count(file, made.cache_bytes)
            while self._total > self._limit:
                (owner, _), dropped = self._all.popitem(last=False)
                self._count(owner, -dropped.cache_bytes)

    def _count(self, file: "DictionaryCache", size: int) -> None:
        self._total += size
        file.cache_bytes += size


_SHARED = _SharedCache(LIMIT)


class DictionaryCache:
    """The dictionaries of one file. `cache_bytes`: bytes of those that the cache holds now."""

    def __init__(self, kept: _SharedCache = _SHARED) -> None:
        self.cache_bytes = 0
        self._kept = kept

    def get(self, key: Key) -> Dictionary | None:
        return self._kept.get(self, key)

    def put(self, key: Key, made: Dictionary) -> None:
        self._kept.put(self, key, made)
