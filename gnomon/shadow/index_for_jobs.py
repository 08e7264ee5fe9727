"""An open index for the jobs and the service of Gnomon, which group and order the work themselves."""

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Self, TypeVar

import numpy as np
import pyarrow as pa

from gnomon.btree.blocks import LookupStats
from gnomon.btree.keys import stored_array
from gnomon.shadow.current_snapshot import State
from gnomon.shadow.errors import IndexFileGone
from gnomon.shadow.fetch import Ahead, Answer, FetchStats, Found, Query
from gnomon.shadow.index import FirstPage, Index, opened_as, rows_of_hits, table_of_hits, without_number
from gnomon.shadow.lookup import (
    EntryColumn,
    Hit,
    Keys,
    Lookup,
    Matcher,
    Matches,
    MatchStats,
    ParsedKey,
    Piece,
    Plan,
    Range,
    RangeQuery,
    Search,
    distinct_rows,
    parse_key,
    prove_index_file,
    scan_entries,
)
from gnomon.shadow.metadata import (
    Diff,
    IndexSpec,
    SegmentFile,
    View,
    read_snapshot,
)
from gnomon.shadow.rows_of_files import IndexedFiles
from gnomon.shadow.storage import (
    CacheCounts,
    Identity,
    Place,
    is_absolute,
    looking_again,
    split,
)
from gnomon.sources.pointers import FILENAME

MOST_FILTERS = 64  # filters of a key: more take long to check
Result = TypeVar("Result")


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
        partitions = view.partitions_of({}, key.where)
        if filters is None or len(view.spec.folders_of(partitions)) > MOST_FILTERS:
            return False
        keys = Keys(view.spec, [key.stored])
        groups = Plan(self._lookup, view, keys, [partitions], [0]).groups()
        files = [found.file for group in groups for found in group.files]
        if len(files) > MOST_FILTERS or not filters.all_cached_exclude(files, int(keys.hashes[0]), stats.index):
            return False
        stats.snapshot = view.snapshot.number
        stats.add_lookup(start)
        return True


class OpenIndex(Index):
    """An open index with all that jobs and the service use."""

    _fixed: Self | None = None  # what `here` gave last

    @classmethod
    def of(cls, index: Index | Place) -> Self:
        """An index that is open, with its snapshot and its caches, or the one at a place."""
        if isinstance(index, cls):
            return index
        if not isinstance(index, Index):
            return opened_as(cls, index, None)
        made = cls.__new__(cls)
        made.__dict__.update(index.__dict__)
        return made

    def save_maps(self, seldom: bool = False) -> None:
        """Save what fetches learned about source pages, if there is a cache folder; with `seldom`, only of files whose
        last save was some time ago. About once a day, remove what the folder has not used for a week."""
        self._current.save_maps(seldom)

    @property
    def spec(self) -> IndexSpec:
        return self._current.state.view.spec

    @property
    def view(self) -> View:
        """The snapshot that look-ups use now."""
        return self._current.state.view

    @property
    def folders_elsewhere(self) -> list[str]:
        """The folders that have files of the source and are not below its root."""
        source = self._current.state.source
        declared = source.source.folders_elsewhere if source is not None else ()
        return sorted({*declared, *(split(path)[0] for path in self.view.covered if is_absolute(path))})

    @property
    def at_hand(self) -> AtHand:
        """The memory of the index at its current snapshot, which answers without a read."""
        return AtHand(self._lookup, self._current.state)

    def here(self) -> Self:
        """This index, pinned to its current snapshot, which later refreshes do not change. Caches are shared."""
        fixed = self._fixed
        if fixed is None or fixed._current.state is not self._current.state:
            fixed = self._with(self._current.pinned())
            fixed._fixed, self._fixed = None, fixed
        return fixed

    def at_newest_version(self) -> Self:
        """This index pinned to the newest version of its lake table (`gnomon.shadow.newest_version`). If the snapshot
        covers that version, or the index was opened without `newest`, it is pinned to its current snapshot."""
        return self.here() if self._newest is None else self._at_newest_version()

    def source_is_gone(self) -> bool:
        """Whether the source folder holds no file at all, as when a disk is not mounted. False for remote stores, whose
        listings are long."""
        return self._current.state.source_is_gone()

    def is_as_indexed(self, where: str) -> bool:
        """Whether the source file at this whole path exists and is the one that was indexed."""
        return self._current.state.is_as_indexed(where)

    def is_unchanged(self, opened: Mapping[str, Identity]) -> bool:
        """Whether source files, by their name in pointers with the identity that they had (`FetchReads.opened`), exist
        and are unchanged, so that a read would give the same rows again. StorageError where the store fails."""
        state = self._current.state
        files, fetcher = state.view.covered, state.fetcher
        if fetcher is None:
            return not opened
        return all(path in files and fetcher.files.is_unchanged(files[path], known) for path, known in opened.items())

    def coverage(self) -> Diff:
        """List the source and compare it with the snapshot. For a catalog table, this lists the folders that the last
        build found in the catalog; only the next build sees new partitions. The table that the files belong to (Delta,
        Iceberg ...) is looked up, too. Empty for an index without a source."""
        return self._current.state.coverage()

    def cache_counts(self) -> dict[str, CacheCounts]:
        """The hits, misses and bytes of each cache in memory."""
        counts = self._lookup.cache_counts
        fetcher = self._current.state.fetcher
        return counts if fetcher is None else {**counts, **fetcher.files.cache_counts}

    def check(self, keys: Sequence[object], columns: Sequence[str] | None, where: Mapping[str, object] | None) -> None:
        """Raise UsageError or KeyTypeError for an invalid query; nothing is read."""
        self._check(keys, columns, where)

    def partitions_asked(self, key: object, where: Mapping[str, object] | None = None) -> list[str]:
        """The partitions that a look-up of the key searches."""
        view = self._current.state.view
        return list(view.partitions_of(view.where(where), parse_key(key, view.spec).where))

    def answer(self, query: Query) -> list[Answer | Exception]:
        """The answer of each key of a query: like `answer_each` if the query has `each`, else like `answer_many`."""
        return self._answers(query)

    def table(self, query: Query) -> pa.Table:
        """The answer to a query in the form of `table_many`."""
        return self._table(query)

    def first_page(self, asked: RangeQuery, query: Query) -> FirstPage[list[dict[str, Any]]]:
        """The first `limit` rows of a range, which has a limit, with the columns, stats, bounds and memory of a query
        without keys. BeyondBound where they exceed the bounds."""
        return self._first_page(
            asked, query, lambda state, found: rows_of_hits(state, found, query), Ahead(query.stats)
        )

    def first_table(self, asked: RangeQuery, query: Query) -> FirstPage[pa.Table]:
        """As `first_page`, in Arrow, in the types of `table_many`."""

        def tabled(state: State, found: Found) -> pa.Table:
            return without_number(table_of_hits(state, found, query))

        return self._first_page(asked, query, tabled, Ahead(query.stats))

    def has_any(self, asked: RangeQuery, stats: FetchStats) -> bool:
        """Whether a covered row is in a range, from the index alone."""
        page = self._first_page(replace(asked, limit=1), Query([], stats), lambda state, found: None, None)
        return page.row_count > 0

    def _first_page(
        self, asked: RangeQuery, query: Query, make: Callable[[State, Found], Result], ahead: Ahead | None
    ) -> FirstPage[Result]:
        """The first rows of a range, made from their hits, with source files opened `ahead`. Another entry than these
        is looked for, and not read."""
        limit, stats = asked.limit, query.stats
        assert limit is not None

        def read(state: State) -> tuple[FirstPage[Result], bool]:
            start, view = time.perf_counter_ns(), state.view
            entries = asked.entries(self._lookup, view)
            if query.reserve is not None:
                query.reserve(entries.bytes_at_once)
            if ahead is not None and state.fetcher is not None:
                ahead.begin(state.fetcher, view.spec, entries.files)
            table = next(entries.pages(limit + 1, limit + 1), None)
            cut = None if table is None else table.slice(0, limit)
            found = Found(view, *(([], []) if cut is None else entries.hits(cut)))
            cursor = None if not cut else entries.cursor(cut)
            stats.snapshot = view.snapshot.number
            stats.index.add(entries.cost)
            stats.add_lookup(start)
            count = 0 if cut is None else len(cut)
            is_last = table is None or len(table) == count
            return FirstPage(make(state, found), count, len(found.wanted), is_last, cursor), False

        try:
            return self._current.answer(read)
        finally:
            if ahead is not None:
                ahead.end()

    def find(self, keys: Sequence[ParsedKey], stats: LookupStats) -> Sequence[Sequence[Hit]]:
        """The hits of each key, from the index alone."""
        return Search(self._lookup, self._current.state.view, keys).find(stats)

    def match_pieces(
        self,
        keys: pa.RecordBatch,
        within: Mapping[str, pa.Array],
        stats: MatchStats,
        null_safe: bool = False,
        threads: int = 1,
    ) -> Iterator[Matches]:
        """Yield the entries of many keys as Arrow batches, in the order of the index files: a key may have any number
        of them. `keys` holds the stored key columns in key order, in the types of the spec; `within` the values that
        each key's partition must have. A null matches nulls if `null_safe`, else nothing. Up to `threads` threads
        search index files."""
        matcher = Matcher(self._lookup, self._current.state.view, stats, threads)
        return matcher.pieces(keys.columns, within, null_safe)

    def holds(
        self, keys: pa.RecordBatch, within: Mapping[str, pa.Array], stats: MatchStats, threads: int = 1
    ) -> pa.BooleanArray:
        """Whether each of many keys has an entry; nulls equal nulls. No values are read. Up to `threads` threads search
        index files."""
        return pa.array(Matcher(self._lookup, self._current.state.view, stats, threads).holds(keys.columns, within))

    def source_files_of(
        self, keys: Sequence[Sequence[Any]], stats: MatchStats, masked: bool = True
    ) -> dict[str, list[int]]:
        """The source files that have any of some keys, by path, with the places of these keys. A key has the values of
        the key's columns in order, partition columns too, in stored form; nulls equal nulls. Not `masked`: rows that
        the index knows as deleted count, too."""
        columns = self.spec.keys
        arrays = {one.name: stored_array([key[i] for key in keys], one.type) for i, one in enumerate(columns)}
        own = [arrays.pop(one.name) for one in self.spec.stored_keys]
        view = self._current.state.view
        matcher = Matcher(self._lookup, view if masked else view.unmasked, stats)
        found: dict[str, dict[int, None]] = {}
        for piece in matcher.pieces(own, arrays, null_safe=True):
            named = piece.entries.column(FILENAME).dictionary_encode()
            pairs = np.unique(named.indices.to_numpy().astype(np.int64) * len(keys) + piece.rows.to_numpy())
            for code, place in zip(*np.divmod(pairs, len(keys)), strict=True):
                found.setdefault(named.dictionary[int(code)].as_py(), {})[int(place)] = None
        return {path: list(places) for path, places in found.items()}

    def scan(
        self,
        file: SegmentFile,
        columns: Sequence[EntryColumn],
        partitions: Collection[str],
        stats: LookupStats,
        ranges: Sequence[Range] | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """The live entries of an index file in these partitions, in key order; with `ranges` of keys only theirs."""
        return scan_entries(self._storage, self.spec, file, columns, partitions, stats, ranges)

    def distinct_rows(
        self, stats: LookupStats, included: bool = False, in_bucket: Callable[[int], bool] | None = None
    ) -> Iterator[Piece]:
        """The distinct keys, or rows of key and included columns, of the current snapshot, from the index alone.
        SnapshotNotFound where a vacuum removes it."""
        view = self._current.state.view
        try:
            yield from distinct_rows(self._lookup, view, stats, included, in_bucket)
        except IndexFileGone:
            self._check_present(view)
            raise

    def values(self, columns: Sequence[EntryColumn], stats: LookupStats) -> Iterator[pa.RecordBatch]:
        """Yield some columns of all live entries of the current snapshot, each index file proved before it is read.
        Errors as of `distinct_rows`."""
        view = self._current.state.view
        try:
            for files in view.index_files.values():
                for file in files:
                    prove_index_file(self._storage, view.spec, file.file)
                    yield from self.scan(file, columns, view.snapshot.partitions.keys(), stats)
        except IndexFileGone:
            self._check_present(view)
            raise

    def _check_present(self, view: View) -> None:
        """Raise SnapshotNotFound where a vacuum removed the snapshot of a view."""
        with looking_again():
            read_snapshot(self._storage, view.snapshot.number)

    @property
    def files(self) -> IndexedFiles:
        """The source files, to read rows by pointers."""
        return IndexedFiles(self._current)

    def schemas(self, names: Sequence[str]) -> Iterator[tuple[str, pa.Schema]]:
        """Yield source files with their schemas, newest segment first, until these together give each of `names` a
        type. Files that changed, are gone or cannot be read are skipped. SourceError of the last such file where no
        readable file has one of the columns."""
        return self._current.state.schemas(names)
