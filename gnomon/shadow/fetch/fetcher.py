"""Pointers to rows: only from files that did not change since they were indexed, and only rows that hold the requested
key.

A partition column has the folder's value, as text (in a catalog table: in its type), even where the files have a column
of that name, as in Spark. A column that a file does not have is null in its rows.

Source files may be opened during the index look-up, so that the metadata of a remote file arrives in the same round
trip as the index file. This is done only where few files can hold the key, since most of them are not needed."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, NamedTuple, cast

import numpy as np
import pyarrow as pa

from gnomon.base.errors import Action
from gnomon.btree.errors import BTreeError
from gnomon.btree.key_types import key_type
from gnomon.btree.keys import Key, key_array, same_values, stored_array
from gnomon.shadow.errors import OF_ONE_FILE, StalePointer
from gnomon.shadow.fetch.page_maps import LearnedMaps
from gnomon.shadow.fetch.source_files import FetchReads, FetchStats, SourceFiles
from gnomon.shadow.lookup import Hit, InFile, covered_in
from gnomon.shadow.metadata import IndexSpec, KeyColumn, SourceFileEntry
from gnomon.shadow.storage import (
    Begun,
    OpenFile,
    Readable,
    Storage,
    Trace,
    TracedReader,
    check_deadline,
    identity,
    in_order,
    join,
    step_of,
)
from gnomon.shadow.tables import partition_array, stored_partition
from gnomon.shadow.values import of_plain, python_values
from gnomon.sources import FORMATS, MappedFile, Numbers, Pointer, SourceFile

MOST_FOLDERS = 10_000  # whose values are kept
FEW_ROWS = 8  # of a file, up to which values are read without Arrow
NO_TABLE = pa.table({})
# Key types whose values in a file of this Arrow type are the stored ones.
PLAIN_KEYS = {"int": pa.int32(), "bigint": pa.int64(), "string": pa.string()}


class PartitionColumns:
    """The partition columns of an index. Safe to share between threads."""

    def __init__(self, spec: IndexSpec) -> None:
        self._spec = spec
        self._values: dict[str, dict[str, Any]] = {}

    def arrays(self, partition: str, rows: int) -> dict[str, pa.Array]:
        """The columns of a partition, repeated for a number of rows."""
        spec, values = self._spec, stored_partition(partition, self._spec.partition_types)
        return {name: partition_array(values.get(name), spec.partition_type(name), rows) for name in spec.partitions}

    def values(self, partition: str) -> dict[str, Any]:
        """The values of a partition, as rows show them."""
        found = self._values.get(partition)
        if found is None:
            if len(self._values) >= MOST_FOLDERS:
                self._values.clear()
            arrays = self.arrays(partition, 1)
            found = self._values[partition] = {name: python_values(array)[0] for name, array in arrays.items()}
        return found


UNPACKED = 4  # bytes in memory for each byte in a file, as a rule of thumb


class Located(NamedTuple):
    """A row to read: its place, and the key it must hold (in stored form)."""

    hit: Hit
    key: Key


def row_bytes(file: SourceFileEntry) -> int:
    """The approximate bytes of a row in memory, which are more than in the file."""
    return max(1, UNPACKED * file.size // max(file.rows, 1))


def shares_of(wanted: Sequence[Located], share_bytes: int | None) -> list[tuple[SourceFileEntry, Sequence[int]]]:
    """The places of each file's rows among the requested ones. A file whose rows take more than about `share_bytes` has
    several shares."""
    if len(wanted) == 1:
        return [(wanted[0].hit.file, [0])]
    by_file: dict[SourceFileEntry, list[int]] = {}
    for place, located in enumerate(wanted):
        by_file.setdefault(located.hit.file, []).append(place)
    if share_bytes is None:
        return list(by_file.items())
    shares: list[tuple[SourceFileEntry, Sequence[int]]] = []
    for file, places in by_file.items():
        most = max(1, share_bytes // row_bytes(file))
        if len(places) > most:  # rows that are read together lie in one share, or two
            places.sort(key=lambda place: wanted[place].hit.pointer[1:3])
        shares += [(file, places[begin : begin + most]) for begin in range(0, len(places), most)]
    return shares


class Part(NamedTuple):
    """Rows of one file: their places among the requested rows, a table of the file's columns with its keys, the cost,
    and the error if they cannot be read. Where they are wanted as Python values, `values` may have the columns, and
    then the table is empty."""

    file: SourceFileEntry
    places: Sequence[int]
    table: pa.Table
    stats: FetchReads
    failure: Exception | None = None
    values: Mapping[str, Sequence[Any]] | None = None

    def columns(self, names: Sequence[str]) -> Mapping[str, Sequence[Any]]:
        """Those of these columns that the file has, as Python values."""
        if self.values is not None:
            return self.values
        there = set(self.table.column_names)
        return {name: python_values(self.table.column(name)) for name in names if name in there}


class Fetcher:
    """Reads rows of one source. The arguments are those of `SourceFiles`, which opens the files."""

    def __init__(
        self,
        storage: Readable,
        spec: IndexSpec,
        cache_bytes: int,
        index: Storage | None = None,
        page_bytes: int = 0,
        action: Action = Action.BUILD_AGAIN,
        learned: LearnedMaps | None = None,
    ) -> None:
        self.files = SourceFiles(storage, spec, cache_bytes, index, page_bytes, action, learned)
        self._storage = storage
        self._spec = spec
        self._partition_columns = PartitionColumns(spec)

    def fill(self, answer: list[dict[str, Any]], part: Part, columns: Sequence[str]) -> None:
        """Put the rows of a part into their places."""
        found, folder_values = part.columns(columns), self._partition_columns.values(part.file.partition)
        nothing = [None] * len(part.places)
        for name in columns:
            if name in folder_values:
                values: Sequence[Any] = [folder_values[name]] * len(part.places)
            else:
                values = found.get(name, nothing)
            for place, value in zip(part.places, values, strict=True):
                answer[place][name] = value

    def parts(
        self,
        wanted: Sequence[Located],
        columns: Sequence[str],
        stats: FetchReads,
        share_bytes: int | None = None,
        each: bool = False,
        trace: Trace | None = None,
        as_values: bool = False,
    ) -> Iterator[Part]:
        """The rows, file by file. Remote files are read concurrently. A file whose rows take more than about
        `share_bytes` is read in several parts. With `each`, the error of a file replaces its rows and is not raised.
        `as_values`: whether the caller wants Python values."""
        shares = shares_of(wanted, share_bytes)
        calls = [
            partial(self._part, file, places, [wanted[place] for place in places], columns, each, trace, as_values)
            for file, places in shares
        ]
        side_by_side = self._storage.is_remote and len(calls) > 1
        sizes = [len(places) * row_bytes(file) for file, places in shares] if side_by_side else None
        for part in in_order(calls, sizes) if side_by_side else (call() for call in calls):
            stats.add(part.stats)
            yield part

    def _part(
        self,
        file: SourceFileEntry,
        places: Sequence[int],
        wanted: Sequence[Located],
        columns: Sequence[str],
        each: bool,
        trace: Trace | None,
        as_values: bool,
    ) -> Part:
        check_deadline(join(self._storage.root, file.path))
        stats = FetchReads()
        as_values = as_values and trace is None and len(places) <= FEW_ROWS
        try:
            with self._reading(file, len(wanted), stats, trace) as (reader, source):
                if as_values and (values := self._values(source, reader, wanted, columns)) is not None:
                    return Part(file, places, NO_TABLE, stats, None, values)
                pointers = _numbers([one.hit.pointer for one in wanted])
                keys = self._as_arrays([one.key for one in wanted])
                needed = self._needed(source, columns, keys)
                if trace is None:
                    table = source.fetch(reader, pointers, needed)
                else:
                    table = self._traced(trace, stats, file.path, source, reader, pointers, needed)
            with step_of(trace, "key_check", file.path) as step:
                self._check_keys(table, pointers, keys, reader.name)
                step.say(rows=len(pointers))
        except OF_ONE_FILE as error:
            if not each:
                raise
            return Part(file, places, NO_TABLE, stats, error)
        return Part(file, places, table, stats)

    def table(
        self,
        file: SourceFileEntry,
        pointers: Numbers,
        keys: Mapping[str, pa.Array],
        columns: Sequence[str],
        stats: FetchReads,
    ) -> pa.Table:
        """Rows of one file, one for each of `pointers` (offset and sub-offset), with the columns in the requested
        order. `keys` has the key that each row must hold, by column, in the stored types; columns missing there are not
        compared."""
        return self.complete(self._read(file, pointers, keys, columns, stats), file.partition, columns)

    def check(self, file: SourceFileEntry, pointer: Pointer, key: Key) -> None:
        """Raise SourceError unless the row of a pointer holds a key (in stored form)."""
        self._read(file, _numbers([pointer]), self._as_arrays([key]), [], FetchReads())

    def _as_arrays(self, keys: Sequence[Key]) -> dict[str, pa.Array]:
        return {
            column.name: stored_array([key[i] for key in keys], column.type)
            for i, column in enumerate(self._spec.stored_keys)
        }

    def _read(
        self,
        file: SourceFileEntry,
        pointers: Numbers,
        keys: Mapping[str, pa.Array],
        columns: Sequence[str],
        stats: FetchReads,
    ) -> pa.Table:
        """Rows of one file with the file's columns and its keys, which were compared."""
        with self._reading(file, len(pointers), stats, None) as (reader, source):
            table = source.fetch(reader, pointers, self._needed(source, columns, keys))
        self._check_keys(table, pointers, keys, reader.name)
        return table

    @contextmanager
    def _reading(
        self, file: SourceFileEntry, rows: int, stats: FetchReads, trace: Trace | None
    ) -> Iterator[tuple[OpenFile, SourceFile]]:
        """An open file. If nothing is read that could show a change, the file is looked at again."""
        reads = stats.reads
        with ExitStack() as stack:
            with step_of(trace, "source_file", file.path, stats) as step:
                reader, source = stack.enter_context(self.files.opened(file, stats, trace))
                stats.opened[file.path] = identity(reader)
                step.say(rows=rows)
            yield reader, source
            if stats.reads == reads:
                if reader.is_remote:
                    self.files.look(file)
                else:
                    reader.read_ranges([])  # of a local file checks its size and times again

    def _needed(self, source: SourceFile, columns: Sequence[str], keys: Iterable[str]) -> list[str]:
        """The columns to read of a file: these and the keys, as far as it has them."""
        there = set(source.schema.names) - set(self._spec.partitions)
        return [name for name in dict.fromkeys([*columns, *keys]) if name in there]

    def _values(
        self, source: SourceFile, reader: OpenFile, wanted: Sequence[Located], columns: Sequence[str]
    ) -> dict[str, Sequence[Any]] | None:
        """The columns of rows as Python values; None where `source.fetch` has to read them, maybe to find that a row
        does not hold its key."""
        stored_keys = self._spec.stored_keys
        if FORMATS[self._spec.format].page_maps is None or not all(key.type in PLAIN_KEYS for key in stored_keys):
            return None
        if any(one.hit.pointer.data_sub_offset for one in wanted):
            return None
        needed = self._needed(source, columns, [key.name for key in stored_keys])
        found = cast(MappedFile, source).values(reader, [one.hit.pointer.data_offset for one in wanted], needed)
        if found is None:
            return None
        of_column = dict(zip(needed, zip(found.types, found.columns, strict=True), strict=True))
        for i, key in enumerate(stored_keys):
            kind, values = of_column.get(key.name, (None, ()))
            if kind != PLAIN_KEYS[key.type] or list(values) != [one.key[i] for one in wanted]:
                return None
        return {name: of_plain(kind, values) for name, (kind, values) in of_column.items()}

    def _traced(
        self,
        trace: Trace,
        stats: FetchReads,
        path: str,
        source: SourceFile,
        reader: OpenFile,
        pointers: Numbers,
        columns: Sequence[str],
    ) -> pa.Table:
        """`source.fetch` of a file with this path, step by step."""
        if FORMATS[self._spec.format].page_maps is not None:
            with step_of(trace, "page_map", path, stats):
                cast(MappedFile, source).map_pages(reader, pointers, columns)
        traced = TracedReader(trace, reader, path, stats, len(columns))
        table = source.fetch(traced, pointers, columns)
        traced.end(len(pointers))
        return table

    def units(self, file: SourceFileEntry, offsets: Numbers, stats: FetchReads) -> Numbers:
        """The units in which rows at these offsets are read: `SourceFile.units`."""
        with self.files.opened(file, stats) as (_, source):
            return source.units(offsets)

    def scan(self, file: SourceFileEntry, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """All rows of a source file: the requested columns that it has, then offset, sub-offset and size."""
        stats = FetchReads()
        with self.files.opened(file, stats) as (reader, source):
            there = set(source.schema.names) - set(self._spec.partitions)
            yield from source.scan(reader, [name for name in columns if name in there])

    def _check_keys(self, table: pa.Table, pointers: Numbers, keys: Mapping[str, pa.Array], where: str) -> None:
        """Compare the keys of the read rows with the requested keys, column by column."""
        for key in self._spec.stored_keys:
            expected = keys.get(key.name)
            if expected is None:
                continue
            if key.name in table.column_names:
                actual = _key_of(table.column(key.name), key, where)
            else:
                actual = pa.nulls(len(expected), expected.type)  # the file lacks the column
            if actual.equals(expected):
                continue  # the usual case, in one call
            different = np.flatnonzero(~same_values(actual, expected))
            if len(different):
                row = int(pointers[different[0], 0])
                raise StalePointer(
                    f"row {row} does not hold the key it was indexed under", where, action=Action.BUILD_OR_TOUCH
                )

    def schema(self, columns: Sequence[str], schemas: Iterable[pa.Schema]) -> pa.Schema:
        """The columns, each in the type of the first schema that has it; partition columns in their own types; null
        where no schema has the column."""
        types: dict[str, pa.DataType] = {}
        for schema in schemas:
            for column in schema:
                if not pa.types.is_null(column.type):
                    types.setdefault(column.name, column.type)
        partitions = self._spec.partitions
        types |= {name: key_type(self._spec.partition_type(name)).arrow for name in partitions}
        return pa.schema([pa.field(name, types.get(name, pa.null())) for name in columns])

    def complete(self, table: pa.Table, partition: str, columns: Sequence[str]) -> pa.Table:
        """Add partition columns, and nulls for columns that the file does not have."""
        rows = table.num_rows
        of_folder = self._partition_columns.arrays(partition, rows)
        arrays = []
        for name in columns:
            if name in self._spec.partitions:
                arrays.append(of_folder[name])
            elif name in table.column_names:
                arrays.append(table.column(name))
            else:
                arrays.append(pa.nulls(rows))
        return pa.Table.from_arrays(arrays, names=list(columns))


def _numbers(pointers: Sequence[Pointer]) -> Numbers:
    return np.array([(one.data_offset, one.data_sub_offset) for one in pointers], dtype=np.int64).reshape(-1, 2)


def _key_of(array: pa.ChunkedArray, key: KeyColumn, where: str) -> pa.Array:
    try:
        return key_array(array, key.type, key.name)
    except (BTreeError, ValueError) as error:  # another type, or text that is not UTF-8
        raise StalePointer(
            f"the key is not the {key.type} that was indexed ({error})", where, action=Action.BUILD_AGAIN
        ) from None


FEW_SOURCES = 8  # of a query


class _Opening(NamedTuple):
    """A source file whose read has begun, and the cost so far."""

    fetcher: Fetcher
    file: SourceFileEntry
    begun: Begun[SourceFile]
    reads: FetchReads


class Ahead:
    """The source files that are opened ahead for one query, until it is answered."""

    def __init__(self, stats: FetchStats) -> None:
        self._stats = stats
        self._openings: list[_Opening] = []

    def begin(self, fetcher: Fetcher, spec: IndexSpec, files: Sequence[InFile]) -> None:
        """Open the source files that the entries of these index files may name, where they are few."""
        for file in _named(spec, files):
            reads = FetchReads()
            begun = fetcher.files.begin(file, reads, self._stats.trace)
            if begun is not None:
                self._openings.append(_Opening(fetcher, file, begun, reads))

    def end(self) -> None:
        """Count the reads. If steps are recorded, also wait for the unneeded reads, so that the cost is complete."""
        for fetcher, file, begun, reads in self._openings:
            fetcher.files.end(file)
            if self._stats.trace is not None:
                begun.settle()
            self._stats.source.add(reads)
        self._openings = []


def _named(spec: IndexSpec, files: Sequence[InFile]) -> Sequence[SourceFileEntry]:
    """The live source files among those that index files may name; none where they are many."""
    found: dict[str, SourceFileEntry] = {}
    for segment, entry, _ in files:
        for file in covered_in(spec, segment, entry.partition):
            if file.path in segment.live:
                found[file.path] = file
                if len(found) > FEW_SOURCES:
                    return []
    return list(found.values())
