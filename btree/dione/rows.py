"""Sorted batches to the records of Dione's files."""

import numpy as np
import pyarrow as pa

from gnomon.btree.dione.order import adjacent_nulls_last, total_order
from gnomon.btree.encode import Union
from gnomon.btree.rows import RowEncoder

NULL_LAST = Union(b"\x02", b"\x00")  # [T, "null"]


class DioneRowEncoder(RowEncoder):
    """Encodes one batch after the other. Keys must not decrease: nulls are greatest, and -0.0 is a different key,
    before 0.0."""

    UNION = NULL_LAST
    ONE_ZERO = False

    def _adjacent(self, keys: list[pa.Array]) -> tuple[np.ndarray, np.ndarray]:
        return adjacent_nulls_last([total_order(key) for key in keys])
