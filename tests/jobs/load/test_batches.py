"""The division of the rows of a load: by file, by bytes, and between read units."""

import random

import numpy as np
import pyarrow as pa
import pytest

from gnomon.jobs.load import batches as batches_module
from gnomon.jobs.load.batches import firsts, next_cut, numbers_of, row_bytes, runs, slices, taken


def batches_of(names: list[str | None], rows: int) -> list[pa.RecordBatch]:
    table = pa.table({"n": list(range(len(names))), "file": pa.array(names, pa.string())})
    return table.to_batches(max_chunksize=rows)


@pytest.mark.parametrize("rows", [1, 3, 100])
def test_rows_of_a_file_come_together_whatever_batches_they_came_in(rows: int) -> None:
    names = [None, None, "a", "b", "b", "b", "b", "c", "c"]
    found = list(runs(iter(batches_of(names, rows)), "file"))
    assert [batch["file"].to_pylist() for batch in found] == [[None] * 2, ["a"], ["b"] * 4, ["c"] * 2]
    assert [n for batch in found for n in batch["n"].to_pylist()] == list(range(9))
    assert list(runs(iter([]), "file")) == []


def test_no_more_rows_wait_for_others_of_their_file_than_memory_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    batches = batches_of(["a"] * 100, 10)
    monkeypatch.setattr(batches_module, "HELD_BYTES", 3 * batches[0].nbytes)
    assert [batch.num_rows for batch in runs(iter(batches), "file")] == [30, 30, 30, 10]


@pytest.mark.parametrize("seed", range(20))
def test_cuts_hold_so_many_bytes_and_fall_between_units_where_that_costs_little(seed: int) -> None:
    chosen = random.Random(seed)
    rows, most = chosen.randrange(1, 60), chosen.randrange(1, 500)
    sizes = np.array([chosen.choice([1, 20, 400]) for _ in range(rows)], np.float64)
    units = np.cumsum([chosen.random() < 0.2 for _ in range(rows)]).astype(np.int64)
    cumulative, begin = np.cumsum(sizes), 0
    while begin < rows:
        end = next_cut(cumulative, units, begin, most)
        assert begin < end <= rows
        assert sizes[begin:end].sum() <= 2 * most or end == begin + 1
        if sizes[begin:end].sum() > most and end > begin + 1:
            assert end == rows or units[end] != units[end - 1]
        if end < rows and units[end] == units[end - 1]:  # a cut within a unit
            unit, following = int(np.argmax(units == units[end])), int(np.searchsorted(units, units[end], side="right"))
            assert unit <= begin or sizes[begin:unit].sum() < most / 2
            assert sizes[begin:following].sum() > 2 * most
        begin = end


def test_slices_hold_so_many_bytes_or_one_row() -> None:
    sizes = np.array([5.0, 5, 1, 30, 1, 1, 8])
    assert list(slices(sizes, 10)) == [(0, 2), (2, 3), (3, 4), (4, 7)]
    assert list(slices(np.zeros(3), 10)) == [(0, 3)]
    assert list(slices(np.zeros(0), 10)) == []


def test_rows_are_weighed_by_their_own_texts() -> None:
    texts = pa.array(["a" * 100, None, "b"])
    lists = pa.array([[1], [2, 3], []], pa.list_(pa.int32()))
    assert row_bytes([texts, pa.array([b"", b"1234", None])]).tolist() == [100, 4, 1]
    assert row_bytes([lists]).sum() == lists.nbytes
    assert row_bytes([]).tolist() == []


def test_pointers_are_looked_at_once_and_rows_taken_as_often_as_asked() -> None:
    column = pa.array([4, 4, 4, 7, 7]).slice(1)
    assert numbers_of(column).tolist() == [4, 4, 7, 7]
    assert firsts(numbers_of(column), np.array([0, 1, 0, 0])).tolist() == [True, True, True, False]
    texts = pa.array(["a", "b", "c"])
    for places in ([0, 1, 2], [1, 2], [0, 0, 2], [2], []):
        assert taken(texts, np.array(places, np.int64)).to_pylist() == [texts[i].as_py() for i in places]
