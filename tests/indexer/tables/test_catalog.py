"""Tables of Spark's catalog as sources: their files, and the partitions of these."""

import datetime as dt
import json
import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from gnomon.__main__ import main
from gnomon.indexer import build, filter_new, join_with_index, load
from gnomon.shadow import KeyTypeError, PartitionNotFound, UsageError
from gnomon.shadow.errors import SourceNotFound
from gnomon.shadow.maintenance.compaction import compact, rebucket
from gnomon.shadow.maintenance.vacuuming import vacuum
from gnomon.shadow.storage import storage_at
from gnomon.shadow.verify.snapshot import verify
from tests.indexer.catalog_tables import COLUMNS, rows, same_rows, write
from tests.opened import open_index

pytestmark = pytest.mark.spark


@pytest.fixture
def crawl(spark: SparkSession, database: str, tmp_path: Path) -> str:
    """A Hive table of four partitions: one in its default folder, one in a folder with another name and a blank, one
    outside of the root, and one without files; and a folder that looks like a partition and is none."""
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


def test_partitions_that_are_dropped_moved_or_given_to_others_are_indexed_as_they_are_now(
    spark: SparkSession, crawl: str, tmp_path: Path
) -> None:
    index, source = str(tmp_path / "index"), f"table:{crawl}"
    build(spark, source, index, ["url"])
    spark.sql(f"ALTER TABLE {crawl} DROP PARTITION (dt='2020-10-04')")
    write(tmp_path / "moved", rows(200, 220))
    spark.sql(f"ALTER TABLE {crawl} PARTITION (dt='2020-10-06', n1=8) SET LOCATION '{tmp_path / 'moved'}'")
    result = build(spark, source, index, ["url"])
    assert (result.new_files, result.vanished_files, result.rows) == (1, 2, 60)
    assert same_rows(spark, crawl, index) == 60
    # Two partitions exchange their folders: no file changes.
    one, other = tmp_path / "crawl/the rest", tmp_path / "moved"
    spark.sql(f"ALTER TABLE {crawl} PARTITION (dt='2020-10-05', n1=7) SET LOCATION '{other}'")
    assert open_index(index).coverage().is_empty
    with pytest.raises(UsageError, match=r"dt=2020-10-05/n1=7 and dt=2020-10-06/n1=8 lie in one folder, .*/moved"):
        build(spark, source, index, ["url"])
    spark.sql(f"ALTER TABLE {crawl} PARTITION (dt='2020-10-06', n1=8) SET LOCATION '{one}'")
    result = build(spark, source, index, ["url"])
    assert (result.changed_files, result.rows) == (2, 60)
    assert same_rows(spark, crawl, index) == 60
    assert open_index(index).fetch("u70", ["dt"]) == [{"dt": dt.date(2020, 10, 6)}] * 2
    assert verify(storage_at(index), None).faults == []


def test_the_folders_of_the_last_build_are_what_coverage_lists_those_without_files_too(
    spark: SparkSession, crawl: str, tmp_path: Path
) -> None:
    index, source = str(tmp_path / "index"), f"table:{crawl}"
    build(spark, source, index, ["url"])
    opened = open_index(index)
    assert opened.coverage().is_empty
    write(tmp_path / "empty", rows(100, 110))
    spark.sql(f"ALTER TABLE {crawl} ADD PARTITION (dt='2020-10-08', n1=1) LOCATION '{tmp_path / 'late'}'")
    write(tmp_path / "late", rows(110, 120))
    assert [info.path for info in opened.coverage().new] == [f"{tmp_path}/empty/a.parquet"]
    shutil.rmtree(tmp_path / "late")
    write(tmp_path / "empty", rows(100, 120))
    result = build(spark, source, index, ["url"])
    assert (result.new_files, result.rows) == (1, 130)
    assert opened.refresh()
    write(tmp_path / "late", rows(120, 125))
    assert [info.path for info in opened.coverage().new] == [f"{tmp_path}/late/a.parquet"]
    for folder in ("crawl", "far", "empty", "late"):
        shutil.rmtree(tmp_path / folder)
    with pytest.raises(SourceNotFound, match=r"no data files in any folder .* the index covers 4;"):
        build(spark, source, index, ["url"])
    assert len(opened.coverage().vanished) == 4
    assert build(spark, source, index, ["url"], full=True, accept_vanished=True).rows == 0
    assert open_index(index).fetch("u3") == []


def test_partition_columns_have_their_types_in_rows_keys_and_conditions(
    spark: SparkSession, crawl: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    index = str(tmp_path / "index")
    build(spark, f"table:{crawl}", index, ["url", "n1"], include=["n"])
    opened = open_index(index)
    assert opened.spec.partition_types == {"dt": "date", "n1": "int"}
    row = {"url": "u43", "n": 43, "html": "<p>43</p>", "dt": dt.date(2020, 10, 4), "n1": 7}
    both = [row, {**row, "dt": dt.date(2020, 10, 5)}]
    for seven in (7, "7", "007"):
        assert opened.fetch(("u43", seven)) == both
        assert opened.fetch({"url": "u43", "n1": seven}, where={"dt": "2020-10-04"}) == [row]
    assert opened.fetch(("u43", 7), where={"dt": dt.date(2020, 10, 5), "n1": 7}) == both[1:]
    assert opened.fetch(("u43", 8)) == []
    with pytest.raises(
        PartitionNotFound, match="no partition has n1=__HIVE_DEFAULT_PARTITION__; n1 has the values 7, 8"
    ):
        opened.fetch(("u43", 7), where={"n1": None})
    with pytest.raises(UsageError, match=r"where: column dt: expected date \(like 2026-01-01\), found 'monday'"):
        opened.fetch(("u43", 7), where={"dt": "monday"})
    with pytest.raises(KeyTypeError, match=r"key column n1: expected int, found 'seven'"):
        opened.fetch(("u43", "seven"))
    assert main(["get", index, '{"url": "u43", "n1": "07"}', "--where", "dt=2020-10-05"]) == 0
    assert json.loads(capsys.readouterr().out) == {**row, "dt": "2020-10-05"}
    keys = spark.createDataFrame([("u43", 7, "x"), ("u85", 8, "y")], "url string, n1 bigint, mark string")
    loaded = load(spark, index, keys)
    assert dict(loaded.dtypes)["dt"] == "date"
    wanted = [("u43", 7, "x", 43, "<p>43</p>", day["dt"]) for day in both]
    assert sorted(map(tuple, loaded.collect())) == [*wanted, ("u85", 8, "y", 85, "<p>85</p>", dt.date(2020, 10, 6))]


def test_some_partitions_alone_are_indexed_where_they_are_named(
    spark: SparkSession, crawl: str, tmp_path: Path
) -> None:
    index, source = str(tmp_path / "index"), f"table:{crawl}"
    first = build(spark, source, index, ["url"], partitions=[])
    assert (first.committed, first.snapshot, first.rows) == (True, 1, 0)
    assert open_index(index).fetch("u43") == []
    second = build(spark, source, index, ["url"], partitions=[{"dt": "2020-10-05", "n1": "7"}])
    assert (second.new_files, second.rows) == (1, 40)
    assert len(open_index(index).coverage().new) == 2
    with pytest.raises(
        UsageError, match=r"the index would lie among the files of its source .*/far/away; name a folder"
    ):
        build(spark, source, str(tmp_path / "far/away/index"), ["url"])
    with pytest.raises(UsageError, match=r"no partition dt=2020-11-11"):
        build(spark, source, index, ["url"], partitions=[{"dt": "2020-11-11"}])
    write(tmp_path / "crawl/the rest", rows(300, 320))
    third = build(spark, source, index, ["url"], partitions=[{"n1": 8}])
    assert (third.new_files, third.changed_files, third.rows) == (1, 0, 60)
    last = build(spark, source, index, ["url"])
    assert (last.new_files, last.changed_files, last.rows) == (1, 1, 90)
    assert same_rows(spark, crawl, index) == 90


@pytest.mark.parametrize("flat", [False, True])
def test_an_index_of_a_table_is_kept_as_any_other(spark: SparkSession, crawl: str, tmp_path: Path, flat: bool) -> None:
    index, source = str(tmp_path / "index"), f"table:{crawl}"
    build(spark, source, index, ["url"], flat=flat, page_maps=True)
    write(tmp_path / "far/away", rows(400, 420), "b.parquet")
    write(tmp_path / "crawl/the rest", rows(500, 520))
    build(spark, source, index, ["url"])
    storage = storage_at(index)
    rebucket(storage, 3)
    compact(storage)
    vacuum(storage, grace_seconds=0)
    assert same_rows(spark, crawl, index) == 110
    report = verify(storage, None)
    assert (report.faults, report.source_files, report.page_maps) == ([], 4, 4)
    assert open_index(index).coverage().is_empty
    shutil.move(tmp_path / "crawl", tmp_path / "copy")
    spark.sql(f"ALTER TABLE {crawl} SET LOCATION '{tmp_path / 'copy'}'")
    for n1, day, folder in ((7, "2020-10-04", "dt=2020-10-04/n1=7"), (7, "2020-10-05", "the rest")):
        place = tmp_path / "copy" / folder
        spark.sql(f"ALTER TABLE {crawl} PARTITION (dt='{day}', n1={n1}) SET LOCATION '{place}'")
    adopted = build(spark, source, index, ["url"], adopt=True)
    assert (adopted.rows_indexed, adopted.rows) == (0, 110)
    assert open_index(index).spec.source.location == str(tmp_path / "copy")
    next((tmp_path / "index").rglob("*.btree.avro")).unlink()
    anew = build(spark, source, index, ["url"], full=True)
    assert anew.rows == 110
    assert same_rows(spark, crawl, index) == 110


def test_a_join_compares_partition_columns_in_their_types(spark: SparkSession, crawl: str, tmp_path: Path) -> None:
    index = str(tmp_path / "index")
    build(spark, f"table:{crawl}", index, ["url", "n1"], include=["n"])
    fourth, fifth = dt.date(2020, 10, 4), dt.date(2020, 10, 5)
    given = [("u43", "7", fourth), ("u43", "007", fifth), ("u43", "8", fifth), ("u43", None, fifth), ("u83", "8", None)]
    sample = spark.createDataFrame(given, "url string, n1 string, dt date")
    narrowed = join_with_index(spark, index, sample, within=["dt"])
    assert sorted((row.url, row.n1, row.dt, row.n) for row in narrowed.collect()) == [
        ("u43", "007", fifth, 43),
        ("u43", "7", fourth, 43),
    ]
    joined = join_with_index(spark, index, sample.drop("dt"))
    assert dict(joined.dtypes)["dt"] == "date"
    assert sorted((row.n1, row.dt) for row in joined.collect()) == [
        ("007", fourth), ("007", fifth), ("7", fourth), ("7", fifth), ("8", dt.date(2020, 10, 6)),
    ]  # fmt: skip
    new = spark.createDataFrame([("u43", 7, fifth), ("u43", 8, fifth), ("u43", 7, None)], "url string, n1 int, dt date")
    assert [(row.n1, row.dt) for row in filter_new(spark, index, new).collect()] == [(8, fifth)]
    by_day = filter_new(spark, index, new, "partition").collect()
    assert sorted((row.n1, str(row.dt)) for row in by_day) == [(7, "None"), (8, "2020-10-05")]
