"""The number of rounds of reads of an answer on a remote store, on which its time depends."""

import io
import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import fastavro
import pyarrow as pa
import pytest

from gnomon.base.errors import Action
from gnomon.btree import BTreeWriter
from gnomon.btree.blocks import LookupStats
from gnomon.shadow import FetchStats, Trace
from gnomon.shadow.current_snapshot import ReadSettings, known_view
from gnomon.shadow.errors import DamagedIndexFile, IndexNotFound, SnapshotNotFound
from gnomon.shadow.fetch import Query
from gnomon.shadow.fetch.fetcher import FEW_SOURCES, Fetcher
from gnomon.shadow.index_for_jobs import OpenIndex
from gnomon.shadow.lookup import MatchStats, RangeQuery, entry_columns, parse_key
from gnomon.shadow.lookup.point import FEW_FILES
from gnomon.shadow.maintenance import rebucket
from gnomon.shadow.metadata import SegmentFile
from gnomon.shadow.metadata.snapshot_view import UNCHANGING, open_view
from gnomon.shadow.metadata.source_files import SourceRoot
from gnomon.shadow.storage import DiskCache, Storage, through
from tests.shadow.far_store import FarStorage, Rounds
from tests.shadow.make_index import index_source, write_source

ROWS = 2000


def text(day: int, key: int) -> str:
    return f"{day} {key} " * 10


def write_avro(lake: FarStorage, tables: Mapping[str, pa.Table]) -> None:
    fields = [{"name": "k", "type": "long"}, {"name": "text", "type": "string"}]
    for path, table in tables.items():
        out = io.BytesIO()
        fastavro.writer(out, {"type": "record", "name": "row", "fields": fields}, table.to_pylist())
        lake.put_new(path, [out.getvalue()])


class Far:
    """A lake of some days and its index on a remote store; the index is newly opened, with empty caches."""

    def __init__(
        self,
        days: int,
        page_maps: bool = False,
        cache_bytes: int = 1 << 26,
        files: int = 1,
        page_index: bool = False,
        format: str = "parquet",
        buckets: int = 1,
        page_bytes: int = 0,
        disk: DiskCache | None = None,
    ) -> None:
        """`files`: files per day. Their rows are the same except for the keys, which continue from file to file."""
        self.lake, self.folder = FarStorage("/far/lake"), FarStorage("/far/index")
        tables = {
            f"dt={day}/{file}.{format}": pa.table({"k": keys, "text": [text(day, key) for key in keys]})
            for day in range(days)
            for file in range(files)
            for keys in [range(ROWS * file, ROWS * (file + 1))]
        }
        if format == "avro":
            write_avro(self.lake, tables)
        else:
            pages = {"data_page_size": 4096, "write_batch_size": 64, "write_page_index": page_index}
            write_source(self.lake, tables, use_dictionary=False, **pages)
        maps = {"page_maps": page_maps, "format": format}
        index_source(SourceRoot(self.lake), self.folder, ["k"], buckets=buckets, **maps)
        self.cache_bytes, self.page_bytes, self.disk = cache_bytes, page_bytes, disk
        self.index = self.opened()

    def opened(self) -> OpenIndex:
        """The index, newly opened as `open_index` does."""
        storage = through(self.disk, cast(Storage, self.folder), UNCHANGING)
        view, check = known_view(storage) or (open_view(storage), None)
        index = OpenIndex(storage, view, False, ReadSettings(self.cache_bytes, disk=self.disk), check)
        current = index._current
        maps = (storage, self.page_bytes, Action.BUILD_AGAIN, current._learned)
        fetcher = Fetcher(self.lake, view.spec, self.cache_bytes, *maps)
        source = SourceRoot(self.lake)  # this storage, not the one at its path
        current._state = replace(current._state, source=source, fetcher=fetcher, digest_checks=None)
        return index

    def fetch(self, keys: list[int], rounds: Rounds, where: dict[str, object] | None = None) -> list[list[str]]:
        """The texts of the rows of keys. The reads must come in exactly these rounds."""
        self.lake.rounds = self.folder.rounds = rounds
        try:
            found = self.index.fetch_many(keys, ["text"], where, FetchStats(trace=Trace()))
        finally:
            self.lake.rounds = self.folder.rounds = None
        assert rounds.are_over
        return [[row["text"] for row in rows] for rows in found]


def endings(rounds: Rounds) -> list[set[str]]:
    """The endings of the files that each round read."""
    return [{name.rpartition(".")[2] for name in names} for names in rounds.names]


def test_a_cold_fetch_takes_two_rounds_and_a_warm_one_a_single_one() -> None:
    far = Far(1, page_maps=True)
    cold = Rounds(3, 1)  # index file, footer and page maps; pages
    assert far.fetch([7], cold) == [[text(0, 7)]]
    assert endings(cold) == [{"avro", "parquet", "maps"}, {"parquet"}]
    assert far.fetch([8], Rounds(1)) == [[text(0, 8)]]
    assert far.fetch([7, 1500], Rounds(1)) == [[text(0, 7)], [text(0, 1500)]]
    assert far.fetch([ROWS], Rounds()) == [[]]


def test_a_small_index_file_is_read_beside_its_filter() -> None:
    far = Far(2, page_maps=True)
    cold = Rounds(8, 2)
    assert far.fetch([7], cold) == [[text(0, 7), text(1, 7)]]
    assert endings(cold) == [{"avro", "filter", "parquet", "maps"}, {"parquet"}]


def test_without_recorded_page_maps_the_page_index_takes_no_round_of_its_own() -> None:
    far = Far(1, page_index=True)
    cold = Rounds(2, 1)
    assert far.fetch([7], cold) == [[text(0, 7)]]
    assert endings(cold) == [{"avro", "parquet"}, {"parquet"}]
    assert far.fetch([8], Rounds(1)) == [[text(0, 8)]]


def test_where_there_is_neither_the_headers_of_the_pages_take_one_round_once() -> None:
    far = Far(1)
    assert far.fetch([7], Rounds(2, 1, 1)) == [[text(0, 7)]]
    assert far.fetch([8], Rounds(1)) == [[text(0, 8)]]


def test_a_cold_fetch_from_avro_takes_two_rounds_too() -> None:
    far = Far(1, format="avro")
    cold = Rounds(2, 1)
    assert far.fetch([7], cold) == [[text(0, 7)]]
    assert far.fetch([1500], Rounds(1)) == [[text(0, 1500)]]


@pytest.mark.parametrize("page_maps", [False, True])
def test_of_many_source_files_only_those_are_opened_that_hold_the_key_a_round_later(page_maps: bool) -> None:
    far = Far(1, files=FEW_SOURCES + 1, page_maps=page_maps, page_index=not page_maps)
    cold = Rounds(1, 1 + page_maps, 1)
    assert far.fetch([ROWS + 7], cold) == [[text(0, ROWS + 7)]]
    assert [{name for name in names if name.endswith("parquet")} for names in cold.names] == [
        set(),
        {"dt=0/1.parquet"},
        {"dt=0/1.parquet"},
    ]


def test_an_absent_key_takes_one_round_and_leaves_the_source_open_for_the_next() -> None:
    far = Far(1, files=FEW_SOURCES, page_index=True)
    assert far.fetch([-1], Rounds(1 + FEW_SOURCES)) == [[]]
    assert far.fetch([-2], Rounds(1)) == [[]]  # the filter, since the last search of the file found nothing
    assert far.fetch([7], Rounds(1)) == [[text(0, 7)]]


def test_a_batch_takes_no_more_rounds_than_a_key() -> None:
    far = Far(1, files=3, buckets=4, page_index=True)
    keys = list(range(0, 3 * ROWS, ROWS * 3 // 100))
    assert far.fetch(keys, Rounds(4 + 4 + 3, 3)) == [[text(0, key)] for key in keys]  # 4 filters, 4 index files
    assert far.fetch([key + 1 for key in keys], Rounds(3)) == [[text(0, key + 1)] for key in keys]


def test_what_the_index_answers_alone_opens_no_source() -> None:
    far = Far(1)
    far.lake.rounds = far.folder.rounds = rounds = Rounds(1)
    assert far.index.contains(7)
    assert len(far.index.lookup(7)) == 1
    assert [row["k"] for row in far.index.get(7, ["k"])] == [7]
    assert rounds.are_over


def test_many_partitions_take_no_more_rounds_than_one_and_the_filter() -> None:
    days = FEW_FILES + 1
    far = Far(days, page_maps=True)
    assert far.fetch([7], Rounds(days, days, 2 * days, days)) == [[text(day, 7) for day in range(days)]]
    assert far.fetch([9], Rounds(days)) == [[text(day, 9) for day in range(days)]]
    assert far.fetch([9], Rounds(1), {"dt": 3}) == [[text(3, 9)]]


def test_where_not_all_index_files_fit_into_memory_a_warm_fetch_takes_a_round_more() -> None:
    far = Far(1, page_maps=True, cache_bytes=1 << 12)
    assert far.fetch([7], Rounds(3, 1)) == [[text(0, 7)]]
    assert far.fetch([7], Rounds(1, 1)) == [[text(0, 7)]]


def test_kept_pages_are_not_read_again() -> None:
    far = Far(1, page_maps=True, page_bytes=1 << 20)
    assert far.fetch([7], Rounds(3, 1)) == [[text(0, 7)]]
    assert far.fetch([8], Rounds()) == [[text(0, 8)]]
    assert far.fetch([8, 1500], Rounds(1)) == [[text(0, 8)], [text(0, 1500)]]


def test_an_index_file_that_is_read_whole_is_proven_whole() -> None:
    far = Far(1)
    (path,) = [info.path for info in far.folder.list() if info.path.endswith(".btree.avro")]
    data = far.folder.read(path)
    for at in (0, len(data) // 2, len(data) - 1):
        far.folder.delete(path)
        far.folder.put_new(path, [data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]])
        with pytest.raises(DamagedIndexFile, match="expected CRC"):
            far.opened().contains(7)


def test_steps_that_are_made_side_by_side_are_all_told_with_what_they_cost() -> None:
    days = FEW_FILES + 1
    far, stats = Far(days, page_maps=True), FetchStats(trace=Trace())
    assert len(far.index.fetch(7, stats=stats)) == days
    assert stats.trace is not None
    steps = stats.trace.to_json()
    assert [step["begin_us"] for step in steps] == sorted(step["begin_us"] for step in steps)
    kinds = [step.step for step in stats.trace.steps]
    assert {kind: kinds.count(kind) for kind in kinds} == {
        "key": 1,
        "filter": days,
        "index_file": days,
        "node": kinds.count("node"),
        "source_file": days,
        "page_map": 2 * days,
        "pages": days,
        "decode": days,
        "key_check": days,
    }
    assert costs(steps) == costs_of(stats)


@pytest.mark.parametrize("key", [7, -1])
def test_what_was_opened_ahead_is_told_with_what_it_cost(key: int) -> None:
    far, stats = Far(1, files=2, page_maps=True), FetchStats(trace=Trace())
    far.lake.rounds = far.folder.rounds = Rounds(5, *[1] * (key >= 0))
    assert len(far.index.fetch(key, stats=stats)) == (key >= 0)
    assert stats.trace is not None
    steps = stats.trace.to_json()
    assert [(step["file"], step["reads"]) for step in steps if step["step"] == "source_file"] == (
        [("dt=0/0.parquet", 0)] if key >= 0 else []
    )
    assert {(step["file"], step["reads"]) for step in steps if step["step"] == "source_ahead"} == {
        ("dt=0/0.parquet", 1),
        ("dt=0/1.parquet", 1),
    }
    assert costs(steps) == costs_of(stats)
    assert stats.source_files == (key >= 0)


def costs(steps: list[dict[str, object]]) -> list[int]:
    """Reads and bytes of all steps."""
    return [sum(int(str(step[name])) for step in steps) for name in ("reads", "bytes")]


def costs_of(stats: FetchStats) -> list[int]:
    """Reads and bytes that were counted."""
    counted = (stats.index, stats.source, stats.source.page_maps)
    return [sum(one.reads for one in counted), sum(one.bytes for one in counted)]


SHAPES: dict[str, dict[str, Any]] = {
    "page maps": {"page_maps": True},
    "page index": {"page_index": True},
    "neither": {},
    "avro": {"format": "avro"},
    "many files": {"files": FEW_SOURCES + 1, "page_index": True},
    "index files that do not fit into memory": {"page_maps": True, "cache_bytes": 1 << 12},
}
CONFIRMED = 3  # reads: the listing of snapshots, the number after the newest, the spec


@pytest.mark.parametrize("shape", SHAPES)
def test_a_cold_process_with_a_warm_folder_reads_the_page_of_a_row_alone(shape: str, tmp_path: Path) -> None:
    far = Far(1, **SHAPES[shape], disk=DiskCache(str(tmp_path / "cache")))
    with far.index as index:
        assert len(index.fetch(7)) == len(index.fetch(-1)) + 1 == 1
    far.index = far.opened()
    assert far.index.view.snapshot.number == 1  # proven
    assert far.fetch([7], Rounds(1)) == [[text(0, 7)]]
    far.index = far.opened()
    far.folder.rounds = far.lake.rounds = Rounds(CONFIRMED)
    assert far.index.view.snapshot.number == 1
    assert far.index.contains(7)
    assert not far.index.contains(-1)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_snapshot_is_proven_to_be_the_newest_beside_the_read_of_the_page(shape: str, tmp_path: Path) -> None:
    far = Far(1, **SHAPES[shape], disk=DiskCache(str(tmp_path / "cache")))
    with far.index as index:
        index.fetch(7)
    rounds = Rounds(CONFIRMED + 1)
    far.lake.rounds = far.folder.rounds = rounds
    far.index = far.opened()
    assert far.fetch([7], rounds) == [[text(0, 7)]]
    assert {name.rpartition("/")[2] for name in rounds.names[0]} >= {"", "spec.json", f"{2:020d}.json"}


def test_large_index_files_and_many_partitions_take_one_round_with_a_warm_folder(
    tmp_path: Path, large_files: None
) -> None:
    days = FEW_FILES + 1
    far = Far(days, page_maps=True, disk=DiskCache(str(tmp_path / "cache")))
    far.index.fetch(7)
    rounds = Rounds(CONFIRMED + days)
    far.lake.rounds = far.folder.rounds = rounds
    far.index = far.opened()
    assert far.fetch([7], rounds) == [[text(day, 7) for day in range(days)]]


def test_an_older_snapshot_in_the_folder_is_never_answered_from(tmp_path: Path) -> None:
    far = Far(1, page_maps=True, disk=DiskCache(str(tmp_path / "cache")))
    far.index.fetch(7)
    write_source(far.lake, {"dt=1/0.parquet": pa.table({"k": [7, 9999], "text": ["new", "newer"]})})
    index_source(SourceRoot(far.lake), far.folder, ["k"])
    before = far.opened()
    assert before._current._state.view.snapshot.number == 1
    assert before.contains(9999)
    assert far.opened().view.snapshot.number == 2
    index_source(SourceRoot(far.lake), far.folder, ["k"], full=True)
    index = far.opened()
    assert [pointer.data_filename for pointer in index.lookup(9999)] == ["dt=1/0.parquet"]
    assert index.view.snapshot.number == 3


def test_an_index_that_was_made_anew_at_its_place_is_not_taken_for_the_one_before(tmp_path: Path) -> None:
    far = Far(1, disk=DiskCache(str(tmp_path / "cache")))
    far.index.contains(7)
    for path in [info.path for info in far.folder.list(hidden=True)]:
        far.folder.delete(path)
    gone = far.opened()
    for _ in range(2):
        with pytest.raises(IndexNotFound):
            gone.contains(7)
    write_source(far.lake, {"dt=1/0.parquet": pa.table({"k": [9999], "text": ["new"]})})
    index_source(SourceRoot(far.lake), far.folder, ["k"])
    for index in (gone, far.opened()):
        assert index.contains(9999)
        assert index.view.snapshot.number == 1


def test_a_pinned_snapshot_that_a_vacuum_removed_is_told_though_the_folder_has_it(tmp_path: Path) -> None:
    far = Far(1, disk=DiskCache(str(tmp_path / "cache")))
    pinned = far.opened().here()
    index_source(SourceRoot(far.lake), far.folder, ["k"], full=True)
    (path,) = [file.path for segment in pinned.view.segments for file in segment.index_files]
    for name in (path, "_shadow/snapshots/00000000000000000001.json"):
        far.folder.delete(name)
    for ask in (lambda: pinned.contains(7), lambda: list(pinned.range(7))):
        with pytest.raises(SnapshotNotFound):
            ask()


def test_a_snapshot_that_the_listing_lacks_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    far = Far(1, disk=DiskCache(str(tmp_path / "cache")))
    far.index.contains(7)
    listed = list(far.folder.list("_shadow/snapshots"))
    write_source(far.lake, {"dt=1/0.parquet": pa.table({"k": [9999], "text": ["new"]})})
    index_source(SourceRoot(far.lake), far.folder, ["k"])
    monkeypatch.setattr(far.folder, "list", lambda *_, **__: iter(listed))
    assert far.opened().contains(9999)


class FarRanges(Far):
    """A lake of 2,000 keys, whose index has buckets in an order. OpenIndex files with small nodes have leaves."""

    def __init__(self, buckets: int, order: str) -> None:
        super().__init__(1, page_maps=True, buckets=buckets)
        rebucket(cast(Storage, self.folder), buckets, order=order)
        self.index = self.opened()

    def page(self, low: int, rows: int, rounds: Rounds, reverse: bool = False) -> None:
        """Ask for the first rows from a key on, or up to it. The reads must come in exactly these rounds."""
        keys = list(range(low, low + rows))
        asked = RangeQuery(None, low + rows, reverse=True) if reverse else RangeQuery(low)
        self.asked(rounds, lambda: self._page(replace(asked, limit=rows), keys[::-1] if reverse else keys))

    def _page(self, asked: RangeQuery, keys: list[int]) -> None:
        page = self.index.first_page(asked, Query([], FetchStats(), columns=["k", "text"]))
        assert [row["k"] for row in page.rows] == keys
        assert [row["text"] for row in page.rows] == [text(0, key) for key in keys]

    def asked(self, rounds: Rounds, ask: Callable[[], object]) -> None:
        self.lake.rounds = self.folder.rounds = rounds
        try:
            ask()
        finally:
            self.lake.rounds = self.folder.rounds = None
        assert rounds.are_over


@pytest.fixture
def large_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Index files are not read whole, as those of more than 4 MB. Their trees have leaves, of about 10 entries."""
    monkeypatch.setattr("gnomon.shadow.lookup.index_files.WHOLE_BYTES", 0)
    monkeypatch.setattr("gnomon.shadow.lookup.index_files.BTreeWriter", partial(BTreeWriter, node_bytes=256))


def every_key() -> pa.RecordBatch:
    return pa.record_batch({"k": pa.array(range(ROWS), pa.int64())})


ANSWERS: dict[str, Callable[[OpenIndex], Any]] = {
    "a row": lambda index: index.fetch(1234),
    "rows": lambda index: index.fetch_many(range(0, ROWS, 3)),
    "each row": lambda index: [getattr(one, "rows", one) for one in index.answer_each(range(ROWS))],
    "a table": lambda index: index.table_many(range(ROWS)),
    "absent keys": lambda index: [index.contains(key) for key in range(-50, 0)],
    "find": lambda index: index.find([parse_key(key, index.spec) for key in range(ROWS)], LookupStats()),
    "match": lambda index: [one.entries.to_pylist() for one in index.match_pieces(every_key(), {}, MatchStats())],
    "holds": lambda index: index.holds(every_key(), {}, MatchStats()).to_pylist(),
    "files": lambda index: index.source_files_of([[key] for key in range(ROWS)], MatchStats()),
    "a range": lambda index: [page.rows for page in index.range_pages(RangeQuery())],
    "entries": lambda index: [table.to_pylist() for table in index.entry_tables(RangeQuery())],
    "statistics": lambda index: index.statistics(),
    "a scan": lambda index: [
        [batch.to_pylist() for batch in index.scan(file, entry_columns(index.spec), ["dt=0"], LookupStats())]
        for file in (SegmentFile(one, file) for one in index.view.segments for file in one.by_bucket.values())
    ],
}


@pytest.mark.parametrize("name", ANSWERS)
def test_bytes_that_the_store_once_gave_damaged_fail_no_later_answer(
    name: str, tmp_path: Path, large_files: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder keeps parts of large index files before their checksums are compared."""
    monkeypatch.setattr("gnomon.btree.blocks.FIRST_READ_BYTES", 600)
    monkeypatch.setattr("gnomon.shadow.storage.waiting.PAUSE", 0)
    monkeypatch.setattr("gnomon.shadow.index.PAGE_ROWS", 100)
    far = Far(1, page_maps=True, buckets=3)
    expected, sound = ANSWERS[name](far.index), dict(far.folder._files)
    dice, failed = random.Random(name), 0
    for number, share in enumerate((0.02, 0.1, 0.3, 0.6, 0.9)):
        far.disk = DiskCache(str(tmp_path / f"cache{number}"))
        for path, (data, time) in sound.items():
            if path.endswith((".btree.avro", ".filter", ".maps")):
                at = min(int(len(data) * share) + dice.randrange(16), len(data) - 1)
                wrong = bytes([data[at] ^ 1 << dice.randrange(8)])
                far.folder._files[path] = (data[:at] + wrong + data[at + 1 :], time)
        try:
            failed += "DamagedIndexFile" in str(ANSWERS[name](far.opened()))
        except DamagedIndexFile:
            failed += 1
        far.folder._files = dict(sound)
        assert ANSWERS[name](far.opened()) == expected
    assert failed


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("buckets", [1, 20, 40])
def test_a_page_of_hashed_buckets_reads_all_of_them_in_one_round(buckets: int, reverse: bool) -> None:
    far = FarRanges(buckets, "hash")
    far.page(500, 20, Rounds(buckets + 2, 1), reverse)  # beside the footer and the page maps; pages
    far.page(1500, 20, Rounds(1), reverse)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("buckets", [1, 20])
@pytest.mark.usefixtures("large_files")
def test_a_page_of_large_hashed_buckets_takes_a_round_more_for_all_leaves(buckets: int, reverse: bool) -> None:
    far = FarRanges(buckets, "hash")
    far.page(500, 20, Rounds(buckets + 2, buckets, 1), reverse)
    far.page(1500, 20, Rounds(buckets, 1), reverse)
    far.page(1000, 20, Rounds(buckets, 1), reverse)


@pytest.mark.parametrize("reverse", [False, True])
def test_a_page_of_ranges_reads_its_own_bucket_alone(reverse: bool) -> None:
    far = FarRanges(20, "range")
    far.page(510, 20, Rounds(1 + 2, 1), reverse)
    far.page(570, 20, Rounds(1), reverse)
    far.page(1510, 20, Rounds(1, 1), reverse)  # another bucket
    far.page(590, 20, Rounds(1, 1), reverse)  # and one that is in memory


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.usefixtures("large_files")
def test_a_page_of_large_ranges_takes_a_round_for_its_leaves(reverse: bool) -> None:
    far = FarRanges(20, "range")
    far.page(510, 20, Rounds(1 + 2, 1, 1), reverse)
    far.page(570, 20, Rounds(1, 1), reverse)


@pytest.mark.parametrize("reverse", [False, True])
def test_ranges_that_are_smaller_than_a_page_are_read_in_one_round(reverse: bool) -> None:
    far = FarRanges(200, "range")
    far.page(505 if reverse else 500, 55, Rounds(6 + 2, 1), reverse)


@pytest.mark.usefixtures("large_files")
@pytest.mark.parametrize("reverse", [False, True])
def test_a_long_range_reads_its_leaves_in_long_pieces(reverse: bool) -> None:
    far = FarRanges(1, "hash")
    query = RangeQuery(0, 1900, reverse=reverse)
    far.asked(Rounds(1, 1, 1), lambda: list(far.index.entry_tables(query)))  # head; leaves of about 1,000 entries; more


def test_a_count_reads_the_index_files_at_its_ends_alone() -> None:
    far = FarRanges(20, "range")
    counted = far.index.count
    far.asked(Rounds(), lambda: counted() == ROWS or pytest.fail("count"))
    far.asked(Rounds(2), lambda: counted(250, 1750) == 1500 or pytest.fail("count"))
    far.asked(Rounds(1), lambda: counted(1050) == 950 or pytest.fail("count"))
    far.asked(Rounds(), lambda: FarRanges(3, "hash").index.count() == ROWS or pytest.fail("count"))
