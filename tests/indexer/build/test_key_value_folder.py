"""DataFrames as key-value folders, and key-value folders in Spark's jobs. tests/jobs/build/test_key_value_folder.py has
the rules, test_engines.py compares the bytes of both engines."""

import decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql.types import StringType

from gnomon.indexer import filter_new, join_with_index, load, read_index, write_btree
from gnomon.indexer.dedup.append import append_new
from gnomon.shadow import BTreeError, UsageError
from gnomon.shadow.storage import storage_at
from gnomon.shadow.verify.snapshot import verify
from tests.jobs.build.test_key_value_folder import DAYS, PARTITION_VALUES, days, table
from tests.opened import open_index

pytestmark = pytest.mark.spark
HAS_COLLATIONS = hasattr(StringType(), "collation")  # of Spark


@pytest.fixture
def location(tmp_path: Path) -> str:
    return str(tmp_path / "values")


def test_rows_of_a_frame_are_written_added_and_replaced(spark: SparkSession, location: str) -> None:
    """Under names that Spark has to quote, by its own plan for partitions, nulls among them."""
    columns = "`k.1` int, `p``2` string, `v.3` int"
    write_btree(spark.createDataFrame([(1, "x", 2), (2, None, 3)], columns), location, ["k.1"], partitions=["p`2"])
    more = spark.createDataFrame([(1, None, 4), (None, "y", 5)], columns)
    added = write_btree(more, location, ["k.1"], mode="append", partitions=["p`2"])
    assert (added.snapshot, added.rows, added.total_rows) == (2, 2, 4)
    index = open_index(location)
    assert sorted(index.get(1), key=str) == [{"k.1": 1, "v.3": 2, "p`2": "x"}, {"k.1": 1, "v.3": 4, "p`2": None}]
    assert [index.get(key) for key in (2, None)] == [
        [{"k.1": 2, "v.3": 3, "p`2": None}],
        [{"k.1": None, "v.3": 5, "p`2": "y"}],
    ]
    assert verify(storage_at(location), sample=None).is_sound
    replaced = write_btree(spark.createDataFrame([("x", 1)], "k string, v int"), location, ["k"], mode="overwrite")
    assert (replaced.total_rows, open_index(location).get("x")) == (1, [{"k": "x", "v": 1}])
    none = write_btree(spark.createDataFrame([], "k string, v int"), location, ["k"], mode="overwrite")
    assert (none.total_rows, none.index_files) == (0, 0)


def test_the_folder_of_a_value_does_not_depend_on_the_session_or_the_engine(
    spark: SparkSession, location: str, tmp_path: Path
) -> None:
    """Spark writes the text of a small decimal as 1E-8 in some sessions, as 0.00000001 in others."""
    rows = table(
        [(k, day, decimal.Decimal(k - 1) / 10**8) for k, day in enumerate((3_700_000, -800_000, -719_528, 0, None))],
        "k int, d date, z decimal(18,8)",
    )
    rows = rows.append_column("v", rows["k"])
    pq.write_table(rows, tmp_path / "rows.parquet")
    before = spark.conf.get("spark.sql.ansi.enabled")
    try:
        for number, ansi in enumerate(("false", "true")):
            spark.conf.set("spark.sql.ansi.enabled", ansi)
            frame = spark.read.parquet(str(tmp_path / "rows.parquet"))
            write_btree(frame, location, ["k"], mode="append" if number else "error", partitions=["d", "z"])
    finally:
        spark.conf.set("spark.sql.ansi.enabled", str(before))
    write_btree(rows, location, ["k"], mode="append", partitions=["d", "z"])
    index = open_index(location)
    assert sorted(index.spec.folder_buckets) == [
        "d=+12100-04-04/z=-0.00000001",
        "d=-0221-09-04/z=0.00000000",
        "d=0000-01-01/z=0.00000001",
        "d=1970-01-01/z=0.00000002",
        "d=__HIVE_DEFAULT_PARTITION__/z=0.00000003",
    ]
    assert [len(index.get(k)) for k in range(5)] == [3] * 5
    assert verify(storage_at(location), sample=None).is_sound


def test_an_error_of_a_task_reaches_the_caller_and_nothing_is_committed(spark: SparkSession, location: str) -> None:
    with pytest.raises(BTreeError, match=r"makes an entry of .* bytes, the limit is"):
        write_btree(spark.range(1).selectExpr("id", "repeat('x', 5 << 20) v"), location, ["id"])
    assert not list(Path(location).rglob("*.json"))


def test_an_expensive_frame_is_evaluated_once(spark: SparkSession, location: str) -> None:
    calls = spark.sparkContext.accumulator(0)

    def counted(rows: Any) -> Any:
        for row in rows:
            calls.add(1)
            yield row

    frame = spark.createDataFrame(
        spark.sparkContext.range(100, numSlices=3).map(lambda i: Row(i, str(i))).mapPartitions(counted),
        "k int, v string",
    )
    write_btree(frame, location, ["k"], buckets=2)
    assert calls.value == 100
    assert not frame.is_cached


@pytest.mark.parametrize(
    ("columns", "what"),
    [
        ("k int, v array<int>", r"column v of type array<int> cannot be stored; write it as text, with to_json"),
        ("k map<string,int>, v int", r"column k of type map<string,int>"),
        pytest.param(
            "k int, v string collate utf8_lcase",
            r"column v of type string collate UTF8_LCASE",
            marks=pytest.mark.skipif(not HAS_COLLATIONS, reason="Spark has collations since 4.0"),
        ),
        ("k int, v interval day", r"column v of type interval day"),
        ("k int, v void", r"column v of type void"),
        ("k int, v int, v int", "column v: there are several"),
    ],
)
def test_columns_of_spark_that_cannot_be_stored_are_named(
    spark: SparkSession, location: str, columns: str, what: str
) -> None:
    with pytest.raises(UsageError, match=what):
        write_btree(spark.createDataFrame([], columns), location, ["k"])
    assert not Path(location).exists()


def test_jobs_of_spark_refuse_a_folder_where_a_source_is_needed(classic: SparkSession, location: str) -> None:
    spark = classic
    frame = spark.createDataFrame([(1, "a")], "k int, v string")
    write_btree(table([(1, "a")], "k int, v string"), location, ["k"])
    for refused in (
        lambda: load(spark, location, frame.select("k")),
        lambda: append_new(spark, location, frame, "batch"),
        lambda: read_index(spark, location),
    ):
        with pytest.raises(UsageError, match="a key-value folder"):
            refused()
    others = spark.createDataFrame([(1,), (2,), (None,)], "k int")
    assert {row.k for row in filter_new(spark, location, others).collect()} == {2, None}


def test_a_join_returns_the_rows_of_a_folder_without_shuffling_them(spark: SparkSession, tmp_path: Path) -> None:
    folder = str(tmp_path / "folder")
    columns = "cast(id % 300 as int) k", "if(id % 7 = 0, null, concat('v', id)) text", "id * 1.5 number"
    first, second = (spark.range(*ids).selectExpr(*columns) for ids in ((0, 500), (500, 900)))
    write_btree(first, folder, ["k"], buckets=3)
    write_btree(second, folder, ["k"], mode="append")
    sample = spark.createDataFrame([(7, "a"), (7, "b"), (150, "c"), (999, "d"), (None, "e")], "k int, tag string")
    joined = join_with_index(spark, folder, sample)
    assert joined.columns == ["k", "tag", "text", "number"]
    plan = joined._jdf.queryExecution().executedPlan().toString()  # before it runs: later it shows two plans
    assert (plan.count("Exchange"), plan.count("Scan ExistingRDD")) == (1, 1)
    rows = first.union(second)
    expected = sample.join(rows, "k").select(joined.columns)
    assert sorted(map(repr, joined.collect())) == sorted(map(repr, expected.collect()))
    left = join_with_index(spark, folder, sample, how="left").where("text is null and number is null")
    assert sorted(row.tag for row in left.collect()) == ["d", "e"]


def test_a_join_of_values_that_repeat_without_end_stays_small(spark: SparkSession, tmp_path: Path) -> None:
    """A key with many rows: each row of the sample gets all of them."""
    folder = str(tmp_path / "folder")
    write_btree(pa.table({"k": pa.array([1] * 50_000, pa.int32()), "id": range(50_000)}), folder, ["k"], buckets=1)
    sample = spark.createDataFrame([(1,), (1,)], "k int")
    assert join_with_index(spark, folder, sample).groupBy("id").count().where("count = 2").count() == 50_000


@pytest.mark.parametrize("kind", PARTITION_VALUES)
def test_a_join_gives_partition_values_in_their_type(spark: SparkSession, location: str, kind: str) -> None:
    rows = [(f"k{i}", value, i) for i, value in enumerate(PARTITION_VALUES[kind])]
    write_btree(table(rows, f"k string, p {kind}, i int"), location, ["k"], partitions=["p"])
    sample = spark.createDataFrame([(k,) for k, *_ in rows], "k string")
    joined = join_with_index(spark, location, sample)
    assert joined.schema["p"].dataType.simpleString() == kind
    assert sorted(map(str, joined.select("k", "p", "i").collect())) == sorted(
        map(str, (Row(k=k, p=p, i=i) for k, p, i in rows))
    )


def test_a_join_within_partitions_gives_their_rows(spark: SparkSession, location: str) -> None:
    write_btree(days({DAYS[0]: 30, DAYS[1]: 3, None: 2}), location, ["n"], partitions=["day"])
    sample = spark.createDataFrame([(1, DAYS[0]), (1, DAYS[1]), (20, DAYS[1]), (2, DAYS[2])], "n bigint, day date")
    joined = join_with_index(spark, location, sample, within=["day"])
    assert sorted(map(tuple, joined.select("n", "day", "v").collect())) == [(1, DAYS[0], "v1"), (1, DAYS[1], "v1")]
    fresh = filter_new(spark, location, sample, scope="partition")
    assert sorted(map(tuple, fresh.collect())) == [(2, DAYS[2]), (20, DAYS[1])]
