"""The rows of an index that meet conditions on its key and its partition columns, in any order: from the entries alone
where these have the columns, else from the source, file by file."""

from collections.abc import Callable, Iterator, Sequence
from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gnomon.shadow.fetch import FetchReads
from gnomon.shadow.index_for_jobs import OpenIndex
from gnomon.shadow.lookup import (
    KEY,
    POINTER,
    EntryColumn,
    MatchStats,
    Range,
    Selection,
    chosen,
    entry_columns,
    range_of_key,
)
from gnomon.shadow.metadata import SegmentFile
from gnomon.sources.pointers import FILENAME, OFFSET, SUB_OFFSET

FETCH_BYTES = 64 * 1024 * 1024  # of rows that are read at a time, by the mean size of a row


def selected_rows(index: OpenIndex, selection: Selection, columns: Sequence[str]) -> Iterator[pa.Table]:
    """Tables of the selected rows with these columns. Types are those of the index or of each source file. Errors: as
    in a fetch."""
    spec = index.spec
    mapped = {column.name for column in (*spec.keys, *spec.include) if column.source_type is not None}
    as_stored = [one for one in entry_columns(spec) if one.source not in mapped and one.type not in ("float", "double")]
    # Columns that the entries hold as the source does: not -0.0. In a key-value folder the entries are the rows.
    known = {
        one.source: one for one in (entry_columns(spec) if spec.holds_values else as_stored) if one.part != POINTER
    }
    partitions = set(chosen(index.view.partition_values, selection))
    if all(name in known for name in columns):
        wanted = [known[name] for name in columns]
        for batch in _entries(index, selection, partitions, wanted):
            yield pa.Table.from_batches([batch]).rename_columns(list(columns))
        return
    if selection.keys is None and selection.ranges is None:
        for path, file in index.view.covered.items():
            if file.partition in partitions:
                yield from index.files.scan(path, columns)
        return
    needed = [column for column in entry_columns(index.spec) if column.part in (KEY, POINTER)]
    names = {column.source: column.name for column in needed if column.part == KEY}
    for batch in _entries(index, selection, partitions, needed):
        keys = {source: batch.column(name) for source, name in names.items()}
        yield from _rows_at(index, batch.select([FILENAME, OFFSET, SUB_OFFSET]), keys, columns)


def _entries(
    index: OpenIndex, selection: Selection, partitions: set[str], columns: Sequence[EntryColumn]
) -> Iterator[pa.RecordBatch]:
    """The live entries of a selection."""
    spec, stats = index.spec, MatchStats()

    @cache
    def ranges_in(folder: str, bucket: int) -> Sequence[Range] | None:
        """The ranges that may have keys in a bucket; None without conditions on the key."""
        buckets = spec.bucketing_in(folder)
        if selection.keys is not None:
            return [range_of_key(spec.key_types, key) for key in selection.keys if buckets.of(key) == bucket]
        if selection.ranges is None:
            return None
        return [one for one in selection.ranges if bucket in buckets.between(one.low, one.high)]

    for segment in index.view.segments:
        for (folder, bucket), file in sorted(segment.by_bucket.items()):
            ranges = ranges_in(folder, bucket) if spec.flat or folder in partitions else ()
            if ranges is None or ranges:
                yield from index.scan(SegmentFile(segment, file), columns, partitions, stats, ranges)


def in_files(pointers: pa.RecordBatch, row_bytes: Callable[[str], int]) -> Iterator[tuple[str, pa.Array]]:
    """For each source file of some entries, whose columns are the file's name, the offset and the sub-offset, the
    entries in the order of the file; in pieces whose rows take about FETCH_BYTES."""
    order = pc.sort_indices(pointers, sort_keys=[(name, "ascending") for name in pointers.schema.names])
    files = pc.run_end_encode(pointers.column(0).take(order))
    begin = 0
    for path, end in zip(files.values.to_pylist(), files.run_ends.to_pylist(), strict=True):
        most = max(1, FETCH_BYTES // row_bytes(path))
        for first in range(begin, end, most):
            yield path, order.slice(first, min(most, end - first))
        begin = end


def _rows_at(
    index: OpenIndex, pointers: pa.RecordBatch, keys: dict[str, pa.Array], columns: Sequence[str]
) -> Iterator[pa.Table]:
    """The rows at some pointers, one source file after the other, each in the order of the file."""
    for path, rows in in_files(pointers, index.files.row_bytes):
        places = np.column_stack([pointers.column(i).take(rows).to_numpy() for i in (1, 2)]).astype(np.int64)
        wanted = {name: column.take(rows) for name, column in keys.items()}
        yield index.files.read(path, places, wanted, columns, FetchReads())
