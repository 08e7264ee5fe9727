"""shadow/maintenance/entry_sorter.py: entries in the order of index files, whatever the memory."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from gnomon.btree.keys import same_values
from gnomon.shadow.errors import StorageError
from gnomon.shadow.write import entry_sorter
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
        found = [(number, pa.concat_tables(tables)) for number, tables in sorter.groups()]
    assert [number for number, _ in found] == sorted({number for number, _ in found})
    return {number: list(map(tuple, map(dict.values, table.to_pylist()))) for number, table in found}


def expected(added: list[pa.Table]) -> Rows:
    rows = [tuple(row.values()) for table in added for row in table.to_pylist()]
    rows.sort(key=lambda row: (row[3], row[0], row[1] is not None, row[1] or "", row[2]))
    return {number: [row[:3] for row in rows if row[3] == number] for number in {row[3] for row in rows}}


@pytest.mark.parametrize("most_bytes", [1 << 30, 1 << 16, 1 << 13, 1 << 11])
@pytest.mark.parametrize("groups", [1, 3, 300, 70_000])
def test_entries_come_sorted_and_whole_in_any_memory(most_bytes: int, groups: int) -> None:
    added = [entries(seed, 200, groups) for seed in range(5)]  # 35 KB; a fourth of the memory is for unsorted entries
    assert sorted_here(added, groups, most_bytes) == expected(added)


SHAPES = {
    "one key": lambda random, rows: np.zeros(rows, np.int64),
    "one key among others": lambda random, rows: np.where(random.random(rows) < 0.9, 7, random.integers(0, 99, rows)),
    "ascending": lambda random, rows: np.arange(rows),
    "descending": lambda random, rows: -np.arange(rows),
    "any": lambda random, rows: random.integers(-(1 << 62), 1 << 62, rows),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", ["int64", "float64", "string", "bool", "decimal"])
def test_one_index_file_of_any_keys_is_sorted_within_the_memory(
    shape: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = np.random.default_rng(3)
    numbers = SHAPES[shape](random, 20_000)
    keys = {
        "int64": lambda: pa.array(numbers),
        "float64": lambda: pa.array(np.where(numbers % 11 == 5, np.nan, numbers / 3.0)),
        "string": lambda: pa.array([f"naïve {number}" for number in numbers.tolist()]),
        "bool": lambda: pa.array(numbers % 2 == 0),
        "decimal": lambda: pa.array(numbers).cast(pa.decimal128(21, 2)),
    }[kind]()
    nulls = random.random(len(keys)) < 0.05
    keys = pc.if_else(pa.array(nulls), pa.scalar(None, keys.type), keys)
    table = pa.table({"0": keys, "row": np.arange(len(keys)), GROUP: np.zeros(len(keys), np.int32)})
    held, original = [], entry_sorter.sort_order
    monkeypatch.setattr(entry_sorter, "sort_order", lambda keys: held.append(len(keys[0])) or original(keys))
    with EntrySorter(1, range(1), 1 << 17) as sorter:  # entries of 500 to 1,000 KB, of which 32 KB are held
        for begin in range(0, len(keys), 900):
            sorter.add(table.slice(begin, 900))
        [(group, tables)] = ((group, pa.concat_tables(tables)) for group, tables in sorter.groups())
    assert group == 0
    assert tables.column("row").to_pylist() == original([keys]).tolist()
    assert same_values(tables.column("0").combine_chunks(), keys.take(original([keys]))).all()
    assert max(held, default=0) < 12_000  # the sample of 10,000 keys


def test_long_keys_are_cut_into_ranges_within_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    random, most_bytes = np.random.default_rng(5), 1 << 20
    keys = pa.array([random.bytes(10_000) for _ in range(600)])
    table = pa.table({"0": keys, "row": np.arange(600), GROUP: np.zeros(600, np.int32)})
    held, original = [], entry_sorter.sort_order
    monkeypatch.setattr(entry_sorter, "sort_order", lambda keys: held.append(keys[0].nbytes) or original(keys))
    with EntrySorter(1, range(1), most_bytes) as sorter:  # entries of 6 MB, of which 256 KB are held
        for row in range(600):
            sorter.add(table.slice(row, 1))
        [found] = (pa.concat_tables(tables) for _, tables in sorter.groups())
    assert found.column("row").to_pylist() == original([keys]).tolist()
    assert max(held) < most_bytes


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


@pytest.mark.parametrize("groups", [1, 300])
def test_temporary_files_are_removed_while_an_error_keeps_the_ranges_open(
    groups: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session keeps its last error, and with it the functions that had begun."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    kept = []
    with EntrySorter(2, range(groups), 1 << 11) as sorter:
        for seed in range(5):
            sorter.add(entries(seed, 200, groups))
        for _, tables in sorter.groups():
            kept.append((tables, next(tables)))
            break
    assert list(tmp_path.iterdir()) == []


def test_a_folder_for_temporary_files_that_is_not_there_is_one_clear_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "none"))
    with pytest.raises(StorageError, match="set TMPDIR to a folder with room"):
        sorted_here([entries(1, 2000, 300)], 300, 1 << 13)
