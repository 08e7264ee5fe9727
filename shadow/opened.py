"""An index at one snapshot, which may move to the next: what it holds, and how keys are found in it."""

import copy
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Self, TypeVar

from base.actions import Action
from shadow.errors import IndexFileGone, SourceError, UnknownColumn
from shadow.fetch import Ahead, Fetcher, FetchStats, Found
from shadow.lookup import ALL, Bound, Lookup, parse_key
from shadow.metadata import (
    Diff,
    IndexSpec,
    Proofs,
    SourceRoot,
    View,
    check_names,
    diff,
    open_view,
    read_snapshot,
    snapshot_files,
    source_of,
)
from shadow.storage import CacheCounts, FileInfo, Storage, is_local

Result = TypeVar("Result")
# Memory: up to half of it for the index (nodes and Bloom filters), up to a quarter for metadata of source files, and
# the rest for their pages.
CACHE_BYTES = 256 * 1024 * 1024


@dataclass(frozen=True)
class State:
    """A view and what reads its source, where it has one; swapped as one."""

    view: View
    source: SourceRoot | None
    fetcher: Fetcher | None
    proofs: Proofs | None = None
    newest: FileInfo | None = None  # the file of the newest snapshot when that was last looked for


class OpenIndex:
    """The state of an `Index`. Threads may share it: each question is answered from the state it began with."""

    def __init__(
        self,
        storage: Storage,
        view: View,
        pinned: bool,
        cache_bytes: int = CACHE_BYTES,
        filters: bool = True,
        page_maps: bool = True,
        keep_pages: bool = True,
    ) -> None:
        self._storage = storage
        self._maps = storage if page_maps else None
        self._keeps_pages = keep_pages
        self._pinned = pinned
        self._cache_bytes = cache_bytes
        self._lookup = Lookup(storage, cache_bytes // 2, filters)
        self._state = self._opened(view)
        self._refreshing = threading.Lock()

    def _opened(self, view: View) -> State:
        if view.spec.holds_values:
            return State(view, None, None)
        source = source_of(view.spec, view.snapshot.folders)
        quarter = self._cache_bytes // 4
        pages = quarter if self._keeps_pages else 0
        proofs = Proofs(source.storage, view.spec.format, view.spec.read_options)
        action = Action.ASK_NEWEST if self._pinned else Action.BUILD_AGAIN
        fetcher = Fetcher(source.storage, view.spec, quarter, self._maps, pages, action)
        return State(view, source, fetcher, proofs)

    @property
    def spec(self) -> IndexSpec:
        return self._state.view.spec

    @property
    def view(self) -> View:
        """The snapshot that look-ups use now."""
        return self._state.view

    @property
    def location(self) -> str:
        return self._storage.root

    @property
    def folders_elsewhere(self) -> list[str]:
        """The folders of a catalog table that do not lie below its root."""
        source = self._state.source
        return source.table.elsewhere if source is not None and source.table is not None else []

    def refresh(self) -> bool:
        """Move to the newest snapshot; whether there was another one. An index opened at a number stays there."""
        if self._pinned:
            return False
        with self._refreshing:
            state = self._state
            newest = next(reversed(snapshot_files(self._storage).values()), None)
            if newest is not None and newest == state.newest:
                return False
            view = open_view(self._storage)
            moved = view.snapshot != state.view.snapshot
            if moved:  # to another spec where the index was made anew
                same_spec = view.spec == state.view.spec
                known = None if view.spec.holds_values else source_of(view.spec, view.snapshot.folders)
                state = replace(state, view=view, source=known) if same_spec else self._opened(view)
            self._state = replace(state, newest=newest)
            return moved

    def here(self) -> Self:
        """This index at the snapshot it is at now, where it stays, whatever becomes of this one. Caches are shared."""
        fixed = copy.copy(self)
        fixed._pinned = True
        return fixed

    def source_is_gone(self) -> bool:
        """Whether nothing at all is where the source was, as where a disk is not mounted. Of remote stores that is not
        asked: their listings are long."""
        source = self._state.source
        if source is None or source.single_file is not None or not is_local(source.storage.root):
            return False
        if source.table is not None and source.table.elsewhere:
            return False  # the table's own folder may be empty
        return next(iter(source.storage.list()), None) is None

    def is_as_indexed(self, where: str) -> bool:
        """Whether a source file, by its whole path, is there now and the one that was indexed."""
        state = self._state
        if state.source is None or state.fetcher is None:
            return False
        root = state.source.storage.root.rstrip("/")
        file = state.view.covered.get(where.removeprefix(f"{root}/"))
        if file is None:
            return False
        try:
            state.fetcher.check_file(file)
        except SourceError:
            return False
        return True

    def coverage(self) -> Diff:
        """List the source and compare: what the snapshot does not cover yet. Of a catalog table the folders are listed
        that the last build found in the catalog: partitions that are new there are seen by the next build only. The
        table that the files belong to (Delta, Iceberg ...) is looked for, too. Without a source that is nothing."""
        state = self._state
        if state.source is None:
            return Diff((), (), (), {})
        files, lake_table = state.source.listing()
        return replace(diff(files, state.view.segments, state.source.table, state.proofs), lake_table=lake_table)

    def cache_counts(self) -> dict[str, CacheCounts]:
        """What is held in memory: of each cache hits, misses and bytes."""
        counts = self._lookup.cache_counts
        fetcher = self._state.fetcher
        return counts if fetcher is None else {**counts, **fetcher.cache_counts}

    def _with_found(
        self,
        keys: Sequence[object],
        where: Mapping[str, object] | None,
        stats: FetchStats,
        bound: Bound,
        each: bool,
        use: Callable[[State, Found], Result],
    ) -> Result:
        """What is made of the hits of keys. Where a file of the index was vacuumed meanwhile, from the newest snapshot,
        which does not need it."""
        ahead = Ahead(stats)
        try:
            state, found = self._find(keys, where, stats, bound, each, ahead)
            gone = [hits.failure for hits in found.hits if isinstance(hits.failure, IndexFileGone)]
            try:
                if gone and self._moved_from(state.view):
                    state, found = self._find(keys, where, stats, bound, each, ahead)
                return use(state, found)
            except IndexFileGone:  # page maps, vacuumed since
                if not self._moved_from(state.view):
                    raise
            return use(*self._find(keys, where, stats, bound, each, ahead))
        finally:
            ahead.end()

    def _columns(self, view: View, columns: Sequence[str] | None) -> Sequence[str]:
        if columns is None:
            return view.columns
        check_names("columns", columns)
        unknown = [name for name in columns if name not in view.columns]
        if unknown:
            raise UnknownColumn(f"the source has no column {', '.join(unknown)}; it has {', '.join(view.columns)}")
        return list(dict.fromkeys(columns))

    def _find(
        self,
        keys: Sequence[object],
        where: Mapping[str, object] | None,
        stats: FetchStats,
        bound: Bound = ALL,
        each: bool = False,
        ahead: Ahead | None = None,
    ) -> tuple[State, Found]:
        begin = time.perf_counter_ns()
        state = self._state
        try:
            found = self._find_in(state, keys, where, stats, bound, each, ahead)
        except IndexFileGone:  # vacuumed since: the newest snapshot does not need it
            if not self._moved_from(state.view):
                raise
            state = self._state
            found = self._find_in(state, keys, where, stats, bound, each, ahead)
        if state.fetcher is not None:
            held = sum(counts.bytes for counts in self._lookup.cache_counts.values())
            state.fetcher.leave_to_pages(self._cache_bytes - held)
        stats.snapshot = state.view.snapshot.number
        stats.lookup_us += (time.perf_counter_ns() - begin) // 1000
        return state, found

    def _moved_from(self, view: View) -> bool:
        """Whether there is a newer snapshot than one of which a file is gone."""
        if self._pinned:
            read_snapshot(self._storage, view.snapshot.number)  # SnapshotNotFound, if that is why
        self.refresh()
        return self._state.view is not view

    def _find_in(
        self,
        state: State,
        keys: Sequence[object],
        where: Mapping[str, object] | None,
        stats: FetchStats,
        bound: Bound,
        each: bool,
        ahead: Ahead | None,
    ) -> Found:
        view, begin = state.view, None
        if ahead is not None and state.fetcher is not None:
            begin = partial(ahead.begin, state.fetcher, view.spec)
        wanted = [parse_key(key, view.spec) for key in keys]
        hits = self._lookup.find(view, wanted, view.where(where), stats.index, bound, each, stats.trace, begin)
        return Found(view, wanted, hits)
