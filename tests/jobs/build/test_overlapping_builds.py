"""Builds of one index that overlap: each reads the index and the source at other moments, and none takes the index back
to an older state of its source."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gnomon.jobs.build import BuildRequest, LocalEngine, job, planning
from gnomon.jobs.build.job import build_index
from gnomon.jobs.dedup import append_new
from gnomon.jobs.dedup import target as finish
from gnomon.shadow.maintenance import compact
from gnomon.shadow.storage import storage_at
from gnomon.shadow.verify import verify
from tests.jobs.dedup.lake_tables import DeltaLake, IcebergLake, rows
from tests.opened import open_index
from tests.profiles import cases

KEYS = ["id"]
# The calls of a build before which another program may run, in their order.
MOMENTS = {
    "before the index is read": [(planning, "newest_view"), (planning, "newest_number")],
    "before the source is read": [(planning, "named_source")],
    "before the two are compared": [(planning, "diff")],
    "before the index files are written": [(job, "new_segment_id")],
    "before the commit": [(job, "publish_build"), (job, "publish_full")],
}
SLOW = {
    "nightly": {},
    "first": {},
    "full": {"full": True},
    "page maps": {"page_maps": True},
    "adopt": {"adopt": True},
}
CASES = [("nightly", moment) for moment in MOMENTS] + [(slow, "before the two are compared") for slow in list(SLOW)[1:]]


class Source(Protocol):
    """A source with the rows 0 to 39."""

    name: str

    def append(self, table: pa.Table) -> None: ...


class Folder:
    """Parquet files in a folder."""

    def __init__(self, root: Path) -> None:
        self.name, self._root = str(root / "folder"), root / "folder"
        self._root.mkdir()
        self.append(rows(0, 40))

    def append(self, table: pa.Table) -> None:
        pq.write_table(table, self._root / f"{len(list(self._root.iterdir()))}.parquet")


@pytest.fixture(params=["folder", "delta", "iceberg"])
def source(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Source:
    if request.param == "folder":
        return Folder(tmp_path)
    return DeltaLake(tmp_path) if request.param == "delta" else IcebergLake(tmp_path, monkeypatch)


def build(source: Source, index: str, **options: Any) -> int:
    return build_index(LocalEngine(), source.name, index, replace(BuildRequest(KEYS, buckets=2), **options)).snapshot


def before(monkeypatch: pytest.MonkeyPatch, moment: str, other: Callable[[], object]) -> None:
    """Run another program before the first such call of a build."""
    ran = []

    def after_other(real: Callable[..., Any]) -> Callable[..., Any]:
        def called(*arguments: Any, **options: Any) -> Any:
            if not ran:
                ran.append(True)
                other()
            return real(*arguments, **options)

        return called

    for module, name in MOMENTS[moment]:
        monkeypatch.setattr(module, name, after_other(getattr(module, name)))


def ids(index: str) -> list[int]:
    return [key for key in range(60) if open_index(index).contains(key)]


@pytest.mark.parametrize(("slow", "moment"), cases(CASES))
def test_no_build_takes_the_index_back(
    source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slow: str, moment: str
) -> None:
    index = str(tmp_path / "index")
    if slow != "first":
        build(source, index)
        source.append(rows(40, 45))  # what the slow build finds

    def other() -> None:
        source.append(rows(45, 50))
        build(source, index)
        assert ids(index)[-1] == 49

    before(monkeypatch, moment, other)
    build(source, index, **SLOW[slow])
    assert ids(index)[-1] == 49
    assert open_index(index).view.snapshot.rows == len(ids(index))


@pytest.mark.parametrize("moment", cases(MOMENTS))
def test_a_slow_build_lets_no_append_add_a_key_twice(
    source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    index = str(tmp_path / "index")
    build(source, index)
    source.append(rows(40, 42))

    def other() -> None:
        source.append(rows(42, 45))
        result = append_new(None, index, rows(40, 50), batch_id="nightly")
        assert (result.already_loaded, result.appended) == (5, 5)

    before(monkeypatch, moment, other)
    build(source, index)
    assert append_new(None, index, rows(30, 50), batch_id="again").appended == 0
    assert open_index(index).view.snapshot.rows == len(ids(index))


@pytest.mark.parametrize("moment", ["before the source is read", "before the commit"])
def test_a_rolled_back_table_is_followed_and_not_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """The versions of an Iceberg table have no order: another build commits a newer one, and the one after a rollback,
    which is the slow build's base again."""
    lake, index = IcebergLake(tmp_path, monkeypatch), str(tmp_path / "index")
    first = lake.table().current_snapshot()
    assert first is not None
    build(lake, index)
    lake.append(rows(40, 45))

    def other() -> None:
        build(lake, index)
        with lake.table().manage_snapshots() as manage:
            manage.rollback_to_snapshot(first.snapshot_id)
        build(lake, index)
        compact(storage_at(index))

    before(monkeypatch, moment, other)
    build(lake, index)
    assert ids(index)[-1] == 39


@pytest.mark.parametrize("kind", [DeltaLake, IcebergLake])
def test_the_build_of_an_append_that_others_indexed_takes_the_index_not_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: Callable[..., DeltaLake | IcebergLake]
) -> None:
    lake, index = kind(tmp_path, *([monkeypatch] if kind is IcebergLake else [])), str(tmp_path / "index")
    build(lake, index)
    commit, publish = finish.commit_to_table, job.publish_build

    def commit_and_build(*arguments: Any) -> None:
        commit(*arguments)
        build(lake, index)

    def delete_and_publish(*arguments: Any) -> Any:
        if arguments[3].batch is not None and 3 in ids(index):
            lake.delete(3)
            build(lake, index)
            assert 3 not in ids(index)
        return publish(*arguments)

    monkeypatch.setattr(finish, "commit_to_table", commit_and_build)
    monkeypatch.setattr(job, "publish_build", delete_and_publish)
    assert append_new(None, index, rows(30, 50), batch_id="nightly").appended == 10
    assert ids(index) == [row["id"] for row in lake.rows()]
    assert verify(storage_at(index)).faults == []
