"""An open index: what a program holds to answer keys."""

import copy
import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from btree.reader import LookupStats
from shadow.answers import Answer, FetchStats, answers
from shadow.coverage import Diff, SourceRoot, diff, source_of
from shadow.entries import entry_rows
from shadow.entry_batches import EntryColumn, scan_entries
from shadow.errors import IndexFileGone, SourceError, StalePointer, UnknownColumn, UsageError
from shadow.fetch import Fetcher, FetchReads
from shadow.lookup import Hit, Lookup, Wanted, parse_key
from shadow.match import Matcher, Matches, MatchStats
from shadow.partitions import check_where
from shadow.segments import IndexFileEntry, Segment, SourceFileEntry
from shadow.snapshots import read_snapshot, snapshot_files
from shadow.spec import IndexSpec, check_names
from shadow.storage import FileInfo, Storage, is_local, join, storage_at
from shadow.view import View, open_view
from sources import Numbers, Pointer

CACHE_BYTES = 256 * 1024 * 1024  # memory for the index (upper nodes and key filters) and file metadata, half each


@dataclass(frozen=True)
class _State:
    """A view and what reads its source, where it has one; swapped as one."""

    view: View
    source: SourceRoot | None
    fetcher: Fetcher | None
    newest: FileInfo | None = None  # the file of the newest snapshot when that was last looked for


class Index:
    """An index at one snapshot, until `refresh` moves it to the newest. Safe to share between threads.

    Errors: UsageError and KeyTypeError for what was asked; StalePointer when the source changed; the others of
    `shadow.errors` when index or source are damaged or gone."""

    def __init__(
        self,
        storage: Storage,
        view: View,
        pinned: bool,
        cache_bytes: int = CACHE_BYTES,
        filters: bool = True,
        page_maps: bool = True,
    ) -> None:
        self._storage = storage
        self._maps = storage if page_maps else None
        self._pinned = pinned
        self._cache_bytes = cache_bytes // 2
        self._lookup = Lookup(storage, self._cache_bytes, filters)
        self._state = self._opened(view)
        self._refreshing = threading.Lock()

    def _opened(self, view: View) -> _State:
        if view.spec.holds_values:
            return _State(view, None, None)
        source = source_of(view.spec, view.snapshot.folders)
        return _State(view, source, Fetcher(source.storage, view.spec, self._cache_bytes, self._maps))

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

    def here(self) -> "Index":
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
        return next(iter(source.storage.list()), None) is None

    def coverage(self) -> Diff:
        """List the source and compare: what the snapshot does not cover yet. Of a catalog table the folders are listed
        that the last build found in the catalog: partitions that are new there are seen by the next build only. Without
        a source that is nothing."""
        state = self._state
        if state.source is None:
            return Diff((), (), (), {})
        return diff(state.source.list(), state.view.segments, state.source.table)

    def check(self, keys: Sequence[object], columns: Sequence[str] | None, where: Mapping[str, object] | None) -> None:
        """Raise UsageError or KeyTypeError when a question cannot be asked; nothing is read."""
        view = self._state.view
        for key in keys:
            parse_key(key, view.spec)
        self._columns(view, columns)
        check_where(where, view.spec.partitions, view.spec.partition_types)

    def lookup(self, key: object, where: Mapping[str, object] | None = None) -> list[Pointer]:
        """The pointers of a key's rows, from the index alone."""
        if self.spec.holds_values:
            raise UsageError(f"{self.location}: its entries hold values, no pointers; ask get for them")
        return [hit.pointer for hit in self._find([key], where, FetchStats())[2][0]]

    def contains(self, key: object, where: Mapping[str, object] | None = None) -> bool:
        """Whether a covered row has this key, from the index alone."""
        return bool(self._find([key], where, FetchStats())[2][0])

    def get(
        self,
        key: object,
        columns: Sequence[str] | None = None,
        where: Mapping[str, object] | None = None,
        stats: FetchStats | None = None,
    ) -> list[dict[str, Any]]:
        """The entries of a key, from the index alone. In a folder of values they are all that `fetch` gives; else each
        has the key, the included columns, the partition columns and the pointer."""
        state, wanted, found = self._find([key], where, stats if stats is not None else FetchStats())
        return entry_rows(state.view, wanted, found, columns)[0]

    def fetch(
        self,
        key: object,
        columns: Sequence[str] | None = None,
        where: Mapping[str, object] | None = None,
        stats: FetchStats | None = None,
    ) -> list[dict[str, Any]]:
        """All rows with this key; an empty list when no covered file has one."""
        return self.fetch_many([key], columns, where, stats)[0]

    def fetch_many(
        self,
        keys: Sequence[object],
        columns: Sequence[str] | None = None,
        where: Mapping[str, object] | None = None,
        stats: FetchStats | None = None,
    ) -> list[list[dict[str, Any]]]:
        """The rows of each key, in the order asked. Pages shared by several rows are read once."""
        return [answer.rows for answer in self.answer_many(keys, columns, where, stats=stats)]

    def answer_many(
        self,
        keys: Sequence[object],
        columns: Sequence[str] | None = None,
        where: Mapping[str, object] | None = None,
        limit: int | None = None,
        stats: FetchStats | None = None,
    ) -> list[Answer]:
        """The first `limit` rows of each key, in the order asked, and how many it has. No more rows are read."""
        stats = stats if stats is not None else FetchStats()
        state, wanted, found = self._find(keys, where, stats)
        try:
            return answers(state.view, state.fetcher, wanted, found, self._columns(state.view, columns), limit, stats)
        except IndexFileGone:  # page maps, vacuumed since
            if not self._moved_from(state.view):
                raise
        state, wanted, found = self._find(keys, where, stats)
        return answers(state.view, state.fetcher, wanted, found, self._columns(state.view, columns), limit, stats)

    # -- for jobs, which group and order the work themselves ---------------------------------------------------------

    def find(self, keys: Sequence[Wanted], stats: LookupStats) -> list[list[Hit]]:
        """The hits of each key, from the index alone."""
        return self._lookup.find(self._state.view, keys, {}, stats)

    def match(
        self,
        keys: pa.RecordBatch,
        within: Mapping[str, pa.Array],
        stats: MatchStats,
        null_safe: bool = False,
    ) -> Matches:
        """The entries of many keys, in Arrow: `keys` holds the stored key columns in key order, in the types of the
        spec; `within` the values that each key's partition must have. A null matches nulls if `null_safe`,
        else nothing."""
        return Matcher(self._lookup, self._state.view, stats).match(keys.columns, within, null_safe)

    def match_pieces(
        self,
        keys: pa.RecordBatch,
        within: Mapping[str, pa.Array],
        stats: MatchStats,
        null_safe: bool = False,
    ) -> Iterator[Matches]:
        """The same, some entries at a time, in the order of the index files: for keys that have any number of them."""
        return Matcher(self._lookup, self._state.view, stats).pieces(keys.columns, within, null_safe)

    def holds(self, keys: pa.RecordBatch, within: Mapping[str, pa.Array], stats: MatchStats) -> pa.BooleanArray:
        """Whether each of many keys has an entry; nulls equal nulls. No values are read."""
        return pa.array(Matcher(self._lookup, self._state.view, stats).holds(keys.columns, within))

    def scan(
        self,
        segment: Segment,
        file: IndexFileEntry,
        columns: Sequence[EntryColumn],
        partitions: Collection[str],
        stats: LookupStats,
    ) -> Iterator[pa.RecordBatch]:
        """The entries of an index file that count, of these partitions, in key order."""
        return scan_entries(self._storage, self.spec, segment, file, columns, partitions, stats)

    def read(
        self,
        path: str,
        pointers: Numbers,
        keys: Mapping[str, pa.Array],
        columns: Sequence[str],
        stats: FetchReads,
    ) -> pa.Table:
        """Rows of one source file: `Fetcher.table`."""
        state = self._state
        return self._fetcher(state).table(_covered(state, path), pointers, keys, columns, stats)

    def units(self, path: str, offsets: Numbers, stats: FetchReads) -> Numbers:
        """Which rows of a source file are best read together: `SourceFile.units`."""
        state = self._state
        return self._fetcher(state).units(_covered(state, path), offsets, stats)

    def check_file(self, path: str) -> None:
        """SourceError unless a source file is still the one that was indexed."""
        state = self._state
        self._fetcher(state).check_file(_covered(state, path))

    def row_bytes(self, path: str) -> int:
        """Mean bytes of a row of a source file."""
        file = _covered(self._state, path)
        return max(1, file.size // max(file.rows, 1))

    def schemas(self, names: Sequence[str], readable: bool = False) -> Iterator[tuple[str, pa.Schema]]:
        """Source files, newest segment first, until their columns together hold all of `names`, each with a type: path
        and schema. SourceError where one cannot be read; where only `readable` ones are asked for, if none of these has
        a column that others may have."""
        state = self._state
        fetcher, source = self._fetcher(state), source_of(state.view.spec)
        wanted = set(names) - set(state.view.spec.partitions)
        failed: SourceError | None = None
        for file in reversed(state.view.covered.values()):
            if not wanted:
                return
            try:
                schema = fetcher.metadata(file).schema
            except SourceError as error:
                if not readable:
                    raise
                failed = error
                continue
            typed = {field.name for field in schema if not pa.types.is_null(field.type)}
            if wanted & typed:
                wanted -= typed
                yield join(source.storage.root, file.path), schema
        if wanted and failed is not None:
            raise failed

    def _fetcher(self, state: _State) -> Fetcher:
        if state.fetcher is None:
            raise UsageError(f"{self.location}: a folder of values, which has no source")
        return state.fetcher

    def _columns(self, view: View, columns: Sequence[str] | None) -> Sequence[str]:
        if columns is None:
            return view.columns
        check_names("columns", columns)
        unknown = [name for name in columns if name not in view.columns]
        if unknown:
            raise UnknownColumn(f"the source has no column {', '.join(unknown)}; it has {', '.join(view.columns)}")
        return list(dict.fromkeys(columns))

    def _find(
        self, keys: Sequence[object], where: Mapping[str, object] | None, stats: FetchStats
    ) -> tuple[_State, list[Wanted], list[list[Hit]]]:
        begin = time.perf_counter_ns()
        state = self._state
        try:
            wanted, found = self._find_in(state.view, keys, where, stats)
        except IndexFileGone:  # vacuumed since: the newest snapshot does not need it
            if not self._moved_from(state.view):
                raise
            state = self._state
            wanted, found = self._find_in(state.view, keys, where, stats)
        stats.snapshot = state.view.snapshot.number
        stats.lookup_us += (time.perf_counter_ns() - begin) // 1000
        return state, wanted, found

    def _moved_from(self, view: View) -> bool:
        """Whether there is a newer snapshot than one of which a file is gone."""
        if self._pinned:
            read_snapshot(self._storage, view.snapshot.number)  # SnapshotNotFound, if that is why
        self.refresh()
        return self._state.view is not view

    def _find_in(
        self, view: View, keys: Sequence[object], where: Mapping[str, object] | None, stats: FetchStats
    ) -> tuple[list[Wanted], list[list[Hit]]]:
        wanted = [parse_key(key, view.spec) for key in keys]
        conditions = check_where(where, view.spec.partitions, view.spec.partition_types)
        return wanted, self._lookup.find(view, wanted, conditions, stats.index)


def _covered(state: _State, path: str) -> SourceFileEntry:
    """The file by its name in pointers. StalePointer where the snapshot does not cover it."""
    file = state.view.covered.get(path)
    if file is None:
        number, root = state.view.snapshot.number, source_of(state.view.spec).storage.root
        message = f"snapshot {number} of the index does not cover this file; take pointers from this index as it is now"
        raise StalePointer(message, join(root, path))
    return file


def open_index(
    location: str,
    snapshot: int | None = None,
    cache_bytes: int = CACHE_BYTES,
    filters: bool = True,
    page_maps: bool = True,
) -> Index:
    """Open the index at a path or URL, at its newest snapshot or at the one asked for. With `filters=False` key filters
    are not read, with `page_maps=False` recorded page maps are not: the same answers, at more cost.

    IndexNotFound, SnapshotNotFound, NewerFormat or DamagedMetadata say why it cannot be opened."""
    storage = storage_at(location)
    return Index(storage, open_view(storage, snapshot), snapshot is not None, cache_bytes, filters, page_maps)
