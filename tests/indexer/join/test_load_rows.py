"""Rows of many keys, compared with a plain Spark join."""

import datetime as dt
import random
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from gnomon import shadow
from gnomon.commands.failures import one_line
from gnomon.indexer import IndexManager, build, join_with_index, load, load_by_index, read_index
from gnomon.indexer.join import load_rows as fetch
from gnomon.indexer.spark import JobCounters
from tests.shadow.make_index import index_source, write_source

pytestmark = pytest.mark.spark
PAGES = {"data_page_size": 20_000, "write_batch_size": 20, "write_page_index": True}


@pytest.fixture(scope="module")
def crawl(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A source with duplicate keys within a file, across files and across partitions, null keys, and its index."""
    root = tmp_path_factory.mktemp("crawl")
    rows = spark.range(6000).select(
        F.when(F.col("id") % 97 == 0, None).otherwise(F.concat(F.lit("https://é/"), F.col("id") % 4000)).alias("url"),
        (F.col("id") * 7).alias("n"),
        F.repeat(F.lit("x"), 200).alias("html"),
        F.array(F.col("id"), F.col("id") + 1).alias("list"),
        F.timestamp_seconds(F.col("id")).alias("ts"),
        F.concat(F.lit("2026-01-0"), F.col("id") % 3 + 1).alias("dt"),
    )
    rows.repartition(4).write.partitionBy("dt").parquet(f"{root}/source")
    build(spark, f"{root}/source", f"{root}/index", ["url"], buckets=3)
    return root


def same(left: DataFrame, right: DataFrame) -> bool:
    return not left.exceptAll(right).take(1) and not right.exceptAll(left).take(1)


def source_of(spark: SparkSession, crawl: Path) -> DataFrame:
    rows = spark.read.parquet(f"{crawl}/source")
    return rows.withColumn("dt", F.col("dt").cast("string"))


@pytest.mark.parametrize("how", ["inner", "left"])
def test_load_equals_a_plain_join_with_duplicates_and_nulls(spark: SparkSession, crawl: Path, how: str) -> None:
    numbers = [i * 13 % 5000 for i in range(300)]
    keys = spark.createDataFrame(
        [(f"https://é/{i}", i) for i in [*numbers, *numbers[:20]]] + [(None, -1), ("", -2)],
        "url string, `my tag.x` int",
    )
    loaded = load(spark, f"{crawl}/index", keys, how=how)
    assert loaded.columns == ["url", "my tag.x", "n", "html", "list", "ts", "dt"]
    expected = keys.join(source_of(spark, crawl), "url", how).select(*[f"`{name}`" for name in loaded.columns])
    assert same(loaded, expected)
    assert loaded.count() > 300


def test_only_the_columns_asked_for_are_read(spark: SparkSession, tmp_path: Path) -> None:
    """The payload is many times larger than the other reads (footers, once per worker)."""
    (tmp_path / "source").mkdir()
    payload = pa.array([bytes(random.Random(i).randbytes(2000)) for i in range(500)])
    rows = pa.table({"k": pa.array(range(500), pa.int64()), "n": pa.array(range(500)), "payload": payload})
    pq.write_table(rows, tmp_path / "source/p.parquet", compression="none", data_page_size=20_000)
    build(spark, str(tmp_path / "source"), str(tmp_path / "index"), ["k"], buckets=2)
    keys = spark.range(0, 500, 5).toDF("k")
    narrow, wide = JobCounters(), JobCounters()
    loaded = load(spark, str(tmp_path / "index"), keys, ["n"], counters=narrow).collect()
    assert sorted(tuple(row) for row in loaded) == [(k, k) for k in range(0, 500, 5)]
    load(spark, str(tmp_path / "index"), keys, counters=wide).collect()
    assert wide.value.source_bytes > 100 * 2000
    assert 0 < narrow.value.source_bytes < wide.value.source_bytes / 5
    assert narrow.value.index_bytes > 0


def test_neither_index_nor_payload_is_shuffled(spark: SparkSession, crawl: Path) -> None:
    keys = spark.createDataFrame([("https://é/1",)], "url string")
    plan = load(spark, f"{crawl}/index", keys)._jdf.queryExecution().executedPlan().toString()
    exchanges = [line for line in plan.splitlines() if "Exchange" in line]
    assert len(exchanges) == 2  # the sample to its buckets, the pointers to their files
    assert "FileScan" not in plan
    assert all("html" not in line for line in exchanges)


def test_a_file_of_which_much_is_wanted_is_many_tasks_that_read_it_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch, "PIECE_BYTES", (300_000, 300_000))
    texts = [f"{i:05}" + random.Random(i).randbytes(400).hex() for i in range(4000)]
    rows = pa.table({"k": pa.array([None if i == 7 else i for i in range(4000)], pa.int64()), "text": texts})
    write_source(tmp_path / "source", {"a.parquet": rows}, row_group_size=2000, use_dictionary=False, **PAGES)
    index_source(tmp_path / "source", tmp_path / "index", ["k"])
    counters = JobCounters()
    keys = spark.range(-10, 4000).select(F.when(F.col("id") < 0, None).otherwise(F.col("id")).alias("k"))
    loaded = load(spark, str(tmp_path / "index"), keys, counters=counters, null_safe=True).select("k", "text").collect()
    found = sorted((-1 if row.k is None else row.k, int(row.text[:5])) for row in loaded)
    assert found == [(-1, 7)] * 10 + [(i, i) for i in range(4000) if i != 7]
    assert counters.value.tasks > 2
    size = (tmp_path / "source/a.parquet").stat().st_size
    assert counters.value.source_bytes < 1.5 * size
    assert (counters.value.keys, counters.value.matched, counters.value.rows) == (4010, 4009, 4009)


def test_keys_are_cast_to_the_types_of_the_index(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    table = pa.table({"k": pa.array(range(100), pa.int64()), "b": pa.array([bytes([i, 255]) for i in range(100)])})
    pq.write_table(table, tmp_path / "source/p.parquet")
    build(spark, str(tmp_path / "source"), str(tmp_path / "index"), ["k"], buckets=5)
    for kind in ("int", "bigint", "string", "decimal(10,0)"):
        keys = spark.range(40, 60).select(F.col("id").cast(kind).alias("k"))
        assert load(spark, str(tmp_path / "index"), keys).count() == 20, kind
    build(spark, str(tmp_path / "source"), str(tmp_path / "by_bytes"), ["b"], buckets=5)
    text = spark.createDataFrame([("B/8=",)], "b string")  # base64 of 07 ff
    assert [row.k for row in load(spark, str(tmp_path / "by_bytes"), text).collect()] == [7]


def test_wrong_requests_are_refused_before_anything_runs(spark: SparkSession, crawl: Path) -> None:
    keys = spark.createDataFrame([("a",)], "link string")
    with pytest.raises(shadow.UsageError, match=r"keys: the key column url is missing; it has link"):
        load(spark, f"{crawl}/index", keys)
    keys = keys.withColumnRenamed("link", "url")
    with pytest.raises(shadow.UsageError, match="no column nope"):
        load(spark, f"{crawl}/index", keys, ["nope"])
    with pytest.raises(shadow.UsageError, match="expected inner or left, found 'outer'"):
        load(spark, f"{crawl}/index", keys, how="outer")


def test_a_stale_file_fails_the_job_with_one_clear_line(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    pq.write_table(pa.table({"k": [1, 2, 3]}), tmp_path / "source/p.parquet")
    build(spark, str(tmp_path / "source"), str(tmp_path / "index"), ["k"])
    pq.write_table(pa.table({"k": [3, 2, 1, 0]}), tmp_path / "source/p.parquet")
    with pytest.raises(Exception, match="the file changed since it was indexed") as caught:
        load(spark, str(tmp_path / "index"), spark.range(4).withColumnRenamed("id", "k")).collect()
    line = one_line(caught.value)
    assert line.startswith(str(tmp_path / "source/p.parquet"))
    assert "\n" not in line
    assert "Traceback" not in line


@pytest.mark.parametrize("zone", ["America/New_York", "UTC"])
def test_the_session_time_zone_and_lossy_casts_never_match_another_row(
    spark: SparkSession, tmp_path: Path, zone: str
) -> None:
    (tmp_path / "source").mkdir()
    moments = [dt.datetime(2026, 3, 8, hour, 30) for hour in range(12)]  # New York skips an hour that day
    table = pa.table(
        {
            "ts": pa.array(moments, pa.timestamp("us", "UTC")),
            "ntz": pa.array(moments, pa.timestamp("us")),
            "n": pa.array(range(12), pa.int32()),
        }
    )
    pq.write_table(table, tmp_path / "source/p.parquet")
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        locations = {}
        for name in table.column_names:
            locations[name] = str(tmp_path / name)
            build(spark, str(tmp_path / "source"), locations[name], [name], buckets=3)
        instants = spark.read.parquet(str(tmp_path / "source")).select("ts")
        texts = spark.createDataFrame([(str(moment),) for moment in moments], "ts string")
        for keys in (instants, texts, texts.select(F.concat("ts", F.lit("Z")).alias("ts"))):
            assert load(spark, locations["ts"], keys, ["n"]).count() == 12
        for keys in (instants.withColumnRenamed("ts", "ntz"), texts.withColumnRenamed("ts", "ntz")):
            assert load(spark, locations["ntz"], keys, ["n"]).count() == 12
        numbers = spark.createDataFrame([(5.0,), (5.5,), (1e300,), (None,)], "n double")
        found = load(spark, locations["n"], numbers, how="left").collect()
        assert sorted((str(row.n), row.ts is not None) for row in found) == [
            ("1e+300", False),
            ("5.0", True),
            ("5.5", False),
            ("None", False),
        ]
    finally:
        spark.conf.set("spark.sql.session.timeZone", before or "UTC")


def test_keys_that_cannot_be_compared_are_refused(spark: SparkSession, crawl: Path) -> None:
    with pytest.raises(shadow.UsageError, match="the key column url is binary, the index's is string; cast it"):
        load(spark, f"{crawl}/index", spark.createDataFrame([(b"a",)], "url binary"))


def test_a_column_of_the_keys_never_stands_in_for_one_of_the_source(spark: SparkSession, crawl: Path) -> None:
    keys = spark.createDataFrame([("https://é/1", -1)], "url string, n int")
    for columns in (None, ["n"]):
        with pytest.raises(shadow.UsageError, match="the source has a column n, too"):
            load(spark, f"{crawl}/index", keys, columns)
    assert load(spark, f"{crawl}/index", keys, ["url", "dt"]).columns == ["url", "n", "dt"]
    with pytest.raises(shadow.UsageError, match="more than one column x"):
        load(spark, f"{crawl}/index", keys.select("url", F.lit(1).alias("x"), F.lit(2).alias("x")))


def test_a_string_is_no_list_of_columns(spark: SparkSession, tmp_path: Path) -> None:
    """As a sequence, "kv" would be the columns k and v."""
    source, index = str(tmp_path / "source"), str(tmp_path / "index")
    write_source(tmp_path / "source", {"a.parquet": pa.table({"k": [1], "v": [2]})})
    index_source(tmp_path / "source", tmp_path / "index", ["k"])
    keys = spark.createDataFrame([(1,)], "k bigint")
    asks: dict[str, Callable[[], object]] = {
        "keys": lambda: build(spark, source, str(tmp_path / "x"), "kv"),
        "include": lambda: build(spark, source, str(tmp_path / "x"), ["k"], "kv"),
        "columns": lambda: load(spark, index, keys, "kv"),
        "payload": lambda: read_index(spark, index, payload="kv"),
        "fields": lambda: IndexManager.load(spark, index).fetch([1], fields="kv"),
    }
    more = [
        lambda: load_by_index(spark, index, join_with_index(spark, index, keys), "kv"),
        lambda: read_index(spark, index, columns="kv"),
        lambda: shadow.open_index(index).fetch(1, "kv"),
    ]
    for what, ask in [*asks.items(), *[("columns", ask) for ask in more]]:
        with pytest.raises(shadow.UsageError, match=f"^{what}: expected a list of column names, found 'kv'$"):
            ask()
    assert not (tmp_path / "x").exists()
