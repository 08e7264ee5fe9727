"""Pointers to rows: their columns, and the distinct rows of the pointers that a fetch gets."""

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from base.actions import Action
from sources.contract import Numbers, Pointers
from sources.errors import StalePointer
from sources.types import int64s

FILENAME = "data_filename"
OFFSET = "data_offset"
SUB_OFFSET = "data_sub_offset"
SIZE = "data_size"
POINTER_COLUMNS = (FILENAME, OFFSET, SUB_OFFSET, SIZE)


class Pointer(NamedTuple):
    """`data_filename` is relative to the source root where the file lies under it, else absolute.

    `data_size` is in bytes (for columnar formats the mean of the file's rows): a weight for splitting work,
    never a length to read."""

    data_filename: str
    data_offset: int
    data_sub_offset: int
    data_size: int


POINTER_FIELDS = (pa.field(OFFSET, pa.int64()), pa.field(SUB_OFFSET, pa.int32()), pa.field(SIZE, pa.int32()))


def with_pointers(columns: pa.RecordBatch, offsets: pa.Array, sub_offsets: pa.Array, sizes: pa.Array) -> pa.RecordBatch:
    """The batch with the three numbers of each row's pointer behind it."""
    arrays = [*columns.columns, offsets, sub_offsets, sizes]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema([*columns.schema, *POINTER_FIELDS]))


def pairs_of(pointers: Pointers, path: str) -> Numbers:
    """An array of two columns, offsets and sub-offsets."""
    try:
        return np.asarray(pointers, dtype=np.int64).reshape(-1, 2)
    except OverflowError:
        raise StalePointer("a pointer beyond 64 bits", path, action=Action.BUILD_AGAIN) from None


def distinct_pairs(pointers: Pointers, path: str) -> tuple[Numbers, Numbers, Numbers]:
    """Offsets and sub-offsets of the pointers, sorted, each once; and for each pointer which of them is its own."""
    pairs = pairs_of(pointers, path)
    if len(pairs) == 1:
        return pairs[:, 0], pairs[:, 1], np.zeros(1, np.int64)
    order = np.lexsort((pairs[:, 1], pairs[:, 0]))
    in_order = pairs[order]
    fresh = np.ones(len(pairs), dtype=np.bool_)
    fresh[1:] = (in_order[1:] != in_order[:-1]).any(axis=1)
    places = np.empty(len(pairs), dtype=np.int64)
    places[order] = np.cumsum(fresh) - 1
    return in_order[fresh, 0], in_order[fresh, 1], places


def as_asked(distinct: pa.Table, places: Numbers) -> pa.Table:
    """A row for each pointer, of the distinct ones."""
    in_order = len(places) == distinct.num_rows and bool((places[1:] > places[:-1]).all())
    return distinct if in_order else distinct.take(int64s(places))


def without_columns(rows: int) -> pa.Table:
    """So many rows, of which nothing was asked."""
    return pa.Table.from_struct_array(pa.Array.from_buffers(pa.struct([]), rows, [None]))


def distinct_rows(pointers: Pointers, rows: int, path: str) -> tuple[Numbers, Numbers]:
    """The rows pointed at, rising, each once; and for each pointer, which of them is its own. StalePointer where a file
    of so many rows has none."""
    asked = pairs_of(pointers, path)
    if len(asked) == 1 and 0 <= asked[0, 0] < rows and not asked[0, 1]:
        return asked[:, 0], np.zeros(1, np.int64)
    wrong = np.flatnonzero((asked[:, 0] < 0) | (asked[:, 0] >= rows) | (asked[:, 1] != 0))
    if len(wrong):
        row, sub_offset = asked[wrong[0]].tolist()
        raise StalePointer(
            f"no row at pointer ({row}, {sub_offset}), the file has {rows}", path, action=Action.BUILD_AGAIN
        )
    distinct, places = np.unique(asked[:, 0], return_inverse=True)
    return distinct, places


def groups_of(offsets: Numbers, first_rows: Numbers) -> Numbers:
    """The row group, or stripe, of each row: `first_rows` are their first rows."""
    return np.searchsorted(first_rows, offsets, side="right") - 1
