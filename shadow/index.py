"""An open index: what a program holds to answer keys."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Self

import pyarrow as pa

from btree.reader import LookupStats
from shadow.errors import SourceError, StalePointer, UsageError
from shadow.fetch import Answer, Bounds, Fetcher, FetchReads, FetchStats, Found, Rows, answer_table, answers
from shadow.lookup import (
    Bound,
    EntryColumn,
    Hit,
    Matcher,
    Matches,
    MatchStats,
    Wanted,
    entry_rows,
    parse_key,
    scan_entries,
)
from shadow.metadata import IndexFileEntry, Segment, SourceFileEntry, open_view, source_of
from shadow.opened import CACHE_BYTES, OpenIndex, State
from shadow.storage import Place, join, storage_at
from sources import Numbers, Pointer


class Index(OpenIndex):
    """An index at one snapshot, until `refresh` moves it to the newest. Safe to share between threads.

    Errors: UsageError and KeyTypeError for what was asked; StalePointer when the source changed; the others of
    `shadow.errors` when index or source are damaged or gone."""

    def __repr__(self) -> str:
        view = self.view
        keys = ", ".join(column.name for column in view.spec.keys)
        return f"<Index {self.location}: snapshot {view.snapshot.number}, {view.snapshot.rows:,} rows by {keys}>"

    def __contains__(self, key: object) -> bool:
        """`contains`, of all partitions."""
        return self.contains(key)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing has to be closed: files are open only while they are read."""

    def check(self, keys: Sequence[object], columns: Sequence[str] | None, where: Mapping[str, object] | None) -> None:
        """Raise UsageError or KeyTypeError when a question cannot be asked; nothing is read.

        `where` gives partition columns a value, or a list of values of which any counts. PartitionNotFound, which is a
        UsageError, names a value that no partition has: here, and wherever a method takes `where`."""
        view = self._state.view
        for key in keys:
            parse_key(key, view.spec)
        self._columns(view, columns)
        view.where(where)

    def partitions_asked(self, key: object, where: Mapping[str, object] | None = None) -> list[str]:
        """The partitions in which a look-up of the key looks."""
        view = self._state.view
        return list(view.partitions_of(view.where(where), parse_key(key, view.spec).where))

    def lookup(self, key: object, where: Mapping[str, object] | None = None) -> list[Pointer]:
        """The pointers of a key's rows, from the index alone."""
        if self.spec.holds_values:
            raise UsageError("a key-value folder has no pointers; read its rows by get", self.location)
        return [hit.pointer for hit in self._find([key], where, FetchStats())[1].hits[0]]

    def contains(self, key: object, where: Mapping[str, object] | None = None, stats: FetchStats | None = None) -> bool:
        """Whether a covered row has this key, from the index alone."""
        one = Bound(hits=1)
        return bool(self._find([key], where, stats if stats is not None else FetchStats(), one)[1].hits[0].matches)

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
        """The first `limit` entries of a key, from the index alone. In a key-value folder they are all that `fetch`
        gives; else each has the key, the included columns, the partition columns and the pointer. Bounds as of
        `answer_many`."""
        stats = stats if stats is not None else FetchStats()
        bounds = Bounds(most_rows, most_bytes)
        _, found = self._find([key], where, stats, _kept(limit, bounds))
        rows = Rows(found, [], limit, bounds, stats, each=False)
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
        """The rows of each key, in the order asked. Pages shared by several rows are read once."""
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
        """The first `limit` rows of each key, in the order asked, and how many it has. No more rows are read.

        BeyondBound where all of them together are more than `most_rows`, or take more than `most_bytes` in memory:
        before they are all there."""
        bounds = Bounds(most_rows, most_bytes)
        return [_raised(answer) for answer in self._answered(keys, columns, where, limit, stats, bounds, each=False)]

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
        """As `answer_many`, but of a key that has no answer the error in its place: a file that it lies in is damaged,
        changed or gone (`shadow.errors.OF_ONE_FILE`), or its rows are more than the answer takes. A key that is too
        large by itself leaves its room to those behind it. All is from one snapshot; what fails for all of them is
        raised."""
        bounds = Bounds(most_rows, most_bytes)
        return self._answered(keys, columns, where, limit, stats, bounds, each=True)

    def _answered(
        self,
        keys: Sequence[object],
        columns: Sequence[str] | None,
        where: Mapping[str, object] | None,
        limit: int | None,
        stats: FetchStats | None,
        bounds: Bounds,
        each: bool,
    ) -> list[Answer | Exception]:
        stats = stats if stats is not None else FetchStats()

        def answered(state: State, found: Found) -> list[Answer | Exception]:
            names = self._columns(found.view, columns)
            return answers(found, state.fetcher, names, limit, bounds, stats, each)

        return self._with_found(keys, where, stats, _kept(limit, bounds), each, answered)

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
        """The first `limit` rows of each key as Arrow, one key after the other (`shadow.fetch.result_tables`). Bounds
        and errors as of `answer_many`."""
        stats = stats if stats is not None else FetchStats()
        bounds = Bounds(most_rows, most_bytes)

        def tabled(state: State, found: Found) -> pa.Table:
            names = self._columns(found.view, columns)

            def schemas(missing: Sequence[str]) -> Iterator[pa.Schema]:
                return (schema for _, schema in self._schemas(state, missing))

            rows = Rows(found, names, limit, bounds, stats, each=False)
            return answer_table(found, state.fetcher, names, rows, schemas)

        return self._with_found(keys, where, stats, _kept(limit, bounds), False, tabled)

    # -- for jobs, which group and order the work themselves ---------------------------------------------------------

    def find(self, keys: Sequence[Wanted], stats: LookupStats) -> Sequence[Sequence[Hit]]:
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
        """The live entries of an index file, of these partitions, in key order."""
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

    def schemas(self, names: Sequence[str]) -> Iterator[tuple[str, pa.Schema]]:
        """Yield source files with their schemas, newest segment first, until these together give each of `names` a
        type. Files that changed, are gone or cannot be read are passed over. SourceError, that of the last such file,
        where no readable file has one of the columns."""
        return self._schemas(self._state, names)

    def _schemas(self, state: State, names: Sequence[str]) -> Iterator[tuple[str, pa.Schema]]:
        fetcher, source = self._fetcher(state), source_of(state.view.spec)
        wanted = set(names) - set(state.view.spec.partitions)
        failed: SourceError | None = None
        for file in reversed(state.view.covered.values()):
            if not wanted:
                return
            try:
                schema = fetcher.metadata(file).schema
            except SourceError as error:
                failed = error
                continue
            typed = {field.name for field in schema if not pa.types.is_null(field.type)}
            if wanted & typed:
                wanted -= typed
                yield join(source.storage.root, file.path), schema
        if wanted and failed is not None:
            raise failed

    def _fetcher(self, state: State) -> Fetcher:
        if state.fetcher is None:
            raise UsageError("a key-value folder, which has no source", self.location)
        return state.fetcher


def _kept(limit: int | None, bounds: Bounds) -> Bound:
    """What of each key's hits can be part of an answer."""
    most = [number for number in (limit, bounds.rows) if number is not None]
    return Bound(min(most, default=None), bounds.bytes)


def _raised(answer: Answer | Exception) -> Answer:
    """An answer of many that are had all or not at all. What fails was raised before; if not, it is not left out."""
    if isinstance(answer, Exception):
        raise answer
    return answer


def _covered(state: State, path: str) -> SourceFileEntry:
    """The file by its name in pointers. StalePointer where the snapshot does not cover it."""
    file = state.view.covered.get(path)
    if file is None:
        number, root = state.view.snapshot.number, source_of(state.view.spec).storage.root
        message = f"snapshot {number} of the index does not cover this file; take pointers from this index as it is now"
        raise StalePointer(message, join(root, path))
    return file


def open_index(
    location: Place,
    snapshot: int | None = None,
    cache_bytes: int = CACHE_BYTES,
    filters: bool = True,
    page_maps: bool = True,
    keep_pages: bool = True,
) -> Index:
    """Open the index at a path or URL, at its newest snapshot or at the one asked for. With `filters=False` Bloom
    filters are not read, with `page_maps=False` recorded page maps are not: the same answers, at more cost.
    `keep_pages=False` is for who reads each page of the source once: none is kept.

    IndexNotFound, SnapshotNotFound, NewerFormat or DamagedMetadata say why it cannot be opened."""
    storage = storage_at(location)
    return Index(
        storage, open_view(storage, snapshot), snapshot is not None, cache_bytes, filters, page_maps, keep_pages
    )
