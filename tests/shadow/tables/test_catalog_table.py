"""The folders of a catalog table, listed without the catalog."""

from pathlib import Path

import pytest

from gnomon.shadow.errors import SourceNotFound
from gnomon.shadow.metadata.manifests import Segment, SourceFileEntry
from gnomon.shadow.metadata.source_files import SourceRoot, diff, within
from gnomon.shadow.storage import source_storage
from gnomon.shadow.tables.table_source import Table


def source(root: Path, **folders: str) -> SourceRoot:
    named = {partition.replace("_", "="): folder for partition, folder in folders.items()}
    return SourceRoot(source_storage(str(root)), Table("db.t", named, {"p": "int"}, "k string"))


def put(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x")


def test_files_are_those_of_the_partitions_folders_named_below_the_root_or_in_whole(tmp_path: Path) -> None:
    root, far = tmp_path / "t", tmp_path / "far"
    for path in (root / "p=1/a", root / "p=1/_hidden/b", root / "p=1/.c", root / "p=9/d", far / "e", root / "f"):
        put(path)
    (root / "p=1/000001_0").touch()  # a bucket without rows, as Hive writes it
    found = source(root, p_1="p=1", p_2=str(far), p_3="missing")
    assert [info.path for info in found.list()] == [f"{far}/e", "p=1/a"]
    assert [found.partition_of(info.path, True) for info in found.list()] == ["p=2", "p=1"]
    for info in found.list():
        with found.storage.open(info.path, known=info) as file:
            assert (file.read_range(0, 1), file.size) == (b"x", 1)


def test_a_folder_of_a_partition_may_lie_in_that_of_another_and_other_folders_may_not(tmp_path: Path) -> None:
    for path in ("p=1/a", "p=1/inner/b", "p=1/inner/deeper/c"):
        put(tmp_path / path)
    inner = str(tmp_path / "p=1/inner")
    assert [i.path for i in source(tmp_path, p_1="p=1", p_2="p=1/inner", p_3="p=1/inner/deeper").list()] == [
        "p=1/a",
        "p=1/inner/b",
        "p=1/inner/deeper/c",
    ]
    with pytest.raises(SourceNotFound, match=r"deeper/c: lies below the folder of a partition of db.t and not in it"):
        source(tmp_path, p_2="p=1/inner").list()
    # A root that lies below a partition's folder.
    above = SourceRoot(
        source_storage(inner), Table("db.t", {"p=1": str(tmp_path / "p=1"), "p=2": "", "p=3": "deeper"}, {}, "")
    )
    assert [info.path for info in above.list()] == [f"{tmp_path}/p=1/a", "b", "deeper/c"]


def test_a_file_whose_folder_is_another_partitions_by_now_is_changed(tmp_path: Path) -> None:
    put(tmp_path / "one/a")
    put(tmp_path / "two/b")
    before, now = source(tmp_path, p_1="one", p_2="two"), source(tmp_path, p_1="two", p_2="one")
    files = [
        SourceFileEntry(info.path, before.partition_of(info.path, True), 1, info.size, info.mtime_ns, "")
        for info in before.list()
    ]
    segments = [Segment("s", (), tuple(files))]
    assert diff(before.list(), segments, before.source).is_empty
    found = diff(now.list(), segments, now.source)
    assert [info.path for info in found.changed] == ["one/a", "two/b"]
    assert found.dead == {"s": frozenset({0, 1})}
    put(tmp_path / "three/c")
    more = source(tmp_path, p_1="one", p_3="three")
    found = diff(more.list(), segments, more.source)
    assert ([info.path for info in found.new], found.vanished) == (["three/c"], ("two/b",))
    some = within(more, found, segments, {"p=3"})
    assert ([info.path for info in some.new], some.vanished, some.dead) == (["three/c"], (), {"s": frozenset()})
    others = within(more, found, segments, {"p=2"})
    assert (others.new, others.vanished, others.dead) == ((), ("two/b",), {"s": frozenset({1})})
