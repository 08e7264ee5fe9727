"""Vacuum removes files that no kept snapshot needs, and no others."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from gnomon.shadow import open_index
from gnomon.shadow.commit.append_log import Append, commit_append, mark_appended, open_log, settle
from gnomon.shadow.errors import DamagedMetadata, IndexNotFound, SnapshotNotFound, StorageError, UsageError
from gnomon.shadow.maintenance.compaction import compact, rebucket
from gnomon.shadow.maintenance.vacuuming import DAY, vacuum
from gnomon.shadow.metadata.manifests import manifest_path
from gnomon.shadow.metadata.snapshot_view import open_view
from gnomon.shadow.metadata.snapshots import snapshot_numbers, snapshot_path
from gnomon.shadow.storage import LocalStorage, storage_at
from gnomon.shadow.verify.snapshot import verify
from tests.shadow.make_index import Build, index_source, write_source
from tests.shadow.random_lake import RandomLake, answers, rows


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """An index of three snapshots, each with one more segment; the third one has a rewritten file of partition a."""
    table = pa.table({"k": range(40)})
    write_source(tmp_path / "lake", {"p=a/1.parquet": table, "p=b/1.parquet": table})
    index_source(tmp_path / "lake", tmp_path / "index", ["k"])
    write_source(tmp_path / "lake", {"p=b/2.parquet": table})
    index_source(tmp_path / "lake", tmp_path / "index", ["k"])
    write_source(tmp_path / "lake", {"p=a/1.parquet": table.slice(0, 20)})
    index_source(tmp_path / "lake", tmp_path / "index", ["k"])
    return tmp_path


def files(index: Path) -> set[str]:
    return {info.path for info in storage_at(str(index)).list(hidden=True)}


def needed(index: Path) -> set[str]:
    """The files that the newest snapshot needs, and the spec."""
    storage = storage_at(str(index))
    view = open_view(storage)
    paths = {"_shadow/spec.json", snapshot_path(view.snapshot.number)}
    for segment in view.segments:
        paths.add(manifest_path(segment.id))
        for file in segment.by_bucket.values():
            assert file.filter is not None
            paths |= {file.path, file.filter.path}
    return paths


def test_within_the_grace_nothing_goes(lake: Path) -> None:
    before = files(lake / "index")
    result = vacuum(storage_at(str(lake / "index")))
    assert (result.files, result.kept, result.bytes, files(lake / "index")) == ((), (1, 2, 3), 0, before)


def test_without_a_grace_what_the_newest_snapshot_needs_is_left(lake: Path) -> None:
    before, storage = answers(lake / "index"), storage_at(str(lake / "index"))
    there = files(lake / "index")
    result = vacuum(storage, grace_seconds=0)
    assert files(lake / "index") == needed(lake / "index")
    assert {file.path for file in result.files} == there - needed(lake / "index")
    assert (result.kept, result.counts) == ((3,), {"snapshot": 2, "index file": 4, "Bloom filter": 4})
    assert answers(lake / "index") == before
    with pytest.raises(SnapshotNotFound, match="snapshot 1 is not there"):
        open_index(str(lake / "index"), 1)


def test_files_that_several_segments_named_in_turn_go_with_the_last_of_them(lake: Path) -> None:
    storage = storage_at(str(lake / "index"))
    compact(storage)  # it names files of the old segments unchanged
    vacuum(storage, grace_seconds=0)
    assert files(lake / "index") == needed(lake / "index")
    rebucket(storage, 7)
    vacuum(storage, grace_seconds=0)
    assert files(lake / "index") == needed(lake / "index")


def test_a_dry_run_says_the_same_and_removes_nothing(lake: Path) -> None:
    compact(storage_at(str(lake / "index")))
    before, storage = files(lake / "index"), storage_at(str(lake / "index"))
    dry = vacuum(storage, grace_seconds=0, dry_run=True)
    assert files(lake / "index") == before
    wet = vacuum(storage, grace_seconds=0)
    assert (dry.files, dry.bytes, dry.kept) == (wet.files, wet.bytes, wet.kept)
    assert wet.bytes == sum(file.size for file in wet.files) > 0
    assert vacuum(storage, grace_seconds=0).files == ()


def test_the_grace_counts_from_the_commit_that_superseded_a_snapshot(
    lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = storage_at(str(lake / "index"))
    start = time.time()
    monkeypatch.setattr("gnomon.shadow.commit.publishing.utc_now", lambda: "2100-01-01T00:00:00.000000Z")
    write_source(lake / "lake", {"p=c/1.parquet": pa.table({"k": [1]})})
    index_source(lake / "lake", lake / "index", ["k"])  # 3 is superseded in the year 2100
    monkeypatch.setattr("gnomon.shadow.maintenance.vacuuming.time.time", lambda: start + 3600)
    assert vacuum(storage, grace_seconds=3700, dry_run=True).kept == (1, 2, 3, 4)
    assert vacuum(storage, grace_seconds=3500, dry_run=True).kept == (4,)  # by its file's time, not the time in it
    assert vacuum(storage, grace_seconds=3500, keep=3, dry_run=True).kept == (2, 3, 4)
    assert vacuum(storage, grace_seconds=3500, keep=9, dry_run=True).kept == (1, 2, 3, 4)


def test_kept_snapshots_answer_as_before(lake: Path) -> None:
    before = {number: answers(lake / "index", number) for number in (2, 3)}
    vacuum(storage_at(str(lake / "index")), grace_seconds=0, keep=2)
    assert {number: answers(lake / "index", number) for number in (2, 3)} == before
    assert snapshot_numbers(storage_at(str(lake / "index"))) == [2, 3]


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.slow
def test_random_histories_answer_as_before(tmp_path: Path, seed: int) -> None:
    lake = RandomLake(tmp_path, seed, flat=seed % 3 == 2)
    storage = storage_at(str(lake.index))
    for _ in range(6):
        lake.step()
        if lake.random.random() < 0.4:
            compact(storage)
        if lake.random.random() < 0.2:
            rebucket(storage, lake.random.randrange(1, 6))
        before, keep = rows(lake.index), lake.random.randrange(1, 4)
        old = {number: answers(lake.index, number) for number in snapshot_numbers(storage)[-keep:]}
        vacuum(storage, grace_seconds=0, keep=keep, unnamed_seconds=0)
        assert rows(lake.index) == before
        assert {number: answers(lake.index, number) for number in snapshot_numbers(storage)} == old
        if keep == 1:
            assert files(lake.index) == needed(lake.index)


# -- files of crashed builds -------------------------------------------------------------------------------------------


def age(index: Path, seconds: float, paths: set[str]) -> None:
    for path in paths:
        then = time.time() - seconds
        os.utime(index / path, (then, then))


def test_what_a_crashed_build_left_goes_when_it_is_old_and_not_before(lake: Path) -> None:
    index, storage = lake / "index", storage_at(str(lake / "index"))
    vacuum(storage, grace_seconds=0)
    write_source(lake / "lake", {"p=z/1.parquet": pa.table({"k": range(30)})})
    Build(lake / "lake", index, ["k"])
    staged = ["_staged-" + "0" * 32, "p=a/_staged-" + "a" * 32, "_shadow/snapshots/_staged-" + "f" * 32]
    for path in [*staged, "_shadow/probe/0123"]:
        storage.put_new(path, [b"half"])
    left = files(index) - needed(index)
    assert len(left) == 4 + 8
    assert vacuum(storage, grace_seconds=0).files == ()
    age(index, DAY - 60, left)
    assert vacuum(storage, grace_seconds=0).files == ()
    age(index, DAY + 60, left)
    assert vacuum(storage, grace_seconds=2 * DAY).files == ()
    assert {file.path for file in vacuum(storage).files} == left
    assert files(index) == needed(index)
    assert not [path for path in (index / "_shadow/filters").iterdir() if not any(path.rglob("*.filter"))]


def test_a_build_that_wrote_a_file_lately_keeps_all_of_its_files(lake: Path) -> None:
    index, storage = lake / "index", storage_at(str(lake / "index"))
    write_source(lake / "lake", {"p=z/1.parquet": pa.table({"k": range(30)})})
    before = files(index)
    build = Build(lake / "lake", index, ["k"])
    written = sorted(files(index) - before)
    age(index, 9 * DAY, set(written[1:]))
    vacuum(storage, grace_seconds=0)
    build.commit()
    assert len(open_index(str(index)).lookup(25)) == 3


def test_nothing_is_removed_where_no_snapshot_is_listed(tmp_path: Path) -> None:
    write_source(tmp_path / "lake", {"1.parquet": pa.table({"k": range(30)})})
    build = Build(tmp_path / "lake", tmp_path / "index", ["k"])
    storage = storage_at(str(tmp_path / "index"))
    with pytest.raises(IndexNotFound, match="not an index"):
        vacuum(storage)
    build.commit()
    storage.delete(snapshot_path(1))
    before = files(tmp_path / "index")
    with pytest.raises(IndexNotFound, match="no snapshot is listed, so nothing says which files are needed"):
        vacuum(storage, unnamed_seconds=0, grace_seconds=0)
    assert files(tmp_path / "index") == before


def test_rows_that_a_dead_append_rejected_go_when_they_are_old(lake: Path) -> None:
    index, storage = lake / "index", storage_at(str(lake / "index"))
    vacuum(storage, grace_seconds=0)
    left = {"_shadow/rejected/3-ab/0.arrow", "_shadow/rejected/3-ab/p=1/1.arrow", "_shadow/rejected/4-cd/0.arrow"}
    for path in left:
        storage.put_new(path, [b"rows"])
    age(index, DAY - 60, left)
    assert vacuum(storage, grace_seconds=0).files == ()
    age(index, DAY + 60, left - {"_shadow/rejected/3-ab/0.arrow"})  # all files of one append or none
    assert {file.path for file in vacuum(storage, grace_seconds=0).files} == {"_shadow/rejected/4-cd/0.arrow"}
    assert not (index / "_shadow/rejected/4-cd").exists()
    assert {file.kind for file in vacuum(storage, grace_seconds=0, unnamed_seconds=0).files} == {"leftover"}
    assert not (index / "_shadow/rejected/3-ab").exists()
    assert files(index) == needed(index)


def test_the_records_of_appends_stay(lake: Path) -> None:
    index, storage = lake / "index", storage_at(str(lake / "index"))
    append = Append(1, "a", open_log(storage).parent, "batch", "", "_gnomon/x/1-a", (), {})
    assert commit_append(storage, append)
    mark_appended(storage, append)
    settle(storage, storage_at(str(lake / "lake")), append, 3)
    records = {path for path in files(index) if path.startswith(("_shadow/loads", "_shadow/batches"))}
    assert len(records) == 5
    age(index, 99 * DAY, records)
    vacuum(storage, grace_seconds=0, unnamed_seconds=0)
    assert files(index) == needed(index) | records


# -- files that must stay ----------------------------------------------------------------------------------------------


def test_nothing_is_touched_that_is_not_its_own(lake: Path) -> None:
    index, storage = lake / "index", storage_at(str(lake / "index"))
    segment = open_view(storage, 1).segments[0].id
    strangers = [
        "README.md",
        "_SUCCESS",
        "p=a/part-00000.parquet",
        "p=a/_staged-notes.txt",
        f"notes/{segment}_00001.btree.avro",
        f"p=a/{segment}_00001.btree.avro.bak",
        f"p=a/{segment}_1.btree.avro",
        f"_shadow/segments/{segment}.avro.orig",
        "_shadow/segments/other.avro",
        "_shadow/snapshots/1.json",
        "_shadow/snapshots/00000000000000000001.json~",
        f"_shadow/filters/{segment}/p=a/notes",
    ]
    for path in strangers:
        storage.put_new(path, [b"mine"])
    age(index, 99 * DAY, set(strangers))
    vacuum(storage, grace_seconds=0, unnamed_seconds=0)
    assert files(index) == needed(index) | set(strangers)


def test_metadata_that_cannot_be_read_stops_it_before_anything_is_removed(lake: Path) -> None:
    index, storage = lake / "index", storage_at(str(lake / "index"))
    segment = open_view(storage).segments[0].id
    for path in (snapshot_path(3), snapshot_path(2), manifest_path(segment)):
        data = (index / path).read_bytes()
        (index / path).write_bytes(data[:40] + b"!" + data[41:])
        before = files(index)
        with pytest.raises(DamagedMetadata, match=path):
            vacuum(storage, grace_seconds=0, keep=2)
        assert files(index) == before
        (index / path).write_bytes(data)


def test_a_snapshot_that_cannot_be_read_goes_when_its_time_has_come(lake: Path) -> None:
    index, storage = lake / "index", storage_at(str(lake / "index"))
    for path in (snapshot_path(1), snapshot_path(2)):
        (index / path).write_bytes(b"damaged")
    with pytest.raises(DamagedMetadata, match=snapshot_path(1)):
        vacuum(storage)
    assert vacuum(storage, grace_seconds=0, unnamed_seconds=0).kept == (3,)
    assert files(index) == needed(index)


def test_of_two_vacuums_at_once_the_slower_one_finishes(lake: Path) -> None:
    """The other one removes files that this one is about to read."""
    index = str(lake / "index")
    for at in range(1, 9):
        write_source(lake / "lake", {f"p=d/{at}.parquet": pa.table({"k": [at]})})
        index_source(lake / "lake", lake / "index", ["k"])
        other = lambda: vacuum(storage_at(index), grace_seconds=0)  # noqa: E731
        assert vacuum(Meanwhile(index, at, other), keep=2).kept[-1] == 3 + at
        assert verify(storage_at(index), None).faults == []


class Meanwhile(LocalStorage):
    """Calls a function before its n-th read of a file."""

    def __init__(self, root: str, at: int, happens: Callable[[], object]) -> None:
        super().__init__(root)
        self.left, self.happens = at, happens

    def read(self, path: str) -> bytes:
        self.left -= 1
        if self.left == 0:
            self.happens()
        return super().read(path)


class Failing(LocalStorage):
    """Fails at its n-th deletion, and from then on."""

    def __init__(self, root: str, left: int) -> None:
        super().__init__(root)
        self.left = left

    def delete(self, path: str) -> None:
        if self.left == 0:
            raise StorageError("no more")
        self.left -= 1
        super().delete(path)


@pytest.mark.slow
def test_a_crash_at_any_deletion_leaves_each_snapshot_whole_and_the_next_run_finishes(lake: Path) -> None:
    index, storage = lake / "index", storage_at(str(lake / "index"))
    compact(storage)
    expected = {number: answers(index, number) for number in snapshot_numbers(storage)}
    deletions = len(vacuum(storage, grace_seconds=0, dry_run=True).files)
    for _ in range(deletions):
        with pytest.raises(StorageError):
            vacuum(Failing(str(index), 1), grace_seconds=0, unnamed_seconds=0)
        there = snapshot_numbers(storage)
        assert there == list(expected)[-len(there) :]
        assert {number: answers(index, number) for number in there} == {number: expected[number] for number in there}
        if len(files(index) - needed(index)) == 1:
            break
    vacuum(storage, grace_seconds=0, unnamed_seconds=0)
    assert files(index) == needed(index)


def test_a_commit_while_it_runs_keeps_its_files(lake: Path) -> None:
    index = lake / "index"
    write_source(lake / "lake", {"p=z/1.parquet": pa.table({"k": range(30)})})
    build = Build(lake / "lake", index, ["k"])

    class Meanwhile(LocalStorage):
        def delete(self, path: str) -> None:
            if open_view(self).snapshot.number == 3:
                build.commit()
            super().delete(path)

    vacuum(Meanwhile(str(index)), grace_seconds=0)
    assert len(open_index(str(index)).lookup(25)) == 3
    assert snapshot_numbers(storage_at(str(index))) == [3, 4]


def test_a_grace_or_a_number_that_cannot_be_is_refused(lake: Path) -> None:
    storage = storage_at(str(lake / "index"))
    for wrong in ({"grace_seconds": -1.0}, {"grace_seconds": float("nan")}, {"keep": 0}):
        with pytest.raises(UsageError, match=r"(grace: expected 0 s|keep: expected 1 snapshot) or more, found"):
            vacuum(storage, **wrong)  # type: ignore[arg-type]


def test_an_index_that_is_open_at_a_snapshot_that_went_says_so(lake: Path) -> None:
    index = open_index(str(lake / "index"), snapshot=1)
    assert index.contains(30)
    again = open_index(str(lake / "index"), snapshot=1)
    vacuum(storage_at(str(lake / "index")), grace_seconds=0, unnamed_seconds=0)
    with pytest.raises(SnapshotNotFound, match="snapshot 1 is not there"):
        again.contains(30, where={"p": "a"})
