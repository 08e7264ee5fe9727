"""jobs/dedup/append.py: each new key once, in the source's own files, through crashes and races."""

import datetime as dt
import shutil
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gnomon import shadow
from gnomon.jobs.build import build
from gnomon.jobs.dedup import DedupResult, Origin, append_new, as_rows
from gnomon.jobs.dedup import append as append_module
from gnomon.jobs.dedup import layout as layout_module
from gnomon.jobs.dedup import target as finish_module
from gnomon.shadow.commit.append_log import Append
from gnomon.shadow.errors import ConcurrentCommit
from gnomon.shadow.maintenance.compaction import rebucket
from gnomon.shadow.storage import Storage, storage_at
from gnomon.shadow.verify.snapshot import verify
from tests.opened import open_index
from tests.shadow.make_index import write_source

local_rows = sys.modules[as_rows.__module__]
SCHEMA = pa.schema([("id", pa.int32()), ("a", pa.string()), ("b", pa.string()), ("payload", pa.string())])
Rows = list[tuple[object, ...]]


def make_lake(root: Path) -> None:
    """Rows 0..99 in two partitions, keys (a, b), one key of nulls; indexed."""
    rows: Rows = [(i % 2, f"a{i // 10}", f"b{i % 10}", f"old {i}") for i in range(100)] + [(0, None, None, "old null")]
    parts = [table([row for row in rows if row[0] == part]).drop_columns(["id"]) for part in range(2)]
    write_source(root / "source", {f"id={part}/a.parquet": parts[part] for part in range(2)})
    build(None, root / "source", root / "index", ["a", "b"], buckets=2)


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    make_lake(tmp_path)
    return tmp_path


def test_an_append_opens_its_index_once(lake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    of = shadow.OpenIndex.of

    def noted(place: str) -> shadow.OpenIndex:
        opened.append(place)
        return of(place)

    monkeypatch.setattr(shadow.OpenIndex, "of", noted)
    done = append_new(None, lake / "index", batch(90, 120), "b", report=tmp_path / "report.parquet")
    assert (done.appended, done.reported, opened) == (20, 10, [str(lake / "index")])


def test_an_index_that_is_deleted_and_built_again_during_an_append_is_looked_at_anew(
    lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for i in range(3):  # its number is greater than that of the index that replaces it
        write_source(lake / "source", {f"id=0/{i}.parquet": table(batch_rows(200 + i, 201 + i)).drop_columns(["id"])})
        build(None, lake / "source", lake / "index", ["a", "b"])
    real = append_module.bring_up_to_date

    def replaced(*arguments: object) -> object:
        shutil.rmtree(lake / "index")
        write_source(lake / "source", {"id=0/late.parquet": table(batch_rows(300, 310)).drop_columns(["id"])})
        return real(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(append_module, "bring_up_to_date", replaced)
    done = append_new(None, lake / "index", batch(305, 315), "b")
    assert (done.already_loaded, done.appended) == (5, 5)


def table(rows: Sequence[tuple[object, ...]], schema: pa.Schema = SCHEMA) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema=schema)


def batch_rows(begin: int, end: int, extra: Rows | None = None) -> Rows:
    rows: Rows = [(i % 2, f"a{i // 10}", f"b{i % 10}", f"new {i}") for i in range(begin, end)]
    return rows + (extra or [])


def batch(begin: int, end: int, extra: Rows | None = None) -> pa.Table:
    return table(batch_rows(begin, end, extra))


def source(lake: Path) -> Rows:
    """The rows that a reader of the source's files sees."""
    table = pq.read_table(lake / "source", partitioning="hive")
    return sorted((tuple(row.values()) for row in table.select(["id", "a", "b", "payload"]).to_pylist()), key=str)


def keys_of(lake: Path) -> list[tuple[object, object]]:
    return [(row[1], row[2]) for row in source(lake)]


def test_an_append_appends_each_key_once_and_indexes_it(lake: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in (lake / "source").rglob("*.parquet")}
    extra: Rows = [(0, "a11", "b0", "twice"), (1, None, None, "null"), (None, "z", "z", "no partition")]
    result = append_new(None, str(lake / "index"), batch(80, 120, extra), "b 1/x")
    told = (result.rows_read, result.duplicates_in_batch, result.already_loaded, result.null_keys, result.appended)
    assert told == (43, 1, 21, 1, 21)
    assert (result.rejected, result.files, result.known_batch) == (0, 3, False)
    assert {name: (one["rows_read"], one["appended"], one["files"]) for name, one in result.partitions.items()} == {
        "id=0": (21, 10, 1),
        "id=1": (21, 10, 1),
        "id=__HIVE_DEFAULT_PARTITION__": (1, 1, 1),
    }
    assert {path: path.stat().st_mtime_ns for path in before} == before, "existing files are never touched"
    assert len(keys_of(lake)) == len(set(keys_of(lake))) == 122
    index = open_index(str(lake / "index"))
    assert index.fetch(("a11", "b7"))[0]["payload"] == "new 117"
    assert index.view.snapshot.rows == 122
    assert (index.view.snapshot.operation, index.view.snapshot.batch) == ("dedup", "b 1/x")
    fresh = [path for path in (lake / "source").rglob("*.parquet") if path not in before]
    assert len(fresh) == 3
    assert all("-of-00003-b-1-x-" in path.name for path in fresh), "files carry the batch in their names"
    assert not (lake / "source/_gnomon").exists()


def test_a_batch_is_appended_once_and_known_by_its_rows(lake: Path) -> None:
    first = append_new(None, str(lake / "index"), batch(80, 120), "nightly")
    rows = source(lake)
    again = append_new(None, str(lake / "index"), batch(80, 120).sort_by("payload"), "nightly")
    assert (again.known_batch, again.appended, again.snapshot) == (True, 0, first.snapshot)
    other = append_new(None, str(lake / "index"), batch(80, 120), "nightly, delivered again")
    assert (other.known_batch, other.appended, other.already_loaded) == (False, 0, 40)
    message = "batch 'nightly' was appended by snapshot 2 with other rows: expected 40 of digest .*, found 28-"
    with pytest.raises(shadow.UsageError, match=message):
        append_new(None, str(lake / "index"), batch(120, 160), "nightly")
    assert source(lake) == rows


@pytest.mark.parametrize("dies_in", ["staged_of", "commit_append", "move_files", "mark_appended", "settle"])
@pytest.mark.parametrize("meanwhile", ["nothing", "a nightly build"])
def test_an_append_that_died_is_finished_by_the_next(
    lake: Path, monkeypatch: pytest.MonkeyPatch, dies_in: str, meanwhile: str
) -> None:
    """It died after each of its steps."""
    module = next(one for one in (append_module, finish_module, local_rows) if hasattr(one, dies_in))
    real = getattr(module, dies_in)

    def dying(*arguments: object, **named: object) -> object:
        real(*arguments, **named)
        raise KeyboardInterrupt

    monkeypatch.setattr(module, dies_in, dying)
    with pytest.raises(KeyboardInterrupt):
        append_new(None, str(lake / "index"), batch(80, 120), "nightly", report=str(lake / "lost"))
    monkeypatch.undo()
    if meanwhile == "a nightly build":
        build(None, str(lake / "source"), str(lake / "index"), ["a", "b"])
    again = append_new(None, str(lake / "index"), batch(80, 120), "nightly", report=str(lake / "report"))
    assert (again.rows_read, again.already_loaded, again.appended, again.reported, again.known_batch) == (
        (0, 0, 0, None, True) if dies_in == "settle" else (40, 20, 20, 20, False)
    )
    assert dies_in == "settle" or pq.read_table(lake / "report").num_rows == 20
    assert len(keys_of(lake)) == len(set(keys_of(lake))) == 121
    assert open_index(str(lake / "index")).view.snapshot.rows == 121
    assert verify(storage_at(str(lake / "index")), None).is_sound
    assert append_new(None, str(lake / "index"), batch(80, 120), "nightly").known_batch
    assert not (lake / "source/_gnomon").exists()


def test_of_racing_appends_with_keys_in_common_each_key_is_appended_once(
    lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both look their rows up before one of them commits."""
    real, meet, calls = append_module.commit_append, threading.Barrier(2), count(1)

    def together(storage: Storage, append: Append) -> bool:
        if next(calls) <= 2:
            meet.wait(timeout=120)
        return real(storage, append)

    monkeypatch.setattr(append_module, "commit_append", together)

    def append(begin: int) -> DedupResult:
        return append_new(None, str(lake / "index"), batch(begin, begin + 40), f"from {begin}")

    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(append, [100, 120]))
    assert sorted(result.appended for result in results) == [20, 40]
    assert len(keys_of(lake)) == len(set(keys_of(lake))) == 161
    assert open_index(str(lake / "index")).view.snapshot.rows == 161
    assert not verify(storage_at(str(lake / "index"))).faults
    assert not (lake / "source/_gnomon").exists()


def test_null_keys_are_kept_rejected_or_taken_for_equal(lake: Path) -> None:
    nulls: Rows = [(0, None, "b", "one"), (0, None, "b", "two"), (1, None, None, "known"), (1, "new", "b", "new")]
    frame = table(nulls)
    rejected = append_new(None, str(lake / "index"), frame, "rejected", null_keys="reject")
    assert (rejected.null_keys, rejected.rejected, rejected.appended) == (3, 3, 1)
    equal = append_new(None, str(lake / "index"), frame, "equal")
    assert (equal.null_keys, equal.duplicates_in_batch, equal.already_loaded, equal.appended) == (3, 1, 2, 1)
    kept = append_new(None, str(lake / "index"), frame, "kept", null_keys="keep")
    assert (kept.null_keys, kept.already_loaded, kept.appended) == (3, 1, 3)
    assert append_new(None, str(lake / "index"), frame, "kept", null_keys="keep").known_batch
    assert keys_of(lake).count((None, "b")) == 3


def test_null_keys_of_a_batch_are_known_by_its_files_where_the_index_was_lost(lake: Path) -> None:
    frame = table([(0, None, "b", "one"), (1, None, "b", "two"), (1, "x", "y", "z")])
    append_new(None, str(lake / "index"), frame, "kept", null_keys="keep")
    append_new(None, str(lake / "index"), frame, "equal")
    rows, lost = source(lake), str(lake / "another index")
    build(None, str(lake / "source"), lost, ["a", "b"])
    assert append_new(None, lost, frame.slice(0, 0), "equal", null_keys="keep").appended == 0
    again = append_new(None, lost, frame, "kept", null_keys="keep")
    assert (again.already_loaded, again.appended) == (3, 0)
    assert source(lake) == rows
    next((lake / "source").rglob("part-00000-of-00002-kept-*")).unlink()
    build(None, str(lake / "source"), str(lake / "third"), ["a", "b"])
    with pytest.raises(
        shadow.StalePointer, match="1 of 2 files of an earlier append of batch 'kept' are in the source"
    ):
        append_new(None, str(lake / "third"), frame, "kept", null_keys="keep")


def test_the_report_leads_from_each_row_not_appended_to_the_one_that_was_there_first(lake: Path) -> None:
    extra: Rows = [(0, "a10", "b0", "twice"), (0, "a10", "b0", "thrice"), (1, None, "b", "null")]
    report = lake / "report.parquet"
    frame = batch(98, 102, extra)
    result = append_new(
        *(None, str(lake / "index"), frame, "nightly"),
        order_by=["payload desc"],
        null_keys="reject",
        report=str(report),
    )
    assert (result.reported, result.rejected) == (5, 1)
    rows = pq.read_table(report).to_pylist()
    told = {}
    for row in rows:
        place, first = row["data_filename"], None
        if place is not None:
            first = pq.read_table(lake / "source" / place).to_pylist()[row["data_offset"]]["payload"]
        told[row["payload"]] = (row["dedup_reason"], first)
    assert told == {
        "new 98": ("already present", "old 98"),
        "new 99": ("already present", "old 99"),
        "thrice": ("duplicate in batch", "twice"),
        "new 100": ("duplicate in batch", "twice"),
        "null": ("null in key", None),
    }
    assert not list((lake / "index/_shadow/rejected").glob("*")), "what tasks rejected is removed"
    with pytest.raises(shadow.UsageError, match=r"report\.parquet: the file exists"):
        append_new(None, str(lake / "index"), frame, "other", report=str(report))


def test_an_index_that_is_missing_is_built_first_and_stale_one_brought_up_to_date(lake: Path) -> None:
    origin, index = Origin(str(lake / "source"), ["a", "b"]), str(lake / "fresh")
    with pytest.raises(shadow.IndexNotFound, match="gnomon dedup with --source and --key"):
        append_new(None, index, batch(90, 110), "first")
    first = append_new(None, index, batch(90, 110), "first", origin=origin)
    assert (first.already_loaded, first.appended) == (10, 10)
    pq.write_table(pa.table({"a": ["late"], "b": ["file"], "payload": ["there"]}), lake / "source/id=1/late.parquet")
    late = append_new(None, index, table([(0, "late", "file", "again")]), "late")
    assert (late.already_loaded, late.appended) == (1, 0)


@pytest.mark.parametrize("partition_by", [[], ["id"]])
def test_the_first_append_into_an_empty_source_makes_it_and_its_index(tmp_path: Path, partition_by: list[str]) -> None:
    origin = Origin(str(tmp_path / "source"), ["a", "b"], partition_by=partition_by)
    first = append_new(None, str(tmp_path / "index"), batch(0, 20, [(1, "a0", "b1", "twice")]), "1", origin=origin)
    assert (first.duplicates_in_batch, first.already_loaded, first.appended) == (1, 0, 20)
    assert open_index(str(tmp_path / "index")).spec.partitions == tuple(partition_by)
    again = append_new(None, str(tmp_path / "index"), batch(10, 30), "2")
    assert (again.already_loaded, again.appended) == (10, 10)
    assert len(set(keys_of(tmp_path))) == len(keys_of(tmp_path)) == 30


def test_a_damaged_index_is_refused_and_indexed_again_when_asked(lake: Path) -> None:
    damaged = next((lake / "index").rglob("id=0/*.avro"))
    data = bytearray(damaged.read_bytes())
    data[len(data) // 2] ^= 0xFF
    damaged.write_bytes(data)
    rows = source(lake)
    with pytest.raises((shadow.DamagedIndexFile, shadow.DamagedMetadata)):
        append_new(None, str(lake / "index"), batch(0, 110), "nightly")
    assert source(lake) == rows
    result = append_new(None, str(lake / "index"), batch(0, 110), "nightly", full=True)
    assert (result.already_loaded, result.appended) == (100, 10)


def test_what_does_not_fit_is_refused_before_anything_is_written(lake: Path) -> None:
    before = sorted((lake / "source").rglob("*"))
    frame = pa.table({"id": [1], "a": ["a"], "b": [7], "payload": ["x"], "more": [1.5]})
    with pytest.raises(shadow.UsageError) as caught:
        append_new(None, str(lake / "index"), frame, "x")
    assert "more is not a column of the source; b is int64, expected string; nothing was written" in str(caught.value)
    with pytest.raises(shadow.UsageError, match="payload is missing"):
        append_new(None, str(lake / "index"), batch(0, 1).drop_columns(["payload"]), "x")
    with pytest.raises(shadow.UsageError, match="order_by: the batch has no column when"):
        append_new(None, str(lake / "index"), batch(0, 1), "x", order_by=["when desc"])
    with pytest.raises(shadow.UsageError, match="scope: expected one of"):
        append_new(None, str(lake / "index"), batch(0, 1), "x", scope="all")
    assert sorted((lake / "source").rglob("*")) == before


def test_a_source_of_one_file_cannot_be_appended_to(tmp_path: Path) -> None:
    pq.write_table(pa.table({"k": [1]}), tmp_path / "one.parquet")
    build(None, str(tmp_path / "one.parquet"), str(tmp_path / "index"), ["k"])
    with pytest.raises(shadow.UsageError, match="one file cannot be appended to"):
        append_new(None, str(tmp_path / "index"), pa.table({"k": range(3)}), "b")


def test_timestamps_are_written_as_the_source_has_them(tmp_path: Path) -> None:
    def moments(begin: int, end: int) -> pa.Table:
        at = [dt.datetime.fromtimestamp(i, dt.UTC) for i in range(begin, end)]
        return pa.table({"k": range(begin, end), "ts": pa.array(at, pa.timestamp("us", "UTC"))})

    for kind in ("INT96", "INT64"):
        root = tmp_path / kind
        write_source(root / "source", {"a.parquet": moments(0, 10)}, use_deprecated_int96_timestamps=kind == "INT96")
        build(None, root / "source", root / "index", ["k"])
        assert append_new(None, root / "index", moments(5, 15), "b").appended == 5
        kinds = {
            str(pq.ParquetFile(path).schema.column(1).physical_type) for path in (root / "source").glob("*.parquet")
        }
        assert kinds == {kind}
        assert len(list((root / "source").glob("*.parquet"))) == 2
        assert len(open_index(root / "index").view.snapshot.columns) == 2


def test_partition_values_are_the_text_of_their_folders(tmp_path: Path) -> None:
    for month in ("01", "__HIVE_DEFAULT_PARTITION__"):
        (tmp_path / f"source/month={month}").mkdir(parents=True)
        pq.write_table(pa.table({"k": [f"in {month}"]}), tmp_path / f"source/month={month}/p.parquet")
    location = str(tmp_path / "index")
    build(None, str(tmp_path / "source"), location, ["k"])
    number = pa.table({"k": ["new"], "month": pa.array([1], pa.int32())})
    with pytest.raises(shadow.UsageError, match="month is int32, the source has folders like month=01"):
        append_new(None, location, number, "numbers", "partition")
    empty = pa.table({"k": ["in __HIVE_DEFAULT_PARTITION__", "new", "new"], "month": ["", "", "01"]})
    assert append_new(None, location, empty, "first", "partition").appended == 2
    assert append_new(None, location, empty, "second", "partition").appended == 0
    assert sorted(path.name for path in (tmp_path / "source").glob("month=*")) == [
        "month=01",
        "month=__HIVE_DEFAULT_PARTITION__",
    ]


@pytest.mark.parametrize("layout", ["re-sharded", "flat"])
def test_an_index_of_another_shape_is_appended_to_alike(lake: Path, layout: str) -> None:
    location = str(lake / "index")
    if layout == "flat":
        location = str(lake / "flat")
        build(None, str(lake / "source"), location, ["a", "b"], flat=True)
    else:
        rebucket(storage_at(location), 7)
    result = append_new(None, location, batch(80, 120), "nightly")
    assert (result.already_loaded, result.appended) == (20, 20)
    index = open_index(location)
    assert index.fetch(("a11", "b7"))[0]["payload"] == "new 117"
    assert index.spec.buckets == (1 if layout == "flat" else 7)
    assert index.coverage().is_empty
    assert verify(storage_at(location)).faults == []
    assert append_new(None, location, batch(80, 125), "again").appended == 5


def test_a_batch_without_rows_is_recorded_and_makes_no_source(lake: Path) -> None:
    none = batch(0, 0)
    empty = append_new(None, str(lake / "index"), none, "none")
    assert (empty.rows_read, empty.files, empty.known_batch) == (0, 0, False)
    assert append_new(None, str(lake / "index"), none, "none").known_batch
    origin = Origin(str(lake / "fresh"), ["a", "b"])
    with pytest.raises(shadow.UsageError, match="fresh: it has no files, and the batch has no row to append"):
        append_new(None, str(lake / "fresh index"), none, "none", origin=origin)
    assert append_new(None, str(lake / "fresh index"), batch(0, 5), "first", origin=origin).appended == 5


def test_a_first_append_that_died_is_finished_as_it_was_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index, origin = str(tmp_path / "index"), Origin(str(tmp_path / "source"), ["a"], partition_by=["id"])
    real = append_module.commit_append

    def dying(storage: Storage, append: Append) -> bool:
        real(storage, append)
        raise KeyboardInterrupt

    monkeypatch.setattr(append_module, "commit_append", dying)
    with pytest.raises(KeyboardInterrupt):
        append_new(None, index, batch(0, 20), "first", origin=origin)
    monkeypatch.undo()
    with pytest.raises(shadow.SpecMismatch, match=r"it is of .* by a, found source .* by b; leave these out"):
        append_new(None, index, batch(0, 20), "first", origin=Origin(origin.source, ["b"]))
    again = append_new(None, index, batch(0, 20), "first", origin=origin)
    assert (again.known_batch, len(source(tmp_path))) == (True, 2)
    assert open_index(index).spec.partitions == ("id",)


def test_an_index_of_something_else_than_asked_for_is_refused(lake: Path) -> None:
    for origin in (Origin(str(lake / "source"), ["a"]), Origin(str(lake / "other"), ["a", "b"])):
        with pytest.raises(shadow.SpecMismatch, match=r"index: it is of .*/source by a, b, found source"):
            append_new(None, str(lake / "index"), batch(0, 5), "x", origin=origin)
    with pytest.raises(shadow.UsageError, match="source_format: expected one of auto, parquet"):
        Origin(str(lake / "source"), ["a"], format="exe")


def test_an_append_that_others_always_come_before_gives_up(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(append_module, "ATTEMPTS", 2)
    monkeypatch.setattr(append_module, "commit_append", lambda *_: False)
    before = source(lake)
    with pytest.raises(ConcurrentCommit, match="index: 2 other appends came first; run it again"):
        append_new(None, str(lake / "index"), batch(80, 120), "nightly")
    assert source(lake) == before
    assert not list((lake / "source").rglob("_gnomon/*/*"))


def test_a_file_is_ended_when_it_is_large(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout_module, "FILE_BYTES", 1_000)
    result = append_new(None, str(lake / "index"), batch(100, 400), "large")  # one batch of Arrow
    assert result.appended == 300
    assert result.files == sum(one["files"] for one in result.partitions.values()) >= 6
    assert len(keys_of(lake)) == len(set(keys_of(lake))) == 401


def test_a_known_batch_stays_known_when_columns_of_the_source_became_wider(tmp_path: Path) -> None:
    write_source(tmp_path / "source", {"a.parquet": pa.table({"k": ["x"], "v": pa.array([1], pa.int32())})})
    index, frame = str(tmp_path / "index"), pa.table({"k": ["y", "z"], "v": pa.array([2, None], pa.int32())})
    build(None, str(tmp_path / "source"), index, ["k"])
    append_new(None, index, frame, "one")
    wide = frame.set_column(1, "v", frame["v"].cast(pa.int64()))
    assert append_new(None, index, wide, "one").known_batch
    other = pa.table({"k": ["y", "z"], "v": pa.array([None, 2], pa.int32())})
    with pytest.raises(shadow.UsageError, match="was appended by snapshot 2 with other rows"):
        append_new(None, index, other, "one")


def test_partition_values_that_cannot_be_told_apart_are_one_or_refused(tmp_path: Path) -> None:
    write_source(tmp_path / "source", {"dt=20260101/a.parquet": pa.table({"k": ["x"]})})
    index = str(tmp_path / "index")
    build(None, str(tmp_path / "source"), index, ["k"])
    day = pa.table({"k": ["new"], "dt": [dt.date(2026, 1, 1)]})
    with pytest.raises(shadow.UsageError, match=r"dt is date32.*, the source has folders like dt=20260101"):
        append_new(None, index, day, "day", "partition")
    nulls = pa.table({"k": ["n"] * 3, "dt": ["__HIVE_DEFAULT_PARTITION__", None, ""]})
    assert append_new(None, index, nulls, "nulls", "partition").appended == 1
    for name, says in (("d" * 300, "File name too long"), ("a\0b", "a NUL is in its name")):
        odd = pa.table({"k": [says], "dt": [name]})
        with pytest.raises(shadow.ShadowError, match=says):
            append_new(None, index, odd, says)
    assert append_new(None, index, pa.table({"k": ["ok"], "dt": ["x"]}), "ok").appended == 1


def test_copies_are_ordered_by_the_batchs_own_columns(lake: Path) -> None:
    copies = [(9, "new", "key", "nine"), (10, "new", "key", "ten")]
    frame = table(copies)
    assert append_new(None, str(lake / "index"), frame, "x", order_by=["id desc"]).appended == 1
    assert open_index(str(lake / "index")).fetch(("new", "key"))[0]["payload"] == "ten"
