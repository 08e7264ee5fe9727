"""Index tables of Dione's in the catalog: taken over, and written."""

import tarfile
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from gnomon.indexer import build, export_dione, import_dione
from gnomon.shadow import UsageError
from tests.golden.dione_tables import DioneTable, read_rows, read_tables
from tests.jobs.dione.test_import import contents

ITS_OWN = {table.name: table for table in read_tables() if table.name in ("avro", "parquet", "sequence", "orc_ki_ks")}
COLUMNS = "k string, n bigint, v string"
DAYS = ("2026-01-01", "2026-01-02")
ROWS = 400


@pytest.fixture
def data(spark: SparkSession, database: str) -> str:
    """A table of two days, some of whose keys occur twice."""
    spark.sql(f"CREATE TABLE {database}.data ({COLUMNS}) PARTITIONED BY (dt string) STORED AS PARQUET")
    for number, day in enumerate(DAYS):
        add_day(spark, f"{database}.data", day, number)
    return f"{database}.data"


def add_day(spark: SparkSession, table: str, day: str, number: int) -> None:
    rows = f"SELECT concat('k', id % {ROWS - 7}), id + {number}, concat('v', id) FROM range({ROWS})"
    spark.sql(f"INSERT INTO {table} PARTITION (dt = '{day}') {rows}")


def test_a_written_table_is_read_by_spark_and_taken_over(
    spark: SparkSession, database: str, data: str, tmp_path: Path
) -> None:
    build(spark, f"table:{data}", tmp_path / "index", ["k"], ["n"])
    dione = f"{database}.data_index"
    written = export_dione(spark, tmp_path / "index", f"table:{dione}")
    assert (written.rows, written.partitions) == (2 * ROWS, 2)
    spark.sql(f"REFRESH TABLE {dione}")
    keys = [spark.table(name).select("k", "n", "dt").orderBy("k", "n", "dt").collect() for name in (dione, data)]
    assert keys[0] == keys[1]
    properties = {row["key"]: row["value"] for row in spark.sql(f"SHOW TBLPROPERTIES {dione}").collect()}
    assert properties["index.meta.dataTableName"] == data
    result = import_dione(spark, f"table:{dione}", tmp_path / "again")
    assert (result.build.rows, result.left_out) == (2 * ROWS, [])
    assert contents(tmp_path / "again") == contents(tmp_path / "index")


@pytest.mark.parametrize("table", ITS_OWN.values(), ids=ITS_OWN)
def test_a_table_that_diones_job_declared_is_taken_over(
    spark: SparkSession, database: str, tmp_path: Path, table: DioneTable
) -> None:
    with tarfile.open(table.archive) as archive:
        archive.extractall(tmp_path, filter="data")
    keys = table.indexes[-1]
    index = f"{table.name}_{'_'.join(keys)}"
    for name, statement in ((table.name, table.statements[0]), (index, table.statements[-1])):
        declared = statement.replace(table.root, f"file:{tmp_path}").replace("dione.", f"{database}.")
        head, properties, rest = declared.rpartition("TBLPROPERTIES")
        spark.sql(f"{head} LOCATION '{tmp_path}/{name}' {properties}{rest}")
        spark.sql(f"MSCK REPAIR TABLE {database}.{name}")
    found = import_dione(spark, f"table:{database}.{index}", tmp_path / "imported", moved={table.root: str(tmp_path)})
    assert (found.left_out, found.build.rows) == ([], len(read_rows()))
    build(spark, f"table:{database}.{table.name}", tmp_path / "built", keys, table.include)
    assert contents(tmp_path / "imported") == contents(tmp_path / "built")


def test_a_table_follows_the_index(spark: SparkSession, database: str, data: str, tmp_path: Path) -> None:
    dione = f"{database}.data_index"
    build(spark, f"table:{data}", tmp_path / "index", ["k"])
    export_dione(spark, tmp_path / "index", f"table:{dione}", location=tmp_path / "dione")
    add_day(spark, data, "2026-01-03", 3)
    spark.sql(f"ALTER TABLE {data} DROP PARTITION (dt = '{DAYS[0]}')")
    build(spark, f"table:{data}", tmp_path / "index", ["k"])
    found = export_dione(spark, tmp_path / "index", f"table:{dione}")
    assert (found.written, found.removed) == (["dt=2026-01-03"], [f"dt={DAYS[0]}"])
    spark.sql(f"REFRESH TABLE {dione}")
    counts = {row["dt"]: row["count"] for row in spark.table(dione).groupBy("dt").count().collect()}
    assert counts == {DAYS[1]: ROWS, "2026-01-03": ROWS}


def test_other_tables_are_refused(spark: SparkSession, database: str, data: str, tmp_path: Path) -> None:
    build(spark, f"table:{data}", tmp_path / "index", ["k"])
    with pytest.raises(UsageError, match="another table has this name"):
        export_dione(spark, tmp_path / "index", f"table:{data}")
    with pytest.raises(UsageError, match="expected an index table of Dione's"):
        import_dione(spark, f"table:{data}", tmp_path / "again")
    with pytest.raises(UsageError, match="declared by Spark; name a folder"):
        export_dione(None, tmp_path / "index", f"table:{database}.data_index")
    with pytest.raises(UsageError, match="is one already; name a table"):
        export_dione(spark, tmp_path / "index", tmp_path / "dione", location=tmp_path)
    export_dione(spark, tmp_path / "index", f"table:{database}.data_index")
    build(spark, f"table:{data}", tmp_path / "other", ["n"])
    with pytest.raises(UsageError, match=r"index\.meta\.keys is of another index; .*expected n, found k"):
        export_dione(spark, tmp_path / "other", f"table:{database}.data_index")
