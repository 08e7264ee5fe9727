"""An index on a store with its source: built, maintained and moved as on a local disk, in both layouts, with the
answers of a dict."""

import json
import shutil
import uuid
from pathlib import Path

import pytest

from gnomon.__main__ import main
from gnomon.shadow.commit.relocate import adopt
from gnomon.shadow.errors import SnapshotNotFound, StalePointer
from gnomon.shadow.maintenance.compaction import compact, rebucket
from gnomon.shadow.maintenance.vacuuming import VacuumResult, vacuum
from gnomon.shadow.metadata import history
from gnomon.shadow.metadata.snapshot_view import open_view
from gnomon.shadow.metadata.snapshots import snapshot_numbers
from gnomon.shadow.metadata.source_files import source_root
from gnomon.shadow.storage import Storage, storage_at
from gnomon.shadow.verify.snapshot import verify
from tests.shadow.make_index import Build
from tests.shadow.operations import (
    FIRST,
    SECOND,
    answers,
    build_flat_mapped,
    build_mapped,
    check_clean,
    check_rows,
    look_up,
    put_lake,
)


@pytest.fixture(params=["memory", *(pytest.param(store, marks=pytest.mark.store) for store in ("s3", "azure", "hdfs"))])
def root(request: pytest.FixtureRequest) -> str:
    if request.param == "memory":
        return f"memory://{uuid.uuid4().hex}/x"
    place: str = request.getfixturevalue(f"{request.param}_root")
    return place


def built_twice(root: str, flat: bool = False, crashed: bool = False) -> Storage:
    """The index of a source after one file changed, one vanished and two were added. With `crashed`, the second build
    died before its commit and ran again."""
    lake, index = storage_at(f"{root}/lake"), storage_at(f"{root}/index")
    run = build_flat_mapped if flat else build_mapped
    put_lake(lake, FIRST)
    run(source_root(lake.root), index)
    put_lake(lake, SECOND, FIRST)
    if crashed:
        Build(source_root(lake.root), index, ["k"])
    run(source_root(lake.root), index)
    return index


def paths(storage: Storage) -> list[str]:
    return [info.path for info in storage.list(hidden=True)]


def check_answers(index: Storage) -> None:
    """Check that the newest snapshot has the answers of a dict, and verify every file and every pointer of it."""
    assert look_up(index) == answers(SECOND)
    check_rows(index, SECOND)
    report = verify(index, sample=None)
    assert report.faults == []
    assert report.rows_compared >= sum(map(len, SECOND.values()))


def replace_file(storage: Storage, path: str, data: bytes) -> None:
    storage.delete(path)
    storage.put_new(path, [data])


@pytest.mark.parametrize("flat", [False, True], ids=["partitioned", "flat"])
def test_an_index_is_kept_on_a_store(root: str, flat: bool) -> None:
    index = built_twice(root, flat, crashed=True)
    check_answers(index)
    assert compact(index).committed is not flat  # a flat one was merged by its second build
    assert rebucket(index, 3).buckets == 3
    check_answers(index)
    newest = 3 if flat else 4
    assert [record.snapshot for record in history(index)] == [*range(1, newest + 1)]
    assert [record.operation for record in history(index)][-1] == "rebucket"
    for number, lake in enumerate([FIRST, *[SECOND] * (newest - 1)], 1):  # time travel
        assert look_up(index, number) == answers(lake)
    check_clean(index)

    before, dry = paths(index), vacuum_now(index, dry_run=True)
    assert paths(index) == before
    assert vacuum_now(index).files == dry.files
    gone = {file.path for file in dry.files}
    assert paths(index) == [path for path in before if path not in gone]
    assert snapshot_numbers(index) == [newest]
    with pytest.raises(SnapshotNotFound):
        look_up(index, 1)
    check_answers(index)
    report = verify(index)
    assert report.plain_table is not None
    assert report.plain_table.equals_snapshot
    assert vacuum_now(index).files == ()


def vacuum_now(index: Storage, dry_run: bool = False) -> VacuumResult:
    return vacuum(index, grace_seconds=0, dry_run=dry_run, unnamed_seconds=0)


def test_a_fault_on_a_store_is_found_and_named(root: str) -> None:
    index = built_twice(root)
    file = next(iter(open_view(index).segments[-1].by_bucket.values()))
    data = index.read(file.path)
    replace_file(index, file.path, data[:-20] + bytes([data[-20] ^ 1]) + data[-19:])
    faults = verify(index).faults
    assert {fault.path for fault in faults} == {f"{root}/index/{file.path}"}
    replace_file(index, file.path, data)
    assert verify(index).faults == []
    lake = storage_at(f"{root}/lake")
    put_lake(lake, {"p=b/2.parquet": (7, 8)})
    lake.delete("p=c/1.parquet")
    assert [(fault.path, fault.what) for fault in verify(index).faults] == [
        (f"{root}/lake/p=b/2.parquet", "changed since it was indexed"),
        (f"{root}/lake/p=c/1.parquet", "gone since it was indexed"),
    ]


@pytest.mark.parametrize("flat", [False, True], ids=["partitioned", "flat"])
def test_a_lake_copied_to_another_place_on_a_store_is_adopted(root: str, flat: bool) -> None:
    index = built_twice(root, flat)
    lake, copy = storage_at(f"{root}/lake"), storage_at(f"{root}/copy")
    for info in lake.list():
        copy.put_new(info.path, [lake.read(info.path)])
        lake.delete(info.path)
    with pytest.raises(StalePointer):
        check_rows(index, SECOND)
    snapshot, _ = adopt(index, source_root(copy.root))
    assert (snapshot.number, snapshot.operation, snapshot.spec.source.location) == (3, "adopt", copy.root)
    check_answers(index)
    assert adopt(index, source_root(copy.root))[0] == snapshot
    replace_file(copy, "p=c/1.parquet", copy.read("p=c/1.parquet"))
    assert adopt(index, source_root(copy.root))[1] in (0, 1)  # none on stores whose etag depends on the content
    check_answers(index)


def test_a_lake_that_moves_from_a_local_disk_to_a_store_takes_its_index_along(root: str, tmp_path: Path) -> None:
    local = built_twice(str(tmp_path))
    for storage in (storage_at(f"{tmp_path}/lake"), local):
        target = storage_at(root + storage.root.removeprefix(str(tmp_path)))
        for info in storage.list(hidden=True):
            target.put_new(info.path, [storage.read(info.path)])
    shutil.rmtree(tmp_path / "lake")
    index = storage_at(f"{root}/index")
    assert adopt(index, source_root(f"{root}/lake"))[1] == len(SECOND)
    check_answers(index)


def test_the_commands_keep_an_index_on_a_store(root: str, capsys: pytest.CaptureFixture[str]) -> None:
    index = built_twice(root).root

    def run(command: str, *arguments: str) -> list[str]:
        code = main([command, index, *arguments])
        out, err = capsys.readouterr()
        assert (code, err) == (0, ""), command
        return list(out.splitlines())

    found = [json.loads(line)["row"] for line in run("get", "3", "--columns", "row")]
    assert sorted(found) == sorted(f"{path} {row}" for path, row in answers(SECOND)[3])
    assert run("compact")[0].startswith("snapshot 3: 2 segments became 1")
    assert run("rebucket", "--buckets", "3")[0].startswith("snapshot 4: ")
    assert run("verify", "--all")[-1].startswith("snapshot 4: sound; ")
    records = [json.loads(line) for line in run("history", "--json")]
    assert [record["operation"] for record in records] == ["build", "build", "compact", "rebucket"]
    assert "would remove 3 snapshots" in run("vacuum", "--grace", "0s", "--dry-run")[-1]
    assert run("vacuum", "--grace", "0s")[-1].startswith("removed 3 snapshots")
    facts = json.loads(run("inspect", "--json")[0])
    assert (facts["index"], facts["snapshot"], facts["buckets"], facts["segments"]) == (index, 4, 3, 1)
    assert facts["source"] == {"location": f"{root}/lake", "format": "parquet", "files": len(SECOND)}
    assert facts["plain_table"]["equals_snapshot"]
    assert facts["coverage"]["complete"]
