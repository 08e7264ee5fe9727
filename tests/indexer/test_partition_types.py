"""Partition columns of a table in their own types: in Spark SQL over an index, in loads, appends, and joins within
partitions."""

import datetime as dt
from collections import Counter
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from gnomon.indexer import append_new, build, join_with_index, load, read_index
from gnomon.shadow import UsageError
from tests.spark_fixtures import to_arrow

pytestmark = pytest.mark.spark

KINDS = {"n": "int", "day": "date", "price": "decimal(6,2)", "word": "string"}


@pytest.fixture
def data(spark: SparkSession, database: str) -> str:
    columns = ", ".join(f"{name} {kind}" for name, kind in KINDS.items())
    spark.sql(f"CREATE TABLE {database}.data (k bigint, {columns}) USING parquet PARTITIONED BY ({', '.join(KINDS)})")
    spark.sql(
        f"INSERT INTO {database}.data SELECT id % 5, nullif(id % 3, 2), date '1200-02-28' + int(id % 2), 1.50, 'x' "
        "FROM range(0, 30, 1, 1)"
    )
    return f"{database}.data"


def bag(rows: DataFrame) -> Counter[str]:
    return Counter(map(str, rows.collect()))


@pytest.mark.parametrize("flat", [False, True])
def test_partition_values_are_compared_and_given_in_their_types(
    spark: SparkSession, data: str, tmp_path: Path, flat: bool
) -> None:
    index, rows, names = str(tmp_path / "index"), spark.table(data), ["k", *KINDS]
    build(spark, f"table:{data}", index, ["k"], flat=flat, buckets=2)
    entries = read_index(spark, index)
    assert {name: entries.schema[name].dataType.simpleString() for name in KINDS} == KINDS
    for condition in (
        "true",
        "n = 1",
        "n is null",
        "n in (0, 1) and k = 3",
        "day = date '1200-03-01'",
        "price = 1.5 and k = 2",
    ):
        assert bag(entries.where(condition).select(names)) == bag(rows.where(condition).select(names)), condition
    sample = (
        rows.where("k < 3").select("k", "n", "day").distinct().union(rows.where("k = 1").select("k", F.lit(9), "day"))
    )
    within = join_with_index(spark, index, sample, within=["n", "day"])
    expected = sample.join(rows, ["k", "n", "day"])
    assert bag(within.select(names)) == bag(expected.select(names))
    everywhere = join_with_index(spark, index, spark.range(3).toDF("k"))
    assert bag(everywhere.select(names)) == bag(rows.where("k < 3").select(names))


def test_a_lake_table_gives_and_takes_the_same_typed_partitions_with_spark_and_without(
    spark: SparkSession, tmp_path: Path
) -> None:
    typed = pa.schema([("id", pa.int64()), ("b", pa.bool_()), ("d", pa.date32()), ("p", pa.decimal128(5, 2))])
    old = pa.table([[0, 1], [True, None], [dt.date(2026, 1, 1), None], [Decimal("1.50"), None]], typed)
    rows = [[2, 0, 3], [False, None, None], [dt.date(9999, 12, 31), None, None], [Decimal("0.01"), None, Decimal(7)]]
    texts = pa.table({"id": [4, 0], "b": ["True", "true"], "d": ["20260101"] * 2, "p": ["15e-1", "1.500"]})
    junk = pa.table({"id": [9], "b": ["true"], "d": ["2026-01-01 junk"], "p": ["1"]})
    names = {"here": None, "there": spark}
    for name, engine in names.items():
        table, index = str(tmp_path / name), str(tmp_path / f"index {name}")
        write_deltalake(table, old, partition_by=typed.names[1:])
        build(None, f"delta:{table}", index, ["id"], buckets=1)
        assert append_new(engine, index, pa.table(rows, typed), "typed", scope="partition").appended == 3
        assert append_new(engine, index, texts, "texts", scope="partition").already_loaded == 1
        with pytest.raises(UsageError, match=r"^batch: partition column d: expected date, found '2026-01-01 junk'$"):
            append_new(engine, index, junk, "junk")
    for name, engine in {"here": spark, "there": None}.items():  # the other engine has the same digest
        assert append_new(engine, str(tmp_path / f"index {name}"), pa.table(rows, typed), "typed").known_batch
    here, there = (DeltaTable(tmp_path / name).to_pyarrow_table().cast(typed) for name in names)
    order = [(name, "ascending") for name in typed.names]
    assert there.sort_by(order).equals(here.sort_by(order))
    index, keys = str(tmp_path / "index there"), spark.range(9).toDF("id")
    for frame in (read_index(spark, index), join_with_index(spark, index, keys), load(spark, index, keys)):
        assert to_arrow(frame.select(typed.names)).cast(typed).sort_by(order).equals(here.sort_by(order))
        assert [frame.schema[name].dataType.simpleString() for name in "bdp"] == ["boolean", "date", "decimal(5,2)"]
