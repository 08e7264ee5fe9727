"""With each way to sort entries, each key leads to its rows."""

import json
import random
from collections import defaultdict
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from gnomon.indexer import build, write_btree
from gnomon.indexer.build import write
from gnomon.indexer.build.write import head_of, likely_beginning, shared_beginning
from gnomon.jobs.files.source_files import describe
from gnomon.shadow import open_index
from gnomon.shadow.metadata import Folder
from gnomon.shadow.metadata.source_files import source_root
from gnomon.shadow.metadata.spec import IndexSpec, KeyColumn
from gnomon.shadow.storage import storage_at
from gnomon.shadow.verify.snapshot import verify

pytestmark = pytest.mark.spark

ODD = [
    "",
    "\x00",
    "a",
    "https",
    "https://",
    "https://a",
    "https://é",
    "https://\uffff",
    "https:/",
    "httpsz",
    "é",
    "\U0010ffff" * 12,
]
LONGEST = ["https://" + "\U0010ffff" * 12, "https://" + "long " * 9, "https://" + "long " * 9 + "x"]
TEXTS = ODD + LONGEST


@pytest.mark.parametrize("beginning", ["https://", "h", "zzz", "é", "\U0010ffff"])
def test_heads_rise_with_the_texts_whatever_they_begin_with(spark: SparkSession, beginning: str) -> None:
    frame = spark.createDataFrame([(text,) for text in [*TEXTS, None]], "k string").coalesce(1)
    rows = frame.withColumn("head", head_of(F.col("k"), beginning)).sort("head", "k").collect()
    assert [row.k for row in rows] == [None, *sorted(TEXTS)]


@pytest.fixture(params=[1, 10**9], ids=["a task for each file", "several files in a task"])
def ways(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use each of the two ways to sort for a few rows."""
    monkeypatch.setattr(write, "ROWS_OF_A_TASK", request.param)
    monkeypatch.setattr(write, "WORTH_ROWS", 1)


@pytest.mark.usefixtures("ways")
@pytest.mark.parametrize("format_name", ["parquet", "jsonl"])
def test_every_key_leads_to_its_rows(spark: SparkSession, tmp_path: Path, format_name: str) -> None:
    chance = random.Random(3)
    texts = [*TEXTS, *(f"https://example.org/{i}" for i in range(40)), None]
    rows = [(i, chance.choice(texts), chance.choice([None, 1, 2])) for i in range(900)]
    for part in range(3):
        folder = tmp_path / "source" / f"dt={part}"
        folder.mkdir(parents=True)
        some = [{"i": i, "url": url, "n": n} for i, url, n in rows if i % 3 == part]
        if format_name == "parquet":
            pq.write_table(pa.Table.from_pylist(some), folder / "a.parquet", row_group_size=100)
        else:
            (folder / "a.jsonl").write_text("\n".join(map(json.dumps, some)) + "\n")
    build(spark, str(tmp_path / "source"), str(tmp_path / "index"), ["url", "n"], format=format_name, buckets=2)
    expected = defaultdict(list)
    for i, url, n in rows:
        expected[url, n].append(i)
    index = open_index(str(tmp_path / "index"))
    for key, found in zip(expected, index.fetch_many(list(expected), ["i"]), strict=True):
        assert sorted(row["i"] for row in found) == expected[key]
    assert verify(storage_at(str(tmp_path / "index")), sample=None).is_sound


@pytest.mark.usefixtures("ways")
def test_every_key_leads_to_its_values(spark: SparkSession, tmp_path: Path) -> None:
    texts = [*TEXTS, *(f"https://example.org/{i}" for i in range(40)), None]
    frame = spark.createDataFrame([(text, i) for i, text in enumerate(texts)], "k string, v int")
    write_btree(frame, str(tmp_path), ["k"], buckets=3)
    assert open_index(str(tmp_path)).fetch_many(texts, ["v"]) == [[{"v": i}] for i in range(len(texts))]


def test_the_beginning_is_that_of_some_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    urls = [None, *(f"https://example.org/{i}" for i in range(10, 30))]
    pq.write_table(pa.table({"url": urls, "n": range(21)}), tmp_path / "a.parquet")
    root = source_root(str(tmp_path))
    described = describe(root, "parquet", {}, False, root.list(), ["url"])

    def beginning(name: str, kind: str) -> str:
        spec = IndexSpec(Folder(str(tmp_path)), "parquet", (), (KeyColumn(name, kind),), (), 1)
        return likely_beginning(root.storage, spec, described)

    assert beginning("url", "string") == ""  # too few rows to be worth it
    monkeypatch.setattr(write, "WORTH_ROWS", 1)
    assert beginning("url", "string") == "https://example.org/"
    assert beginning("n", "bigint") == ""
    assert beginning("absent", "string") == ""
    (tmp_path / "a.parquet").write_bytes(b"PAR1 no more")
    assert beginning("url", "string") == ""
    assert shared_beginning(["abc", "abd", "ab"]) == "ab"
