"""A copied source is adopted without indexing its files again, except files with other content."""

import os
import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from gnomon.shadow.commit.append_log import Append, commit_append, open_log
from gnomon.shadow.commit.relocate import adopt
from gnomon.shadow.errors import ConcurrentCommit, StalePointer, UsageError
from gnomon.shadow.metadata.append_records import append_path
from gnomon.shadow.metadata.snapshots import newest_snapshot, snapshot_numbers
from gnomon.shadow.metadata.source_files import source_root
from gnomon.shadow.storage import Storage, storage_at
from gnomon.shadow.verify.snapshot import verify
from tests.opened import open_index
from tests.shadow.make_index import index_source, write_source
from tests.shadow.operations import copy_lake

PLAIN: dict[str, object] = {"compression": "none", "use_dictionary": False}  # the length does not depend on the content


def table(begin: int, end: int) -> pa.Table:
    return pa.table({"k": pa.array(range(begin, end), pa.int64())})


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """Two segments, and a file that one of them no longer covers."""
    write_source(tmp_path / "lake", {"dt=1/a.parquet": table(0, 9), "dt=1/b.parquet": table(9, 20)}, **PLAIN)
    index_source(tmp_path / "lake", tmp_path / "index", ["k"])
    write_source(tmp_path / "lake", {"dt=1/b.parquet": table(9, 15), "dt=2/a.parquet": table(30, 40)})
    index_source(tmp_path / "lake", tmp_path / "index", ["k"])
    return tmp_path


def copied(lake: Path) -> Path:
    copy_lake(lake / "lake", lake / "copy")
    return lake / "copy"


def storage(lake: Path) -> Storage:
    return storage_at(str(lake / "index"))


def found(lake: Path) -> list[int]:
    index = open_index(str(lake / "index"))
    return [key for key in range(50) if index.fetch(key)]


def test_an_adoption_names_the_commit_that_came_after_the_source_was_read(lake: Path) -> None:
    base = open_index(str(lake / "index")).view
    write_source(lake / "lake", {"dt=3/a.parquet": table(40, 45)})
    index_source(lake / "lake", lake / "index", ["k"])
    with pytest.raises(ConcurrentCommit, match=r"another program committed snapshot 3 after .*copy was read; nothing"):
        adopt(storage(lake), source_root(str(copied(lake))), base)
    assert snapshot_numbers(storage(lake)) == [1, 2, 3]


EVERY_KEY = [*range(15), *range(30, 40)]


def test_a_copy_elsewhere_with_other_times_is_taken_over_whole(lake: Path) -> None:
    copy = copied(lake)
    shutil.rmtree(lake / "lake")
    files = sorted((lake / "index").rglob("*.btree.avro"))
    with pytest.raises(StalePointer):
        found(lake)
    snapshot, adopted = adopt(storage(lake), source_root(str(copy)))
    assert (snapshot.number, snapshot.operation, snapshot.spec.source.location, adopted) == (3, "adopt", str(copy), 3)
    assert snapshot.counts == {"adopted": 3}
    assert found(lake) == EVERY_KEY
    assert open_index(str(lake / "index")).coverage().is_empty
    assert sorted((lake / "index").rglob("*.btree.avro")) == files
    assert index_source(copy, lake / "index", ["k"]).number == 3  # a build has nothing to do


def test_nothing_is_committed_where_nothing_differs(lake: Path) -> None:
    assert adopt(storage(lake), source_root(str(lake / "lake")))[1] == 0
    assert snapshot_numbers(storage(lake)) == [1, 2]


def test_times_alone_may_differ_and_times_may_be_kept(lake: Path) -> None:
    for path in (lake / "lake").rglob("*.parquet"):
        os.utime(path, (1, 1))
    assert adopt(storage(lake), source_root(str(lake / "lake")))[1] == 3
    shutil.copytree(lake / "lake", lake / "copy")  # with its times
    snapshot, adopted = adopt(storage(lake), source_root(str(lake / "copy")))
    assert (snapshot.number, adopted) == (4, 3)  # each copy has its own ctime
    assert found(lake) == EVERY_KEY


def test_a_file_of_another_content_is_not_taken_over(lake: Path) -> None:
    copy = copied(lake)
    before = (copy / "dt=1/a.parquet").stat().st_size
    write_source(copy, {"dt=1/a.parquet": table(100, 109)}, **PLAIN)
    assert (copy / "dt=1/a.parquet").stat().st_size == before
    (copy / "dt=1/b.parquet").write_bytes(bytes((copy / "dt=1/b.parquet").stat().st_size))
    assert adopt(storage(lake), source_root(str(copy)))[1] == 1
    index = open_index(str(lake / "index"))
    assert [info.path for info in index.coverage().changed] == ["dt=1/a.parquet", "dt=1/b.parquet"]
    assert index.fetch(35)
    for key in (3, 10):
        with pytest.raises(StalePointer):
            index.fetch(key)


def test_a_file_of_another_content_is_told_apart_though_its_size_and_time_are_on_record(tmp_path: Path) -> None:
    """Copies with one time for all files are common, and so are files of one size. A new HDFS repeats the numbers of
    the old."""
    for name in ("lake", "copy"):
        write_source(tmp_path / name, {"a.parquet": table(0, 9), "b.parquet": table(20, 29)}, **PLAIN)
    write_source(tmp_path / "copy", {"b.parquet": table(40, 49)}, **PLAIN)
    for name in ("a.parquet", "b.parquet"):
        copies = sorted(tmp_path.rglob(name))
        assert len({path.stat().st_size for path in copies}) == 1
        while True:  # the clock of ctime moves on every few ms: both copies need the same one
            for path in copies:
                os.utime(path, (1, 1))
            if len({path.stat().st_ctime_ns for path in copies}) == 1:
                break
    index_source(tmp_path / "lake", tmp_path / "index", ["k"])

    snapshot, adopted = adopt(storage(tmp_path), source_root(str(tmp_path / "copy")))
    assert (adopted, snapshot.partitions) == (0, {"": 9})
    assert found(tmp_path) == [*range(9)]
    assert [info.path for info in open_index(str(tmp_path / "index")).coverage().new] == ["b.parquet"]
    assert verify(storage(tmp_path), sample=None).faults == []
    index_source(tmp_path / "copy", tmp_path / "index", ["k"])
    assert found(tmp_path) == [*range(9), *range(40, 49)]


def test_a_segment_of_which_nothing_is_the_same_is_dropped(lake: Path) -> None:
    copy = copied(lake)
    (copy / "dt=1/a.parquet").write_bytes(bytes((copy / "dt=1/a.parquet").stat().st_size))
    shutil.copystat(lake / "lake/dt=1/a.parquet", copy / "dt=1/a.parquet")
    snapshot, adopted = adopt(storage(lake), source_root(str(copy)))
    assert (adopted, len(snapshot.segments), snapshot.partitions) == (2, 1, {"dt=1": 6, "dt=2": 10})


def test_old_snapshots_are_of_the_old_place(lake: Path) -> None:
    adopt(storage(lake), source_root(str(copied(lake))))
    (lake / "copy/dt=1/a.parquet").unlink()
    assert open_index(str(lake / "index"), snapshot=2).fetch(3) == [{"k": 3, "dt": "1"}]
    newest = newest_snapshot(storage(lake))
    assert newest is not None
    assert newest.parent_id is not None


def test_a_place_with_nothing_of_what_was_indexed_is_refused(lake: Path) -> None:
    write_source(lake / "other", {"dt=1/a.parquet": pa.table({"k": ["x", "y"]}), "dt=1/c.parquet": table(0, 9)})
    with pytest.raises(UsageError, match=rf"{lake}/other: none of the 3 files .* expected a copy of {lake}/lake"):
        adopt(storage(lake), source_root(str(lake / "other")))
    assert snapshot_numbers(storage(lake)) == [1, 2]


def test_rows_that_the_files_own_metadata_does_not_tell_apart_are(tmp_path: Path) -> None:
    """Size and footer are the same: the least and the greatest value are equal."""
    paths = []
    for name, keys in (("lake", [1, 5, 9]), ("copy", [1, 6, 9])):
        write_source(tmp_path / name, {"a.parquet": pa.table({"k": keys}), "b.parquet": table(20, 29)}, **PLAIN)
        paths.append(tmp_path / name / "a.parquet")
    os.utime(tmp_path / "copy" / "b.parquet", (1, 1))  # both may have been written within one tick of the clock
    footers = [path.read_bytes()[-200:] for path in paths]
    assert footers[0] == footers[1]
    index_source(tmp_path / "lake", tmp_path / "index", ["k"])
    assert adopt(storage(tmp_path), source_root(str(tmp_path / "copy")))[1] == 1
    index_source(tmp_path / "copy", tmp_path / "index", ["k"])
    assert found(tmp_path) == [1, 6, 9, *range(20, 29)]
    assert verify(storage(tmp_path), None).faults == []


def test_while_an_append_is_not_finished_nothing_is_taken_over(lake: Path) -> None:
    log = open_log(storage(lake))
    commit_append(storage(lake), Append(1, "a", log.parent, "monday", "", "_gnomon/x/1-a", (), {}))
    copy = copied(lake)
    with pytest.raises(
        UsageError, match=r"append 1 of batch 'monday' is not finished.*run gnomon dedup.*or remove the append's record"
    ):
        adopt(storage(lake), source_root(str(copy)))
    assert snapshot_numbers(storage(lake)) == [1, 2]
    storage(lake).delete(append_path(1))  # the advice of the error: give the append up
    assert adopt(storage(lake), source_root(str(copy)))[0].number == 3
