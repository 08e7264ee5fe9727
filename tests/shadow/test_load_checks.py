"""What is said of the loads of an index, and which faults of their records are found."""

from collections.abc import Callable
from pathlib import Path

import pytest

from shadow.errors import DamagedMetadata
from shadow.load_checks import LoadsReport, OpenLoad, check_loads, loads_report
from shadow.load_records import APPENDED, BATCHES_FOLDER, DONE, Load, batch_path, load_path, mark_path, read_load
from shadow.loads import AppendedFile, append, loads_of, mark_appended, put_load, settle
from shadow.report import Report
from shadow.storage import LocalStorage


@pytest.fixture
def index(tmp_path: Path) -> LocalStorage:
    """Two loads that are finished, and an open one."""
    index = LocalStorage(str(tmp_path / "index"))
    source = LocalStorage(str(tmp_path / "source"))
    for number in (1, 2, 3):
        log = loads_of(index)
        source.put_new(f"f/{number}", [b"x"])
        files = (AppendedFile(f"f/{number}", f"name {number}", 1, 10 * number),)
        load = Load(number, f"id{number}", log.parent, f"batch {number}", "", "f", files, {})
        assert put_load(index, load)
        if number < 3:
            append(index, source, load)
            mark_appended(index, load)
            settle(index, source, load, number)
    return index


def faults(index: LocalStorage) -> list[str]:
    report = Report(index.root)
    check_loads(index, report)
    return [str(fault).removeprefix(f"{index.root}/_shadow/") for fault in report.faults]


def test_the_report_counts_loads_and_names_the_open_ones(index: LocalStorage, tmp_path: Path) -> None:
    before = sorted(index.list("_shadow", hidden=True))
    assert loads_report(index) == LoadsReport(3, 0, (OpenLoad(3, "batch 3", 30, 1),))
    assert faults(index) == []
    assert sorted(index.list("_shadow", hidden=True)) == before  # nothing is written
    assert loads_report(LocalStorage(str(tmp_path / "none"))) == LoadsReport(0, 0, ())
    assert not (tmp_path / "none").exists()


def cut(index: LocalStorage, path: str) -> None:
    file = Path(index.root, path)
    file.write_bytes(file.read_bytes()[:-9])


def renamed(index: LocalStorage) -> None:
    Path(index.root, batch_path("batch 1")).rename(Path(index.root, BATCHES_FOLDER, "0.json"))


FAULTS: list[tuple[Callable[[LocalStorage], object], str]] = [
    (lambda index: cut(index, load_path(1)), "loads/00000000000000000001.json at "),
    (lambda index: cut(index, load_path(3)), "loads/00000000000000000003.json at "),
    (lambda index: cut(index, batch_path("batch 1")), batch_path("batch 1").removeprefix("_shadow/") + " at "),
    (lambda index: index.delete(load_path(1)), "loads/00000000000000000001.json: missing, though load 2 was finished"),
    (lambda index: index.delete(batch_path("batch 2")), "-id2.done: says that batch 'batch 2' is loaded, and its rec"),
    (lambda index: index.delete(mark_path(read_load(index, 2), APPENDED)), "-id2.done: says that the load is finished"),
    (renamed, "batches/0.json at 0: the record of batch 'batch 1', which belongs elsewhere"),
]


@pytest.mark.parametrize(("damage", "expected"), FAULTS)
def test_each_fault_is_found(index: LocalStorage, damage: Callable[[LocalStorage], object], expected: str) -> None:
    damage(index)
    assert any(expected in fault for fault in faults(index))


def test_a_chain_that_cannot_be_read_is_no_report(index: LocalStorage) -> None:
    index.delete(mark_path(read_load(index, 2), DONE))
    cut(index, load_path(2))
    with pytest.raises(DamagedMetadata, match=r"0002\.json"):
        loads_report(index)
