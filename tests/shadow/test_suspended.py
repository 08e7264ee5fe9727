"""A program that sleeps for more than a day before a call to the store, while a vacuum runs, commits a snapshot whose
files all exist, or nothing."""

import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest

from gnomon.btree.errors import BTreeError
from gnomon.shadow import open_index
from gnomon.shadow.commit.publishing import check_there
from gnomon.shadow.errors import ConcurrentCommit, FilesGone, IndexNotFound, ShadowError
from gnomon.shadow.maintenance.compaction import compact
from gnomon.shadow.maintenance.vacuuming import vacuum
from gnomon.shadow.metadata.snapshots import snapshot_numbers
from gnomon.shadow.storage import FileInfo, LocalStorage, ReadStats, Storage, storage_at
from gnomon.shadow.storage.contract import Hidden
from gnomon.shadow.storage.local import LocalFile
from gnomon.shadow.verify.snapshot import verify
from tests.shadow.make_index import Build, index_source, write_source

SLEEP_SECONDS = 25 * 3600


class SleepyStorage(LocalStorage):
    """A store that makes the program sleep before call number `at`."""

    def __init__(self, root: str, at: int, sleep: Callable[[], None]) -> None:
        super().__init__(root)
        self.calls = 0
        self._at, self._sleep = at, sleep

    def _before(self) -> None:
        self.calls += 1
        if self.calls == self._at:
            self._sleep()

    def open(self, path: str, stats: ReadStats | None = None, known: FileInfo | None = None) -> LocalFile:
        self._before()
        return super().open(path, stats, known)

    def read(self, path: str) -> bytes:
        self._before()
        return super().read(path)

    def put_new(self, path: str, chunks: Iterable[bytes]) -> None:
        self._before()
        super().put_new(path, chunks)

    def list(self, prefix: str = "", hidden: Hidden = False, witness: str = "") -> Iterator[FileInfo]:
        self._before()
        return super().list(prefix, hidden)

    def delete(self, path: str) -> None:
        self._before()
        super().delete(path)


class Night:
    """Simulates the sleep: all files grow older, the program's clock advances, and a vacuum runs if there is an
    index."""

    def __init__(self, index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._index, self._slept = index, 0.0
        clock = SimpleNamespace(time=lambda: time.time() + self._slept, sleep=lambda _: None)
        monkeypatch.setattr("gnomon.shadow.commit.publishing.time", clock)

    def __call__(self) -> None:
        for path in self._index.rglob("*"):
            if path.is_file():
                status = path.stat()
                os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns - SLEEP_SECONDS * 10**9))
        self._slept += SLEEP_SECONDS
        with suppress(IndexNotFound):
            vacuum(storage_at(str(self._index)))


def table(*keys: int) -> pa.Table:
    return pa.table({"id": pa.array(keys, pa.int64())})


def made(root: Path) -> Path:
    write_source(root / "lake", {"a.parquet": table(1, 2, 3)})
    index_source(root / "lake", root / "index", ["id"], buckets=2)
    return root


def check(root: Path, *keys: int) -> None:
    assert [len(rows) for rows in open_index(str(root / "index")).fetch_many(keys)] == [1] * len(keys)
    assert verify(storage_at(str(root / "index")), None).is_sound


def asleep_at_each_call(
    root: Path, monkeypatch: pytest.MonkeyPatch, prepare: Callable[[Path], object], work: Callable[[Storage], object]
) -> Iterator[tuple[Path, Exception | None]]:
    """For each call to the store in `work`, an index for which `work` slept before that call, and the error that it
    raised."""
    for at in count(1):
        lake = root / str(at)
        prepare(lake)
        with monkeypatch.context() as patched:
            storage = SleepyStorage(str(lake / "index"), at, Night(lake / "index", patched))
            raised = None
            try:
                work(storage)
            except (ShadowError, BTreeError) as error:
                raised = error
        yield lake, raised
        if storage.calls < at:  # it did not sleep
            assert raised is None
            return


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["partitioned", "flat", "flat with page maps"])
def test_a_build_that_sleeps_commits_files_that_are_there_or_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layout: str
) -> None:
    """A flat build merges smaller segments into the one that it commits. It may keep index files and page maps of its
    new segment, which no snapshot names yet."""
    flat, maps = layout != "partitioned", layout.endswith("maps")

    def prepare(root: Path) -> None:
        write_source(root / "lake", {"a.parquet": table(1, 2, 3)})
        index_source(root / "lake", root / "index", ["id"], buckets=8, flat=flat, page_maps=maps)
        write_source(root / "lake", {"b.parquet": table(11, 12, 13, 14)})  # some in buckets that the first file lacks

    def work(storage: Storage) -> None:
        Build(Path(storage.root).parent / "lake", storage, ["id"], buckets=8).commit()

    slept = 0
    for root, raised in asleep_at_each_call(tmp_path, monkeypatch, prepare, work):
        slept += 1
        check(root, 1, *([] if raised else [11]))
        index_source(root / "lake", root / "index", ["id"])
        check(root, 1, 11)
    assert slept > 20


@pytest.mark.slow
def test_a_first_build_that_sleeps_commits_files_that_are_there_or_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def prepare(root: Path) -> None:
        write_source(root / "lake", {"a.parquet": table(1, 2, 3)})
        (root / "index").mkdir()

    def work(storage: Storage) -> None:
        Build(Path(storage.root).parent / "lake", storage, ["id"], buckets=2).commit()

    for root, raised in asleep_at_each_call(tmp_path, monkeypatch, prepare, work):
        if raised is not None:
            assert snapshot_numbers(storage_at(str(root / "index"))) == []
            index_source(root / "lake", root / "index", ["id"], buckets=2)
        check(root, 1, 2, 3)


@pytest.mark.slow
def test_a_compaction_that_sleeps_commits_files_that_are_there_or_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def prepare(root: Path) -> None:
        made(root)
        write_source(root / "lake", {"b.parquet": table(11, 12)})
        index_source(root / "lake", root / "index", ["id"], buckets=2)

    refused = 0
    for root, raised in asleep_at_each_call(tmp_path, monkeypatch, prepare, compact):
        refused += isinstance(raised, ConcurrentCommit)
        check(root, 1, 11)
    assert refused > 3, "the vacuum took files of some"


def test_a_commit_that_slept_behind_its_list_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All its files exist, and are as new as its list, but a vacuum may have planned to remove them."""
    root = made(tmp_path)
    write_source(root / "lake", {"b.parquet": table(11, 12)})
    build = Build(root / "lake", root / "index", ["id"], buckets=2)
    moments = iter([0.0])
    clock = SimpleNamespace(time=lambda: next(moments, float(SLEEP_SECONDS)), sleep=lambda _: None)
    with monkeypatch.context() as patched:
        patched.setattr("gnomon.shadow.commit.publishing.time", clock)
        with pytest.raises(FilesGone, match=r"25 hours passed before the commit"):
            build._commit()
    check(root, 1)


def test_many_files_are_looked_at_in_one_listing(tmp_path: Path) -> None:
    storage = storage_at(str(tmp_path))
    paths = [f"p={i}/f" for i in range(100)]
    for path in paths:
        storage.put_new(path, [b"x"])
    check_there(storage, paths)
    (tmp_path / "p=77/f").unlink()
    with pytest.raises(FilesGone, match=r"p=77/f: gone before it was committed.*run it again"):
        check_there(storage, paths)


def test_files_that_a_vacuum_may_be_removing_are_not_committed(tmp_path: Path) -> None:
    storage = storage_at(str(tmp_path))
    for path in ("written", "list"):
        storage.put_new(path, [b"x"])
    check_there(storage, ["written", "list"])
    slept = (tmp_path / "written").stat().st_mtime - SLEEP_SECONDS
    os.utime(tmp_path / "written", (slept, slept))
    with pytest.raises(FilesGone, match=r"25 hours passed before the commit"):
        check_there(storage, ["written", "list"])
