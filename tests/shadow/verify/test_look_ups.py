"""shadow/verify/look_ups.py: keys are looked up as a user does, and rows are counted by the table's own library."""

import math
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gnomon.__main__ import main
from gnomon.base.errors import Action
from gnomon.btree.errors import KeyTypeError
from gnomon.jobs.build import build, write_btree
from gnomon.shadow.fetch.fetcher import PartitionColumns
from gnomon.shadow.index_for_jobs import OpenIndex
from gnomon.shadow.lookup.batch import Matcher
from gnomon.shadow.metadata import View
from gnomon.shadow.storage import Storage, storage_at
from gnomon.shadow.tables import delta
from gnomon.shadow.verify import report as samples
from gnomon.shadow.verify import snapshot as snapshot_module
from gnomon.shadow.verify import verify
from gnomon.shadow.verify.report import BY_POSITION, BY_VALUE
from gnomon.shadow.write.workers import Workers
from gnomon.sources.parquet.reader import ParquetFile
from tests.golden.tables import TABLES
from tests.jobs.dedup.lake_tables import DeltaLake, IcebergLake, Lake


@pytest.fixture(params=["delta", "iceberg"])
def lake(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    return DeltaLake(tmp_path, ["day"]) if request.param == "delta" else IcebergLake(tmp_path, monkeypatch)


@pytest.fixture
def folder(tmp_path: Path) -> str:
    """An index of a folder with three partitions, each of two files."""
    for number in range(6):
        place = tmp_path / f"source/p={number % 3}/{number}.parquet"
        place.parent.mkdir(parents=True, exist_ok=True)
        rows = {"id": range(10 * number, 10 * number + 10), "items": [[i, i + 1] for i in range(10)]}
        pq.write_table(pa.table(rows), place, compression="none", use_dictionary=False, write_statistics=False)
    build(None, tmp_path / "source", tmp_path / "index", ["id"], buckets=2)
    return str(tmp_path / "index")


@pytest.mark.parametrize("sample", [4, None])
def test_a_key_of_each_partition_is_looked_up_and_with_all_every_key(folder: str, sample: int | None) -> None:
    report = verify(storage_at(folder), sample)
    assert report.is_sound
    assert report.looked_up == (3 if sample else 63)
    assert (report.counted, report.not_counted) == (None, "")


@pytest.mark.parametrize("sample", [4, None])
def test_rows_are_counted_by_the_library_of_the_table(lake: Lake, tmp_path: Path, sample: int | None) -> None:
    build(None, lake.name, tmp_path / "index", ["id"])
    report = verify(storage_at(str(tmp_path / "index")), sample)
    assert (report.is_sound, report.counted, report.not_counted) == (True, len(lake.rows()), "")


def test_without_all_the_partitions_that_are_looked_up_are_evenly_spread(
    folder: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(samples, "MOST_PARTITIONS", {False: 2, True: 3})
    assert samples.some_of("fbeacd", False) == {"a", "d"}
    assert samples.some_of("fbeacd", True) == {"a", "c", "e"}
    assert main(["verify", folder]) == 0
    assert "looked up 2 keys of 2 of 3 partitions" in capsys.readouterr().out
    assert main(["verify", folder, "--all"]) == 0
    assert "looked up 63 keys of 3 of 3 partitions" in capsys.readouterr().out


VALUES = pa.table(
    {
        "id": pa.array([1, 1, None, 4], pa.int64()),
        "n": pa.array([-0.0, 0.0, math.nan, 1.5]),
        "d": pa.array([None, "1.50", "-0.10", "0.00"], pa.string()).cast(pa.decimal128(5, 2)),
        "at": pa.array([0, -62135596800000001, 1 << 62, None], pa.timestamp("us", "UTC")),
        "b": pa.array([b"", None, b"\xff", b"a"]),
    }
)


@pytest.mark.parametrize("keys", [["id"], ["d", "at"], ["n"]], ids="-".join)
@pytest.mark.parametrize("sample", [4, None])
def test_rows_of_a_key_value_folder_are_looked_up_and_with_all_every_key(
    tmp_path: Path, keys: list[str], sample: int | None
) -> None:
    write_btree(VALUES, tmp_path, keys, buckets=2)
    report = verify(storage_at(str(tmp_path)), sample)
    assert (report.faults, report.looked_up, report.partitions) == ([], 1 if sample else 5, 1)


def test_a_key_value_folder_that_answers_other_rows_is_not_sound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_btree(VALUES, tmp_path, ["id"], buckets=2)
    real = OpenIndex.answer_many
    monkeypatch.setattr(OpenIndex, "answer_many", lambda self, keys, *of, **limits: real(self, [4], *of, **limits))
    [fault] = verify(storage_at(str(tmp_path))).faults
    assert (fault.what, fault.action) == ("a look-up of its key does not find the row", Action.WRITE_VALUES)
    monkeypatch.setattr(Matcher, "holds", lambda self, keys, within: [False] * len(keys[0]))
    assert "look-ups do not find" in str(verify(storage_at(str(tmp_path)), None).faults[-1])


ODD_ROWS = {
    "named like pointers": {"data_offset": [7, 8], "data_sub_offset": [7, 8], "data_filename": ["a", "b"]},
    "times beyond Python's": {"at": pa.array([-62135596800000001, 1 << 62], pa.timestamp("us", "UTC"))},
    "spans beyond Python's": {"span": pa.array([1 << 62, -(1 << 62)], pa.duration("s"))},
    "nested": {"all": pa.array([[{"at": 1 << 62}], None], pa.list_(pa.struct([("at", pa.timestamp("us"))])))},
}


@pytest.mark.parametrize("sample", [4, None])
@pytest.mark.parametrize("odd", ODD_ROWS)
def test_columns_of_any_name_and_value_are_compared(tmp_path: Path, odd: str, sample: int | None) -> None:
    (tmp_path / "source").mkdir()
    pq.write_table(pa.table({"id": [1, 2], **ODD_ROWS[odd]}), tmp_path / "source/a.parquet")
    build(None, tmp_path / "source", tmp_path / "index", ["id"])
    report = verify(storage_at(str(tmp_path / "index")), sample)
    assert (report.faults, report.looked_up) == ([], 1 if sample else 3)


def broken_partitions(_self: object, _partition: str) -> Any:
    raise KeyTypeError("p", "an int", "x")


def cut(real: Callable[..., pa.Table]) -> Callable[..., pa.Table]:
    """A fetch that answers the beginning of each list."""

    def fetch(self: object, reader: object, pointers: Any, columns: list[str]) -> pa.Table:
        table = real(self, reader, pointers, columns)
        if "items" in columns:
            at = columns.index("items")
            short = pa.array([items[:1] for items in table.column(at).to_pylist()], table.column(at).type)
            table = table.set_column(at, "items", short)
        return table

    return fetch


def test_an_index_that_answers_nothing_is_not_sound(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PartitionColumns, "values", broken_partitions)
    report = verify(storage_at(folder))
    assert [fault.what for fault in report.faults] == [
        "a look-up of its key fails: key column p: expected an int, found 'x'"
    ] * 3


def test_an_index_that_answers_less_of_a_row_than_a_scan_is_not_sound(
    folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ParquetFile, "fetch", cut(ParquetFile.fetch))
    report = verify(storage_at(folder))
    assert {fault.what for fault in report.faults} == {
        "a fetch of the row has another value of items than a scan of the file"
    }


def test_an_index_that_does_not_find_its_keys_is_not_sound(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Matcher, "holds", lambda self, keys, within: [False] * len(keys[0]))
    faults = verify(storage_at(folder), None).faults
    assert sum(int(fault.what.split()[4]) for fault in faults) == 60
    assert all(fault.what.startswith("look-ups do not find") for fault in faults)


def golden(name: str, tmp_path: Path) -> Storage:
    """The index of the last version of a table that Spark wrote."""
    version = next(table for table in TABLES if table.name == name).versions[-1]
    source = f"iceberg:{version.metadata}" if version.metadata else f"delta:{version.table.path}"
    build(None, source, tmp_path / "index", version.key, buckets=2)
    return storage_at(str(tmp_path / "index"))


def test_a_table_that_counts_other_rows_is_a_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The build and the check of masks read the deletes by the same code, which may be wrong."""
    monkeypatch.setattr(delta, "_deleted", lambda *_: {})
    report = verify(golden("delta_vectors", tmp_path))
    assert report.counted == 92
    assert [fault.what for fault in report.faults] == [
        "the table's own reader counts 92 rows in version 12, and the snapshot has 100"
    ]


@pytest.mark.parametrize(("name", "kind"), [("delta_vectors", BY_POSITION), ("iceberg_equality_formats", BY_VALUE)])
def test_a_deleted_row_that_a_look_up_finds_is_a_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, kind: str
) -> None:
    index = golden(name, tmp_path)
    assert verify(index).is_sound

    def unmasked(storage: Storage, view: View, pinned: bool) -> OpenIndex:
        without = replace(view, segments=tuple(replace(one, masks={}) for one in view.segments))
        return OpenIndex(storage, without, pinned)

    monkeypatch.setattr(snapshot_module, "OpenIndex", unmasked)
    assert f"a look-up of its key finds the row, which is {kind}" in [fault.what for fault in verify(index).faults]


def test_a_table_that_its_library_cannot_count_is_sound_and_says_so(tmp_path: Path) -> None:
    report = verify(golden("iceberg_equality_formats", tmp_path))
    assert (report.is_sound, report.counted) == (True, None)
    assert "pyiceberg cannot count its rows" in report.not_counted


def _as_it_is(index: Path) -> None:
    pass


def _an_index_file_is_damaged(index: Path) -> None:
    file = sorted(index.rglob("*.btree.avro"))[1]
    file.write_bytes(file.read_bytes()[:-1] + b"x")


def _an_index_file_is_gone(index: Path) -> None:
    sorted(index.rglob("*.btree.avro"))[0].unlink()


def _a_source_file_is_gone(index: Path) -> None:
    (index.parent / "source/p=1/4.parquet").unlink()


def _rows_of_a_source_file_changed(index: Path) -> None:
    """Other keys in the same bytes but for them, at the same time: only a comparison of all rows finds it."""
    place = index.parent / "source/p=1/4.parquet"
    data, status = place.read_bytes(), place.stat()
    place.write_bytes(data.replace((41).to_bytes(8, "little"), (91).to_bytes(8, "little")))
    os.utime(place, ns=(status.st_atime_ns, status.st_mtime_ns))


@pytest.mark.process
@pytest.mark.parametrize(
    "damage",
    [
        _as_it_is,
        _an_index_file_is_damaged,
        _an_index_file_is_gone,
        _a_source_file_is_gone,
        _rows_of_a_source_file_changed,
    ],
)
def test_several_processes_report_what_one_reports(
    folder: str, damage: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    damage(Path(folder))
    monkeypatch.setattr(snapshot_module, "WORTH_ROWS", 1)
    shared, reports = [], []
    real = Workers.run
    monkeypatch.setattr(Workers, "run", lambda *given: shared.append(given[1]) or real(*given))
    for processes in (1, 2):
        monkeypatch.setattr(snapshot_module, "processes_for", lambda *_, processes=processes: processes)
        reports.append(verify(storage_at(folder), None))
    assert reports[0].to_json() == reports[1].to_json()
    assert reports[0].is_sound == (damage is _as_it_is)
    assert shared
