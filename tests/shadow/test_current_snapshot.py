"""An answer that lacks a vacuumed file is read again from a newer snapshot, if there is one."""

from pathlib import Path

import pyarrow as pa
import pytest

from gnomon.shadow.current_snapshot import CurrentSnapshot, ReadSettings, State
from gnomon.shadow.errors import IndexFileGone
from gnomon.shadow.metadata.snapshot_view import open_view
from gnomon.shadow.storage import storage_at
from tests.shadow.make_index import index_source, write_source


def commit(root: Path, first: int) -> None:
    write_source(root / "lake", {"p=1/a.parquet": pa.table({"k": range(first, first + 3 + first)})})
    index_source(root / "lake", root / "index", ["k"], 1)


def current(root: Path, pinned: bool = False) -> CurrentSnapshot:
    storage = storage_at(str(root / "index"))
    return CurrentSnapshot(storage, open_view(storage), pinned, ReadSettings())


@pytest.mark.parametrize("raises", [True, False])
def test_each_newer_snapshot_is_asked_until_one_has_all_its_files(tmp_path: Path, raises: bool) -> None:
    commit(tmp_path, 1)
    asked = []

    def read(state: State) -> tuple[int, bool]:
        asked.append(state.view.snapshot.number)
        if len(asked) == 4:
            return asked[-1], False
        commit(tmp_path, len(asked) + 1)
        if raises:
            raise IndexFileGone("missing", "x.btree.avro")
        return 0, True

    assert current(tmp_path).answer(read) == 4
    assert asked == [1, 2, 3, 4]


@pytest.mark.parametrize("pinned", [True, False])
def test_without_a_newer_snapshot_the_missing_file_is_the_answer(tmp_path: Path, pinned: bool) -> None:
    commit(tmp_path, 1)
    asked = []

    def gone(state: State) -> tuple[str, bool]:
        asked.append(state.view.snapshot.number)
        raise IndexFileGone("missing", "x.btree.avro")

    with pytest.raises(IndexFileGone):
        current(tmp_path, pinned).answer(gone)
    assert current(tmp_path, pinned).answer(lambda state: ("lacks a file", True)) == "lacks a file"
    assert asked == [1]
