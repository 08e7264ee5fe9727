"""The maps of one file's pages: recorded ones, and those that the first fetch from a page makes."""

import threading
from typing import Protocol

from gnomon.sources.parquet.page_decode.value_map import MappedPage

PageKey = tuple[int, int, int, int]  # row group, leaf, offset and length of the page
LIMIT = 4 << 20  # bytes


class Recorded(Protocol):
    """The recorded maps of the pages of a file."""

    def get(self, key: PageKey) -> MappedPage | None:
        """The map of a page; None where there is none."""


class ValueMaps:
    """Maps by page, as many as `LIMIT` allows. Safe to share between threads: maps are added, never changed."""

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
            if key not in maps and self.cache_bytes < LIMIT:
                maps[key] = made
                self.cache_bytes += made.cache_bytes
