"""Pointers to rows, the second half of a load, and its counts.

A reader takes pointers in file order. It reads a page or block of several rows once, and decodes a row of several
pointers once."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from gnomon.base.errors import Action
from gnomon.jobs.load.batches import firsts, next_cut, numbers_of, row_bytes, slices, taken, without_nulls
from gnomon.shadow.errors import SourceError, StalePointer, UsageError
from gnomon.shadow.fetch import FetchReads
from gnomon.shadow.lookup import MatchStats
from gnomon.shadow.rows_of_files import RowsOfFiles
from gnomon.sources import NO_ROW, Numbers
from gnomon.sources.types import int64s


@dataclass
class LookupCounters:
    """Counts of the lookups of many keys: bytes, files and keys. Threads may not share them."""

    index_bytes: int = 0  # bytes read of index files and Bloom filters
    files_spared: int = 0  # ruled out by their Bloom filter; below, searches of other files in each way
    files_by_key: int = 0
    files_by_leaf: int = 0
    files_read_whole: int = 0
    keys: int = 0  # rows of the sample, and the rows that have an entry
    matched: int = 0

    def add(self, stats: MatchStats) -> None:
        """Add the counts of a lookup."""
        self.index_bytes += stats.bytes
        self.files_spared += stats.files_spared
        self.files_by_key += stats.files_by_key
        self.files_by_leaf += stats.files_by_leaf
        self.files_read_whole += stats.files_read_whole


@dataclass
class FetchCounters:
    """Counts of the fetches of rows: bytes, rows and tasks."""

    source_bytes: int = 0
    map_bytes: int = 0
    rows: int = 0
    unreadable: int = 0
    tasks: int = 0


@dataclass
class LoadCounters(LookupCounters, FetchCounters):
    """Counts of a load: of its lookups and its fetches."""


OURS = "__gnomon_"  # prefix of the temporary columns of a load
FILE, OFFSET, SUB_OFFSET, SIZE = "__gnomon_file", "__gnomon_offset", "__gnomon_sub_offset", "__gnomon_size"
ERROR = "data_error"  # column of errors with unreadable="report"
READ_BYTES = 16 << 20  # of decoded rows that are read at a time; at most twice as many
OUT_BYTES = 16 << 20  # of rows in a batch of the answer
FIRST_GROWTH = 4.0  # decoded bytes per byte in the file: a guess until some rows were read


class InType(Protocol):
    """The conversion of a column of a source file to the type of the answer."""

    def __call__(self, array: pa.Array, name: str, rows: pa.Array, path: str) -> pa.Array:
        """A column in the type of the answer. `rows` has the offset of each value in the file, for the error about a
        value that does not fit."""
        ...


@dataclass(frozen=True)
class OutputColumns:
    """The columns of the answer. `given`: the columns of the pointers to keep. `payload`: the columns to read. `keys`:
    the columns of the pointers with the expected keys, by key column. `schema` has the types of all columns; with
    `report` a column of errors comes last. `in_type` converts columns of the payload."""

    given: Sequence[str]
    payload: Sequence[str]
    keys: Mapping[str, str]
    schema: pa.Schema
    report: bool
    in_type: InType


class RowReader:
    """Reads the rows of runs of pointers, each into one file. A run has the columns FILE, OFFSET, SUB_OFFSET and SIZE,
    is sorted by these, and has the columns that `OutputColumns` names."""

    def __init__(self, files: RowsOfFiles, output: OutputColumns, counters: FetchCounters) -> None:
        self._files = files
        self._output = output
        self._counters = counters
        self._target = output.schema
        self._stored = files.key_types
        self._growth = FIRST_GROWTH

    def rows(self, run: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yield a run (pointers into one file, or no pointers) with its rows, as batches of the answer."""
        if not run.column(FILE)[0].is_valid:
            yield from self._answer(run, self._nulls(1), np.zeros(run.num_rows, np.int64), None)
            return
        wanted = _FileRows(run)
        failed, lost = self._translated(wanted)
        if lost.any():
            is_lost = lost[wanted.places]
            pointers = wanted.pointers[~lost]
            rest, run = run.filter(pa.array(is_lost)), run.filter(pa.array(~is_lost))
            error = _FileRows(rest).error_texts(str(self._no_row(wanted.path)), range(rest.num_rows))
            yield from self._answer(rest, self._nulls(1), np.zeros(rest.num_rows, np.int64), error)
            if not run.num_rows:
                return
            wanted = _FileRows(run)
            wanted.pointers = pointers
        failed = failed or self._prepared(wanted)
        begin = 0
        while begin < wanted.rows:
            if failed is None:
                end = next_cut(wanted.cumulative_bytes(self._files), wanted.units, begin, READ_BYTES / self._growth)
                pieces = self._read(wanted, begin, end)
            else:
                end, pieces = wanted.rows, iter([(begin, wanted.rows, failed)])
            for low, high, found in pieces:
                rows, places = wanted.within(low, high)
                if isinstance(found, str):
                    nulls = self._nulls(high - low)
                    yield from self._answer(
                        run.slice(rows.start, len(places)), nulls, places, wanted.error_texts(found, rows)
                    )
                else:
                    yield from self._answer(run.slice(rows.start, len(places)), found, places, None)
            begin = end

    def _translated(self, wanted: "_FileRows") -> tuple[str | None, NDArray[np.bool_]]:
        """Translate Dione's pointers. Returns the error where the file cannot be opened, and for each pointer whether
        it leads to no row; without `report`, StalePointer for the first such pointer."""
        none = np.zeros(wanted.rows, np.bool_)
        if not wanted.is_of_dione:
            return None, none
        try:
            found = self._files.from_dione(wanted.path, wanted.pointers)
        except SourceError as error:
            if not self._output.report:
                raise
            return str(error), none
        lost = found[:, 0] == NO_ROW
        if lost.any() and not self._output.report:
            group, row = wanted.pointers[np.argmax(lost)].tolist()
            raise self._no_row(wanted.path, f"{row} in row group {group}")
        wanted.pointers = found
        return None, lost

    def _no_row(self, path: str, which: str = "there") -> StalePointer:
        return StalePointer(f"no row {which}", self._files.location(path), action=Action.FRESH_POINTERS)

    def _prepared(self, wanted: "_FileRows") -> str | None:
        """Set the read units of `wanted`. Returns the error where the file cannot be opened."""
        stats = FetchReads()
        try:
            wanted.units = self._files.units(wanted.path, wanted.pointers[:, 0], stats)
        except SourceError as error:
            if not self._output.report:
                raise
            return str(error)
        finally:
            self._count(stats)
        return None

    def _read(self, wanted: "_FileRows", begin: int, end: int) -> Iterator[tuple[int, int, list[pa.Array] | str]]:
        """Yield `(begin, end, columns or error)` for ranges of rows. Rows that cannot be read have their own ranges."""
        found = self._tried(wanted, begin, end)
        if isinstance(found, SourceError):
            try:
                self._files.check_file(wanted.path)
            except SourceError as error:  # no row of the file can be read
                yield begin, end, str(error)
            else:
                yield from self._halved(wanted, begin, end, found)
        else:
            yield begin, end, found

    def _halved(
        self, wanted: "_FileRows", begin: int, end: int, error: SourceError
    ) -> Iterator[tuple[int, int, list[pa.Array] | str]]:
        """Yield as `_read` does, for rows that cannot be read together: each half is read by itself. Either all rows of
        a block can be read, or none: a block that is decoded up to some row may be damaged before this row."""
        middle = wanted.middle(begin, end)
        if not begin < middle < end or self._all_fail(wanted, begin, end, error):
            yield begin, end, str(error)
            return
        for low, high in ((begin, middle), (middle, end)):
            found = self._tried(wanted, low, high)
            if isinstance(found, SourceError):
                yield from self._halved(wanted, low, high, found)
            else:
                yield low, high, found

    def _all_fail(self, wanted: "_FileRows", begin: int, end: int, error: SourceError) -> bool:
        """Whether all rows fail with this error. If the first and the last row fail at the same place of the file, all
        rows between them fail. An error without a place may concern a value of several rows, or every row; if it
        concerns every row, a read of no rows fails, too."""
        if error.offset is not None:
            return self._fails(wanted, begin, begin + 1, error) and self._fails(wanted, end - 1, end, error)
        return self._fails(wanted, begin, begin, error)

    def _fails(self, wanted: "_FileRows", begin: int, end: int, error: SourceError) -> bool:
        found = self._tried(wanted, begin, end)
        return isinstance(found, SourceError) and str(found) == str(error)

    def _tried(self, wanted: "_FileRows", begin: int, end: int) -> list[pa.Array] | SourceError:
        """The payload of some rows; with `report`, the error where one of them cannot be read."""
        try:
            return self._arrays(wanted, begin, end)
        except SourceError as error:
            if not self._output.report:
                raise
            return error

    def _arrays(self, wanted: "_FileRows", begin: int, end: int) -> list[pa.Array]:
        """The payload of some rows, in the types of the answer."""
        stats, pointers = FetchReads(), wanted.pointers[begin:end]
        keys = {
            name: taken(wanted.run.column(key), wanted.first[begin:end]).cast(self._stored[name])
            for name, key in self._output.keys.items()
        }
        try:
            table = self._files.read(wanted.path, pointers, keys, self._output.payload, stats)
        finally:
            self._count(stats)
        if begin < end:
            cumulative = wanted.cumulative_bytes(self._files)
            expected = float(cumulative[end - 1] - (cumulative[begin - 1] if begin else 0.0))
            self._growth = max(table.nbytes / expected, self._growth / 2, 2.0**-6)
        at, path = int64s(pointers[:, 0]), self._files.location(wanted.path)
        return [
            self._output.in_type(values.combine_chunks(), name, at, path)
            for values, name in zip(table.columns, self._output.payload, strict=True)
        ]

    def _nulls(self, rows: int) -> list[pa.Array]:
        skip = len(self._output.given)
        return [pa.nulls(rows, kind) for kind in self._target.types[skip : skip + len(self._output.payload)]]

    def _answer(
        self, given: pa.RecordBatch, payload: list[pa.Array], places: Numbers, error: pa.Array | None
    ) -> Iterator[pa.RecordBatch]:
        """Yield rows of the sample with their rows of the payload, at most `OUT_BYTES` at a time."""
        self._counters.rows += len(places)
        self._counters.unreadable += len(places) if error is not None else 0
        kept = [given.column(name) for name in self._output.given]
        sizes = row_bytes(kept) if kept else np.zeros(len(places))
        if payload:
            sizes = sizes + row_bytes(payload)[places]
        for begin, end in slices(sizes, OUT_BYTES):
            arrays = [values.slice(begin, end - begin) for values in kept]
            arrays += [taken(values, places[begin:end]) for values in payload]
            if self._output.report:
                arrays.append(
                    error.slice(begin, end - begin) if error is not None else pa.nulls(end - begin, pa.string())
                )
            yield pa.RecordBatch.from_arrays(
                [values.cast(field.type) for values, field in zip(arrays, self._target, strict=True)],
                schema=self._target,
            )

    def _count(self, stats: FetchReads) -> None:
        self._counters.source_bytes += stats.bytes
        self._counters.map_bytes += stats.page_maps.bytes


class _FileRows:
    """The wanted rows of one file. `run` has rows of the sample with their pointers, sorted by pointer. `pointers` has
    each distinct pointer once, `first` the first row of `run` with this pointer. `places` has the index in `pointers`
    for each row of `run`."""

    units: Numbers

    def __init__(self, run: pa.RecordBatch) -> None:
        self.run = run
        self.path: str = run.column(FILE)[0].as_py()
        for name in (OFFSET, SUB_OFFSET):
            if run.column(name).null_count:
                raise UsageError(
                    f"a pointer without data_{name.removeprefix(OURS)}; pointers need all columns", self.path
                )
        offsets, sub_offsets = numbers_of(run.column(OFFSET)), numbers_of(run.column(SUB_OFFSET))
        fresh = firsts(offsets, sub_offsets)
        self.first: Numbers = np.flatnonzero(fresh)
        self.places: Numbers = np.cumsum(fresh) - 1
        self.pointers: Numbers = np.stack([offsets[self.first], sub_offsets[self.first]], axis=1)
        self._cumulative_bytes: NDArray[np.float64] | None = None

    @property
    def is_of_dione(self) -> bool:
        """Whether Dione made the pointers. Dione writes a size of -1 for Parquet and ORC; Gnomon's sizes are above 0.
        UsageError where only some pointers are Dione's."""
        sizes = numbers_of(without_nulls(self.run.column(SIZE).cast(pa.int64())))
        negative = int((sizes < 0).sum())
        if negative not in (0, len(sizes)):
            raise UsageError("pointers of Dione's (with a data_size below 0) among others; load them apart", self.path)
        return negative > 0

    @property
    def rows(self) -> int:
        """The number of distinct rows of the file."""
        return len(self.first)

    def cumulative_bytes(self, files: RowsOfFiles) -> NDArray[np.float64]:
        """The cumulative bytes of the rows. The bytes of a row are the size in its pointer, or else the mean of the
        file's rows."""
        if self._cumulative_bytes is None:
            sizes = numbers_of(without_nulls(self.run.column(SIZE).cast(pa.int64())))[self.first]
            self._cumulative_bytes = np.cumsum(np.where(sizes > 0, sizes, files.row_bytes(self.path)), dtype=np.float64)
        return self._cumulative_bytes

    def within(self, begin: int, end: int) -> tuple[range, Numbers]:
        """The rows of the sample for a range of rows of the file, and for each its row in the range."""
        low, high = np.searchsorted(self.places, [begin, end]).tolist()
        return range(low, high), self.places[low:high] - begin

    def middle(self, begin: int, end: int) -> int:
        """A row near the middle of a range that begins a read unit, or else a new offset; `begin` where all rows have
        one offset."""
        middle = (begin + end) // 2
        for numbers in (self.units, self.pointers[:, 0]):
            first = int(np.searchsorted(numbers, numbers[middle]))
            if first > begin:
                return first
            beyond = int(np.searchsorted(numbers, numbers[middle], side="right"))
            if beyond < end:
                return beyond
        return begin

    def error_texts(self, error: str, rows: range) -> pa.Array:
        """The error with the pointer of each row."""
        offsets, sub_offsets = (
            self.run.column(name).slice(rows.start, len(rows)).cast(pa.string()) for name in (OFFSET, SUB_OFFSET)
        )
        return pc.binary_join_element_wise(f"{error}; pointer (", offsets, ", ", sub_offsets, ")", "")
