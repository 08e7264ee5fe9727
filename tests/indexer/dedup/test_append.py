"""Appends by Spark's tasks, which may run again, race and fail; tests/jobs/dedup/test_append.py has the rules of an
append, test_append_engines.py compares the engines."""

import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from gnomon import shadow
from gnomon.indexer import DedupResult, Origin, append_new, build, filter_new
from gnomon.indexer.dedup import append as spark_rows
from gnomon.jobs.dedup import STATUS, TASK_BITS
from gnomon.jobs.dedup import append as append_module
from gnomon.jobs.dedup import layout as layout_module
from gnomon.shadow.commit.append_log import Append
from gnomon.shadow.storage import Storage, storage_at
from gnomon.shadow.verify.snapshot import verify
from tests.jobs.dedup.test_append import Rows, batch_rows, keys_of, make_lake, source
from tests.opened import open_index
from tests.shadow.make_index import write_source

pytestmark = pytest.mark.spark

SCHEMA = "id int, a string, b string, payload string"


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    make_lake(tmp_path)
    return tmp_path


def batch(spark: SparkSession, begin: int, end: int, extra: Rows | None = None) -> DataFrame:
    return spark.createDataFrame(batch_rows(begin, end, extra), SCHEMA)


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


def test_a_batch_is_appended_once_and_known_by_its_rows(spark: SparkSession, lake: Path) -> None:
    first = append_new(spark, str(lake / "index"), batch(spark, 80, 120), "nightly")
    rows = source(lake)
    again = append_new(spark, str(lake / "index"), batch(spark, 80, 120).orderBy("payload"), "nightly")
    assert (again.known_batch, again.appended, again.snapshot) == (True, 0, first.snapshot)
    none = append_new(spark, str(lake / "index"), batch(spark, 0, 0), "none")
    assert (none.rows_read, none.files, none.known_batch) == (0, 0, False)
    message = "batch 'nightly' was appended by snapshot 2 with other rows: expected 40 of digest .*, found 28-"
    with pytest.raises(shadow.UsageError, match=message):
        append_new(spark, str(lake / "index"), batch(spark, 120, 160), "nightly")
    assert source(lake) == rows


@pytest.mark.parametrize(
    ("dies_in", "meanwhile"),
    [
        ("stage", "nothing"),
        ("commit_append", "a nightly build"),
    ],
)
def test_an_append_that_died_is_finished_by_the_next(
    spark: SparkSession, lake: Path, monkeypatch: pytest.MonkeyPatch, dies_in: str, meanwhile: str
) -> None:
    """It died before and after its commit."""
    module = next(one for one in (append_module, spark_rows) if hasattr(one, dies_in))
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
    told = (again.rows_read, again.already_loaded, again.appended, again.reported, again.known_batch)
    assert told == (40, 20, 20, 20, False)
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


def test_the_first_append_into_an_empty_source_makes_it_and_its_index(spark: SparkSession, tmp_path: Path) -> None:
    origin = Origin(str(tmp_path / "source"), ["a", "b"], partition_by=["id"])
    first = append_new(
        spark, str(tmp_path / "index"), batch(spark, 0, 20, [(1, "a0", "b1", "twice")]), "1", origin=origin
    )
    assert (first.duplicates_in_batch, first.already_loaded, first.appended) == (1, 0, 20)
    assert open_index(str(tmp_path / "index")).spec.partitions == ("id",)
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
    assert "more is not a column of the source; b is int32, expected string; nothing was written" in str(caught.value)
    with pytest.raises(shadow.UsageError, match="payload is missing"):
        append_new(spark, str(lake / "index"), batch(spark, 0, 1).drop("payload"), "x")
    with pytest.raises(shadow.UsageError, match="order_by: the batch has no column when"):
        append_new(spark, str(lake / "index"), batch(spark, 0, 1), "x", order_by=["when desc"])
    with pytest.raises(shadow.UsageError, match="scope: expected one of"):
        append_new(spark, str(lake / "index"), batch(spark, 0, 1), "x", scope="all")
    assert sorted((lake / "source").rglob("*")) == before


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


def test_copies_are_ordered_by_the_batchs_own_columns(spark: SparkSession, lake: Path) -> None:
    copies = [(9, "new", "key", "nine"), (10, "new", "key", "ten")]
    frame = spark.createDataFrame(copies, SCHEMA)
    assert append_new(spark, str(lake / "index"), frame, "x", order_by=["id desc"]).appended == 1
    assert open_index(str(lake / "index")).fetch(("new", "key"))[0]["payload"] == "ten"
