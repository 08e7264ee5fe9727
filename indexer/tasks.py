"""What Spark's Python workers share between the tasks they run: an open index, at one snapshot."""

from functools import lru_cache

from shadow import Index, open_index

WORKER_CACHE_BYTES = 64 * 1024 * 1024
OPEN_INDEXES = 4


@lru_cache(OPEN_INDEXES)
def open_in_worker(location: str, snapshot: int) -> Index:
    """The index at the snapshot the driver chose; opened once in each worker process, after its fork."""
    return open_index(location, snapshot, WORKER_CACHE_BYTES)
