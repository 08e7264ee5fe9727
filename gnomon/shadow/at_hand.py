"""What an open index knows of a key from memory alone. Nothing here waits: no file is opened, and only cached values
are used. If memory does not suffice, the caller makes a look-up in a thread."""

import time
from collections.abc import Mapping

from gnomon.btree.hashing import bucket_of, xxhash64
from gnomon.shadow.current_snapshot import State
from gnomon.shadow.fetch import FetchStats
from gnomon.shadow.lookup import Lookup, ParsedKey
from gnomon.shadow.storage import Identity

MOST_FILTERS = 64  # filters of a key: more take long to check


class AtHand:
    """The memory of an index at one snapshot."""

    def __init__(self, lookup: Lookup, state: State) -> None:
        self._lookup = lookup
        self._state = state

    @property
    def is_ready(self) -> bool:
        """Whether look-ups have computed the cached tables of the view, which may be large."""
        return {"partition_values", "_values_of", "index_files"} <= self._state.view.__dict__.keys()

    def are_unchanged(self, opened: Mapping[str, Identity]) -> bool:
        """Whether source files are certain to be unchanged, as in `Index.is_unchanged`. False also where memory does
        not suffice."""
        fetcher, view = self._state.fetcher, self._state.view
        if fetcher is None:
            return not opened
        if "covered" not in view.__dict__:
            return False
        files = view.covered
        return all(
            path in files and fetcher.files.is_surely_unchanged(files[path], known) for path, known in opened.items()
        )

    def denies(self, key: ParsedKey, stats: FetchStats) -> bool:
        """Whether the Bloom filters in memory exclude the key from all index files that may hold it: then no covered
        row has it. `stats` receive the cost if they do."""
        start = time.perf_counter_ns()
        view, filters = self._state.view, self._lookup.filters
        spec = view.spec
        if filters is None:
            return False
        bucket = bucket_of(key.stored, spec.key_types, spec.buckets)
        folders = spec.folders_of(view.partitions_of({}, key.where))
        if len(folders) > MOST_FILTERS:
            return False
        files = [found for folder in folders for found in view.files_of(folder, bucket)]
        if len(files) > MOST_FILTERS:
            return False
        if not filters.all_cached_exclude(
            [found.file for found in files], xxhash64(key.stored, spec.key_types), stats.index
        ):
            return False
        stats.snapshot = view.snapshot.number
        stats.add_lookup(start)
        return True
