"""docs/reference/python.md is right: its examples run, one after the other, in one program."""

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from gnomon import shadow
from gnomon.indexer import build
from gnomon.shadow import OpenIndex, open_index
from tests.shadow.make_index import index_source, write_source

PAGE = (Path(__file__).parents[2] / "docs/reference/python.md").read_text(encoding="utf-8")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with the index of the page: ten keys in two partitions."""
    rows = {"url": [f"https://a.example/{i}" for i in range(10)], "n": pa.array(range(10), pa.int32())}
    lake = tmp_path / "lake"
    write_source(lake / "source", {f"dt=2026-01-0{day}/p.parquet": pa.table(rows) for day in (1, 2)})
    index_source(lake / "source", lake / "crawl_index", ["url"])
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def blocks(fence: str) -> list[str]:
    return re.findall(rf"^```{fence}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.process
def test_the_examples_run(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {}
    one, kept, sent, many, columns, ranges, arrow, lazy, by_duckdb, joined, loader, maintenance, sets = blocks("python")
    exec(one, names)
    assert names["rows"] == [{"url": "https://a.example/7", "n": 7, "dt": "2026-01-01"}]
    exec(kept, names)
    assert names["old"].snapshot == 1
    exec(sent, names)
    assert [[row["n"] for row in rows] for rows in names["rows_of_keys"]] == [[3, 3], [4, 4]]
    exec(many, names)
    exec(columns, names)
    exec(ranges, names)
    assert [row["url"][-1] for row in (*names["first"], *names["last"])] == ["2", "2", "3", "3", "9"]
    exec(arrow, names)
    assert len(names["frame"]) == len(names["polars_frame"]) == 4
    exec(lazy, names)
    assert len(names["of_a_site"]) == 20
    exec(by_duckdb, names)
    exec(joined, names)
    exec(loader, names)
    exec(maintenance, names)
    assert (names["index"].snapshot, OpenIndex.of(names["index"]).spec.buckets) == (2, 2)
    exec(sets, names)
    assert names["shown"][-1] == ("https://a.example/9",)
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == f"<Index {home}/lake/crawl_index: snapshot 1, 20 rows by url>"
    assert shown[1:4] == ["https://a.example/3 [3, 3]", "https://a.example/4 [4, 4]", "https://a.example/nowhere []"]


@pytest.mark.spark
def test_the_examples_with_spark_run(home: Path, spark: SparkSession) -> None:
    names: dict[str, Any] = {"spark": spark}
    [example] = blocks("python spark")
    exec(example, names)
    assert sorted(zip(names["loaded"]["n"], names["loaded"]["dt"], strict=True)) == [
        (3, "2026-01-01"),
        (3, "2026-01-02"),
        (4, "2026-01-01"),
        (4, "2026-01-02"),
    ]


def test_the_errors_named_are_there() -> None:
    table = PAGE[PAGE.index("## Errors") : PAGE.index("All but the last")]
    named = set(re.findall(r"`([A-Z]\w+)`", table)) - {"MemoryError"}
    assert len(named) == 10
    assert all(issubclass(getattr(shadow, name), Exception) for name in named)


@pytest.mark.spark
def test_places_may_be_paths_and_begin_with_the_home(home: Path, spark: SparkSession) -> None:
    source = home / "lake/source"
    assert build(spark, source, home / "lake/by_n", ["n"]).rows == 20
    assert not build(spark, "~/lake/source", "~/lake/by_n", ["n"]).committed
    for place in (home / "lake/by_n", "~/lake/by_n", str(home / "lake/by_n")):
        assert open_index(place).location == str(home / "lake/by_n")
