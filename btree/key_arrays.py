"""Arrow columns of keys in stored form. `pa.array` is not used: it imports pandas, if installed, a third of a second in
the first fetch of a process."""

from array import array
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa

from gnomon.btree.key_types import Stored, key_type
from gnomon.btree.keys import DECIMAL_BYTES

LONGEST = (1 << 31) - 1  # bytes of all texts of a column


def stored_array(values: Sequence[Stored], type_name: str) -> pa.Array:
    """The column whose `stored_values` are these stored forms."""
    kind = key_type(type_name).arrow
    valid = None
    if None in values:
        there = np.array([value is not None for value in values], dtype=np.bool_)
        valid = pa.py_buffer(np.packbits(there, bitorder="little"))
    buffers: Sequence[Any]  # any object with bytes
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        buffers = _texts(values)
    elif pa.types.is_boolean(kind):
        buffers = [np.packbits(np.array([bool(value) for value in values], dtype=np.bool_), bitorder="little")]
    elif pa.types.is_decimal(kind):
        buffers = [b"".join([int(value or 0).to_bytes(DECIMAL_BYTES, "little", signed=True) for value in values])]
    else:
        number = np.dtype(f"{'float' if pa.types.is_floating(kind) else 'int'}{kind.bit_width}")
        buffers = [np.array([0 if value is None else value for value in values], dtype=number)]
    return pa.Array.from_buffers(kind, len(values), [valid, *map(pa.py_buffer, buffers)])


def _texts(values: Sequence[Stored]) -> tuple[Any, bytes]:
    texts = [
        value.encode() if isinstance(value, str) else value if isinstance(value, bytes) else b"" for value in values
    ]
    data = b"".join(texts)
    if len(data) > LONGEST:
        raise OverflowError(f"keys of {len(data)} bytes at once")
    return array("i", accumulate(map(len, texts), initial=0)), data
