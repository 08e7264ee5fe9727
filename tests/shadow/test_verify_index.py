"""The verification of an index finds each planted fault and its place, and no fault in a sound index."""

import json
import os
import re
import zlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from gnomon.base.readers import MemoryFile
from gnomon.btree import BTreeReader
from gnomon.shadow import open_index
from gnomon.shadow.commit.publishing import new_segment_id
from gnomon.shadow.commit.relocate import adopt
from gnomon.shadow.errors import IndexNotFound, SnapshotNotFound
from gnomon.shadow.lookup.index_files import write_index_file
from gnomon.shadow.maintenance.compaction import compact, rebucket
from gnomon.shadow.maintenance.vacuuming import vacuum
from gnomon.shadow.metadata import Folder, json_files
from gnomon.shadow.metadata.manifests import IndexFileEntry, Segment, SegmentRef, manifest_path, write_segment
from gnomon.shadow.metadata.snapshot_view import View, open_view
from gnomon.shadow.metadata.snapshots import commit, newest_snapshot, read_snapshot, snapshot_path
from gnomon.shadow.metadata.source_files import source_root
from gnomon.shadow.storage import FileInfo, LocalStorage, OpenFile, ReadStats, Storage, storage_at
from gnomon.shadow.verify.index_files import EqualKeys
from gnomon.shadow.verify.report import Fault, Report, fault_of
from gnomon.shadow.verify.snapshot import verify
from tests.shadow.make_index import Build, index_source, write_source
from tests.shadow.random_lake import RandomLake

Plant = Callable[["Lake"], Path]


class Lake:
    """An index of two segments over two partitions; a file of the first was rewritten."""

    def __init__(self, root: Path) -> None:
        self.root, self.source, self.index = root, root / "lake", root / "index"
        table = pa.table({"k": [None, *range(299)], "n": range(300)})
        write_source(self.source, {f"p={p}/{i}.parquet": table.slice(50 * i) for p in "ab" for i in (1, 2)})
        index_source(self.source, self.index, ["k"], buckets=3, include=["n"])
        write_source(self.source, {"p=b/2.parquet": table.slice(250), "p=a/0.parquet": table.slice(299)})
        index_source(self.source, self.index, ["k"])
        self.storage: Storage = storage_at(str(self.index))

    @property
    def view(self) -> View:
        return open_view(self.storage)

    def verify(self, sample: int | None = 4) -> Report:
        report = verify(self.storage, sample)
        json.dumps(report.to_json())
        return report


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


class VacuumedMeanwhile(LocalStorage):
    """Compacts the index and vacuums its old snapshots when the n-th file is opened."""

    def __init__(self, root: str, at: int) -> None:
        super().__init__(root)
        self.left = at

    def open(self, path: str, stats: ReadStats | None = None, known: FileInfo | None = None) -> OpenFile:
        self.left -= 1
        if self.left == 0:
            compact(storage_at(self.root))
            vacuum(storage_at(self.root), grace_seconds=0)
        return super().open(path, stats, known)


def flip(path: Path, at: int) -> Path:
    data = bytearray(path.read_bytes())
    data[at] ^= 0x10
    status = path.stat()
    path.write_bytes(data)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    return path


# -- no fault ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", range(1, 10, 2))
def test_what_is_vacuumed_meanwhile_is_no_fault(lake: Lake, at: int) -> None:
    report = verify(VacuumedMeanwhile(str(lake.index), at))
    assert (report.faults, report.snapshot) == ([], 3)


def test_a_snapshot_that_is_vacuumed_while_it_is_verified_is_said_to_be_gone(lake: Lake) -> None:
    with pytest.raises(SnapshotNotFound, match="snapshot 2 was vacuumed while it was verified"):
        verify(VacuumedMeanwhile(str(lake.index), 3), snapshot=2)


@pytest.mark.parametrize("sample", [None, 0, 1, 4, 10_000])
def test_a_sound_index_has_no_fault(lake: Lake, sample: int | None) -> None:
    report = lake.verify(sample)
    assert report.faults == []
    assert (report.is_sound, report.snapshot, report.not_covered) == (True, 2, [])
    files = [file for segment in lake.view.segments for file in segment.by_bucket.values()]
    assert (report.index_files, report.source_files) == (len(files), 5)
    assert (report.entries, report.bytes) == (sum(f.entries for f in files), sum(f.size for f in files))
    assert report.rows_compared >= {None: lake.view.snapshot.rows, 0: 0, 10_000: lake.view.snapshot.rows}.get(sample, 8)


@pytest.mark.parametrize("seed", range(6))
def test_random_histories_have_no_fault(tmp_path: Path, seed: int) -> None:
    lake = RandomLake(tmp_path, seed, flat=seed % 3 == 2, in_ranges=seed % 2 == 1)
    storage = storage_at(str(lake.index))
    for _ in range(5):
        lake.step()
        if lake.random.random() < 0.5:
            compact(storage)
        if lake.random.random() < 0.5:
            vacuum(storage, grace_seconds=0, unnamed_seconds=0)
        report = verify(storage, None)
        assert (report.faults, report.not_covered) == ([], [])
        assert report.rows_compared >= newest_rows(storage)


def newest_rows(storage: Storage) -> int:
    snapshot = newest_snapshot(storage)
    return snapshot.rows if snapshot else 0


def test_an_index_of_one_file_or_without_rows_has_no_fault(tmp_path: Path) -> None:
    write_source(
        tmp_path, {"one.parquet": pa.table({"k": range(50)}), "none.parquet": pa.table({"k": pa.array([], "i8")})}
    )
    for name in ("one", "none"):
        index_source(tmp_path / f"{name}.parquet", tmp_path / name, ["k"])
        assert verify(storage_at(str(tmp_path / name)), None).faults == []


def odd_lake(root: Path, flat: bool) -> Path:
    """Composite keys, nulls and NaN among them; null and escaped partitions; empty files; a column whose type changed,
    and one that only some files have; the file of the newest type is gone."""
    keys = [None, 1.0, 1.0, float("nan"), float("nan"), 0.0, -0.0]
    table = pa.table({"k": [*keys, *keys], "b": [*"xyxyxyx", *"xxxxxxx"], "n": pa.array(range(14), pa.int32())})
    wider = table.set_column(2, "n", table["n"].cast(pa.int64())).append_column("more", table["b"])
    parts = ("p=a/q=1%2F2", "p=__HIVE_DEFAULT_PARTITION__/q=x%20y", "p=b/q=__HIVE_DEFAULT_PARTITION__")
    source, index = root / "lake", root / "index"
    write_source(source, {f"{part}/{i}.parquet": table for part in parts for i in "201"})
    index_source(source, index, ["k", "p", "b"], buckets=2, flat=flat)
    write_source(source, {f"{parts[0]}/w.parquet": wider, f"{parts[0]}/e.parquet": table.slice(0, 0)})
    write_source(source, {f"{parts[1]}/plain/0.parquet": table.drop_columns(["b"]), f"{parts[2]}/0.parquet": wider})
    index_source(source, index, ["k", "p", "b"])
    for path in (f"{parts[0]}/w.parquet", f"{parts[2]}/0.parquet"):
        (source / path).unlink()
    index_source(source, index, ["k", "p", "b"])
    return index


@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.parametrize("sample", [4, None])
def test_an_odd_lake_has_no_fault_whatever_is_done_with_its_index(
    tmp_path: Path, flat: bool, sample: int | None
) -> None:
    storage = storage_at(str(odd_lake(tmp_path, flat)))
    assert verify(storage, sample).faults == []
    compact(storage)
    assert verify(storage, sample).faults == []
    rebucket(storage, 3)
    assert verify(storage, sample).faults == []
    (tmp_path / "lake").rename(tmp_path / "elsewhere")
    adopt(storage, source_root(str(tmp_path / "elsewhere")))
    report = verify(storage, sample)
    assert (report.faults, report.not_covered) == ([], [])


@pytest.mark.parametrize("sample", [4, None])
def test_a_column_of_several_types_is_no_fault(tmp_path: Path, sample: int | None) -> None:
    kinds = {"a": pa.int32(), "b": pa.int64(), "c": pa.list_(pa.int8()), "d": pa.timestamp("us", "Europe/Berlin")}
    for name, kind in kinds.items():
        table = pa.table({"k": pa.array([1], pa.int64()), "n": pa.array([None], kind)})
        write_source(tmp_path / "lake", {f"{name}.parquet": table})
        index_source(tmp_path / "lake", tmp_path / "index", ["k"])
        assert verify(storage_at(str(tmp_path / "index")), sample).faults == []
    for name in reversed(kinds):
        (tmp_path / "lake" / f"{name}.parquet").rename(tmp_path / "lake" / f"_{name}")
        if name != "a":
            index_source(tmp_path / "lake", tmp_path / "index", ["k"])
            assert verify(storage_at(str(tmp_path / "index")), sample).faults == []


def test_what_is_not_covered_yet_is_said_and_is_no_fault(lake: Lake) -> None:
    write_source(lake.source, {"p=c/new.parquet": pa.table({"k": [1]})})
    report = lake.verify()
    assert (report.faults, report.not_covered) == ([], ["p=c/new.parquet"])


def test_an_older_snapshot_is_verified_on_demand(lake: Lake) -> None:
    report = verify(lake.storage, snapshot=1)
    assert report.snapshot == 1
    assert [(Path(fault.path).name, fault.what) for fault in report.faults] == [
        ("2.parquet", "changed since it was indexed")
    ]
    with pytest.raises(SnapshotNotFound):
        verify(lake.storage, snapshot=9)
    with pytest.raises(IndexNotFound):
        verify(storage_at(str(lake.source)))


# -- the plain table ---------------------------------------------------------------------------------------------------


def test_it_says_what_a_plain_table_shows_beyond_the_snapshot(lake: Lake) -> None:
    plain = lake.verify().plain_table
    assert plain is not None
    assert (plain.equals_snapshot, plain.extra_files, plain.dead_entries) == (False, (), 200)
    compact(lake.storage)
    lake.storage.put_new("p=a/notes.txt", [b"mine"])
    plain = lake.verify().plain_table
    assert plain is not None
    extra = [info.path for info in plain.extra_files]
    assert plain.dead_entries == 0
    assert "p=a/notes.txt" in extra
    assert {path for path in extra if path != "p=a/notes.txt"} < {
        file.path for segment in open_view(lake.storage, 2).segments for file in segment.index_files
    }
    vacuum(lake.storage, grace_seconds=0)
    lake.storage.delete("p=a/notes.txt")
    plain = lake.verify().plain_table
    assert plain is not None
    assert plain.equals_snapshot


# -- planted faults ----------------------------------------------------------------------------------------------------


def index_file(lake: Lake, number: int = 0) -> Path:
    return lake.index / sorted(file.path for file in lake.view.segments[0].index_files)[number]


def filter_file(lake: Lake) -> Path:
    found = lake.view.segments[0].index_files[0].filter
    assert found is not None
    return lake.index / found.path


def metadata_file(lake: Lake, name: str) -> Path:
    paths = {"snapshot": snapshot_path(2), "list": manifest_path(lake.view.segments[0].id)}
    return lake.index / paths.get(name, "_shadow/spec.json")


def removed(path: Path) -> Path:
    path.unlink()
    return path


def swap(lake: Lake) -> Path:
    one, other = index_file(lake, 0), index_file(lake, 1)
    data = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(data)
    return one


def cut(path: Path) -> Path:
    path.write_bytes(path.read_bytes()[:-5])
    return path


PLANTED: Mapping[str, tuple[Plant, str]] = {
    "spec byte": (lambda lake: flip(metadata_file(lake, "spec"), 30), "not the JSON|checksum"),
    "snapshot byte": (lambda lake: flip(metadata_file(lake, "snapshot"), 30), "not the JSON|checksum"),
    "list byte": (lambda lake: flip(metadata_file(lake, "list"), 900), "expected .* bytes with CRC"),
    "list missing": (lambda lake: removed(metadata_file(lake, "list")), "missing"),
    "spec missing": (lambda lake: removed(metadata_file(lake, "spec")), "missing, though there are snapshots"),
    "index file missing": (lambda lake: removed(index_file(lake)), "missing, though the snapshot names it"),
    "index file cut": (lambda lake: cut(index_file(lake)), ""),
    "index files swapped": (swap, "not of bucket"),
    "filter byte": (lambda lake: flip(filter_file(lake), 200), "CRC"),
    "filter missing": (lambda lake: removed(filter_file(lake)), "missing"),
    "filter cut": (lambda lake: cut(filter_file(lake)), "expected .* bytes, found"),
    "source removed": (lambda lake: removed(lake.source / "p=a/1.parquet"), "gone since it was indexed"),
    "source cut": (lambda lake: cut(lake.source / "p=a/1.parquet"), "changed since it was indexed"),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_fault_is_found_at_its_place(lake: Lake, name: str) -> None:
    plant, says = PLANTED[name]
    path = plant(lake)
    report = lake.verify()
    assert not report.is_sound
    found = [fault for fault in report.faults if fault.path == str(path)]
    assert found, report.faults
    assert any(re.search(says, fault.what) for fault in found), found


def test_each_byte_of_an_index_file_counts(lake: Lake) -> None:
    path = index_file(lake)
    for at in range(0, path.stat().st_size, 97):
        flip(path, at)
        report = lake.verify()
        assert {fault.path for fault in report.faults} == {str(path)}, at
        assert all(fault.offset is not None for fault in report.faults)
        flip(path, at)
    assert lake.verify().is_sound


def test_all_faults_are_listed_not_only_the_first(lake: Lake) -> None:
    planted = {
        flip(index_file(lake, 0), 300),
        removed(index_file(lake, 2)),
        flip(filter_file(lake), 80),
        removed(lake.source / "p=b/1.parquet"),
        flip(metadata_file(lake, "snapshot").with_name("00000000000000000001.json"), 5),
    }
    found = {Path(fault.path) for fault in lake.verify().faults}
    assert len(found & planted) == 4  # the newest snapshot is verified, not an older one


def rewritten(lake: Lake, table: pa.Table) -> Path:
    """Replace a source file by other rows, with its new size, time and digest in the manifest, as if it was indexed."""
    path = lake.source / "p=a/1.parquet"
    write_source(lake.source, {"p=a/1.parquet": table})
    other = Build(lake.source, lake.root / "other", ["k"])
    forged = {file.path: file for file in other.covered}
    segment = lake.view.segments[0]
    relist(lake, replace(segment, source_files=tuple(forged.get(f.path, f) for f in segment.source_files)))
    return path


def relist(
    lake: Lake,
    segment: Segment,
    partitions: Mapping[str, int] | None = None,
    dead: tuple[int, ...] | None = None,
    **others: Any,
) -> str:
    """Commit a snapshot with another manifest for the first segment. Returns the path of the manifest."""
    view = lake.view
    ref = write_segment(lake.storage, replace(segment, id=new_segment_id()))
    refs = (replace(ref, dead=view.snapshot.segments[0].dead if dead is None else dead), *view.snapshot.segments[1:])
    changed = replace(view.snapshot, number=view.snapshot.number + 1, segments=refs, **others)
    commit(lake.storage, replace(changed, partitions=dict(partitions)) if partitions else changed)
    return f"{lake.index}/{manifest_path(ref.id)}"


def test_rows_that_do_not_hold_the_key_they_were_indexed_under_are_found(lake: Lake) -> None:
    table = pa.table({"k": [*range(49, 149), -1, *range(150, 299)], "n": range(50, 300)})
    path = rewritten(lake, table)
    report = lake.verify(None)
    assert Fault(str(path), 100, "1 rows do not hold what they were indexed under") in report.faults
    assert {fault.path for fault in report.faults} == {str(path)}
    everything = lake.verify(10_000).faults
    assert [(fault.path, fault.offset) for fault in everything] == [(str(path), 100)]


def test_a_changed_byte_of_a_source_file_whose_size_and_time_stay_is_found(lake: Lake) -> None:
    table = pa.table({"k": range(1000, 1200), "n": range(5000, 5200)})
    write_source(lake.source, {"p=a/plain.parquet": table}, compression="none")
    index_source(lake.source, lake.index, ["k"])
    path = lake.source / "p=a/plain.parquet"
    data = path.read_bytes()
    key, included = (data.index(number.to_bytes(8, "little")) for number in (1111, 5111))
    for at in (key, included, len(data) - 20):  # the last one is in the footer
        flip(path, at)
        assert {fault.path for fault in lake.verify(None).faults} == {str(path)}, at
        flip(path, at)
    flip(path, len(data) - 20)
    assert {fault.path for fault in lake.verify().faults} == {str(path)}


def test_included_columns_are_compared_with_the_rows(lake: Lake) -> None:
    path = rewritten(lake, pa.table({"k": range(49, 299), "n": [*range(50, 299), -1]}))
    assert lake.verify(None).faults == [Fault(str(path), 249, "1 rows do not hold what they were indexed under")]


def test_rows_without_an_entry_and_entries_without_a_row_are_found(lake: Lake) -> None:
    path = rewritten(lake, pa.table({"k": range(49, 349), "n": range(50, 350)}))
    faults = lake.verify(None).faults
    assert Fault(str(path), None, "has 300 rows, its index files hold 250 entries of it") in faults
    assert Fault(str(path), 250, "50 rows have no entry") in faults
    path = rewritten(lake, pa.table({"k": range(49, 149), "n": range(50, 150)}))
    assert Fault(str(path), 100, "150 entries point to no row") in lake.verify(None).faults


def republished(lake: Lake, batches: list[pa.Table], bucket: int, partition: str = "p=a") -> Path:
    """Replace an index file of the first segment, with a valid manifest and checksums."""
    segment_id = new_segment_id()
    entry = write_index_file(lake.storage, lake.view.spec, segment_id, partition, bucket, batches)
    segment = lake.view.segments[0]
    others = [file for file in segment.index_files if (file.partition, file.bucket) != (partition, bucket)]
    relist(lake, replace(segment, index_files=(*others, entry)))
    return lake.index / entry.path


def entries_of(lake: Lake, bucket: int, partition: str = "p=a") -> pa.Table:
    file = lake.view.segments[0].by_bucket[partition, bucket]
    tree = BTreeReader(MemoryFile(lake.storage.read(file.path), file.path))
    return pa.Table.from_batches(tree.scan_batches())


def test_an_entry_in_the_wrong_bucket_is_found(lake: Lake) -> None:
    path = republished(lake, [entries_of(lake, 2)], 1)
    faults = lake.verify().faults
    count = len(entries_of(lake, 1))
    assert Fault(str(path), 0, f"{count} of its entries are not of bucket 1") in faults


def test_an_entry_of_a_file_that_its_segment_does_not_cover_is_found(lake: Lake) -> None:
    table = entries_of(lake, 1)
    names = [f"p=a/x{i % 2}.parquet" if i < 5 else name for i, name in enumerate(table["data_filename"].to_pylist())]
    path = republished(lake, [table.set_column(2, "data_filename", pa.array(names))], 1)
    faults = lake.verify().faults
    for stranger in ("p=a/x0.parquet", "p=a/x1.parquet"):
        assert Fault(str(path), 0, f"an entry names {stranger}, which its segment does not cover") in faults
    assert any("its index files hold" in fault.what for fault in faults)


def test_an_entry_of_another_partition_is_found(lake: Lake) -> None:
    path = republished(lake, [entries_of(lake, 1, "p=b")], 1)
    faults = [fault for fault in lake.verify().faults if fault.path == str(path)]
    assert "an entry names p=b/1.parquet, which its segment does not cover" in {fault.what for fault in faults}


def test_an_entry_that_is_missing_and_another_that_is_there_twice_are_found(lake: Lake) -> None:
    table = entries_of(lake, 1)
    republished(lake, [table.slice(1, 1), table.slice(1)], 1)
    name, offset = table["data_filename"][0].as_py(), table["data_offset"][0].as_py()
    twice, row = table["data_filename"][1].as_py(), table["data_offset"][1].as_py()
    faults = lake.verify(None).faults
    assert Fault(f"{lake.source}/{name}", offset, "1 rows have no entry") in faults
    assert Fault(f"{lake.source}/{twice}", row, "1 rows have several entries") in faults


def test_an_entry_of_a_flat_index_that_names_another_partition_than_its_file_is_found(tmp_path: Path) -> None:
    table = pa.table({"k": [1, 2, 3]})
    write_source(tmp_path / "lake", {f"p={p}/a.parquet": table for p in ("a", "b%2F", "__HIVE_DEFAULT_PARTITION__")})
    index_source(tmp_path / "lake", tmp_path / "index", ["k"], buckets=1, flat=True)
    storage = storage_at(str(tmp_path / "index"))
    assert verify(storage, None).faults == []
    view = open_view(storage)
    (segment,) = view.segments
    batches = BTreeReader(MemoryFile(storage.read(segment.index_files[0].path), "")).scan_batches()
    entries = pa.Table.from_batches(batches)
    at = entries.schema.get_field_index("p")
    names = ["b" if name == "b/" else "a" if name is None else name for name in entries.column(at).to_pylist()]
    new = new_segment_id()
    file = write_index_file(storage, view.spec, new, "", 0, [entries.set_column(at, "p", pa.array(names))])
    ref = write_segment(storage, replace(segment, id=new, index_files=(file,)))
    commit(storage, replace(view.snapshot, number=2, segments=(ref,)))
    what = "6 of its entries name another partition than that of their source file"
    assert verify(storage).faults == [Fault(f"{storage.root}/{file.path}", 0, what)]


def test_wrong_counts_are_found(lake: Lake) -> None:
    segment = lake.view.segments[0]
    first, *others = segment.index_files
    relist(lake, replace(segment, index_files=(replace(first, entries=first.entries + 1), *others)))
    faults = lake.verify().faults
    assert faults == [
        Fault(f"{lake.index}/{first.path}", 0, f"expected {first.entries + 1} entries, found {first.entries}")
    ]


def test_rows_of_a_snapshot_that_are_not_those_of_its_segments_are_found(lake: Lake) -> None:
    partitions = {**lake.view.snapshot.partitions, "p=a": 7, "p=q": 1}
    rows = lake.view.snapshot.partitions["p=a"]
    relist(lake, lake.view.segments[0], partitions)
    where = f"{lake.index}/{snapshot_path(3)}"
    assert lake.verify().faults == [
        Fault(where, 0, f"says 7 rows of p=a, its segments cover {rows}"),
        Fault(where, 0, "says 1 rows of p=q, its segments cover None"),
    ]


def test_a_filter_of_another_file_is_found(lake: Lake) -> None:
    segment = lake.view.segments[0]
    one, two, *others = segment.index_files
    relist(lake, replace(segment, index_files=(replace(one, filter=two.filter), two, *others)))
    (fault,) = lake.verify().faults
    assert two.filter is not None
    assert fault.path == f"{lake.index}/{two.filter.path}"
    assert f"keys of {one.path}, its index file" in fault.what


def test_a_file_covered_twice_or_a_bucket_in_two_files_is_found(lake: Lake) -> None:
    view = lake.view
    again = replace(view.segments[0], id=new_segment_id())
    twice = replace(view.segments[0].index_files[0], path=view.segments[0].index_files[0].path)
    ref = write_segment(lake.storage, replace(again, index_files=(*again.index_files, twice)))
    refs = (*view.snapshot.segments, replace(ref, dead=view.snapshot.segments[0].dead))
    commit(lake.storage, replace(view.snapshot, number=3, segments=refs))
    whats = [fault.what for fault in lake.verify().faults]
    assert f"covers p=a/1.parquet, which segment {view.segments[0].id} covers, too" in whats
    assert any(what.startswith("has 2 index files of bucket") for what in whats)


def test_a_spec_of_another_index_is_found(lake: Lake) -> None:
    index_source(lake.source, lake.root / "other", ["n"])
    path = lake.index / "_shadow/spec.json"
    path.write_bytes((lake.root / "other/_shadow/spec.json").read_bytes())
    (fault,) = lake.verify().faults
    assert (fault.path, fault.offset) == (str(path), 0)
    assert fault.what == "not the spec that snapshot 2 was built with"


# -- planted with all checksums right ----------------------------------------------------------------------------------

both = pytest.mark.parametrize("sample", [4, None])


def newest(lake: Lake) -> str:
    return f"{lake.index}/{snapshot_path(lake.view.snapshot.number)}"


@both
def test_partitions_exchanged_in_a_list_are_found(lake: Lake, sample: int | None) -> None:
    other = {"p=a": "p=b", "p=b": "p=a"}
    segment, alone = lake.view.segments
    index_files = tuple(replace(file, partition=other[file.partition]) for file in segment.index_files)
    source_files = tuple(replace(file, partition=other[file.partition]) for file in segment.source_files)
    exchanged = replace(segment, index_files=index_files, source_files=source_files)
    rows = {p: sum(f.rows for s in (exchanged, alone) for f in s.live.values() if f.partition == p) for p in other}
    where = relist(lake, exchanged, rows)
    index = open_index(str(lake.index))
    assert {pointer.data_filename for pointer in index.lookup(60, where={"p": "a"})} == {"p=b/1.parquet"}  # it matters
    faults = lake.verify(sample).faults
    assert {fault.path for fault in faults} == {where}
    assert {"lists 2 source files of p=a as of p=b, the first is p=a/1.parquet"} <= {fault.what for fault in faults}


@both
def test_a_partition_that_a_source_does_not_have_is_found(tmp_path: Path, sample: int | None) -> None:
    write_source(tmp_path / "lake", {"one.parquet": pa.table({"k": [1]})})
    index_source(tmp_path / "lake", tmp_path / "index", ["k"], flat=True)
    storage = storage_at(str(tmp_path / "index"))
    view = open_view(storage)
    listed = tuple(replace(file, partition="p=a") for file in view.segments[0].source_files)
    ref = write_segment(storage, replace(view.segments[0], id=new_segment_id(), source_files=listed))
    commit(storage, replace(view.snapshot, number=2, segments=(ref,), partitions={"p=a": 1}))
    what = "lists 1 source files of no partition as of p=a, the first is one.parquet"
    assert verify(storage, sample).faults == [Fault(f"{storage.root}/{manifest_path(ref.id)}", 0, what)]


@both
def test_the_size_of_a_pointer_is_a_weight_of_one_or_more(lake: Lake, sample: int | None) -> None:
    table = entries_of(lake, 1)
    at = table.schema.get_field_index("data_size")
    sizes = table["data_size"].to_pylist()
    republished(lake, [table.set_column(at, "data_size", pa.array([size + 1000 for size in sizes], pa.int32()))], 1)
    assert lake.verify(sample).is_sound
    wrong = pa.array([0, -1, *sizes[2:]], pa.int32())
    path = republished(lake, [table.set_column(at, "data_size", wrong)], 1)
    assert lake.verify(sample).faults == [Fault(str(path), 0, "2 of its entries have a data_size below 1")]


@both
@pytest.mark.parametrize("planted", [(3, 99), (-1, 3), (3, 3), (3, 0), (0, 3, 2)])
def test_dead_files_that_a_segment_does_not_list_are_found(
    lake: Lake, sample: int | None, planted: tuple[int, ...]
) -> None:
    (segment, other), rows = lake.view.segments, dict(lake.view.snapshot.partitions)
    assert segment.dead == {3}
    for file in (replace(segment, dead=frozenset(planted)).live.keys() ^ segment.live.keys()) - other.live.keys():
        rows[segment.live[file].partition] -= segment.live[file].rows
    relist(lake, segment, rows, planted)
    (fault,) = lake.verify(sample).faults
    ref = lake.view.snapshot.segments[0]
    what = f"the dead source files {list(planted)} of segment {ref.id} are not of the 4 that it lists, ascending and"
    assert fault == Fault(newest(lake), 0, f"{what} each once")


def misnamed(file: IndexFileEntry) -> dict[str, IndexFileEntry]:
    return {
        "where it covers no source file": replace(file, path=file.path.replace("p=a", "p=zz"), partition="p=zz"),
        f"names {file.path} for bucket 7 of 3 in p=a": replace(file, bucket=7),
        f"names {file.path} for bucket -1 of 3 in p=a": replace(file, bucket=-1),
    }


@both
@pytest.mark.parametrize("number", range(3))
def test_an_index_file_at_a_place_that_its_segment_does_not_have_is_found(
    lake: Lake, sample: int | None, number: int
) -> None:
    segment = lake.view.segments[0]
    says, planted = list(misnamed(segment.by_bucket["p=a", 1]).items())[number]
    where = relist(lake, replace(segment, index_files=(*segment.index_files, planted)))
    assert [says in fault.what for fault in lake.verify(sample).faults if fault.path == where] == [True]


@both
@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ({"k": "int64"}, r"does not know the column n \(int64\) that p=./..parquet has"),
        ({"k": "string", "n": "int64"}, "says that the column k is string, p=./..parquet has it as int64"),
        ({"k": "int64", "n": "timestamp[us, tz=UTC]"}, r"says that the column n is timestamp\[us, tz=UTC\], .+"),
    ],
)
def test_columns_that_are_not_those_of_the_source_are_found(
    lake: Lake, sample: int | None, columns: dict[str, str], says: str
) -> None:
    relist(lake, lake.view.segments[0], columns=columns)
    (fault,) = lake.verify(sample).faults
    assert (fault.path, fault.offset) == (newest(lake), 0)
    assert re.fullmatch(says, fault.what)


def test_columns_are_exactly_those_of_the_source_as_long_as_no_file_is_gone(tmp_path: Path) -> None:
    write_source(tmp_path / "lake", {"a.parquet": pa.table({"k": [1], "other": ["x"], "deep": [[1]]})})
    index_source(tmp_path / "lake", tmp_path / "index", ["k"])
    storage = storage_at(str(tmp_path / "index"))
    first = open_view(storage).snapshot
    storage.delete(snapshot_path(1))
    deep = "list<item: int64>"  # its name differs between versions of Arrow
    commit(storage, replace(first, columns={"k": "int64", "other": "double", "deep": deep, "never": "int8"}))
    assert [fault.what for fault in verify(storage, None).faults] == [
        "says that the column other is double, a.parquet has it as string",
        "knows a column never that no source file has",
    ]


@pytest.mark.parametrize("text", ["", "garbage", "2026-01-01T00:00:00", "2026-13-01T00:00:00Z"])
def test_a_commit_at_no_time_is_found(lake: Lake, text: str) -> None:
    relist(lake, lake.view.segments[0], committed_at=text)
    assert lake.verify().faults == [Fault(newest(lake), 0, f"committed at {text!r}, expected a time")]


@both
def test_equal_keys_in_another_order_are_found(lake: Lake, sample: int | None) -> None:
    table = entries_of(lake, 1)
    keys = table["k"].to_pylist()
    first = next(i for i in range(len(keys)) if keys[i] == keys[i + 1])
    path = republished(lake, [table.take([*range(first), first + 1, first, *range(first + 2, len(keys))])], 1)
    what = "1 of its entries do not lie behind the one of the same key before them"
    assert lake.verify(sample).faults == [Fault(str(path), 0, what)]


def test_the_order_of_equal_keys_is_by_file_then_offset_then_sub_offset() -> None:
    def disordered(keys: list[list[Any]], *places: tuple[int, int, int]) -> list[int]:
        """The result with one batch, and with batches of one entry."""
        columns = [pa.array(column) for column in keys]
        numbers = [np.array(column) for column in zip(*places, strict=True)]
        alone, in_pieces = EqualKeys(), EqualKeys()
        pieces = [
            in_pieces.disordered([column.slice(i, n) for column in columns], [column[i : i + n] for column in numbers])
            for i in range(len(places))
            for n in (1, 0)
        ]
        return [alone.disordered(columns, numbers), sum(pieces)]

    assert disordered([[1, 1, 1, 1]], (0, 5, 0), (0, 5, 1), (0, 6, 0), (1, 0, 0)) == [0, 0]
    assert disordered([[1, 1, 1]], (1, 0, 0), (0, 7, 0), (0, 7, 0)) == [2, 2]
    assert disordered([[1, 1, 1]], (0, 6, 0), (0, 5, 1), (0, 5, 0)) == [2, 2]
    assert disordered([[1, 2, 3]], (1, 0, 0), (0, 5, 0), (0, 4, 0)) == [0, 0]
    assert disordered([[None, None, 1]], (0, 6, 0), (0, 5, 0), (0, 0, 0)) == [1, 1]
    assert disordered([[float("nan")] * 2], (0, 6, 0), (0, 5, 0)) == [1, 1]
    assert disordered([[None, 5], [5, None]], (0, 6, 0), (0, 5, 0)) == [0, 0]
    assert disordered([[1, 1]], (0, 6, 0), (-1, 5, 0)) == [0, 0]  # an unknown file


@both
@pytest.mark.parametrize("change", [-1, 1])
def test_an_entry_missing_or_doubled_with_the_rows_adjusted_is_found(
    lake: Lake, sample: int | None, change: int
) -> None:
    table = entries_of(lake, 1)
    path = f"{lake.source}/{table['data_filename'][5].as_py()}"
    rows = [*range(5), *([5] * (1 + change)), *range(6, len(table))]
    republished(lake, [table.take(rows)], 1)
    segment, partitions = lake.view.segments[0], dict(lake.view.snapshot.partitions)
    adjusted = tuple(
        replace(file, rows=file.rows + change) if path.endswith(file.path) else file for file in segment.source_files
    )
    relist(lake, replace(segment, source_files=adjusted), partitions | {"p=a": partitions["p=a"] + change})
    (there,) = {file.rows for file in segment.source_files if path.endswith(file.path)}
    assert (
        Fault(path, None, f"has {there} rows, its segment lists it with {there + change}") in lake.verify(sample).faults
    )


@both
def test_faults_of_the_snapshot_and_its_lists_do_not_hide_others(lake: Lake, sample: int | None) -> None:
    planted = {
        str(flip(index_file(lake, 0), 300)),
        str(removed(lake.source / "p=b/1.parquet")),
        str(flip(metadata_file(lake, "spec"), 30)),
    }
    snapshot = read_snapshot(lake.storage, 2)
    garbage = b"Obj\x01 of no list"
    lake.storage.put_new(manifest_path("garbage"), [garbage])
    ref = SegmentRef("garbage", len(garbage), zlib.crc32(garbage))
    planted.add(f"{lake.index}/{manifest_path('garbage')}")
    first, *others = snapshot.segments
    refs = (replace(first, dead=(*first.dead, 50)), *others, ref)
    commit(lake.storage, replace(snapshot, number=3, segments=refs))
    planted.add(f"{lake.index}/{snapshot_path(3)}")
    report = lake.verify(sample)
    assert {fault.path for fault in report.faults} == planted
    assert report.not_covered == []


def test_a_source_at_a_place_that_cannot_be_does_not_hide_other_faults(lake: Lake) -> None:
    spec = replace(lake.view.spec, source=Folder("nowhere://lake"))
    relist(lake, lake.view.segments[0], spec=spec)
    path = flip(index_file(lake), 300)
    faults = lake.verify(None).faults
    assert {fault.path for fault in faults} == {"nowhere://lake", str(path)}


@pytest.mark.parametrize(
    "wrong", [{"partitions": ["p=a"]}, {"partitions": {"p=a": "1"}}, {"columns": "k"}, {"segments": [{"id": "x"}]}]
)
def test_a_snapshot_of_another_form_is_one_fault(lake: Lake, wrong: dict[str, Any]) -> None:
    content = {**lake.view.snapshot.to_json(), "snapshot": 3, **wrong}
    lake.storage.put_new(snapshot_path(3), [json_files.encode(content)])
    (fault,) = lake.verify().faults
    assert (fault.path, fault.offset) == (f"{lake.index}/{snapshot_path(3)}", 0)
    assert fault.what.startswith("not a snapshot")


def test_a_source_that_is_gone_is_one_fault(lake: Lake) -> None:
    lake.source.rename(lake.root / "elsewhere")
    (fault,) = lake.verify(None).faults
    assert fault.path == str(lake.source)


def test_errors_without_a_place_are_faults_of_the_file_at_hand() -> None:
    assert fault_of(OSError(5, "Input/output error"), "/x/y") == Fault("/x/y", None, "[Errno 5] Input/output error")
    assert str(Fault("/x/y", 7, "odd")) == "/x/y at 7: odd"
    assert str(Fault("/x/y", None, "odd")) == "/x/y: odd"
