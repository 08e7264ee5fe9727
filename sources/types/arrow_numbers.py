"""numpy integers as Arrow arrays, without a copy. `pa.array` would do it too, but imports pandas where that is
installed: a third of a second within the first fetch of a process.
"""

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


def int64s(values: NDArray[np.int64]) -> pa.Array:
    return _wrapped(pa.int64(), np.ascontiguousarray(values, dtype=np.int64))


def int32s(values: NDArray[np.int32]) -> pa.Array:
    return _wrapped(pa.int32(), np.ascontiguousarray(values, dtype=np.int32))


def _wrapped(kind: pa.DataType, values: NDArray[np.int64] | NDArray[np.int32]) -> pa.Array:
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])
