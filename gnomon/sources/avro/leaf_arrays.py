"""Makes an Arrow array of the decoded values of one column: a Python list, in which None is null. Dates and timestamps
of any year are exact, since no Python date is made.

`pa.array` would import pandas, if installed: a third of a second in the first fetch of a process. Each function first
handles the list as one without nulls, and detects a null in a C loop.
"""

import uuid
from array import array
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from numpy.typing import NDArray

from gnomon.sources.avro.container import LimitExceeded, Malformed
from gnomon.sources.avro.schema import DECIMAL_DIGITS, UUID_BYTES, Leaf

INT32_MAX = (1 << 31) - 1
BINARY = pa.binary()

Bitmap: TypeAlias = pa.Buffer | None
DECIMAL128_DIGITS, DECIMAL256_DIGITS = 38, 76
LONGS: dict[str, pa.DataType] = {
    "": pa.int64(),
    "time-micros": pa.time64("us"),
    "timestamp-millis": pa.timestamp("ms", "UTC"),
    "timestamp-micros": pa.timestamp("us", "UTC"),
    "timestamp-nanos": pa.timestamp("ns", "UTC"),
    "local-timestamp-millis": pa.timestamp("ms"),
    "local-timestamp-micros": pa.timestamp("us"),
    "local-timestamp-nanos": pa.timestamp("ns"),
}
INTS: dict[str, pa.DataType] = {"": pa.int32(), "date": pa.date32(), "time-millis": pa.time32("ms")}

Values = Sequence[Any]


def bitmap(bits: npt.NDArray[Any]) -> pa.Buffer:
    """A bit for each 0 or 1."""
    return pa.py_buffer(np.packbits(bits, bitorder="little"))


def valid_bits(values: Sequence[Any]) -> pa.Buffer:
    """A bitmap of the values that are not null."""
    return bitmap(np.fromiter((value is not None for value in values), np.bool_, len(values)))


def numbers(values: Sequence[Any]) -> tuple[Bitmap, npt.NDArray[np.uint64]]:
    """Numbers from 0 to 2^64 - 1; 0 for null."""
    try:
        return None, np.frombuffer(array("Q", values), np.uint64)
    except TypeError:
        return valid_bits(values), np.frombuffer(array("Q", [value or 0 for value in values]), np.uint64)


def bytes_array(values: Sequence[Any], size: int, kind: pa.DataType) -> pa.Array:
    """Values of `size` bytes each, of a type of that width."""
    try:
        return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(b"".join(values))])
    except TypeError:
        filled = b"".join([bytes(size) if value is None else value for value in values])
        return pa.Array.from_buffers(kind, len(values), [valid_bits(values), pa.py_buffer(filled)])


def binary_array(values: Sequence[Any], kind: pa.DataType = BINARY) -> pa.Array:
    """Byte strings of any length, as an array of type `kind`. Text is not checked to be UTF-8: some writers (Go's) do
    not guarantee it, and the code that shows it checks."""
    valid: Bitmap = None
    try:
        joined = b"".join(values)
    except TypeError:
        valid, values = valid_bits(values), [value or b"" for value in values]
        joined = b"".join(values)
    if len(joined) > INT32_MAX:
        raise LimitExceeded("one column of a batch exceeds the 32-bit offsets of Arrow")
    offsets = array("i", accumulate(map(len, values), initial=0))
    return pa.Array.from_buffers(kind, len(values), [valid, pa.py_buffer(offsets), pa.py_buffer(joined)])


def text_array(values: Sequence[Any]) -> pa.Array:
    """An array of strings that must be valid UTF-8."""
    return binary_array(values, pa.string())


def offsets_of(lengths: npt.NDArray[Any]) -> npt.NDArray[np.int32]:
    """Arrow offsets for items of these lengths. LimitExceeded beyond 32 bits."""
    ends = np.cumsum(lengths)
    if len(ends) and ends[-1] > INT32_MAX:
        raise LimitExceeded("one column of a batch exceeds the 32-bit offsets of Arrow")
    return np.append(0, ends).astype(np.int32)


def array_of(leaf: Leaf, values: Values) -> pa.Array:
    """The values as an array. Numbers and symbol indexes are given in zigzag form, booleans as numbers, all others as
    bytes, null as None."""
    return MAKERS[leaf.kind](leaf, values)


def _booleans(_leaf: Leaf, values: Values) -> pa.Array:
    valid, bits = numbers(values)
    if (bits > 1).any():
        raise Malformed("a boolean that is neither 0 nor 1")
    return pa.Array.from_buffers(pa.bool_(), len(values), [valid, bitmap(bits.astype(np.bool_))])


def _signed(values: Values) -> tuple[Bitmap, NDArray[np.int64]]:
    valid, zigzag = numbers(values)
    return valid, (zigzag >> 1).astype(np.int64) ^ -(zigzag & 1).astype(np.int64)


def _longs(leaf: Leaf, values: Values) -> pa.Array:
    valid, longs = _signed(values)
    return pa.Array.from_buffers(LONGS[leaf.logical], len(values), [valid, pa.py_buffer(longs)])


def _ints(leaf: Leaf, values: Values) -> pa.Array:
    valid, longs = _signed(values)
    ints = longs.astype(np.int32)
    if (ints != longs).any():
        raise Malformed("an int of more than 32 bits")
    return pa.Array.from_buffers(INTS[leaf.logical], len(values), [valid, pa.py_buffer(ints)])


def _symbols(leaf: Leaf, values: Values) -> pa.Array:
    valid, places = _signed(values)
    if len(places) and (places.min() < 0 or places.max() >= max(len(leaf.symbols), 1)):
        raise Malformed(f"a symbol outside the enum's {len(leaf.symbols)}")
    indices = pa.Array.from_buffers(pa.int64(), len(values), [valid, pa.py_buffer(places)])
    return text_array([symbol.encode() for symbol in leaf.symbols]).take(indices)


def _bytes(leaf: Leaf, values: Values) -> pa.Array:
    return _decimals(leaf, values) if leaf.logical else binary_array(values)


def _strings(leaf: Leaf, values: Values) -> pa.Array:
    if not leaf.logical:
        return binary_array(values, pa.string())
    try:
        return _uuids([None if value is None else uuid.UUID(value.decode()).bytes for value in values])
    except ValueError as error:
        raise Malformed(f"an invalid UUID: {error}") from error


def _fixed(leaf: Leaf, values: Values) -> pa.Array:
    if leaf.logical == "decimal":
        return _decimals(leaf, values)
    return _uuids(values) if leaf.logical == "uuid" else bytes_array(values, leaf.size, pa.binary(leaf.size))


def _uuids(values: Values) -> pa.Array:
    return pa.ExtensionArray.from_storage(pa.uuid(), bytes_array(values, UUID_BYTES, pa.binary(UUID_BYTES)))


def _decimals(leaf: Leaf, values: Values) -> pa.Array:
    """Big-endian two's complement of any length. Digits beyond the declared precision are kept, as in Java."""
    unscaled = [None if value is None else int.from_bytes(value, "big", signed=True) for value in values]
    if leaf.precision > DECIMAL256_DIGITS:  # BigQuery's BIGNUMERIC has 77 digits
        return text_array([None if value is None else _decimal_text(value, leaf.scale) for value in unscaled])
    kind = (pa.decimal256 if leaf.precision > DECIMAL128_DIGITS else pa.decimal128)(leaf.precision, leaf.scale)
    size = kind.byte_width
    try:
        little = [None if value is None else value.to_bytes(size, "little", signed=True) for value in unscaled]
    except OverflowError:
        message = f"a decimal({leaf.precision}, {leaf.scale}) whose digits take more than {size} bytes"
        raise Malformed(message) from None
    return bytes_array(little, size, kind)


def _decimal_text(unscaled: int, scale: int) -> bytes:
    """All digits of the scale, without an exponent."""
    try:
        digits = str(abs(unscaled)).rjust(scale + 1, "0")
    except ValueError:
        raise Malformed(f"a decimal of more than {DECIMAL_DIGITS} digits") from None
    point = len(digits) - scale
    sign = "-" if unscaled < 0 else ""
    return (f"{sign}{digits[:point]}.{digits[point:]}" if scale else sign + digits).encode()


MAKERS: dict[str, Callable[[Leaf, Values], pa.Array]] = {
    "null": lambda _leaf, values: pa.nulls(len(values)),
    "boolean": _booleans,
    "int": _ints,
    "long": _longs,
    "float": lambda _leaf, values: bytes_array(values, 4, pa.float32()),
    "double": lambda _leaf, values: bytes_array(values, 8, pa.float64()),
    "bytes": _bytes,
    "string": _strings,
    "fixed": _fixed,
    "enum": _symbols,
}
