"""The commit: all of a build or nothing, one of two concurrent ones, and nothing lost."""

import io
from dataclasses import replace
from pathlib import Path

import fastavro
import pyarrow as pa
import pytest

from gnomon.btree.errors import DamagedIndexFile, UnsortedKeys
from gnomon.shadow.commit.publishing import Changes, new_segment_id, publish
from gnomon.shadow.errors import BuildFailed, DamagedMetadata, IndexNotFound, SpecMismatch, StorageError
from gnomon.shadow.lookup.index_files import filter_path, index_file_path, write_index_file
from gnomon.shadow.metadata import Folder
from gnomon.shadow.metadata.manifests import IndexFileEntry
from gnomon.shadow.metadata.snapshots import create_spec, newest_snapshot, read_snapshot, read_spec
from gnomon.shadow.metadata.spec import IndexSpec, KeyColumn
from gnomon.shadow.storage import LocalStorage, Storage, storage_at
from tests.opened import open_index
from tests.shadow.faults import Interrupted
from tests.shadow.make_index import Build, index_source, write_source

SPEC = IndexSpec(Folder("/lake"), "parquet", (), (KeyColumn("k", "int"),), (), 4)


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return storage_at(str(tmp_path / "index"))


def entries(keys: list[int]) -> pa.Table:
    n = len(keys)
    numbers = [pa.array([0] * n, kind) for kind in (pa.int64(), pa.int32(), pa.int32())]
    return pa.table(
        [pa.array(keys, pa.int32()), pa.array(["f"] * n), *numbers],
        names=[column.name for column in SPEC.entry_schema.columns],
    )


def write(storage: Storage, keys: list[int], segment: str = "s") -> IndexFileEntry:
    return write_index_file(storage, SPEC, segment, "p=1", 2, [entries(keys)])


# -- index files -------------------------------------------------------------------------------------------------------


def test_an_index_file_is_named_so_that_spark_finds_its_bucket() -> None:
    assert index_file_path("s", "dt=1", 3) == "dt=1/s_00003.btree.avro"
    assert index_file_path("s", "", 65_535) == "s_65535.btree.avro"


def test_an_index_file_is_plain_avro_with_its_checksum(storage: Storage) -> None:
    entry = write(storage, [1, 2, 2])
    data = storage.read(entry.path)
    assert (entry.path, entry.entries, entry.size) == ("p=1/s_00002.btree.avro", 3, len(data))
    assert [record["k"] for record in fastavro.reader(io.BytesIO(data))] == [1, 2, 2]


def test_a_task_that_runs_again_makes_the_same_file_however_its_rows_are_cut(storage: Storage) -> None:
    keys = list(range(5000))
    first = write(storage, keys)
    before = list(storage.list(hidden=True))
    pieces = [entries(keys[i : i + 700]) for i in range(0, 5000, 700)]
    assert write_index_file(storage, SPEC, "s", "p=1", 2, pieces) == first
    assert list(storage.list(hidden=True)) == before


def test_a_task_that_runs_again_replaces_what_an_earlier_run_wrote_otherwise(storage: Storage) -> None:
    storage.put_new(index_file_path("s", "p=1", 2), [b"half of a fi"])
    storage.put_new(filter_path("s", "p=1", 2), [b""])
    entry = write(storage, [1, 2])
    again = write(storage, [1, 2, 3])
    assert (again.crc32, again.filter) != (entry.crc32, entry.filter)
    assert [info.path for info in storage.list(hidden=True)] == [filter_path("s", "p=1", 2), entry.path]


def test_files_of_other_segments_partitions_and_buckets_differ(storage: Storage) -> None:
    files = [write(storage, [1], "s"), write(storage, [1], "t")]
    files.append(write_index_file(storage, SPEC, "s", "p=2", 2, [entries([1])]))
    files.append(write_index_file(storage, SPEC, "s", "p=1", 3, [entries([1])]))
    assert len({file.crc32 for file in files}) == 4
    assert len({file.filter.path for file in files if file.filter}) == 4


class LyingStorage(LocalStorage):
    """A disk that returns some files with one wrong byte."""

    def __init__(self, root: str, suffix: str) -> None:
        super().__init__(root)
        self._suffix = suffix

    def read(self, path: str) -> bytes:
        data = super().read(path)
        if not path.endswith(self._suffix):
            return data
        return data[:-20] + bytes([data[-20] ^ 1]) + data[-19:]


def test_a_file_that_is_not_read_back_as_written_fails_the_build(tmp_path: Path) -> None:
    with pytest.raises(DamagedIndexFile, match=r"read back: expected CRC") as caught:
        write(LyingStorage(str(tmp_path), ".avro"), [1, 2])
    assert caught.value.path == f"{tmp_path}/p=1/s_00002.btree.avro"


def test_a_filter_that_is_not_read_back_as_written_fails_the_build(tmp_path: Path) -> None:
    with pytest.raises(DamagedIndexFile, match=r"Bloom filter: page: expected CRC") as caught:
        write(LyingStorage(str(tmp_path), ".filter"), [1, 2])
    assert caught.value.path == f"{tmp_path}/_shadow/filters/s/p=1/00002.filter"


def test_unsorted_entries_write_nothing(storage: Storage) -> None:
    with pytest.raises(UnsortedKeys):
        write(storage, [2, 1])
    assert list(storage.list(hidden=True)) == []


# -- the commit --------------------------------------------------------------------------------------------------------


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    write_source(tmp_path / "lake", {f"p={p}/a.parquet": pa.table({"k": range(5), "k2": range(5)}) for p in "ab"})
    return tmp_path / "lake"


def test_before_the_commit_nothing_is_seen_and_after_it_everything(lake: Path, tmp_path: Path) -> None:
    index_source(lake, tmp_path / "index", ["k"])
    write_source(lake, {"p=b/b.parquet": pa.table({"k": [100]}), "p=c/a.parquet": pa.table({"k": [100]})})
    build = Build(lake, tmp_path / "index", ["k"])
    assert not open_index(str(tmp_path / "index")).contains(100)
    build.commit()
    assert len(open_index(str(tmp_path / "index")).lookup(100)) == 2


def test_a_crashed_first_build_leaves_no_index_and_hinders_no_other(lake: Path, tmp_path: Path) -> None:
    dead = Build(lake, tmp_path / "index", ["k"], buckets=2)
    create_spec(dead.storage, dead.spec)
    with pytest.raises(IndexNotFound, match="no snapshot yet"):
        open_index(str(tmp_path / "index"))
    index_source(lake, tmp_path / "index", ["k2"], buckets=3)
    index = open_index(str(tmp_path / "index"))
    assert (index.spec.buckets, len(index.lookup(3))) == (3, 2)
    with pytest.raises(SpecMismatch):
        dead.commit()


@pytest.mark.parametrize("failing", ["_shadow/spec.json", "_shadow/segments", "_shadow/snapshots"])
def test_a_failure_at_any_step_of_the_commit_changes_nothing_and_the_next_build_works(
    lake: Path, tmp_path: Path, failing: str
) -> None:
    def fail() -> None:
        raise StorageError("no space left on device")

    build = Build(lake, tmp_path / "index", ["k"])
    build.storage = Interrupted(str(tmp_path / "index"), failing, fail)
    with pytest.raises(StorageError, match="no space left"):
        build.commit()
    with pytest.raises(IndexNotFound):
        open_index(str(tmp_path / "index"))
    index_source(lake, tmp_path / "index", ["k"])
    assert len(open_index(str(tmp_path / "index")).lookup(1)) == 2


def test_entries_that_are_not_exactly_the_rows_of_the_source_fail_the_build(lake: Path, tmp_path: Path) -> None:
    build = Build(lake, tmp_path / "index", ["k"])
    files = build.index_files
    for broken in (files[1:], [replace(files[0], entries=files[0].entries + 1), *files[1:]]):
        build.index_files = broken
        with pytest.raises(BuildFailed, match=r"partition p=a: the source has 5 rows, the scan brought \d"):
            build.commit()
    build.index_files = [*files, replace(files[0], entries=0)]
    with pytest.raises(BuildFailed, match="a bucket was written to two index files"):
        build.commit()
    assert newest_snapshot(build.storage) is None


def test_a_file_that_is_covered_already_fails_the_build(lake: Path, tmp_path: Path) -> None:
    again = Build(lake, tmp_path / "index", ["k"])
    again.view = index_view(lake, tmp_path)
    with pytest.raises(BuildFailed, match=r"p=a/a\.parquet: indexed though the index covers it already"):
        again.commit()


def index_view(lake: Path, tmp_path: Path) -> object:
    index_source(lake, tmp_path / "index", ["k"])
    return open_index(str(tmp_path / "index")).view


def test_what_is_dead_stays_dead_and_a_dead_segment_is_dropped(lake: Path, tmp_path: Path) -> None:
    first = index_source(lake, tmp_path / "index", ["k"])
    write_source(lake, {"p=a/a.parquet": pa.table({"k": [50]})})
    second = index_source(lake, tmp_path / "index", ["k"])
    assert [ref.dead for ref in second.segments] == [(0,), ()]
    write_source(lake, {"p=b/a.parquet": pa.table({"k": [60]})})
    third = index_source(lake, tmp_path / "index", ["k"])
    assert [ref.id for ref in third.segments] == [second.segments[1].id, third.segments[1].id]
    assert third.partitions == {"p=a": 1, "p=b": 1}
    assert read_snapshot(storage_at(str(tmp_path / "index")), 1) == first
    assert len(open_index(str(tmp_path / "index"), snapshot=1).lookup(3)) == 2


def test_files_without_rows_are_covered_too(tmp_path: Path) -> None:
    write_source(tmp_path / "lake", {"p=a/a.parquet": pa.table({"k": pa.array([], pa.int64())})})
    snapshot = index_source(tmp_path / "lake", tmp_path / "index", ["k"])
    assert (snapshot.partitions, snapshot.rows) == ({"p=a": 0}, 0)
    index = open_index(str(tmp_path / "index"))
    assert index.coverage().is_empty
    assert index.fetch(1) == []


def test_a_batch_without_files_is_a_snapshot_of_its_own(lake: Path, tmp_path: Path) -> None:
    first = index_source(lake, tmp_path / "index", ["k"])
    storage = storage_at(str(tmp_path / "index"))
    spec = read_spec(storage)
    snapshot = publish(storage, spec, first, Changes("dedup", [], [], {}, {}, batch="b-1"), new_segment_id())
    assert (snapshot.number, snapshot.batch, snapshot.segments) == (2, "b-1", first.segments)


def test_a_build_on_damaged_metadata_commits_nothing(lake: Path, tmp_path: Path) -> None:
    index_source(lake, tmp_path / "index", ["k"])
    write_source(lake, {"p=c/a.parquet": pa.table({"k": [1]})})
    build = Build(lake, tmp_path / "index", ["k"])
    (segment,) = (tmp_path / "index/_shadow/segments").iterdir()
    segment.write_bytes(segment.read_bytes()[:-1])
    with pytest.raises(DamagedMetadata, match=f"{segment} at byte"):
        build.commit()
    assert [path.name for path in (tmp_path / "index/_shadow/snapshots").iterdir()] == ["00000000000000000001.json"]


def test_segment_ids_are_fresh_and_ordered_by_time() -> None:
    ids = [new_segment_id() for _ in range(100)]
    assert len(set(ids)) == 100
    assert [one[:8] for one in ids] == sorted(one[:8] for one in ids)
