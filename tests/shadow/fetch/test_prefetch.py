"""Source files opened ahead on a remote store: no answer waits for one that it does not need, none is from a changed
file, and no read is left over."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import pyarrow as pa
import pytest

from gnomon.shadow import FetchStats
from gnomon.shadow.errors import OutOfTime, StalePointer
from gnomon.shadow.fetch.fetcher import FEW_SOURCES, Fetcher
from gnomon.shadow.index import Index
from gnomon.shadow.metadata.snapshot_view import open_view
from gnomon.shadow.metadata.source_files import SourceRoot
from gnomon.shadow.storage import FileInfo, ReadStats
from gnomon.shadow.storage.waiting import within
from tests.shadow.far_store import FarFile, FarStorage, Rounds
from tests.shadow.make_index import index_source, write_source

LONGEST = 30.0  # seconds


class Lake(FarStorage):
    """A store whose reads of some files can hang until they are released. `opened` has the opened files."""

    def __init__(self) -> None:
        super().__init__("/far/lake")
        self.hanging: set[str] = set()
        self.begun, self.go = threading.Event(), threading.Event()
        self.opened: list[str] = []

    def open(self, path: str, stats: ReadStats | None = None, known: FileInfo | None = None) -> FarFile:
        self.opened.append(path)
        return LakeFile(self, path, super().open(path, stats, known), stats)


class LakeFile(FarFile):
    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        lake = self._storage
        assert isinstance(lake, Lake)
        found = super().read_ranges(ranges)
        if self._path in lake.hanging:
            lake.begun.set()
            assert lake.go.wait(LONGEST)
        return found


def table(file: int) -> pa.Table:
    return pa.table({"k": range(10 * file, 10 * file + 10), "v": [f"{file} {row}" for row in range(10)]})


class Far:
    """A lake and its index, newly opened."""

    def __init__(self, files: int) -> None:
        self.lake, self.folder = Lake(), FarStorage("/far/index")
        write_source(self.lake, {f"{file}.parquet": table(file) for file in range(files)})
        index_source(SourceRoot(self.lake), self.folder, ["k"], buckets=1)
        view = open_view(self.folder)
        self.index = Index(self.folder, view, True)
        self.fetcher = Fetcher(self.lake, view.spec, 1 << 20, self.folder)
        source = SourceRoot(self.lake)
        self.index._current.state = replace(
            self.index._current.state, source=source, fetcher=self.fetcher, digest_checks=None
        )
        self.lake.opened.clear()

    @contextmanager
    def hang(self, *paths: str) -> Iterator[None]:
        self.lake.hanging = set(paths)
        try:
            yield
        finally:
            self.lake.go.set()

    def values(self, key: int) -> Sequence[str]:
        return [row["v"] for row in self.index.fetch(key, ["v"])]

    def is_clean(self) -> bool:
        return not self.fetcher.files._sources._begun


def test_an_answer_does_not_wait_for_a_file_that_it_does_not_need() -> None:
    far = Far(2)
    with far.hang("1.parquet"):
        assert far.values(3) == ["0 3"]
        assert far.values(99) == []
        assert not far.lake.go.is_set()
    assert far.is_clean()
    assert far.values(13) == ["1 3"]


@pytest.mark.parametrize("files", [1, FEW_SOURCES, FEW_SOURCES + 1])
def test_a_file_that_changed_is_refused_and_its_neighbours_answer(files: int) -> None:
    far = Far(files)
    write_source(far.lake, {"0.parquet": table(0)})  # the same bytes at another time
    for _ in range(2):
        with pytest.raises(StalePointer, match=r"/far/lake/0.parquet.*the file changed since it was indexed"):
            far.values(3)
        assert files == 1 or far.values(13) == ["1 3"]
    far.lake.delete("0.parquet")
    with pytest.raises(StalePointer, match="the file is gone since it was indexed"):
        far.values(4)
    assert far.is_clean()


def test_a_file_that_changes_once_it_is_open_is_refused() -> None:
    far = Far(2)
    assert far.values(3) == ["0 3"]
    write_source(far.lake, {name: table(9) for name in ("0.parquet", "1.parquet")})
    for key in (3, 13):
        with pytest.raises(StalePointer, match="the file changed since it was indexed"):
            far.values(key)


def test_an_answer_that_waits_for_a_file_opened_ahead_ends_in_time() -> None:
    far = Far(1)
    far.lake.rounds = far.folder.rounds = Rounds(2)  # one reads the index, one opens the file
    with far.hang("0.parquet"), pytest.raises(OutOfTime, match=r"not answered within 0\.5 s"), within(0.5):
        far.values(3)
    far.lake.rounds = far.folder.rounds = None
    assert far.is_clean()
    assert far.values(3) == ["0 3"]


def test_two_answers_that_need_the_same_file_at_once_open_it_once() -> None:
    far, found = Far(1), []
    with far.hang("0.parquet"):
        first = threading.Thread(target=lambda: found.append(far.values(3)))
        first.start()
        assert far.lake.begun.wait(LONGEST)
        stats = FetchStats()
        second = threading.Thread(target=lambda: found.append(far.index.fetch_many([4, 5], ["v"], stats=stats)))
        second.start()
    for thread in (first, second):
        thread.join(LONGEST)
    assert sorted(map(str, found)) == ["['0 3']", "[[{'v': '0 4'}], [{'v': '0 5'}]]"]
    assert far.is_clean()


def test_a_file_that_is_known_is_not_opened_ahead() -> None:
    far = Far(2)
    far.values(3)
    far.values(13)
    far.lake.opened.clear()
    assert far.values(4) == ["0 4"]
    assert far.values(99) == []
    assert set(far.lake.opened) == {"0.parquet"}
