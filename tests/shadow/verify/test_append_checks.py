"""The report on the appends of an index, and the faults found in their records."""

from collections.abc import Callable
from pathlib import Path

import pytest

from gnomon.shadow.commit.append_log import AppendedFile, commit_append, mark_appended, move_files, open_log, settle
from gnomon.shadow.errors import DamagedMetadata
from gnomon.shadow.metadata.append_records import (
    APPENDED,
    BATCHES_FOLDER,
    DONE,
    Append,
    append_path,
    batch_path,
    mark_path,
    read_append,
)
from gnomon.shadow.storage import LocalStorage
from gnomon.shadow.verify.manifests import AppendsReport, OpenAppend, appends_report, check_appends
from gnomon.shadow.verify.report import Report


@pytest.fixture
def index(tmp_path: Path) -> LocalStorage:
    """Two appends that are finished, and an open one."""
    index = LocalStorage(str(tmp_path / "index"))
    source = LocalStorage(str(tmp_path / "source"))
    for number in (1, 2, 3):
        log = open_log(index)
        source.put_new(f"f/{number}", [b"x"])
        files = (AppendedFile(f"f/{number}", f"name {number}", 1, 10 * number),)
        append = Append(number, f"id{number}", log.parent, f"batch {number}", "", "f", files, {})
        assert commit_append(index, append)
        if number < 3:
            move_files(index, source, append)
            mark_appended(index, append)
            settle(index, source, append, number)
    return index


def faults(index: LocalStorage) -> list[str]:
    report = Report(index.root)
    check_appends(index, report)
    return [str(fault).removeprefix(f"{index.root}/_shadow/") for fault in report.faults]


def test_the_report_counts_appends_and_names_the_open_ones(index: LocalStorage, tmp_path: Path) -> None:
    before = sorted(index.list("_shadow", hidden=True))
    assert appends_report(index) == AppendsReport(3, 0, (OpenAppend(3, "batch 3", 30, 1),))
    assert faults(index) == []
    assert sorted(index.list("_shadow", hidden=True)) == before  # nothing is written
    assert appends_report(LocalStorage(str(tmp_path / "none"))) == AppendsReport(0, 0, ())
    assert not (tmp_path / "none").exists()


def cut(index: LocalStorage, path: str) -> None:
    file = Path(index.root, path)
    file.write_bytes(file.read_bytes()[:-9])


def renamed(index: LocalStorage) -> None:
    Path(index.root, batch_path("batch 1")).rename(Path(index.root, BATCHES_FOLDER, "0.json"))


FAULTS: list[tuple[Callable[[LocalStorage], object], str]] = [
    (lambda index: cut(index, append_path(1)), "loads/00000000000000000001.json at "),
    (lambda index: cut(index, append_path(3)), "loads/00000000000000000003.json at "),
    (lambda index: cut(index, batch_path("batch 1")), batch_path("batch 1").removeprefix("_shadow/") + " at "),
    (
        lambda index: index.delete(append_path(1)),
        "loads/00000000000000000001.json: missing, though append 2 was finished",
    ),
    (lambda index: index.delete(batch_path("batch 2")), "-id2.done: says that batch 'batch 2' was appended, and"),
    (
        lambda index: index.delete(mark_path(read_append(index, 2), APPENDED)),
        "-id2.done: says that the append is fin",
    ),
    (renamed, "batches/0.json at 0: the record of batch 'batch 1', which belongs elsewhere"),
]


@pytest.mark.parametrize(("damage", "expected"), FAULTS)
def test_each_fault_is_found(index: LocalStorage, damage: Callable[[LocalStorage], object], expected: str) -> None:
    damage(index)
    assert any(expected in fault for fault in faults(index))


def test_a_chain_that_cannot_be_read_is_no_report(index: LocalStorage) -> None:
    index.delete(mark_path(read_append(index, 2), DONE))
    cut(index, append_path(2))
    with pytest.raises(DamagedMetadata, match=r"0002\.json"):
        appends_report(index)
