"""Index files of source files, made in this process: for a few files, whose entries fit into memory. Builds of many
files are jobs of Spark (`gnomon.indexer.build`)."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa

from gnomon.btree.errors import BTreeError
from gnomon.btree.hash_columns import plain_column, spark_hash_columns
from gnomon.btree.key_types import key_type
from gnomon.btree.keys import key_array
from gnomon.shadow.errors import UnsupportedFormat
from gnomon.shadow.fetch import Fetcher
from gnomon.shadow.lookup import write_index_file
from gnomon.shadow.maintenance.merge import sort_order
from gnomon.shadow.metadata import IndexFileEntry, IndexSpec, SourceFileEntry
from gnomon.shadow.storage import Storage, join
from gnomon.shadow.tables import partition_values
from gnomon.sources import POINTER_COLUMNS

GROUP = ""  # a name that no column of an index file has: the folder and bucket of an entry


def index_here(
    storage: Storage, spec: IndexSpec, segment_id: str, fetcher: Fetcher, root: str, files: Sequence[SourceFileEntry]
) -> tuple[list[IndexFileEntry], list[int]]:
    """Write the index files of a segment that covers `files`. Returns them, and the number of rows of each file.
    Entries of one key come in the order of the files, then of their rows. SourceError where a file changed or cannot be
    read."""
    folders = sorted({spec.folder_of(file.partition) for file in files})
    ordinals = {folder: i for i, folder in enumerate(folders)}
    of_files = [list(_entries(spec, fetcher, root, file, ordinals[spec.folder_of(file.partition)])) for file in files]
    counts = [sum(piece.num_rows for piece in pieces) for pieces in of_files]
    pieces = [piece for some in of_files for piece in some]
    if not sum(counts):
        return [], counts
    entries = pa.concat_tables(pieces).combine_chunks()
    keys = [entries.column(i).chunk(0) for i in range(len(spec.stored_keys))]
    order = sort_order(keys, entries.column(GROUP).chunk(0))
    sorted_entries = entries.take(order)
    groups = sorted_entries.column(GROUP).to_numpy()
    cuts = [0, *(np.flatnonzero(np.diff(groups)) + 1).tolist(), len(groups)]
    written = []
    for begin, end in pairwise(cuts):
        folder, bucket = divmod(int(groups[begin]), spec.buckets)
        rows = sorted_entries.slice(begin, end - begin).drop_columns([GROUP])
        written.append(write_index_file(storage, spec, segment_id, folders[folder], bucket, [rows]))
    return written, counts


def _entries(spec: IndexSpec, fetcher: Fetcher, root: str, file: SourceFileEntry, folder: int) -> Iterator[pa.Table]:
    """Yield the entries of a source file in the schema of index files, with the number of their group."""
    columns, texts = (*spec.stored_keys, *spec.include), partition_values(file.partition)
    names = [column.name for column in spec.entry_schema.columns]
    for batch in fetcher.scan(file, [column.name for column in columns]):
        rows, there = batch.num_rows, batch.schema.names[: -len(POINTER_COLUMNS) + 1]
        try:
            values = [
                key_array(batch.column(there.index(column.name)), column.type, column.name)
                if column.name in there
                else pa.nulls(rows, key_type(column.type).arrow)
                for column in columns
            ]
        except BTreeError as error:
            raise UnsupportedFormat(
                error.what or "cannot be indexed",
                join(root, file.path),
                column=error.column,
                expected=error.expected,
                found=error.found,
            ) from None
        plain = [plain_column(value, kind) for value, kind in zip(values, spec.key_types, strict=False)]
        buckets = spark_hash_columns(plain).astype(np.int64) % spec.buckets
        partitions = [pa.repeat(pa.scalar(texts[name], pa.string()), rows) for name in spec.stored_partitions]
        pointer = [pa.repeat(file.path, rows), *batch.columns[-len(POINTER_COLUMNS) + 1 :]]
        group = pa.array(folder * spec.buckets + buckets)
        yield pa.table([*values, *partitions, *pointer, group], names=[*names, GROUP])
