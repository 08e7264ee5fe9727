"""Files whose records are compressed together, some thousand in a block.

    block     four bytes FF, the 16 bytes of the sync marker; a vint: the number of records
              four buffers, each compressed alone, after a vint with its length in bytes:
              lengths of the keys (vints), keys, lengths of the values (vints), values

The pointer of a row is the position of its block, and its ordinal in the block.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from gnomon.base.compression import DecompressionError
from gnomon.base.readers import RangeReader
from gnomon.sources.contract import Split
from gnomon.sources.errors import DamagedSource, UnsupportedFormat
from gnomon.sources.pointers import with_pointers
from gnomon.sources.sequence.codecs import LARGEST
from gnomon.sources.sequence.row_layout import BATCH_BYTES, BATCH_ROWS, RowLayout
from gnomon.sources.sequence.scan_buffer import ScanBuffer, first_run
from gnomon.sources.sequence.varints import LONGEST, Longs, all_vints, one_vint
from gnomon.sources.sequence.writables import Cells
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


def read_cells(block: Block, data: bytes, lengths_in: int, position: int, layout: RowLayout, path: str) -> Cells:
    """Keys (KEY_LENGTHS) or values (VALUE_LENGTHS) of a block, decompressed."""
    lengths = lengths_of(block, data, lengths_in, position, layout, path)
    total = int(lengths.sum())
    plain = _unpacked(block, data, lengths_in + 1, total, position, layout, path)
    if len(plain) != total:
        message = f"a block's {BUFFERS[lengths_in + 1]} are {len(plain)} bytes, the sum of their lengths is {total}"
        raise DamagedSource(message, path, position)
    return Cells(plain, np.cumsum(lengths) - lengths, lengths)


def lengths_of(block: Block, data: bytes, which: int, position: int, layout: RowLayout, path: str) -> Longs:
    """The lengths in a buffer, checked: one for each row of the block, none negative, their sum within the limit."""
    most = min(block.rows * LONGEST, LARGEST)
    lengths = all_vints(_unpacked(block, data, which, most, position, layout, path))
    if lengths is None or len(lengths) != block.rows:
        fault = "end inside a number" if lengths is None else f"are {len(lengths)}"
        raise DamagedSource(f"a block of {block.rows} rows: the {BUFFERS[which]} {fault}", path, position)
    if block.rows and (lengths.min() < 0 or lengths.max() > INT32_MAX):
        wrong = lengths.min() if lengths.min() < 0 else lengths.max()
        raise DamagedSource(f"a block's {BUFFERS[which]} say {wrong} bytes", path, position)
    if lengths.sum() > LARGEST:
        message = f"a block's {BUFFERS[which + 1]} unpack to {lengths.sum()} bytes; the limit is {LARGEST}"
        raise UnsupportedFormat(message, path, position)
    return lengths


def _unpacked(block: Block, data: bytes, which: int, most: int, position: int, layout: RowLayout, path: str) -> bytes:
    assert layout.inflate is not None  # a file of blocks has a codec in its header
    start, length = block.buffers[which]
    try:
        return layout.inflate(data[start : start + length], most)
    except DecompressionError as error:
        raise DamagedSource(f"a block's {BUFFERS[which]} cannot be decompressed: {error}", path, position) from error


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
    keys = values = None
    if layout.wants_key(columns):
        keys = read_cells(block, data, KEY_LENGTHS, position, layout, path)
    else:  # without columns, the number of rows is checked nevertheless
        lengths_of(block, data, KEY_LENGTHS, position, layout, path)
    if layout.wants_value(columns):
        values = read_cells(block, data, VALUE_LENGTHS, position, layout, path)
    plain = sum(len(cells.data) for cells in (keys, values) if cells is not None)
    step = max(min(BATCH_ROWS, BATCH_BYTES * block.rows // max(plain, 1)), 1)
    for first in range(0, block.rows, step):
        count = min(step, block.rows - first)
        rows = slice(first, first + count)
        offsets = np.full(count, position, dtype=np.int64)
        arrays = layout.arrays(
            columns, keys.part(rows) if keys else None, values.part(rows) if values else None, path, offsets
        )
        yield with_pointers(
            pa.RecordBatch.from_arrays(arrays, schema=fields),
            int64s(offsets),
            int32s(np.arange(first, first + count, dtype=np.int32)),
            int32s(np.full(count, size, dtype=np.int32)),
        )
