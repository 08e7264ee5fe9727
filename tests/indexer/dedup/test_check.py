"""The new rows of a batch."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from gnomon import shadow
from gnomon.indexer import filter_new
from gnomon.indexer.dedup import check as dedup_module
from gnomon.shadow.maintenance import rebucket
from gnomon.shadow.storage import storage_at
from tests.shadow.make_index import index_source, write_source

pytestmark = pytest.mark.spark

SCHEMA = "id int, a string, b string, payload string"


@pytest.fixture
def index(tmp_path: Path) -> str:
    """Rows 0..99 in two partitions, keys (a, b), one key of nulls; indexed."""
    numbers = {part: range(part, 100, 2) for part in (0, 1)}
    tables = {
        f"id={part}/p.parquet": pa.table({"a": [f"a{i // 10}" for i in of], "b": [f"b{i % 10}" for i in of]})
        for part, of in numbers.items()
    }
    tables["id=0/null.parquet"] = pa.table({"a": pa.nulls(1, pa.string()), "b": pa.nulls(1, pa.string())})
    write_source(tmp_path / "source", tables)
    index_source(tmp_path / "source", tmp_path / "index", ["a", "b"], buckets=3)
    return str(tmp_path / "index")


def batch(spark: SparkSession, begin: int, end: int, extra: list[tuple[object, ...]] | None = None) -> DataFrame:
    rows: list[tuple[object, ...]] = [(i % 2, f"a{i // 10}", f"b{i % 10}", f"new {i}") for i in range(begin, end)]
    return spark.createDataFrame(rows + (extra or []), SCHEMA)


@pytest.mark.parametrize("order", ["hash", "range"])
def test_only_rows_whose_key_is_not_in_the_source_are_new(spark: SparkSession, index: str, order: str) -> None:
    rebucket(storage_at(index), 5, order=order)
    nulls = [(1, None, None, "null again"), (1, None, "b1", "half null"), (1, None, "b1", "half null too")]
    new = filter_new(spark, index, batch(spark, 90, 130, [*nulls, (1, "a10", "b0", "twice")]))
    keys = sorted((row.a or "", row.b or "") for row in new.collect())
    assert keys == sorted([(f"a{i // 10}", f"b{i % 10}") for i in range(100, 130)] + [("", "b1")])


def test_within_a_partition_only_its_own_keys_count(spark: SparkSession, index: str) -> None:
    rows = [(0, "a0", "b0", "known in 0"), (1, "a0", "b0", "new in 1"), (7, "a0", "b0", "new in 7")]
    frame = spark.createDataFrame([*rows, (7, "a0", "b0", "twice in 7"), (None, "x", "y", "in null")], SCHEMA)
    found = filter_new(spark, index, frame, scope="partition").collect()
    assert sorted(str(row.id) for row in found) == ["1", "7", "None"]
    with pytest.raises(shadow.UsageError, match="scope: expected one of table, partition"):
        filter_new(spark, index, frame, scope="all")
    with pytest.raises(shadow.UsageError, match="scope partition needs the column id"):
        filter_new(spark, index, frame.drop("id"), scope="partition")


def test_empty_text_and_null_are_one_partition(spark: SparkSession, tmp_path: Path) -> None:
    write_source(tmp_path / "source", {"dt=x/p.parquet": pa.table({"k": ["there"]})})
    index_source(tmp_path / "source", tmp_path / "index", ["k"], 1)
    frame = spark.createDataFrame([("k", ""), ("k", None), ("k", "x"), ("there", "")], "k string, dt string")
    found = filter_new(spark, str(tmp_path / "index"), frame, scope="partition").collect()
    assert sorted((row.k, row.dt or "") for row in found) == [("k", ""), ("k", "x"), ("there", "")]


def test_the_copy_that_is_kept_is_the_first_in_the_order_asked_for(spark: SparkSession, index: str) -> None:
    copies = [(i % 7 or None, "new", "key", f"copy {i}") for i in range(20)]
    frame = spark.createDataFrame(copies, SCHEMA).repartition(1)

    def kept(*order: str) -> str:
        return str(filter_new(spark, index, frame, order_by=order).collect()[0].payload)

    assert kept() == "copy 0", "without an order the first in the batch"
    assert kept("id") == "copy 1"
    assert kept("id desc") == "copy 6"
    assert kept("id desc", "payload desc") == "copy 6"
    assert kept("id", "payload") == "copy 1"
    assert kept("payload DESC") == "copy 9"
    with pytest.raises(shadow.UsageError, match="order_by: the batch has no column when; it has id, a, b, payload"):
        filter_new(spark, index, frame, order_by=["when desc"])
    with pytest.raises(shadow.UsageError, match="order_by: expected a list of column names"):
        filter_new(spark, index, frame, order_by="id")


def test_rows_with_a_null_in_their_key_are_as_asked_for(spark: SparkSession, index: str) -> None:
    rows = [(0, None, None, "known"), (0, None, "b", "one"), (1, None, "b", "two"), (0, "new", "b", "new")]
    frame = spark.createDataFrame(rows, SCHEMA)
    found = {
        how: sorted(row.payload for row in filter_new(spark, index, frame, null_keys=how).collect())
        for how in ("dedup", "keep", "reject")
    }
    assert found == {"dedup": ["new", "one"], "keep": ["known", "new", "one", "two"], "reject": ["new"]}
    with pytest.raises(shadow.UsageError, match="null_keys: expected one of dedup, keep, reject, found 'drop'"):
        filter_new(spark, index, frame, null_keys="drop")


def test_what_is_asked_of_the_new_rows_does_not_change_which_they_are(spark: SparkSession, index: str) -> None:
    """Spark does not filter the batch before the check, and does not drop the order of the copies."""
    frame = spark.createDataFrame([(1, "new", "k", "first"), (0, "new", "k", "second")], SCHEMA).repartition(1)
    new = filter_new(spark, index, frame, order_by=["id desc"])
    assert new.where("payload = 'second'").count() == 0
    assert new.where("payload = 'first'").count() == 1
    assert new.groupBy("a").agg(F.max("payload").alias("kept")).collect()[0].kept == "first"
    assert new.limit(1).count() == new.count() == 1


def test_copies_are_found_across_the_pieces_in_which_keys_are_looked_up(
    spark: SparkSession, index: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = dedup_module._status

    def status(*arguments: object) -> object:
        found = plain(*arguments)  # type: ignore[arg-type]

        def in_small_pieces(batches: object, counters: object) -> object:
            from gnomon.indexer.dedup import check

            check.CHUNK_ROWS = 3
            yield from found(batches, counters)  # type: ignore[arg-type]

        return in_small_pieces

    monkeypatch.setattr(dedup_module, "_status", status)
    rows = [(i % 2, f"a{i // 10}", "b0", f"copy {j}") for i in range(90, 120) for j in range(3)]
    frame = spark.createDataFrame(rows, SCHEMA).coalesce(1)
    found = filter_new(spark, index, frame).collect()
    assert sorted((row.a, row.payload) for row in found) == [("a10", "copy 0"), ("a11", "copy 0")]


def test_each_float_is_one_key_whatever_its_bits(spark: SparkSession, tmp_path: Path) -> None:
    write_source(tmp_path / "source", {"p.parquet": pa.table({"x": [1.5, float("nan")]})})
    index_source(tmp_path / "source", tmp_path / "index", ["x"], 2)
    bits = np.array([0x7FF8000000000001, 0xFFF8000000000000], np.uint64).view(np.float64)
    frame = spark.createDataFrame([(0.0,), (-0.0,), (float(bits[0]),), (float(bits[1]),), (1.5,), (2.5,)], "x double")
    assert sorted(row.x + 0 for row in filter_new(spark, str(tmp_path / "index"), frame).collect()) == [0.0, 2.5]


def test_filter_new_returns_the_rows_as_they_came_and_refuses_keys_it_cannot_compare(
    spark: SparkSession, tmp_path: Path
) -> None:
    write_source(tmp_path / "source", {"p.parquet": pa.table({"k": pa.array([5, 7], pa.int32())})})
    index_source(tmp_path / "source", tmp_path / "index", ["k"], 1)
    wide = spark.createDataFrame([(5,), (6,)], "k bigint")
    assert [row.k for row in filter_new(spark, str(tmp_path / "index"), wide).collect()] == [6]
    assert filter_new(spark, str(tmp_path / "index"), wide).schema == wide.schema
    for keys in (spark.createDataFrame([(5.7,)], "k double"), spark.createDataFrame([("abc",)], "k string")):
        with pytest.raises(Exception, match="batch: key column k: expected int, found"):
            filter_new(spark, str(tmp_path / "index"), keys).collect()
