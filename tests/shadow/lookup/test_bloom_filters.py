"""With Bloom filters, look-ups skip index files without the key, and answers are the same."""

import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from gnomon.btree import bloom
from gnomon.btree.errors import DamagedIndexFile
from gnomon.shadow.commit.publishing import Changes, publish
from gnomon.shadow.errors import IndexFileGone
from gnomon.shadow.fetch.results import Query
from gnomon.shadow.fetch.source_files import FetchStats
from gnomon.shadow.index_for_jobs import OpenIndex
from gnomon.shadow.lookup import index_files
from gnomon.shadow.lookup.index_files import filter_path
from gnomon.shadow.metadata.manifests import IndexFileEntry
from gnomon.shadow.storage import Trace
from tests.opened import open_index
from tests.shadow.make_index import Build, index_source, write_source

DAYS, ROWS = 6, 200


@pytest.fixture
def place(tmp_path: Path) -> str:
    """Six days with different keys, two buckets, one segment; even numbers only. Key -1 is in each day."""
    days = {
        f"dt={day}/a.parquet": pa.table({"k": [-1, *range(2 * day * ROWS, 2 * (day + 1) * ROWS, 2)]})
        for day in range(DAYS)
    }
    write_source(tmp_path / "lake", days)
    index_source(tmp_path / "lake", tmp_path / "index", ["k"], buckets=2)
    return str(tmp_path / "index")


def cost(index: OpenIndex, key: object, where: dict[str, object] | None = None) -> tuple[int, int, int]:
    """Hits, B-Tree nodes, filter checks of a look-up."""
    stats = FetchStats()
    hits = index._found(Query([key], stats, where)).hits[0]
    return len(hits), stats.index.nodes, stats.index.filter_checks


def filter_files_of(place: str) -> list[Path]:
    return sorted((Path(place) / "_shadow/filters").rglob("*.filter"))


def test_a_filter_lies_beside_each_index_file_and_the_segment_names_it(place: str) -> None:
    (segment,) = open_index(place).view.segments
    for file in segment.index_files:
        assert file.filter is not None
        assert file.filter.path == filter_path(segment.id, file.partition, file.bucket)
        assert (Path(place) / file.filter.path).stat().st_size == file.filter.size
    assert len(filter_files_of(place)) == len(segment.index_files) == 2 * DAYS
    assert filter_path("s", "", 3) == "_shadow/filters/s/00003.filter"


# -- when a filter is consulted ----------------------------------------------------------------------------------------


def test_of_several_partitions_only_those_that_may_hold_a_key_are_read(place: str) -> None:
    index = open_index(place)
    assert cost(index, 2) == (1, 1, DAYS)
    assert cost(index, -1) == (DAYS, DAYS, DAYS)
    assert cost(index, 3) == (0, 0, DAYS)


def test_a_key_in_one_file_is_looked_up_there_until_a_miss(place: str) -> None:
    index = open_index(place)
    where: dict[str, object] = {"dt": "0"}
    absent = [3, 5, 7, 9, 11]
    assert cost(index, 2, where) == (1, 1, 0)
    costs = [cost(index, key, where) for key in absent]
    assert set(costs) == {(0, 1, 0), (0, 0, 1)}  # once for each of two buckets, then the filter says no
    assert costs.count((0, 1, 0)) == 2
    assert [cost(index, key, where)[:2] for key in (2, 4, 6, 8)] == [(1, 1)] * 4


def test_many_keys_of_one_file_are_filtered_first(place: str) -> None:
    index, stats = open_index(place), FetchStats()
    found = index._found(Query([2, *range(1, 2 * ROWS, 2)], stats, {"dt": "0"})).hits
    assert [len(hits) for hits in found] == [1, *[0] * ROWS]
    assert (stats.index.filter_checks, stats.index.nodes) == (ROWS + 1, 1)


@pytest.mark.parametrize("keys", [1, 5, 60, 3000])
def test_answers_are_the_same_with_and_without_filters(place: str, keys: int) -> None:
    asked = [-1, *range(keys)]
    for cache_bytes in (0, 2**28):
        with_filters = open_index(place, cache_bytes=cache_bytes)
        without = open_index(place, cache_bytes=cache_bytes, filters=False)
        for where in (None, {"dt": "1"}):
            stats = FetchStats()
            found = without._found(Query(asked, stats, where)).hits
            assert with_filters._found(Query(asked, FetchStats(), where)).hits == found
            assert stats.index.filter_checks == 0


def test_filters_stay_in_memory_while_all_of_them_fit(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WHOLE_BYTES", "SMALL_BYTES"):
        monkeypatch.setattr(bloom, name, 0)
    for cache_bytes, reads in ((2**28, 0), (4, DAYS)):
        index, stats = open_index(place, cache_bytes=cache_bytes), FetchStats()
        index.lookup(3)
        index._found(Query([3], stats, None))
        assert stats.index.nodes == 0
        assert stats.index.reads >= reads
        assert stats.index.bytes == stats.index.filter_bytes
        assert (stats.index.bytes == 0) == (reads == 0)


def test_a_filter_of_dead_files_only_is_not_consulted(place: str, tmp_path: Path) -> None:
    (tmp_path / "lake/dt=5/a.parquet").unlink()
    before = open_index(place).view.filter_bytes
    index_source(tmp_path / "lake", Path(place), ["k"])
    index = open_index(place)
    assert cost(index, 3) == (0, 0, DAYS - 1)
    assert 0 < index.view.filter_bytes < before


def test_an_index_file_without_a_filter_is_read(tmp_path: Path) -> None:
    write_source(tmp_path / "lake", {f"p={p}/a.parquet": pa.table({"k": [p]}) for p in range(3)})
    build = Build(tmp_path / "lake", tmp_path / "index", ["k"], buckets=1)
    build.index_files = [replace(file, filter=None) if file.partition == "p=1" else file for file in build.index_files]
    files: list[IndexFileEntry] = build.index_files
    publish(build.storage, build.spec, None, Changes("build", files, build.covered, {}, build.columns), build.segment)
    index = open_index(str(tmp_path / "index"))
    assert [cost(index, key) for key in (1, 77)] == [(1, 1, 2), (0, 1, 2)]


# -- damage ------------------------------------------------------------------------------------------------------------


def test_a_missing_filter_is_named_with_the_cure_and_never_means_no(place: str) -> None:
    paths = filter_files_of(place)
    for path in paths:
        path.unlink()
    with pytest.raises(
        IndexFileGone, match=r"missing, though .* run gnomon build INDEX --full, or open the index with filters=False"
    ) as e:
        open_index(place).lookup(2)
    assert any(str(e.value).startswith(f"{path}: ") for path in paths)
    assert len(open_index(place, filters=False).lookup(2)) == 1


def test_every_flipped_byte_and_every_cut_of_a_filter_is_named(tmp_path: Path) -> None:
    write_source(tmp_path / "lake", {f"p={p}/a.parquet": pa.table({"k": range(p, 50, 2)}) for p in range(2)})
    index_source(tmp_path / "lake", tmp_path / "index", ["k"], buckets=1)
    place = str(tmp_path / "index")
    path = filter_files_of(place)[0]
    data = path.read_bytes()
    broken = [data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :] for at in range(len(data))]
    for content in [*broken, *(data[:length] for length in range(len(data))), data + b"\0"]:
        path.write_bytes(content)
        with pytest.raises(DamagedIndexFile) as caught:
            open_index(place).lookup(7)
        assert caught.value.path == str(path)
        assert len(open_index(place, filters=False).lookup(7)) == 1
    path.write_bytes(data)
    assert len(open_index(place).lookup(7)) == 1


def test_filters_of_equal_size_that_changed_places_are_noticed(place: str) -> None:
    one, *others = filter_files_of(place)
    other = next(path for path in others if path.stat().st_size == one.stat().st_size)
    shutil.copy(other, one)
    with pytest.raises(DamagedIndexFile, match=r"Bloom filter: a head that states CRC .* expected") as caught:
        open_index(place)._found(Query([2, 3, 4, 5], FetchStats(), None))
    assert caught.value.path == str(one)


def test_a_vacuumed_filter_leads_to_the_newest_snapshot(place: str, tmp_path: Path) -> None:
    index = open_index(place)
    old = [path for path in filter_files_of(place) if "dt=0" in path.parts]
    write_source(tmp_path / "lake", {"dt=0/a.parquet": pa.table({"k": [3]})})
    index_source(tmp_path / "lake", tmp_path / "index", ["k"])
    for path in old:
        path.unlink()
    assert len(index.lookup(3)) == 1
    assert index.view.snapshot.number == 2


def test_no_more_misses_are_recorded_than_stated(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_files, "MAX_RECORDED_MISSES", 1)
    index = open_index(place)
    for day in range(DAYS):
        for key in (1, 3, 5, 7):
            assert cost(index, key, {"dt": str(day)})[0] == 0
    assert index._lookup.filters is not None
    assert len(index._lookup.filters._missed) == 1


def test_filters_in_memory_answer_a_key_as_filters_on_disk_do_and_read_nothing(place: str) -> None:
    keys = [-1, *range(0, 2 * DAYS * ROWS + 20, 7)]
    warm, cold = open_index(place), open_index(place, cache_bytes=0)
    for key in keys:
        warm.contains(key)
    for key in keys:
        stats = FetchStats()
        found = warm._found(Query([key], stats)).hits[0]
        assert [hit.pointer for hit in found] == cold.lookup(key)
        assert stats.index.filter_bytes == 0
        assert cost(warm, key) == cost(cold, key)
        traced = FetchStats(trace=Trace())
        assert len(warm._found(Query([key], traced)).hits[0]) == len(found)
        assert traced.index.filter_checks == stats.index.filter_checks == DAYS
