"""An index written as one of Dione's: every key is in the file where Dione's reader looks for it."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gnomon.btree import BTreeReader
from gnomon.btree.dione import dione_hashes
from gnomon.jobs.build import build
from gnomon.jobs.dione import export_dione, export_folder, export_index, import_dione
from gnomon.jobs.dione.export_folder import ExportFolder
from gnomon.shadow import UsageError
from gnomon.shadow.errors import ConcurrentCommit, StalePointer
from gnomon.shadow.metadata import View
from gnomon.shadow.storage import LocalStorage, Storage, storage_at
from tests.jobs.dione.test_import import DAYS, FORMATS, ROWS, contents, file_of, write_source

HASHES = [  # by Dione's classes: the columns of a key, and its buckets of 2, 3, 10 and 200
    (["msg_20"], (1, 2, 1, 31)),
    (["msg_20", "sub_msg_20"], (1, 2, 1, 131)),
    (["42"], (0, 0, 4, 104)),
    (["g7", "-3"], (1, 0, 7, 87)),
    (["a", "b", "c"], (0, 1, 6, 96)),
    (["\u00e9\U0001f600"], (0, 1, 4, 14)),
    ([""], (1, 2, 5, 145)),
    ([None], (1, 2, 5, 145)),
]


@pytest.mark.parametrize(("key", "expected"), HASHES)
def test_the_bucket_of_a_key_is_diones(key: list[str | None], expected: tuple[int, ...]) -> None:
    columns = [pa.array(["\u00e9\U0001f600 before", value, "after"]) for value in key]
    assert tuple(int(dione_hashes(columns)[1] % buckets) for buckets in (2, 3, 10, 200)) == expected


def test_numbers_and_booleans_hash_as_their_texts() -> None:
    numbers, flags = [0, -7, 42, None], [True, False, None]
    for values in (numbers, flags):
        texts = pa.array([None if value is None else str(value).lower() for value in values])
        assert dione_hashes([pa.array(values)]).tolist() == dione_hashes([texts]).tolist()


def names_by_folder(folder: Path) -> dict[str, list[str]]:
    return {day: sorted(path.name for path in (folder / day).iterdir()) for day in DAYS}


@pytest.mark.parametrize("format", FORMATS)
def test_an_export_taken_over_is_the_index(tmp_path: Path, format: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export_folder, "BUCKET_ENTRIES", 100)
    source = write_source(tmp_path / "source", format)
    build(None, source, tmp_path / "index", ["key"], FORMATS[format])
    found = export_dione(tmp_path / "index", tmp_path / "dione", data_table="db.data")
    assert (found.rows, found.partitions, found.files, found.removed) == (4 * ROWS, 2, 12, [])
    for day, names in names_by_folder(tmp_path / "dione").items():
        assert len(names) == 6
        for bucket, name in enumerate(names):
            with storage_at(tmp_path / "dione").open(f"{day}/{name}") as reader:
                for batch in BTreeReader(reader).scan_batches(["key"]):
                    assert set((dione_hashes([batch.column(0)]) % 6).tolist()) == {bucket}
    import_dione(None, tmp_path / "dione", tmp_path / "again", source)
    assert contents(tmp_path / "again") == contents(tmp_path / "index")


@pytest.mark.parametrize("flat", [False, True])
def test_each_file_has_a_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flat: bool) -> None:
    monkeypatch.setattr(export_folder, "BUCKET_ENTRIES", 10)
    tables = {"n=1": ["a"] * 90, "n=2": ["a", "b", "c"] * 30, "n=3": [f"key {i}" for i in range(90)], "n=4": ["a"] * 9}
    for folder, keys in tables.items():
        (tmp_path / "source" / folder).mkdir(parents=True)
        pq.write_table(pa.table({"key": keys}), tmp_path / "source" / folder / "a.parquet")
    build(None, tmp_path / "source", tmp_path / "index", ["key"], flat=flat)
    export_dione(tmp_path / "index", tmp_path / "dione", data_table="db.data")
    files = {}
    for folder, keys in tables.items():
        storage = storage_at(tmp_path / "dione" / folder)
        held = [[key for (key,), _ in BTreeReader(storage.open(info.path)).scan()] for info in sorted(storage.list())]
        assert sorted(key for some in held for key in some) == sorted(keys)
        for bucket, some in enumerate(held):
            assert set((dione_hashes([pa.array(some)]) % len(held)).tolist()) == {bucket}
        files[folder] = len(held)
    assert files == {"n=1": 1, "n=2": 2, "n=3": 9, "n=4": 1}


def test_a_later_export_writes_what_changed(tmp_path: Path) -> None:
    source = write_source(tmp_path / "source", "parquet")
    build(None, source, tmp_path / "index", ["key"])
    export_dione(tmp_path / "index", tmp_path / "dione", data_table="db.data")
    before = names_by_folder(tmp_path / "dione")
    assert export_dione(tmp_path / "index", tmp_path / "dione", data_table="db.data").written == []
    (source / DAYS[1] / "part-9").write_bytes(file_of("parquet", 9))
    build(None, source, tmp_path / "index", ["key"])
    found = export_dione(tmp_path / "index", tmp_path / "dione", data_table="db.data")
    assert (found.written, found.rows) == ([DAYS[1]], 5 * ROWS)
    now = names_by_folder(tmp_path / "dione")
    assert now[DAYS[0]] == before[DAYS[0]]
    assert set(now[DAYS[1]]).isdisjoint(before[DAYS[1]])
    shutil.rmtree(source / DAYS[0])
    build(None, source, tmp_path / "index", ["key"], accept_vanished=True)
    assert export_dione(tmp_path / "index", tmp_path / "dione", data_table="db.data").removed == [DAYS[0]]
    assert not (tmp_path / "dione" / DAYS[0]).exists()


def test_another_place_of_the_source_or_another_index_is_written_again(tmp_path: Path) -> None:
    """The entries name whole files, and have the columns of the index."""
    source, dione = write_source(tmp_path / "source", "parquet"), tmp_path / "dione"
    build(None, source, tmp_path / "index", ["key"])
    export_dione(tmp_path / "index", dione, data_table="db.data")
    source = source.rename(tmp_path / "moved")
    build(None, source, tmp_path / "index", ["key"], adopt=True)
    assert export_dione(tmp_path / "index", dione, data_table="db.data").written == list(DAYS)
    import_dione(None, dione, tmp_path / "again", source)
    assert contents(tmp_path / "again") == contents(tmp_path / "index")
    build(None, source, tmp_path / "other", ["n"], ["key"])
    assert export_dione(tmp_path / "other", dione, data_table="db.data").written == list(DAYS)
    import_dione(None, dione, tmp_path / "other again", source)
    assert contents(tmp_path / "other again") == contents(tmp_path / "other")


@pytest.mark.parametrize("keys", [["same"] * 20_000, [f"key {row:06d}" for row in range(20_000)]], ids=["one", "many"])
def test_a_file_may_take_more_than_the_memory_for_sorting(tmp_path: Path, keys: list[str]) -> None:
    (tmp_path / "source" / "dt=1").mkdir(parents=True)
    pq.write_table(pa.table({"key": keys}), tmp_path / "source" / "dt=1" / "a.parquet")
    build(None, tmp_path / "source", tmp_path / "index", ["key"])
    export_dione(tmp_path / "index", tmp_path / "dione", data_table="db.data", memory=1 << 18)
    import_dione(None, tmp_path / "dione", tmp_path / "again", tmp_path / "source")
    assert contents(tmp_path / "again") == contents(tmp_path / "index")


def test_two_folders_of_one_partition_are_refused(tmp_path: Path) -> None:
    for folder in ("dt=a", "dt=%61"):
        (tmp_path / "source" / folder).mkdir(parents=True)
        pq.write_table(pa.table({"key": ["a", "b"]}), tmp_path / "source" / folder / "a.parquet")
    build(None, tmp_path / "source", tmp_path / "index", ["key"])
    with pytest.raises(UsageError, match="folders dt=%61 and dt=a are one partition to Dione"):
        export_dione(tmp_path / "index", tmp_path / "dione", data_table="db.data")
    assert not (tmp_path / "dione").exists()


def test_an_export_that_was_cut_short_is_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = write_source(tmp_path / "source", "parquet")
    build(None, source, tmp_path / "index", ["key"])
    with monkeypatch.context() as patched:
        patched.setattr(export_folder.ExportedFiles, "_write", lambda *_: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            export_dione(tmp_path / "index", tmp_path / "dione", data_table="db.data")
    assert export_dione(tmp_path / "index", tmp_path / "dione", data_table="db.data").written == list(DAYS)


def test_the_statement_names_what_dione_asks_for(tmp_path: Path) -> None:
    build(None, write_source(tmp_path / "source", "parquet"), tmp_path / "index", ["key"], ["n"])
    dione = tmp_path / "dione"
    assert export_dione(tmp_path / "index", dione, "db.data_index", "db.data").statement == (
        "CREATE EXTERNAL TABLE IF NOT EXISTS db.data_index (`key` string, `n` bigint, `data_filename` string, "
        "`data_offset` bigint, `data_sub_offset` int, `data_size` int) PARTITIONED BY (`dt` string) "
        f"STORED AS AVRO LOCATION 'file:{dione}' TBLPROPERTIES ('index.meta.dataTableName' = 'db.data', "
        "'index.meta.keys' = 'key', 'index.meta.moreFields' = 'n', "
        f"'avro.schema.url' = 'file:{dione}/.btree.avsc')"
    )
    fields = json.loads((dione / ".btree.avsc").read_text())["fields"]
    assert [one["name"] for one in fields][-1] == "metadata"
    assert fields[0] == {"name": "key", "type": ["string", "null"]}


def test_nulls_are_last(tmp_path: Path) -> None:
    (tmp_path / "source" / "n=1").mkdir(parents=True)
    table = pa.table({"a": ["x", None, "y", None], "b": pa.array([None, 2, 1, None], pa.int64())})
    pq.write_table(table, tmp_path / "source" / "n=1" / "a.parquet")
    build(None, tmp_path / "source", tmp_path / "index", ["a", "b"])
    export_dione(tmp_path / "index", tmp_path / "dione", data_table="db.data")
    [path] = (tmp_path / "dione" / "n=1").iterdir()
    with storage_at(path.parent).open(path.name) as reader:
        assert [key for key, _ in BTreeReader(reader).scan()] == [("x", None), ("y", 1), (None, 2), (None, None)]


def test_a_source_file_that_changed_is_refused(tmp_path: Path) -> None:
    source = write_source(tmp_path / "source", "parquet")
    build(None, source, tmp_path / "index", ["key"])
    (source / DAYS[0] / "part-0").write_bytes(file_of("parquet", 5))
    with pytest.raises(StalePointer, match="part-0"):
        export_dione(tmp_path / "index", tmp_path / "dione", data_table="db.data")


COLUMNS = {
    "day": (pa.array([1, 2], pa.date32()), "does not find keys of this type"),
    "time": (pa.array([1, 2], pa.timestamp("us", "UTC")), "does not find keys of this type"),
    "double": (pa.array([1.0, 2.0]), "does not find keys of this type"),
    "decimal": (pa.array([1, 2]).cast(pa.decimal128(20, 0)), "does not find keys of this type"),
    "binary": (pa.array([b"1", b"2"]), "does not find keys of this type"),
    "no table": (pa.array(["a", "b"]), "name it"),
    "no partitions": (pa.array(["a", "b"]), "no source without partitions"),
    "partition key": (pa.array(["a", "b"]), "no partition columns"),
    "escaped": (pa.array(["a", "b"]), "escaped character"),
    "csv": (pa.array(["a", "b"]), "files of format csv"),
    "files there": (pa.array(["a", "b"]), "there are files"),
    "flag and number": (pa.array([True, False]), "no composite keys"),
}


@pytest.mark.parametrize("case", COLUMNS)
def test_what_dione_cannot_hold_is_refused(tmp_path: Path, case: str) -> None:
    values, what = COLUMNS[case]
    folder = {"no partitions": "", "escaped": "n=a%3Ab"}.get(case, "n=1")
    (tmp_path / "source" / folder).mkdir(parents=True)
    if case == "csv":
        (tmp_path / "source" / folder / "a.csv").write_text("key,more\na,1\n")
    else:
        table = pa.table({"key": values, "more": np.arange(2)})
        pq.write_table(table, tmp_path / "source" / folder / "a.parquet")
    keys = {"partition key": ["key", "n"], "flag and number": ["key", "more"]}.get(case, ["key"])
    build(None, tmp_path / "source", tmp_path / "index", keys)
    if case == "files there":
        (tmp_path / "dione").mkdir()
        (tmp_path / "dione" / "file").write_text("")
    with pytest.raises(UsageError, match=what):
        export_dione(tmp_path / "index", tmp_path / "dione", data_table="" if case == "no table" else "db.data")


def test_the_last_records_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export_folder, "KEPT", 3)
    build(None, write_source(tmp_path / "source", "parquet"), tmp_path / "index", ["key"])
    for _ in range(3):
        export_dione(tmp_path / "index", tmp_path / "dione", data_table="db.data")
    names = sorted(path.name for path in (tmp_path / "dione").glob("_*"))
    assert names == [f"_gnomon-export.{number}.json" for number in (4, 5, 6)]


@pytest.mark.parametrize("step", ["put_new", "delete_empty", "list", "open"])
def test_of_two_exports_at_once_one_fails_and_the_other_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """The second runs before the n-th call of a step of the first, for each n."""
    index = tmp_path / "index"
    build(None, write_source(tmp_path / "source", "parquet"), index, ["key"])
    export_dione(index, tmp_path / "before", data_table="db.data")
    for day in DAYS:  # which both exports replace
        (tmp_path / "before" / day / "part-9.btree.avro").write_bytes(b"")
    ran = 0
    for number in range(100):
        dione = shutil.copytree(tmp_path / "before", tmp_path / f"dione {number}")
        with monkeypatch.context() as patched:
            second = SecondExport(patched, step, number, index, dione)
            errors = second.outcomes()
        if not second.has_run:
            break
        ran += 1
        assert len(errors) <= 1
        assert all("another export to this folder has begun" in error for error in errors)
        import_dione(None, dione, tmp_path / f"again {number}", tmp_path / "source")
        assert contents(tmp_path / f"again {number}") == contents(index)
        assert export_dione(index, dione, data_table="db.data").written == []
    assert not second.has_run
    assert ran >= 2


class SecondExport:
    """Runs an export before a call of another one."""

    def __init__(self, patched: pytest.MonkeyPatch, step: str, number: int, index: Path, dione: Path) -> None:
        self._run = lambda: export_dione(index, dione, data_table="db.data")
        self._left = number
        self._errors: list[str] = []
        self.has_run = False
        original = getattr(LocalStorage, step)

        def overtaken(storage: LocalStorage, *args: Any, **named: Any) -> Any:
            if storage.root == str(dione) and not self.has_run:
                self._left -= 1
                if self._left < 0:
                    self.has_run = True
                    self._try()
            return original(storage, *args, **named)

        patched.setattr(LocalStorage, step, overtaken)

    def outcomes(self) -> list[str]:
        """The errors of both."""
        self._try()
        return self._errors

    def _try(self) -> None:
        try:
            self._run()
        except ConcurrentCommit as error:
            self._errors.append(str(error))


def test_the_later_of_two_exports_has_the_newer_snapshot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file is added and exported while the first export reads its snapshot."""
    source, index, dione = write_source(tmp_path / "source", "parquet"), tmp_path / "index", tmp_path / "dione"
    build(None, source, index, ["key"])
    open_view = export_index.open_view

    def overtaken(storage: Storage) -> View:
        view = open_view(storage)
        with monkeypatch.context() as patched:
            patched.setattr(export_index, "open_view", open_view)
            (source / DAYS[0] / "part-9").write_bytes(file_of("parquet", 9))
            build(None, source, index, ["key"])
            assert export_dione(index, dione, data_table="db.data").rows == 5 * ROWS
        return view

    monkeypatch.setattr(export_index, "open_view", overtaken)
    with pytest.raises(ConcurrentCommit):
        export_dione(index, dione, data_table="db.data")
    import_dione(None, dione, tmp_path / "again", source)
    assert sorted(contents(tmp_path / "again")) == sorted(contents(index))  # the index has two segments


def test_what_a_killed_export_left_is_no_part_of_the_next_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first export writes a file after the second one has begun, and is killed."""
    index, dione = tmp_path / "index", tmp_path / "dione"
    build(None, write_source(tmp_path / "source", "parquet"), index, ["key"])
    begin = ExportFolder.begin

    def late(second: ExportFolder, *args: Any) -> None:
        begin(second, *args)
        (dione / DAYS[0]).mkdir()
        (dione / DAYS[0] / "part-00000-late.c000.btree.avro").write_bytes(b"")

    ExportFolder(storage_at(dione)).begin({}, DAYS)
    monkeypatch.setattr(ExportFolder, "begin", late)
    export_dione(index, dione, data_table="db.data")
    assert [len(names) for names in names_by_folder(dione).values()] == [1, 1]
    import_dione(None, dione, tmp_path / "again", tmp_path / "source")
    assert contents(tmp_path / "again") == contents(index)


def test_an_export_that_fails_removes_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build(None, write_source(tmp_path / "source", "parquet"), tmp_path / "index", ["key"])
    monkeypatch.setattr(ExportFolder, "end", lambda *_: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        export_dione(tmp_path / "index", tmp_path / "dione", data_table="db.data")
    assert not list((tmp_path / "dione").rglob("part-*"))


def test_an_error_after_the_last_record_removes_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index, dione = tmp_path / "index", tmp_path / "dione"
    build(None, write_source(tmp_path / "source", "parquet"), index, ["key"])
    put_record = ExportFolder._put_record

    def failing(export: ExportFolder, *args: Any) -> None:
        is_last = bool(export._written)
        put_record(export, *args)
        if is_last:
            raise KeyboardInterrupt

    monkeypatch.setattr(ExportFolder, "_put_record", failing)
    with pytest.raises(KeyboardInterrupt):
        export_dione(index, dione, data_table="db.data")
    monkeypatch.undo()
    assert [len(names) for names in names_by_folder(dione).values()] == [1, 1]
    assert export_dione(index, dione, data_table="db.data").written == []


def test_an_unfinished_record_does_not_stop_the_first_export(tmp_path: Path) -> None:
    build(None, write_source(tmp_path / "source", "parquet"), tmp_path / "index", ["key"])
    (tmp_path / "dione").mkdir()
    (tmp_path / "dione" / "_staged-1").write_text("{")  # of an export that was killed
    assert export_dione(tmp_path / "index", tmp_path / "dione", data_table="db.data").written == list(DAYS)


def test_a_partition_with_other_files_is_written_again(tmp_path: Path) -> None:
    build(None, write_source(tmp_path / "source", "parquet"), tmp_path / "index", ["key"])
    dione = tmp_path / "dione"
    export_dione(tmp_path / "index", dione, data_table="db.data")
    [path] = (dione / DAYS[0]).iterdir()
    shutil.copy(path, path.with_name("part-00001.btree.avro"))  # an append of Dione's own job
    assert export_dione(tmp_path / "index", dione, data_table="db.data").written == [DAYS[0]]
    [path] = (dione / DAYS[1]).iterdir()
    path.unlink()
    assert export_dione(tmp_path / "index", dione, data_table="db.data").written == [DAYS[1]]
    assert [len(names) for names in names_by_folder(dione).values()] == [1, 1]
    (dione / "dt=2026-01-03").mkdir()
    shutil.copy(next((dione / DAYS[0]).iterdir()), dione / "dt=2026-01-03")
    with pytest.raises(UsageError, match="no export has written these files") as caught:
        export_dione(tmp_path / "index", dione, data_table="db.data")
    assert str(dione / "dt=2026-01-03") in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        '{"": ["a", []]}',
        '{"../source": ["a", []]}',
        '{"dt=1/..": ["a", []]}',
        '{"/tmp/x=1": ["a", []]}',
        '{"dt=1": "a"}',
        '{"dt=1": ["a", "b"]}',
    ],
)
def test_a_record_that_names_other_folders_removes_nothing(tmp_path: Path, text: str) -> None:
    source = write_source(tmp_path / "source", "parquet")
    build(None, source, tmp_path / "index", ["key"])
    (tmp_path / "dione").mkdir()
    (tmp_path / "dione" / "_gnomon-export.1.json").write_text(f'{{"partitions": {text}}}')
    before = sorted(path for path in tmp_path.rglob("*"))
    with pytest.raises(UsageError, match="not the record of an export"):
        export_dione(tmp_path / "index", tmp_path / "dione", data_table="db.data")
    assert sorted(path for path in tmp_path.rglob("*")) == before
