"""Pointers that are ordinals: which rows they are."""

import numpy as np
import pytest

from sources import StalePointer
from sources.ordinals import distinct_rows, groups_of


@pytest.mark.parametrize("asked", [[], [3], [0, 1, 4], [4, 1, 0], [2, 2, 0, 2], [0, 0]])
def test_each_row_is_read_once(asked: list[int]) -> None:
    rows, places = distinct_rows([(row, 0) for row in asked], 5, "lake/file")
    assert rows.tolist() == sorted(set(asked))
    assert rows[places].tolist() == asked


@pytest.mark.parametrize("pointer", [(5, 0), (-1, 0), (0, 1), (np.iinfo(np.int64).max, 0)])
def test_a_pointer_that_the_file_does_not_have_is_stale(pointer: tuple[int, int]) -> None:
    with pytest.raises(StalePointer, match=r"lake/file: no row at pointer .* the file has 5"):
        distinct_rows([(0, 0), pointer], 5, "lake/file")


def test_a_row_is_of_the_group_that_begins_with_it_or_before_it() -> None:
    assert groups_of(np.array([0, 2, 3, 9]), np.array([0, 3, 7])).tolist() == [0, 0, 1, 2]
