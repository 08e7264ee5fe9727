"""`gnomon demo` on a small crawl: every step works."""

import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from gnomon.__main__ import main
from tests.opened import open_index

pytestmark = pytest.mark.spark


def test_the_demo_goes_from_a_source_to_an_append_and_leaves_the_data(
    spark: SparkSession, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "demo"
    assert main(["demo", "--folder", str(folder), "--pages", "2000"]) == 0
    out, err = capfd.readouterr()
    assert "gnomon" not in err, err
    assert "2,000 pages" in out
    assert "snapshot 1: 2,000 rows" in out
    assert "nothing new, nothing done" in out
    assert re.search(r"present: 200 in [\d.]+ ms; merchant \d+", out)
    assert re.search(r"absent: 404 in [\d.]+ ms; no row has this key", out)
    assert "1,000 rows in" in out
    told = r"200 rows in [\d.]+ s: 90 already in the source, 20 twice in the batch, 90 appended \(90 expected\)"
    assert re.search(told, out)
    assert "once more: 0 appended" in out
    assert re.search(r"before the next build: .*\.parquet: the file changed since it was indexed", out)
    assert "the row that is gone has 0 answers, the next row 1" in out
    index = open_index(str(folder / "index"))
    assert index.view.snapshot.rows == 2089
    assert index.coverage().is_empty
    pages = spark.read.parquet(str(folder / "source")).select("url", "crawl_ts").collect()  # the rewritten file, too
    assert len({page.url for page in pages}) == 2089
    shown = index.table_many([page.url for page in pages], ["url", "crawl_ts"])
    assert {(page.url, page.crawl_ts.timestamp()) for page in pages} == {
        (row["url"], row["crawl_ts"].timestamp()) for row in shown.to_pylist()
    }
