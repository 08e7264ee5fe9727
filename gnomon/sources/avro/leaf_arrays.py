"""Makes an Arrow array of the decoded values of one column. Dates and timestamps of any year are exact, since no Python
date is made.
"""

import uuid
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from gnomon.sources.avro.arrow_buffers import Bitmap, binary_array, bitmap, bytes_array, numbers, text_array
from gnomon.sources.avro.errors import Malformed
from gnomon.sources.avro.schema import DECIMAL_DIGITS, UUID_BYTES, Leaf

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
