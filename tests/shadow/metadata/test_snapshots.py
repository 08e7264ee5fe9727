"""Snapshots are numbered, immutable, and the newest is the index."""

import threading
from dataclasses import replace
from pathlib import Path

import pytest

from gnomon.shadow.errors import AlreadyExists, DamagedMetadata, SnapshotNotFound
from gnomon.shadow.metadata import Folder, json_files
from gnomon.shadow.metadata.manifests import SegmentRef
from gnomon.shadow.metadata.snapshots import (
    Snapshot,
    commit,
    newest_snapshot,
    read_snapshot,
    snapshot_numbers,
    snapshot_path,
)
from gnomon.shadow.metadata.spec import IndexSpec, KeyColumn
from gnomon.shadow.storage import Storage, storage_at

SNAPSHOT = Snapshot(
    number=1,
    operation="build",
    segments=(SegmentRef("s", 100, 2**32 - 1, (0, 2)), SegmentRef("t", 5, 0)),
    partitions={"": 7, "dt=ü": 0},
    columns={"url": "string", "a.b": "list<item: int32>"},
    spec=IndexSpec(Folder("/lake"), "parquet", ("dt",), (KeyColumn("url", "string"),), (), 4),
    committed_at="2026-01-01T00:00:00.000000Z",
    batch="batch-1",
    commit_id="t",
    parent_id="s",
    counts={"new": 1},
)


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return storage_at(str(tmp_path))


def test_a_snapshot_comes_back_as_committed(storage: Storage) -> None:
    commit(storage, SNAPSHOT)
    assert read_snapshot(storage, 1) == SNAPSHOT
    assert SNAPSHOT.rows == 7


def test_the_newest_is_the_greatest_number_whatever_else_lies_there(storage: Storage) -> None:
    for number in (9, 10, 2):
        commit(storage, replace(SNAPSHOT, number=number))
    for name in ("00000000000000000011.json.tmp", "12.json", "backup/00000000000000000013.json", "_00000000000000014"):
        storage.put_new(f"_shadow/snapshots/{name}", [b"x"])
    assert snapshot_numbers(storage) == [2, 9, 10]
    newest = newest_snapshot(storage)
    assert newest is not None
    assert newest.number == 10


def test_before_the_first_commit_there_is_none(storage: Storage) -> None:
    assert newest_snapshot(storage) is None


def test_of_racing_commits_of_a_number_one_wins(storage: Storage) -> None:
    lost: list[str] = []

    def race(operation: str) -> None:
        try:
            commit(storage, replace(SNAPSHOT, operation=operation))
        except AlreadyExists:
            lost.append(operation)

    threads = [threading.Thread(target=race, args=(f"build {i}",)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(lost) == 5
    assert read_snapshot(storage, 1).operation not in lost


@pytest.mark.parametrize(("there", "said"), [((), "there is none"), ((3, 4), "there are 3 to 4")])
def test_a_snapshot_that_is_gone_is_told_from_a_damaged_one(
    storage: Storage, there: tuple[int, ...], said: str
) -> None:
    for number in there:
        commit(storage, replace(SNAPSHOT, number=number))
    with pytest.raises(SnapshotNotFound, match=rf"snapshot 1 is not there \({said}\)"):
        read_snapshot(storage, 1)


def test_a_damaged_newest_snapshot_is_an_error_not_the_one_before_it(storage: Storage, tmp_path: Path) -> None:
    commit(storage, SNAPSHOT)
    commit(storage, replace(SNAPSHOT, number=2))
    path = tmp_path / snapshot_path(2)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(DamagedMetadata, match=f"{path} at byte "):
        newest_snapshot(storage)


def test_a_snapshot_under_another_number_is_noticed(storage: Storage) -> None:
    storage.put_new(snapshot_path(2), [json_files.encode(SNAPSHOT.to_json())])
    with pytest.raises(DamagedMetadata, match=r"0002\.json at byte 0: expected snapshot 2, found 1"):
        read_snapshot(storage, 2)


def test_the_folders_of_a_tables_partitions_come_back_and_others_have_none(storage: Storage) -> None:
    table = replace(SNAPSHOT, folders={"dt=1": "dt=1", "dt=2": "/far/a way"})
    commit(storage, table)
    assert read_snapshot(storage, 1) == table
    assert "folders" not in SNAPSHOT.to_json()


@pytest.mark.parametrize("member", ["operation", "segments", "columns", "spec", "commit_id"])
def test_sound_json_that_is_no_snapshot_is_damage(storage: Storage, member: str) -> None:
    content = SNAPSHOT.to_json()
    del content[member]
    storage.put_new(snapshot_path(1), [json_files.encode(content)])
    with pytest.raises(DamagedMetadata, match=r"0001\.json at byte 0: not a snapshot"):
        read_snapshot(storage, 1)
