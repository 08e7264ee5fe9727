"""An open index, which answers keys."""

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Generic, NamedTuple, Self, TypeVar, cast

import pyarrow as pa

from gnomon.btree.blocks import LookupStats
from gnomon.shadow.current_snapshot import (
    CACHE_BYTES,
    DEFAULT_SETTINGS,
    CurrentSnapshot,
    NewestCheck,
    ReadSettings,
    State,
    known_view,
)
from gnomon.shadow.errors import IndexFileGone, SnapshotNotFound, UsageError
from gnomon.shadow.fetch import (
    Ahead,
    Answer,
    Bounds,
    FetchStats,
    Found,
    Query,
    Rows,
    answer_table,
    answers,
)
from gnomon.shadow.lookup import (
    DEFAULTS,
    Cursor,
    Hits,
    KeyStatistics,
    Lookup,
    LookupOptions,
    OrderedEntries,
    ParsedKey,
    RangeQuery,
    Search,
    entry_rows,
    key_statistics,
    parse_key,
    parse_keys,
)
from gnomon.shadow.metadata import (
    UNCHANGING,
    View,
    check_number,
    open_view,
    read_snapshot,
    snapshot_of_version,
)
from gnomon.shadow.newest_version import LayeredStorage, NewestVersion, ReadThroughLimits, check_has_versions
from gnomon.shadow.storage import (
    DiskCache,
    Place,
    Storage,
    disk_cache,
    join,
    looking_again,
    source_storage,
    storage_at,
    through,
)
from gnomon.shadow.values import given_keys
from gnomon.sources import Pointer, detect

NUMBERED = ("parquet", "orc")  # formats whose pointers are row numbers
MOST_FILTERS = 64  # filters of a key: more take long to check


FIRST = LookupOptions(most_hits=1)
PAGE_ROWS = 1000  # of a range, read together
Result = TypeVar("Result")


class RangePage(NamedTuple):
    """Rows in key order, and the cursor after the last of them; None in a key-value folder."""

    rows: list[dict[str, Any]]
    cursor: str | None


class FirstPage(NamedTuple, Generic[Result]):
    """The first rows of a range, their number and that of their keys, whether no other row follows, and the cursor
    after the last of them; None in a key-value folder, or without rows."""

    rows: Result
    row_count: int
    key_count: int
    is_last: bool
    cursor: Cursor | None


class Index:
    """An index at one snapshot, until `refresh` moves it to the newest. Safe to share between threads.

    Errors: UsageError and KeyTypeError for an invalid query; StalePointer when the source changed; others of
    `gnomon.shadow.errors` when the index or the source is damaged or gone."""

    def __init__(
        self,
        storage: Storage,
        view: View,
        pinned: bool,
        settings: ReadSettings = DEFAULT_SETTINGS,
        check: NewestCheck | None = None,
    ) -> None:
        self._newest: NewestVersion | None = None
        if settings.newest is not None:
            layered = LayeredStorage(storage)
            storage, self._newest = cast(Storage, layered), NewestVersion(layered, settings.newest)
        self._storage = storage
        self._cache_bytes = settings.cache_bytes
        self._lookup = Lookup(storage, settings.cache_bytes // 2, settings.filters)
        self._current = CurrentSnapshot(storage, view, pinned, settings, check)
        self._settings = settings

    def __repr__(self) -> str:
        view = self._view
        keys = ", ".join(column.name for column in view.spec.keys)
        return f"<Index {self.location}: snapshot {view.snapshot.number}, {view.snapshot.rows:,} rows by {keys}>"

    def __len__(self) -> int:
        """The number of live rows that the snapshot covers."""
        return self._view.snapshot.rows

    def __bool__(self) -> bool:
        """True: an index of no rows is an index."""
        return True

    def __fspath__(self) -> str:
        """Its place, so that a job takes an open index for a path."""
        return self.location

    def __reduce__(self) -> Any:
        """A copy in another process, or of `copy.deepcopy`, is opened where it lands, with the credentials that are
        there, at the same snapshot. If a vacuum has removed it, and no number was asked for, the copy has the newest
        snapshot. With `newest` it has the version of the table that is the newest then."""
        current = self._current
        number = self.snapshot if self._settings.newest is None else None
        return _opened_again, (type(self), self.location, number, current.is_pinned, self._settings)

    def __contains__(self, key: object) -> bool:
        """`contains` in all partitions."""
        return self.contains(key)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Save what fetches learned about source pages, if there is a cache folder. There is nothing else to close:
        files are open only while they are read."""
        self._current.save_maps()

    @property
    def location(self) -> str:
        """The path or URL of the index."""
        return self._storage.root

    @property
    def snapshot(self) -> int:
        """The number of the snapshot that answers."""
        return self._view.snapshot.number

    @property
    def keys(self) -> list[str]:
        """The names of the key's columns, in order."""
        return [column.name for column in self._view.spec.keys]

    @property
    def columns(self) -> list[str]:
        """The names of the columns that `fetch` returns."""
        return list(self._view.columns)

    def _with(self, current: CurrentSnapshot) -> Self:
        """This index at another state. Caches are shared."""
        made = type(self).__new__(type(self))
        made.__dict__.update(self.__dict__, _current=current)
        return made

    def _at_newest_version(self) -> Self:
        """This index pinned to the newest version of its lake table, if it was opened with `newest`; else to its
        snapshot. It is its snapshot, too, that covers the version."""
        if self._newest is None:
            return self._with(self._current.pinned())
        return self._with(self._current.pinned_to(self._newest.view(self._view)))

    @property
    def _view(self) -> View:
        return self._current.state.view

    def refresh(self) -> bool:
        """Move to the newest snapshot. Returns whether there was a newer one. An index opened at a number stays
        there."""
        return self._current.refresh()

    def lookup(self, key: object, where: Mapping[str, object] | None = None) -> list[Pointer]:
        """The pointers of a key's rows, from the index alone."""
        self._view.spec.entries.check_source("a key-value folder has no pointers; read its rows by get", self.location)
        return [hit.pointer for hit in self._hits(key, where, DEFAULTS, None)]

    def positions(
        self, keys: Sequence[object], where: Mapping[str, object] | None = None
    ) -> list[list[tuple[str, int]]]:
        """For each key, the file and the row number of each of its rows, from the index alone. UsageError where the
        rows of a file have no numbers. An Iceberg table may have files of several formats, so that the first bytes of
        its files are read."""
        source, formats = source_storage(self._view.spec.source.location), {"": self._view.spec.format}
        found = [[(one.data_filename, one.data_offset) for one in self.lookup(key, where)] for key in keys]
        if self._view.spec.source.table.startswith("iceberg:"):
            for path in {path for rows in found for path, _ in rows}:
                with source.open(path) as reader:
                    formats[path] = detect(reader)
        for path, format in formats.items():
            if format not in NUMBERED:
                what = f"rows of {format} files have no numbers"
                raise UsageError(what, join(source.root, path), expected="Parquet or ORC")
        return [[(join(source.root, path), row) for path, row in rows] for rows in found]

    def contains(self, key: object, where: Mapping[str, object] | None = None, stats: FetchStats | None = None) -> bool:
        """Whether a covered row has this key, from the index alone."""
        return self._hits(key, where, FIRST, stats).matches > 0

    def get(
        self,
        key: object,
        columns: Sequence[str] | None = None,
        where: Mapping[str, object] | None = None,
        stats: FetchStats | None = None,
        limit: int | None = None,
        most_rows: int | None = None,
        most_bytes: int | None = None,
    ) -> list[dict[str, Any]]:
        """The first `limit` entries of a key, from the index alone. In a key-value folder they are the rows of `fetch`;
        elsewhere each has the key, the included columns, the partition columns and the pointer. Limits as in
        `answer_many`."""
        query = Query([key], stats or FetchStats(), where, limit=limit, bounds=Bounds(most_rows, most_bytes))
        found = self._found(query)
        rows = Rows(found, [], query)
        rows.within_bytes()
        return entry_rows(found.view, found.wanted, [rows.hits(0)], columns)[0]

    def fetch(
        self,
        key: object,
        columns: Sequence[str] | None = None,
        where: Mapping[str, object] | None = None,
        stats: FetchStats | None = None,
        limit: int | None = None,
    ) -> list[dict[str, Any]]:
        """All rows with this key, or the first `limit` of them; an empty list when no covered file has one.

        `index.fetch("https://example.org/", columns=["status"], where={"dt": "2026-01-01"})`"""
        return self.answer_many([key], columns, where, limit, stats)[0].rows

    def fetch_many(
        self,
        keys: Sequence[object],
        columns: Sequence[str] | None = None,
        where: Mapping[str, object] | None = None,
        stats: FetchStats | None = None,
    ) -> list[list[dict[str, Any]]]:
        """The rows of each key, in the order of `keys`. Pages shared by several rows are read once."""
        return [answer.rows for answer in self.answer_many(keys, columns, where, stats=stats)]

    def answer_many(
        self,
        keys: Sequence[object],
        columns: Sequence[str] | None = None,
        where: Mapping[str, object] | None = None,
        limit: int | None = None,
        stats: FetchStats | None = None,
        most_rows: int | None = None,
        most_bytes: int | None = None,
    ) -> list[Answer]:
        """The first `limit` rows of each key, in the order of `keys`, and its number of rows. Only these rows are read.

        BeyondBound where all of them together are more than `most_rows`, or take more than `most_bytes` in memory. It
        is raised before all of them are read."""
        query = Query(keys, stats or FetchStats(), where, columns, limit, Bounds(most_rows, most_bytes))
        return [_raised(answer) for answer in self._answers(query)]

    def answer_each(
        self,
        keys: Sequence[object],
        columns: Sequence[str] | None = None,
        where: Mapping[str, object] | None = None,
        limit: int | None = None,
        stats: FetchStats | None = None,
        most_rows: int | None = None,
        most_bytes: int | None = None,
    ) -> list[Answer | Exception]:
        """Like `answer_many`, but a key that fails has its error in place of an answer. It fails if one of its files is
        damaged, changed or gone (`gnomon.shadow.errors.OF_ONE_FILE`), or if its rows exceed the limits. A key that is
        too large alone takes no space from the keys after it. All answers are from one snapshot; an error of all keys
        is raised."""
        bounds = Bounds(most_rows, most_bytes)
        return self._answers(Query(keys, stats or FetchStats(), where, columns, limit, bounds, each=True))

    def table_many(
        self,
        keys: Sequence[object],
        columns: Sequence[str] | None = None,
        where: Mapping[str, object] | None = None,
        limit: int | None = None,
        stats: FetchStats | None = None,
        most_rows: int | None = None,
        most_bytes: int | None = None,
    ) -> pa.Table:
        """The first `limit` rows of each key as Arrow, one key after the other (`gnomon.shadow.fetch.result_tables`).
        Limits and errors as in `answer_many`."""
        return self._table(Query(keys, stats or FetchStats(), where, columns, limit, Bounds(most_rows, most_bytes)))

    # -- keys in order -------------------------------------------------------------------------------------------------

    def range(
        self,
        low: object = None,
        high: object = None,
        *,
        prefix: object = None,
        inclusive: bool = False,
        where: Mapping[str, object] | None = None,
        reverse: bool = False,
        limit: int | None = None,
        after: str | None = None,
        columns: Sequence[str] | None = None,
        stats: FetchStats | None = None,
    ) -> Iterator[dict[str, Any]]:
        """The rows from key `low` to before key `high`, with `inclusive` to `high`, or those with a prefix, in the
        order of keys.

        `index.range(prefix="https://example.org/", limit=100)`; of a key of several columns a bound is a tuple of its
        first values: `index.range((4711, "2026-06-01"), (4711, "2026-07-01"))`. Nulls come first. Rows with one key
        have the order of their files' paths, then of their places in the file. All rows are of one snapshot:
        SnapshotNotFound where a vacuum removes it after the first page."""
        asked = RangeQuery(low, high, prefix, inclusive, where, reverse, limit, after)
        for page in self.range_pages(asked, columns, stats):
            yield from page.rows

    def count(self, low: object = None, high: object = None, **options: Any) -> int:
        """The number of rows of a range, from the index alone; `options` are `prefix`, `inclusive` and `where` of
        `range`."""
        asked = RangeQuery(low, high, **options)
        return self._current.answer(lambda state: (asked.entries(self._lookup, state.view).count(), False))

    def statistics(self, stats: FetchStats | None = None) -> KeyStatistics:
        """The least and the greatest key, the number of distinct keys, of rows with a null in the key, and the most
        frequent keys: exact, by one scan of the index alone."""
        cost = (stats or FetchStats()).index
        return self._current.answer(lambda state: (key_statistics(self._lookup, state.view, cost), False))

    def range_pages(
        self, asked: RangeQuery, columns: Sequence[str] | None = None, stats: FetchStats | None = None
    ) -> Iterator[RangePage]:
        """The rows of a range in pages of PAGE_ROWS rows."""
        self._check([], columns, asked.where)
        query = Query([], stats or FetchStats(), columns=columns)
        for state, found, cursor in self._ordered(asked, query.stats):
            yield RangePage(rows_of_hits(state, found, query), cursor)

    def range_tables(
        self, asked: RangeQuery, columns: Sequence[str] | None = None, stats: FetchStats | None = None
    ) -> Iterator[pa.Table]:
        """The rows of a range in Arrow tables of PAGE_ROWS rows, whose types may differ as those of `table_many`."""
        self._check([], columns, asked.where)
        query = Query([], stats or FetchStats(), columns=columns)
        for state, found, _ in self._ordered(asked, query.stats):
            yield without_number(table_of_hits(state, found, query))

    def entry_tables(self, asked: RangeQuery, stats: FetchStats | None = None) -> Iterator[pa.Table]:
        """The entries of a range in Arrow tables of up to PAGE_ROWS rows, from the index alone: the key in the types of
        the index, the included columns, in a flat index the partition columns, and the pointer."""
        for state, entries, table in self._entries(asked, stats or FetchStats()):
            spec = state.view.spec
            stored = [column.name for column in (*spec.stored_keys, *spec.include)]
            names = [*stored, *spec.stored_partitions, *(column.name for column in spec.entries.pointer_columns)]
            yield table.select(entries.columns).rename_columns(names)

    def _ordered(self, asked: RangeQuery, stats: FetchStats) -> Iterator[tuple[State, Found, str | None]]:
        """The hits of a range, in pages, each with its cursor."""
        start = time.perf_counter_ns()
        for state, entries, table in self._entries(asked, stats):
            stats.snapshot = state.view.snapshot.number
            cursor = entries.cursor(table)
            found = Found(state.view, *entries.hits(table))
            stats.add_lookup(start)
            yield state, found, None if cursor is None else cursor.text(state.view.spec)
            start = time.perf_counter_ns()

    def _entries(self, asked: RangeQuery, stats: FetchStats) -> Iterator[tuple[State, OrderedEntries, pa.Table]]:
        """The entries of a range in tables of PAGE_ROWS, all of the snapshot of the first table."""
        check_number("limit", asked.limit)

        def begun(state: State) -> tuple[tuple[State, OrderedEntries, Iterator[pa.Table], pa.Table | None], bool]:
            entries = asked.entries(self._lookup, state.view)
            tables = entries.pages(asked.limit, PAGE_ROWS)
            return (state, entries, tables, next(tables, None)), False

        state, entries, tables, table = self._current.answer(begun)
        while table is not None:
            yield state, entries, table
            try:
                table = next(tables, None)
            except IndexFileGone:
                with looking_again():
                    read_snapshot(self._storage, state.view.snapshot.number)  # raises SnapshotNotFound after a vacuum
                raise
        stats.index.add(entries.cost)

    # -- one query -----------------------------------------------------------------------------------------------------

    def _check(self, keys: Sequence[object], columns: Sequence[str] | None, where: Mapping[str, object] | None) -> None:
        """Raise UsageError or KeyTypeError for an invalid query; nothing is read.

        `where` gives partition columns a value, or a list of values of which one must match. Each method with `where`
        raises PartitionNotFound, a UsageError, for a value that no partition has."""
        view = self._view
        parse_keys(given_keys(keys), view.spec)
        view.checked_columns(columns)
        view.where(where)

    def _answers(self, query: Query) -> list[Answer | Exception]:
        """The answer of each key of a query: like `answer_each` if the query has `each`, else like `answer_many`."""
        return self._answer(query, lambda state, found: answers(found, state.fetcher, query), Ahead(query.stats))

    def _table(self, query: Query) -> pa.Table:
        """The answer to a query in the form of `table_many`."""
        return self._answer(query, lambda state, found: table_of_hits(state, found, query), Ahead(query.stats))

    def _answer(self, query: Query, make: Callable[[State, Found], Result], ahead: Ahead | None) -> Result:
        """Look up the keys of a query, open source files `ahead`, and make an answer from the hits."""

        def read(state: State) -> tuple[Result, bool]:
            found = self._find(state, query, ahead)
            return make(state, found), any(isinstance(hits.failure, IndexFileGone) for hits in found.hits)

        try:
            return self._current.answer(read)
        finally:
            if ahead is not None:
                ahead.end()

    def _found(self, query: Query) -> Found:
        """The hits of the keys of a query, from the index alone."""
        return self._answer(query, lambda _, found: found, None)

    def _hits(
        self, key: object, where: Mapping[str, object] | None, options: LookupOptions, stats: FetchStats | None
    ) -> Hits:
        """The hits of one key, from the index alone. A trace of `stats` is used."""
        if stats is not None and stats.trace is not None:
            options = options._replace(trace=stats.trace)

        def read(state: State) -> tuple[Hits, bool]:
            start = time.perf_counter_ns()
            return self._search(state, [parse_key(key, state.view.spec)], where, options, stats, start)[0], False

        return self._current.answer(read)

    def _find(self, state: State, query: Query, ahead: Ahead | None) -> Found:
        start, view, stats = time.perf_counter_ns(), state.view, query.stats
        opens = None if ahead is None or state.fetcher is None else partial(ahead.begin, state.fetcher, view.spec)
        wanted = parse_keys(query.keys, view.spec)
        options = LookupOptions(*query.most_of_a_key, query.each, stats.trace, opens)
        return Found(view, wanted, self._search(state, wanted, query.where, options, stats, start))

    def _search(
        self,
        state: State,
        keys: Sequence[ParsedKey],
        where: Mapping[str, object] | None,
        options: LookupOptions,
        stats: FetchStats | None,
        start_ns: int,
    ) -> list[Hits]:
        """The hits of each key, from the index alone, in a look-up that began then."""
        view = state.view
        cost = LookupStats() if stats is None else stats.index
        hits = Search(self._lookup, view, keys, view.where(where), options).find(cost)
        if state.fetcher is not None:
            state.fetcher.files.leave_to_pages(self._cache_bytes - self._lookup.cache_bytes)
        if stats is not None:
            stats.snapshot = view.snapshot.number
            stats.add_lookup(start_ns)
        return hits


def _schemas(state: State, missing: Sequence[str]) -> Iterator[pa.Schema]:
    return (schema for _, schema in state.schemas(missing))


def rows_of_hits(state: State, found: Found, query: Query) -> list[dict[str, Any]]:
    """The rows of hits, one key after the other."""
    return [row for answer in answers(found, state.fetcher, query) for row in _raised(answer).rows]


def table_of_hits(state: State, found: Found, query: Query) -> pa.Table:
    """The rows of hits in the form of `table_many`."""
    names = found.view.checked_columns(query.columns)
    return answer_table(found, state.fetcher, names, Rows(found, names, query), partial(_schemas, state))


def without_number(table: pa.Table) -> pa.Table:
    """The table without the number of each row's key."""
    return table.drop_columns([table.column_names[0]])


def _raised(answer: Answer | Exception) -> Answer:
    """The answer of a key in a query without `each`. Raises the error if it is one."""
    if isinstance(answer, Exception):
        raise answer
    return answer


def open_index(
    location: Place,
    snapshot: int | None = None,
    cache_bytes: int = CACHE_BYTES,
    filters: bool = True,
    page_maps: bool = True,
    keep_pages: bool = True,
    table_version: str | int | None = None,
    newest: bool = False,
    cache_folder: str | os.PathLike[str] | None = None,
    cache_folder_bytes: int | None = None,
) -> Index:
    """Open the index at a path or URL, at its newest snapshot or at the one asked for, by its number or, for the index
    of a Delta or Iceberg table, by the version of the table that it covers. `filters=False` reads no Bloom filters and
    `page_maps=False` no recorded page maps: the answers are the same, at more cost. `keep_pages=False` keeps no pages,
    for callers that read each page of the source once. `newest` answers as of the newest version of a lake table, also
    where the index does not cover it yet; IndexBehind where it is too far behind, UsageError for an index of files,
    which have no versions.

    `cache_folder` is a folder on a local disk that takes at most `cache_folder_bytes` (by default 1 GiB). It keeps what
    never changes, for later processes: of an index on a remote store its metadata and index files, of remote source
    files their metadata, and what fetches learn about the pages of Parquet files. The last is written at most every 30
    seconds, and at the end of a `with` block. An index that the folder knows is opened without a wait: that its
    snapshot is still the newest one is asked beside the first reads, and no answer is given before it is known. So
    the errors below may come with the first answer.

    IndexNotFound, SnapshotNotFound, NewerFormat or DamagedMetadata say why it cannot be opened."""
    disk = None if cache_folder is None else disk_cache(cache_folder, cache_folder_bytes)
    if table_version is not None:
        if snapshot is not None:
            raise UsageError("snapshot and table_version: expected one of them")
        snapshot = snapshot_of_version(_storage_of(location, disk), str(table_version))
    limits = ReadThroughLimits() if newest else None
    return opened_as(Index, location, snapshot, ReadSettings(cache_bytes, filters, page_maps, keep_pages, limits, disk))


Kind = TypeVar("Kind", bound=Index)


def opened_as(
    kind: type[Kind], location: Place, snapshot: int | None, settings: ReadSettings = DEFAULT_SETTINGS
) -> Kind:
    """An index of this class, as `open_index` opens it."""
    storage = _storage_of(location, settings.disk)
    check_number("snapshot", snapshot)
    view, check = (known_view(storage) if snapshot is None else None) or (open_view(storage, snapshot), None)
    index = kind(storage, view, snapshot is not None, settings, check)
    if settings.newest is None:
        return index
    check_has_versions(index._view, storage.root)
    return index._at_newest_version()


def _storage_of(location: Place, disk: DiskCache | None) -> Storage:
    return storage_at(location) if disk is None else through(disk, storage_at(location), UNCHANGING)


def _opened_again(kind: type[Kind], location: str, number: int | None, pinned: bool, settings: ReadSettings) -> Kind:
    """A copy of an index."""
    if number is None or pinned:
        return opened_as(kind, location, number, settings)
    storage = _storage_of(location, settings.disk)
    try:
        return kind(storage, open_view(storage, number), False, settings)
    except SnapshotNotFound:
        return opened_as(kind, location, None, settings)
