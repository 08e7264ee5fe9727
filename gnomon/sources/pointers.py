"""Pointers to rows: their columns, and the distinct rows of the pointers of a fetch."""

from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import NamedTuple, TypeVar

import numpy as np
import pyarrow as pa

from gnomon.base.errors import Action
from gnomon.sources.contract import Numbers, Pointers, Split
from gnomon.sources.errors import StalePointer
from gnomon.sources.types import int32s, int64s

FILENAME = "data_filename"
OFFSET = "data_offset"
SUB_OFFSET = "data_sub_offset"
SIZE = "data_size"
Item = TypeVar("Item")
POINTER_COLUMNS = (FILENAME, OFFSET, SUB_OFFSET, SIZE)


class Pointer(NamedTuple):
    """Where a row lies.

    `data_filename` is relative to the source root where the file lies under it, else absolute. `data_size` is in bytes
    (for columnar formats the mean of the file's rows): a weight for splitting work, never a length to read."""

    data_filename: str
    data_offset: int
    data_sub_offset: int
    data_size: int


POINTER_FIELDS = (pa.field(OFFSET, pa.int64()), pa.field(SUB_OFFSET, pa.int32()), pa.field(SIZE, pa.int32()))


def with_pointers(columns: pa.RecordBatch, offsets: pa.Array, sub_offsets: pa.Array, sizes: pa.Array) -> pa.RecordBatch:
    """The batch with the pointer columns after its own."""
    arrays = [*columns.columns, offsets, sub_offsets, sizes]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema([*columns.schema, *POINTER_FIELDS]))


def with_ordinals(columns: pa.RecordBatch, first: int, row_bytes: int) -> pa.RecordBatch:
    """The batch with the pointers of rows of which `first` is the ordinal of the first one in the file."""
    rows = columns.num_rows
    sizes = int32s(np.full(rows, row_bytes, dtype=np.int32))
    offsets = int64s(np.arange(first, first + rows, dtype=np.int64))
    return with_pointers(columns, offsets, int32s(np.zeros(rows, dtype=np.int32)), sizes)


def pointer_pairs(pointers: Pointers, path: str) -> Numbers:
    """Pointers as an array of shape (n, 2): offsets and sub-offsets. StalePointer for a number beyond 64 bits."""
    try:
        return np.asarray(pointers, dtype=np.int64).reshape(-1, 2)
    except OverflowError:
        raise StalePointer("a pointer beyond 64 bits", path, action=Action.BUILD_AGAIN) from None


def distinct_pairs(pointers: Pointers, path: str) -> tuple[Numbers, Numbers, Numbers]:
    """`(offsets, sub-offsets, places)`: the distinct pointers in ascending order, and the place of each pointer among
    them."""
    pairs = pointer_pairs(pointers, path)
    if len(pairs) == 1:
        return pairs[:, 0], pairs[:, 1], np.zeros(1, np.int64)
    order = np.lexsort((pairs[:, 1], pairs[:, 0]))
    in_order = pairs[order]
    fresh = np.ones(len(pairs), dtype=np.bool_)
    fresh[1:] = (in_order[1:] != in_order[:-1]).any(axis=1)
    places = np.empty(len(pairs), dtype=np.int64)
    places[order] = np.cumsum(fresh) - 1
    return in_order[fresh, 0], in_order[fresh, 1], places


def in_pointer_order(distinct: pa.Table, places: Numbers) -> pa.Table:
    """A row for each pointer: `distinct` has the rows of the distinct pointers, `places` is from `distinct_pairs`."""
    in_order = len(places) == distinct.num_rows and bool((places[1:] > places[:-1]).all())
    return distinct if in_order else distinct.take(int64s(places))


def first_of_each(schema: pa.Schema) -> pa.Schema:
    """The columns of a file; of those that share a name the first, which the name means."""
    if len(set(schema.names)) == len(schema):
        return schema
    found: dict[str, pa.Field] = {}
    for field in schema:
        found.setdefault(field.name, field)
    return pa.schema(list(found.values()), schema.metadata)


def table_without_columns(rows: int) -> pa.Table:
    """A table of `rows` rows and no columns."""
    return pa.Table.from_struct_array(pa.Array.from_buffers(pa.struct([]), rows, [None]))


def batch_without_columns(rows: int) -> pa.RecordBatch:
    """A batch of `rows` rows and no columns."""
    return pa.RecordBatch.from_struct_array(pa.Array.from_buffers(pa.struct([]), rows, [None]))


def distinct_rows(pointers: Pointers, rows: int, path: str) -> tuple[Numbers, Numbers]:
    """`(rows, places)`: the distinct rows in ascending order, and the place of each pointer among them. StalePointer
    for a pointer beyond the file's `rows`."""
    requested = pointer_pairs(pointers, path)
    if len(requested) == 1 and 0 <= requested[0, 0] < rows and not requested[0, 1]:
        return requested[:, 0], np.zeros(1, np.int64)
    wrong = np.flatnonzero((requested[:, 0] < 0) | (requested[:, 0] >= rows) | (requested[:, 1] != 0))
    if len(wrong):
        row, sub_offset = requested[wrong[0]].tolist()
        raise StalePointer(
            f"no row at pointer ({row}, {sub_offset}), the file has {rows}", path, action=Action.BUILD_AGAIN
        )
    distinct, places = np.unique(requested[:, 0], return_inverse=True)
    return distinct, places


def group_of_rows(offsets: Numbers, first_rows: Numbers) -> Numbers:
    """The row group, or stripe, of each row. `first_rows`: the first row of each group, ascending."""
    return np.searchsorted(first_rows, offsets, side="right") - 1


def in_rounds(items: Iterable[Item], size: Callable[[Item], int], most: int) -> Iterator[list[Item]]:
    """The items of a fetch in batches of at most `most` bytes, or of one item. `size`: bytes to read for an item."""
    batch: list[Item] = []
    held = 0
    for item in items:
        if batch and held + size(item) > most:
            yield batch
            batch, held = [], 0
        batch.append(item)
        held += size(item)
    if batch:
        yield batch


def even_splits(size: int, target: int) -> list[Split]:
    """Ranges of equal length, about `target` bytes each, that cover a file of `size` bytes; at least one."""
    count = max(1, round(size / max(target, 1)))
    cuts = [size * i // count for i in range(count + 1)]
    return list(pairwise(cuts))
