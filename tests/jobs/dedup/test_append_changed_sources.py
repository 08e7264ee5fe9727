"""Appends into sources that others change: rows of vanished files are never appended again, changed files are indexed
first."""

import shutil
import sys
from pathlib import Path

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gnomon.jobs.build import build
from gnomon.jobs.dedup import Origin, append_new, batch_digest, read_batch
from gnomon.jobs.dedup import append as append_module
from gnomon.jobs.load import load
from gnomon.shadow import UsageError
from gnomon.shadow.commit.append_log import Append
from gnomon.shadow.errors import FilesVanished
from gnomon.shadow.maintenance.compaction import rebucket
from gnomon.shadow.storage import Storage, storage_at
from gnomon.shadow.verify.snapshot import verify
from tests.opened import open_index
from tests.shadow.make_index import index_source, write_source


def rows(*ids: int, text: str = "old") -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "v": [f"{text} {i}" for i in ids]})


def batch(*ids: int) -> pa.Table:
    return rows(*ids, text="new")


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    write_source(tmp_path / "lake", {"a.parquet": rows(1, 2, 3), "b.parquet": rows(11, 12, 13)})
    index_source(tmp_path / "lake", tmp_path / "index", ["id"], 2)
    return tmp_path


def in_source(lake: Path) -> list[int]:
    return sorted(i for path in (lake / "lake").glob("*.parquet") for i in pq.read_table(path)["id"].to_pylist())


def test_an_append_is_refused_while_files_are_away_and_runs_when_they_are_back(lake: Path) -> None:
    (lake / "lake/b.parquet").rename(lake / "away")
    before = open_index(str(lake / "index")).view.snapshot
    with pytest.raises(FilesVanished, match=r"1 of the 2 files that snapshot 1 covers are gone \(b.parquet\)"):
        append_new(None, str(lake / "index"), batch(12, 20), "b")
    assert in_source(lake) == [1, 2, 3]
    assert open_index(str(lake / "index")).view.snapshot == before
    (lake / "away").rename(lake / "lake/b.parquet")
    result = append_new(None, str(lake / "index"), batch(12, 20), "b")
    assert (result.appended, result.already_loaded) == (1, 1)
    assert [row["v"] for row in open_index(str(lake / "index")).fetch(12)] == ["old 12"]


def test_a_build_or_a_word_of_consent_lets_an_append_forget_deleted_files(lake: Path) -> None:
    (lake / "lake/b.parquet").unlink()
    result = append_new(None, str(lake / "index"), batch(12), "consent", accept_vanished=True)
    assert result.appended == 1
    (lake / "lake/a.parquet").unlink()
    build(None, str(lake / "lake"), str(lake / "index"), ["id"], accept_vanished=True)
    assert append_new(None, str(lake / "index"), batch(2), "after a build").appended == 1
    assert in_source(lake) == [2, 12]


def test_a_file_that_vanishes_behind_the_commit_stays_covered(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The append is finished: its rows are in the source. The next append is refused."""

    def vanishing(storage: Storage, append: Append) -> bool:
        monkeypatch.undo()
        (lake / "lake/b.parquet").rename(lake / "away")
        return append_module.commit_append(storage, append)

    monkeypatch.setattr(append_module, "commit_append", vanishing)
    assert append_new(None, str(lake / "index"), batch(12, 20), "b").appended == 1
    covered = open_index(str(lake / "index")).view.covered
    assert "b.parquet" in covered
    assert len(covered) == 3
    with pytest.raises(FilesVanished, match=r"b\.parquet"):
        append_new(None, str(lake / "index"), batch(13), "c")
    (lake / "away").rename(lake / "lake/b.parquet")
    assert append_new(None, str(lake / "index"), batch(13), "c").already_loaded == 1
    assert verify(storage_at(str(lake / "index")), None).is_sound


@pytest.mark.parametrize("changed", [["a.parquet"], ["b.parquet"], ["a.parquet", "b.parquet"]])
def test_files_that_were_rewritten_are_indexed_before_an_append(lake: Path, changed: list[str]) -> None:
    write_source(lake / "lake", {name: rows(*range(100 + 10 * i, 105 + 10 * i)) for i, name in enumerate(changed)})
    result = append_new(None, str(lake / "index"), batch(101, 999), "b")
    assert (result.appended, result.already_loaded) == (1, 1)


def test_a_load_of_rows_does_not_read_files_that_hold_none_of_them(lake: Path) -> None:
    write_source(lake / "lake", {"b.parquet": rows(11, 99)})
    found = load(None, lake / "index", pa.table({"id": [2, 3]})).read_all()
    assert sorted(found["v"].to_pylist()) == ["old 2", "old 3"]


def test_a_rebucket_between_commit_and_indexing_is_followed(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    building = sys.modules["gnomon.jobs.build.job"]  # in the package, the name is the function
    verify_sample = building.verify_sample

    def meanwhile(*arguments: object) -> int:
        monkeypatch.undo()
        rebucket(storage_at(str(lake / "index")), 3)
        return int(verify_sample(*arguments))

    monkeypatch.setattr(building, "verify_sample", meanwhile)
    assert append_new(None, str(lake / "index"), batch(1, 50, 51), "b").appended == 2
    index = open_index(str(lake / "index"))
    assert (index.spec.buckets, index.view.snapshot.rows) == (3, 8)
    assert [row["v"] for row in index.fetch(51)] == ["new 51"]


def test_a_lake_table_is_never_appended_to(tmp_path: Path) -> None:
    source = tmp_path / "table"
    deltalake.write_deltalake(str(source), rows(1, 2, 3))
    index = str(tmp_path / "index")
    with pytest.raises(UsageError, match=r"a Delta Lake table at .*--as-files"):
        build(None, str(source), index, ["id"])
    with pytest.raises(UsageError, match=r"a Delta Lake table at .*no append can commit to it"):
        append_new(None, index, batch(4), "b", origin=Origin(str(source), ["id"]))
    with pytest.raises(UsageError, match=r"a Delta Lake table at .*write its live rows to plain files"):
        read_batch(None, str(source), None)
    build(None, str(source), index, ["id"], as_files=True)
    assert open_index(index).spec.source.as_files
    files = sorted(path.name for path in source.iterdir())
    with pytest.raises(UsageError, match=r"a lake table whose files were indexed with --as-files; .*its own engine"):
        append_new(None, index, batch(4), "b")
    assert sorted(path.name for path in source.iterdir()) == files
    assert build(None, str(source), index, ["id"]).committed is False, "the consent is on record"


def test_an_index_of_a_folder_that_became_a_lake_table_is_refused_until_consent(lake: Path) -> None:
    write_source(lake / "lake", {"_delta_log/00000000000000000000.json": rows(1)})
    for call in (
        lambda: build(None, str(lake / "lake"), str(lake / "index"), ["id"]),
        lambda: append_new(None, str(lake / "index"), batch(4), "b"),
    ):
        with pytest.raises(UsageError, match="a Delta Lake table"):
            call()
    result = build(None, str(lake / "lake"), str(lake / "index"), ["id"], as_files=True)
    assert result.committed, "the consent alone is a commit"
    assert open_index(str(lake / "index")).spec.source.as_files
    shutil.rmtree(lake / "lake/_delta_log")
    with pytest.raises(UsageError, match="a lake table whose files were indexed"):
        append_new(None, str(lake / "index"), batch(4), "b")


def test_places_are_paths_or_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_source(tmp_path / "lake", {"a.parquet": rows(1, 2)})
    write_source(tmp_path / "landing", {"b.parquet": rows(2, 3)})
    given = read_batch(None, tmp_path / "landing", None)
    assert batch_digest(tmp_path / "landing") == batch_digest(str(tmp_path / "landing"))
    result = append_new(None, tmp_path / "index", given, "b", origin=Origin(tmp_path / "lake", ["id"]))
    assert result.appended == 1
    monkeypatch.setenv("HOME", str(tmp_path))
    assert open_index("~/index").spec.source.location == str(tmp_path / "lake")
    again = append_new(None, "~/index", read_batch(None, "~/landing", None), "c", origin=Origin("~/lake", ["id"]))
    assert again.already_loaded == 2


def test_an_append_that_indexes_everything_again_forgets_no_file_that_is_away(lake: Path) -> None:
    (lake / "lake/b.parquet").rename(lake / "away")
    with pytest.raises(FilesVanished, match=r"1 of the 2 files .*b\.parquet"):
        append_new(None, str(lake / "index"), batch(12), "b", full=True)
    (lake / "away").rename(lake / "lake/b.parquet")
    assert append_new(None, str(lake / "index"), batch(12), "b", full=True).already_loaded == 1
    (lake / "lake/b.parquet").unlink()
    result = append_new(None, str(lake / "index"), batch(13), "c", full=True, accept_vanished=True)
    assert result.appended == 1


def test_a_covered_file_without_rows_that_is_gone_stops_no_append(tmp_path: Path) -> None:
    write_source(tmp_path / "lake", {"a.parquet": rows(1, 2), "empty.parquet": rows()})
    index_source(tmp_path / "lake", tmp_path / "index", ["id"], 2)
    (tmp_path / "lake/empty.parquet").unlink()
    assert append_new(None, str(tmp_path / "index"), batch(1, 3), "b").appended == 1


def test_a_first_append_takes_a_folder_of_files_without_bytes_for_an_empty_source(tmp_path: Path) -> None:
    (tmp_path / "lake").mkdir()
    (tmp_path / "lake/README").touch()
    origin = Origin(tmp_path / "lake", ["id"])
    assert append_new(None, tmp_path / "index", batch(1, 2), "b", origin=origin).appended == 2
