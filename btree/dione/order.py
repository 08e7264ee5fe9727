"""The order of keys in Dione's files, which is Java's: nulls may be greatest, bytes compare signed (a decimal is
compared as its bytes), -0.0 comes before 0.0, and NaN is the greatest number."""

import struct
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from gnomon.btree.key_types import Stored, key_type
from gnomon.btree.keys import Key, OrderKey, adjacent, order_key

SIGNED_TO_UNSIGNED = bytes(byte ^ 0x80 for byte in range(256))
LARGEST_LONG = (1 << 63) - 1
FLOATS = ("float", "double")


class JavaOrder:
    """The order of the keys in one file; decimals are given as their bytes in the file."""

    def __init__(self, nulls_last: Sequence[bool], types: Sequence[str]) -> None:
        """For each key column: whether null is its greatest value, and its type."""
        self._columns = list(zip(nulls_last, map(has_signed_bytes, types), strict=True))

    def __call__(self, key: Key) -> OrderKey:
        """A tuple that Python compares in this file's key order."""
        out: list[tuple[int, Stored]] = []
        for value, (null_last, signed) in zip(key, self._columns, strict=True):
            if value is None:
                out.append((3 if null_last else 0, None))
            elif signed and isinstance(value, bytes):
                out.append((1, value.translate(SIGNED_TO_UNSIGNED)))
            elif isinstance(value, float) and value == value:
                out.append((1, _total_order(value)))
            else:
                out += order_key((value,))
        return tuple(out)


def _total_order(value: float) -> int:
    """An integer that compares as Java's Double.compare does: the bits, inverted for negative numbers."""
    bits: int = struct.unpack("<q", struct.pack("<d", value))[0]
    return bits if bits >= 0 else bits ^ LARGEST_LONG


def has_signed_bytes(type_name: str) -> bool:
    """Whether Java compares values of this type as signed bytes."""
    return type_name == "binary" or key_type(type_name).decimal is not None


def is_arrow_ordered(types: Sequence[str]) -> bool:
    """Whether Arrow compares keys of these types as Java does, nulls aside."""
    return not any(name in FLOATS or has_signed_bytes(name) for name in types)


def adjacent_nulls_last(columns: Sequence[pa.Array]) -> tuple[np.ndarray, np.ndarray]:
    """`keys.adjacent` with nulls greatest: whether a value is null compares before the value."""
    return adjacent([part for column in columns for part in (column.is_null(), column)])


def total_order(key: pa.Array) -> pa.Array:
    """A column of floats as integers that compare as Java does; another column as it is."""
    if not pa.types.is_floating(key.type):
        return key
    double = key.cast(pa.float64())
    bits: npt.NDArray[np.int64] = double.fill_null(0.0).to_numpy(zero_copy_only=False).view(np.int64)
    return pa.array(np.where(bits < 0, bits ^ LARGEST_LONG, bits), pa.int64(), mask=double.is_null().to_numpy(False))
