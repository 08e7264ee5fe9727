"""docs/reference/sql.md is right: its examples run, and Spark pushes the filters of its table."""

import re
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from gnomon.indexer import register
from gnomon.indexer.datasource import source
from gnomon.indexer.spark.versions import HAS_PUSHDOWN, HAS_SOURCES
from gnomon.shadow.lookup import MOST_KEYS
from tests.indexer.lakes import explained
from tests.shadow.make_index import index_source, write_source

pytestmark = pytest.mark.spark

PAGE = (Path(__file__).parents[2] / "docs/reference/sql.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> str:
    root = tmp_path_factory.mktemp("lake")
    rows = {
        "url": [f"https://a.example/{i}" for i in range(10)],
        "n": pa.array(range(10), pa.int32()),
        "html": [f"<p>{i}" for i in range(10)],
    }
    write_source(root / "source", {f"dt=2026-01-0{day}/p.parquet": pa.table(rows) for day in (1, 2)})
    index_source(root / "source", root / "index", ["url"], include=["n"])
    return str(root / "index")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.skipif(not HAS_SOURCES, reason="Spark 3.5 has no data sources in Python")
def test_the_examples_run(spark: SparkSession, index: str, capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, object] = {"spark": spark}
    for block in blocks("python"):
        exec(block.replace("/lake/crawl_index", index), names)
    shown = capsys.readouterr().out
    assert shown.count("https://a.example/7") == 4
    assert shown.count("<p>7") == 2
    answers = [
        spark.sql(statement.replace("/lake/crawl_index", index)).collect()
        for block in blocks("sql")
        for statement in block.split(";")
        if statement.strip()
    ]
    spark.sql("DROP VIEW urls")
    assert [len(rows) for rows in answers] == [0, 4, 1, 2]
    assert tuple(answers[2][0]) == ("2026-01-02", 10, 10)


@pytest.mark.skipif(not HAS_PUSHDOWN, reason="Spark 3.5 and 4.0 push no filters to Python")
def test_the_table_of_conditions_is_what_spark_shows(spark: SparkSession, index: str) -> None:
    register(spark)
    table = spark.read.format("gnomon").load(index)
    lines = re.findall(r"^\| `(.*?)`(?: \(write `IN`\))? \| (?:`(.*?)`|none) \|$", PAGE, re.MULTILINE)
    conditions = [line for line in lines if line[0] not in source.OPTIONS]
    assert len(conditions) == 17
    for condition, pushed in conditions:
        shown = re.findall(r"PushedFilters: \[(.*)\]", explained(table.where(condition)))
        assert shown == ([pushed] if pushed else []), condition


def test_the_limits_are_those_of_the_code() -> None:
    text = " ".join(PAGE.split())
    assert f"at most {MOST_KEYS:,} combinations" in text
    assert f"up to {source.TASK_KEYS} keys" in text
    assert f"each {source.TASK_BYTES // 1024**2} MB" in text
    options = re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)
    assert tuple(options[: len(source.OPTIONS)]) == source.OPTIONS
