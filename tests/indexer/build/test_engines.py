"""Spark and this process write the same bytes: index files, Bloom filters and page maps, and key-value folders."""

import datetime as dt
import importlib
import io
from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from gnomon.indexer.build import SparkEngine, write_btree
from gnomon.jobs.build import BuildRequest, BuildResult, LocalEngine, LocalValues, build_index, write_rows
from gnomon.shadow.metadata import DEEP, BucketOrder
from tests.indexer.test_formats import CASES, ENDINGS, rows_of
from tests.opened import open_index
from tests.profiles import cases

pytestmark = pytest.mark.spark

job = importlib.import_module("gnomon.jobs.build.job")  # in the package, `build` is the function
folder_module = importlib.import_module("gnomon.jobs.build.key_value_folder")
SEGMENT = "20260101T000000-000000000000"
NOT_COMPARED = ("_shadow/snapshots", "_shadow/spec.json", "_shadow/segments", "_shadow/probe")  # times and commit ids


def data_files(index: Path) -> dict[str, bytes]:
    """The index files, Bloom filters and page maps of an index."""
    files = {str(path.relative_to(index)): path.read_bytes() for path in sorted(index.rglob("*")) if path.is_file()}
    return {name: data for name, data in files.items() if not name.startswith(NOT_COMPARED)}


def records(data: bytes) -> object:
    """The header and the records of an Avro file, for the message of a test; other files as they are."""
    if not data.startswith(b"Obj\x01"):
        return data
    reader = fastavro.reader(io.BytesIO(data))
    return reader.metadata, list(reader)


@pytest.fixture
def both(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function that builds one source by both engines, and compares."""
    monkeypatch.setattr(job, "new_segment_id", lambda: SEGMENT)

    def compare(request: BuildRequest, local: LocalEngine | None = None, page_maps: bool = False) -> BuildResult:
        source = str(tmp_path / "source")
        by_spark = build_index(SparkEngine(spark), source, str(tmp_path / "by-spark"), request)
        here = build_index(local or LocalEngine(), source, str(tmp_path / "here"), request)
        expected, found = data_files(tmp_path / "by-spark"), data_files(tmp_path / "here")
        assert list(found) == list(expected)
        differing = [name for name in expected if found[name] != expected[name]]
        assert {name: records(found[name]) for name in differing} == {
            name: records(expected[name]) for name in differing
        }
        assert differing == []
        assert here.rows_indexed == by_spark.rows_indexed > 0
        assert here.index_files == by_spark.index_files
        views = [open_index(tmp_path / name).view for name in ("by-spark", "here")]
        [[one], [other]] = [view.segments for view in views]
        assert other.index_files == one.index_files
        assert other.source_files == one.source_files
        assert sum(name.endswith(".avro") for name in found) == here.index_files
        assert any("page" in name for name in found) == page_maps
        return here

    return compare


@pytest.mark.parametrize("name", CASES)
def test_both_write_the_same_bytes_from_each_format(both: Any, tmp_path: Path, name: str) -> None:
    case = CASES[name]
    for i, path in enumerate(("dt=1/a", "dt=1/b", "dt=2/c")):
        file = tmp_path / "source" / (path + ENDINGS.get(name, ""))
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(case.write(rows_of(100 * i, 100 * i + 700)))
    for request in (
        BuildRequest([case.number], buckets=3, options=case.options),
        BuildRequest([case.text], [case.number], buckets=2, flat=True, options=case.options),
    ):
        both(request)
        for folder in ("by-spark", "here"):
            (tmp_path / folder).rename(tmp_path / f"{folder}-{request.keys[0]}-before")


def some_of_each_type(rows: int, seed: int) -> Mapping[str, pa.Array]:
    """Columns of all key types, with repeated values, nulls, both zeros and NaN."""
    random = np.random.default_rng(seed)
    numbers = random.integers(-40, 40, rows)
    nulls = random.random(rows) < 0.1
    of = {
        "i": pa.array(numbers, pa.int32(), mask=nulls),
        "l": pa.array(numbers * 10**12, pa.int64(), mask=nulls),
        "f": pa.array(np.where(numbers % 7 == 0, np.nan, np.where(numbers % 5, numbers / 4, -0.0)), pa.float32()),
        "d": pa.array(np.where(numbers % 7 == 0, np.nan, np.where(numbers % 5, numbers / 4, 0.0)), mask=nulls),
        "s": pa.array([f"https://a.example/{n}é" for n in numbers], pa.string(), mask=nulls),
        "b": pa.array([bytes([n % 256]) * (n % 5) for n in numbers.tolist()], pa.binary(), mask=nulls),
        "yes": pa.array(numbers > 0, mask=nulls),
        "day": pa.array([dt.date(2026, 1, 1) + dt.timedelta(int(n)) for n in numbers], pa.date32(), mask=nulls),
        "at": pa.array(numbers * 1_000_003, pa.timestamp("us", "UTC"), mask=nulls),
        "local": pa.array(numbers * 1_000_003, pa.timestamp("us"), mask=nulls),
        "small": pa.array([Decimal(int(n)) / 100 for n in numbers], pa.decimal128(9, 2), mask=nulls),
        "large": pa.array([Decimal(int(n)) * 10**20 for n in numbers], pa.decimal128(38, 2), mask=nulls),
    }
    return of | {"n": pa.array(np.arange(rows) + seed * rows)}


TYPES = list(some_of_each_type(1, 1))


@pytest.mark.parametrize("key", cases(TYPES))
def test_both_sort_each_key_type_in_the_same_order(both: Any, tmp_path: Path, key: str) -> None:
    (tmp_path / "source").mkdir()
    for i in range(3):
        pq.write_table(
            pa.table(dict(some_of_each_type(400, i))), tmp_path / "source" / f"{i}.parquet", row_group_size=150
        )
    for order in BucketOrder:
        both(BuildRequest([key], buckets=4, order=order))
        for folder in ("by-spark", "here"):
            (tmp_path / folder).rename(tmp_path / f"{folder}-{order}")


@pytest.mark.parametrize("flat", [False, True])
def test_both_write_the_same_bytes_for_composite_keys(both: Any, tmp_path: Path, flat: bool) -> None:
    for i in range(6):
        folder = tmp_path / "source" / f"dt={i % 3}"
        folder.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table(dict(some_of_each_type(300, i))), folder / f"{i}.parquet")
    keys, order = (["s", "d"], "range") if flat else (["s", "d", "dt"], "hash")
    both(BuildRequest(keys, ["n", "day"], buckets=3, flat=flat, order=order))


@pytest.mark.parametrize("page_maps", [True, DEEP])
def test_both_write_the_same_page_maps(both: Any, tmp_path: Path, page_maps: Any) -> None:
    (tmp_path / "source").mkdir()
    for i in range(3):
        table = pa.table(dict(some_of_each_type(5000, i)))
        pq.write_table(table, tmp_path / "source" / f"{i}.parquet", data_page_size=4096)
    made = both(BuildRequest(["n"], page_maps=page_maps), page_maps=True)
    assert made.mapped_files == 3


def test_entries_beyond_the_memory_are_the_same_bytes(both: Any, tmp_path: Path) -> None:
    for i in range(20):
        folder = tmp_path / "source" / f"dt={i}"
        folder.mkdir(parents=True)
        pq.write_table(pa.table(dict(some_of_each_type(4000, i))), folder / "a.parquet", row_group_size=500)
    both(BuildRequest(["s"], ["n"], buckets=16), LocalEngine(memory=1 << 20))


@pytest.mark.parametrize(
    ("keys", "partitions", "buckets"),
    [
        (["i", "s"], [], 3),
        (["d", "b", "f"], [], None),
        (["large", "small", "at"], ["yes"], None),
        (["local", "yes", "l"], ["small", "i", "day", "l", "s"], 4),
    ],
)
def test_both_write_the_same_bytes_of_values(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    keys: list[str],
    partitions: list[str],
    buckets: int | None,
) -> None:
    """Columns of all types are keys, values or partitions. A second write adds rows."""
    monkeypatch.setattr(folder_module, "ENTRIES_PER_BUCKET", 150)
    monkeypatch.setattr(folder_module, "BYTES_PER_BUCKET", 10_000)
    for number, mode in enumerate(("error", "append")):
        monkeypatch.setattr(folder_module, "new_segment_id", lambda: f"20260101T000000-00000000000{number}")  # noqa: B023
        rows = pa.table(dict(some_of_each_type(1000, number)))
        pq.write_table(rows, tmp_path / "rows.parquet")
        frame = spark.read.parquet(str(tmp_path / "rows.parquet"))
        by_spark = write_btree(frame, tmp_path / "by-spark", keys, buckets, mode, partitions)
        here = write_rows(
            LocalValues(rows.to_reader(max_chunksize=300), memory=1 << 18),
            tmp_path / "here",
            keys,
            buckets,
            mode,
            partitions,
        )
        assert replace(here, seconds=by_spark.seconds) == by_spark
        assert here.rows == 1000
    expected, found = data_files(tmp_path / "by-spark"), data_files(tmp_path / "here")
    assert list(found) == list(expected)
    assert [name for name in expected if found[name] != expected[name]] == []
    one, other = (open_index(tmp_path / name).view for name in ("by-spark", "here"))
    assert other.snapshot.spec == one.snapshot.spec
    assert other.snapshot.columns == one.snapshot.columns
    assert [each.source_files for each in other.segments] == [each.source_files for each in one.segments]
    listed = [sorted(map(str, each.index_files)) for view in (one, other) for each in view.segments]
    assert listed[:2] == listed[2:]  # Spark lists them in the order of its tasks
