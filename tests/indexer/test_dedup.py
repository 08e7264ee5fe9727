"""The dedup load."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import shadow
from indexer import append_new, build, filter_new
from indexer import dedup as dedup_module
from shadow import open_index
from shadow.compact import rebuild
from shadow.storage import storage_at
from shadow.verify import verify

pytestmark = pytest.mark.spark

SCHEMA = "id int, a string, b string, payload string"


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> Path:
    """Rows 0..99 in two partitions, keys (a, b), one key of nulls; indexed."""
    rows = [(i % 2, f"a{i // 10}", f"b{i % 10}", f"old {i}") for i in range(100)] + [(0, None, None, "old null")]
    frame = spark.createDataFrame(rows, SCHEMA)
    frame.coalesce(1).write.partitionBy("id").parquet(str(tmp_path / "source"))
    build(spark, str(tmp_path / "source"), str(tmp_path / "index"), ["a", "b"], buckets=3)
    return tmp_path


def batch(spark: SparkSession, begin: int, end: int, extra: list[tuple[object, ...]] | None = None) -> DataFrame:
    rows: list[tuple[object, ...]] = [(i % 2, f"a{i // 10}", f"b{i % 10}", f"new {i}") for i in range(begin, end)]
    return spark.createDataFrame(rows + (extra or []), SCHEMA)


def source(spark: SparkSession, lake: Path) -> list[tuple[object, ...]]:
    rows = spark.read.parquet(str(lake / "source")).select("id", "a", "b", "payload").collect()
    return sorted((tuple(row) for row in rows), key=str)


def test_only_rows_whose_key_was_never_loaded_are_new(spark: SparkSession, lake: Path) -> None:
    nulls = [(1, None, None, "null again"), (1, None, "b1", "half null"), (1, None, "b1", "half null too")]
    new = filter_new(spark, str(lake / "index"), batch(spark, 90, 130, [*nulls, (1, "a10", "b0", "twice")]))
    keys = sorted((row.a or "", row.b or "") for row in new.collect())
    assert keys == sorted([(f"a{i // 10}", f"b{i % 10}") for i in range(100, 130)] + [("", "b1")])


def test_within_a_partition_only_its_own_keys_count(spark: SparkSession, lake: Path) -> None:
    rows = [(0, "a0", "b0", "known in 0"), (1, "a0", "b0", "new in 1"), (7, "a0", "b0", "new in 7")]
    frame = spark.createDataFrame([*rows, (7, "a0", "b0", "twice in 7")], SCHEMA)
    found = filter_new(spark, str(lake / "index"), frame, scope="partition").collect()
    assert sorted(row.id for row in found) == [1, 7]
    with pytest.raises(shadow.UsageError, match="scope: expected one of table, partition"):
        filter_new(spark, str(lake / "index"), frame, scope="all")


def test_a_load_appends_each_key_once_and_indexes_it(spark: SparkSession, lake: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in (lake / "source").rglob("*.parquet")}
    result = append_new(spark, str(lake / "index"), batch(spark, 80, 120, [(0, "a11", "b0", "twice")]), "b 1/x")
    assert (result.rows_read, result.duplicates_in_batch, result.already_loaded, result.appended) == (41, 1, 20, 20)
    assert {path: path.stat().st_mtime_ns for path in before} == before, "existing files are never touched"
    keys = [(row[1], row[2]) for row in source(spark, lake)]
    assert len(keys) == len(set(keys)) == 121
    index = open_index(str(lake / "index"))
    assert index.fetch(("a11", "b7"))[0]["payload"] == "new 117"
    assert index.view.snapshot.rows == 121
    assert (index.view.snapshot.operation, index.view.snapshot.batch) == ("dedup", "b 1/x")
    fresh = [path for path in (lake / "source").rglob("*.parquet") if path not in before]
    assert {path.parent.name for path in fresh} == {"id=0", "id=1"}
    assert all("b-1-x" in path.name for path in fresh)
    assert not list((lake / "source").glob("_gnomon*"))


def test_a_batch_is_loaded_once(spark: SparkSession, lake: Path) -> None:
    first = append_new(spark, str(lake / "index"), batch(spark, 80, 120), "nightly")
    rows = source(spark, lake)
    again = append_new(spark, str(lake / "index"), batch(spark, 80, 120), "nightly")
    assert again.known_batch
    assert (again.appended, again.snapshot) == (0, first.snapshot)
    other = append_new(spark, str(lake / "index"), batch(spark, 80, 120), "nightly, delivered again")
    assert (other.known_batch, other.appended, other.already_loaded) == (False, 0, 40)
    assert source(spark, lake) == rows


@pytest.mark.parametrize("dies_in", ["publish_staged", "stage", "build"])
def test_a_load_that_died_is_finished_by_the_next(
    spark: SparkSession, lake: Path, monkeypatch: pytest.MonkeyPatch, dies_in: str
) -> None:
    real = getattr(dedup_module, dies_in)
    calls = []

    def dying(*arguments: object, **named: object) -> object:
        calls.append(dies_in)
        if dies_in != "build":
            result = real(*arguments, **named)
            raise KeyboardInterrupt(result)  # after its work was done
        if len(calls) == 2:  # the build that would index what was appended
            raise KeyboardInterrupt
        return real(*arguments, **named)

    monkeypatch.setattr(dedup_module, dies_in, dying)
    with pytest.raises(KeyboardInterrupt):
        append_new(spark, str(lake / "index"), batch(spark, 80, 120), "nightly")
    monkeypatch.undo()
    append_new(spark, str(lake / "index"), batch(spark, 80, 120), "nightly")
    keys = [(row[1], row[2]) for row in source(spark, lake)]
    assert len(keys) == len(set(keys)) == 121
    assert open_index(str(lake / "index")).view.snapshot.rows == 121


def test_files_the_index_does_not_cover_yet_are_indexed_first(spark: SparkSession, lake: Path) -> None:
    batch(spark, 100, 110).drop("id").coalesce(1).write.parquet(str(lake / "other"))
    part = next((lake / "other").glob("*.parquet"))
    part.rename(lake / "source/id=1/someone-elses.parquet")
    result = append_new(spark, str(lake / "index"), batch(spark, 100, 115), "b")
    assert (result.already_loaded, result.appended) == (10, 5)


def test_a_batch_that_does_not_fit_is_refused_before_anything_is_written(spark: SparkSession, lake: Path) -> None:
    before = sorted((lake / "source").rglob("*"))
    frame = batch(spark, 0, 5).withColumn("extra", F.lit(1)).withColumn("payload", F.lit(2)).drop("b")
    with pytest.raises(shadow.UsageError) as caught:
        append_new(spark, str(lake / "index"), frame, "b")
    for part in ("extra is not a column of the source", "b is missing", "payload is int, expected string"):
        assert part in str(caught.value)
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


def test_filter_new_returns_the_rows_as_they_came_and_refuses_keys_it_cannot_compare(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "source").mkdir()
    pq.write_table(pa.table({"k": pa.array([5, 7], pa.int32())}), tmp_path / "source/p.parquet")
    build(spark, str(tmp_path / "source"), str(tmp_path / "index"), ["k"])
    wide = spark.createDataFrame([(5,), (6,)], "k bigint")
    assert [row.k for row in filter_new(spark, str(tmp_path / "index"), wide).collect()] == [6]
    assert filter_new(spark, str(tmp_path / "index"), wide).schema == wide.schema
    for keys in (spark.createDataFrame([(5.7,)], "k double"), spark.createDataFrame([("abc",)], "k string")):
        with pytest.raises(Exception, match="batch: key column k: expected int, found"):
            filter_new(spark, str(tmp_path / "index"), keys).collect()


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
        rebuild(storage_at(location), 7)
    result = append_new(spark, location, batch(spark, 80, 120), "nightly")
    assert (result.already_loaded, result.appended) == (20, 20)
    index = open_index(location)
    assert index.fetch(("a11", "b7"))[0]["payload"] == "new 117"
    assert index.spec.buckets == (1 if layout == "flat" else 7)
    assert index.coverage().is_empty
    assert verify(storage_at(location)).faults == []
    assert append_new(spark, location, batch(spark, 80, 125), "again").appended == 5
