"""Concurrent commits and lost replies: the second of two commits keeps the part of its work that is still needed."""

import errno
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest

from gnomon.btree.hashing import bucket_of
from gnomon.shadow.commit.publishing import Changes, new_segment_id, publish
from gnomon.shadow.errors import (
    AlreadyExists,
    CommitLost,
    ConcurrentCommit,
    DamagedMetadata,
    FilesGone,
    ShadowError,
    SpecMismatch,
    StorageError,
)
from gnomon.shadow.maintenance.compaction import compact
from gnomon.shadow.maintenance.vacuuming import vacuum
from gnomon.shadow.metadata.snapshot_view import open_view
from gnomon.shadow.metadata.snapshots import (
    SPEC_PATH,
    Snapshot,
    create_spec,
    newest_snapshot,
    snapshot_numbers,
    snapshot_path,
)
from gnomon.shadow.metadata.source_files import source_root
from gnomon.shadow.storage import LocalStorage, Storage, storage_at
from gnomon.shadow.verify.snapshot import verify
from tests.opened import open_index
from tests.shadow.faults import Fault, FaultyStorage, Interrupted, T
from tests.shadow.make_index import Build, index_source, write_source
from tests.shadow.memory_store import MemoryStorage


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    write_source(tmp_path / "lake", {f"p={p}/a.parquet": pa.table({"k": range(5), "k2": range(5)}) for p in "ab"})
    return tmp_path / "lake"


def test_of_two_builds_at_once_both_commit_and_no_entry_counts_twice(lake: Path, tmp_path: Path) -> None:
    index_source(lake, tmp_path / "index", ["k"])
    write_source(lake, {"p=b/b.parquet": pa.table({"k": [100]})})
    first = Build(lake, tmp_path / "index", ["k"])
    write_source(lake, {"p=b/c.parquet": pa.table({"k": [200]})})
    (lake / "p=a/a.parquet").unlink()
    second = Build(lake, tmp_path / "index", ["k"])
    assert [first.commit().number, second.commit().number] == [2, 3]
    index = open_index(str(tmp_path / "index"))
    assert [len(index.lookup(key)) for key in (1, 100, 200)] == [1, 1, 1]
    assert index.coverage().is_empty
    assert index.view.snapshot.commit_id == second.segment
    assert index.view.snapshot.parent_id == first.segment


def test_a_build_with_nothing_left_commits_nothing(lake: Path, tmp_path: Path) -> None:
    index_source(lake, tmp_path / "index", ["k"])
    write_source(lake, {"p=b/b.parquet": pa.table({"k": [100]})})
    first, second = (Build(lake, tmp_path / "index", ["k"]) for _ in range(2))
    assert first.commit() == second.commit() == newest_snapshot(first.storage)
    assert snapshot_numbers(first.storage) == [1, 2]


def test_of_first_builds_at_once_one_commits_and_the_others_find_it_done(lake: Path, tmp_path: Path) -> None:
    builds = [Build(lake, tmp_path / "index", ["k"]) for _ in range(4)]
    committed: list[Snapshot] = []
    threads = [threading.Thread(target=lambda b=build: committed.append(b.commit())) for build in builds]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert committed == [newest_snapshot(builds[0].storage)] * 4
    assert committed[0].number == 1
    assert len(open_index(str(tmp_path / "index")).lookup(1)) == 2


def test_a_file_that_both_indexed_counts_as_the_source_holds_it_now(lake: Path, tmp_path: Path) -> None:
    """The order of the two commits does not matter."""
    for order in ((0, 1), (1, 0)):
        place = tmp_path / f"index{order[0]}"
        index_source(lake, place, ["k"])
        write_source(lake, {"p=a/a.parquet": pa.table({"k": [100 + order[0]]})})
        builds = [Build(lake, place, ["k"])]
        write_source(lake, {"p=a/a.parquet": pa.table({"k": [200, 200 + order[0]]})})
        builds.append(Build(lake, place, ["k"]))
        for which in order:
            builds[which].commit()
        index = open_index(str(place))
        assert index.coverage().is_empty
        assert [len(index.lookup(key)) for key in (100, 101, 201)] == [0, 0, order[0]]
        assert index.fetch(200)[0]["k"] == 200


def test_without_the_source_at_hand_a_file_indexed_in_two_states_is_refused(lake: Path, tmp_path: Path) -> None:
    index_source(lake, tmp_path / "index", ["k"])
    write_source(lake, {"p=a/a.parquet": pa.table({"k": [100]})})
    first = Build(lake, tmp_path / "index", ["k"])
    write_source(lake, {"p=a/a.parquet": pa.table({"k": [200, 300]})})
    index_source(lake, tmp_path / "index", ["k"])
    with pytest.raises(ConcurrentCommit, match=r"p=a/a\.parquet: another build indexed another state of it"):
        publish(first.storage, first.spec, first.parent, first.changes, first.segment)
    assert snapshot_numbers(first.storage) == [1, 2]


class LostReply(LocalStorage):
    """Makes puts of snapshots, and then reports a failure, or that the name is taken."""

    error: Exception

    def put_new(self, path: str, chunks: Iterable[bytes]) -> None:
        super().put_new(path, chunks)
        if path.startswith("_shadow/snapshots"):
            raise self.error


@pytest.mark.parametrize("error", [AlreadyExists("taken"), StorageError("timed out"), OSError(errno.EIO, "fsync")])
def test_a_lost_reply_is_settled_by_reading_back(lake: Path, tmp_path: Path, error: Exception) -> None:
    build = Build(lake, tmp_path / "index", ["k"])
    build.storage = LostReply(str(tmp_path / "index"))
    build.storage.error = error
    assert build.commit().number == 1
    assert len(open_index(str(tmp_path / "index")).lookup(1)) == 2


def test_what_cannot_be_read_back_is_said_not_to_be_known_and_is_not_done_twice(lake: Path, tmp_path: Path) -> None:
    class Gone(LostReply):
        error = StorageError("timed out")

        def read(self, path: str) -> bytes:
            if path.startswith("_shadow/snapshots"):
                raise StorageError("still timed out")
            return super().read(path)

    build = Build(lake, tmp_path / "index", ["k"])
    build.storage = Gone(str(tmp_path / "index"))
    with pytest.raises(StorageError, match=r"\(timed out\) and does not answer whether snapshot 1 was committed"):
        build.commit()
    build.storage = storage_at(str(tmp_path / "index"))
    assert build.commit().number == 1
    assert index_source(lake, tmp_path / "index", ["k"]).number == 1


def test_a_commit_below_snapshots_that_were_vacuumed_meanwhile_is_lost_and_said_to_be(
    lake: Path, tmp_path: Path
) -> None:
    """During the put of snapshot 2, others commit 2 and 3 and vacuum 2."""
    index_source(lake, tmp_path / "index", ["k"])
    write_source(lake, {"p=b/b.parquet": pa.table({"k": [100]})})
    slow = Build(lake, tmp_path / "index", ["k"])
    (lake / "p=b/b.parquet").rename(tmp_path / "b.parquet")

    def others() -> None:
        for name in "cd":
            write_source(lake, {f"p=b/{name}.parquet": pa.table({"k": [200]})})
            index_source(lake, tmp_path / "index", ["k"])
        (tmp_path / "index" / snapshot_path(2)).unlink()
        (tmp_path / "b.parquet").rename(lake / "p=b/b.parquet")

    slow.storage = Interrupted(str(tmp_path / "index"), "_shadow/snapshots", others)
    with pytest.raises(CommitLost, match=r"others committed snapshot 2 and more, and vacuumed it.*run it again"):
        slow.commit()
    assert snapshot_numbers(slow.storage) == [1, 3]
    assert index_source(lake, tmp_path / "index", ["k"]).number == 4
    index = open_index(str(tmp_path / "index"))
    assert [len(index.lookup(key)) for key in (1, 100, 200)] == [2, 1, 2]


class SlowPut(LocalStorage):
    """Calls one function before its put of a snapshot, and another right after it."""

    def __init__(self, root: Path, before: Callable[[], object], behind: Callable[[], object]) -> None:
        super().__init__(str(root))
        self._steps = [before, behind]

    def put_new(self, path: str, chunks: Iterable[bytes]) -> None:
        steps, self._steps = (self._steps, []) if path.startswith("_shadow/snapshots") else ([], self._steps)
        for step in steps[:1]:
            step()
        super().put_new(path, chunks)
        for step in steps[1:]:
            step()


@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.parametrize("vacuumed", [True, False])
def test_what_a_vacuum_saw_superseded_is_not_committed_again(
    lake: Path, tmp_path: Path, flat: bool, vacuumed: bool
) -> None:
    """Others commit 2 and 3 and vacuum 1 and 2 before a slow put of 2; another vacuum runs right after it."""
    place = tmp_path / "index"
    index_source(lake, place, ["k"], flat=flat)
    others = []
    for name in "cd":
        write_source(lake, {f"p=b/{name}.parquet": pa.table({"k": [200]})})
        others.append(Build(lake, place, ["k"]))
    write_source(lake, {"p=b/b.parquet": pa.table({"k": [100]})})
    slow = Build(lake, place, ["k"])

    def before() -> None:
        for other in others:
            other.commit()
            vacuum(other.storage, grace_seconds=0)

    def behind() -> None:
        assert snapshot_numbers(storage_at(str(place))) == [2, 3]
        if vacuumed:
            vacuum(storage_at(str(place)), grace_seconds=0)

    slow.storage = SlowPut(place, before, behind)
    with pytest.raises(CommitLost, match="run it again"):
        slow.commit()
    assert snapshot_numbers(slow.storage) == [3]
    assert index_source(lake, place, ["k"]).number == 4
    assert verify(slow.storage, None).faults == []
    assert [len(open_index(str(place)).lookup(key)) for key in (1, 100, 200)] == [2, 1, 2]


def test_a_commit_whose_files_a_vacuum_takes_before_a_quick_put_is_taken_back(lake: Path, tmp_path: Path) -> None:
    place = tmp_path / "index"
    index_source(lake, place, ["k"])
    write_source(lake, {"p=b/b.parquet": pa.table({"k": [100]})})
    build = Build(lake, place, ["k"])
    other = storage_at(str(place))
    build.storage = SlowPut(place, lambda: vacuum(other, grace_seconds=0, unnamed_seconds=0), lambda: None)
    with pytest.raises(FilesGone, match="gone before it was committed"):
        publish(build.storage, build.spec, build.parent, build.changes, build.segment)
    assert snapshot_numbers(other) == [1]
    assert verify(other, None).is_sound


def test_a_snapshot_that_never_counted_is_vacuumed_and_hinders_nothing(lake: Path, tmp_path: Path) -> None:
    """Its writer was killed right after the put."""
    place = tmp_path / "index"
    for name in "bc":
        index_source(lake, place, ["k"])
        write_source(lake, {f"p=b/{name}.parquet": pa.table({"k": [200]})})
    slow, other = Build(lake, place, ["k"]), Build(lake, place, ["k"])
    other.commit()
    (place / snapshot_path(3)).rename(tmp_path / "theirs")

    def die() -> None:
        raise KeyboardInterrupt

    slow.storage = SlowPut(place, lambda: None, die)
    with pytest.raises(KeyboardInterrupt):
        slow.commit()
    stray = (place / snapshot_path(3)).read_bytes()
    (place / snapshot_path(3)).unlink()
    (tmp_path / "theirs").rename(place / snapshot_path(3))
    write_source(lake, {"p=b/d.parquet": pa.table({"k": [200]})})
    index_source(lake, place, ["k"])
    (place / snapshot_path(3)).write_bytes(stray)
    assert vacuum(slow.storage).kept == (4,)
    assert verify(slow.storage, None).faults == []


def test_an_index_file_that_is_not_needed_any_more_is_not_named_again(tmp_path: Path) -> None:
    """compact keeps a file unchanged; a vacuum removes it, since a build found its source file gone."""
    lake, place = tmp_path / "lake", tmp_path / "index"
    buckets: dict[int, list[int]] = {0: [], 1: []}
    for key in range(30):
        buckets[bucket_of((key,), ("bigint",), 2)].append(key)
    (gone, *_), (stays, elsewhere, *_) = buckets[0], buckets[1]
    tables = {"p=b/gone.parquet": gone, "p=a/1.parquet": elsewhere, "p=b/stays.parquet": stays}
    files = {path: pa.table({"k": pa.array([key], pa.int64())}) for path, key in tables.items()}
    for some in (("p=b/gone.parquet", "p=a/1.parquet"), ("p=b/stays.parquet",)):
        write_source(lake, {path: files[path] for path in some})
        index_source(lake, place, ["k"], 2)

    def others() -> None:
        (lake / "p=b/gone.parquet").unlink()
        index_source(lake, place, ["k"])
        assert vacuum(storage_at(str(place)), grace_seconds=0).counts["index file"] == 1

    with pytest.raises(ConcurrentCommit, match=r"no longer needed.*run it again"):
        compact(Interrupted(str(place), "_shadow/snapshots", others))
    compact(storage_at(str(place)))
    assert verify(storage_at(str(place)), None).faults == []
    assert [len(open_index(str(place)).lookup(key)) for key in (gone, stays, elsewhere)] == [0, 1, 1]


def test_a_build_whose_snapshot_was_vacuumed_meanwhile_is_told_to_run_again(lake: Path, tmp_path: Path) -> None:
    index_source(lake, tmp_path / "index", ["k"])
    build = Build(lake, tmp_path / "index", ["k"])
    (segment,) = (tmp_path / "index/_shadow/segments").iterdir()
    segment.unlink()
    with pytest.raises(DamagedMetadata, match="missing, though the snapshot names it"):
        build.commit()
    (tmp_path / "index" / snapshot_path(1)).unlink()
    with pytest.raises(ConcurrentCommit, match="snapshot 1 was vacuumed while work that was made for it was running"):
        build.commit()


def test_an_index_that_is_removed_while_it_is_built_is_not_half_made_again(lake: Path, tmp_path: Path) -> None:
    index_source(lake, tmp_path / "index", ["k"])
    write_source(lake, {"p=b/b.parquet": pa.table({"k": [100]})})
    build = Build(lake, tmp_path / "index", ["k"])
    (tmp_path / "index" / snapshot_path(1)).unlink()
    with pytest.raises(ConcurrentCommit, match="all snapshots were removed during the build"):
        build.commit()
    assert snapshot_numbers(build.storage) == []


def test_a_commit_that_always_comes_second_gives_up_after_a_while(
    lake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index_source(lake, tmp_path / "index", ["k"])
    write_source(lake, {"p=b/b.parquet": pa.table({"k": [100]})})
    build = Build(lake, tmp_path / "index", ["k"])
    waits: list[float] = []
    monkeypatch.setattr(
        "gnomon.shadow.commit.publishing.time", SimpleNamespace(sleep=waits.append, time=time.time)
    )  # other threads sleep, too

    class Slow(LocalStorage):
        def put_new(self, path: str, chunks: Iterable[bytes]) -> None:
            if path.startswith("_shadow/snapshots"):
                storage, parent = storage_at(self.root), newest_snapshot(self)
                assert parent is not None
                publish(storage, build.spec, parent, Changes("dedup", [], [], {}, {}, batch="b"), new_segment_id())
            super().put_new(path, chunks)

    build.storage = Slow(str(tmp_path / "index"))
    with pytest.raises(ConcurrentCommit, match="other programs committed first 20 times"):
        build.commit()
    assert len(waits) == 19
    assert max(waits) <= 1
    assert len(snapshot_numbers(build.storage)) == 21


def test_of_two_first_builds_with_other_specs_the_committed_one_keeps_its_spec(lake: Path, tmp_path: Path) -> None:
    """The second commits during the first: before its spec, before its segment, before its snapshot."""
    for step, path in enumerate(("_shadow/spec.json", "_shadow/segments", "_shadow/snapshots")):
        place = tmp_path / f"index{step}"
        loser, winner = Build(lake, place, ["k"], buckets=2), Build(lake, place, ["k2"], buckets=3)
        numbers: list[int] = []
        storage = loser.storage = Interrupted(str(place), path, lambda w=winner, n=numbers: n.append(w.commit().number))
        with pytest.raises((ConcurrentCommit, SpecMismatch), match="another spec"):
            loser.commit()
        assert (numbers, storage.interrupted) == ([1], True)
        index = open_index(str(place))
        assert [key.name for key in index.spec.keys] == ["k2"]
        assert [len(index.lookup(key)) for key in range(6)] == [2, 2, 2, 2, 2, 0]


def test_a_spec_that_is_taken_for_abandoned_just_as_its_build_commits_is_put_back(lake: Path, tmp_path: Path) -> None:
    place = tmp_path / "index"
    loser, winner = Build(lake, place, ["k"], buckets=2), Build(lake, place, ["k2"], buckets=3)
    create_spec(winner.storage, winner.spec)
    loser.storage = Interrupted(str(place), "_shadow/spec.json", winner.commit, "delete")
    with pytest.raises(SpecMismatch):
        loser.commit()
    assert len(open_index(str(place)).lookup({"k2": 3})) == 2


class Meanwhile(FaultyStorage):
    """Calls a function before call `before`; from call `at` on it makes no calls."""

    def __init__(self, inner: Storage, before: int, happens: Callable[[], object], at: int) -> None:
        super().__init__(inner, Fault.FROM_THEN_ON, at)
        self._before, self._happens = before, happens

    def call(self, name: str, path: str, do: Callable[[], T], do_half: Callable[[], T] | None = None) -> T:
        if len(self.calls) == self._before:
            self._happens()
        return super().call(name, path, do, do_half)


def is_readable(index: Storage) -> bool:
    """False if the error says that the spec has to be put back."""
    try:
        open_view(index)
    except DamagedMetadata as error:
        if "run gnomon build INDEX, which writes it again" not in str(error):
            raise
        return False
    return True


@pytest.mark.slow
def test_of_two_first_builds_with_other_specs_one_may_die_anywhere_and_the_next_build_mends_it(lake: Path) -> None:
    """The second commits before any call of the first, which dies at any later call. Either the index is sound, or an
    error reports the wrong spec.json until the next build, and there are no answers until then."""
    root, spec_lost = source_root(str(lake)), 0

    def start() -> tuple[MemoryStorage, Build, Build]:
        index = MemoryStorage()
        loser, winner = Build(root, index, ["k"], buckets=2), Build(root, index, ["k2"], buckets=3)
        create_spec(index, loser.spec)  # of an earlier build that died, with the spec of the loser or the winner
        return index, loser, winner

    index, loser, winner = start()
    counting = loser.storage = FaultyStorage(index)
    loser.commit()
    for before in range(len(counting.calls)):
        for at in range(before, len(counting.calls) + 8):
            for abandoned in range(2):
                index, loser, winner = start()
                if abandoned:
                    index.delete(SPEC_PATH)
                    create_spec(index, winner.spec)
                loser.storage = Meanwhile(index, before, winner.commit, at)
                with suppress(ShadowError):
                    loser.commit()
                if not is_readable(index):
                    spec_lost += 1
                    Build(root, index, ["k2"], buckets=3)
                view = open_view(index)
                assert [key.name for key in view.spec.keys] in (["k"], ["k2"])
                assert view.snapshot.rows == 10
    assert spec_lost > 0
