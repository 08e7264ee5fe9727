"""The probe: a store that lets two writers overwrite each other is refused before anything is written."""

import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

import pyarrow as pa
import pytest

from gnomon.shadow.commit.relocate import adopt
from gnomon.shadow.errors import StorageError, UnsafeStore
from gnomon.shadow.maintenance.compaction import compact, rebucket
from gnomon.shadow.metadata.source_files import source_root
from gnomon.shadow.storage import LocalStorage, Storage
from gnomon.shadow.storage.contract import probe
from tests.shadow.make_index import Build, index_source, write_source


class Careless(LocalStorage):
    """A store that ignores the condition: the second put replaces the first."""

    def put_new(self, path: str, chunks: Iterable[bytes]) -> None:
        self.delete(path)
        super().put_new(path, chunks)


class Counting(LocalStorage):
    """Counts its puts; fails them on request."""

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self.puts = 0
        self.fails = False

    def put_new(self, path: str, chunks: Iterable[bytes]) -> None:
        self.puts += 1
        if self.fails:
            raise StorageError("timed out")
        super().put_new(path, chunks)


def test_a_store_that_keeps_the_first_passes_and_is_left_as_it_was(tmp_path: Path) -> None:
    storage = LocalStorage(str(tmp_path))
    probe(storage)
    assert list(storage.list(hidden=True)) == []


def test_a_store_that_lets_the_second_pass_is_refused_each_time_and_left_as_it_was(tmp_path: Path) -> None:
    storage = Careless(str(tmp_path))
    for _ in range(2):
        with pytest.raises(UnsafeStore, match=f"^{tmp_path}: of three create-only writes of _shadow/probe/"):
            probe(storage)
    assert list(storage.list(hidden=True)) == []


def test_a_storage_is_asked_once_but_again_where_it_could_not_answer(tmp_path: Path) -> None:
    storage = Counting(str(tmp_path))
    storage.fails = True
    with pytest.raises(StorageError, match="timed out"):
        probe(storage)
    storage.fails = False
    probe(storage)
    probe(storage)
    assert storage.puts == 3
    other = Counting(str(tmp_path))
    probe(other)
    assert other.puts == 2


def test_a_commit_to_an_unsafe_store_writes_no_metadata(tmp_path: Path) -> None:
    write_source(tmp_path / "lake", {"a.parquet": pa.table({"k": [1]})})
    build = Build(tmp_path / "lake", tmp_path / "index", ["k"])
    build.storage = Careless(str(tmp_path / "index"))
    with pytest.raises(UnsafeStore, match="nothing was written"):
        build.commit()
    assert list(build.storage.list("_shadow/snapshots")) == list(build.storage.list("_shadow/segments")) == []


@pytest.mark.parametrize(
    "change",
    [
        lambda index, lake: adopt(index, source_root(str(lake))),
        lambda index, _lake: compact(index),
        lambda index, _lake: rebucket(index, 7),
    ],
    ids=["adopt", "compact", "rebucket"],
)
def test_what_changes_an_index_asks_before_its_first_write(
    tmp_path: Path, change: Callable[[Storage, Path], object]
) -> None:
    for name in ("a", "b"):
        write_source(tmp_path / "lake", {f"{name}.parquet": pa.table({"k": [1]})})
        index_source(tmp_path / "lake", tmp_path / "index", ["k"])
    shutil.copytree(tmp_path / "lake", tmp_path / "copy", copy_function=shutil.copyfile)
    index = Careless(str(tmp_path / "index"))
    before = list(index.list(hidden=True))
    with pytest.raises(UnsafeStore, match="nothing was written"):
        change(index, tmp_path / "copy")
    assert list(index.list(hidden=True)) == before
