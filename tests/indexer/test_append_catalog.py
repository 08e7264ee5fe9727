"""Appends to tables of Spark's catalog."""

import datetime as dt
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from gnomon.indexer import append_new, build
from gnomon.indexer.build import SparkEngine
from gnomon.shadow import UsageError
from gnomon.shadow.errors import StorageError
from tests.indexer.catalog_tables import COLUMNS, rows, same_rows, write
from tests.opened import open_index

pytestmark = pytest.mark.spark

DAYS = [dt.date(2026, 1, day) for day in range(1, 5)]


@pytest.mark.parametrize("declared", ["STORED AS PARQUET", "STORED AS ORC", "USING PARQUET"])
def test_new_rows_go_to_the_folders_of_their_partitions_and_new_partitions_are_registered(
    spark: SparkSession, database: str, tmp_path: Path, declared: str
) -> None:
    table, index = f"{database}.crawl", str(tmp_path / "index")
    if declared.startswith("STORED"):
        spark.sql(
            f"CREATE EXTERNAL TABLE {table} ({COLUMNS}) PARTITIONED BY (dt DATE, n1 INT) {declared} "
            f"LOCATION '{tmp_path / 'crawl'}'"
        )
    else:
        spark.sql(
            f"CREATE TABLE {table} ({COLUMNS}, dt DATE, n1 INT) {declared} PARTITIONED BY (dt, n1) "
            f"LOCATION '{tmp_path / 'crawl'}'"
        )
    place = tmp_path / "far away"
    spark.sql(f"ALTER TABLE {table} ADD PARTITION (dt='2026-01-01', n1=7) LOCATION '{place}'")
    if "ORC" in declared:
        spark.sql(f"INSERT INTO {table} PARTITION (dt='2026-01-01', n1=7) SELECT 'u' || id, id, 'old' FROM range(40)")
    else:
        write(place, rows(0, 40))
    build(spark, f"table:{table}", index, ["url"])
    new = [(f"u{n}", n, "new", DAYS[n % 3], 7) for n in range(30, 60)] + [("it's", 1, "q", None, 7)]
    frame = spark.createDataFrame(new, f"{COLUMNS}, dt date, n1 int")
    there = [row.url for row in spark.table(table).collect()]
    result = append_new(spark, index, frame, "batch")
    assert result.appended == sum(row[0] not in there for row in new)
    assert len(list(place.glob("part-*-batch-*"))) == 1, "a partition that lies elsewhere gets its rows there"
    registered = {row.partition for row in spark.sql(f"SHOW PARTITIONS {table}").collect()}
    assert registered == {f"dt={day}/n1=7" for day in [*map(str, DAYS[:3]), "__HIVE_DEFAULT_PARTITION__"]}
    assert same_rows(spark, table, index) == len(there) + result.appended
    assert open_index(index).coverage().is_empty
    assert append_new(spark, index, frame, "other").appended == 0


def test_a_partition_is_one_however_its_value_is_written_and_a_file_that_the_catalog_hides_is_an_error(
    spark: SparkSession, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, index, root = f"{database}.t", str(tmp_path / "index"), tmp_path / "t"
    spark.sql(f"CREATE EXTERNAL TABLE {table} ({COLUMNS}) PARTITIONED BY (n1 INT) STORED AS PARQUET LOCATION '{root}'")
    spark.sql(f"ALTER TABLE {table} ADD PARTITION (n1=2) LOCATION '{root}/n1=3'")
    write(root / "n1=3", rows(0, 5))
    build(spark, f"table:{table}", index, ["url"])
    texts = spark.createDataFrame([("a", 1, "x", "01"), ("b", 2, "x", "1")], f"{COLUMNS}, n1 string")
    assert append_new(spark, index, texts, "texts").partitions.keys() == {"n1=1"}
    with pytest.raises(UsageError, match="there cannot be a partition 'n1=3': another partition lies in its folder"):
        append_new(spark, index, spark.createDataFrame([("c", 3, "x", 3)], f"{COLUMNS}, n1 int"), "three")
    hidden = spark.createDataFrame([("d", 4, "x", 4)], f"{COLUMNS}, n1 int")
    monkeypatch.setattr(SparkEngine, "add_partitions", lambda *_: None)
    with pytest.raises(StorageError, match=r"append 2 of batch 'four' put 1 rows here, and the index does not see"):
        append_new(spark, index, hidden, "four")
    monkeypatch.undo()
    spark.sql(f"ALTER TABLE {table} ADD PARTITION (n1=4) LOCATION '{root}/n1=4'")
    assert append_new(spark, index, hidden, "four").appended == 1
    assert same_rows(spark, table, index) == 8
