"""How many rounds of reads an answer takes on a store that is far away, where nothing else counts."""

import pyarrow as pa
import pytest

from shadow import FetchStats, Trace
from shadow.coverage import SourceRoot
from shadow.errors import DamagedIndexFile
from shadow.fetch import Fetcher
from shadow.index import Index
from shadow.view import open_view
from tests.shadow.far_store import FarStorage, Rounds
from tests.shadow.make_index import index_source, write_source

ROWS = 2000


def text(day: int, key: int) -> str:
    return f"{day} {key} " * 10


class Far:
    """A lake of some days and its index on a far store; the index opened anew, with empty caches."""

    def __init__(self, days: int, page_maps: bool = False, cache_bytes: int = 1 << 26, page_bytes: int = 0) -> None:
        self.lake, self.folder = FarStorage("/far/lake"), FarStorage("/far/index")
        tables = {
            f"dt={day}/a.parquet": pa.table({"k": range(ROWS), "text": [text(day, key) for key in range(ROWS)]})
            for day in range(days)
        }
        write_source(self.lake, tables, data_page_size=4096, write_batch_size=64, use_dictionary=False)
        index_source(SourceRoot(self.lake), self.folder, ["k"], buckets=1, page_maps=page_maps)
        self.cache_bytes, self.page_bytes = cache_bytes, page_bytes
        self.index = self.opened()

    def opened(self) -> Index:
        view = open_view(self.folder)
        index = Index(self.folder, view, True, self.cache_bytes)
        fetcher = Fetcher(self.lake, view.spec, self.cache_bytes, self.folder, self.page_bytes)
        index._state = type(index._state)(view, SourceRoot(self.lake), fetcher)  # not what is at the path of that name
        return index

    def fetch(self, keys: list[int], rounds: Rounds, where: dict[str, object] | None = None) -> list[list[str]]:
        """The texts of the rows of keys; the reads are made in just these rounds."""
        self.lake.rounds = self.folder.rounds = rounds
        try:
            found = self.index.fetch_many(keys, ["text"], where)
        finally:
            self.lake.rounds = self.folder.rounds = None
        assert rounds.are_over
        return [[row["text"] for row in rows] for rows in found]


def test_a_cold_fetch_takes_three_rounds_and_a_warm_one_a_single_one() -> None:
    far = Far(1, page_maps=True)
    cold = Rounds(1, 2, 1)  # the index file; footer and page maps; pages
    assert far.fetch([7], cold) == [[text(0, 7)]]
    endings = [{name.rpartition(".")[2] for name in names} for names in cold.names]
    assert endings == [{"avro"}, {"parquet", "maps"}, {"parquet"}]
    assert far.fetch([8], Rounds(1)) == [[text(0, 8)]]
    assert far.fetch([7, 1500], Rounds(1)) == [[text(0, 7)], [text(0, 1500)]]
    assert far.fetch([ROWS], Rounds()) == [[]]


def test_a_small_index_file_is_read_beside_its_filter() -> None:
    far = Far(2, page_maps=True)
    cold = Rounds(4, 4, 2)
    assert far.fetch([7], cold) == [[text(0, 7), text(1, 7)]]
    assert {name.rpartition(".")[2] for name in cold.names[0]} == {"avro", "filter"}


def test_many_partitions_take_no_more_rounds_than_one_and_the_filter() -> None:
    days = 6
    far = Far(days, page_maps=True)
    assert far.fetch([7], Rounds(days, days, 2 * days, days)) == [[text(day, 7) for day in range(days)]]
    assert far.fetch([9], Rounds(days)) == [[text(day, 9) for day in range(days)]]
    assert far.fetch([9], Rounds(1), {"dt": 3}) == [[text(3, 9)]]


def test_where_not_all_index_files_fit_into_memory_a_warm_fetch_takes_a_round_more() -> None:
    far = Far(1, page_maps=True, cache_bytes=1 << 12)
    assert far.fetch([7], Rounds(1, 2, 1)) == [[text(0, 7)]]
    assert far.fetch([7], Rounds(1, 1)) == [[text(0, 7)]]


def test_kept_pages_are_not_read_again() -> None:
    far = Far(1, page_maps=True, page_bytes=1 << 20)
    assert far.fetch([7], Rounds(1, 2, 1)) == [[text(0, 7)]]
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
    far, stats = Far(6, page_maps=True), FetchStats(trace=Trace())
    assert len(far.index.fetch(7, stats=stats)) == 6
    assert stats.trace is not None
    steps = stats.trace.to_json()
    assert [step["begin_us"] for step in steps] == sorted(step["begin_us"] for step in steps)
    kinds = [step["step"] for step in steps]
    assert {kind: kinds.count(kind) for kind in kinds} == {
        "key": 1,
        "filter": 6,
        "index_file": 6,
        "node": kinds.count("node"),
        "source_file": 6,
        "page_map": 12,
        "pages": 6,
        "decode": 6,
        "key_check": 6,
    }
    source = stats.source
    for name, cost in (("reads", stats.index.reads + source.reads + source.page_maps.reads),
                       ("bytes", stats.index.bytes + source.bytes + source.page_maps.bytes)):  # fmt: skip
        assert sum(step[name] for step in steps) == cost
