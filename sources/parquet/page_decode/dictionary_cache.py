"""Dictionaries of chunks, kept because every page of a chunk needs the same one: bounded by bytes over all files, so
that they never push out of a cache what is dearer, the footers and page maps of other files."""

import threading
from collections import OrderedDict

from sources.parquet.page_decode.plain_values import Dictionary

LIMIT = 32 << 20  # bytes

Key = tuple[int, int]  # row group, leaf


class _Kept:
    """The dictionaries of all files, the one used last at the end."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._total = 0
        self._all: OrderedDict[tuple[Dictionaries, Key], Dictionary] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, file: "Dictionaries", key: Key) -> Dictionary | None:
        with self._lock:
            found = self._all.get((file, key))
            if found is not None:
                self._all.move_to_end((file, key))
            return found

    def put(self, file: "Dictionaries", key: Key, made: Dictionary) -> None:
        """Kept, unless it would take more than a quarter of what there is for all."""
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

    def _count(self, file: "Dictionaries", size: int) -> None:
        self._total += size
        file.cache_bytes += size


_KEPT = _Kept(LIMIT)


class Dictionaries:
    """Those of one file. `cache_bytes`: of the ones that are kept now."""

    def __init__(self, kept: _Kept = _KEPT) -> None:
        self.cache_bytes = 0
        self._kept = kept

    def get(self, key: Key) -> Dictionary | None:
        return self._kept.get(self, key)

    def put(self, key: Key, made: Dictionary) -> None:
        self._kept.put(self, key, made)
