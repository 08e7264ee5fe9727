"""Answers as of the newest version of a lake table, by an index that covers an older one."""

import threading
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from gnomon.jobs.build import BuildRequest, LocalEngine
from gnomon.jobs.build.job import build_index
from gnomon.shadow.current_snapshot import ReadSettings
from gnomon.shadow.errors import IndexBehind, SourceNotFound
from gnomon.shadow.index_for_jobs import OpenIndex
from gnomon.shadow.metadata.snapshot_view import open_view
from gnomon.shadow.newest_version import ReadThroughLimits, read_through
from gnomon.shadow.storage import storage_at
from gnomon.shadow.tables.delta import newest_version
from tests.opened import open_index


def rows(first: int, last: int, day: str = "a b") -> pa.Table:
    ids = range(first, last)
    return pa.table({"id": pa.array(ids), "name": [f"n{i}" for i in ids], "day": [day] * len(ids)})


@pytest.fixture
def table(tmp_path: Path) -> str:
    """A partitioned table of 100 rows, its version 0."""
    write_deltalake(tmp_path / "t", rows(0, 100), partition_by=["day"])
    return str(tmp_path / "t")


@pytest.fixture
def index(table: str, tmp_path: Path) -> str:
    """An index of version 0."""
    build_index(LocalEngine(), f"delta:{table}", str(tmp_path / "i"), BuildRequest(["id"], buckets=3))
    return str(tmp_path / "i")


def ids_of(opened: OpenIndex, asked: Sequence[int]) -> list[int]:
    found = [row["id"] for some in opened.fetch_many(asked) for row in some]
    assert [one for one in asked if opened.contains(one)] == found, "from the index alone, too"
    assert opened.table_many(asked)["id"].to_pylist() == found
    return found


def test_rows_of_later_versions_are_answered(table: str, index: str) -> None:
    write_deltalake(table, rows(100, 110, "c"), mode="append")
    DeltaTable(table).delete("id < 10")
    assert ids_of(open_index(index), [5, 50, 105]) == [5, 50]
    opened = open_index(index, newest=True)
    assert ids_of(opened, range(120)) == list(range(10, 110))
    assert opened.fetch(105, where={"day": "c"}) == [{"id": 105, "name": "n105", "day": "c"}]
    assert opened.view.snapshot.table is not None
    assert (opened.view.snapshot.table.version, opened.view.snapshot.rows) == ("2", 100)
    added = read_through(opened.view)
    assert added is not None
    assert sum(file.rows for file in added.source_files) == 100


def test_a_renewed_look_sees_each_version_at_once(table: str, index: str) -> None:
    storage = storage_at(index)
    opened = OpenIndex(storage, open_view(storage), False, ReadSettings(newest=ReadThroughLimits()))
    for first in range(100, 150, 10):
        write_deltalake(table, rows(first, first + 10), mode="append")
        assert ids_of(opened.at_newest_version(), [first - 1, first, first + 10]) == [first - 1, first]
    build_index(LocalEngine(), f"delta:{table}", index, BuildRequest(["id"], buckets=3))
    opened.refresh()
    newest = opened.at_newest_version()
    assert (ids_of(newest, [149]), read_through(newest.view)) == ([149], None)


def test_callers_at_once_share_a_look_and_none_sees_an_older_version(
    table: str, index: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = storage_at(index)
    opened = OpenIndex(storage, open_view(storage), False, ReadSettings(newest=ReadThroughLimits()))
    looks = list[str]()

    def counted(place: str, known: object) -> object:
        looks.append(place)
        return newest_version(place, known)  # type: ignore[arg-type]

    monkeypatch.setattr("gnomon.shadow.tables.delta.newest_version", counted)
    write_deltalake(table, rows(100, 110), mode="append")
    found = list[bool]()
    threads = [
        threading.Thread(target=lambda: found.append(opened.at_newest_version().contains(105))) for _ in range(16)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 16
    assert len(looks) < 16


@pytest.mark.parametrize("limits", [ReadThroughLimits(files=1), ReadThroughLimits(rows=15)])
def test_an_index_too_far_behind_is_an_error_and_no_part_of_an_answer(
    table: str, index: str, limits: ReadThroughLimits
) -> None:
    storage = storage_at(index)
    opened = OpenIndex(storage, open_view(storage), False, ReadSettings(newest=limits))
    for first in (100, 110):
        write_deltalake(table, rows(first, first + 10), mode="append")
    with pytest.raises(
        IndexBehind, match=r"snapshot 1 covers version 0 .*version 2 has .*run gnomon build INDEX again"
    ):
        opened.at_newest_version()


def test_columns_that_changed_are_read_or_refused(table: str, index: str) -> None:
    write_deltalake(table, rows(100, 110).append_column("more", pa.array([1] * 10)), mode="append", schema_mode="merge")
    opened = open_index(index, newest=True)
    assert opened.fetch(105) == [{"id": 105, "name": "n105", "more": 1, "day": "a b"}]
    assert opened.fetch(5) == [{"id": 5, "name": "n5", "more": None, "day": "a b"}]


def test_another_table_at_the_place_is_refused(table: str, index: str, tmp_path: Path) -> None:
    (tmp_path / "t").rename(tmp_path / "old")
    write_deltalake(table, rows(0, 5), partition_by=["day"])
    with pytest.raises(IndexBehind, match="another table is there now"):
        open_index(index, newest=True)


def test_a_log_that_is_gone_is_an_error(index: str, tmp_path: Path) -> None:
    (tmp_path / "t/_delta_log").rename(tmp_path / "t/_gone")
    with pytest.raises(SourceNotFound, match="no Delta table there"):
        open_index(index, newest=True)
    assert open_index(index).fetch(5), "look-ups as of the index need no log"
