"""Scans the rows of one row group, with their pointers. pyarrow streams the real chunks, with a generated footer that
has only the requested columns.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import pyarrow as pa

from gnomon.base.errors import check_memory
from gnomon.base.readers import RangeReader
from gnomon.sources.errors import DamagedSource, UnsupportedFormat
from gnomon.sources.parquet.footer import ChunkPlace, RowGroup
from gnomon.sources.parquet.guards import NeedsRecoding, PageCheckingFile, check_leaf_lengths
from gnomon.sources.parquet.recode import Coded, open_recoded
from gnomon.sources.parquet.synthetic_file import ChunkEntry, FooterTemplate, open_with_pyarrow
from gnomon.sources.pointers import with_pointers
from gnomon.sources.types import int32s, int64s

BATCH, BATCH_BYTES = 64 << 10, 64 << 20  # rows, and bytes of rows, decoded at a time
BUFFER = 4 << 20  # bytes of each column held at a time


def scan_group(
    reader: RangeReader, group: RowGroup, template: FooterTemplate, places: Sequence[ChunkPlace], row_bytes: int
) -> Iterator[pa.RecordBatch]:
    """The rows of a row group, in batches. `places`: the chunks of the template's columns, checked against the file."""
    seen = 0
    for batch in _exact(reader, group, template, places):
        first = group.first_row + seen
        seen += batch.num_rows
        if seen > group.rows:
            break
        yield with_pointers(
            batch,
            int64s(np.arange(first, first + batch.num_rows, dtype=np.int64)),
            int32s(np.zeros(batch.num_rows, dtype=np.int32)),
            int32s(np.full(batch.num_rows, row_bytes, dtype=np.int32)),
        )
    if seen != group.rows:
        raise places[0].damaged(f"{seen} rows read, the row group has {group.rows}")


def _exact(
    reader: RangeReader, group: RowGroup, template: FooterTemplate, places: Sequence[ChunkPlace]
) -> Iterator[pa.RecordBatch]:
    """The rows of a row group, with an error if the leaves of a repeated column contradict each other.

    Of repeated columns one row too many is requested, since pyarrow reports the contradiction only then. Otherwise
    values of other leaves, or those after damaged levels, would get into the wrong rows. Some files cannot be decoded
    beyond their last row."""
    seen = 0
    if any(place.repeated for place in places):
        try:
            for batch in _batches(reader, group.rows + 1, template, places):
                seen += batch.num_rows
                yield batch
        except DamagedSource as error:
            if not isinstance(error.__cause__, OSError):  # pyarrow decoded the rows, and they contradict each other
                raise
        else:
            return
    for batch in _batches(reader, group.rows, template, places):
        known = min(seen, batch.num_rows)
        seen -= known
        if known < batch.num_rows:
            yield batch.slice(known)


def _batches(
    reader: RangeReader, rows: int, template: FooterTemplate, places: Sequence[ChunkPlace]
) -> Iterator[pa.RecordBatch]:
    if not places:
        yield from _rows_without_columns(rows)
        return
    try:
        seen = 0
        for batch in _streamed(reader, rows, template, places):
            seen += batch.num_rows
            yield batch
        return
    except NeedsRecoding:
        pass
    except DamagedSource:
        if all(place.chunk.decodable for place in places):
            raise
    parts = reader.read_ranges([(place.chunk.start, place.chunk.compressed) for place in places])
    coded = [Coded.of_chunk(place, part) for place, part in zip(places, parts, strict=True)]
    with _scan_errors(places):
        for batch in open_recoded(template, rows, coded).iter_batches(_batch_rows(rows, places), use_threads=False):
            check_leaf_lengths(batch)
            known = min(seen, batch.num_rows)
            seen -= known
            if known < batch.num_rows:
                yield batch.slice(known)


def _streamed(
    reader: RangeReader, rows: int, template: FooterTemplate, places: Sequence[ChunkPlace]
) -> Iterator[pa.RecordBatch]:
    """The rows as pyarrow reads them from the file."""
    chunks = []
    for place in places:
        chunk = place.chunk
        chunks.append(
            ChunkEntry(chunk.codec, chunk.values, chunk.uncompressed, chunk.compressed, chunk.start, chunk.data_offset)
        )
    with PageCheckingFile(reader, template.footer(rows, chunks), places) as file, _scan_errors(places, file):
        for batch in open_with_pyarrow(file, BUFFER).iter_batches(_batch_rows(rows, places), use_threads=False):
            check_leaf_lengths(batch)
            yield batch


@contextmanager
def _scan_errors(places: Sequence[ChunkPlace], file: PageCheckingFile | None = None) -> Iterator[None]:
    """Turn errors of pyarrow into DamagedSource or UnsupportedFormat, or the error that the file kept."""
    try:
        yield
    except (pa.ArrowException, OSError, ValueError) as error:
        if file is not None and file.failure is not None:  # the store's error, or the error of a page
            raise file.failure from None
        check_memory(error)
        where = f"row group {places[0].row_group}, columns {', '.join(sorted({p.column for p in places}))}"
        offset = min(place.chunk.start for place in places)
        if isinstance(error, pa.ArrowNotImplementedError):
            raise UnsupportedFormat(f"{where}: {error}", places[0].path, offset) from error
        raise DamagedSource(f"{where}: cannot be decoded: {error}", places[0].path, offset) from error


def _batch_rows(rows: int, places: Sequence[ChunkPlace]) -> int:
    """The number of rows to decode at a time: fewer if they are long."""
    total = sum(max(place.chunk.uncompressed, 0) for place in places)
    return max(min(BATCH, BATCH_BYTES * rows // max(total, 1)), 1)


def _rows_without_columns(rows: int) -> Iterator[pa.RecordBatch]:
    for first in range(0, rows, BATCH):
        yield pa.RecordBatch.from_struct_array(pa.array([{}] * min(BATCH, rows - first), pa.struct([])))
