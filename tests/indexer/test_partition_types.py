"""Partition columns of a catalog table in their own types: in Spark SQL over an index, and in joins within
partitions."""

from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from gnomon.indexer import build, join_with_index, read_index

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
