"""Real Parquet files of many writers through `gnomon build` and `fetch`: every row, against rows other readers gave."""

import csv
import gzip
import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from pyspark.sql import SparkSession

from indexer import build
from shadow import open_index

CORPORA = Path(__file__).parents[3] / "shared/corpora"
pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(not CORPORA.is_dir(), reason="the corpora of real files are not beside this checkout"),
]
MOST_BYTES, MOST_ROWS = 3_000_000, 2_000
KEY_TYPES = ("string", "binary", "int8", "int16", "int32", "int64", "date32[day]", "bool")


def canon_module() -> ModuleType:
    spec = importlib.util.spec_from_file_location("canon", CORPORA / "canon.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def keyed_files() -> list[dict[str, str]]:
    """Sound Parquet files that have a unique key column, one for each (writer, codec, page version, nesting, index)."""
    chosen: dict[tuple[str, ...], dict[str, str]] = {}
    with (CORPORA / "INVENTORY_OPEN.tsv").open(newline="") as file:
        for row in csv.DictReader(file, delimiter="\t"):
            fits = row["format"] == "parquet" and row["class"] == "good" and key_column(row)
            if fits and int(row["size"]) < MOST_BYTES and int(row["rows_read"]) < MOST_ROWS:
                writer = row["created_by"].split(" (")[0][:24]
                kind = (writer, row["compression"], row["page_version"], row["nested"], row["page_index"][:3])
                chosen.setdefault(kind, row)
    return list(chosen.values())


def expected_rows(row: dict[str, str]) -> Iterator[tuple[int, Any]]:
    with gzip.open(CORPORA / "expected" / row["expected_file"], "rt") as lines:
        for line in lines:
            item = json.loads(line)
            yield item["i"], item["row"]


def key_column(row: dict[str, str]) -> str:
    """The first unique column of a type that Spark scans as it lies in the file."""
    columns = (column.partition(":") for column in row["key_unique"].split(";"))
    return next((name for name, _, kind in columns if kind in KEY_TYPES), "")


def test_every_row_of_real_files_comes_back_by_its_key(spark: SparkSession, tmp_path: Path) -> None:
    canon = canon_module()
    rows, used = 0, []
    for number, row in enumerate(keyed_files()):
        source, location, name = CORPORA / row["file"], str(tmp_path / str(number)), key_column(row)
        build(spark, str(source), location, [name], format="parquet", buckets=3)
        wanted = [expected for _, expected in expected_rows(row)]
        keys = [{name: as_text(expected[name])} for expected in wanted]
        found = open_index(location).fetch_many(keys)
        for expected, answer in zip(wanted, found, strict=True):
            assert len(answer) == 1, (row["file"], expected[name])
            assert canon.same(expected, canon.canon(answer[0])), (row["file"], expected, answer)
        rows += len(wanted)
        used.append(row)
    writers = {row["created_by"].split(" ")[0] for row in used}
    print(f"\n{len(used)} files of {len(writers)} writers: {rows} rows equal")
    assert len(used) >= 30
    assert {row["page_version"] for row in used} >= {"v1", "v2"}
    assert len({row["compression"] for row in used}) >= 4


def as_text(value: Any) -> Any:
    """A key in the form expected rows have it: bytes as base64."""
    return value["$b"] if isinstance(value, dict) else value
