"""Index files of source files and of key-value folders, made in this process."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from gnomon.base.arrow import compute as pc
from gnomon.btree.errors import BTreeError
from gnomon.btree.key_types import key_type
from gnomon.btree.keys import key_array
from gnomon.shadow.errors import UnsupportedFormat
from gnomon.shadow.lookup import write_index_file
from gnomon.shadow.metadata import IndexFileEntry, IndexSpec, SourceFileEntry
from gnomon.shadow.storage import Storage
from gnomon.shadow.tables import partition_values
from gnomon.shadow.write.entry_sorter import GROUP, EntrySorter
from gnomon.sources.pointers import POINTER_FIELDS


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
    folders = sorted({spec.folder_of(file.partition) for file in files})
    ordinals = {folder: i for i, folder in enumerate(folders)}
    folder_of = np.array([ordinals[spec.folder_of(file.partition)] for file in files], np.int32)
    paths, partitions = [file.path for file in files], [file.partition for file in files]
    keys, written = len(spec.stored_keys), []
    sorted_by = keys if is_ordered else keys + 1 + OFFSETS
    with EntrySorter(sorted_by, range(len(folders) * spec.buckets), most_bytes) as sorter:
        for some in entries:
            sorter.add(_table(spec, some, folder_of))
        unwanted = pa.array(sorted(left_out()), pa.int32())
        for group, held in sorter.groups():
            folder, bucket = divmod(group, spec.buckets)
            wanted = held if not len(unwanted) else held.filter(pc.invert(pc.is_in(held.column(FILE), unwanted)))
            if wanted.num_rows:
                batches = _batches(spec, wanted, paths, partitions)
                written.append(write_index_file(storage, spec, segment_id, folders[folder], bucket, batches))
    return written


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
    written = []
    with EntrySorter(len(spec.entry_schema.columns), range(len(folders) * spec.buckets), most_bytes) as sorter:
        for some in rows:
            sorter.add(some)
        for group, held in sorter.groups():
            folder, bucket = divmod(group, spec.buckets)
            batches = held.to_batches(max_chunksize=BATCH_ROWS)
            written.append(write_index_file(storage, spec, segment_id, folders[folder], bucket, batches))
    return written


def _table(spec: IndexSpec, entries: Entries, folder_of: npt.NDArray[np.int32]) -> pa.Table:
    """The entries as a table, with the number of the source file (FILE) in place of its name, and the number of the
    index file (GROUP). The key, the file, and the row in the file come first, since the table is sorted by them."""
    columns, keys = entries.columns, len(spec.stored_keys)
    groups = folder_of[entries.files] * spec.buckets + spec.bucketing.of_columns(columns)
    named = {str(i): column for i, column in enumerate(columns)}
    row = len(columns) - 1 - OFFSETS
    order = [*map(str, range(keys)), FILE, *map(str, range(row, row + OFFSETS))]
    named |= {FILE: pa.array(entries.files), GROUP: pa.array(groups.astype(np.int32))}
    return pa.table({name: named[name] for name in dict.fromkeys([*order, *named])})


def _batches(
    spec: IndexSpec, entries: pa.Table, paths: Sequence[str], partitions: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Yield sorted entries in the schema of index files."""
    names = [column.name for column in spec.entry_schema.columns]
    before = len(spec.stored_keys) + len(spec.include)
    for batch in entries.to_batches(max_chunksize=BATCH_ROWS):
        named = file_columns(spec, paths, partitions, batch.column(FILE))
        columns = [batch.column(str(i)) for i in range(batch.num_columns - 1)]
        yield pa.RecordBatch.from_arrays([*columns[:before], *named, *columns[before:]], names=names)
