"""The pointers that a fetch is handed, each looked at once, and a row for each of them in the order asked."""

import numpy as np
import pyarrow as pa

from base.actions import Action
from sources.arrow_numbers import int64s
from sources.contract import Numbers, Pointers
from sources.errors import StalePointer


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
