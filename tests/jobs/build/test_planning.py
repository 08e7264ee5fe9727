"""The plan of a build, made without Spark and without writing."""

import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from gnomon.jobs.build import build
from gnomon.jobs.build.planning import check_rows, plan
from gnomon.jobs.build.specs import BuildRequest, Vanished
from gnomon.shadow.errors import FilesVanished, SpecMismatch, StorageError, UnsupportedFormat, UsageError
from tests.opened import open_index
from tests.shadow.make_index import Build, index_source, write_source

REQUEST = BuildRequest(["k"])


def table(*keys: int) -> pa.Table:
    return pa.table({"k": pa.array(keys, pa.int64())})


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    write_source(tmp_path / "source", {"dt=1/a.parquet": table(1), "dt=1/b.parquet": table(2), "dt=2/a": table(3)})
    return tmp_path


def test_before_the_first_build_every_file_is_new_and_nothing_is_written(lake: Path) -> None:
    planned = plan(str(lake / "source"), str(lake / "index"), REQUEST)
    assert planned.view is None
    assert planned.to_json()["snapshot"] is None
    assert [file["path"] for file in planned.to_json()["new"]] == ["dt=1/a.parquet", "dt=1/b.parquet", "dt=2/a"]
    assert (planned.format, planned.partitions) == ("parquet", ("dt",))
    assert not (lake / "index").exists()


def test_new_changed_and_vanished_files_are_named(lake: Path) -> None:
    index_source(lake / "source", lake / "index", ["k"])
    assert plan(str(lake / "source"), str(lake / "index"), REQUEST).difference.is_empty
    write_source(lake / "source", {"dt=1/a.parquet": table(1, 1), "dt=3/a.parquet": table(4)})
    (lake / "source/dt=2/a").unlink()
    shown = plan(str(lake / "source"), str(lake / "index"), REQUEST).to_json()
    assert [file["path"] for file in shown["new"]] == ["dt=3/a.parquet"]
    assert shown["changed"] == [
        {"path": "dt=1/a.parquet", "size": (lake / "source/dt=1/a.parquet").stat().st_size},
    ]
    assert (shown["vanished"], shown["snapshot"]) == (["dt=2/a"], 1)


def test_a_build_that_cannot_be_of_this_index_is_refused_with_the_difference(lake: Path) -> None:
    index_source(lake / "source", lake / "index", ["k"])
    for request, says in (
        (BuildRequest(["dt", "k"], [], None), r"keys: .*k bigint.* in the index, dt.* asked for"),
        (BuildRequest(["k"], ["x"], None), r"include: none in the index, x asked for"),
        (BuildRequest(["k"], [], 9), "buckets: 4 in the index, 9 asked for"),
    ):
        with pytest.raises(SpecMismatch, match=says):
            plan(str(lake / "source"), str(lake / "index"), request)
    with pytest.raises(SpecMismatch, match="source"):
        plan(str(lake / "source/dt=1"), str(lake / "index"), REQUEST)


def test_json_lines_among_csv_are_no_rows_of_csv(tmp_path: Path) -> None:
    source, index = tmp_path / "source", tmp_path / "index"
    source.mkdir()
    (source / "a.csv").write_text("k\n1\n")
    (source / "b.jsonl").write_text('{"k": 2}\n{"k": 3}\n')
    with pytest.raises(
        UnsupportedFormat, match=r"a file of format jsonl among csv ones; .* give --format csv"
    ) as caught:
        plan(str(source), str(index), BuildRequest(["k"]))
    assert caught.value.path == f"{source}/b.jsonl"
    assert len(plan(str(source), str(index), BuildRequest(["k"], format="csv")).difference.new) == 2


def test_parquet_among_csv_is_told_by_its_bytes(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "a.csv").write_text("k\n1\n")
    pq.write_table(pa.table({"j": [1]}), source / "b")
    request = BuildRequest(["j"])
    with pytest.raises(UnsupportedFormat, match="a file of format parquet among csv ones") as caught:
        check_rows(plan(str(source), str(tmp_path / "index"), request), request)
    assert caught.value.path == f"{source}/b"


def test_what_can_be_no_index_is_refused(lake: Path) -> None:
    (lake / "file").touch()
    with pytest.raises(StorageError, match="expected a folder for the index"):
        plan(str(lake / "source"), str(lake / "file"), REQUEST)
    with pytest.raises(UsageError, match="format: expected one of auto, parquet"):
        plan(str(lake / "source"), str(lake / "index"), replace(REQUEST, format="excel"))


def test_a_folder_of_a_lake_table_is_refused_unless_its_files_are_asked_for(lake: Path) -> None:
    write_source(lake / "source", {"_delta_log/00000000000000000000.json": table(1)})
    for source in ("source", "source/dt=1", "source/dt=1/a.parquet"):
        with pytest.raises(UsageError, match=rf"a Delta Lake table at {lake}/source .*--as-files"):
            plan(str(lake / source), str(lake / "index"), REQUEST)
    asked = replace(REQUEST, as_files=True)
    assert plan(str(lake / "source"), str(lake / "index"), asked).as_files


def test_asking_for_the_files_of_a_plain_folder_changes_nothing(lake: Path) -> None:
    assert not plan(str(lake / "source"), str(lake / "index"), replace(REQUEST, as_files=True)).as_files


def test_a_build_that_would_drop_most_of_the_source_asks_for_consent(lake: Path) -> None:
    index_source(lake / "source", lake / "index", ["k"])
    shutil.rmtree(lake / "source/dt=1")
    with pytest.raises(FilesVanished, match=r"2 of the 3 files .* are gone \(dt=1/a.parquet, dt=1/b.*--accept"):
        plan(str(lake / "source"), str(lake / "index"), REQUEST)
    accepted = replace(REQUEST, vanished=Vanished.DROP_ALL)
    assert len(plan(str(lake / "source"), str(lake / "index"), accepted).difference.vanished) == 2


def test_a_source_that_was_written_anew_under_other_names_needs_no_consent(lake: Path) -> None:
    index_source(lake / "source", lake / "index", ["k"])
    shutil.rmtree(lake / "source")
    write_source(lake / "source", {"dt=1/c.parquet": table(1, 2), "dt=9/d.parquet": table(3)})
    difference = plan(str(lake / "source"), str(lake / "index"), REQUEST).difference
    assert (len(difference.new), len(difference.vanished)) == (2, 3)


def test_files_that_vanished_may_stay_covered_or_stop_the_build(lake: Path) -> None:
    index_source(lake / "source", lake / "index", ["k"])
    (lake / "source/dt=2/a").unlink()
    write_source(lake / "source", {"dt=1/a.parquet": table(1, 1)})
    kept = plan(str(lake / "source"), str(lake / "index"), replace(REQUEST, vanished=Vanished.KEEP)).difference
    assert (kept.vanished, [info.path for info in kept.changed]) == ((), ["dt=1/a.parquet"])
    assert [len(dead) for dead in kept.dead.values()] == [1], "the changed file alone"
    with pytest.raises(FilesVanished, match=r"1 of the 3 files .*dt=2/a.*nothing was appended.*--accept-vanished"):
        plan(str(lake / "source"), str(lake / "index"), replace(REQUEST, vanished=Vanished.REFUSE))


def test_a_first_build_into_a_folder_of_other_files_is_refused(lake: Path) -> None:
    (lake / "index/date=1").mkdir(parents=True)
    (lake / "index/date=1/part-00000.btree.avro").write_bytes(b"another program's")
    with pytest.raises(UsageError, match=r"index: other files are there \(date=1/part-00000.btree.avro\)"):
        plan(str(lake / "source"), str(lake / "index"), REQUEST)


def test_what_a_build_that_died_left_behind_is_no_other_file(lake: Path) -> None:
    Build(lake / "source", lake / "index", ["k"])  # not committed
    (lake / "index/_notes.txt").write_text("engines skip it")
    assert len(plan(str(lake / "source"), str(lake / "index"), REQUEST).difference.new) == 3


def test_a_table_that_was_put_back_to_an_older_version_takes_the_index_back_only_with_consent(tmp_path: Path) -> None:
    source, index = tmp_path / "table", str(tmp_path / "index")
    for number in range(3):
        write_deltalake(source, pa.table({"id": [number]}), mode="append")
    build(None, f"delta:{source}", index, ["id"])
    for file in source.glob("_delta_log/*2.json"):
        file.unlink()
    with pytest.raises(SpecMismatch, match=r"expected version 2 or later, found 1; if .* --full --accept-vanished"):
        build(None, f"delta:{source}", index, ["id"])
    with pytest.raises(FilesVanished, match=r"newest version is 1, and snapshot 1 of the index covers version 2; if"):
        build(None, f"delta:{source}", index, ["id"], full=True)
    assert open_index(index).view.snapshot.rows == 3
    build(None, f"delta:{source}", index, ["id"], full=True, table_version="0")
    assert open_index(index).view.snapshot.rows == 1
    build(None, f"delta:{source}", index, ["id"])
    assert open_index(index).view.snapshot.rows == 2
    write_deltalake(source, pa.table({"id": [9]}), mode="append")
    build(None, f"delta:{source}", index, ["id"])
    for file in source.glob("_delta_log/*2.json"):
        file.unlink()
    build(None, f"delta:{source}", index, ["id"], full=True, accept_vanished=True)
    assert open_index(index).view.snapshot.rows == 2
