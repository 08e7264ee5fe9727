"""Files whose records are compressed together, some thousand in a block.

    block     four bytes FF, the 16 bytes of the sync marker; a vint: the number of records
              four buffers, each compressed alone, after a vint with its length in bytes:
              lengths of the keys (vints), keys, lengths of the values (vints), values

The pointer of a row is the position of its block, and its ordinal in the block.

The length of a block follows from the lengths of its buffers, one after another. The first round of a fetch reads an
estimated length of each block; further rounds, nearly always one, read the rest of longer blocks.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from gnomon.base.compression import DecompressionError
from gnomon.base.errors import Action
from gnomon.base.readers import RangeReader
from gnomon.sources.contract import Split
from gnomon.sources.errors import DamagedSource, StalePointer, UnsupportedFormat
from gnomon.sources.pointers import in_rounds, with_pointers
from gnomon.sources.sequence.layout import (
    BATCH_BYTES,
    BATCH_ROWS,
    LARGEST,
    TOGETHER,
    RowLayout,
    ScanBuffer,
    first_run,
    stale,
)
from gnomon.sources.sequence.writables import LONGEST, Cells, Longs, all_vints, one_vint
from gnomon.sources.types import int32s, int64s

KEY_LENGTHS, KEYS, VALUE_LENGTHS, VALUES = range(4)
BUFFERS = ("lengths of keys", "keys", "lengths of values", "values")
INT32_MAX = (1 << 31) - 1
# rows of a block; a block with more bytes may have one row per byte, since a row takes more memory than a byte
MOST_ROWS = 1 << 24


class Block(NamedTuple):
    """`buffers`: `(start, length)` of each in the bytes that were measured. `length`: bytes of the whole block."""

    rows: int
    buffers: list[tuple[int, int]]
    length: int


class Need(NamedTuple):
    """More bytes of a block are needed: `length` in total. `whole`: that is the whole block. `rows`: 0 if not known
    yet."""

    length: int
    whole: bool
    rows: int


def measure(data: bytes, at: int, position: int, layout: RowLayout, path: str, size: int) -> Block | Need:
    """The block that begins at `at` in the data, at `position` in the file, which has `size` bytes."""
    marker = layout.header.marker
    rows, buffers, end = 0, [], at + len(marker)
    if end > len(data):
        return _more(len(marker), rows, len(data) - at, path, position, size)
    if data[at:end] != marker:
        raise DamagedSource("expected the file's sync marker, found other bytes", path, position)
    for what in ("number of records", *BUFFERS):
        found = one_vint(data, end)
        if found is None:
            return _more(end - at, rows, len(data) - at, path, position, size)
        number, digits = found
        if not 0 <= number <= INT32_MAX:
            raise DamagedSource(f"a block claims {number}: {what}", path, position + end - at)
        end += digits
        if what not in BUFFERS:
            rows = number
            continue
        buffers.append((end, number))
        end += number
        if end - at > size - position:
            raise _too_long(end - at, path, position, size)
        if number > LARGEST:
            message = f"a block's {what} take {number} bytes; the limit is {LARGEST}"
            raise UnsupportedFormat(message, path, position)
        if end > len(data):
            return Need(end - at, what == BUFFERS[VALUES], rows)
    if rows > max(MOST_ROWS, end - at):
        message = f"a block of {rows} rows in {end - at} bytes; the limit is {MOST_ROWS}, or one row per byte"
        raise UnsupportedFormat(message, path, position)
    return Block(rows, buffers, end - at)


def _more(length: int, rows: int, held: int, path: str, position: int, size: int) -> Need:
    """The need for `length` bytes and the longest possible number."""
    wanted = min(length + LONGEST, size - position)
    if wanted <= held:
        raise _too_long(length + 1, path, position, size)
    return Need(wanted, False, rows)


def _too_long(length: int, path: str, position: int, size: int) -> DamagedSource:
    message = f"a block takes {length} bytes or more, the file ends after {size - position}"
    return DamagedSource(message, path, position)


class PackedCells(NamedTuple):
    """The keys and values of a block. `position`: of the block in the file. `data`: the bytes that were measured."""

    block: Block
    data: bytes
    position: int
    layout: RowLayout
    path: str

    def requested(self, columns: Sequence[str]) -> tuple[Cells | None, Cells | None]:
        """Keys and values, decompressed; None where no column needs them. The number of rows is checked in any case."""
        keys = values = None
        if self.layout.wants_key(columns):
            keys = self._cells(KEY_LENGTHS)
        else:
            self._lengths(KEY_LENGTHS)
        if self.layout.wants_value(columns):
            values = self._cells(VALUE_LENGTHS)
        return keys, values

    def _cells(self, lengths_in: int) -> Cells:
        """Keys (KEY_LENGTHS) or values (VALUE_LENGTHS), decompressed."""
        lengths = self._lengths(lengths_in)
        total = int(lengths.sum())
        plain = self._unpacked(lengths_in + 1, total)
        if len(plain) != total:
            message = f"a block's {BUFFERS[lengths_in + 1]} are {len(plain)} bytes, the sum of their lengths is {total}"
            raise DamagedSource(message, self.path, self.position)
        return Cells(plain, np.cumsum(lengths) - lengths, lengths)

    def _lengths(self, which: int) -> Longs:
        """The lengths in a buffer, checked: one for each row of the block, none negative, their sum within the
        limit."""
        rows, path, position = self.block.rows, self.path, self.position
        lengths = all_vints(self._unpacked(which, min(rows * LONGEST, LARGEST)))
        if lengths is None or len(lengths) != rows:
            fault = "end inside a number" if lengths is None else f"are {len(lengths)}"
            raise DamagedSource(f"a block of {rows} rows: the {BUFFERS[which]} {fault}", path, position)
        if rows and (lengths.min() < 0 or lengths.max() > INT32_MAX):
            wrong = lengths.min() if lengths.min() < 0 else lengths.max()
            raise DamagedSource(f"a block's {BUFFERS[which]} say {wrong} bytes", path, position)
        if lengths.sum() > LARGEST:
            message = f"a block's {BUFFERS[which + 1]} unpack to {lengths.sum()} bytes; the limit is {LARGEST}"
            raise UnsupportedFormat(message, path, position)
        return lengths

    def _unpacked(self, which: int, most: int) -> bytes:
        assert self.layout.inflate is not None  # a file of blocks has a codec in its header
        start, length = self.block.buffers[which]
        try:
            return self.layout.inflate(self.data[start : start + length], most)
        except DecompressionError as error:
            what = f"a block's {BUFFERS[which]} cannot be decompressed: {error}"
            raise DamagedSource(what, self.path, self.position) from error


def scan_blocks(
    reader: RangeReader, layout: RowLayout, columns: Sequence[str], split: Split
) -> Iterator[pa.RecordBatch]:
    position = first_run(reader, layout.header, split)
    if position is None:
        return
    window = ScanBuffer(reader.name, reader.size, position, split[1])
    while position < min(split[1], window.size):
        block = measure(window.data, position - window.base, position, layout, window.path, window.size)
        if isinstance(block, Need):
            window.move(reader, position, block.length)
            continue
        yield from _batches(block, window.data, position, layout, columns, window.path)
        position += block.length


def _batches(
    block: Block, data: bytes, position: int, layout: RowLayout, columns: Sequence[str], path: str
) -> Iterator[pa.RecordBatch]:
    fields = pa.schema([layout.schema.field(name) for name in columns])
    size = min(max(block.length // max(block.rows, 1), 1), INT32_MAX)
    both = PackedCells(block, data, position, layout, path).requested(columns)
    plain = sum(len(cells.data) for cells in both if cells is not None)
    step = max(min(BATCH_ROWS, BATCH_BYTES * block.rows // max(plain, 1)), 1)
    for first in range(0, block.rows, step):
        count = min(step, block.rows - first)
        rows = slice(first, first + count)
        offsets = np.full(count, position, dtype=np.int64)
        keys, values = (None if cells is None else cells.part(rows) for cells in both)
        arrays = layout.arrays(columns, keys, values, path, offsets)
        yield with_pointers(
            pa.RecordBatch.from_arrays(arrays, schema=fields),
            int64s(offsets),
            int32s(np.arange(first, first + count, dtype=np.int32)),
            int32s(np.full(count, size, dtype=np.int32)),
        )


def fetch_blocks(
    reader: RangeReader, layout: RowLayout, columns: Sequence[str], offsets: Longs, ordinals: Longs, guess: int
) -> Iterator[tuple[Longs, list[pa.Array], int]]:
    """`(ordinals of pointers, their columns, bytes of the block)`, each pointer once. Pointers ascend and are
    distinct."""
    path, size = reader.name, reader.size
    first = np.flatnonzero(np.append(True, offsets[1:] > offsets[:-1]))
    ends = np.append(first[1:], len(offsets))
    positions = offsets[first]
    wrong = np.flatnonzero((positions < layout.header.end) | (positions > size - len(layout.header.marker)))
    if len(wrong):
        raise stale("the position is outside the file's blocks", path, positions[wrong[0]])
    room = np.append(positions[1:], size) - positions  # bytes up to the next wanted block
    for ordinal, block, data in _blocks(reader, layout, positions.tolist(), np.minimum(room, guess).tolist(), guess):
        rows = np.arange(first[ordinal], ends[ordinal], dtype=np.int64)
        wanted, position = ordinals[rows], int(positions[ordinal])
        if wanted[0] < 0 or wanted[-1] >= block.rows:
            message = f"no row {wanted[0] if wanted[0] < 0 else wanted[-1]} in a block of {block.rows}"
            raise StalePointer(message, path, position, action=Action.BUILD_AGAIN)
        both = PackedCells(block, data, position, layout, path).requested(columns)
        keys, values = (None if cells is None else cells.part(wanted) for cells in both)
        yield rows, layout.arrays(columns, keys, values, path, offsets[rows]), block.length


def _blocks(
    reader: RangeReader, layout: RowLayout, positions: list[int], lengths: list[int], guess: int
) -> Iterator[tuple[int, Block, bytes]]:
    """`(ordinal, block, its bytes)`, in the order in which blocks are complete. The first read of each has its bytes in
    `lengths`."""
    path, size = reader.name, reader.size
    wanted = list(enumerate(lengths))  # ordinal of a block, and the length of its bytes to hold
    held: dict[int, bytes] = {}
    while wanted:
        now = next(in_rounds(wanted, lambda each: each[1], TOGETHER))
        wanted = wanted[len(now) :]
        kept = [held.pop(ordinal, b"") for ordinal, _ in now]
        ranges = [(positions[i] + len(have), length - len(have)) for (i, length), have in zip(now, kept, strict=True)]
        longer = []
        for (ordinal, _), have, more in zip(now, kept, reader.read_ranges(ranges), strict=True):
            data, position = have + more, positions[ordinal]
            if not have and not data.startswith(layout.header.marker):
                raise stale("no block begins at this position", path, position)
            block = measure(data, 0, position, layout, path, size)
            if isinstance(block, Block):
                yield ordinal, block, data
                continue
            held[ordinal] = data
            # the whole block where its length is known
            length = block.length if block.whole else min(block.length + guess, size - position)
            longer.append((ordinal, length))
        wanted = longer + wanted
