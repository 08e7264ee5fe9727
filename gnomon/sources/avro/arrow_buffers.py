"""Python lists of decoded values as Arrow buffers and arrays. None is null.

`pa.array` would import pandas, if installed: a third of a second in the first fetch of a process. Each function first
handles the list as one without nulls, and detects a null in a C loop.
"""

from array import array
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from gnomon.sources.avro.errors import LimitExceeded

INT32_MAX = (1 << 31) - 1
BINARY = pa.binary()

Bitmap: TypeAlias = pa.Buffer | None


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
