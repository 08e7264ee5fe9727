"""The open index, at one snapshot, that the tasks of a Python worker share."""

import logging
import os
import sys
from functools import lru_cache
from typing import NamedTuple

from gnomon.shadow import Index, open_index
from gnomon.shadow.errors import SnapshotNotFound

WORKER_CACHE_BYTES = 64 * 1024 * 1024
OPEN_INDEXES = 4
LOGGER, LOG_LEVEL = "gnomon", "GNOMON_LOG"


class AtSnapshot(NamedTuple):
    """An index at the snapshot that the driver chose. An index that is deleted and built again in the same folder
    repeats the number, but not the `commit_id`."""

    location: str
    number: int
    commit_id: str

    @classmethod
    def of(cls, index: Index) -> "AtSnapshot":
        snapshot = index.view.snapshot
        return cls(index.location, snapshot.number, snapshot.commit_id)


@lru_cache(OPEN_INDEXES)
def open_in_worker(at: AtSnapshot) -> Index:
    """The index, opened once in each worker process, after its fork. SnapshotNotFound where another index is there now:
    the planned columns, types and pointers do not fit it."""
    _log()
    index = open_index(at.location, at.number, WORKER_CACHE_BYTES, keep_pages=False)
    found = index.view.snapshot.commit_id
    if found != at.commit_id:
        raise SnapshotNotFound(
            f"snapshot {at.number} is not the planned one: the index was deleted and built again "
            f"(expected commit {at.commit_id}, found {found}); run the query again",
            at.location,
        )
    return index


def _log() -> None:
    """Write the log of tasks to stderr, which is the executor's log, if GNOMON_LOG names a level."""
    level = os.environ.get(LOG_LEVEL, "").upper()
    logger = logging.getLogger(LOGGER)
    if level in logging.getLevelNamesMapping() and not logger.handlers:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        logger.addHandler(handler)
        logger.setLevel(level)
