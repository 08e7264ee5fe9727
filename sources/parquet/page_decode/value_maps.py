"""The maps of one file's pages. The first fetch from a page makes its map."""

import threading

from gnomon.sources.parquet.page_decode.value_map import MappedPage

Key = tuple[int, int, int, int]  # row group, leaf, offset and length of the page
LIMIT = 4 << 20  # bytes


class ValueMaps:
    """Maps by page, as many as `LIMIT` allows. Safe to share between threads: maps are added, never changed."""

    def __init__(self) -> None:
        self.cache_bytes = 0
        self._maps: dict[Key, MappedPage] = {}
        self._lock = threading.Lock()

    @property
    def count(self) -> int:
        return len(self._maps)

    def all(self) -> dict[Key, MappedPage]:
        """The maps there are now."""
        with self._lock:
            return dict(self._maps)

    def get(self, key: Key) -> MappedPage | None:
        return self._maps.get(key)

    def learn(self, key: Key, made: MappedPage) -> None:
        """Keep the map of a page that was read whole, while there is room."""
        with self._lock:
            if key not in self._maps and self.cache_bytes < LIMIT:
                self._maps[key] = made
                self.cache_bytes += made.cache_bytes
