"""With recorded page maps, the first fetch from a file reads no page headers, and answers are the same."""

import os
import shutil
import threading
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from isal import isal_zlib

from gnomon.shadow.commit.publishing import new_segment_id
from gnomon.shadow.commit.relocate import adopt, record
from gnomon.shadow.errors import DamagedIndexFile, IndexFileGone, StalePointer
from gnomon.shadow.fetch.fetcher import Fetcher, Located
from gnomon.shadow.fetch.page_maps import page_maps_path, prove_page_maps, without_maps, write_page_maps
from gnomon.shadow.fetch.results import Query
from gnomon.shadow.fetch.source_files import FetchReads, FetchStats
from gnomon.shadow.index_for_jobs import OpenIndex
from gnomon.shadow.maintenance.compaction import compact, rebucket
from gnomon.shadow.maintenance.vacuuming import vacuum
from gnomon.shadow.metadata.manifests import PageMapsEntry, SourceFileEntry
from gnomon.shadow.metadata.snapshot_view import open_view
from gnomon.shadow.metadata.source_files import source_root
from gnomon.shadow.storage import FileInfo, LocalStorage, ReadStats, storage_at
from gnomon.shadow.verify.snapshot import verify
from tests.opened import open_index
from tests.shadow.faults import FaultyStorage, Interrupted
from tests.shadow.make_index import Build, index_source, write_maps, write_source

ROWS, COLUMNS = 400, 5
PAGES = {"row_group_size": 150, "data_page_size": 100, "write_batch_size": 10, "use_dictionary": False}


def table(first: int) -> pa.Table:
    others = {f"c{i}": [f"{i}, of key {first + row}" for row in range(ROWS)] for i in range(COLUMNS)}
    return pa.table({"k": range(first, first + ROWS), **others})


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """Two days of 400 keys each, in 3 row groups of many pages without a page index."""
    write_source(tmp_path / "lake", {f"dt={day}/a.parquet": table(day * ROWS) for day in range(2)}, **PAGES)
    return tmp_path


@pytest.fixture
def mapped(lake: Path) -> Path:
    """The lake, with page maps in its index."""
    index_source(lake / "lake", lake / "index", ["k"], buckets=2, page_maps=True)
    return lake


def covered(lake: Path) -> dict[str, SourceFileEntry]:
    return open_view(storage_at(str(lake / "index"))).covered


def entry_of(lake: Path, day: int = 0) -> PageMapsEntry:
    entry = covered(lake)[f"dt={day}/a.parquet"].page_maps
    assert entry is not None
    return entry


def maps_files(lake: Path) -> list[Path]:
    return sorted((lake / "index/_shadow/page_maps").rglob("*.maps"))


def fetched(fetcher: Fetcher, wanted: Located, columns: list[str], stats: FetchReads) -> list[dict[str, Any]]:
    """The row of one hit."""
    rows: list[dict[str, Any]] = [{}]
    for part in fetcher.parts([wanted], columns, stats):
        fetcher.fill(rows, part, columns)
    return rows


def check_rows(index: OpenIndex, keys: range = range(0, 2 * ROWS, 37)) -> None:
    """The rows are right, and every file was opened by its recorded page maps."""
    stats = FetchStats()
    rows = [row for found in index.fetch_many(list(keys), stats=stats) for row in found]
    assert [(row["k"], row["c3"]) for row in rows] == [(key, f"3, of key {key}") for key in keys]
    assert stats.source.page_maps.reads == stats.source_files == 2


def located(lake: Path, key: int) -> Located:
    index = open_index(str(lake / "index"))
    return Located(index._found(Query([key], FetchStats(), None)).hits[0][0], (key,))


# -- the first fetch ---------------------------------------------------------------------------------------------------


def first_fetch(lake: Path, with_maps: bool) -> tuple[list[dict[str, Any]], list[str], list[str], FetchReads]:
    """Fetch a row of the last row group of a file that is not open yet. Returns the calls to source and index, too."""
    wanted, columns = located(lake, ROWS - 7), ["k", *(f"c{i}" for i in range(COLUMNS))]
    source, index = (FaultyStorage(LocalStorage(str(lake / name))) for name in ("lake", "index"))
    spec, stats = open_index(str(lake / "index")).spec, FetchReads()
    rows = fetched(Fetcher(source, spec, 1 << 20, index if with_maps else None), wanted, columns, stats)
    return rows, [call.name for call in source.calls], [call.name for call in index.calls], stats


def test_a_first_fetch_reads_footer_and_pages_and_no_page_headers(mapped: Path) -> None:
    rows, source, index, stats = first_fetch(mapped, with_maps=True)
    assert rows[0] == table(0).slice(ROWS - 7, 1).to_pylist()[0]
    assert source == ["open", "read_range", "read_ranges"]
    assert index == ["open", "read_range"]
    assert (stats.page_maps.reads, stats.page_maps.bytes) == (1, entry_of(mapped).length)
    assert stats.reads == 1 + COLUMNS + 1  # the footer, a page of each column

    walked, calls, none, cost = first_fetch(mapped, with_maps=False)
    assert walked == rows
    assert (none, cost.page_maps) == ([], ReadStats())
    assert calls == ["open", "read_range", "read_ranges", "read_ranges"]
    assert cost.reads == stats.reads + COLUMNS + 1  # the headers of each column
    assert cost.bytes > stats.bytes + stats.page_maps.bytes


def test_page_maps_are_read_while_the_footer_is(mapped: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    both = threading.Barrier(2, timeout=60)

    class Waiting(LocalStorage):
        """A storage whose first read waits for the first read of the other."""

        def open(self, path: str, stats: ReadStats | None = None, known: FileInfo | None = None) -> Any:
            file: Any = super().open(path, stats, known)
            read, waited = file.read_range, []

            def read_range(offset: int, length: int) -> bytes:
                if not waited:
                    waited.append(both.wait())
                return bytes(read(offset, length))

            file.read_range = read_range
            return file

    source, index = (Waiting(str(mapped / name)) for name in ("lake", "index"))
    wanted, spec = located(mapped, 3), open_index(str(mapped / "index")).spec
    assert fetched(Fetcher(source, spec, 1 << 20, index), wanted, ["c1"], FetchReads()) == [{"c1": "1, of key 3"}]


def test_page_maps_stay_with_the_open_file(mapped: Path) -> None:
    index = open_index(str(mapped / "index"))
    for reads in (1, 0):
        stats = FetchStats()
        index.fetch(7, stats=stats)
        assert stats.source.page_maps.reads == reads


def test_an_index_may_be_opened_without_them(mapped: Path) -> None:
    index, stats = open_index(str(mapped / "index"), page_maps=False), FetchStats()
    assert index.fetch(7, ["c0"], stats=stats) == [{"c0": "0, of key 7"}]
    assert stats.source.page_maps == ReadStats()


# -- damage ------------------------------------------------------------------------------------------------------------


def test_a_flipped_byte_is_named_with_place_and_cure_and_never_gives_a_row(mapped: Path) -> None:
    (path,) = maps_files(mapped)
    data, entry = path.read_bytes(), entry_of(mapped, day=1)
    assert 0 < entry.offset < entry.offset + entry.length == entry.size == len(data)
    place = str(mapped / "index")
    for at in [*range(entry.offset, entry.offset + 30), *range(entry.offset + 30, len(data), 40)]:
        path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        with pytest.raises(
            DamagedIndexFile, match="run gnomon build INDEX --page-maps, or open the index with page_maps=False"
        ) as e:
            open_index(place).fetch(ROWS + 1)
        assert (e.value.path, e.value.offset) == (str(path), entry.offset)
        assert len(open_index(place).fetch(1)) == 1  # another block of the file
    assert len(open_index(place, page_maps=False).fetch(ROWS + 1)) == 1


@pytest.mark.parametrize("change", [lambda data: data[:-1], lambda data: b"", lambda data: data + b"\0"])
def test_a_cut_or_grown_file_is_named(mapped: Path, change: Callable[[bytes], bytes]) -> None:
    (path,) = maps_files(mapped)
    data = path.read_bytes()
    path.write_bytes(change(data))
    for key in (1, ROWS + 1):
        with pytest.raises(
            DamagedIndexFile, match=f"expected {len(data)} bytes, found .*; run gnomon build INDEX --page-m"
        ) as e:
            open_index(str(mapped / "index")).fetch(key)
        assert e.value.path == str(path)
        assert len(open_index(str(mapped / "index"), page_maps=False).fetch(key)) == 1


def test_a_missing_file_is_named_with_the_cure(mapped: Path) -> None:
    (path,) = maps_files(mapped)
    path.unlink()
    with pytest.raises(
        IndexFileGone, match=f"{path}: missing, though .*; run gnomon build INDEX --page-maps, or open the index with"
    ):
        open_index(str(mapped / "index")).fetch(7)
    assert len(open_index(str(mapped / "index"), page_maps=False).fetch(7)) == 1


def exchanged(lake: Path) -> None:
    """Exchange the page maps of two source files in the index, with valid checksums."""
    one, other = covered(lake).values()
    assert one.page_maps is not None
    assert other.page_maps is not None
    record(storage_at(str(lake / "index")), {one: other.page_maps, other: one.page_maps})


def test_page_maps_of_another_file_are_refused(mapped: Path) -> None:
    exchanged(mapped)
    with pytest.raises(
        DamagedIndexFile, match=r"page maps of a file whose footer has digest .*; run gnomon build INDEX --page-maps"
    ) as e:
        open_index(str(mapped / "index")).fetch(7)
    assert e.value.path == str(maps_files(mapped)[0])


def test_of_a_source_file_that_changed_that_is_told_first(mapped: Path) -> None:
    maps_files(mapped)[0].unlink()
    write_source(mapped / "lake", {"dt=0/a.parquet": table(7000)})
    with pytest.raises(StalePointer, match="changed since it was indexed"):
        open_index(str(mapped / "index")).fetch(7)
    (mapped / "lake/dt=0/a.parquet").unlink()
    with pytest.raises(StalePointer, match="gone since it was indexed"):
        open_index(str(mapped / "index")).fetch(7)


def test_a_forged_source_file_is_stale_though_its_page_maps_do_not_fit(mapped: Path) -> None:
    path = mapped / "lake/dt=0/a.parquet"
    before = path.stat()
    data = path.read_bytes()
    at = data.rindex(b"parquet-cpp")  # in the footer
    path.write_bytes(data[:at] + b"X" + data[at + 1 :])
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(StalePointer, match="not the one that was indexed"):
        open_index(str(mapped / "index")).fetch(7)


def test_page_maps_that_were_vacuumed_lead_to_the_newest_snapshot(mapped: Path) -> None:
    index = open_index(str(mapped / "index"))
    index.lookup(7)  # now the needed parts of the index files are in memory
    (old,) = maps_files(mapped)
    index_source(mapped / "lake", mapped / "index", ["k"], full=True)
    old.unlink()
    assert index.fetch(7, ["c0"]) == [{"c0": "0, of key 7"}]
    assert index.view.snapshot.number == 2


# -- operations that keep them -----------------------------------------------------------------------------------------


def later_builds(lake: Path) -> None:
    """Builds after one day was rewritten with the same keys, and one was added."""
    write_source(lake / "lake", {"dt=1/a.parquet": table(ROWS), "dt=2/a.parquet": table(2 * ROWS)}, **PAGES)
    index_source(lake / "lake", lake / "index", ["k"])


def test_later_builds_go_on_recording(mapped: Path) -> None:
    later_builds(mapped)
    assert all(file.page_maps for file in covered(mapped).values())
    assert len(maps_files(mapped)) == 2
    assert open_index(str(mapped / "index")).spec.page_maps


@pytest.mark.parametrize("what", [compact, lambda index: rebucket(index, 5)], ids=["compact", "rebucket"])
def test_merged_segments_name_them_on(mapped: Path, what: Callable[[Any], object]) -> None:
    write_source(mapped / "lake", {"dt=0/b.parquet": table(2 * ROWS)}, **PAGES)
    index_source(mapped / "lake", mapped / "index", ["k"])
    before, index = covered(mapped), storage_at(str(mapped / "index"))
    what(index)
    assert len(open_view(index).segments) == 1
    assert covered(mapped) == before
    vacuum(index, grace_seconds=0, unnamed_seconds=0)
    check_rows(open_index(str(mapped / "index")))


def test_a_flat_index_merges_segments_with_them(lake: Path) -> None:
    index_source(lake / "lake", lake / "index", ["k"], flat=True, page_maps=True)
    later_builds(lake)
    index = storage_at(str(lake / "index"))
    assert len(open_view(index).segments) == 1
    assert len({file.page_maps and file.page_maps.path for file in covered(lake).values()}) == 2
    vacuum(index, grace_seconds=0, unnamed_seconds=0)
    check_rows(open_index(str(lake / "index")))


def test_a_copied_lake_is_adopted_with_them(mapped: Path) -> None:
    before = {path: file.page_maps for path, file in covered(mapped).items()}
    shutil.copytree(mapped / "lake", mapped / "copy", copy_function=shutil.copyfile)
    adopt(storage_at(str(mapped / "index")), source_root(str(mapped / "copy")))
    assert {path: file.page_maps for path, file in covered(mapped).items()} == before
    shutil.rmtree(mapped / "lake")
    check_rows(open_index(str(mapped / "index")))


def test_vacuum_removes_those_of_dead_files_and_no_others(mapped: Path) -> None:
    index = storage_at(str(mapped / "index"))
    later_builds(mapped)
    first, second = (mapped / "index" / entry_of(mapped, day).path for day in (0, 2))
    vacuum(index, grace_seconds=0, unnamed_seconds=0)
    assert maps_files(mapped) == sorted([first, second])  # the first day's are in one file with dead ones
    write_source(mapped / "lake", {"dt=0/a.parquet": table(0)}, **PAGES)
    index_source(mapped / "lake", mapped / "index", ["k"])
    third = (set(maps_files(mapped)) - {first, second}).pop()
    leftover = mapped / "index" / page_maps_path(new_segment_id(), 0)
    leftover.parent.mkdir()
    leftover.write_bytes(b"of a build that crashed")
    dry = vacuum(index, grace_seconds=0, unnamed_seconds=0, dry_run=True)
    assert dry.counts["page maps"] == 2
    assert vacuum(index, grace_seconds=0).counts["page maps"] == 1  # that of the crashed build is young
    assert maps_files(mapped) == sorted([second, third, leftover])
    assert not first.parent.exists()
    vacuum(index, grace_seconds=0, unnamed_seconds=0)
    assert maps_files(mapped) == sorted([second, third])
    check_rows(open_index(str(mapped / "index")))


def test_an_older_snapshot_that_is_kept_keeps_its_page_maps(mapped: Path) -> None:
    index = storage_at(str(mapped / "index"))
    index_source(mapped / "lake", mapped / "index", ["k"], full=True)
    vacuum(index, grace_seconds=0, unnamed_seconds=0, keep=2)
    check_rows(open_index(str(mapped / "index"), snapshot=1))
    vacuum(index, grace_seconds=0, unnamed_seconds=0)
    assert len(maps_files(mapped)) == 1
    check_rows(open_index(str(mapped / "index")))


# -- recorded afterwards -----------------------------------------------------------------------------------------------


def map_again(lake: Path, index: LocalStorage | None = None) -> list[str]:
    """Record missing or damaged page maps, as `gnomon build --page-maps` does. Returns the files."""
    index = index or LocalStorage(str(lake / "index"))
    files = without_maps(index, "parquet", open_view(index).covered.values())
    record(index, write_maps(source_root(str(lake / "lake")), index, new_segment_id(), files) if files else {})
    return sorted(file.path for file in files)


def test_an_index_without_page_maps_gets_them_in_one_commit_that_later_builds_follow(lake: Path) -> None:
    index_source(lake / "lake", lake / "index", ["k"], buckets=2)
    before = open_view(storage_at(str(lake / "index")))
    assert not before.spec.page_maps
    assert map_again(lake) == ["dt=0/a.parquet", "dt=1/a.parquet"]
    after = open_view(storage_at(str(lake / "index")))
    assert (after.snapshot.number, after.snapshot.operation) == (2, "page-maps")
    assert after.spec == replace(before.spec, page_maps=True)
    assert [one.index_files for one in after.segments] == [one.index_files for one in before.segments]
    check_rows(open_index(str(lake / "index")))
    assert verify(storage_at(str(lake / "index")), None).is_sound
    later_builds(lake)
    assert all(file.page_maps for file in covered(lake).values())


def test_nothing_is_committed_where_all_are_there(mapped: Path) -> None:
    assert map_again(mapped) == []
    assert open_view(storage_at(str(mapped / "index"))).snapshot.number == 1


def test_damaged_and_missing_ones_are_made_anew_and_no_others(mapped: Path) -> None:
    later_builds(mapped)
    kept = entry_of(mapped, 0)
    first, second = (mapped / "index" / entry_of(mapped, day).path for day in (0, 2))
    data = second.read_bytes()
    at = entry_of(mapped, 2).offset
    second.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
    assert map_again(mapped) == ["dt=2/a.parquet"]
    second.unlink()
    assert map_again(mapped) == ["dt=1/a.parquet"]
    assert entry_of(mapped, 0) == kept
    assert map_again(mapped) == []
    check_rows(open_index(str(mapped / "index")))
    vacuum(storage_at(str(mapped / "index")), grace_seconds=0, unnamed_seconds=0)
    check_rows(open_index(str(mapped / "index")))
    assert first.exists()


def test_those_of_another_file_are_made_anew(mapped: Path) -> None:
    exchanged(mapped)
    assert map_again(mapped) == ["dt=0/a.parquet", "dt=1/a.parquet"]
    check_rows(open_index(str(mapped / "index")))


def test_what_a_build_commits_meanwhile_is_left_as_it_is(lake: Path) -> None:
    index_source(lake / "lake", lake / "index", ["k"], buckets=2)
    index = Interrupted(str(lake / "index"), "_shadow/snapshots/", lambda: later_builds(lake))
    map_again(lake, index)
    assert index.interrupted
    view = open_view(index)
    assert view.snapshot.number == 3
    has = {path: file.page_maps is not None for path, file in view.covered.items()}
    assert has == {"dt=0/a.parquet": True, "dt=1/a.parquet": False, "dt=2/a.parquet": False}
    assert verify(index, None).is_sound
    assert map_again(lake) == ["dt=1/a.parquet", "dt=2/a.parquet"]
    check_rows(open_index(str(lake / "index")))


def test_a_build_that_ran_meanwhile_counts_and_leaves_the_setting(lake: Path) -> None:
    index_source(lake / "lake", lake / "index", ["k"], buckets=2)
    write_source(lake / "lake", {"dt=1/a.parquet": table(ROWS)}, **PAGES)
    build = Build(lake / "lake", lake / "index", ["k"])
    file = covered(lake)["dt=0/a.parquet"]
    record(build.storage, write_maps(build.root, build.storage, new_segment_id(), [file]))
    assert build.commit().number == 3
    view = open_view(build.storage)
    assert view.spec.page_maps
    assert [bool(view.covered[f"dt={day}/a.parquet"].page_maps) for day in range(2)] == [True, False]
    assert verify(build.storage, None).is_sound


def test_a_task_that_runs_again_replaces_what_an_earlier_run_left(tmp_path: Path) -> None:
    storage, path = storage_at(str(tmp_path)), page_maps_path(new_segment_id(), 0)
    storage.put_new(path, [b"other bytes"])
    one, other = write_page_maps(storage, path, [b"one", b"other"])
    assert storage.read(path) == b"oneother"
    assert one == PageMapsEntry(path, 8, 0, 3, zlib.crc32(b"one"))
    assert other == PageMapsEntry(path, 8, 3, 5, zlib.crc32(b"other"))


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    class Forgetful(LocalStorage):
        def read(self, path: str) -> bytes:
            return super().read(path)[:-1] + b"x"

    with pytest.raises(DamagedIndexFile, match=r"page maps: expected CRC"):
        write_page_maps(Forgetful(str(tmp_path)), page_maps_path(new_segment_id(), 0), [b"one", b"other"])


# -- verify ------------------------------------------------------------------------------------------------------------


def faults(lake: Path, sample: int | None = 4) -> list[tuple[str, int | None, str]]:
    return [(one.path, one.offset, one.what) for one in verify(storage_at(str(lake / "index")), sample).faults]


def test_verify_reads_all_of_them_and_names_each_fault(mapped: Path) -> None:
    report = verify(storage_at(str(mapped / "index")), None)
    assert (report.faults, report.page_maps) == ([], 2)
    (path,) = maps_files(mapped)
    data, entry = path.read_bytes(), entry_of(mapped, 1)
    for at in (entry.offset, entry.offset + 9, len(data) - 1):
        path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        ((where, offset, what),) = faults(mapped)
        assert (where, offset) == (str(path), entry.offset)
        assert what.startswith(f"page maps: expected CRC {entry.crc32:08x}, found ")
        assert "build" not in what
    path.unlink()
    assert faults(mapped) == [(str(path), None, "missing, though the snapshot names it")]


def test_verify_finds_those_of_another_file_under_right_checksums(mapped: Path) -> None:
    exchanged(mapped)
    found = faults(mapped)
    assert [(path, offset) for path, offset, _ in found] == [
        (str(maps_files(mapped)[0]), entry_of(mapped, day).offset) for day in range(2)
    ]
    assert all(what.startswith("page maps of a file whose footer has digest") for _, _, what in found)


def test_verify_all_compares_them_with_the_file(mapped: Path) -> None:
    index = storage_at(str(mapped / "index"))
    file = covered(mapped)["dt=0/a.parquet"]
    assert file.page_maps is not None
    block = prove_page_maps(index, "parquet", file.page_maps, file.digest)
    other = lies_of(block)
    (lying,) = write_page_maps(index, page_maps_path(new_segment_id(), 0), [other])
    record(index, {file: lying})
    assert faults(mapped) == []
    assert faults(mapped, None) == [(f"{index.root}/{lying.path}", 0, "not the page maps of dt=0/a.parquet")]


def lies_of(block: bytes) -> bytes:
    """The same page maps with another last number and a valid checksum."""
    numbers = bytearray(isal_zlib.decompress(block[24:]))
    numbers[-8] ^= 1
    body = block[8:24] + isal_zlib.compress(bytes(numbers), 3)
    return block[:4] + zlib.crc32(body).to_bytes(4, "little") + body


def test_verify_tells_a_source_file_that_changed_from_its_page_maps(mapped: Path) -> None:
    write_source(mapped / "lake", {"dt=0/a.parquet": table(0)}, row_group_size=90)
    found = faults(mapped, None)
    assert [what for _, _, what in found] == ["changed since it was indexed"]
