"""Appends and loads by Spark of sources that others change, and in sessions with other types;
tests/jobs/dedup/test_append_changed_sources.py has the rules."""

import datetime as dt
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from gnomon.indexer import append_new, build, load
from gnomon.shadow.errors import FilesVanished
from tests.jobs.dedup.test_append_changed_sources import in_source, rows
from tests.opened import open_index
from tests.shadow.make_index import index_source, write_source


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    write_source(tmp_path / "lake", {"a.parquet": rows(1, 2, 3), "b.parquet": rows(11, 12, 13)})
    index_source(tmp_path / "lake", tmp_path / "index", ["id"], 2)
    return tmp_path


def test_an_append_is_refused_while_files_are_away_and_runs_when_they_are_back(spark: SparkSession, lake: Path) -> None:
    batch = spark.createDataFrame([(12, "new 12"), (20, "new 20")], "id bigint, v string")
    (lake / "lake/b.parquet").rename(lake / "away")
    before = open_index(str(lake / "index")).view.snapshot
    with pytest.raises(FilesVanished, match=r"1 of the 2 files that snapshot 1 covers are gone \(b.parquet\)"):
        append_new(spark, str(lake / "index"), batch, "b")
    assert in_source(lake) == [1, 2, 3]
    assert open_index(str(lake / "index")).view.snapshot == before
    (lake / "away").rename(lake / "lake/b.parquet")
    result = append_new(spark, str(lake / "index"), batch, "b")
    assert (result.appended, result.already_loaded) == (1, 1)
    assert [row["v"] for row in open_index(str(lake / "index")).fetch(12)] == ["old 12"]


def test_a_load_of_rows_does_not_read_files_that_hold_none_of_them(spark: SparkSession, lake: Path) -> None:
    write_source(lake / "lake", {"b.parquet": rows(11, 99)})
    keys = spark.createDataFrame([(2,), (3,)], "id bigint")
    assert sorted(row.v for row in load(spark, str(lake / "index"), keys).collect()) == ["old 2", "old 3"]


def test_a_session_that_reads_timestamp_as_one_without_a_zone_builds_appends_and_loads(
    spark: SparkSession, tmp_path: Path
) -> None:
    moments = [dt.datetime(2026, 1, 1, hour, tzinfo=dt.UTC) for hour in range(5)]
    table = pa.table({"at": pa.array(moments, pa.timestamp("us", "UTC")), "n": range(5)})
    write_source(tmp_path / "parquet", {"a.parquet": table})
    (tmp_path / "jsonl").mkdir()
    lines = [f'{{"at": "{moment.isoformat()}", "n": {i}}}' for i, moment in enumerate(moments)]
    (tmp_path / "jsonl/a.jsonl").write_text("\n".join(lines) + "\n")
    values = [(moments[1], 1), (moments[0] - dt.timedelta(days=9), 77)]
    rows_of = spark.createDataFrame(values, "at timestamp_ltz, n bigint")
    before = spark.conf.get("spark.sql.timestampType")
    spark.conf.set("spark.sql.timestampType", "TIMESTAMP_NTZ")
    try:
        for folder, options in (("parquet", {}), ("jsonl", {"schema": "at timestamp, n bigint"})):
            index = str(tmp_path / f"index_{folder}")
            built = build(spark, str(tmp_path / folder), index, ["at"], options=options, include=["n"])
            assert built.rows == 5
            assert append_new(spark, index, rows_of, "b").appended == 1
            assert [row["n"] for row in open_index(index).fetch(moments[2])] == [2]
            assert load(spark, index, rows_of.select("at")).count() == 2
            texts = spark.createDataFrame([("2026-01-01T03:00:00Z",)], "at string")
            assert [row.n for row in load(spark, index, texts).collect()] == [3]
    finally:
        spark.conf.set("spark.sql.timestampType", str(before))
