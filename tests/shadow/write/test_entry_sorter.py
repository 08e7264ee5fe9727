"""shadow/maintenance/entry_sorter.py: entries in the order of index files, whatever the memory."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from gnomon.shadow.errors import StorageError, UsageError
from gnomon.shadow.write.entry_sorter import FOLDER, GROUP, EntrySorter


def entries(seed: int, rows: int, groups: int) -> pa.Table:
    """A key, a text and the row's number."""
    random = np.random.default_rng(seed)
    keys = random.integers(0, 50, rows)
    texts = pa.array([None if key % 7 == 0 else f"text {key}" for key in keys])
    numbers = pa.array(random.integers(0, groups, rows).astype(np.int32))
    return pa.table({"0": keys, "1": texts, "row": np.arange(rows) + seed * rows, GROUP: numbers})


Rows = dict[int, list[tuple[object, ...]]]  # by index file


def sorted_here(added: list[pa.Table], groups: int, most_bytes: int) -> Rows:
    with EntrySorter(2, range(groups), most_bytes) as sorter:
        for table in added:
            sorter.add(table)
        found = list(sorter.groups())
    assert [number for number, _ in found] == sorted({number for number, _ in found})
    return {number: list(map(tuple, map(dict.values, table.to_pylist()))) for number, table in found}


def expected(added: list[pa.Table]) -> Rows:
    rows = [tuple(row.values()) for table in added for row in table.to_pylist()]
    rows.sort(key=lambda row: (row[3], row[0], row[1] is not None, row[1] or "", row[2]))
    return {number: [row[:3] for row in rows if row[3] == number] for number in {row[3] for row in rows}}


# 1,000 entries take 35 KB, and a fourth of the memory holds the entries of one index file.
TOO_LARGE = {(1, 1 << 16), (1, 1 << 13), (1, 1 << 11), (3, 1 << 13), (3, 1 << 11)}


@pytest.mark.parametrize("most_bytes", [1 << 30, 1 << 16, 1 << 13, 1 << 11])
@pytest.mark.parametrize("groups", [1, 3, 300, 70_000])
def test_entries_come_sorted_and_whole_in_any_memory(most_bytes: int, groups: int) -> None:
    added = [entries(seed, 200, groups) for seed in range(5)]
    if (groups, most_bytes) in TOO_LARGE:
        with pytest.raises(UsageError, match="the entries of one bucket take more than"):
            sorted_here(added, groups, most_bytes)
    else:
        assert sorted_here(added, groups, most_bytes) == expected(added)


def test_nothing_added_is_nothing_sorted() -> None:
    assert sorted_here([], 5, 1 << 20) == {}


def test_temporary_files_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with EntrySorter(2, range(300), 1 << 13) as sorter:
        for seed in range(5):
            sorter.add(entries(seed, 200, 300))
        assert [path.name.startswith(FOLDER) for path in tmp_path.iterdir()] == [True]
        next(iter(sorter.groups()))
    assert list(tmp_path.iterdir()) == []


def test_a_folder_for_temporary_files_that_is_not_there_is_one_clear_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "none"))
    with pytest.raises(StorageError, match="set TMPDIR to a folder with room"):
        sorted_here([entries(1, 2000, 300)], 300, 1 << 13)
