"""What a build would do, known without Spark and without writing anything."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from indexer.plan import check_rows, plan
from indexer.specs import Request
from shadow.errors import SpecMismatch, StorageError, UnsupportedFormat, UsageError
from tests.shadow.make_index import index_source, write_source

REQUEST = Request(["k"], [], None)


def table(*keys: int) -> pa.Table:
    return pa.table({"k": pa.array(keys, pa.int64())})


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    write_source(tmp_path / "source", {"dt=1/a.parquet": table(1), "dt=1/b.parquet": table(2), "dt=2/a": table(3)})
    return tmp_path


def test_before_the_first_build_every_file_is_new_and_nothing_is_written(lake: Path) -> None:
    planned = plan(str(lake / "source"), str(lake / "index"), REQUEST, "auto")
    assert planned.view is None
    assert planned.to_json()["snapshot"] is None
    assert [file["path"] for file in planned.to_json()["new"]] == ["dt=1/a.parquet", "dt=1/b.parquet", "dt=2/a"]
    assert (planned.format, planned.partitions) == ("parquet", ("dt",))
    assert not (lake / "index").exists()


def test_new_changed_and_vanished_files_are_named(lake: Path) -> None:
    index_source(lake / "source", lake / "index", ["k"])
    assert plan(str(lake / "source"), str(lake / "index"), REQUEST, "auto").difference.is_empty
    write_source(lake / "source", {"dt=1/a.parquet": table(1, 1), "dt=3/a.parquet": table(4)})
    (lake / "source/dt=2/a").unlink()
    shown = plan(str(lake / "source"), str(lake / "index"), REQUEST, "auto").to_json()
    assert [file["path"] for file in shown["new"]] == ["dt=3/a.parquet"]
    assert shown["changed"] == [
        {"path": "dt=1/a.parquet", "size": (lake / "source/dt=1/a.parquet").stat().st_size},
    ]
    assert (shown["vanished"], shown["snapshot"]) == (["dt=2/a"], 1)


def test_a_build_that_cannot_be_of_this_index_is_refused_with_the_difference(lake: Path) -> None:
    index_source(lake / "source", lake / "index", ["k"])
    for request, says in (
        (Request(["dt", "k"], [], None), r"keys: .*k bigint.* in the index, dt.* asked for"),
        (Request(["k"], ["x"], None), r"include: none in the index, x asked for"),
        (Request(["k"], [], 9), "buckets: 4 in the index, 9 asked for"),
    ):
        with pytest.raises(SpecMismatch, match=says):
            plan(str(lake / "source"), str(lake / "index"), request, "auto")
    with pytest.raises(SpecMismatch, match="source"):
        plan(str(lake / "source/dt=1"), str(lake / "index"), REQUEST, "auto")


def test_json_lines_among_csv_are_no_rows_of_csv(tmp_path: Path) -> None:
    source, index = tmp_path / "source", tmp_path / "index"
    source.mkdir()
    (source / "a.csv").write_text("k\n1\n")
    (source / "b.jsonl").write_text('{"k": 2}\n{"k": 3}\n')
    with pytest.raises(
        UnsupportedFormat, match=r"a file of format jsonl among csv ones; .* give --format csv"
    ) as caught:
        plan(str(source), str(index), Request(["k"], [], None), "auto")
    assert caught.value.path == f"{source}/b.jsonl"
    assert len(plan(str(source), str(index), Request(["k"], [], None), "csv").difference.new) == 2


def test_parquet_among_csv_is_told_by_its_bytes(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "a.csv").write_text("k\n1\n")
    pq.write_table(pa.table({"j": [1]}), source / "b")
    request = Request(["j"], [], None)
    with pytest.raises(UnsupportedFormat, match="a file of format parquet among csv ones") as caught:
        check_rows(plan(str(source), str(tmp_path / "index"), request, "auto"), request)
    assert caught.value.path == f"{source}/b"


def test_what_can_be_no_index_is_refused(lake: Path) -> None:
    (lake / "file").touch()
    with pytest.raises(StorageError, match="expected a folder for the index"):
        plan(str(lake / "source"), str(lake / "file"), REQUEST, "auto")
    with pytest.raises(UsageError, match="format: expected one of auto, parquet"):
        plan(str(lake / "source"), str(lake / "index"), REQUEST, "excel")
