"""A full build repairs any damage of an index, and damaged files are never read as sound."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from gnomon.shadow.commit.full_reindex import spec_on_record
from gnomon.shadow.errors import ConcurrentCommit, DamagedMetadata, ShadowError
from gnomon.shadow.maintenance.vacuuming import vacuum
from gnomon.shadow.metadata.snapshots import SPEC_PATH, snapshot_numbers
from gnomon.shadow.storage import storage_at
from gnomon.shadow.verify.snapshot import verify
from tests.opened import open_index
from tests.shadow.make_index import Build, index_source, write_source

NEWEST = "_shadow/snapshots/00000000000000000002.json"


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    for number in (1, 2):
        write_source(tmp_path / "lake", {f"p={p}/{number}.parquet": pa.table({"k": range(9)}) for p in "ab"})
        index_source(tmp_path / "lake", tmp_path / "index", ["k"], buckets=2)
    return tmp_path


def spoil(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def every(pattern: str, how: Callable[[Path], None]) -> Callable[[Path], None]:
    def damage(index: Path) -> None:
        paths = sorted(index.glob(pattern))
        assert paths
        for path in paths:
            how(path)

    return damage


DAMAGE: dict[str, Callable[[Path], None]] = {
    "newest snapshot": every(NEWEST, spoil),
    "all snapshots": every("_shadow/snapshots/*", spoil),
    "all snapshots and the spec": every("_shadow/**/*.json", spoil),
    "all snapshots, and no spec": lambda index: (spoil(index / NEWEST), (index / SPEC_PATH).unlink())[1],
    "manifests": every("_shadow/segments/*", spoil),
    "no manifests": lambda index: shutil.rmtree(index / "_shadow/segments"),
    "index files": every("p=*/*", spoil),
    "no index files": every("p=a/*", Path.unlink),
    "filters": lambda index: shutil.rmtree(index / "_shadow/filters"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_index_is_whole_again(lake: Path, damage: str) -> None:
    DAMAGE[damage](lake / "index")
    storage = storage_at(str(lake / "index"))
    assert not is_sound(lake)
    assert index_source(lake / "lake", lake / "index", ["k"], buckets=2, full=True).number == 3
    index = open_index(str(lake / "index"))
    assert [len(index.fetch(key)) for key in range(10)] == [4] * 9 + [0]
    assert index.coverage().is_empty
    assert verify(storage, None).faults == []
    assert vacuum(storage, grace_seconds=0, unnamed_seconds=0).kept == (3,)
    assert verify(storage, None).faults == []


def is_sound(lake: Path) -> bool:
    try:
        return verify(storage_at(str(lake / "index")), None).is_sound
    except ShadowError:
        return False


def test_nothing_changes_for_readers_before_its_commit_and_old_snapshots_stay(lake: Path) -> None:
    build = Build(lake / "lake", lake / "index", ["k"], buckets=2, full=True)
    index = open_index(str(lake / "index"))
    assert (index.view.snapshot.number, len(index.lookup(3))) == (2, 4)
    build.commit()
    assert len(open_index(str(lake / "index"), snapshot=1).lookup(3)) == 2
    assert index.refresh()
    assert len(index.view.segments) == 1


def test_what_others_committed_meanwhile_is_not_undone(lake: Path) -> None:
    build = Build(lake / "lake", lake / "index", ["k"], full=True)
    write_source(lake / "lake", {"p=c/1.parquet": pa.table({"k": [100]})})
    index_source(lake / "lake", lake / "index", ["k"])
    with pytest.raises(ConcurrentCommit, match="another program committed snapshot 3 first"):
        build.commit()
    assert snapshot_numbers(build.storage) == [1, 2, 3]
    assert open_index(str(lake / "index")).contains(100)


def test_the_spec_is_that_of_the_newest_snapshot_that_can_be_read(lake: Path) -> None:
    storage = storage_at(str(lake / "index"))
    spec = open_index(str(lake / "index")).spec
    spoil(lake / "index" / NEWEST)
    assert spec_on_record(storage) == spec
    spoil(lake / "index/_shadow/snapshots/00000000000000000001.json")
    assert spec_on_record(storage) == spec
    spoil(lake / "index" / SPEC_PATH)
    assert spec_on_record(storage) is None
    with pytest.raises(DamagedMetadata, match="gnomon build INDEX --full"):
        open_index(str(lake / "index"))
