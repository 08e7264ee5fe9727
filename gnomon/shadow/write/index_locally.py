"""Index files of source files and of key-value folders, made in this process, or by several processes here.

Several processes work in two steps. First each scans ranges of source files and puts their entries into temporary
files, one for each range of index files. Then each takes such a range, reads the entries from all temporary files in
the order of the source, sorts them and writes the index files."""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from gnomon.base.arrow import compute as pc
from gnomon.btree.errors import BTreeError
from gnomon.btree.key_types import key_type
from gnomon.btree.keys import key_array
from gnomon.shadow.errors import StorageError, UnsupportedFormat
from gnomon.shadow.lookup import write_index_file
from gnomon.shadow.metadata import IndexFileEntry, IndexSpec, SourceFileEntry
from gnomon.shadow.storage import Storage
from gnomon.shadow.tables import partition_values
from gnomon.shadow.write.entry_sorter import GROUP, EntrySorter, Spill, read_spill, temporary_folder
from gnomon.shadow.write.workers import Workers
from gnomon.sources import Split
from gnomon.sources.pointers import POINTER_FIELDS
from gnomon.sources.types import int32s


def stored_columns(spec: IndexSpec, batches: Iterable[pa.RecordBatch], where: str) -> Iterator[list[pa.Array]]:
    """For each batch of a scan of a source file: the stored key and the included columns in the types of the index,
    then the numbers of the rows' pointers, which are the last columns of a batch. A column that the file lacks is null.
    UnsupportedFormat, with the path `where`, for a value that cannot be stored."""
    columns = (*spec.stored_keys, *spec.include)
    for batch in batches:
        there = dict(zip(batch.schema.names[: -len(POINTER_FIELDS)], batch.columns, strict=False))
        try:
            values = [
                key_array(there[column.name], column.type, column.name)
                if column.name in there
                else pa.nulls(batch.num_rows, key_type(column.type).arrow)
                for column in columns
            ]
        except BTreeError as error:
            raise UnsupportedFormat(
                f"cannot be indexed: {error.what}" if error.what else "cannot be indexed",
                where,
                column=error.column,
                expected=error.expected,
                found=error.found,
            ) from None
        yield [*values, *batch.columns[-len(POINTER_FIELDS) :]]


def file_columns(spec: IndexSpec, paths: Sequence[str], partitions: Sequence[str], numbers: pa.Array) -> list[pa.Array]:
    """The columns of entries that name their source files: the partition columns of a flat index, then the path.
    `numbers` has the number of each entry's file, an int32, in `paths` and `partitions`."""
    values = [partition_values(partition) for partition in partitions] if spec.stored_partitions else []
    texts = [[one[name] for one in values] for name in spec.stored_partitions]
    return [pa.DictionaryArray.from_arrays(numbers, pa.array(text, pa.string())) for text in [*texts, paths]]


MEMORY_BYTES = 1 << 30
BATCH_ROWS = 65_536  # of a batch for a writer
FILE = " "  # a name that no column of an index file has: the number of an entry's source file
OFFSETS = 2  # columns of a pointer that place a row in its file: offset and sub-offset
SCAN_BYTES = 64 << 20  # of memory for a scan that spills all: more is new memory, which costs more than it saves
LARGE, SMALL = 2, 8  # chunks for each process: of what is left to scan, but no smaller than of the whole source

# The batches of a source file, as `stored_columns` makes them.
Scan = Callable[[SourceFileEntry], Iterable[Sequence[pa.Array]]]


class Entries(NamedTuple):
    """Some entries: columns as `stored_columns` makes them, and the number of each entry's source file."""

    columns: Sequence[pa.Array]
    files: npt.NDArray[np.int32]


def index_locally(
    storage: Storage,
    spec: IndexSpec,
    segment_id: str,
    scan: Scan,
    files: Sequence[SourceFileEntry],
    most_bytes: int = MEMORY_BYTES,
    on_progress: Callable[[int], None] = lambda files: None,
) -> tuple[list[IndexFileEntry], list[int]]:
    """Write the index files of a segment that covers `files`. Returns them, and the number of rows of each file.
    Entries of one key come in the order of the files, then of their rows.

    It takes about `most_bytes` of memory, and temporary files for more entries (`EntrySorter`, whose errors it raises).
    `on_progress` is called with the number of source files scanned so far. It raises errors of `scan` unchanged."""
    counts: list[int] = []

    def scanned() -> Iterator[Entries]:
        for number, file in enumerate(files):
            rows = 0
            for columns in scan(file):
                yield Entries(columns, np.full(len(columns[0]), number, np.int32))
                rows += len(columns[0])
            counts.append(rows)
            on_progress(number + 1)

    written = index_entries(storage, spec, segment_id, scanned(), files, most_bytes)
    return written, counts


def index_entries(
    storage: Storage,
    spec: IndexSpec,
    segment_id: str,
    entries: Iterable[Entries],
    files: Sequence[SourceFileEntry],
    most_bytes: int = MEMORY_BYTES,
    is_ordered: bool = True,
    left_out: Callable[[], Collection[int]] = tuple,
) -> list[IndexFileEntry]:
    """Write the index files of a segment from entries of `files`. Entries of one key come in the order of the files,
    then of their rows. `is_ordered` says that the given entries have this order already. `left_out` is called after the
    last entry: it returns the numbers of files whose entries are not written. Memory and errors as in
    `index_locally`."""
    target = Target.of(spec, segment_id, files)
    with EntrySorter(target.sorted_by(is_ordered), target.groups, most_bytes) as sorter:
        for some in entries:
            sorter.add(target.table(some))
        return list(target.write(storage, sorter, left_out()))


def index_rows(
    storage: Storage,
    spec: IndexSpec,
    segment_id: str,
    folders: Sequence[str],
    rows: Iterable[pa.Table],
    most_bytes: int = MEMORY_BYTES,
) -> list[IndexFileEntry]:
    """Write the index files of a key-value folder. `rows` have the columns of the entry schema, and GROUP: the place of
    the folder in `folders` times the buckets of the spec, plus the bucket. Rows of one key are sorted by their values.
    Memory and errors as in `index_locally`."""
    with EntrySorter(len(spec.entry_schema.columns), range(len(folders) * spec.buckets), most_bytes) as sorter:
        for some in rows:
            sorter.add(some)
        return list(write_rows(storage, spec, segment_id, folders, sorter))


def write_rows(
    storage: Storage, spec: IndexSpec, segment_id: str, folders: Sequence[str], sorter: EntrySorter
) -> Iterator[IndexFileEntry]:
    """Write the index files of the sorter's rows, which are as in `index_rows`."""
    for group, tables in sorter.groups():
        folder, bucket = divmod(group, spec.buckets)
        batches = (batch for some in tables for batch in some.to_batches(max_chunksize=BATCH_ROWS))
        yield write_index_file(storage, spec, segment_id, folders[folder], bucket, batches)


@dataclass(frozen=True)
class Target:
    """The index files of a segment. The source files that it covers have these paths and partitions, and are known by
    their numbers. It can be pickled."""

    spec: IndexSpec
    segment_id: str
    paths: Sequence[str]
    partitions: Sequence[str]

    @classmethod
    def of(cls, spec: IndexSpec, segment_id: str, files: Sequence[SourceFileEntry]) -> "Target":
        """The index files of a segment that covers `files`."""
        return cls(spec, segment_id, [file.path for file in files], [file.partition for file in files])

    @property
    def groups(self) -> range:
        """The numbers of the index files."""
        return range(len(self._folders) * self.spec.buckets)

    @cached_property
    def _folders(self) -> list[str]:
        return sorted({self.spec.folder_of(partition) for partition in self.partitions})

    @cached_property
    def _folder_of(self) -> npt.NDArray[np.int32]:
        ordinals = {folder: i for i, folder in enumerate(self._folders)}
        return np.array([ordinals[self.spec.folder_of(partition)] for partition in self.partitions], np.int32)

    @cached_property
    def schema(self) -> pa.Schema:
        """The schema of `table`."""
        columns = (*self.spec.stored_keys, *self.spec.include)
        none = [pa.array([], key_type(column.type).arrow) for column in columns]
        pointer = [pa.array([], key_type(column.type).arrow) for column in self.spec.entry_schema.columns[-3:]]
        return self.table(Entries([*none, *pointer], np.zeros(0, np.int32))).schema

    def sorted_by(self, is_ordered: bool) -> int:
        """The number of columns to sort by; `is_ordered` says that entries come in the order of files and rows."""
        return len(self.spec.stored_keys) + (0 if is_ordered else 1 + OFFSETS)

    def table(self, entries: Entries) -> pa.Table:
        """The entries as a table, with the number of the source file (FILE) in place of its name, and the number of the
        index file (GROUP). The key, the file, and the row in the file come first, since the table is sorted by them."""
        spec, columns, keys = self.spec, entries.columns, len(self.spec.stored_keys)
        groups = self._folder_of[entries.files] * spec.buckets + spec.bucketing.of_columns(columns)
        named = {str(i): column for i, column in enumerate(columns)}
        row = len(columns) - 1 - OFFSETS
        order = [*map(str, range(keys)), FILE, *map(str, range(row, row + OFFSETS))]
        named |= {FILE: int32s(entries.files), GROUP: int32s(groups.astype(np.int32))}
        return pa.table({name: named[name] for name in dict.fromkeys([*order, *named])})

    def write(self, storage: Storage, sorter: EntrySorter, left_out: Collection[int] = ()) -> Iterator[IndexFileEntry]:
        """Write the index files of the sorter's entries, without those of the files `left_out`."""
        unwanted = pa.array(sorted(left_out), pa.int32())
        for group, tables in sorter.groups():
            folder, bucket = divmod(group, self.spec.buckets)
            batches = self._batches(tables, unwanted)
            first = next(batches, None)
            if first is not None:
                some = chain([first], batches)
                yield write_index_file(storage, self.spec, self.segment_id, self._folders[folder], bucket, some)

    def _batches(self, tables: Iterator[pa.Table], unwanted: pa.Array) -> Iterator[pa.RecordBatch]:
        """Yield sorted entries in the schema of index files, without those of the `unwanted` files."""
        spec = self.spec
        names = [column.name for column in spec.entry_schema.columns]
        before = len(spec.stored_keys) + len(spec.include)
        if len(unwanted):
            tables = (some.filter(pc.invert(pc.is_in(some.column(FILE), unwanted))) for some in tables)
        for batch in (batch for some in tables for batch in some.to_batches(max_chunksize=BATCH_ROWS)):
            named = file_columns(spec, self.paths, self.partitions, batch.column(FILE))
            columns = [batch.column(str(i)) for i in range(batch.num_columns - 1)]
            yield pa.RecordBatch.from_arrays([*columns[:before], *named, *columns[before:]], names=names)


class Piece(NamedTuple):
    """A range of a source file: the number of the file, and about how many bytes its scan reads."""

    file: int
    split: Split
    bytes: int


class Scanned(NamedTuple):
    """The rows of a piece, and the ragged ones among them."""

    file: int
    rows: int
    ragged: int


# The batches of a range of a source file, as `stored_columns` makes them. The function that it gets is called with the
# number of ragged records. It can be pickled.
ScanPiece = Callable[[SourceFileEntry, Split, Callable[[int], None]], Iterable[Sequence[pa.Array]]]


class _Chunk(NamedTuple):
    """A task: pieces to scan."""

    pieces: Sequence[Piece]


class _Part(NamedTuple):
    """A task: the index files of these groups, whose entries are in temporary files, in the order of the source."""

    groups: range
    paths: Sequence[str]


@dataclass(frozen=True)
class _Job:
    """The work of each process, which gets its tasks one by one. Temporary files lie in `folder`. A scan holds up to a
    fourth of `scan_bytes` of entries in memory, a sort takes up to `most_bytes`."""

    storage: Storage
    target: Target
    files: Sequence[SourceFileEntry]
    scan: ScanPiece
    folder: str
    scan_bytes: int
    most_bytes: int

    def __call__(self, task: _Chunk | _Part) -> Iterator[Scanned | Spill | IndexFileEntry]:
        return self._scanned(task) if isinstance(task, _Chunk) else self._written(task)

    def _scanned(self, chunk: _Chunk) -> Iterator[Scanned | Spill]:
        with EntrySorter(0, self.target.groups, self.scan_bytes, self.folder) as sorter:
            for file, split, _ in chunk.pieces:
                rows, ragged = 0, list[int]()
                for columns in self.scan(self.files[file], split, ragged.append):
                    sorter.add(self.target.table(Entries(columns, np.full(len(columns[0]), file, np.int32))))
                    rows += len(columns[0])
                yield Scanned(file, rows, sum(ragged))
            yield from sorter.spilled()

    def _written(self, part: _Part) -> Iterator[IndexFileEntry]:
        keys = self.target.sorted_by(is_ordered=True)
        with EntrySorter(keys, part.groups, self.most_bytes, self.folder) as sorter:
            for path in part.paths:
                for some in read_spill(path):
                    sorter.add(some)
                Path(path).unlink()
            yield from self.target.write(self.storage, sorter)


def index_pieces(
    storage: Storage,
    spec: IndexSpec,
    segment_id: str,
    scan: ScanPiece,
    pieces: Sequence[Piece],
    files: Sequence[SourceFileEntry],
    most_bytes: int = MEMORY_BYTES,
    processes: int = 1,
    on_progress: Callable[[int], None] = lambda files: None,
) -> tuple[list[IndexFileEntry], list[Scanned]]:
    """Write the index files of a segment that covers `files`, as `index_locally` does, whose promises it keeps, by up
    to so many processes. They share `most_bytes`, and each takes up to `PROCESS_BYTES` besides. `pieces` are the ranges
    of all files, in order. Returns the index files, and what was scanned of each file."""

    def job(folder: str) -> _Job:
        target, share = Target.of(spec, segment_id, files), most_bytes // processes
        return _Job(storage, target, files, scan, folder, min(share, SCAN_BYTES), share)

    with ExitStack() as opened:
        workers = _workers(opened, job, processes)
        if workers is not None:
            return _index_by(workers, pieces, len(files), on_progress)
    ragged = Counter[int]()
    by_path: dict[str, list[Piece]] = defaultdict(list)
    for piece in pieces:
        by_path[files[piece.file].path].append(piece)

    def scanned(file: SourceFileEntry) -> Iterator[Sequence[pa.Array]]:
        for number, split, _ in by_path[file.path]:
            counts = list[int]()
            yield from scan(file, split, counts.append)
            ragged[number] += sum(counts)

    written, rows = index_locally(storage, spec, segment_id, scanned, files, most_bytes, on_progress)
    return written, [Scanned(file, count, ragged[file]) for file, count in enumerate(rows)]


_Workers = Workers[_Chunk | _Part, Scanned | Spill | IndexFileEntry]


def _workers(opened: ExitStack, job: Callable[[str], _Job], processes: int) -> _Workers | None:
    """Processes that end with `opened`, as their temporary files do; None where one process has to do the work. `job`
    gets the folder of these files."""
    if processes < 2:
        return None
    try:
        folder = temporary_folder(opened)
    except StorageError:  # one process may do without
        return None
    workers: _Workers = opened.enter_context(Workers(processes, job(folder), folder))
    return workers if workers.number else None


def _index_by(
    workers: _Workers, pieces: Sequence[Piece], files: int, on_progress: Callable[[int], None]
) -> tuple[list[IndexFileEntry], list[Scanned]]:
    left = Counter(piece.file for piece in pieces)
    rows, ragged = Counter[int](), Counter[int]()
    spills: dict[int, list[tuple[int, Spill]]] = defaultdict(list)  # by the first index file
    for number, found in workers.run([_Chunk(some) for some in _chunks(pieces, workers.number)]):
        if isinstance(found, Spill):
            spills[found.groups.start].append((number, found))
        elif isinstance(found, Scanned):
            rows[found.file] += found.rows
            ragged[found.file] += found.ragged
            left[found.file] -= 1
            if not left[found.file]:
                del left[found.file]
                on_progress(files - len(left))
    parts = []
    for of_part in sorted(spills.values(), key=lambda some: -sum(spill.bytes for _, spill in some)):
        of_part.sort(key=lambda one: one[0])
        parts.append(_Part(of_part[0][1].groups, [spill.path for _, spill in of_part]))
    written = [one for _, one in workers.run(parts) if isinstance(one, IndexFileEntry)]
    written.sort(key=lambda one: (one.partition, one.bucket))
    return written, [Scanned(file, rows[file], ragged[file]) for file in range(files)]


def _chunks(pieces: Sequence[Piece], workers: int) -> Iterator[list[Piece]]:
    """Successive pieces in chunks. The first ones are large, since each chunk has temporary files of its own, and the
    last ones small, so that all processes end at about the same time."""
    left = sum(piece.bytes + 1 for piece in pieces)
    least, chunk, taken = left / workers / SMALL, list[Piece](), 0
    for piece in pieces:
        chunk.append(piece)
        taken += piece.bytes + 1
        if taken >= max(left / workers / LARGE, least):
            yield chunk
            left, chunk, taken = left - taken, [], 0
    if chunk:
        yield chunk
