"""Dione's API on tables of the catalog and on paths; rows compared with plain joins of the data."""

import ast
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from gnomon import shadow
from gnomon.indexer import IndexManager, build, declare_table
from gnomon.shadow.metadata.snapshot_view import open_view
from gnomon.shadow.storage import storage_at

pytestmark = pytest.mark.spark

COLUMNS = "message_id string, n bigint, var1 string, pairs map<string, string>"
DAYS = ["2018-10-04", "2018-10-05"]


def rows_of(spark: SparkSession, first: int = 0) -> DataFrame:
    """60 rows in two days; each key in three of them, two keys null."""
    number = F.col("id") % 20 + first
    return spark.range(0, 60, 1, 1).select(
        F.when(F.col("id") % 20 == 7, None).otherwise(F.concat(F.lit("msg_"), number)).alias("message_id"),
        number.alias("n"),
        F.concat(F.lit("v"), F.col("id") + first).alias("var1"),
        F.create_map(F.lit("a"), F.concat(F.lit("b"), F.col("id"))).alias("pairs"),
        F.when(F.col("id") < 30, DAYS[0]).otherwise(DAYS[1]).alias("dt"),
    )


def make_table(spark: SparkSession, table: str, stored_as: str, partition: str = "dt string") -> None:
    partitioned = f"PARTITIONED BY ({partition})" if partition else ""
    spark.sql(f"CREATE TABLE {table} ({COLUMNS}) {partitioned} STORED AS {stored_as}")
    rows = rows_of(spark) if partition else rows_of(spark).drop("dt")
    for day in DAYS if partition else ():
        value = day.replace("-", "") if "bigint" in partition else f"'{day}'"
        rows.where(F.col("dt") == day).drop("dt").createOrReplaceTempView("rows_of_a_day")
        spark.sql(f"INSERT INTO {table} PARTITION (dt = {value}) SELECT * FROM rows_of_a_day")
    if not partition:
        rows.createOrReplaceTempView("rows_of_a_day")
        spark.sql(f"INSERT INTO {table} SELECT * FROM rows_of_a_day")


def bag(rows: DataFrame) -> Counter[str]:
    return Counter(map(str, rows.collect()))


def test_an_index_of_a_table_is_kept_and_used_by_partition(spark: SparkSession, database: str) -> None:
    data, index = f"{database}.data", f"{database}.data_index"
    make_table(spark, data, "avro", "dt bigint")
    days = [day.replace("-", "") for day in DAYS]
    IndexManager.create_new(spark, data, index, ["message_id"], ["n"])
    manager = IndexManager.load(spark, index)
    assert (manager.keys, manager.more_fields) == (["message_id"], ["n"])
    assert manager.get_missing_partitions() == [[("dt", day)] for day in days]
    manager.append_new_partitions([[("dt", days[0])]])
    assert manager.get_missing_partitions() == [[("dt", days[1])]]
    assert spark.table(index).count() == 30
    manager.append_missing_partitions()
    assert manager.get_missing_partitions() == []

    rows = spark.table(data)
    assert spark.table(index).schema["dt"].dataType == rows.schema["dt"].dataType
    assert bag(spark.table(index).select("message_id", "n", "dt")) == bag(rows.select("message_id", "n", "dt"))
    assert bag(manager.get_index().select("message_id", "n", "dt")) == bag(rows.select("message_id", "n", "dt"))

    condition = "n in (3, 7) or message_id = 'msg_11'"
    chosen, expected = manager.get_index().where(condition), rows.where(condition)
    loaded = manager.load_by_index(chosen.union(chosen).union(chosen), ["var1"])
    assert sorted(loaded.columns) == ["dt", "message_id", "n", "var1"]
    thrice = expected.union(expected).union(expected)
    assert bag(loaded.select("message_id", "var1", "dt")) == bag(thrice.select("message_id", "var1", "dt"))
    of_table = manager.load_by_index(spark.table(index).where(condition))
    assert bag(of_table.select(rows.columns)) == bag(expected)

    asked = rows.where("n < 5").select("message_id", "dt").distinct()
    sample = asked.union(
        spark.createDataFrame([("none", int(days[0])), ("msg_3", 19990101)], "message_id string, dt bigint")
    )
    joined = manager.join_with_index(sample.withColumn("mine", F.lit(1)))
    assert joined.columns[:4] == ["message_id", "dt", "mine", "n"]
    expected = sample.join(rows, ["message_id", "dt"])
    assert bag(joined.select("message_id", "n", "dt")) == bag(expected.select("message_id", "n", "dt"))
    assert bag(manager.load_by_index(joined, ["var1"]).select("var1")) == bag(expected.select("var1"))

    found = manager.fetch(["msg_3"], [("dt", days[1])])
    assert found == {"message_id": "msg_3", "n": 3, "var1": "v43", "pairs": {"a": "b43"}}
    assert manager.fetch(["none"], [("dt", days[1])], ["var1"]) is None
    assert {row["var1"] for row in manager.fetch_all(["msg_3"], [("dt", int(days[0]))])} == {"v3", "v23"}
    assert [row["var1"] for row in manager.fetch_all(["msg_3"], None, ["var1"])] == ["v3", "v23", "v43"]
    assert {row["var1"] for row in manager.fetch_all([None], {"dt": days[0]})} == {"v7", "v27"}


@pytest.mark.parametrize(("stored_as", "partition"), [("orc", "dt date"), ("sequencefile", "dt string")])
def test_tables_of_each_format_are_loaded_and_fetched_from(
    spark: SparkSession, database: str, stored_as: str, partition: str
) -> None:
    make_table(spark, f"{database}.data", stored_as, partition)
    rows = spark.table(f"{database}.data")
    manager = IndexManager.create_new(spark, f"{database}.data", f"{database}.data_index", ["message_id"], ["n"])
    manager.append_missing_partitions()
    assert bag(spark.table(f"{database}.data_index").select("n", "dt")) == bag(rows.select("n", "dt"))
    loaded = manager.load_by_index(manager.get_index().where("n in (3, 7)"))
    assert bag(loaded.select(rows.columns)) == bag(rows.where("n in (3, 7)"))
    found = manager.fetch(["msg_3"], [("dt", DAYS[1])], ["pairs"])
    assert found == {"message_id": "msg_3", "pairs": {"a": "b43"}}


def test_the_page_for_those_who_come_from_dione_runs_as_it_stands(
    spark: SparkSession, database: str, tmp_path: Path
) -> None:
    page = (Path(__file__).parents[2] / "docs/guide/from-dione.md").read_text(encoding="utf-8")
    examples = "".join(re.findall(r"```python\n(.*?)```", page, re.DOTALL))
    columns = "url string, status int, html string, dt string"
    spark.sql(f"CREATE TABLE {database}.crawl ({columns}) USING parquet PARTITIONED BY (dt)")
    rows = "SELECT concat('https://a/', id), if(id = 2, 404, 200), concat('html ', id), '2026-01-0{day}' FROM range(4)"
    for day in (1, 2):
        spark.sql(f"INSERT INTO {database}.crawl {rows.format(day=day)}")
    names: dict[str, Any] = {"spark": spark}
    values = []
    here = examples.replace('"lake.', f'"{database}.').replace("table:lake.", f"table:{database}.")
    for statement in ast.parse(here.replace('"/indexes/', f'"{tmp_path}/')).body:
        if isinstance(statement, ast.Expr):
            values.append(eval(ast.unparse(statement), names))
        else:
            exec(ast.unparse(statement), names)
    missing, one, every, errors, joined, built, again, written, found = (one for one in values if one is not None)
    assert missing == [[("dt", "2026-01-01")], [("dt", "2026-01-02")]]
    assert one == {"url": "https://a/1", "html": "html 1"}
    assert every == [{"url": "https://a/1", "status": 200, "html": "html 1"}] * 2
    not_found = [("https://a/2", "html 2", "2026-01-01"), ("https://a/2", "html 2", "2026-01-02")]
    for loaded in (errors, again):
        assert sorted((row.url, row.html, row.dt) for row in loaded.collect()) == not_found
    assert [(row.url, row.html, row.dt) for row in joined.collect()] == [("https://a/1", "html 1", "2026-01-01")]
    assert (built.rows, written.rows) == (8, 8)
    assert sorted(found, key=lambda row: row["dt"]) == [
        {"url": "https://a/2", "status": 404, "dt": day} for day in ("2026-01-01", "2026-01-02")
    ]


def test_an_index_lies_in_the_folder_of_its_database(spark: SparkSession, database: str, tmp_path: Path) -> None:
    spark.sql(f"CREATE DATABASE {database}_odd LOCATION '{tmp_path}/a b%20'")
    spark.sql(f"CREATE TABLE {database}.data USING parquet AS SELECT id FROM range(5)")
    manager = IndexManager.create_new(spark, f"{database}.data", f"{database}_odd.Data_Index", ["id"])
    manager.append_missing_partitions()
    assert manager.index == f"{tmp_path}/a b%20/data_index"
    assert spark.table(f"{database}_odd.data_index").count() == 5
    spark.sql(f"DROP DATABASE {database}_odd CASCADE")


def test_an_unpartitioned_table_is_one_partition(spark: SparkSession, database: str) -> None:
    make_table(spark, f"{database}.data", "parquet", "")
    manager = IndexManager.create_new(spark, f"{database}.data", f"{database}.data_index", ["n", "message_id"])
    assert manager.get_missing_partitions() == [[]]
    manager.append_new_partitions([[]])
    assert manager.get_missing_partitions() == []
    assert spark.table(f"{database}.data_index").count() == 60
    assert {row["var1"] for row in manager.fetch_all([3, "msg_3"])} == {"v3", "v23", "v43"}
    assert [row["var1"] for row in manager.fetch_all([7, None])] == ["v7", "v27", "v47"]


def test_the_same_over_paths(spark: SparkSession, tmp_path: Path) -> None:
    source, index = str(tmp_path / "data"), str(tmp_path / "data_index")
    rows_of(spark).write.partitionBy("dt").parquet(source)
    IndexManager.create_new(spark, source, index, ["n"], ["message_id"])
    manager = IndexManager.load(spark, index)
    assert manager.get_index().collect() == []
    assert manager.fetch([3]) is None
    assert manager.get_missing_partitions() == [[("dt", day)] for day in DAYS]
    manager.append_new_partitions([[("dt", DAYS[1])]])
    assert manager.fetch([3], [("dt", DAYS[0])]) is None
    manager.append_missing_partitions()
    assert manager.fetch([3], [("dt", DAYS[0])], ["var1"]) == {"n": 3, "var1": "v3"}
    assert manager.get_index().count() == 60
    assert manager.join_with_index(spark.range(3).toDF("n")).count() == 9
    with pytest.raises(shadow.UsageError, match="there is an index already"):
        IndexManager.create_new(spark, source, index, ["n"], ["message_id"])


def test_changed_partitions_are_missing_until_appended_and_nothing_dead_is_shown(
    spark: SparkSession, database: str
) -> None:
    data, index = f"{database}.data", f"{database}.data_index"
    make_table(spark, data, "parquet")
    manager = IndexManager.create_new(spark, data, index, ["message_id"], ["n"])
    manager.append_missing_partitions()
    rows_of(spark, 100).where(F.col("dt") == DAYS[0]).drop("dt").createOrReplaceTempView("others")
    spark.sql(f"INSERT OVERWRITE {data} PARTITION (dt = '{DAYS[0]}') SELECT * FROM others")
    spark.sql(f"ALTER TABLE {data} DROP PARTITION (dt = '{DAYS[1]}')")
    assert manager.get_missing_partitions() == [[("dt", DAYS[0])]]
    manager.append_missing_partitions()
    assert manager.get_missing_partitions() == []
    assert bag(spark.table(index).select("message_id", "n", "dt")) == bag(
        spark.table(data).select("message_id", "n", "dt")
    )
    assert [row[0] for row in spark.sql(f"SHOW PARTITIONS {index}").collect()] == [f"dt={DAYS[0]}"]
    assert manager.fetch(["msg_3"]) is None
    assert manager.fetch(["msg_103"], None, ["n"]) == {"message_id": "msg_103", "n": 103}


def test_what_a_crash_left_is_mended_by_the_next_call(spark: SparkSession, database: str) -> None:
    """Crashes between the commit and the table's partitions, and between the two halves of a new declaration."""
    data, index = f"{database}.data", f"{database}.data_index"
    make_table(spark, data, "parquet")
    manager = IndexManager.create_new(spark, data, index, ["message_id"])
    build(spark, manager.source, manager.index, manager.keys)
    assert spark.table(index).count() == 0
    assert manager.get_missing_partitions() == []
    manager.append_missing_partitions()
    assert spark.table(index).count() == 60
    spark.sql(f"DROP TABLE {index}")
    with pytest.raises(shadow.UsageError, match=r"no such table; IndexManager.create_new declares one"):
        IndexManager.load(spark, index)
    with pytest.raises(shadow.SpecMismatch, match="another spec"):
        IndexManager.create_new(spark, data, index, ["n"])
    IndexManager.create_new(spark, data, index, ["message_id"])
    assert spark.table(index).count() == 60
    assert len(IndexManager.load(spark, index).fetch_all(["msg_3"])) == 3


def test_an_index_is_created_before_its_table_has_rows(spark: SparkSession, database: str) -> None:
    spark.sql(f"CREATE TABLE {database}.data ({COLUMNS}) PARTITIONED BY (dt string) STORED AS PARQUET")
    manager = IndexManager.create_new(spark, f"{database}.data", f"{database}.data_index", ["message_id"], buckets=3)
    assert manager.get_missing_partitions() == []
    manager.append_missing_partitions()
    assert spark.table(f"{database}.data_index").count() == 0
    rows_of(spark).where(F.col("dt") == DAYS[0]).drop("dt").createOrReplaceTempView("first_rows")
    spark.sql(f"INSERT INTO {database}.data PARTITION (dt = '{DAYS[0]}') SELECT * FROM first_rows")
    manager.append_missing_partitions()
    assert spark.table(f"{database}.data_index").count() == 30
    assert shadow.OpenIndex.of(manager.index).spec.buckets == 3


def test_a_hive_form_stays_one(spark: SparkSession, database: str, tmp_path: Path) -> None:
    data, index = f"{database}.data", f"{database}.data_index"
    make_table(spark, data, "parquet")
    place = str(tmp_path / "elsewhere")
    IndexManager.create_new(spark, data, index, ["message_id"], ["n"], location=place, form="hive")
    manager = IndexManager.load(spark, index)
    assert manager.index == place
    manager.append_missing_partitions()
    declare_table(spark, place, index)
    assert "Scan hive" in spark.table(index)._jdf.queryExecution().executedPlan().toString()
    assert bag(spark.table(index).select("message_id", "n", "dt")) == bag(
        spark.table(data).select("message_id", "n", "dt")
    )


def test_wrong_requests_are_refused_in_one_line_and_write_nothing(
    spark: SparkSession, database: str, tmp_path: Path
) -> None:
    data, index = f"{database}.data", f"{database}.data_index"
    make_table(spark, data, "parquet")
    with pytest.raises(shadow.UnknownColumn, match="the source has no column nope; it has message_id, n, var1"):
        IndexManager.create_new(spark, data, index, ["nope"])
    with pytest.raises(shadow.UsageError, match="cannot be stored in an index"):
        IndexManager.create_new(spark, data, index, ["pairs"])
    with pytest.raises(shadow.SourceNotFound, match="not in the catalog"):
        IndexManager.create_new(spark, f"{database}.other", index, ["n"])
    with pytest.raises(shadow.UsageError, match=r"nowhere.i: there is no database nowhere; CREATE DATABASE makes one"):
        IndexManager.create_new(spark, data, "nowhere.i", ["n"])
    with pytest.raises(shadow.UsageError, match="there is a table of this name"):
        IndexManager.create_new(spark, data, data, ["n"])
    with pytest.raises(shadow.UsageError, match="not the table of an index of ours"):
        IndexManager.load(spark, data)
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken/part-0.avro").write_bytes(b"theirs")
    with pytest.raises(shadow.UsageError, match=r"taken: there are files already \(part-0.avro\)"):
        IndexManager.create_new(spark, data, index, ["n"], location=str(tmp_path / "taken"))
    assert not spark.catalog.tableExists(index)
    assert list(tmp_path.rglob("_shadow")) == []
    manager = IndexManager.create_new(spark, data, index, ["n"])
    with pytest.raises(shadow.UsageError, match="partitions_spec: it is empty"):
        manager.append_new_partitions([])
    with pytest.raises(shadow.UsageError, match="no partition dt=1999-01-01"):
        manager.append_new_partitions([[("dt", "1999-01-01")]])
    with pytest.raises(shadow.UsageError, match="where: day is not a partition column"):
        manager.append_new_partitions([[("day", "1999-01-01")]])
    with pytest.raises(shadow.UsageError, match="expected pairs of column and value"):
        manager.append_new_partitions([("dt", "1999-01-01")])  # type: ignore[list-item]
    with pytest.raises(shadow.UsageError, match=r"expected a list of 1 values \(n\), found 'x'"):
        manager.fetch("x")
    assert spark.table(index).count() == 0
    assert open_view(storage_at(manager.index)).snapshot.number == 1


WITHOUT_HIVE = """
import sys
from pathlib import Path
from gnomon.commands.failures import one_line
from gnomon.indexer import IndexManager
from gnomon.indexer.spark.session import local_session

spark = local_session("local[1]", {"spark.sql.shuffle.partitions": "1", "spark.sql.warehouse.dir": sys.argv[1]})
spark.sql("CREATE TABLE data (k INT, v STRING, p INT) USING parquet PARTITIONED BY (p)")
spark.sql("INSERT INTO data VALUES (1, 'a', 5), (2, 'b', 5), (1, 'c', 6)")
try:
    IndexManager.create_new(spark, "data", "data_index", ["k"], form="hive")
except Exception as error:
    print(one_line(error), Path(sys.argv[1], "data_index").exists())
manager = IndexManager.create_new(spark, "data", "data_index", ["k"])
manager.append_missing_partitions()
print(spark.table("data_index").where("k = 1").count(), manager.fetch_all([1], {"p": 6}, ["v"]))
"""


@pytest.mark.nightly
def test_a_session_without_hive_needs_no_package(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WITHOUT_HIVE, str(tmp_path / "warehouse")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    assert done.stdout.splitlines() == [
        "form=hive: the session has no Hive support; build it with enableHiveSupport(), or use another False",
        "2 [{'k': 1, 'v': 'c'}]",
    ]
