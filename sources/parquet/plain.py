"""A few picked rows of a flat leaf as Arrow, where Arrow holds values as the PLAIN encoding writes them: no Parquet
file has to be made of them for pyarrow to read."""

from array import array
from itertools import accumulate

import numpy as np
import pyarrow as pa

from sources.parquet.picked import LeafRows
from sources.parquet.schema import BINARY, Column
from sources.parquet.values import LENGTH_BYTES

MOST_ROWS = 64  # beyond which pyarrow, which is called once for all of them, is faster
LONGEST = (1 << 31) - 1  # bytes of all texts of an array
INT32, INT64, FLOAT, DOUBLE = 1, 2, 4, 5  # physical types (Type in parquet.thrift)
# Each physical type with the Arrow types that have its bytes. Of moments the unit is that of the file, for pyarrow
# reads every file's schema, and of INT64 it converts none.
SAME_BYTES = {
    INT32: frozenset({pa.int32().id, pa.date32().id}),
    INT64: frozenset({pa.int64().id, pa.timestamp("us").id}),
    FLOAT: frozenset({pa.float32().id}),
    DOUBLE: frozenset({pa.float64().id}),
    BINARY: frozenset({pa.string().id, pa.binary().id}),
}


def is_plain(column: Column, kind: pa.DataType, rows: int) -> bool:
    """Whether so many rows of a column, of this Arrow type, are made by `plain_array`."""
    return column.flat and rows <= MOST_ROWS and kind.id in SAME_BYTES.get(column.leaves[0].kind, ())


def plain_array(column: Column, kind: pa.DataType, rows: LeafRows) -> pa.Array:
    """The rows of a column for which `is_plain`. ArrowInvalid where there are more or fewer values than the levels
    say."""
    leaf = column.leaves[0]
    there = rows.definitions if leaf.definitions else b"\1" * rows.entries
    if len(there) != rows.entries:
        raise pa.ArrowInvalid(f"{len(there)} levels of {rows.entries} rows")
    valid, count = None, there.count(1)
    if count < rows.entries:
        valid = pa.py_buffer(np.packbits(np.frombuffer(there, np.uint8), bitorder="little"))
    buffers = _texts(rows.values, there) if leaf.kind == BINARY else [_numbers(rows.values, there, leaf.width, count)]
    return pa.Array.from_buffers(kind, rows.entries, [valid, *buffers])


def _numbers(values: bytes, there: bytes, width: int, count: int) -> pa.Buffer:
    """Values of `width` bytes each, zeros where there is none."""
    if len(values) != width * count:
        raise pa.ArrowInvalid(f"{len(values)} bytes of {count} values of {width} bytes")
    if count == len(there):
        return pa.py_buffer(values)
    whole = np.zeros((len(there), width), np.uint8)
    whole[np.frombuffer(there, np.bool_)] = np.frombuffer(values, np.uint8).reshape(-1, width)
    return pa.py_buffer(whole)


def _texts(values: bytes, there: bytes) -> list[pa.Buffer]:
    """Where each begins, and the bytes of all of them; each has its length before it in `values`."""
    lengths, texts, position = [], [], 0
    for is_there in there:
        end = position
        if is_there:
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
