"""Scans all rows of a file or a split, with their pointers."""

from collections.abc import Iterator
from contextlib import suppress

import numpy as np
import pyarrow as pa

from gnomon.base.readers import RangeReader
from gnomon.sources.avro.block_records import block_errors, check_end, unpack_records
from gnomon.sources.avro.container import Block, Header, ReadAheadBuffer, block_at, check_block, first_block, payload_of
from gnomon.sources.avro.decoder import Batch, Decoder
from gnomon.sources.contract import Split
from gnomon.sources.errors import SourceError
from gnomon.sources.pointers import with_pointers
from gnomon.sources.types import int32s, int64s

BATCH_ROWS = 64 << 10
# bytes of records: as Python objects, before they are Arrow arrays, they may take 40 times as much
BATCH_BYTES = 4 << 20


def scan_rows(
    reader: RangeReader, header: Header, codec: str, least: int, decoder: Decoder, split: Split
) -> Iterator[pa.RecordBatch]:
    """The rows of a split, in batches. `least`: bytes of the shortest possible row. Rows before damage come before the
    error."""
    scan = _Scan(ReadAheadBuffer(reader, split[1]), header, codec, least, decoder)
    offset, row = first_block(scan.reads, header, split[0]), 0
    if offset >= split[1]:
        return
    try:
        for batch in scan.batches(offset):
            last_offset, last_row, _ = (column[-1].as_py() for column in batch.columns[-3:])
            offset, row = last_offset, last_row + 1
            yield batch
    except SourceError:
        yield from scan.sound(offset, row)
        raise


class _Scan:
    """The constants of a scan. `least`: bytes of the shortest possible row."""

    def __init__(self, reads: ReadAheadBuffer, header: Header, codec: str, least: int, decoder: Decoder) -> None:
        self.reads = reads
        self._sync = header.sync
        self._codec = codec
        self._least = least
        self._decoder = decoder
        self._most = min(BATCH_ROWS, decoder.most_rows)

    def _blocks(self, offset: int) -> Iterator[tuple[Block, bytes]]:
        """The blocks from `offset` on that begin in the split, with their records. Also checks the first block after
        the split."""
        reads = self.reads
        while offset < min(reads.end, reads.size):
            block = block_at(reads, offset)
            payload = payload_of(reads, block, self._sync)
            yield block, unpack_records(self._codec, block, payload, self._least, reads.path)
            offset = block.end
        if offset < reads.size:
            check_block(reads, offset, self._sync)

    def batches(self, offset: int) -> Iterator[pa.RecordBatch]:
        """The rows from the block at `offset` on."""
        pending = _Pending(self._decoder, self.reads.path)
        for block, records in self._blocks(offset):
            position = row = 0
            while row < block.rows:
                position, row = pending.read(block, records, position, row, self._most)
                if pending.rows >= self._most or pending.record_bytes >= BATCH_BYTES:
                    yield pending.to_batch()
                    pending = _Pending(self._decoder, self.reads.path)
            check_end(block, records, position, self.reads.path)
        if pending.rows:
            yield pending.to_batch()

    def sound(self, offset: int, row: int) -> Iterator[pa.RecordBatch]:
        """The rows from row `row` of the block at `offset` up to the damage. Reads a block at a time; after a failure,
        half as many rows."""
        with suppress(SourceError):
            for block, records in self._blocks(offset):
                with block_errors(self.reads.path, block.offset):
                    position = Batch(self._decoder).skip(records, 0, row)
                step = self._most
                while row < block.rows:
                    pending = _Pending(self._decoder, self.reads.path)
                    try:
                        end, following = pending.read(block, records, position, row, step)
                        batch = pending.to_batch()
                    except SourceError:
                        step = min(step, block.rows - row) // 2
                        if not step:
                            raise
                        continue
                    yield batch
                    position, row = end, following
                check_end(block, records, position, self.reads.path)
                row = 0


class _Pending:
    """Rows that will be a batch, and the blocks that they come from."""

    def __init__(self, decoder: Decoder, path: str) -> None:
        self._decoder = decoder
        self._path = path
        self._batch = Batch(decoder)
        self._parts: list[tuple[Block, int, int]] = []  # block, first row, rows

    @property
    def rows(self) -> int:
        return self._batch.rows

    @property
    def record_bytes(self) -> int:
        return self._batch.bytes

    def read(self, block: Block, records: bytes, position: int, row: int, most: int) -> tuple[int, int]:
        """Read rows of a block until it ends or the batch is full. Returns the position and number of the next row."""
        stop = position + BATCH_BYTES - self.record_bytes
        with block_errors(self._path, block.offset):
            position, done = self._batch.read(records, position, min(block.rows - row, most - self.rows), stop)
        self._parts.append((block, row, done))
        return position, row + done

    def to_batch(self) -> pa.RecordBatch:
        """The rows, with their pointers."""
        with block_errors(self._path, self._parts[0][0].offset):
            arrays = self._batch.arrays()
        counts = [rows for _, _, rows in self._parts]
        offsets = np.repeat(np.array([block.offset for block, _, _ in self._parts], dtype=np.int64), counts)
        sizes = np.repeat(np.array([block.row_bytes for block, _, _ in self._parts], dtype=np.int32), counts)
        ordinals = np.concatenate([np.arange(row, row + rows, dtype=np.int32) for _, row, rows in self._parts])
        columns = pa.RecordBatch.from_arrays(arrays, schema=self._decoder.schema)
        return with_pointers(columns, int64s(offsets), int32s(ordinals), int32s(sizes))
