"""A sample joined with an index, compared with plain Spark joins."""

from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from gnomon import shadow
from gnomon.indexer import join_with_index
from gnomon.indexer.spark import JobCounters
from gnomon.shadow.maintenance import rebucket
from gnomon.shadow.storage import storage_at
from gnomon.sources import POINTER_COLUMNS
from tests.shadow.make_index import index_source

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def crawl(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A source with duplicate keys within a file, across files and across partitions, null keys; an index of it in
    partition folders, a flat one, and one by a composite key, of several segments with dead files."""
    root = tmp_path_factory.mktemp("crawl")
    rows = spark.range(3000).select(
        F.when(F.col("id") % 97 == 0, None).otherwise(F.concat(F.lit("https://é/"), F.col("id") % 1700)).alias("url"),
        F.when(F.col("id") % 7 == 0, None).otherwise(F.col("id") % 5).alias("code"),
        F.when(F.col("id") % 11 == 0, None).otherwise(F.col("id") / 4).alias("score"),
        F.timestamp_seconds(F.col("id")).alias("ts"),
        F.when(F.col("id") % 10 != 0, F.concat(F.lit("2026-01-0"), F.col("id") % 3 + 1)).alias("dt"),
    )
    for i, part in enumerate(rows.randomSplit([0.4, 0.3, 0.3], 5)):
        part.repartition(2).write.mode("append").partitionBy("dt").parquet(f"{root}/source")
        if i == 1:
            for file in sorted((root / "source/dt=2026-01-02").glob("*.parquet"))[:2]:
                file.unlink()
        for name, flat in (("index", False), ("flat", True), ("ranges", False)):
            index_source(root / "source", root / name, ["url"], 3, ["score", "ts"], flat)
        for name in ("pair", "pair ranges"):
            index_source(root / "source", root / name, ["url", "dt", "code"], 2)
        if not i:  # later parts have keys beyond the ranges
            rebucket(storage_at(str(root / "ranges")), 5, order="range")
            rebucket(storage_at(str(root / "pair ranges")), 3, order="range")
    return root


def source_of(spark: SparkSession, crawl: Path) -> DataFrame:
    rows = spark.read.parquet(f"{crawl}/source")
    return rows.withColumn("dt", F.col("dt").cast("string"))


def same(left: DataFrame, right: DataFrame) -> bool:
    found, expected = (Counter(map(repr, frame.collect())) for frame in (left, right))
    assert found - expected == Counter(), "rows that a plain join does not give"
    assert expected - found == Counter(), "rows that are missing"
    return bool(found)


def sample_of(spark: SparkSession) -> DataFrame:
    """Present and absent keys, some twice, some null, with other columns of many types and names."""
    rows = (
        spark.range(400)
        .union(spark.range(30))
        .select(
            F.when(F.col("id") % 50 == 0, None).otherwise(F.concat(F.lit("https://é/"), F.col("id") * 11 % 2500)),
            F.col("id").cast("int"),
            F.struct(F.col("id").alias("a"), F.array(F.col("id")).alias("b")),
            F.create_map(F.lit("x"), F.timestamp_seconds(F.col("id") * 1000)),
            F.when(F.col("id") % 13 == 0, None).otherwise(F.concat(F.lit("2026-01-0"), F.col("id") % 4)),
            F.when(F.col("id") % 5 == 0, None).otherwise(F.col("id") % 6),
        )
    )
    return rows.toDF("url", "my tag.x`", "struct", "Map", "dt", "code")


def compared(
    sample: DataFrame, rows: DataFrame, keys: list[str], how: str, null_safe: bool, names: list[str]
) -> DataFrame:
    """The plain join: the sample's columns, then the named columns of the source."""
    left, right = sample.alias("l"), rows.alias("r")
    conditions: list[Column] = []
    for key in keys:
        one, other = F.col(f"l.{key}"), F.col(f"r.{key}")
        conditions.append(one.eqNullSafe(other) if null_safe else one == other)
    condition = conditions[0]
    for other in conditions[1:]:
        condition = condition & other
    kept = [F.col(f"l.`{name.replace('`', '``')}`") for name in sample.columns]
    return left.join(right, condition, how).select(*kept, *[F.col(f"r.{name}") for name in names])


@pytest.mark.parametrize(
    ("index", "how", "null_safe"),
    [
        ("index", "inner", False),
        ("index", "left", True),
        ("flat", "left", False),
        ("ranges", "inner", True),
        ("ranges", "left", False),
    ],
)
def test_a_join_equals_a_plain_join(spark: SparkSession, crawl: Path, index: str, how: str, null_safe: bool) -> None:
    sample = sample_of(spark).drop("dt", "code")
    joined = join_with_index(spark, f"{crawl}/{index}", sample, how, null_safe)
    assert joined.columns == [*sample.columns, "score", "ts", "dt", *POINTER_COLUMNS]
    names = ["score", "ts", "dt"]
    expected = compared(sample, source_of(spark, crawl), ["url"], how, null_safe, names)
    assert same(joined.drop(*POINTER_COLUMNS), expected)


@pytest.mark.parametrize(("index", "null_safe"), [("index", False), ("ranges", True), ("flat", True)])
def test_within_narrows_to_the_partition_that_each_row_names(
    spark: SparkSession, crawl: Path, index: str, null_safe: bool
) -> None:
    sample = sample_of(spark).drop("code")
    joined = join_with_index(spark, f"{crawl}/{index}", sample, "left", null_safe, within=["dt"])
    assert joined.columns == [*sample.columns, "score", "ts", *POINTER_COLUMNS]
    expected = compared(sample, source_of(spark, crawl), ["url", "dt"], "left", null_safe, ["score", "ts"])
    assert same(joined.drop(*POINTER_COLUMNS), expected)


@pytest.mark.parametrize(
    ("index", "how", "null_safe"), [("pair", "left", False), ("pair ranges", "left", True), ("pair", "inner", True)]
)
def test_a_composite_key_with_a_partition_column_equals_a_plain_join(
    spark: SparkSession, crawl: Path, index: str, how: str, null_safe: bool
) -> None:
    sample = sample_of(spark)
    joined = join_with_index(spark, f"{crawl}/{index}", sample, how, null_safe)
    assert joined.columns == [*sample.columns, *POINTER_COLUMNS]
    expected = compared(sample, source_of(spark, crawl), ["url", "dt", "code"], how, null_safe, [])
    assert same(joined.drop(*POINTER_COLUMNS), expected)


def test_every_key_type_equals_a_plain_join(spark: SparkSession, tmp_path: Path) -> None:
    """One index of each type. The sample holds present values, twice, absent ones, and null."""
    number = F.col("id") % 40 - 20
    keys = {
        "string": F.concat(F.lit("é"), number),
        "boolean": number % 2 == 0,
        "tinyint": number.cast("tinyint"),
        "smallint": number.cast("smallint"),
        "int": number.cast("int"),
        "bigint": number * 10**15,
        "float": F.when(number == 3, F.lit("NaN")).otherwise(number / 4).cast("float"),
        "double": F.when(number == 3, F.lit("NaN"))
        .when(number == 0, F.lit("-0.0"))
        .otherwise(number / 4)
        .cast("double"),
        "date": F.date_add(F.lit("2026-01-01").cast("date"), number.cast("int")),
        "timestamp": F.timestamp_micros(number * 10**14 + 1),
        "timestamp_ntz": F.to_timestamp_ntz(F.concat(F.lit("2026-01-01 00:00:"), (number + 20).cast("int"))),
        "binary": F.encode(F.concat(F.lit("é"), number), "UTF-8"),
        "short_decimal": (number / 8).cast("decimal(9,3)"),
        "long_decimal": (number * 10**15).cast("decimal(38,10)") * 10**6,
    }
    columns = [F.when(F.col("id") % 9 != 0, key).alias(name) for name, key in keys.items()]
    spark.range(120).select("id", *columns).coalesce(1).write.parquet(f"{tmp_path}/source")
    source = spark.read.parquet(f"{tmp_path}/source")
    for name in keys:
        index_source(tmp_path / "source", tmp_path / name, [name], 2, ["id"])
        sample = source.where("id < 50").select(name).union(spark.range(200, 210).select(keys[name]))
        joined = join_with_index(spark, f"{tmp_path}/{name}", sample, "left", null_safe=True)
        expected = compared(sample, source, [name], "left", True, ["id"])
        assert same(joined.select(name, "id"), expected), name


def test_how_index_files_were_asked_is_counted(spark: SparkSession, crawl: Path, tmp_path: Path) -> None:
    """No worker has the index open: workers keep small files that were read."""
    index_source(crawl / "source", tmp_path / "index", ["url"], 3)
    counters = JobCounters()
    sample = source_of(spark, crawl).select("url").distinct()
    assert join_with_index(spark, f"{tmp_path}/index", sample, counters=counters).count() > 1000
    counts = counters.value
    assert counts.files_by_key + counts.files_by_leaf + counts.files_read_whole > 0
    assert counters.value.index_bytes > 0


def test_pointers_lead_to_the_rows(spark: SparkSession, crawl: Path) -> None:
    """Each pointer names the file and the ordinal of a row with the key, each such row once."""
    sample = source_of(spark, crawl).select("url").distinct()
    joined = join_with_index(spark, f"{crawl}/index", sample, null_safe=True)
    rows = spark.read.parquet(f"{crawl}/source").select(
        "url",
        F.regexp_extract("_metadata.file_path", "source/(.*)", 1).alias("file"),
        F.col("_metadata.row_index").alias("row"),
    )
    pointers = joined.select("url", F.col("data_filename").alias("file"), F.col("data_offset").alias("row"))
    assert same(pointers, rows)


def test_no_exchange_stands_above_the_look_up(spark: SparkSession, crawl: Path) -> None:
    joined = join_with_index(spark, f"{crawl}/index", sample_of(spark), within=["dt"])
    lines = joined._jdf.queryExecution().executedPlan().toString().splitlines()
    exchanges = [i for i, line in enumerate(lines) if "Exchange" in line]
    look_up = next(i for i, line in enumerate(lines) if "MapInArrow" in line)
    assert [i for i in exchanges if i < look_up] == []
    assert len(exchanges) == 1 + sample_of(spark)._jdf.queryExecution().executedPlan().toString().count("Exchange")
    assert not any("FileScan" in line for line in lines)


def test_a_key_that_the_type_of_the_index_cannot_hold_matches_no_null(spark: SparkSession, tmp_path: Path) -> None:
    spark.createDataFrame([(1,), (None,)], "k int").coalesce(1).write.parquet(str(tmp_path / "source"))
    index_source(tmp_path / "source", tmp_path / "index", ["k"])
    sample = spark.createDataFrame([(1,), (None,), (1 << 40,)], "k bigint")
    joined = join_with_index(spark, str(tmp_path / "index"), sample, null_safe=True)
    assert sorted((row.k for row in joined.collect()), key=str) == [1, None]


def test_what_cannot_be_joined_is_refused_before_anything_runs(spark: SparkSession, crawl: Path) -> None:
    sample = sample_of(spark)
    refused = {
        r"expected inner or left, found 'outer'": {"how": "outer"},
        r"within: code is not a partition column \(there are: dt\)": {"within": ["code"]},
    }
    for message, arguments in refused.items():
        with pytest.raises(shadow.UsageError, match=message):
            join_with_index(spark, f"{crawl}/index", sample, **arguments)  # type: ignore[arg-type]
    with pytest.raises(shadow.UsageError, match="within: expected a list of column names, found 'dt'"):
        join_with_index(spark, f"{crawl}/index", sample, within="dt")
    with pytest.raises(shadow.UsageError, match="within: the sample has no column dt"):
        join_with_index(spark, f"{crawl}/index", sample.drop("dt"), within=["dt"])
    with pytest.raises(shadow.UsageError, match="it has a column data_offset, which the join adds; rename it"):
        join_with_index(spark, f"{crawl}/index", sample.withColumn("data_offset", F.lit(1)))
    with pytest.raises(shadow.UsageError, match="names that begin with __gnomon_ are taken; rename __gnomon_file"):
        join_with_index(spark, f"{crawl}/index", sample.withColumn("__gnomon_file", F.lit(1)))
