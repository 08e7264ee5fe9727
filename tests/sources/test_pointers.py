"""Pointers of a fetch: each row is read once, and returned for each of its pointers, in their order."""

import numpy as np
import pyarrow as pa
import pytest

from gnomon.sources import StalePointer
from gnomon.sources.pointers import (
    distinct_pairs,
    distinct_rows,
    group_of_rows,
    in_pointer_order,
    pointer_pairs,
    table_without_columns,
)

ASKED = [[], [(3, 1)], [(0, 0), (0, 1), (4, 0)], [(4, 1), (4, 0), (0, 2)], [(2, 0), (2, 0), (0, 0), (2, 0)]]


@pytest.mark.parametrize("asked", ASKED)
def test_each_row_is_read_once_and_given_as_often_as_it_was_asked_for(asked: list[tuple[int, int]]) -> None:
    for pointers in (asked, np.array(asked, np.int64).reshape(-1, 2)):
        offsets, rows, places = distinct_pairs(pointers, "lake/file")
        assert list(zip(offsets.tolist(), rows.tolist(), strict=True)) == sorted(set(asked))
        read = pa.table({"offset": pa.array(offsets.tolist(), pa.int64()), "row": pa.array(rows.tolist(), pa.int64())})
        assert [(row["offset"], row["row"]) for row in in_pointer_order(read, places).to_pylist()] == asked


def test_numbers_that_no_file_reaches_are_stale() -> None:
    with pytest.raises(StalePointer, match="lake/file: a pointer beyond 64 bits"):
        pointer_pairs([(1 << 64, 0)], "lake/file")


def test_rows_of_no_columns_are_counted() -> None:
    assert table_without_columns(3).num_rows == 3
    assert table_without_columns(3).num_columns == 0


@pytest.mark.parametrize("asked", [[], [3], [0, 1, 4], [4, 1, 0], [2, 2, 0, 2], [0, 0]])
def test_each_ordinal_is_read_once(asked: list[int]) -> None:
    rows, places = distinct_rows([(row, 0) for row in asked], 5, "lake/file")
    assert rows.tolist() == sorted(set(asked))
    assert rows[places].tolist() == asked


@pytest.mark.parametrize("pointer", [(5, 0), (-1, 0), (0, 1), (np.iinfo(np.int64).max, 0)])
def test_a_pointer_that_the_file_does_not_have_is_stale(pointer: tuple[int, int]) -> None:
    with pytest.raises(StalePointer, match=r"lake/file: no row at pointer .* the file has 5"):
        distinct_rows([(0, 0), pointer], 5, "lake/file")


def test_a_row_is_of_the_group_that_begins_with_it_or_before_it() -> None:
    assert group_of_rows(np.array([0, 2, 3, 9]), np.array([0, 3, 7])).tolist() == [0, 0, 1, 2]
