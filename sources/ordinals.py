"""Pointers whose offset is the ordinal of a row in the file: Parquet's and ORC's."""

import numpy as np

from base.actions import Action
from sources.asked import pairs_of
from sources.contract import Numbers, Pointers
from sources.errors import StalePointer


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
