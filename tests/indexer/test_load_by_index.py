"""Rows by pointers that were filtered or joined since they were looked up."""

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from gnomon.commands.failures import one_line
from gnomon.indexer import join_with_index, load_by_index
from gnomon.indexer.spark import JobCounters
from gnomon.shadow import StalePointer, UsageError
from gnomon.sources import POINTER_COLUMNS
from tests.shadow.make_index import index_source, write_source

pytestmark = pytest.mark.spark
FILES = ("dt=2026-01-01/a.parquet", "dt=2026-01-01/b.parquet", "dt=2026-01-02/c.parquet")


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three files in two partitions, each with several row groups; keys repeat, some are null."""
    root = tmp_path_factory.mktemp("lake")
    tables = {}
    for place, path in enumerate(FILES):
        numbers = range(place * 500, place * 500 + 500)
        tables[path] = pa.table(
            {
                "k": pa.array([None if n % 50 == 0 else n % 700 for n in numbers], pa.int64()),
                "n": pa.array(numbers, pa.int64()),
                "text": [f"row {n} " * 20 for n in numbers],
                "list": [[n, n + 1] for n in numbers],
            }
        )
    write_source(root / "source", tables, row_group_size=130, data_page_size=2000)
    index_source(root / "source", root / "index", ["k"], include=["n"], buckets=3)
    return root


def rows_of_source(spark: SparkSession, lake: Path) -> DataFrame:
    return spark.read.parquet(f"{lake}/source").withColumn("dt", F.col("dt").cast("string"))


@pytest.fixture(scope="module")
def pointers(spark: SparkSession, lake: Path) -> DataFrame:
    """The pointers of every third key."""
    found = join_with_index(spark, f"{lake}/index", spark.range(0, 700, 3).toDF("k"))
    found.write.parquet(f"{lake}/pointers")
    return spark.read.parquet(f"{lake}/pointers")


def same(left: DataFrame, right: DataFrame) -> bool:
    return sorted(map(repr, left.collect())) == sorted(map(repr, right.collect()))


def test_pointers_however_filtered_and_joined_lead_to_the_rows_of_a_plain_join(
    spark: SparkSession, lake: Path, pointers: DataFrame
) -> None:
    chosen = pointers.where("n % 4 != 0").withColumn("tag", F.col("n") * 2)
    loaded = load_by_index(spark, f"{lake}/index", chosen)
    assert loaded.columns == ["k", "n", "dt", "tag", "text", "list"]
    source = rows_of_source(spark, lake).where("k % 3 = 0 and n % 4 != 0").withColumn("tag", F.col("n") * 2)
    expected = source.select(*loaded.columns)
    assert same(loaded, expected)
    assert loaded.count() > 50


def test_columns_name_what_is_read_and_which_pointers_are_kept(
    spark: SparkSession, lake: Path, pointers: DataFrame
) -> None:
    few = pointers.where("n % 10 = 0").select("n", *POINTER_COLUMNS)
    loaded = load_by_index(spark, f"{lake}/index", few, ["text", "k", "data_offset", "n"])
    assert loaded.columns == ["n", "data_offset", "text", "k"]
    assert all(row.text == f"row {row.n} " * 20 and row.n % 500 == row.data_offset for row in loaded.collect())
    assert load_by_index(spark, f"{lake}/index", pointers.select(*POINTER_COLUMNS), ["n"]).columns == ["n"]
    assert sorted(load_by_index(spark, f"{lake}/index", few, []).collect()) == sorted(few.select("n").collect())


def test_a_pointer_that_comes_several_times_gives_its_row_as_often(
    spark: SparkSession, lake: Path, pointers: DataFrame
) -> None:
    once, counters = pointers.where("n % 10 = 1"), JobCounters()
    rows = load_by_index(spark, f"{lake}/index", once, ["text"]).collect()
    thrice = once.union(once).union(once)
    again = load_by_index(spark, f"{lake}/index", thrice, ["text"], counters=counters).collect()
    assert len(rows) > 10
    assert sorted(again) == sorted(rows * 3)
    assert counters.value.rows == len(again)


def test_a_row_without_a_pointer_stays_beside_nulls(spark: SparkSession, lake: Path) -> None:
    sample = spark.createDataFrame([(7,), (100_000,), (None,)], "k bigint")
    pointers = join_with_index(spark, f"{lake}/index", sample, how="left")
    loaded = load_by_index(spark, f"{lake}/index", pointers, ["text"], unreadable="report").collect()
    assert sorted((row.k or -1, row.text is None, row.data_error) for row in loaded) == [
        (-1, True, None),
        *[(7, False, None)] * 3,
        (100_000, True, None),
    ]


def test_only_the_pointers_are_shuffled(spark: SparkSession, lake: Path, pointers: DataFrame) -> None:
    plan = load_by_index(spark, f"{lake}/index", pointers)._jdf.queryExecution().executedPlan().toString()
    lines = plan.splitlines()
    exchanges = [place for place, line in enumerate(lines) if "Exchange" in line]
    fetches = [place for place, line in enumerate(lines) if "MapInArrow" in line]
    assert len(exchanges) == len(fetches) == 1
    assert fetches[0] < exchanges[0]  # the fetch is above the exchange: the payload is not shuffled
    assert "text" not in lines[exchanges[0]]


def test_a_key_that_a_row_does_not_hold_and_a_file_that_is_not_covered_are_stale(
    spark: SparkSession, lake: Path, pointers: DataFrame
) -> None:
    few = pointers.where("n in (6, 9)")
    for wrong, message in (
        (few.withColumn("k", F.col("k") + 1), "does not hold the key it was indexed under"),
        (few.withColumn("data_filename", F.lit("dt=2026-01-01/x.parquet")), "does not cover this file"),
        (few.withColumn("data_offset", F.lit(500)), r"no row at pointer \(500, 0\), the file has 500"),
    ):
        with pytest.raises(Exception, match=message) as caught:
            load_by_index(spark, f"{lake}/index", wrong, ["text"]).collect()
        assert f"{lake}/source/dt=2026-01-01/" in one_line(caught.value)
        told = load_by_index(spark, f"{lake}/index", wrong, ["text"], unreadable="report").collect()
        assert all(row.text is None and f"{lake}/source/dt=" in row.data_error for row in told)
        assert len(told) == 2


def test_pointers_that_are_none_are_refused_before_anything_runs(
    spark: SparkSession, lake: Path, pointers: DataFrame
) -> None:
    index = f"{lake}/index"
    for wrong, columns, message in (
        (pointers.drop("data_offset", "data_size"), None, "pointers: the column data_offset, data_size is missing"),
        (pointers.withColumn("data_offset", F.lit("5")), None, "column data_offset: expected bigint, found string"),
        (pointers.withColumn("data_filename", F.lit(5)), None, "column data_filename: expected string, found int"),
        (pointers, ["nope"], "neither the source nor pointers have a column nope"),
        (pointers.select(*POINTER_COLUMNS), [], "none are left to load"),
        (pointers.select("*", F.lit(1).alias("n")), None, "more than one column n"),
        (pointers.withColumnRenamed("k", "K"), None, "pointers: rename column K to that of the key, k"),
        (pointers.withColumn("k", F.lit(b"x")), None, "pointers: the key column k is binary, the index's is bigint"),
    ):
        with pytest.raises(UsageError, match=message):
            load_by_index(spark, index, wrong, columns)
    with pytest.raises(UsageError, match="unreadable: expected fail or report, found 'skip'"):
        load_by_index(spark, index, pointers, unreadable="skip")
    with pytest.raises(UsageError, match="a column data_error already"):
        load_by_index(spark, index, pointers.withColumn("data_error", F.lit(1)), unreadable="report")


def of_dione(pointers: DataFrame, lake: Path) -> DataFrame:
    """The same pointers as Dione writes them: whole names, and the row group with the ordinal in it."""
    groups = F.col("data_offset")
    return (
        pointers.withColumn("data_filename", F.concat(F.lit(f"file:{lake}/source/"), F.col("data_filename")))
        .withColumn("data_sub_offset", (groups % 130).cast("int"))
        .withColumn("data_offset", F.floor(groups / 130))
        .withColumn("data_size", F.lit(-1))
    )


def test_diones_pointers_lead_to_the_same_rows(spark: SparkSession, lake: Path, pointers: DataFrame) -> None:
    loaded = load_by_index(spark, f"{lake}/index", of_dione(pointers, lake))
    expected = load_by_index(spark, f"{lake}/index", pointers)
    assert loaded.columns == expected.columns
    assert same(loaded, expected)


def test_a_pointer_of_diones_to_no_row_is_stale(spark: SparkSession, lake: Path, pointers: DataFrame) -> None:
    wrong = of_dione(pointers, lake).where("n = 6").withColumn("data_sub_offset", F.lit(500))
    with pytest.raises(PySparkException) as caught:
        load_by_index(spark, f"{lake}/index", wrong).collect()
    assert "no row 500 in row group 0" in one_line(caught.value)
    [row] = load_by_index(spark, f"{lake}/index", wrong, ["text"], "report").collect()
    assert row.text is None
    assert "no row there" in row.data_error
    assert row.data_error.endswith("pointer (0, 500)")


def test_pointers_of_two_kinds_are_refused(spark: SparkSession, lake: Path, pointers: DataFrame) -> None:
    one = pointers.where("n = 6").withColumn(
        "data_filename", F.concat(F.lit(f"file:{lake}/source/"), F.col("data_filename"))
    )
    both = one.union(of_dione(pointers, lake).where("n = 9"))
    with pytest.raises(PySparkException) as caught:
        load_by_index(spark, f"{lake}/index", both.coalesce(1)).collect()
    assert "pointers of Dione's (with a data_size below 0) among others" in one_line(caught.value)


@pytest.mark.parametrize("kind", ["ours", "dione"])
def test_rows_of_files_without_an_index(spark: SparkSession, lake: Path, pointers: DataFrame, kind: str) -> None:
    whole = pointers.withColumn("data_filename", F.concat(F.lit(f"{lake}/source/"), F.col("data_filename")))
    named = of_dione(pointers, lake) if kind == "dione" else whole
    loaded = load_by_index(spark, None, named.select("dt", *POINTER_COLUMNS))
    assert loaded.columns == ["dt", "k", "n", "text", "list"]
    expected = load_by_index(spark, f"{lake}/index", pointers.select("dt", *POINTER_COLUMNS), loaded.columns[1:])
    assert same(loaded, expected)


def test_without_an_index_what_is_unknown_is_said(spark: SparkSession, lake: Path, pointers: DataFrame) -> None:
    few = pointers.where("n in (6, 9)").select(*POINTER_COLUMNS)
    whole = few.withColumn("data_filename", F.concat(F.lit(f"{lake}/source/"), F.col("data_filename")))
    with pytest.raises(StalePointer, match=r"x\.parquet: there is no such file"):
        load_by_index(spark, None, few.withColumn("data_filename", F.lit(f"{lake}/x.parquet")), ["text"])
    with pytest.raises(UsageError, match="no row has a data_filename"):
        load_by_index(spark, None, few.where("false"))
    with pytest.raises(UsageError, match="a column wrong; the source has k, n, text, list"):
        load_by_index(spark, None, whole, ["wrong"])
    gone = whole.union(whole.limit(1).withColumn("data_filename", F.lit(f"{lake}/x.parquet")))
    rows = load_by_index(spark, None, gone, ["text"], "report").collect()
    assert sorted(row.text is None for row in rows) == [False, False, True]
