"""Appends to sources of every format, from batches of every format."""

import datetime as dt
from collections.abc import Callable, Iterator
from pathlib import Path

import fastavro
import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from gnomon.indexer import append_new, build, read_batch
from gnomon.shadow.errors import UnsupportedFormat
from gnomon.shadow.storage import Storage, storage_at
from gnomon.shadow.verify.snapshot import verify
from tests.indexer.test_formats import CASES, Rows, as_table
from tests.opened import open_index
from tests.spark_fixtures import in_workers
from tests.stores.process import Store

WRITABLE = [name for name in CASES if name != "sequence"]
TEXTS = ["plain", 'with "quotes", and commas', "über\nzwei Zeilen", " spaces ", "", "x" * 5000]


def rows(begin: int, end: int) -> Rows:
    return [(n, f"{TEXTS[n % len(TEXTS)]}{n}" if n % 6 != 4 else "") for n in range(begin, end)]


def put(root: Path, name: str, some: Rows, path: str) -> None:
    target = root / f"{path}.{name}"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(CASES[name].write(some))


def all_rows(location: str, last: int) -> list[tuple[int, str]]:
    """The rows that the index finds by the keys 0 to `last`."""
    index = open_index(location)
    name = index.spec.format
    case = CASES[name]
    answers = index.fetch_many([case.kind(n) for n in range(last + 1)])
    return [(int(row[case.number]), row[case.text]) for answer in answers for row in answer]


@pytest.mark.parametrize(("of_source", "of_batch"), list(zip(WRITABLE, [*WRITABLE[1:], "sequence"], strict=True)))
def test_new_rows_are_files_of_the_sources_format_whatever_that_of_the_batch(
    tmp_path: Path, of_source: str, of_batch: str
) -> None:
    for day in ("2026-01-01", "2026-01-02"):
        begin = 0 if day.endswith("1") else 50
        put(tmp_path / "source", of_source, rows(begin, begin + 50), f"dt={day}/old")
    source, location = str(tmp_path / "source"), str(tmp_path / "index")
    build(None, source, location, [CASES[of_source].number])
    put(tmp_path / "batch", of_batch, rows(90, 140), "dt=2026-01-02/a")
    put(tmp_path / "batch", of_batch, rows(130, 150), "dt=2026-01-03/b")
    read = read_batch(None, str(tmp_path / "batch"), open_index(location))
    batch = pa.Table.from_batches(read.batches(read.schema.names)).rename_columns(["id", "text", "dt"])
    result = append_new(None, location, batch, "batch")
    assert (result.rows_read, result.duplicates_in_batch, result.already_loaded, result.appended) == (70, 10, 10, 50)
    fresh = sorted(path for path in (tmp_path / "source").rglob("part-*"))
    assert {path.parent.name for path in fresh} == {"dt=2026-01-02", "dt=2026-01-03"}
    assert {path.suffix for path in fresh} == {f".{of_source}"}
    assert all_rows(location, 160) == rows(0, 150)
    assert verify(storage_at(location)).faults == []
    build(None, source, str(tmp_path / "anew"), [CASES[of_source].number])
    assert open_index(str(tmp_path / "anew")).view.snapshot.columns == open_index(location).view.snapshot.columns


@pytest.mark.parametrize("write", [pq.write_table, orc.write_table], ids=["parquet", "orc"])
def test_a_source_may_have_columns_called_like_those_of_a_pointer(tmp_path: Path, write: Callable[..., None]) -> None:
    """They have other types than a pointer's, and are key, included and plain columns."""
    moments = pa.array([dt.datetime(2026, 1, day) for day in range(1, 11)], pa.timestamp("us"))
    names = {"data_filename": list(range(10)), "data_offset": [f"o{n}" for n in range(10)], "data_sub_offset": moments}
    (tmp_path / "source").mkdir()
    write(pa.table({**names, "data_size": [n / 2 for n in range(10)]}), str(tmp_path / "source/old"))
    location = str(tmp_path / "index")
    build(None, str(tmp_path / "source"), location, ["data_filename"], include=["data_sub_offset"])
    numbers = range(8, 12)
    february = pa.array([dt.datetime(2026, 2, n) for n in numbers], pa.timestamp("us"))
    names = {"data_filename": list(numbers), "data_offset": [f"n{n}" for n in numbers], "data_sub_offset": february}
    batch = pa.table({**names, "data_size": [n / 4 for n in numbers]})
    assert append_new(None, location, batch, "more").appended == 2
    answers = open_index(location).fetch_many([0, 9, 10])
    assert [[(row["data_offset"], row["data_size"]) for row in rows] for rows in answers] == [
        [("o0", 0.0)],
        [("o9", 4.5)],
        [("n10", 2.5)],
    ]
    assert verify(storage_at(location), sample=None).faults == []


def test_new_files_are_compressed_and_typed_as_those_that_are_there(tmp_path: Path) -> None:
    for name in ("parquet", "avro", "orc"):
        put(tmp_path / name, name, rows(0, 10), "old")
        build(None, str(tmp_path / name), str(tmp_path / f"{name} index"), ["id"])
        assert append_new(None, str(tmp_path / f"{name} index"), as_table(rows(5, 15)), "more").appended == 5
    files = {name: next((tmp_path / name).glob("part-*")) for name in ("parquet", "avro", "orc")}
    with files["avro"].open("rb") as file:
        reader = fastavro.reader(file)
        assert (reader.metadata["avro.codec"], len(list(reader))) == ("deflate", 5)
        assert reader.writer_schema["fields"][1]["type"] == ["null", "string"]
    assert orc.ORCFile(str(files["orc"])).schema == orc.ORCFile(str(tmp_path / "orc/old.orc")).schema
    assert pq.read_schema(files["parquet"]).equals(pq.read_schema(tmp_path / "parquet/old.parquet"))


def test_a_source_of_sequence_files_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    put(tmp_path / "source", "sequence", rows(0, 10), "old")
    build(None, str(tmp_path / "source"), str(tmp_path / "index"), ["key"])
    with pytest.raises(UnsupportedFormat, match="Gnomon writes no files of format sequence; expected one of parquet"):
        append_new(None, str(tmp_path / "index"), as_table(rows(5, 15)).rename_columns(["key", "value"]), "x")
    assert [path.name for path in (tmp_path / "source").iterdir()] == ["old.sequence"]


@pytest.fixture
def lake(remote_store: Store, remote_root: str, spark: SparkSession) -> Iterator[str]:
    """A folder on a store that Spark's Python workers can reach."""
    with in_workers(spark, remote_store.variables):
        yield remote_root


def test_source_index_and_batch_may_lie_on_a_store_that_spark_does_not_reach(spark: SparkSession, lake: str) -> None:
    source, location, delivered = f"{lake}/crawl", f"{lake}/crawl_index", f"{lake}/batch"
    put_remote(storage_at(source), "parquet", rows(0, 50), "dt=1/old")
    build(spark, source, location, ["id"])
    put_remote(storage_at(delivered), "avro", rows(40, 70), "dt=2/new")
    frame = read_batch(spark, delivered, open_index(location))
    result = append_new(spark, location, frame, "batch")
    assert (result.already_loaded, result.appended, result.files) == (10, 20, 1)
    names = [info.path for info in storage_at(source).list(hidden=True)]
    assert len(names) == 2, names
    assert all_rows(location, 80) == rows(0, 70)
    assert append_new(spark, location, frame, "batch").known_batch


def put_remote(storage: Storage, name: str, some: Rows, path: str) -> None:
    storage.put_new(f"{path}.{name}", [CASES[name].write(some)])
