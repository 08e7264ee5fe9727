"""Tables of Spark's catalog as sources: which files they have, and of which partitions these are."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from indexer import build
from shadow import open_index
from tests.indexer.catalog_tables import COLUMNS, rows, same_rows, write

pytestmark = pytest.mark.spark


@pytest.fixture
def crawl(spark: SparkSession, database: str, tmp_path: Path) -> str:
    """A Hive table of four partitions: one in its place, one in a folder with another name and a blank, one far away,
    and one without files; and a folder that looks like a partition and is none."""
    root = tmp_path / "crawl"
    spark.sql(
        f"CREATE EXTERNAL TABLE {database}.crawl ({COLUMNS}) PARTITIONED BY (dt DATE, n1 INT) STORED AS PARQUET "
        f"LOCATION '{root}'"
    )
    places = {
        ("2020-10-04", 7): root / "dt=2020-10-04/n1=7",
        ("2020-10-05", 7): root / "the rest",
        ("2020-10-06", 8): tmp_path / "far/away",
        ("2020-10-07", 8): tmp_path / "empty",
    }
    for (day, n1), place in places.items():
        spark.sql(f"ALTER TABLE {database}.crawl ADD PARTITION (dt='{day}', n1={n1}) LOCATION '{place}'")
    write(places["2020-10-04", 7], rows(0, 50))
    write(places["2020-10-05", 7], rows(40, 80))
    write(places["2020-10-06", 8], rows(80, 100))
    write(root / "dt=2020-10-09/n1=7", rows(900, 910))
    return f"{database}.crawl"


def test_a_tables_rows_are_found_wherever_its_partitions_lie(spark: SparkSession, crawl: str, tmp_path: Path) -> None:
    index = str(tmp_path / "index")
    result = build(spark, f"table:{crawl}", index, ["url"])
    assert (result.rows, result.new_files) == (110, 3)
    assert same_rows(spark, crawl, index) == 110
    assert open_index(index).fetch("u900") == []
    paths = set(open_index(index).view.covered)
    assert paths == {"dt=2020-10-04/n1=7/a.parquet", "the rest/a.parquet", f"{tmp_path}/far/away/a.parquet"}
    assert (tmp_path / "index/dt=2020-10-05/n1=7").is_dir()
    again = build(spark, f"table:spark_catalog.{crawl}", index, ["url"])
    assert (again.committed, again.snapshot) == (False, 1)
