"""Pointers whose offset is the ordinal of a row in the file: Parquet's and ORC's."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sources.arrow_numbers import int64s
from sources.errors import StalePointer

Ordinals = npt.NDArray[np.int64]


def distinct_rows(pointers: Sequence[tuple[int, int]], rows: int, path: str) -> tuple[Ordinals, Ordinals]:
    """The rows pointed at, rising, each once; and for each pointer, which of them is its own. StalePointer where a file
    of so many rows has none."""
    for row, sub_offset in pointers:
        if not 0 <= row < rows or sub_offset != 0:
            message = f"no row at pointer ({row}, {sub_offset}), the file has {rows}: index it again"
            raise StalePointer(message, path)
    distinct, places = np.unique(np.array([row for row, _ in pointers], dtype=np.int64), return_inverse=True)
    return distinct, places


def as_asked(distinct: pa.Table, places: Ordinals) -> pa.Table:
    """A row for each pointer, of the distinct ones."""
    in_order = len(places) == distinct.num_rows and bool((places[1:] > places[:-1]).all())
    return distinct if in_order else distinct.take(int64s(places))


def without_columns(rows: int) -> pa.Table:
    """So many rows, of which nothing was asked."""
    return pa.Table.from_struct_array(pa.array([{}] * rows, pa.struct([])))
