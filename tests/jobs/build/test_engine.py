"""jobs/local/engine.py: builds in this process, without Spark."""

import json
from pathlib import Path

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gnomon.jobs import Step
from gnomon.jobs.build import BuildRequest, LocalEngine, build, build_index
from gnomon.shadow import SpecMismatch, UsageError
from gnomon.shadow.errors import SourceError
from gnomon.shadow.storage import storage_at
from gnomon.shadow.verify import verify
from tests.opened import open_index


def write(path: Path, begin: int, end: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"id": range(begin, end), "v": [f"v{i}" for i in range(begin, end)]}), path)


def test_an_index_follows_its_source_through_builds(tmp_path: Path) -> None:
    source, index = tmp_path / "source", tmp_path / "index"
    write(source / "dt=1/a.parquet", 0, 100)
    first = build(None, source, index, ["id"], page_maps=True)
    assert (first.snapshot, first.rows, first.mapped_files) == (1, 100, 1)
    write(source / "dt=2/b.parquet", 50, 150)
    second = build(None, source, index, ["id"])
    assert (second.snapshot, second.new_files, second.rows, second.skipped_files) == (2, 1, 200, 1)
    (source / "dt=1/a.parquet").unlink()
    third = build(None, source, index, ["id"], accept_vanished=True)
    assert (third.vanished_files, third.rows) == (1, 100)
    assert build(None, source, index, ["id"]).committed is False
    assert open_index(index).fetch(120) == [{"id": 120, "v": "v120", "dt": "2"}]
    assert open_index(index).fetch(20) == []
    assert verify(storage_at(index), None).is_sound


def test_a_file_that_a_delta_table_names_and_does_not_have_is_said(tmp_path: Path) -> None:
    deltalake.write_deltalake(tmp_path / "table", pa.table({"id": range(3)}))
    [path] = (tmp_path / "table").glob("*.parquet")
    path.unlink()
    with pytest.raises(SourceError, match="the file vanished but the table's metadata names it") as caught:
        build(None, f"delta:{tmp_path / 'table'}", tmp_path / "index", ["id"])
    assert str(path) in str(caught.value)


def test_columns_of_text_are_inferred(tmp_path: Path) -> None:
    source, index = tmp_path / "source", tmp_path / "index"
    source.mkdir()
    (source / "a.jsonl").write_text("".join(json.dumps({"k": i, "n": i}) + "\n" for i in range(50)))
    build(None, source, index, ["k"])
    (source / "b.jsonl").write_text(json.dumps({"k": 50, "n": 1.5}) + "\n")
    build(None, source, index, ["k"])
    assert open_index(index).fetch(50) == [{"k": 50, "n": 1.5}]
    (source / "c.jsonl").write_text(json.dumps({"k": "text"}) + "\n")
    with pytest.raises(UsageError, match=r"c\.jsonl: column k is string, elsewhere in the source it is bigint"):
        build(None, source, index, ["k"])


def test_each_scanned_file_is_a_step(tmp_path: Path) -> None:
    for i in range(3):
        write(tmp_path / "source" / f"{i}.parquet", 10 * i, 10 * i + 10)
    steps: list[Step] = []
    made = build(None, tmp_path / "source", tmp_path / "index", ["id"], progress=steps.append)
    written = [step for step in steps if step.stage == "write"]
    assert written == [Step("write", done, 3, "files", 30) for done in range(4)]
    assert set(made.stage_seconds) == {"list", "describe", "write", "verify", "commit"}


def test_more_rows_than_allowed_are_refused_before_they_are_read(tmp_path: Path) -> None:
    write(tmp_path / "source/a.parquet", 0, 11)
    request = BuildRequest(["id"])
    with pytest.raises(UsageError, match=r"11 rows are to be indexed, at most 10 without Spark .*--engine local"):
        build_index(LocalEngine(most_rows=10), str(tmp_path / "source"), str(tmp_path / "index"), request)
    assert build_index(LocalEngine(most_rows=11), str(tmp_path / "source"), str(tmp_path / "index"), request).rows == 11


def test_a_table_of_the_catalog_needs_spark(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"table:db\.t: a table of the catalog is found by Spark"):
        build(None, "table:db.t", tmp_path / "index", ["id"])


def test_a_damaged_file_fails_the_build_and_nothing_is_committed(tmp_path: Path) -> None:
    write(tmp_path / "source/a.parquet", 0, 5000)
    data = bytearray((tmp_path / "source/a.parquet").read_bytes())
    data[200:400] = bytes(200)
    (tmp_path / "source/a.parquet").write_bytes(data)
    with pytest.raises(SourceError, match=r"a\.parquet"):
        build(None, tmp_path / "source", tmp_path / "index", ["id"])
    assert not list((tmp_path / "index").rglob("*.json"))


def test_a_column_of_another_type_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "source/a.parquet", 0, 5)
    build(None, tmp_path / "source", tmp_path / "index", ["id"])
    with pytest.raises(SpecMismatch):
        build(None, tmp_path / "source", tmp_path / "index", ["v"])


def test_ragged_records_are_counted_shown_and_refused_from_a_tenth(tmp_path: Path) -> None:
    source, index = tmp_path / "source", tmp_path / "index"
    source.mkdir()
    lines = [f"{i},x,y" for i in range(30)]
    (source / "a.csv").write_text("\n".join(["id,a,b", *lines, "30,x", "31,x,y,z", ""]))
    built = build(None, source, index, ["id"])
    assert (built.rows_indexed, built.ragged_rows) == (32, 2)
    assert [file.ragged for file in open_index(index).view.covered.values()] == [2]
    (source / "b.csv").write_text("\n".join(["id,a,b", "40,x,y", "41,x", ""]))
    with pytest.raises(
        UsageError, match=r"b\.csv: 1 of its 2 records have fewer or more fields than the header; nothing"
    ):
        build(None, source, index, ["id"])
    other = build(None, source, tmp_path / "other", ["id"], options={"ragged": "true"})
    assert (other.rows_indexed, other.ragged_rows) == (34, 3)
    assert open_index(tmp_path / "other").fetch("41") == [{"id": "41", "a": "x", "b": None, "_c3": None}]
