"""Rows of the source for entries of its index, read by their pointers."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gnomon.indexer.datasource.entry_table import EntryTable
from gnomon.indexer.spark import as_spark
from gnomon.shadow import Index
from gnomon.shadow.fetch import FetchReads
from gnomon.shadow.metadata import source_of
from gnomon.shadow.storage import join
from gnomon.sources.pointers import FILENAME, OFFSET, SUB_OFFSET

FETCH_BYTES = 64 * 1024 * 1024  # of rows that a task reads at a time, by the mean size of a row


def with_payload(index: Index, entries: pa.RecordBatch, table: EntryTable) -> Iterator[pa.RecordBatch]:
    """Yield the columns of a table for these entries, one source file after the other. StalePointer where a file is not
    the one that was indexed, or a row does not hold its key."""
    order = pc.sort_indices(
        entries.select([FILENAME, OFFSET, SUB_OFFSET]),
        sort_keys=[(FILENAME, "ascending"), (OFFSET, "ascending"), (SUB_OFFSET, "ascending")],
    )
    ordered = entries.take(order)
    files = pc.run_end_encode(ordered.column(FILENAME))
    begin = 0
    for path, end in zip(files.values.to_pylist(), files.run_ends.to_pylist(), strict=True):
        most = max(1, FETCH_BYTES // index.files.row_bytes(path))
        for first in range(begin, end, most):
            yield _read(index, path, ordered.slice(first, min(most, end - first)), table)
        begin = end


def _read(index: Index, path: str, entries: pa.RecordBatch, table: EntryTable) -> pa.RecordBatch:
    """The rows of one source file."""
    stored = {column.source: column for column in table.known.values()}
    keys = {key.name: entries.column(stored[key.name].name) for key in index.spec.stored_keys}
    offsets = entries.column(OFFSET)
    pointers = np.column_stack([offsets.to_numpy(), entries.column(SUB_OFFSET).to_numpy()]).astype(np.int64)
    rows = index.files.read(path, pointers, keys, table.payload, FetchReads())
    given = len(table.columns)
    arrays = [
        entries.column(table.known[name].name).cast(field.type)
        for name, field in zip(table.columns, table.arrow, strict=False)
    ]
    where = join(source_of(index.spec).storage.root, path)
    for field, target, column in zip(table.payload_types, table.arrow.types[given:], rows.columns, strict=True):
        values = column.combine_chunks()
        arrays.append(as_spark(values, field.dataType, target, field.name, offsets, where))
    return pa.RecordBatch.from_arrays(arrays, schema=table.arrow)
