"""Index files of source files, made in this process."""

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from gnomon.btree.hash_columns import buckets_of, plain_column
from gnomon.shadow.lookup import write_index_file
from gnomon.shadow.maintenance.entry_columns import file_columns
from gnomon.shadow.maintenance.entry_sorter import GROUP, EntrySorter
from gnomon.shadow.metadata import IndexFileEntry, IndexSpec, SourceFileEntry
from gnomon.shadow.storage import Storage

MEMORY_BYTES = 1 << 30
BATCH_ROWS = 65_536  # of a batch for a writer
FILE = " "  # a name that no column of an index file has: the number of an entry's source file

# The batches of a source file, as `stored_columns` makes them.
Scan = Callable[[SourceFileEntry], Iterable[Sequence[pa.Array]]]


def index_here(
    storage: Storage,
    spec: IndexSpec,
    segment_id: str,
    scan: Scan,
    files: Sequence[SourceFileEntry],
    most_bytes: int = MEMORY_BYTES,
    told: Callable[[int], None] = lambda files: None,
) -> tuple[list[IndexFileEntry], list[int]]:
    """Write the index files of a segment that covers `files`. Returns them, and the number of rows of each file.
    Entries of one key come in the order of the files, then of their rows.

    It takes about `most_bytes` of memory, and temporary files beyond (`EntrySorter`, with its errors). `told` is called
    with the number of source files that are scanned. Errors of `scan` pass."""
    folders = sorted({spec.folder_of(file.partition) for file in files})
    ordinals = {folder: i for i, folder in enumerate(folders)}
    paths, partitions = [file.path for file in files], [file.partition for file in files]
    counts, written = [], []
    with EntrySorter(len(spec.stored_keys), range(len(folders) * spec.buckets), most_bytes) as sorter:
        for number, file in enumerate(files):
            rows = 0
            for columns in scan(file):
                entries = _entries(spec, columns, number, ordinals[spec.folder_of(file.partition)])
                rows += entries.num_rows
                sorter.add(entries)
            counts.append(rows)
            told(number + 1)
        for group, entries in sorter.groups():
            folder, bucket = divmod(group, spec.buckets)
            batches = _batches(spec, entries, paths, partitions)
            written.append(write_index_file(storage, spec, segment_id, folders[folder], bucket, batches))
    return written, counts


def _entries(spec: IndexSpec, columns: Sequence[pa.Array], number: int, folder: int) -> pa.Table:
    """Entries with the number of their source file in place of its name, and of their index file."""
    plain = [plain_column(value, kind) for value, kind in zip(columns, spec.key_types, strict=False)]
    rows = len(columns[0])
    files = pa.array(np.full(rows, number, np.int32))
    groups = pa.array((folder * spec.buckets + buckets_of(plain, spec.buckets)).astype(np.int32))
    names = [*(str(i) for i in range(len(columns))), FILE, GROUP]
    return pa.Table.from_arrays([*columns, files, groups], names=names)


def _batches(
    spec: IndexSpec, entries: pa.Table, paths: Sequence[str], partitions: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Yield sorted entries in the schema of index files."""
    names = [column.name for column in spec.entry_schema.columns]
    before = len(spec.stored_keys) + len(spec.include)
    for batch in entries.to_batches(max_chunksize=BATCH_ROWS):
        named = file_columns(spec, paths, partitions, batch.column(FILE))
        yield pa.RecordBatch.from_arrays([*batch.columns[:before], *named, *batch.columns[before:-1]], names=names)
