"""Spark's jobs by a key in a struct give the rows of Spark's own joins on it."""

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from gnomon.indexer import append_new, build, filter_new, join_with_index, load, load_by_index, read_index, upsert
from gnomon.jobs.dedup import delete
from gnomon.shadow import UsageError, open_index
from tests.spark_fixtures import to_arrow

pytestmark = pytest.mark.spark
KEY, NUMBER = "payload.order.id", "payload.order.n"


def rows(spark: SparkSession, begin: int, end: int) -> DataFrame:
    """Rows with null structs, null keys, and keys of several rows."""
    key = F.when(F.col("id") % 7 == 0, None).otherwise(F.concat(F.lit("k"), F.col("id") % 100))
    number = F.when(F.col("id") % 5 != 4, F.col("id").cast("int"))
    order = F.when(F.col("id") % 11 != 0, F.struct(key.alias("id"), number.alias("n")))
    payload = F.when(F.col("id") % 13 != 0, F.struct(order.alias("order"), number.cast("string").alias("blob")))
    return spark.range(begin, end, 1, 3).select(payload.alias("payload"), F.col("id").alias("z"))


def same(left: DataFrame, right: DataFrame) -> bool:
    return not left.exceptAll(right).take(1) and not right.exceptAll(left).take(1)


@pytest.mark.parametrize("format", ["parquet", "orc", "json"])
def test_spark_builds_the_index_that_this_process_builds(spark: SparkSession, tmp_path: Path, format: str) -> None:
    rows(spark, 0, 600).write.format(format).save(f"{tmp_path}/source")
    options = {"format": "jsonl"} if format == "json" else {}
    build(spark, f"{tmp_path}/source", f"{tmp_path}/index", [KEY, NUMBER], buckets=3, **options)
    build(None, f"{tmp_path}/source", f"{tmp_path}/local", [KEY, NUMBER], buckets=3, **options)
    assert same(read_index(spark, f"{tmp_path}/index"), read_index(spark, f"{tmp_path}/local"))
    assert [one["z"] for one in open_index(f"{tmp_path}/index").fetch({KEY: "k5", NUMBER: 205})] == [205]
    assert read_index(spark, f"{tmp_path}/index").where(f"`{KEY}` = 'k5' AND `{NUMBER}` = 205").count() == 1


def test_loads_and_joins_are_those_of_spark(spark: SparkSession, tmp_path: Path) -> None:
    rows(spark, 0, 600).write.parquet(f"{tmp_path}/source")
    index, source = f"{tmp_path}/index", spark.read.parquet(f"{tmp_path}/source")
    build(spark, f"{tmp_path}/source", index, [KEY], buckets=3)
    texts = [(f"k{i}", i) for i in range(90, 110)] + [(None, -1)]
    keys = spark.createDataFrame(texts, f"`{KEY}` string, tag int")
    expected = keys.join(source, keys[f"`{KEY}`"] == source.payload.order.id).select(*keys_of(keys), "payload", "z")
    assert same(load(spark, index, keys), expected)
    assert expected.count() > 20
    pointers = join_with_index(spark, index, keys)
    assert pointers.count() == expected.count()
    assert same(load_by_index(spark, index, pointers).select(*keys_of(keys), "payload", "z"), expected)
    within = rows(spark, 90, 110).withColumnRenamed("z", "tag")  # the key in its struct
    of_struct = join_with_index(spark, index, within, "left")
    assert of_struct.columns[:2] == ["payload", "tag"]
    assert not [name for name in of_struct.columns if name.startswith("__")]
    joined = within.alias("w").join(
        source.alias("s"), F.col("w.payload.order.id") == F.col("s.payload.order.id"), "left"
    )
    assert same(of_struct.select("payload", "tag"), joined.select("w.payload", "tag"))
    numbers = spark.createDataFrame([(5,)], "x int")
    with pytest.raises(UsageError, match=f"the key column {KEY} is missing; it has x"):
        load(spark, index, numbers)
    with pytest.raises(UsageError, match=f"column payload is no struct with the key {KEY}"):
        load(spark, index, numbers.withColumnRenamed("x", "payload"))


def keys_of(keys: DataFrame) -> list[str]:
    return [f"`{name}`" for name in keys.columns]


def test_a_key_of_another_type_is_compared_by_value(spark: SparkSession, tmp_path: Path) -> None:
    rows(spark, 0, 100).write.parquet(f"{tmp_path}/source")
    build(spark, f"{tmp_path}/source", f"{tmp_path}/index", [NUMBER])
    for kind in ("bigint", "string", "double"):
        given = spark.createDataFrame([(5,), (8,)], "n int").select(F.col("n").cast(kind).alias("n"))
        in_struct = given.select(F.struct(F.struct("n").alias("order")).alias("payload"))
        for sample in (given.withColumnRenamed("n", NUMBER), in_struct):
            found = join_with_index(spark, f"{tmp_path}/index", sample)
            assert (found.count(), len(found.columns)) == (2, 5)


def test_appends_add_each_key_once(spark: SparkSession, tmp_path: Path) -> None:
    rows(spark, 0, 60).write.parquet(f"{tmp_path}/source")
    index = f"{tmp_path}/index"
    build(spark, f"{tmp_path}/source", index, [KEY])
    batch = rows(spark, 40, 90)
    new = filter_new(spark, index, batch)
    known = {row.id for row in rows(spark, 0, 60).select("payload.order.id").collect()}
    wanted = {row.id for row in batch.select("payload.order.id").collect()} - known
    assert {row.id for row in new.select("payload.order.id").collect()} == wanted
    assert (new.columns, new.count()) == (batch.columns, len(wanted))
    done = append_new(spark, index, batch, "one", report=f"{tmp_path}/rejected")
    assert done.appended == len(wanted) > 20
    assert append_new(None, index, to_arrow(batch), "two").appended == 0
    source = spark.read.parquet(f"{tmp_path}/source")
    assert source.columns == ["payload", "z"]
    assert source.where("payload.order.id IS NOT NULL").count() == open_index(index).count() - len(
        open_index(index).fetch({KEY: None})
    )


def test_deletes_and_upserts_of_frames_change_the_rows_of_their_keys(spark: SparkSession, tmp_path: Path) -> None:
    from deltalake import write_deltalake

    write_deltalake(f"{tmp_path}/table", to_arrow(rows(spark, 0, 60)))
    index = f"{tmp_path}/index"
    build(None, f"delta:{tmp_path}/table", index, [KEY])
    keys = spark.createDataFrame([("k5",), ("absent",)], f"`{KEY}` string")
    assert delete(spark, index, keys).rows_deleted == 1
    in_struct = rows(spark, 6, 7)
    assert delete(spark, index, in_struct).rows_deleted == 1
    order = pa.array(
        [{"order": {"id": "k8", "n": 1}, "blob": "new"}],
        open_index(index).table_many(["k8"]).schema.field("payload").type,
    )
    batch = spark.createDataFrame(pa.table({"payload": order, "z": pa.array([1000], pa.int64())}))
    assert upsert(spark, index, batch, "one").rows_deleted == 1
    opened = open_index(index)
    assert [len(opened.fetch(key)) for key in ("k5", "k6", "k8", "k9")] == [0, 0, 1, 1]
    assert opened.fetch("k8")[0]["z"] == 1000


def test_a_table_of_the_catalog_declares_the_structs(spark: SparkSession, tmp_path: Path, database: str) -> None:
    rows(spark, 0, 100).write.format("orc").saveAsTable(f"{database}.t")
    index = f"{tmp_path}/index"
    build(spark, f"table:{database}.t", index, [KEY])
    assert {one["z"] for one in open_index(index).fetch("k5")} == {5}
    rows(spark, 105, 106).write.format("orc").insertInto(f"{database}.t")
    build(spark, f"table:{database}.t", index, [KEY])
    assert {one["z"] for one in open_index(index).fetch("k5")} == {5}


def test_sql_has_the_key_beside_the_struct(spark: SparkSession, tmp_path: Path) -> None:
    rows(spark, 0, 300).write.parquet(f"{tmp_path}/source")
    build(spark, f"{tmp_path}/source", f"{tmp_path}/index", [KEY], buckets=2)
    wide = read_index(spark, f"{tmp_path}/index", payload=True)
    assert {"payload", "z", KEY} <= set(wide.columns)
    source = spark.read.parquet(f"{tmp_path}/source")
    for condition in (f"`{KEY}` = 'k5'", "payload.order.id = 'k5'", f"`{KEY}` IS NULL AND z < 30"):
        plain = condition.replace(f"`{KEY}`", "payload.order.id")
        assert same(wide.where(condition).select("payload", "z"), source.where(plain))
        assert source.where(plain).count() > 0
