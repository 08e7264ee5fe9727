"""The index folder as a table of the catalog: plans and rows of Spark's bucketed table and of the Hive table."""

import datetime as dt
import re
import shutil
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from gnomon import shadow
from gnomon.indexer.datasource.index_table import declare_table
from gnomon.shadow.maintenance.compaction import compact, rebucket
from gnomon.shadow.maintenance.vacuuming import vacuum
from gnomon.shadow.storage import storage_at
from tests.profiles import cases
from tests.shadow.make_index import index_source, write_source

pytestmark = pytest.mark.spark

BUCKETS = 7
DAY = dt.date(2026, 1, 1)
NOON = dt.datetime(2026, 1, 1, 12)
OF_NUMBER = {
    "text": (lambda n: f"kéy {n}", pa.string()),
    "flag": (lambda n: n % 2 == 0, pa.bool_()),
    "tiny": (lambda n: n - 20, pa.int8()),
    "small": (lambda n: n - 300, pa.int16()),
    "whole": (lambda n: n - 5, pa.int32()),
    "big": (lambda n: n * 10**12, pa.int64()),
    "real": (lambda n: n / 4, pa.float32()),
    "double": (lambda n: n / 3 or -0.0, pa.float64()),
    "day": (lambda n: DAY + dt.timedelta(days=n * 50), pa.date32()),
    "moment": (lambda n: NOON + dt.timedelta(seconds=n, microseconds=n), pa.timestamp("us", "UTC")),
    "local": (lambda n: NOON + dt.timedelta(seconds=n, microseconds=n), pa.timestamp("us")),
    "price": (lambda n: Decimal(n - 9) / 100, pa.decimal128(12, 2)),
    "wide": (lambda n: Decimal(10) ** 30 + n, pa.decimal128(38, 0)),
    "raw": (lambda n: bytes([n, 255, 0]), pa.binary()),
}
SPARK_AVRO = "org.apache.spark.sql.v2.avro.AvroDataSourceV2"  # makes `avro` a name; only in that package
ESCAPED = {"user id": "user_x20_id", "metadata": "metadata_"}


def rows_of(first: int) -> pa.Table:
    """60 rows, each key in two of them, nulls in every column."""
    numbers = [None if n == 7 else (first + n) % 40 for n in range(60)]
    columns = {
        name: pa.array([None if n is None else make(n) for n in numbers], kind)
        for name, (make, kind) in OF_NUMBER.items()
    }
    return pa.table({**columns, "user id": pa.array(numbers, pa.int32()), "metadata": columns["text"]})


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A source in two partitions, and its index by text, all other columns included."""
    root = tmp_path_factory.mktemp("lake")
    write_source(root / "source", {f"dt={DAY}/a.parquet": rows_of(0), "dt=a%3Db c/a.parquet": rows_of(20)})
    names = [*OF_NUMBER, *ESCAPED]
    index_source(root / "source", root / "index", ["text"], BUCKETS, names[1:])
    return root


@pytest.fixture(scope="module")
def entries(spark: SparkSession, avro_reader: None, lake: Path) -> Iterator[str]:
    """The index, declared as a bucketed table."""
    declare_table(spark, str(lake / "index"), "lake_index")
    yield "lake_index"
    spark.sql("DROP TABLE lake_index")


@pytest.fixture(autouse=True)
def plain_plans(spark: SparkSession) -> Iterator[None]:
    """Use declared buckets, and no broadcast joins."""
    settings = {"spark.sql.sources.bucketing.autoBucketedScan.enabled": "false"}
    settings["spark.sql.autoBroadcastJoinThreshold"] = "-1"
    for name, value in settings.items():
        spark.conf.set(name, value)
    yield
    for name in settings:
        spark.conf.unset(name)


def source_rows(spark: SparkSession, lake: Path) -> DataFrame:
    """The source as Spark reads it, with the column names and small integer types of the tables."""
    rows = spark.read.option("basePath", str(lake / "source")).parquet(str(lake / "source"))
    integers = {name: F.col(name).cast("int") for name in ("tiny", "small")}
    return rows.withColumns(integers).withColumnsRenamed(ESCAPED)


def same(left: DataFrame, right: DataFrame) -> bool:
    assert left.schema.simpleString() == right.schema.simpleString()
    return Counter(map(str, left.collect())) == Counter(map(str, right.collect()))


def plan_of(rows: DataFrame) -> str:
    return str(rows._jdf.queryExecution().executedPlan().toString())


def buckets_read(rows: DataFrame) -> int:
    found = re.search(r"SelectedBucketsCount: (\d+) out of (\d+)", plan_of(rows))
    assert found is not None
    assert int(found[2]) == BUCKETS
    return int(found[1])


@pytest.mark.parametrize(
    ("condition", "most"),
    [
        ("text = 'kéy 3'", 1),
        ("text = 'absent'", 1),
        ("text is null", 1),
        ("text <=> null", 1),
        ("text in ('kéy 3', 'kéy 4', 'absent')", 3),
        ("text = 'kéy 3' or text = 'kéy 11'", 2),
        ("text = 'kéy 3' or text is null", 2),
        ("text = 'kéy 3' and big > 0", 1),
        (f"text = 'kéy 3' and dt = '{DAY}'", 1),
        ("text != 'kéy 3'", BUCKETS),
        ("not text in ('kéy 3', 'kéy 4')", BUCKETS),
        ("cast(text as binary) = cast('kéy 3' as binary)", BUCKETS),
        ("upper(text) = 'KÉY 3'", BUCKETS),
        ("big = 3000000000000", BUCKETS),
        ("text = 'kéy 3' or big = 0", BUCKETS),
    ],
)
def test_a_condition_on_the_key_reads_its_buckets_and_gives_all_its_rows(
    spark: SparkSession, lake: Path, entries: str, condition: str, most: int
) -> None:
    everything = source_rows(spark, lake)
    found = spark.table(entries).where(condition)
    read = buckets_read(found)
    assert read <= most
    assert read == most or most in (2, 3)  # two of several keys may lie in one bucket
    assert same(found.select(everything.columns), everything.where(condition))


@pytest.mark.usefixtures("avro_reader")
@pytest.mark.parametrize("name", cases(["tiny", "double", "day", "moment", "local", "price", "raw"]))
def test_a_key_of_each_type_is_found_in_its_bucket(
    spark: SparkSession, tmp_path: Path, database: str, name: str
) -> None:
    write_source(tmp_path / "source", {"a.parquet": rows_of(0)})
    index_source(tmp_path / "source", tmp_path / "index", [name], BUCKETS)
    declare_table(spark, str(tmp_path / "index"), f"{database}.t")
    everything = source_rows(spark, tmp_path)
    for n in (0, 3):
        value = F.lit(OF_NUMBER[name][0](n)).cast(everything.schema[name].dataType)
        found = spark.table(f"{database}.t").where(F.col(name) == value)
        assert buckets_read(found) == 1
        assert found.count() == everything.where(F.col(name) == value).count() > 0


@pytest.mark.usefixtures("avro_reader")
def test_no_bucket_of_a_composite_key_is_left_out(spark: SparkSession, tmp_path: Path, database: str) -> None:
    write_source(tmp_path / "source", {"a.parquet": rows_of(0)})
    index_source(tmp_path / "source", tmp_path / "index", ["text", "big"], BUCKETS)
    declare_table(spark, str(tmp_path / "index"), f"{database}.t")
    condition = "text = 'kéy 3' and big = 3000000000000"
    found = spark.table(f"{database}.t").where(condition)
    assert buckets_read(found) == BUCKETS
    assert found.count() == source_rows(spark, tmp_path).where(condition).count() > 0


@pytest.mark.usefixtures("avro_reader")
@pytest.mark.parametrize("keys", [["text"], ["text", "big"]])
def test_a_join_with_a_table_bucketed_alike_shuffles_neither(
    spark: SparkSession, tmp_path: Path, database: str, keys: list[str]
) -> None:
    write_source(tmp_path / "source", {"p=1/a.parquet": rows_of(0), "p=2/a.parquet": rows_of(20)})
    index_source(tmp_path / "source", tmp_path / "index", keys, BUCKETS)
    index_source(tmp_path / "source", tmp_path / "index", keys, BUCKETS)
    declare_table(spark, str(tmp_path / "index"), f"{database}.t")
    everything = source_rows(spark, tmp_path).withColumn("p", F.col("p").cast("string"))
    sample = everything.where("big % 3 = 0 or big is null").select(*keys, F.col("raw").alias("other"))
    sample.write.bucketBy(BUCKETS, *keys).saveAsTable(f"{database}.sample")
    joined = spark.table(f"{database}.sample").join(spark.table(f"{database}.t"), keys)
    plan = plan_of(joined)
    assert "Exchange" not in plan
    assert plan.count("Bucketed: true") == 2
    wanted = sample.join(everything.select(*keys, "p"), keys)
    assert same(joined.select(wanted.columns), wanted)
    assert joined.count() > 50


def test_the_name_avro_of_spark_avro_does_as_the_class_does(spark: SparkSession, tmp_path: Path, database: str) -> None:
    write_source(tmp_path / "source", {"p=1/a.parquet": rows_of(0), "p=2/a.parquet": rows_of(20)})
    index_source(tmp_path / "source", tmp_path / "index", ["text"], BUCKETS, ["big"])
    columns = "text STRING, big BIGINT, data_filename STRING, data_offset BIGINT, data_sub_offset INT, data_size INT"
    place = f"PARTITIONED BY (p) CLUSTERED BY (text) INTO {BUCKETS} BUCKETS LOCATION '{tmp_path / 'index'}'"
    if not spark._jvm.org.apache.spark.util.Utils.classIsLoadable(SPARK_AVRO):
        pytest.skip("spark-avro is not in the session; deploy/try-spark.sh says how to have it there")
    spark.sql(f"CREATE TABLE {database}.t ({columns}, p STRING) USING avro {place}")
    spark.sql(f"MSCK REPAIR TABLE {database}.t")
    everything = source_rows(spark, tmp_path).withColumn("p", F.col("p").cast("string")).select("text", "big", "p")
    conditions = {"text = 'kéy 3'": 1, "text is null": 1, "text in ('kéy 3', 'kéy 4')": 2, "text != 'kéy 3'": BUCKETS}
    for condition, read in {**conditions, "text = 'kéy 3' or text = 'kéy 4'": 2}.items():
        found = spark.table(f"{database}.t").where(condition)
        assert buckets_read(found) == read
        assert same(found.select(everything.columns), everything.where(condition))
    sample = everything.where("big % 3 = 0").select("text", F.col("big").alias("other"))
    sample.write.bucketBy(BUCKETS, "text").saveAsTable(f"{database}.sample")
    joined = spark.table(f"{database}.sample").join(spark.table(f"{database}.t"), "text")
    assert "Exchange" not in plan_of(joined)
    assert plan_of(joined).count("Bucketed: true") == 2
    wanted = sample.join(everything, "text")
    assert same(joined.select(wanted.columns), wanted)
    assert joined.count() > 50


def test_a_hive_table_reads_every_type_of_the_index(spark: SparkSession, lake: Path, database: str) -> None:
    declare_table(spark, str(lake / "index"), f"{database}.t", "hive")
    table, everything = spark.table(f"{database}.t"), source_rows(spark, lake)
    micros = {name: F.unix_micros(F.col(name).cast("timestamp")) for name in ("moment", "local")}
    wanted = everything.withColumns(micros)
    plan = plan_of(table)
    assert "Scan hive" in plan
    assert table.schema["moment"].dataType.simpleString() == table.schema["local"].dataType.simpleString() == "bigint"
    assert table.columns[-5:] == ["data_filename", "data_offset", "data_sub_offset", "data_size", "dt"]
    assert same(table.select(wanted.columns), wanted)
    assert table.count() == 120
    narrowed = table.where(f"text = 'kéy 3' and dt = '{DAY}'")
    assert re.search(rf"Scan hive .*\(dt#\d+ = {DAY}\)", plan_of(narrowed))
    assert same(narrowed.select(wanted.columns), wanted.where(f"text = 'kéy 3' and dt = '{DAY}'"))


@pytest.mark.parametrize("form", ["bucketed", "hive"])
def test_unpartitioned_flat_and_null_partitions_are_declared(
    spark: SparkSession, tmp_path: Path, database: str, form: str, request: pytest.FixtureRequest
) -> None:
    if form == "bucketed":
        request.getfixturevalue("avro_reader")
    write_source(tmp_path / "whole", {"a.parquet": rows_of(0)})
    nothing = "__HIVE_DEFAULT_PARTITION__"
    write_source(
        tmp_path / "parted", {f"my p={nothing}/Q=1/a.parquet": rows_of(0), "my p=x/Q=%27/a.parquet": rows_of(1)}
    )
    for source, flat in (("whole", False), ("parted", False), ("parted", True)):
        index = tmp_path / f"{source} {flat}"
        index_source(tmp_path / source, index, ["big"], 3, flat=flat)
        declare_table(spark, str(index), f"{database}.t_{source}_{flat}", form)
        assert spark.table(f"{database}.t_{source}_{flat}").where("big = 3000000000000").count() > 0
    parted = {
        (row[0], row[1]): row[2]
        for row in spark.table(f"{database}.t_parted_False").groupBy("my p", "Q").count().collect()
    }
    assert parted == {(None if form == "bucketed" else nothing, "1"): 60, ("x", "'"): 60}
    flat_table = spark.table(f"{database}.t_parted_True")
    flat_rows = {tuple(row) for row in flat_table.select("my_x20_p", "Q").distinct().collect()}
    assert flat_rows == {(None, "1"), ("x", "'")}
    assert flat_table.count() == 120


@pytest.mark.usefixtures("avro_reader")
def test_declaring_again_follows_the_index(spark: SparkSession, tmp_path: Path, database: str) -> None:
    """New and vanished partitions, and another number of buckets, with which Spark would read the wrong files."""
    source, index, table = tmp_path / "source", str(tmp_path / "index"), f"{database}.t"
    write_source(source, {"p=1/a.parquet": rows_of(0), "p=2/a.parquet": rows_of(20)})
    index_source(source, tmp_path / "index", ["text"], BUCKETS)
    declare_table(spark, index, table, properties={"gnomon.note": "kept"})
    assert spark.table(table).count() == 120
    shutil.rmtree(source / "p=1")
    write_source(source, {"p=3/a.parquet": rows_of(5)})
    index_source(source, tmp_path / "index", ["text"], BUCKETS)
    rebucket(storage_at(index), 3)
    vacuum(storage_at(index), grace_seconds=0)
    declare_table(spark, index, table)
    declare_table(spark, index, table)
    assert [row[0] for row in spark.sql(f"SHOW PARTITIONS {table}").collect()] == ["p=2", "p=3"]
    found = spark.table(table).where("text = 'kéy 3'")
    assert "SelectedBucketsCount: 1 out of 3" in plan_of(found)
    assert found.count() == source_rows(spark, tmp_path).where("text = 'kéy 3'").count() == 2
    rebucket(storage_at(index), 3, order="range")
    vacuum(storage_at(index), grace_seconds=0)
    declare_table(spark, index, table)
    found = spark.table(table).where("text = 'kéy 3'")
    assert "SelectedBucketsCount" not in plan_of(found)  # of Spark's hash, which ranges do not have
    assert found.count() == 2
    properties = {row[0]: row[1] for row in spark.sql(f"SHOW TBLPROPERTIES {table}").collect()}
    assert properties["gnomon.note"] == "kept"
    assert properties["gnomon.index"] == index


def test_a_plain_table_shows_dead_entries_until_compact_and_vacuum(
    spark: SparkSession, tmp_path: Path, database: str
) -> None:
    source, storage, table = tmp_path / "source", storage_at(str(tmp_path / "index")), f"{database}.t"
    write_source(source, {"a.parquet": rows_of(0), "b.parquet": rows_of(1)})
    index_source(source, tmp_path / "index", ["text"], BUCKETS)
    write_source(source, {"a.parquet": rows_of(2).slice(0, 10)})
    index_source(source, tmp_path / "index", ["text"], BUCKETS)
    declare_table(spark, storage.root, table)
    assert spark.table(table).count() == 60 + 60 + 10
    compact(storage)
    vacuum(storage, grace_seconds=0)
    declare_table(spark, storage.root, table)
    assert spark.table(table).count() == 60 + 10


@pytest.mark.parametrize("form", ["bucketed", "hive"])
def test_dropping_the_table_leaves_the_index(
    spark: SparkSession, tmp_path: Path, database: str, form: str, request: pytest.FixtureRequest
) -> None:
    if form == "bucketed":
        request.getfixturevalue("avro_reader")
    write_source(tmp_path / "source", {"p=1/a.parquet": rows_of(0)})
    index_source(tmp_path / "source", tmp_path / "index", ["text"], BUCKETS)
    before = sorted(info.path for info in storage_at(str(tmp_path / "index")).list(hidden=True))
    declare_table(spark, str(tmp_path / "index"), f"{database}.t", form)
    spark.sql(f"ALTER TABLE {database}.t DROP PARTITION (p='1')")
    spark.sql(f"DROP TABLE {database}.t")
    assert sorted(info.path for info in storage_at(str(tmp_path / "index")).list(hidden=True)) == before
    assert len(shadow.open_index(str(tmp_path / "index")).fetch("kéy 3")) == 2


def test_a_table_of_that_name_that_is_not_of_the_index_stays(spark: SparkSession, lake: Path, database: str) -> None:
    spark.sql(f"CREATE TABLE {database}.t (n INT) USING parquet")
    with pytest.raises(shadow.UsageError, match="there is a table of this name"):
        declare_table(spark, str(lake / "index"), f"{database}.t")
    with pytest.raises(shadow.UsageError, match="expected bucketed or hive, found 'parquet'"):
        declare_table(spark, str(lake / "index"), f"{database}.t", "parquet")
    assert spark.table(f"{database}.t").columns == ["n"]


@pytest.mark.usefixtures("avro_reader")
def test_the_statements_of_the_page_declare_an_index(spark: SparkSession, tmp_path: Path, database: str) -> None:
    page = (Path(__file__).parents[3] / "docs/reference/tables.md").read_text(encoding="utf-8")
    statements = [
        one for sql in re.findall(r"```sql\n(.*?)```", page, re.DOTALL) for one in sql.split(";") if one.strip()
    ]
    assert len(statements) == 4
    rows = pa.table({"url": [f"https://é/{i % 30}" for i in range(50)], "user id": pa.array(range(50), pa.int32())})
    write_source(tmp_path / "source", {f"dt=2026-01-0{day}/a.parquet": rows for day in (1, 2)})
    index_source(tmp_path / "source", tmp_path / "index", ["url"], 4, ["user id"])
    spark.sql(f"USE {database}")
    try:
        for statement in statements:
            spark.sql(statement.replace("/lake/crawl_index", str(tmp_path / "index")))
        of_spark, of_hive = (spark.table(f"{database}.{name}") for name in ("crawl_index", "crawl_index_hive"))
        assert same(of_spark, of_hive)
        wanted = spark.read.option("basePath", str(tmp_path / "source")).parquet(str(tmp_path / "source"))
        found = of_spark.withColumnRenamed("user_x20_id", "user id").where("url = 'https://é/3'")
        assert "SelectedBucketsCount: 1 out of 4" in plan_of(found)
        wanted = wanted.withColumn("dt", F.col("dt").cast("string")).where("url = 'https://é/3'")
        assert same(found.select(wanted.columns), wanted)
        assert found.count() == 4
    finally:
        spark.sql("USE default")
