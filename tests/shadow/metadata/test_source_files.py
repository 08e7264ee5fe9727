"""Coverage: the current files of the source, compared with the files of the snapshot."""

import os
from pathlib import Path

import pyarrow as pa
import pytest

from gnomon.shadow.errors import SourceNotFound, UsageError
from gnomon.shadow.metadata.manifests import Segment, SourceFileEntry
from gnomon.shadow.metadata.source_files import Diff, check_apart, diff, source_root
from gnomon.shadow.storage import FileInfo, storage_at
from tests.shadow.make_index import index_source, write_source

MTIME = 1_700_000_000_000_000_001


def info(path: str, size: int = 10, mtime_ns: int = MTIME) -> FileInfo:
    return FileInfo(path, size, mtime_ns)


def segment(name: str, *paths: str, dead: frozenset[int] = frozenset()) -> Segment:
    files = tuple(SourceFileEntry(path, "", 1, 10, MTIME, "") for path in paths)
    return Segment(name, (), files, dead)


def test_a_source_that_did_not_change_is_covered() -> None:
    found = diff([info("a"), info("b")], [segment("s", "a"), segment("t", "b")])
    assert found == Diff((), (), (), {"s": frozenset(), "t": frozenset()})
    assert found.is_empty


def test_new_changed_and_vanished_files_are_told_apart() -> None:
    now = [info("grown", size=11), info("new"), info("same"), info("touched", mtime_ns=MTIME + 1)]
    found = diff(now, [segment("s", "same", "grown", "gone"), segment("t", "touched")])
    assert found.new == (info("new"),)
    assert found.changed == (now[0], now[3])
    assert found.vanished == ("gone",)
    assert found.dead == {"s": frozenset({1, 2}), "t": frozenset({0})}
    assert found.to_index == (info("new"), now[0], now[3])


def test_a_file_that_was_made_again_as_it_was_is_new_and_its_old_entries_stay_dead() -> None:
    found = diff([info("a"), info("b")], [segment("s", "a", "b", dead=frozenset({0}))])
    assert found.new == (info("a"),)
    assert found.dead == {"s": frozenset({0})}


def test_a_file_covered_by_a_later_segment_is_covered() -> None:
    found = diff([info("a")], [segment("s", "a", dead=frozenset({0})), segment("t", "a")])
    assert found.is_empty


def test_an_index_without_segments_covers_nothing() -> None:
    assert diff([info("a")], []).new == (info("a"),)


def test_a_folder_lists_its_data_files_and_nothing_hidden(tmp_path: Path) -> None:
    for path in ("b.parquet", "a.parquet", "_SUCCESS", ".a.crc", "_temporary/0/c.parquet", "d._COPYING_"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(b"x")
    root = source_root(str(tmp_path))
    assert [file.path for file in root.list()] == ["a.parquet", "b.parquet"]
    assert (root.source.file_name, root.location) == ("", str(tmp_path))


def test_one_file_is_a_source_without_partition_columns(tmp_path: Path) -> None:
    file = tmp_path / "dt=2026-01-01" / "f.parquet"
    file.parent.mkdir()
    file.write_bytes(b"xyz")
    (file.parent / "other").write_bytes(b"")
    root = source_root(str(file))
    listed = root.list()
    assert [(one.path, one.size) for one in listed] == [("f.parquet", 3)]
    assert root.partitions(listed) == ()
    assert root.location == str(file)


@pytest.mark.parametrize("place", ["nowhere", "file/below"])
def test_a_missing_source_is_named(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_bytes(b"x")
    with pytest.raises(SourceNotFound, match=f"{tmp_path}/{place}: no such file or folder"):
        source_root(str(tmp_path / place))


def test_an_empty_source_is_refused(tmp_path: Path) -> None:
    (tmp_path / "_SUCCESS").write_bytes(b"")
    with pytest.raises(SourceNotFound, match=f"{tmp_path}: no data files there"):
        source_root(str(tmp_path)).list()


def test_a_single_file_that_vanished_is_named(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"x")
    root = source_root(str(tmp_path / "f"))
    (tmp_path / "f").unlink()
    with pytest.raises(SourceNotFound, match=f"{tmp_path}/f: no such file"):
        root.list()


@pytest.mark.parametrize("name", ["_f.parquet", ".f.parquet"])
def test_a_single_file_that_engines_skip_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"x")
    with pytest.raises(SourceNotFound, match="engines skip a file of this name"):
        source_root(str(tmp_path / name))


def test_a_file_name_that_is_no_text_is_refused(tmp_path: Path) -> None:
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/a\xff")).write_bytes(b"x")
    with pytest.raises(SourceNotFound, match="is not UTF-8; rename it"):
        source_root(str(tmp_path)).list()


def test_an_index_among_the_files_of_its_source_is_refused(tmp_path: Path) -> None:
    root = source_root(str(tmp_path))
    for below in ("", "index", "a/index"):
        with pytest.raises(UsageError, match="the index would lie among the files of its source"):
            check_apart(root, storage_at(str(tmp_path / below)))
    for apart in ("_index", "a/_x/index", "../beside"):
        check_apart(root, storage_at(str(tmp_path / apart)))


def test_a_build_into_its_own_source_commits_nothing(tmp_path: Path) -> None:
    write_source(tmp_path, {"a.parquet": pa.table({"k": [1]})})
    with pytest.raises(UsageError, match="would lie among the files"):
        index_source(tmp_path, tmp_path / "index", ["k"])
    assert not (tmp_path / "index/_shadow/snapshots").exists()
