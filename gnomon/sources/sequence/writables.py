"""Hadoop's value classes ("writables") as Arrow columns: all rows of a batch at once, from their places in a buffer.

Values of an unknown class are a binary column with the bytes of the file. Text is not checked to be UTF-8: some writers
do not guarantee it, and the code that shows it (shadow/values/row_values.py) checks.

Variable-length numbers (`WritableUtils.writeVLong`) have one to nine bytes. A first byte of -112 or more is the number
itself. Otherwise it gives sign and length: for -113 to -120 one to eight bytes follow, big-endian; for -121 to -128 the
same, with all bits of the number inverted.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from gnomon.base.errors import GnomonError
from gnomon.sources.types import int32s, int64s

LONGEST = 9  # bytes

Bytes = NDArray[np.uint8]
Longs = NDArray[np.int64]
HADOOP = "org.apache.hadoop.io."
CLASS = b"hadoop.class"  # key of a field's metadata


def _size(first: int) -> int:
    """The length of a number in bytes, including its first byte, which states the length."""
    signed = first - 256 if first > 127 else first
    return 1 if signed >= -112 else -111 - signed if signed >= -120 else -119 - signed


_SIZE_OF = bytes(_size(first) for first in range(256))
SIZES = np.frombuffer(_SIZE_OF, dtype=np.uint8)


def one_vint(data: bytes, at: int) -> tuple[int, int] | None:
    """The number at `at`, and its size in bytes; None where the data ends inside it."""
    if at >= len(data) or at + (size := _SIZE_OF[data[at]]) > len(data):
        return None
    if size == 1:
        return data[at] - (256 if data[at] > 127 else 0), 1
    number = int.from_bytes(data[at + 1 : at + size], "big")
    number -= (1 << 64) if number >> 63 else 0  # as Java's long
    return (~number if data[at] <= 0x87 else number), size  # 0x80 to 0x87 are -128 to -121


def vints_at(data: Bytes, starts: Longs) -> Longs:
    """The numbers that begin at `starts`, all of them within the data."""
    first = data[starts]
    numbers = first.view(np.int8).astype(np.int64)
    longer = np.flatnonzero(SIZES[first] > 1)
    if not len(longer):
        return numbers
    sizes, places = SIZES[first[longer]], starts[longer]
    value = np.zeros(len(longer), dtype=np.int64)
    for following in range(1, int(sizes.max())):
        has = sizes > following
        value[has] = value[has] << 8 | data[places[has] + following]
    numbers[longer] = np.where(first[longer] <= 0x87, ~value, value)
    return numbers


def all_vints(data: bytes) -> Longs | None:
    """The numbers that fill a buffer, one after the other; None where it ends inside one."""
    held = np.frombuffer(data, dtype=np.uint8)
    sizes = data.translate(_SIZE_OF)
    if sizes.count(1) == len(sizes):
        return held.view(np.int8).astype(np.int64)
    starts: list[int] = []
    add, at, length = starts.append, 0, len(sizes)
    while at < length:
        add(at)
        at += sizes[at]
    return vints_at(held, np.array(starts, dtype=np.int64)) if at == length else None


class Cells(NamedTuple):
    """The places of a column's values in `data`: ascending, without overlap."""

    data: bytes
    starts: Longs
    lengths: Longs

    def part(self, rows: slice | Longs) -> "Cells":
        return Cells(self.data, self.starts[rows], self.lengths[rows])


class BadCell(GnomonError):
    """The bytes of the value in `row` are not a value of its class."""

    def __init__(self, row: int, message: str) -> None:
        super().__init__(message)
        self.row = row


class Writable(NamedTuple):
    """The decoder of a class. `exact`: the bytes state their own length, or have a fixed one of at least four, so that
    other bytes rarely look like a value."""

    kind: pa.DataType
    decode: Callable[[Cells], pa.Array]
    sized: bool = False
    width: int = 0


def writable_of(name: str) -> Writable:
    return _WRITABLES.get(name, _RAW)


def field_of(column: str, name: str) -> pa.Field:
    return pa.field(column, writable_of(name).kind, metadata={CLASS: name})


def numbers_at(data: bytes, kind: str, starts: Longs) -> NDArray[Any]:
    """The numbers of a numpy type that begin at `starts`, which may be unaligned; in the machine's byte order."""
    width = np.dtype(kind).itemsize
    if len(data) < width:
        return np.empty(0, dtype=kind)  # an empty buffer has no starts
    everywhere: NDArray[Any] = np.ndarray(len(data) - width + 1, dtype=kind, buffer=data, strides=(1,))
    picked = everywhere[starts]
    return picked.astype(picked.dtype.newbyteorder("="))


def pieces(kind: pa.DataType, cells: Cells) -> pa.Array:
    """A column of strings or binaries: one copy, no Python object per row. The cells and the gaps between them are the
    values of one array over the buffer; the cells are taken from it."""
    if not len(cells.starts):
        return pa.array([], kind)
    first = cells.starts[0]
    bounds = np.empty(2 * len(cells.starts), dtype=np.int32)
    bounds[0::2] = cells.starts - first
    bounds[1::2] = cells.starts + cells.lengths - first
    data = pa.py_buffer(cells.data).slice(int(first))
    both = pa.Array.from_buffers(kind, len(bounds) - 1, [None, pa.py_buffer(bounds), data])
    return both.take(int32s(np.arange(0, len(bounds), 2, dtype=np.int32)))


def _refuse(cells: Cells, wrong: NDArray[np.bool_], what: str) -> None:
    bad = np.flatnonzero(wrong)
    if len(bad):
        raise BadCell(int(bad[0]), f"{cells.lengths[bad[0]]} bytes, where {what}")


def _fixed(kind: pa.DataType, code: str) -> Writable:
    width = np.dtype(code).itemsize

    def decode(cells: Cells) -> pa.Array:
        _refuse(cells, cells.lengths != width, f"a value takes {width}")
        values = numbers_at(cells.data, code, cells.starts)
        return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])

    return Writable(kind, decode, width=width)


def _boolean(cells: Cells) -> pa.Array:
    _refuse(cells, cells.lengths != 1, "a value takes 1")
    bits = np.packbits(_held(cells)[cells.starts] != 0, bitorder="little")
    return pa.Array.from_buffers(pa.bool_(), len(cells.starts), [None, pa.py_buffer(bits)])


def _held(cells: Cells) -> Bytes:
    return np.frombuffer(cells.data, dtype=np.uint8)


def _vints(cells: Cells) -> Longs:
    _refuse(cells, cells.lengths < 1, "a number takes 1 or more")
    held = _held(cells)
    sizes = SIZES[held[cells.starts]]
    _refuse(cells, cells.lengths != sizes, "its first byte claims another length")
    return vints_at(held, cells.starts)


def _vint(cells: Cells) -> pa.Array:
    values = _vints(cells)
    narrow = values.astype(np.int32)
    wrong = np.flatnonzero(narrow != values)
    if len(wrong):
        raise BadCell(int(wrong[0]), f"{values[wrong[0]]} exceeds 32 bits")
    return int32s(narrow)


def _text(cells: Cells) -> pa.Array:
    _refuse(cells, cells.lengths < 1, "a text takes 1 or more")
    held = _held(cells)
    sizes = SIZES[held[cells.starts]].astype(np.int64)
    _refuse(cells, cells.lengths < sizes, "the length alone takes more")
    claimed = vints_at(held, cells.starts)
    _refuse(cells, claimed != cells.lengths - sizes, "the text claims another length")
    return pieces(pa.string(), Cells(cells.data, cells.starts + sizes, claimed))


def _bytes(cells: Cells) -> pa.Array:
    _refuse(cells, cells.lengths < 4, "the length alone takes 4")
    claimed = numbers_at(cells.data, ">i4", cells.starts).astype(np.int64)
    _refuse(cells, claimed != cells.lengths - 4, "the value claims another length")
    return pieces(pa.binary(), Cells(cells.data, cells.starts + 4, claimed))


def _null(cells: Cells) -> pa.Array:
    _refuse(cells, cells.lengths != 0, "a null takes none")
    return pa.nulls(len(cells.starts))


_RAW = Writable(pa.binary(), lambda cells: pieces(pa.binary(), cells))
_WRITABLES = {
    HADOOP + name: writable
    for name, writable in {
        "Text": Writable(pa.string(), _text, sized=True),
        "BytesWritable": Writable(pa.binary(), _bytes, sized=True),
        "NullWritable": Writable(pa.null(), _null),
        "BooleanWritable": Writable(pa.bool_(), _boolean),
        "ByteWritable": _fixed(pa.int8(), "i1"),
        "ShortWritable": _fixed(pa.int16(), ">i2"),
        "IntWritable": _fixed(pa.int32(), ">i4"),
        "LongWritable": _fixed(pa.int64(), ">i8"),
        "FloatWritable": _fixed(pa.float32(), ">f4"),
        "DoubleWritable": _fixed(pa.float64(), ">f8"),
        "VIntWritable": Writable(pa.int32(), _vint),
        "VLongWritable": Writable(pa.int64(), lambda cells: int64s(_vints(cells))),
    }.items()
}
