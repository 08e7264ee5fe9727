"""An entry is live only while its own segment still covers its source file: the same rule for every reader."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from gnomon.btree import DamagedIndexFile
from gnomon.btree.blocks import LookupStats
from gnomon.shadow.lookup import batch, point
from gnomon.shadow.lookup.batch import Matcher, MatchStats
from gnomon.shadow.lookup.entries import entry_columns, scan_entries
from gnomon.shadow.lookup.plan import Lookup, ParsedKey
from gnomon.shadow.lookup.point import DEFAULTS, LookupOptions, Search
from gnomon.shadow.maintenance import compaction as tiered_merge
from gnomon.shadow.metadata.liveness import Liveness
from gnomon.shadow.metadata.manifests import Segment, SegmentFile, SourceFileEntry
from gnomon.shadow.metadata.snapshot_view import View, open_view
from gnomon.shadow.storage import Storage, storage_at
from gnomon.shadow.verify.index_files import FolderProof
from gnomon.shadow.verify.report import Report, Samples
from gnomon.shadow.write.merge import merged
from tests.shadow.make_index import index_source, write_source

A, B, C, D = "p=1/a.parquet", "p=1/b.parquet", "p=1/c.parquet", "p=2/d.parquet"
KEYS = range(40)
Entries = set[tuple[int, str]]
LIVE: Entries = {
    *((key, A) for key in range(10)),
    *((key, B) for key in range(15, 25)),  # the new rows of the rewritten file, and none of its old ones
    *((key, D) for key in range(30, 40)),
}


def keys(first: int) -> pa.Table:
    return pa.table({"k": pa.array(range(first, first + 10), pa.int64())})


@pytest.fixture(params=["flat", "by folder"])
def index(tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Storage:
    """Two segments: in the first B is superseded and C dead."""
    monkeypatch.setattr(tiered_merge, "FACTOR", 0)  # the segments stay apart
    is_flat = request.param == "flat"
    write_source(tmp_path / "lake", {A: keys(0), B: keys(10), C: keys(20), D: keys(30)})
    index_source(tmp_path / "lake", tmp_path / "index", ["k"], 1, flat=is_flat)
    write_source(tmp_path / "lake", {B: keys(15)})
    (tmp_path / "lake" / C).unlink()
    index_source(tmp_path / "lake", tmp_path / "index", ["k"], 1, flat=is_flat)
    return storage_at(str(tmp_path / "index"))


# -- the readers: each returns the (key, source file) pairs of all keys -----------------------------------------------


def one_by_one(storage: Storage, view: View, options: LookupOptions = DEFAULTS) -> Entries:
    lookup = Lookup(storage, 1 << 20)
    hits = Search(lookup, view, [ParsedKey((key,)) for key in KEYS], {}, options).find(LookupStats())
    return {(key, hit.pointer.data_filename) for key, of_key in zip(KEYS, hits, strict=True) for hit in of_key}


def one_by_one_counted_in_arrow(storage: Storage, view: View) -> Entries:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(point, "MOST_OBJECTS", 0)
        return one_by_one(storage, view, LookupOptions(most_hits=5))


def many_at_once(storage: Storage, view: View, costs: tuple[float, float]) -> Entries:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batch, "costs_us", lambda *_: costs)
        matcher = Matcher(Lookup(storage, 1 << 20), view, MatchStats())
        pieces = list(matcher.pieces([pa.array(KEYS, pa.int64())], {}, False))
    return {
        (row, name)
        for piece in pieces
        for row, name in zip(piece.rows.to_pylist(), piece.entries.column("data_filename").to_pylist(), strict=True)
    }


def many_at_once_key_by_key(storage: Storage, view: View) -> Entries:
    return many_at_once(storage, view, (0.0, 1.0))


def many_at_once_leaf_by_leaf(storage: Storage, view: View) -> Entries:
    return many_at_once(storage, view, (1.0, 0.0))


def whether_held(storage: Storage, view: View) -> Entries:
    """This reader returns no files: the pairs have the file of the live entry, or none for a wrong key."""
    held = Matcher(Lookup(storage, 1 << 20), view, MatchStats()).holds([pa.array(KEYS, pa.int64())], {})
    files = dict(LIVE)
    return {(key, files.get(key, "")) for key, is_held in zip(KEYS, held, strict=True) if is_held}


def scanned(storage: Storage, view: View) -> Entries:
    columns = entry_columns(view.spec)
    batches = [
        found
        for segment in view.segments
        for file in segment.index_files
        for found in scan_entries(
            storage, view.spec, SegmentFile(segment, file), columns, view.partitions, LookupStats()
        )
    ]
    return {(row["k"], row["data_filename"]) for found in batches for row in found.to_pylist()}


def merged_again(storage: Storage, view: View) -> Entries:
    parts = [SegmentFile(segment, file) for segment in view.segments for file in segment.index_files]
    tables = [table for one in merged(storage, view.spec, parts, view.spec) for table in one.batches]
    return {(row["k"], row["data_filename"]) for table in tables for row in table.to_pylist()}


READERS = [
    one_by_one,
    one_by_one_counted_in_arrow,
    many_at_once_key_by_key,
    many_at_once_leaf_by_leaf,
    whether_held,
    scanned,
    merged_again,
]
Reader = Callable[[Storage, View], Entries]


@pytest.mark.parametrize("reader", READERS)
def test_every_reader_gives_the_live_entries_and_no_other(index: Storage, reader: Reader) -> None:
    view = open_view(index)
    assert [[segment.source_files[i].path for i in sorted(segment.dead)] for segment in view.segments] == [[B, C], []]
    assert reader(index, view) == LIVE


def without_b(segment: Segment) -> Segment:
    return replace(
        segment,
        source_files=tuple(file for file in segment.source_files if file.path != B),
        dead=frozenset(i - 1 for i in segment.dead if segment.source_files[i].path != B),
    )


def proved(storage: Storage, view: View) -> None:
    """The verifier has its own rule."""
    segment = view.segments[0]
    report = Report(storage.root)
    FolderProof(storage, view.spec, segment, view.spec.folder_of("p=1"), report, Samples((), {}, {})).run(0)
    for fault in report.faults:
        raise DamagedIndexFile(fault.what, fault.path, fault.offset or 0)


@pytest.mark.parametrize("reader", [*READERS, proved])
def test_every_reader_refuses_an_entry_of_a_file_that_its_segment_never_covered(index: Storage, reader: Reader) -> None:
    view = open_view(index)
    first, second = view.segments
    foreign = View(view.snapshot, (without_b(first), second))
    with pytest.raises(DamagedIndexFile) as caught:
        reader(index, foreign)
    assert caught.value.what == f"an entry names {B}, which its segment does not cover"
    assert caught.value.path == f"{index.root}/{first.index_files[0].path}"


def test_an_entry_of_a_file_of_another_folder_is_refused_where_each_folder_has_its_index_files(index: Storage) -> None:
    view = open_view(index)
    segment = view.segments[0]
    of_folder = {file.partition: Liveness(view.spec, segment, file, index.root) for file in segment.index_files}
    last = of_folder[view.spec.folder_of("p=2")]
    covered = last.source_file(D)
    assert isinstance(covered, SourceFileEntry)
    assert covered.path == D
    if view.spec.flat:
        assert last.source_file(B) is None
        return
    for elsewhere in (A, B):  # live and dead
        with pytest.raises(DamagedIndexFile, match="which its segment does not cover"):
            last.source_file(elsewhere)


def test_a_column_of_names_is_answered_as_each_name_is(index: Storage) -> None:
    view = open_view(index)
    segment = view.segments[0]
    liveness = Liveness(view.spec, segment, segment.index_files[0], index.root)
    names = [A, B, A, C, C, A]
    found = liveness.source_files(pa.array(names), None)
    each = [liveness.source_file(name) for name in names]
    assert [found.files[code] for code in found.codes] == each
    assert found.is_live.tolist() == [file is not None for file in each] == [True, False, True, False, False, True]
    assert found.numbers(lambda file: file.rows).tolist() == [10, -1, 10, -1, -1, 10]


def test_a_batch_without_entries_names_no_files(index: Storage) -> None:
    view = open_view(index)
    segment = view.segments[0]
    found = Liveness(view.spec, segment, segment.index_files[0], index.root).source_files(
        pa.array([], pa.string()), None
    )
    assert (len(found.files), len(found.codes), len(found.is_live), len(found.numbers(id))) == (0, 0, 0, 0)
