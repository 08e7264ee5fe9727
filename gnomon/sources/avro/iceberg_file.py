"""Avro files of an Iceberg table.

A pointer has one number, as in Parquet and ORC files, so that a mask can name deleted rows: the position of the row's
block times 2^20, plus the row's ordinal in the block. Iceberg counts rows of the file instead: `numbers_of_rows`."""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from gnomon.base.actions import Action
from gnomon.base.readers import RangeReader
from gnomon.sources.avro.container import ReadAheadBuffer, check_block
from gnomon.sources.avro.reader import AvroFile, open_as
from gnomon.sources.contract import Numbers, Pointers, Split
from gnomon.sources.errors import DamagedSource, StalePointer, UnsupportedFormat
from gnomon.sources.pointers import pointer_pairs, with_pointers
from gnomon.sources.types import int32s, int64s

ROW_BITS = 20
MOST_BLOCK_ROWS = 1 << ROW_BITS  # Iceberg ends a block at 64 KB of records
MOST_BYTES = 1 << (63 - ROW_BITS)  # of a file


class IcebergAvroFile(AvroFile):
    """An Avro file whose pointers have one number. Its schema has Iceberg's types."""

    of_iceberg = True

    def scan(self, reader: RangeReader, columns: Sequence[str], split: Split | None = None) -> Iterator[pa.RecordBatch]:
        count = len(columns)
        for batch in super().scan(reader, columns, split):
            blocks, rows, sizes = batch.columns[count:]
            numbers = _numbers(blocks.to_numpy(), rows.to_numpy(), reader.name)
            own = batch.select(range(count))
            yield with_pointers(own, int64s(numbers), int32s(np.zeros(len(numbers), np.int32)), sizes)

    def units(self, offsets: Numbers) -> Numbers:
        """The positions of blocks."""
        return offsets >> ROW_BITS

    def fetch(self, reader: RangeReader, pointers: Pointers, columns: Sequence[str]) -> pa.Table:
        pairs = pointer_pairs(pointers, reader.name)
        wrong = np.flatnonzero(pairs[:, 1])
        if len(wrong):
            raise StalePointer(
                f"no row at pointer {tuple(pairs[wrong[0]].tolist())}", reader.name, action=Action.BUILD_AGAIN
            )
        numbers = pairs[:, 0]
        places = np.column_stack([numbers >> ROW_BITS, numbers & (MOST_BLOCK_ROWS - 1)])
        return super().fetch(reader, places, columns)


def open_iceberg_avro(reader: RangeReader) -> IcebergAvroFile:
    """Open an Avro file of an Iceberg table. Reads as `open_avro`."""
    return open_as(IcebergAvroFile, reader)


def numbers_of_rows(reader: RangeReader, rows: Numbers) -> Numbers:
    """The number in the pointer of each of these rows, which are ordinals in the file and ascend. Reads the heads of
    blocks up to the last row. DamagedSource where the file has fewer rows."""
    header, path = open_iceberg_avro(reader).header, reader.name
    reads = ReadAheadBuffer(reader, reader.size)
    found, offset, first, done = [], header.end, 0, 0
    while done < len(rows):
        if offset >= reader.size:
            raise DamagedSource(
                "a delete names a row that the file does not have",
                path,
                expected=f"a row below {first}",
                found=f"row {rows[done]}",
            )
        block = check_block(reads, offset, header.sync)
        end = int(np.searchsorted(rows, first + block.rows))
        if end > done:
            found.append(_numbers(np.int64(offset), rows[done:end] - first, path))
        offset, first, done = block.end, first + block.rows, end
    return np.concatenate([np.zeros(0, np.int64), *found])


def _numbers(blocks: Numbers | np.int64, rows: Numbers, path: str) -> Numbers:
    """The numbers of rows, by the positions of their blocks and their ordinals in these."""
    if len(rows) and (int(rows.max()) >= MOST_BLOCK_ROWS or int(np.max(blocks)) >= MOST_BYTES):
        raise UnsupportedFormat(
            f"a block of more than {MOST_BLOCK_ROWS:,} rows, or a file of more than {MOST_BYTES:,} bytes", path
        )
    numbers: Numbers = (blocks << ROW_BITS) + rows.astype(np.int64)
    return numbers
