"""jobs/dedup/local_rows.py: batches of this process. test_append.py has the rules of an append."""

import datetime as dt
import json
import sys
from dataclasses import replace
from pathlib import Path
from shutil import copytree
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gnomon.jobs.build import build
from gnomon.jobs.dedup import AppendRequest, DedupResult, Origin, append_new, append_rows, as_rows, read_batch
from gnomon.jobs.dedup import append as append_module
from gnomon.shadow import SpecMismatch, UsageError, open_index
from gnomon.shadow.errors import FilesVanished, IndexNotFound, SourceError, StalePointer
from gnomon.shadow.lookup import batch as batch_module
from gnomon.shadow.storage import storage_at
from gnomon.shadow.verify import verify

local_rows = sys.modules[as_rows.__module__]


def rows(begin: int, end: int, of: str = "new") -> pa.Table:
    return pa.table({"id": pa.array(range(begin, end), pa.int64()), "v": [f"{of} {i}" for i in range(begin, end)]})


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """A source with the ids 0 to 99 in two partitions, and its index."""
    for part in range(2):
        (tmp_path / f"source/dt={part}").mkdir(parents=True)
        pq.write_table(rows(50 * part, 50 * part + 50, "old"), tmp_path / f"source/dt={part}/a.parquet")
    build(None, tmp_path / "source", tmp_path / "index", ["id"], buckets=3)
    return tmp_path


def with_part(table: pa.Table, part: str | None = "1") -> pa.Table:
    return table.append_column("dt", pa.array([part] * table.num_rows, pa.string()))


def append(lake: Path, table: pa.Table, batch: str = "b", **options: Any) -> DedupResult:
    return append_new(None, lake / "index", with_part(table), batch, **options)


def ids(lake: Path) -> list[int]:
    """The ids of the source, as a scan finds them; the index has the same."""
    found: list[int] = pq.read_table(lake / "source", columns=["id"])["id"].to_pylist()
    answers = open_index(lake / "index").fetch_many(range(1000))
    assert sorted(found) == [row["id"] for answer in answers for row in answer]
    assert verify(storage_at(lake / "index"), None).is_sound
    return sorted(found)


def test_only_new_keys_are_appended_and_a_known_batch_is_not_appended_again(lake: Path) -> None:
    done = append(lake, rows(80, 120))
    assert (done.rows_read, done.already_loaded, done.appended, done.known_batch) == (40, 20, 20, False)
    assert ids(lake) == list(range(120))
    assert append(lake, rows(80, 120)).known_batch
    assert append(lake, rows(80, 120), "another").appended == 0
    with pytest.raises(UsageError, match="batch 'b' was appended by snapshot 2 with other rows"):
        append(lake, rows(80, 121))
    assert ids(lake) == list(range(120))


@pytest.mark.parametrize("memory", [1 << 14, 1 << 30])
def test_a_batch_beyond_the_memory_is_appended_alike(lake: Path, memory: int) -> None:
    """A few KB hold a part of the 3,000 rows of 40 partitions."""
    table = pa.concat_tables([rows(0, 1500), rows(500, 1000, "copy"), rows(0, 1000, "again")])
    parts = pa.array([str(i % 40) for i in range(3000)])
    batch = as_rows(table.append_column("dt", parts), memory)
    done = append_rows(batch, lake / "index", AppendRequest("b", order_by=["v desc"]))
    assert (done.rows_read, done.already_loaded, done.appended, done.duplicates_in_batch) == (3000, 100, 1400, 1500)
    found = {row["id"]: row["v"] for answer in open_index(lake / "index").fetch_many(range(1500)) for row in answer}
    assert [found[i].partition(" ")[0] for i in (5, 300, 700, 1200)] == ["old", "new", "new", "new"]
    assert len(found) == 1500


@pytest.mark.parametrize("order", ["hash", "range"])
def test_a_batch_of_many_portions_reads_each_index_file_about_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, order: str
) -> None:
    """A portion of keys has few buckets. At its ends a file may be read again."""
    (tmp_path / "source").mkdir()
    pq.write_table(rows(0, 20_000, "old"), tmp_path / "source/a.parquet")
    done = []
    for portion in (1 << 20, 1000):
        monkeypatch.setattr(local_rows, "CHUNK_ROWS", portion)
        index = tmp_path / f"index-{portion}"
        build(None, tmp_path / "source", index, ["id"], buckets=8, order=order)
        batch = rows(10_000, 20_000)
        done.append(append_new(None, index, pa.concat_tables([batch, batch]), f"{portion}"))
        assert (done[-1].already_loaded, done[-1].duplicates_in_batch, done[-1].appended) == (10_000, 10_000, 0)
    assert done[1].index_bytes_read < 3 * done[0].index_bytes_read  # 11 times as many if each portion read all files


def test_an_append_writes_the_same_rows_and_counts_on_one_core_and_on_two(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_module, "WORTH_KEYS", 1)
    (tmp_path / "start").mkdir()
    pq.write_table(rows(0, 5000, "old"), tmp_path / "start/a.parquet")
    appends = []
    for count in (1, 2):
        monkeypatch.setattr(local_rows, "cores", lambda count=count: count)
        source, index = tmp_path / f"source-{count}", tmp_path / f"index-{count}"
        copytree(tmp_path / "start", source)
        build(None, source, index, ["id"], buckets=5)
        batch = pa.concat_tables([rows(2500, 7500), rows(4000, 5500, "copy")])
        done = append_new(None, index, batch, "b", report=tmp_path / f"report-{count}.parquet")
        assert (done.already_loaded, done.duplicates_in_batch, done.appended) == (2500, 1500, 2500)
        written = [one.read_bytes() for one in source.glob("part-*")]
        report = pq.read_table(tmp_path / f"report-{count}.parquet").to_pylist()
        counts = replace(done, seconds=0, stage_seconds={})
        appends.append((written, [{**row, "data_filename": ""} for row in report], counts))
    assert appends[1] == appends[0]


@pytest.mark.parametrize("chunk", [100, 1 << 20])
def test_the_first_of_more_copies_than_the_memory_holds_is_kept(
    lake: Path, monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    """They come from the temporary files in several pieces."""
    monkeypatch.setattr(local_rows, "CHUNK_ROWS", chunk)
    copies = [rows(200, 203, f"{4999 - i:04d}") for i in range(5000)]
    table = with_part(pa.concat_tables(copies).combine_chunks())
    many = pa.RecordBatchReader.from_batches(table.schema, table.to_batches(max_chunksize=500))
    done = append_rows(as_rows(many, 1 << 16), lake / "index", AppendRequest("b", order_by=["v"]))
    assert (done.appended, done.duplicates_in_batch) == (3, 14_997)
    found = open_index(lake / "index").fetch_many([200, 201, 202])
    assert [[row["v"] for row in answer] for answer in found] == [[f"0000 {i}"] for i in (200, 201, 202)]


def test_the_first_copy_in_the_order_asked_for_is_kept(lake: Path) -> None:
    table = pa.table({"id": [200, 200, 200, 201], "v": ["b", None, "c", None]})
    assert append(lake, table, order_by=["v desc"]).appended == 2
    assert open_index(lake / "index").fetch(200, ["v"]) == [{"v": "c"}]
    assert append(lake, pa.table({"id": [202, 202], "v": [None, "x"]}), "c", order_by=["v"]).appended == 1
    assert open_index(lake / "index").fetch(202, ["v"]) == [{"v": "x"}]
    for order, why in (("w", "the batch has no column w"), ("v, id", "the batch has no column")):
        with pytest.raises(UsageError, match=f"order_by: {why}"):
            append(lake, table, "d", order_by=[order])


@pytest.mark.parametrize(("order", "kept"), [("f", "one"), ("f desc", "nan")])
def test_nan_is_the_greatest_number_and_null_the_last(tmp_path: Path, order: str, kept: str) -> None:
    table = pa.table({"id": [1] * 3, "v": ["null", "nan", "one"], "f": [None, float("nan"), 1.0]})
    (tmp_path / "source").mkdir()
    append_new(None, tmp_path / "index", table, "b", order_by=[order], origin=Origin(tmp_path / "source", ["id"]))
    assert open_index(tmp_path / "index").fetch(1, ["v"]) == [{"v": kept}]


@pytest.mark.parametrize(("null_keys", "appended"), [("dedup", 1), ("keep", 2), ("reject", 0)])
def test_rows_with_a_null_in_their_key(lake: Path, null_keys: str, appended: int) -> None:
    table = pa.table({"id": pa.array([None, None], pa.int64()), "v": ["a", "b"]})
    done = append(lake, table, null_keys=null_keys)
    assert (done.appended, done.null_keys, done.rejected) == (appended, 2, 2 if null_keys == "reject" else 0)
    again = append(lake, table, "again", null_keys=null_keys)
    assert again.appended == (2 if null_keys == "keep" else 0)


def test_within_a_partition_only_its_own_keys_count(lake: Path) -> None:
    table = pa.table({"id": [10, 60, 60], "v": ["a", "b", "c"], "dt": pa.array(["1", "1", None])})
    done = append_new(None, lake / "index", table, "b", "partition")
    assert (done.appended, done.already_loaded) == (2, 1)
    assert done.partitions.keys() == {"dt=1", "dt=__HIVE_DEFAULT_PARTITION__"}
    assert [row["dt"] for row in open_index(lake / "index").fetch(60)] == ["1", None]


def test_a_report_has_the_rows_that_were_not_appended_with_their_pointers(lake: Path) -> None:
    done = append(lake, pa.concat_tables([rows(95, 102), rows(101, 102)]), report=lake / "report.parquet")
    table = pq.read_table(lake / "report.parquet").to_pylist()
    assert done.reported == len(table) == 6
    reasons = sorted((row["id"], row["dedup_reason"], row["data_filename"][:5]) for row in table)
    assert reasons[0] == (95, "already present", "dt=1/")
    assert reasons[-1] == (101, "duplicate in batch", "dt=1/")


def test_files_of_each_kind_are_batches(lake: Path) -> None:
    (lake / "b.jsonl").write_text("".join(json.dumps({"id": i, "v": "j", "dt": "5"}) + "\n" for i in range(98, 102)))
    (lake / "b.csv").write_text("dt,v,id\n" + "".join(f"5,c,{i}\n" for i in range(100, 104)))
    (lake / "b/dt=5").mkdir(parents=True)
    pq.write_table(rows(102, 106).cast(pa.schema([("id", pa.int32()), ("v", pa.string())])), lake / "b/dt=5/x.parquet")
    for name, appended in (("b.jsonl", 2), ("b.csv", 2), ("b", 2)):
        index = open_index(lake / "index")
        assert append_new(None, lake / "index", read_batch(None, lake / name, index), name).appended == appended
    assert ids(lake) == list(range(106))


@pytest.mark.parametrize(
    ("table", "why"),
    [
        ({"id": [1], "v": ["a"]}, "dt is missing"),
        ({"id": ["1"], "v": ["a"], "dt": ["1"]}, "id is string, expected int64"),
        ({"id": [1.0], "v": ["a"], "dt": ["1"]}, "id is double, expected int64"),
        ({"id": [1], "v": ["a"], "dt": ["1"], "w": [1]}, "w is not a column of the source"),
        ({"id": [1], "v": ["a"], "dt": [1.5]}, "the partition column dt is double; expected text"),
        ({"id": [1], "v": ["a"], "dt": [dt.date(2026, 1, 1)]}, "the source has folders like dt=[01]"),
    ],
)
def test_other_columns_are_refused_before_anything_is_written(lake: Path, table: Any, why: str) -> None:
    before = sorted((lake / "source").rglob("*"))
    with pytest.raises(UsageError, match=why):
        append_new(None, lake / "index", pa.table(table), "b")
    assert sorted((lake / "source").rglob("*")) == before


def test_a_session_and_another_object_are_refused(lake: Path) -> None:
    with pytest.raises(UsageError, match="a session of Spark was given"):
        append_new("session", lake / "index", rows(0, 1), "b")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"batch: expected a table of Arrow, pandas or Polars, .*, found list"):
        append_new(None, lake / "index", [1], "b")  # type: ignore[arg-type]


def test_vanished_files_are_refused_and_dropped_when_asked(lake: Path) -> None:
    (lake / "source/dt=0/a.parquet").unlink()
    with pytest.raises(FilesVanished):
        append(lake, rows(0, 60))
    assert append(lake, rows(0, 60), accept_vanished=True).appended == 50
    assert ids(lake) == list(range(100))


def test_a_file_of_the_batch_that_changes_between_the_readings_is_an_error(
    lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pq.write_table(with_part(rows(100, 110)), lake / "batch.parquet")
    real = local_rows._Work.outcomes

    def changing(self: Any) -> Any:
        found = real(self)
        pq.write_table(with_part(rows(100, 112)), lake / "batch.parquet")
        return found

    monkeypatch.setattr(local_rows._Work, "outcomes", changing)
    with pytest.raises(StalePointer, match=r"batch\.parquet: the file changed while the batch was read"):
        append_new(None, lake / "index", read_batch(None, lake / "batch.parquet", open_index(lake / "index")), "b")
    assert ids(lake) == list(range(100))


def test_a_damaged_batch_appends_nothing(lake: Path) -> None:
    pq.write_table(with_part(rows(100, 5000)), lake / "batch.parquet", compression="snappy", use_dictionary=False)
    data = bytearray((lake / "batch.parquet").read_bytes())
    data[100:2000] = b"\xff" * 1900
    (lake / "batch.parquet").write_bytes(data)
    with pytest.raises(SourceError, match=r"batch\.parquet"):
        append_new(None, lake / "index", read_batch(None, lake / "batch.parquet", open_index(lake / "index")), "b")
    assert ids(lake) == list(range(100))


def test_an_append_may_make_the_source_and_its_index(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    origin = Origin(tmp_path / "source", ["id"], partition_by=["dt"])
    with pytest.raises(IndexNotFound):
        append(tmp_path, rows(0, 5))
    assert append(tmp_path, rows(0, 5), origin=origin).appended == 5
    assert append(tmp_path, rows(3, 8), "c", origin=origin).appended == 3
    assert ids(tmp_path) == list(range(8))
    with pytest.raises(SpecMismatch):
        append(tmp_path, rows(3, 8), "d", origin=Origin(tmp_path / "source", ["v"]))


def test_an_append_to_a_delta_table_is_a_commit_of_it(tmp_path: Path) -> None:
    deltalake = pytest.importorskip("deltalake")
    table = rows(0, 50).append_column("n", pa.array([i % 3 for i in range(50)], pa.int32()))
    deltalake.write_deltalake(tmp_path / "table", table, partition_by=["n"])
    build(None, f"delta:{tmp_path}/table", tmp_path / "index", ["id"])
    batch = rows(40, 60).append_column("n", pa.array([i % 4 for i in range(20)], pa.int32()))
    done = append_new(None, tmp_path / "index", batch, "b")
    assert (done.appended, done.already_loaded) == (10, 10)
    found = deltalake.DeltaTable(tmp_path / "table").to_pyarrow_table()
    assert sorted(found["id"].to_pylist()) == list(range(60))
    assert open_index(tmp_path / "index").fetch(51) == [{"id": 51, "v": "new 51", "n": 11 % 4}]
    text = rows(70, 71).append_column("n", pa.array(["x"]))
    with pytest.raises(UsageError, match="batch: partition column n: expected int, found 'x'"):
        append_new(None, tmp_path / "index", text, "c")


OF_EACH_TYPE = {
    "u64": pa.array([1, None], pa.uint64()),
    "half": pa.array([1.5, None], pa.float16()),
    "uuid": pa.ExtensionArray.from_storage(pa.uuid(), pa.array([bytes(range(16)), None], pa.binary(16))),
    "fixed": pa.array([b"ab", None], pa.binary(2)),
    "time": pa.array([1, None], pa.int64()).cast(pa.time64("ns")),
    "nanos": pa.array([1, None], pa.timestamp("ns")),
    "decimal": pa.array([1, None], pa.decimal256(50, 0)),
    "map": pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int64())),
    "record": pa.array([{"x": [{"y": "z"}]}, None]),
    "nothing": pa.nulls(2),
}


@pytest.mark.parametrize("from_file", [True, False])
def test_values_of_types_that_spark_lacks_are_appended_as_they_are(tmp_path: Path, from_file: bool) -> None:
    (tmp_path / "source").mkdir()
    pq.write_table(pa.table({"id": [1, 2], **OF_EACH_TYPE}), tmp_path / "source/a.parquet")
    build(None, tmp_path / "source", tmp_path / "index", ["id"])
    table = pa.table({"id": [2, 3], **{name: array.take(pa.array([1, 0])) for name, array in OF_EACH_TYPE.items()}})
    pq.write_table(table, tmp_path / "batch.parquet")
    batch = read_batch(None, tmp_path / "batch.parquet", open_index(tmp_path / "index")) if from_file else table
    assert append_new(None, tmp_path / "index", batch, "b").appended == 1
    assert append_new(None, tmp_path / "index", batch, "b").known_batch
    first, second = (
        open_index(tmp_path / "index").table_many([key]).drop_columns(["id", "key_number"]) for key in (1, 3)
    )
    assert second.equals(first)


def test_digits_that_the_source_cannot_hold_are_refused(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    pq.write_table(pa.table({"id": [1], "at": pa.array([1], pa.timestamp("us"))}), tmp_path / "source/a.parquet")
    build(None, tmp_path / "source", tmp_path / "index", ["id"])
    fits, lost = (pa.table({"id": [n], "at": pa.array([n], pa.timestamp("ns"))}) for n in (2000, 2001))
    assert append_new(None, tmp_path / "index", fits, "fits").appended == 1
    with pytest.raises(UsageError, match=r"batch: column at: .*; nothing was appended; expected timestamp\[us\]"):
        append_new(None, tmp_path / "index", lost, "lost")


def test_an_append_whose_newest_source_file_vanishes_ends_with_one_line(
    lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = append_module.bring_up_to_date
    newest = lake / "source/dt=1/a.parquet"

    def vanishing(*arguments: Any) -> Any:
        log = real(*arguments)
        newest.unlink()
        return log

    monkeypatch.setattr(append_module, "bring_up_to_date", vanishing)
    with pytest.raises((StalePointer, FilesVanished)) as caught:
        append(lake, rows(80, 120))
    assert str(newest) in str(caught.value)


def test_a_batch_with_many_ragged_records_is_refused_before_a_row_is_appended(lake: Path) -> None:
    (lake / "b.csv").write_text("id,v,dt\n100,a,5\n101,a\n")
    with pytest.raises(
        UsageError, match=r"b\.csv: 1 of its 2 records have fewer or more fields than the header; nothing"
    ):
        read_and_append(lake, {})
    assert ids(lake) == list(range(100))
    assert read_and_append(lake, {"ragged": "true"}).appended == 2


def read_and_append(lake: Path, options: dict[str, str]) -> DedupResult:
    batch = read_batch(None, lake / "b.csv", lake / "index", options=options)
    return append_new(None, lake / "index", batch, "b")
