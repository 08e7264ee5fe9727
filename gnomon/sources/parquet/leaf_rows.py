"""A few rows of one leaf, taken from their pages, and how they become Arrow arrays.

`build_array` makes an array of types whose Arrow layout equals the PLAIN encoding. For other columns `decode_leaves`
writes the rows of all leaves into one Parquet file in memory, which pyarrow decodes in one call.
"""

import struct
from array import array
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from gnomon.base.varints import encode_unsigned
from gnomon.sources.parquet.footer import BINARY, BOOLEAN, MAGIC, Column, Leaf
from gnomon.sources.parquet.page_header import DATA, PLAIN, check_leaf_lengths
from gnomon.sources.parquet.page_values import LENGTH_BYTES
from gnomon.sources.parquet.synthetic_file import UNCOMPRESSED, ChunkEntry, FooterTemplate, encode_page_header


class LeafRows(NamedTuple):
    """Rows of one leaf. `entries` counts values, nulls and empty lists. `repetitions` and `definitions` have a byte for
    each entry, or are empty where the leaf has no such levels. `values`: the values in the PLAIN encoding."""

    entries: int
    repetitions: bytes
    definitions: bytes
    values: bytes


def concatenate(parts: Sequence[LeafRows]) -> LeafRows:
    """The rows of several parts, in their order."""
    if len(parts) == 1:
        return parts[0]
    return LeafRows(
        sum(part.entries for part in parts),
        b"".join([part.repetitions for part in parts]),
        b"".join([part.definitions for part in parts]),
        b"".join([part.values for part in parts]),
    )


def decode_leaves(template: FooterTemplate, leaves: Sequence[Leaf], columns: Sequence[LeafRows], rows: int) -> pa.Table:
    """A table of `rows` rows, from the rows of each leaf of the template."""
    parts: list[bytes] = []
    chunks, start = [], len(MAGIC)
    for leaf, column in zip(leaves, columns, strict=True):
        values = _pack_booleans(column.values) if leaf.kind == BOOLEAN else column.values
        repetitions = encode_levels(column.repetitions, leaf.repetitions)
        definitions = encode_levels(column.definitions, leaf.definitions)
        size = len(repetitions) + len(definitions) + len(values)
        head = encode_page_header(DATA, column.entries, PLAIN, size, size)
        total = len(head) + size
        parts += (head, repetitions, definitions, values)
        chunks.append(ChunkEntry(UNCOMPRESSED, column.entries, total, total, start, start))
        start += total
    table = template.open(rows, chunks, parts, verify=False).read_row_group(0, use_threads=False)
    table.validate()
    for batch in table.to_batches():
        check_leaf_lengths(batch)
    if table.num_rows != rows:
        raise pa.ArrowInvalid(f"{table.num_rows} rows, expected {rows}")
    return table


def encode_levels(levels: bytes, highest: int) -> bytes:
    """Levels encoded in the RLE / bit-packing hybrid, as one run, after their length in bytes."""
    if not highest:
        return b""
    width = highest.bit_length()
    if len(levels) == 0 or levels.count(levels[0]) == len(levels):
        run = encode_unsigned(len(levels) << 1) + (levels[:1] or b"\0")
    else:
        groups = (len(levels) + 7) >> 3
        numbers = np.zeros(8 * groups, np.uint8)
        numbers[: len(levels)] = np.frombuffer(levels, np.uint8)
        bits = numbers[:, None] >> np.arange(width, dtype=np.uint8) & 1
        run = encode_unsigned(groups << 1 | 1) + np.packbits(bits, bitorder="little").tobytes()
    return len(run).to_bytes(LENGTH_BYTES, "little") + run


def _pack_booleans(booleans: bytes) -> bytes:
    return np.packbits(np.frombuffer(booleans, np.uint8), bitorder="little").tobytes()


MOST_ROWS = 64  # for more, one call of pyarrow for all columns is faster
LONGEST = (1 << 31) - 1  # bytes of all texts of an array
INT32, INT64, INT96, FLOAT, DOUBLE = 1, 2, 3, 4, 5  # physical types (Type in parquet.thrift)
UNIX_EPOCH = 2_440_588  # the Julian day
DAY = 86_400_000_000  # microseconds
WORD = 1 << 64
# Each physical type with the Arrow types that have the same bytes. Timestamps keep the file's unit, since pyarrow read
# the file's schema, and it converts no INT64.
SAME_BYTES = {
    INT32: frozenset({pa.int32().id, pa.date32().id}),
    INT64: frozenset({pa.int64().id, pa.timestamp("us").id}),
    INT96: frozenset({pa.timestamp("us").id}),  # after `_microseconds`
    FLOAT: frozenset({pa.float32().id}),
    DOUBLE: frozenset({pa.float64().id}),
    BINARY: frozenset({pa.string().id, pa.binary().id}),
}


def has_arrow_layout(column: Column, kind: pa.DataType, rows: int) -> bool:
    """Whether `build_array` handles this number of rows of a column of this Arrow type."""
    if not column.flat or rows > MOST_ROWS:
        return False
    stored = column.leaves[0].kind
    return kind.id in SAME_BYTES.get(stored, ()) and (stored != INT96 or kind.unit == "us")


def build_array(column: Column, kind: pa.DataType, rows: LeafRows) -> pa.Array:
    """The rows of a column for which `has_arrow_layout` is true, as an array. ArrowInvalid where levels and values
    contradict each other."""
    leaf = column.leaves[0]
    present = rows.definitions if leaf.definitions else b"\1" * rows.entries
    if len(present) != rows.entries:
        raise pa.ArrowInvalid(f"{len(present)} levels for {rows.entries} rows")
    valid, count = None, present.count(1)
    if count < rows.entries:
        valid = pa.py_buffer(np.packbits(np.frombuffer(present, np.uint8), bitorder="little"))
    if leaf.kind == BINARY:
        buffers = _byte_array_buffers(rows.values, present)
    elif leaf.kind == INT96:
        buffers = [_numbers(_microseconds(rows.values), present, 8, count)]
    else:
        buffers = [_numbers(rows.values, present, leaf.width, count)]
    return pa.Array.from_buffers(kind, rows.entries, [valid, *buffers])


def _microseconds(values: bytes) -> bytes:
    """INT96 timestamps, each the nanoseconds of the day and the Julian day, as microseconds since 1970. What does not
    fit into 64 bits wraps, as it does in pyarrow."""
    if len(values) % 12:
        raise pa.ArrowInvalid(f"{len(values)} bytes of INT96 values")
    times = [(day - UNIX_EPOCH) * DAY + nanoseconds // 1000 for nanoseconds, day in struct.iter_unpack("<QI", values)]
    return b"".join([(time % WORD).to_bytes(8, "little") for time in times])


def _numbers(values: bytes, present: bytes, width: int, count: int) -> pa.Buffer:
    """Values of `width` bytes each, with zeros for nulls."""
    if len(values) != width * count:
        raise pa.ArrowInvalid(f"{len(values)} bytes for {count} values of {width} bytes")
    if count == len(present):
        return pa.py_buffer(values)
    whole = np.zeros((len(present), width), np.uint8)
    whole[np.frombuffer(present, np.bool_)] = np.frombuffer(values, np.uint8).reshape(-1, width)
    return pa.py_buffer(whole)


def _byte_array_buffers(values: bytes, present: bytes) -> list[pa.Buffer]:
    """The offsets and the bytes of byte arrays. In `values`, each has its length before it."""
    lengths, texts, position = [], [], 0
    for is_present in present:
        end = position
        if is_present:
            position += LENGTH_BYTES
            end = position + int.from_bytes(values[position - LENGTH_BYTES : position], "little")
            texts.append(values[position:end])
        lengths.append(end - position)
        position = end
    if position != len(values):
        raise pa.ArrowInvalid(f"byte arrays of {position} bytes in {len(values)}")
    if position > LONGEST:
        raise pa.ArrowInvalid(f"byte arrays of {position} bytes in one column")
    offsets = array("i", accumulate(lengths, initial=0))
    return [pa.py_buffer(offsets), pa.py_buffer(b"".join(texts))]
