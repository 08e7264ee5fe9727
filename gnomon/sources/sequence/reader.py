"""A Hadoop SequenceFile as a `SourceFile`. The pointer of a row is the position of its record, or the position of its
block and its ordinal in the block (docs/internals/other-formats.md).
"""

import hashlib
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from gnomon.base.readers import RangeReader
from gnomon.sources.contract import Numbers, Options, Pointers, Split
from gnomon.sources.errors import SourceError, check_column
from gnomon.sources.pointers import distinct_pairs, even_splits, in_pointer_order, table_without_columns
from gnomon.sources.sequence.blocks import Block, fetch_blocks, measure, scan_blocks
from gnomon.sources.sequence.layout import FIRST_READ, RowLayout, ScanBuffer, codec_named, read_header, stale
from gnomon.sources.sequence.records import fetch_records, scan_records, walk
from gnomon.sources.sequence.value_columns import value_columns
from gnomon.sources.sequence.writables import Longs

INT32_MAX = (1 << 31) - 1
RECORD_GUESS = (8 << 10, 1 << 20)  # least and most bytes read at a record; between them, twice the mean
BLOCK_GUESS = (64 << 10, 4 << 20)  # least and most bytes read at a block; between them, the longest one seen
UNSEEN_BLOCK = 256 << 10  # bytes read at a block if no whole block of the file has been seen
FIXED_BYTES = 4 << 10  # memory of an open file, besides its header


def open_sequence(reader: RangeReader, options: Options | None = None) -> "SequenceFile":
    """Open a SequenceFile. Reads the first 64 KB: the header, and the first records for their mean length. `options`:
    `value_format`, `schema`, `delimiter` (value_columns.py)."""
    header, head = read_header(reader)
    path = reader.name
    inflate = None if header.codec is None else codec_named(header.codec, path)
    layout = RowLayout(header, inflate, value_columns(options or {}, header.value_class, path))
    return SequenceFile(layout, reader.size, head, path)


class SequenceFile:
    """One SequenceFile, with its header read. Safe to share between threads: only an estimate of lengths changes."""

    rows = None  # only a scan can count them
    ragged = 0

    def __init__(self, layout: RowLayout, size: int, head: bytes, path: str) -> None:
        self._layout = layout
        self._size = size
        self.schema = layout.schema  # `key` and `value`, or `key` and the columns that values are parsed into
        # of the first 64 KB, which contain the sync marker: it differs from file to file
        self.digest = hashlib.blake2b(head[:FIRST_READ], digest_size=16).hexdigest()
        self.cache_bytes = FIXED_BYTES + layout.header.end
        # mean bytes of the first records, or of those in the first block
        self.row_bytes, self._guess = _sampled(layout, size, head, path)

    def scan_bytes(self, columns: Sequence[str]) -> int:
        """The size of the file, whatever the columns."""
        return self._size if any(name in self.schema.names for name in columns) else 0

    def splits(self, target: int) -> list[Split]:
        return even_splits(self._size, target)

    def scan(self, reader: RangeReader, columns: Sequence[str], split: Split | None = None) -> Iterator[pa.RecordBatch]:
        """All rows; for a split, those of the blocks, or of the runs of records after a sync marker, that begin in it
        (Hadoop's rule)."""
        self._check(columns, reader)
        scan = scan_blocks if self._layout.header.in_blocks else scan_records
        yield from scan(reader, self._layout, columns, split or (0, self._size))

    def units(self, offsets: Numbers) -> Numbers:
        """The blocks; or the records, each by itself."""
        return offsets

    def fetch(self, reader: RangeReader, pointers: Pointers, columns: Sequence[str]) -> pa.Table:
        """The rows. Near records are read together, each block once. One round of reads, and a second for records
        longer than estimated. `StalePointer` where no record or block begins."""
        self._check(columns, reader)
        fields = pa.schema([self.schema.field(name) for name in columns])
        if not len(pointers):
            return fields.empty_table()
        offsets, ordinals, back = distinct_pairs(pointers, reader.name)
        taken: list[Longs] = []
        batches: list[pa.RecordBatch] = []
        for rows, arrays in self._fetched(reader, columns, offsets, ordinals):
            taken.append(rows)
            batches.append(pa.RecordBatch.from_arrays(arrays, schema=fields))
        if not len(columns):
            return table_without_columns(len(back))
        place = np.empty(len(offsets), dtype=np.int64)
        place[np.concatenate(taken)] = np.arange(len(offsets))
        return in_pointer_order(pa.Table.from_batches(batches, fields), place[back])

    def _fetched(
        self, reader: RangeReader, columns: Sequence[str], offsets: Longs, ordinals: Longs
    ) -> Iterator[tuple[Longs, list[pa.Array]]]:
        if not self._layout.header.in_blocks:
            if ordinals.any():
                bad = np.flatnonzero(ordinals)[0]
                message = f"{ordinals[bad]} as second number of a pointer; it must be 0 in a file of single records"
                raise stale(message, reader.name, offsets[bad])
            yield from fetch_records(reader, self._layout, columns, offsets, self._guess)
            return
        for rows, arrays, length in fetch_blocks(reader, self._layout, columns, offsets, ordinals, self._guess):
            self._guess = max(self._guess, min(length, BLOCK_GUESS[1]))
            yield rows, arrays

    def _check(self, columns: Sequence[str], reader: RangeReader) -> None:
        for name in columns:
            check_column(name, self.schema.names, reader.name)


def _sampled(layout: RowLayout, size: int, head: bytes, path: str) -> tuple[int, int]:
    """Mean bytes of a row, and bytes to read at a pointer, from the head of the file. Ignores damage: scan and fetch
    report it after the rows before it."""
    header = layout.header
    try:
        if header.in_blocks:
            return _sampled_block(layout, size, head, path)
        window = ScanBuffer(path, size, 0, size, head)
        walked = walk(window, header.end, header.sync)
    except SourceError:
        return 1, RECORD_GUESS[0]
    rows = len(walked.starts)
    mean = (walked.position - header.end) // rows if rows else walked.need
    return min(max(mean, 1), INT32_MAX), _within(2 * mean, RECORD_GUESS)


def _sampled_block(layout: RowLayout, size: int, head: bytes, path: str) -> tuple[int, int]:
    end = layout.header.end
    if end == size:
        return 1, BLOCK_GUESS[0]
    block = measure(head, end, end, layout, path, size)
    mean = min(max(block.length // max(block.rows, 1), 1), INT32_MAX)
    known = isinstance(block, Block) or block.whole
    return mean, _within(block.length, BLOCK_GUESS) if known else UNSEEN_BLOCK


def _within(value: int, bounds: tuple[int, int]) -> int:
    return min(max(value, bounds[0]), bounds[1])
