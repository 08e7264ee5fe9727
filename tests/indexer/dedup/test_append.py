"""Appends: each new key once, in the source's own files, through crashes and races."""

import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from gnomon import shadow
from gnomon.indexer import DedupResult, Origin, append_new, build, filter_new
from gnomon.indexer.dedup import spark_rows
from gnomon.jobs.dedup import STATUS, TASK_BITS
from gnomon.jobs.dedup import append as append_module
from gnomon.jobs.dedup import finish as finish_module
from gnomon.jobs.dedup import layout as layout_module
from gnomon.shadow import open_index
from gnomon.shadow.commit.append_log import Append
from gnomon.shadow.errors import ConcurrentCommit
from gnomon.shadow.maintenance.compaction import rebucket
from gnomon.shadow.storage import Storage, storage_at
from gnomon.shadow.verify.snapshot import verify
from tests.shadow.make_index import write_source

pytestmark = pytest.mark.spark

SCHEMA = "id int, a string, b string, payload string"
Rows = list[tuple[object, ...]]


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> Path:
    """Rows 0..99 in two partitions, keys (a, b), one key of nulls; indexed."""
    rows = [(i % 2, f"a{i // 10}", f"b{i % 10}", f"old {i}") for i in range(100)] + [(0, None, None, "old null")]
    frame = spark.createDataFrame(rows, SCHEMA)
    frame.coalesce(1).write.partitionBy("id").parquet(str(tmp_path / "source"))
    build(spark, str(tmp_path / "source"), str(tmp_path / "index"), ["a", "b"], buckets=2)
    return tmp_path


def batch(spark: SparkSession, begin: int, end: int, extra: Rows | None = None) -> DataFrame:
    rows: Rows = [(i % 2, f"a{i // 10}", f"b{i % 10}", f"new {i}") for i in range(begin, end)]
    return spark.createDataFrame(rows + (extra or []), SCHEMA)


def source(lake: Path) -> Rows:
    """The rows that a reader of the source's files sees."""
    table = pq.read_table(lake / "source", partitioning="hive")
    return sorted((tuple(row.values()) for row in table.select(["id", "a", "b", "payload"]).to_pylist()), key=str)


def keys_of(lake: Path) -> list[tuple[object, object]]:
    return [(row[1], row[2]) for row in source(lake)]


def test_an_append_appends_each_key_once_and_indexes_it(spark: SparkSession, lake: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in (lake / "source").rglob("*.parquet")}
    extra: Rows = [(0, "a11", "b0", "twice"), (1, None, None, "null"), (None, "z", "z", "no partition")]
    result = append_new(spark, str(lake / "index"), batch(spark, 80, 120, extra), "b 1/x")
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


def test_a_batch_is_loaded_once_and_known_by_its_rows(spark: SparkSession, lake: Path) -> None:
    first = append_new(spark, str(lake / "index"), batch(spark, 80, 120), "nightly")
    rows = source(lake)
    again = append_new(spark, str(lake / "index"), batch(spark, 80, 120).orderBy("payload"), "nightly")
    assert (again.known_batch, again.appended, again.snapshot) == (True, 0, first.snapshot)
    other = append_new(spark, str(lake / "index"), batch(spark, 80, 120), "nightly, delivered again")
    assert (other.known_batch, other.appended, other.already_loaded) == (False, 0, 40)
    message = "batch 'nightly' was appended by snapshot 2 with other rows: expected 40 of digest .*, found 28-"
    with pytest.raises(shadow.UsageError, match=message):
        append_new(spark, str(lake / "index"), batch(spark, 120, 160), "nightly")
    assert source(lake) == rows


@pytest.mark.parametrize(
    ("dies_in", "meanwhile"),
    [
        ("stage", "nothing"),
        ("commit_append", "nothing"),
        ("commit_append", "a nightly build"),
        ("move_files", "nothing"),
        ("move_files", "a nightly build"),
        ("mark_appended", "nothing"),
        ("settle", "nothing"),
    ],
)
def test_an_append_that_died_is_finished_by_the_next(
    spark: SparkSession, lake: Path, monkeypatch: pytest.MonkeyPatch, dies_in: str, meanwhile: str
) -> None:
    """It died after each of its steps."""
    module = next(one for one in (append_module, finish_module, spark_rows) if hasattr(one, dies_in))
    real = getattr(module, dies_in)

    def dying(*arguments: object, **named: object) -> object:
        real(*arguments, **named)
        raise KeyboardInterrupt

    monkeypatch.setattr(module, dies_in, dying)
    with pytest.raises(KeyboardInterrupt):
        append_new(spark, str(lake / "index"), batch(spark, 80, 120), "nightly", report=str(lake / "lost"))
    monkeypatch.undo()
    if meanwhile == "a nightly build":
        build(spark, str(lake / "source"), str(lake / "index"), ["a", "b"])
    again = append_new(spark, str(lake / "index"), batch(spark, 80, 120), "nightly", report=str(lake / "report"))
    assert (again.rows_read, again.already_loaded, again.appended, again.reported, again.known_batch) == (
        (0, 0, 0, None, True) if dies_in == "settle" else (40, 20, 20, 20, False)
    )
    assert dies_in == "settle" or pq.read_table(lake / "report").num_rows == 20
    assert len(keys_of(lake)) == len(set(keys_of(lake))) == 121
    assert open_index(str(lake / "index")).view.snapshot.rows == 121
    assert append_new(spark, str(lake / "index"), batch(spark, 80, 120), "nightly").known_batch
    assert not (lake / "source/_gnomon").exists()


def test_of_racing_appends_with_keys_in_common_each_key_is_appended_once(
    spark: SparkSession, lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both look their rows up before one of them commits."""
    real, meet, calls = append_module.commit_append, threading.Barrier(2), count(1)

    def together(storage: Storage, append: Append) -> bool:
        if next(calls) <= 2:
            meet.wait(timeout=120)
        return real(storage, append)

    monkeypatch.setattr(append_module, "commit_append", together)

    def append(begin: int) -> DedupResult:
        return append_new(spark, str(lake / "index"), batch(spark, begin, begin + 40), f"from {begin}")

    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(append, [100, 120]))
    assert sorted(result.appended for result in results) == [20, 40]
    assert len(keys_of(lake)) == len(set(keys_of(lake))) == 161
    assert open_index(str(lake / "index")).view.snapshot.rows == 161
    assert not verify(storage_at(str(lake / "index"))).faults
    assert not (lake / "source/_gnomon").exists()


def test_null_keys_are_kept_rejected_or_taken_for_equal(spark: SparkSession, lake: Path) -> None:
    nulls: Rows = [(0, None, "b", "one"), (0, None, "b", "two"), (1, None, None, "known"), (1, "new", "b", "new")]
    frame = spark.createDataFrame(nulls, SCHEMA)
    rejected = append_new(spark, str(lake / "index"), frame, "rejected", null_keys="reject")
    assert (rejected.null_keys, rejected.rejected, rejected.appended) == (3, 3, 1)
    equal = append_new(spark, str(lake / "index"), frame, "equal")
    assert (equal.null_keys, equal.duplicates_in_batch, equal.already_loaded, equal.appended) == (3, 1, 2, 1)
    kept = append_new(spark, str(lake / "index"), frame, "kept", null_keys="keep")
    assert (kept.null_keys, kept.already_loaded, kept.appended) == (3, 1, 3)
    assert append_new(spark, str(lake / "index"), frame, "kept", null_keys="keep").known_batch
    assert keys_of(lake).count((None, "b")) == 3


def test_null_keys_of_a_batch_are_known_by_its_files_where_the_index_was_lost(spark: SparkSession, lake: Path) -> None:
    frame = spark.createDataFrame([(0, None, "b", "one"), (1, None, "b", "two"), (1, "x", "y", "z")], SCHEMA)
    append_new(spark, str(lake / "index"), frame, "kept", null_keys="keep")
    append_new(spark, str(lake / "index"), frame, "equal")
    rows, lost = source(lake), str(lake / "another index")
    build(spark, str(lake / "source"), lost, ["a", "b"])
    assert append_new(spark, lost, frame.limit(0), "equal", null_keys="keep").appended == 0
    again = append_new(spark, lost, frame, "kept", null_keys="keep")
    assert (again.already_loaded, again.appended) == (3, 0)
    assert source(lake) == rows
    next((lake / "source").rglob("part-00000-of-00002-kept-*")).unlink()
    build(spark, str(lake / "source"), str(lake / "third"), ["a", "b"])
    with pytest.raises(
        shadow.StalePointer, match="1 of 2 files of an earlier append of batch 'kept' are in the source"
    ):
        append_new(spark, str(lake / "third"), frame, "kept", null_keys="keep")


def test_the_report_leads_from_each_row_not_appended_to_the_one_that_was_there_first(
    spark: SparkSession, lake: Path
) -> None:
    extra: Rows = [(0, "a10", "b0", "twice"), (0, "a10", "b0", "thrice"), (1, None, "b", "null")]
    report = lake / "report.parquet"
    frame = batch(spark, 98, 102, extra)
    result = append_new(
        *(spark, str(lake / "index"), frame, "nightly"),
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
        "new 98": ("already loaded", "old 98"),
        "new 99": ("already loaded", "old 99"),
        "thrice": ("duplicate in batch", "twice"),
        "new 100": ("duplicate in batch", "twice"),
        "null": ("null in key", None),
    }
    assert not list((lake / "index/_shadow/rejected").glob("*")), "what tasks rejected is removed"
    with pytest.raises(shadow.UsageError, match=r"report\.parquet: the file exists"):
        append_new(spark, str(lake / "index"), frame, "other", report=str(report))


def test_an_index_that_is_missing_is_built_first_and_stale_one_brought_up_to_date(
    spark: SparkSession, lake: Path
) -> None:
    origin, index = Origin(str(lake / "source"), ["a", "b"]), str(lake / "fresh")
    with pytest.raises(shadow.IndexNotFound, match="gnomon dedup with --source and --key"):
        append_new(spark, index, batch(spark, 90, 110), "first")
    first = append_new(spark, index, batch(spark, 90, 110), "first", origin=origin)
    assert (first.already_loaded, first.appended) == (10, 10)
    pq.write_table(pa.table({"a": ["late"], "b": ["file"], "payload": ["there"]}), lake / "source/id=1/late.parquet")
    late = append_new(spark, index, spark.createDataFrame([(0, "late", "file", "again")], SCHEMA), "late")
    assert (late.already_loaded, late.appended) == (1, 0)


@pytest.mark.parametrize("partition_by", [[], ["id"]])
def test_the_first_append_into_an_empty_source_makes_it_and_its_index(
    spark: SparkSession, tmp_path: Path, partition_by: list[str]
) -> None:
    origin = Origin(str(tmp_path / "source"), ["a", "b"], partition_by=partition_by)
    first = append_new(
        spark, str(tmp_path / "index"), batch(spark, 0, 20, [(1, "a0", "b1", "twice")]), "1", origin=origin
    )
    assert (first.duplicates_in_batch, first.already_loaded, first.appended) == (1, 0, 20)
    assert open_index(str(tmp_path / "index")).spec.partitions == tuple(partition_by)
    again = append_new(spark, str(tmp_path / "index"), batch(spark, 10, 30), "2")
    assert (again.already_loaded, again.appended) == (10, 10)
    assert len(set(keys_of(tmp_path))) == len(keys_of(tmp_path)) == 30


def test_a_damaged_index_is_refused_and_indexed_again_when_asked(spark: SparkSession, lake: Path) -> None:
    damaged = next((lake / "index").rglob("id=0/*.avro"))
    data = bytearray(damaged.read_bytes())
    data[len(data) // 2] ^= 0xFF
    damaged.write_bytes(data)
    rows = source(lake)
    with pytest.raises((shadow.DamagedIndexFile, shadow.DamagedMetadata)):
        append_new(spark, str(lake / "index"), batch(spark, 0, 110), "nightly")
    assert source(lake) == rows
    result = append_new(spark, str(lake / "index"), batch(spark, 0, 110), "nightly", full=True)
    assert (result.already_loaded, result.appended) == (100, 10)


def test_what_does_not_fit_is_refused_before_anything_is_written(spark: SparkSession, lake: Path) -> None:
    before = sorted((lake / "source").rglob("*"))
    frame = spark.createDataFrame([(1, "a", 7, "x", 1.5)], "id int, a string, b int, payload string, more double")
    with pytest.raises(shadow.UsageError) as caught:
        append_new(spark, str(lake / "index"), frame, "x")
    assert "more is not a column of the source; b is int, expected string; nothing was written" in str(caught.value)
    with pytest.raises(shadow.UsageError, match="payload is missing"):
        append_new(spark, str(lake / "index"), batch(spark, 0, 1).drop("payload"), "x")
    with pytest.raises(shadow.UsageError, match="order_by: the batch has no column when"):
        append_new(spark, str(lake / "index"), batch(spark, 0, 1), "x", order_by=["when desc"])
    with pytest.raises(shadow.UsageError, match="scope: expected one of"):
        append_new(spark, str(lake / "index"), batch(spark, 0, 1), "x", scope="all")
    assert sorted((lake / "source").rglob("*")) == before


def test_a_source_of_one_file_cannot_be_appended_to(spark: SparkSession, tmp_path: Path) -> None:
    pq.write_table(pa.table({"k": [1]}), tmp_path / "one.parquet")
    build(spark, str(tmp_path / "one.parquet"), str(tmp_path / "index"), ["k"])
    with pytest.raises(shadow.UsageError, match="one file cannot be appended to"):
        append_new(spark, str(tmp_path / "index"), spark.range(3).withColumnRenamed("id", "k"), "b")


def test_timestamps_are_written_as_the_source_has_them(spark: SparkSession, tmp_path: Path) -> None:
    for kind in ("INT96", "TIMESTAMP_MICROS"):
        root = tmp_path / kind
        spark.conf.set("spark.sql.parquet.outputTimestampType", kind)
        rows = spark.range(10).select(F.col("id").alias("k"), F.timestamp_seconds(F.col("id")).alias("ts"))
        rows.coalesce(1).write.parquet(str(root / "source"))
        spark.conf.unset("spark.sql.parquet.outputTimestampType")
        build(spark, str(root / "source"), str(root / "index"), ["k"])
        more = spark.range(5, 15).select(F.col("id").alias("k"), F.timestamp_seconds(F.col("id")).alias("ts"))
        assert append_new(spark, str(root / "index"), more, "b").appended == 5
        kinds = {
            str(pq.ParquetFile(path).schema.column(1).physical_type) for path in (root / "source").glob("*.parquet")
        }
        assert kinds == {"INT96" if kind == "INT96" else "INT64"}
        assert len(open_index(str(root / "index")).view.snapshot.columns) == 2


@pytest.mark.parametrize("zone", ["America/New_York", "UTC"])
def test_instants_as_keys_are_found_again_whatever_the_time_zone(
    spark: SparkSession, tmp_path: Path, zone: str
) -> None:
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        rows = spark.range(1_772_950_000, 1_772_970_000, 997).select(F.timestamp_seconds(F.col("id")).alias("ts"))
        rows.coalesce(1).write.parquet(str(tmp_path / "source"))  # INT96: Spark's default
        build(spark, str(tmp_path / "source"), str(tmp_path / "index"), ["ts"], buckets=3)
        assert filter_new(spark, str(tmp_path / "index"), rows).count() == 0
        more = rows.union(rows.select(F.timestamp_micros(F.unix_micros("ts") + 1).alias("ts")))
        assert append_new(spark, str(tmp_path / "index"), more, "b").appended == rows.count()
        assert spark.read.parquet(str(tmp_path / "source")).distinct().count() == 2 * rows.count()
        merged = spark.read.option("mergeSchema", "true").parquet(str(tmp_path / "source"))
        assert [field.dataType.simpleString() for field in merged.schema] == ["timestamp"]
    finally:
        spark.conf.set("spark.sql.session.timeZone", before or "UTC")


def test_partition_values_are_the_text_of_their_folders(spark: SparkSession, tmp_path: Path) -> None:
    for month in ("01", "__HIVE_DEFAULT_PARTITION__"):
        (tmp_path / f"source/month={month}").mkdir(parents=True)
        pq.write_table(pa.table({"k": [f"in {month}"]}), tmp_path / f"source/month={month}/p.parquet")
    location = str(tmp_path / "index")
    build(spark, str(tmp_path / "source"), location, ["k"])
    number = spark.createDataFrame([("new", 1)], "k string, month int")
    with pytest.raises(shadow.UsageError, match="month is int, the source has folders like month=01"):
        append_new(spark, location, number, "numbers", "partition")
    empty = spark.createDataFrame(
        [("in __HIVE_DEFAULT_PARTITION__", ""), ("new", ""), ("new", "01")], "k string, month string"
    )
    assert append_new(spark, location, empty, "first", "partition").appended == 2
    assert append_new(spark, location, empty, "second", "partition").appended == 0
    assert sorted(path.name for path in (tmp_path / "source").glob("month=*")) == [
        "month=01",
        "month=__HIVE_DEFAULT_PARTITION__",
    ]


@pytest.mark.parametrize("layout", ["re-sharded", "flat"])
def test_an_index_of_another_shape_is_loaded_into_alike(spark: SparkSession, lake: Path, layout: str) -> None:
    location = str(lake / "index")
    if layout == "flat":
        location = str(lake / "flat")
        build(spark, str(lake / "source"), location, ["a", "b"], flat=True)
    else:
        rebucket(storage_at(location), 7)
    result = append_new(spark, location, batch(spark, 80, 120), "nightly")
    assert (result.already_loaded, result.appended) == (20, 20)
    index = open_index(location)
    assert index.fetch(("a11", "b7"))[0]["payload"] == "new 117"
    assert index.spec.buckets == (1 if layout == "flat" else 7)
    assert index.coverage().is_empty
    assert verify(storage_at(location)).faults == []
    assert append_new(spark, location, batch(spark, 80, 125), "again").appended == 5


def test_a_batch_without_rows_is_loaded_and_makes_no_source(spark: SparkSession, lake: Path) -> None:
    none = batch(spark, 0, 0)
    empty = append_new(spark, str(lake / "index"), none, "none")
    assert (empty.rows_read, empty.files, empty.known_batch) == (0, 0, False)
    assert append_new(spark, str(lake / "index"), none, "none").known_batch
    origin = Origin(str(lake / "fresh"), ["a", "b"])
    with pytest.raises(shadow.UsageError, match="fresh: it has no files, and the batch has no row to append"):
        append_new(spark, str(lake / "fresh index"), none, "none", origin=origin)
    assert append_new(spark, str(lake / "fresh index"), batch(spark, 0, 5), "first", origin=origin).appended == 5


def test_a_first_append_that_died_is_finished_as_it_was_begun(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index, origin = str(tmp_path / "index"), Origin(str(tmp_path / "source"), ["a"], partition_by=["id"])
    real = append_module.commit_append

    def dying(storage: Storage, append: Append) -> bool:
        real(storage, append)
        raise KeyboardInterrupt

    monkeypatch.setattr(append_module, "commit_append", dying)
    with pytest.raises(KeyboardInterrupt):
        append_new(spark, index, batch(spark, 0, 20), "first", origin=origin)
    monkeypatch.undo()
    with pytest.raises(shadow.SpecMismatch, match=r"it is of .* by a, found source .* by b; leave these out"):
        append_new(spark, index, batch(spark, 0, 20), "first", origin=Origin(origin.source, ["b"]))
    again = append_new(spark, index, batch(spark, 0, 20), "first", origin=origin)
    assert (again.known_batch, len(source(tmp_path))) == (True, 2)
    assert open_index(index).spec.partitions == ("id",)


def test_an_index_of_something_else_than_asked_for_is_refused(spark: SparkSession, lake: Path) -> None:
    for origin in (Origin(str(lake / "source"), ["a"]), Origin(str(lake / "other"), ["a", "b"])):
        with pytest.raises(shadow.SpecMismatch, match=r"index: it is of .*/source by a, b, found source"):
            append_new(spark, str(lake / "index"), batch(spark, 0, 5), "x", origin=origin)
    with pytest.raises(shadow.UsageError, match="source_format: expected one of auto, parquet"):
        Origin(str(lake / "source"), ["a"], format="exe")


def test_a_job_that_spark_ran_partly_again_is_done_anew(
    spark: SparkSession, lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = spark_rows.with_status, count(1)

    def once_retried(*arguments: object) -> DataFrame:
        checked: DataFrame = real(*arguments)  # type: ignore[arg-type]
        again = F.when(F.col("payload") > "new 110", F.lit(1 << TASK_BITS)).otherwise(F.lit(0))
        return checked.withColumn(STATUS, F.col(STATUS) + again) if next(calls) == 1 else checked

    monkeypatch.setattr(spark_rows, "with_status", once_retried)
    assert append_new(spark, str(lake / "index"), batch(spark, 80, 120), "nightly").appended == 20
    assert next(calls) == 3
    assert len(keys_of(lake)) == len(set(keys_of(lake))) == 121


def test_an_append_that_others_always_come_before_gives_up(
    spark: SparkSession, lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(append_module, "ATTEMPTS", 2)
    monkeypatch.setattr(append_module, "commit_append", lambda *_: False)
    before = source(lake)
    with pytest.raises(ConcurrentCommit, match="index: 2 other appends came first; run it again"):
        append_new(spark, str(lake / "index"), batch(spark, 80, 120), "nightly")
    assert source(lake) == before
    assert not list((lake / "source").rglob("_gnomon/*/*"))


def test_a_file_is_ended_when_it_is_large(spark: SparkSession, lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout_module, "FILE_BYTES", 1_000)
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "50")
    try:
        result = append_new(spark, str(lake / "index"), batch(spark, 100, 400), "large")
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    assert result.appended == 300
    assert result.files == sum(one["files"] for one in result.partitions.values()) >= 6
    assert len(keys_of(lake)) == len(set(keys_of(lake))) == 401


def test_a_known_batch_stays_known_when_columns_of_the_source_became_wider(spark: SparkSession, tmp_path: Path) -> None:
    write_source(tmp_path / "source", {"a.parquet": pa.table({"k": ["x"], "v": pa.array([1], pa.int32())})})
    index, frame = str(tmp_path / "index"), spark.createDataFrame([("y", 2), ("z", None)], "k string, v int")
    build(spark, str(tmp_path / "source"), index, ["k"])
    append_new(spark, index, frame, "one")
    wide = frame.select("k", F.col("v").cast("bigint").alias("v"))
    assert append_new(spark, index, wide, "one").known_batch
    other = spark.createDataFrame([("y", None), ("z", 2)], "k string, v int")
    with pytest.raises(shadow.UsageError, match="was appended by snapshot 2 with other rows"):
        append_new(spark, index, other, "one")


def test_partition_values_that_cannot_be_told_apart_are_one_or_refused(spark: SparkSession, tmp_path: Path) -> None:
    write_source(tmp_path / "source", {"dt=20260101/a.parquet": pa.table({"k": ["x"]})})
    index = str(tmp_path / "index")
    build(spark, str(tmp_path / "source"), index, ["k"])
    day = spark.sql("SELECT 'new' AS k, date'2026-01-01' AS dt")
    with pytest.raises(shadow.UsageError, match="dt is date, the source has folders like dt=20260101"):
        append_new(spark, index, day, "day", "partition")
    nulls = spark.createDataFrame([("n", "__HIVE_DEFAULT_PARTITION__"), ("n", None), ("n", "")], "k string, dt string")
    assert append_new(spark, index, nulls, "nulls", "partition").appended == 1
    for name, says in (("d" * 300, "File name too long"), ("a\0b", "a NUL is in its name")):
        odd = spark.createDataFrame([(says, name)], "k string, dt string")
        with pytest.raises(shadow.ShadowError, match=says):
            append_new(spark, index, odd, says)
    assert append_new(spark, index, spark.createDataFrame([("ok", "x")], "k string, dt string"), "ok").appended == 1


def test_copies_are_ordered_by_the_batchs_own_columns(spark: SparkSession, lake: Path) -> None:
    copies = [(9, "new", "key", "nine"), (10, "new", "key", "ten")]
    frame = spark.createDataFrame(copies, SCHEMA)
    assert append_new(spark, str(lake / "index"), frame, "x", order_by=["id desc"]).appended == 1
    assert open_index(str(lake / "index")).fetch(("new", "key"))[0]["payload"] == "ten"
