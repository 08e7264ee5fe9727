"""Pointers that are ordinals: what is read, and in which order it is given."""

import numpy as np
import pyarrow as pa
import pytest

from sources import StalePointer
from sources.ordinals import as_asked, distinct_rows, without_columns


@pytest.mark.parametrize("asked", [[], [3], [0, 1, 4], [4, 1, 0], [2, 2, 0, 2], [0, 0]])
def test_each_row_is_read_once_and_given_as_often_as_it_was_asked_for(asked: list[int]) -> None:
    rows, places = distinct_rows([(row, 0) for row in asked], 5, "lake/file")
    assert rows.tolist() == sorted(set(asked))
    read = pa.table({"row": pa.array(rows, pa.int64())})
    assert as_asked(read, places)["row"].to_pylist() == asked


@pytest.mark.parametrize("pointer", [(5, 0), (-1, 0), (0, 1), (np.iinfo(np.int64).max, 0)])
def test_a_pointer_that_the_file_does_not_have_is_stale(pointer: tuple[int, int]) -> None:
    with pytest.raises(StalePointer, match=r"lake/file: no row at pointer .* the file has 5"):
        distinct_rows([(0, 0), pointer], 5, "lake/file")


def test_rows_of_no_columns_are_counted() -> None:
    assert without_columns(3).num_rows == 3
    assert without_columns(3).num_columns == 0
