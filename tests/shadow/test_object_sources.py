"""An index and its source on an object store: a read uses the recorded state, and is refused if the file changed."""

import random
import shutil
import uuid
from functools import partial
from pathlib import Path
from typing import Any

import obstore
import pyarrow as pa
import pytest

from gnomon.btree import BTreeWriter
from gnomon.shadow import FetchStats, IndexNotFound, SourceNotFound, StalePointer, UsageError, open_index
from gnomon.shadow.errors import DamagedIndexFile, DamagedMetadata, IndexFileGone
from gnomon.shadow.index import Index
from gnomon.shadow.maintenance import rebucket
from gnomon.shadow.metadata.source_files import check_apart, source_root
from gnomon.shadow.storage import storage_at
from tests.profiles import examples
from tests.shadow.make_index import index_source, write_source
from tests.stores.process import Store
from tests.stores.web import WebServer

TABLE = pa.table({"k": range(100), "text": [f"row {n}" for n in range(100)]})


@pytest.fixture
def place() -> str:
    return f"memory://{uuid.uuid4().hex}/lake"


def indexed(place: str, key: str = "k", page_maps: bool = False, **tables: pa.Table) -> str:
    """Write a source in memory and index it there. Returns the place of the index."""
    source, index = f"{place}/source", f"{place}/index"
    write_source(storage_at(source), {f"{name}.parquet": table for name, table in (tables or {"f": TABLE}).items()})
    index_source(source_root(source), storage_at(index), [key], page_maps=page_maps)
    return index


def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A list that gets all later calls to the store."""
    calls: list[str] = []
    for name in ("head", "get", "list"):
        real = getattr(obstore, name)

        def call(*args: Any, name: str = name, real: Any = real, **options: Any) -> Any:
            calls.append(name)
            return real(*args, **options)

        monkeypatch.setattr(obstore, name, call)
    return calls


def test_a_fetch_asks_for_bytes_only(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    index = open_index(indexed(place))
    calls, stats = counted(monkeypatch), FetchStats()
    assert index.fetch(7, stats=stats) == [{"k": 7, "text": "row 7"}]
    assert set(calls) == {"get"}
    assert len(calls) == stats.source.reads + stats.index.reads


def test_recorded_page_maps_cost_one_call_and_spare_the_others(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    index = open_index(indexed(place, page_maps=True))
    index.lookup(7)
    calls, stats = counted(monkeypatch), FetchStats()
    assert index.fetch(7, stats=stats) == [{"k": 7, "text": "row 7"}]
    assert set(calls) == {"get"}
    assert stats.source.page_maps.reads == 1
    assert len(calls) == stats.source.reads + stats.index.reads + 1


@pytest.mark.parametrize("page_maps", [False, True])
@pytest.mark.parametrize("warm", [False, True])
def test_a_changed_or_vanished_object_is_a_stale_pointer(place: str, warm: bool, page_maps: bool) -> None:
    index = open_index(indexed(place, page_maps=page_maps))
    if warm:
        assert index.fetch(7)
    source = storage_at(f"{place}/source")
    data = source.read("f.parquet")
    source.delete("f.parquet")
    source.put_new("f.parquet", [data])  # of the same size, in the same second
    with pytest.raises(StalePointer, match=r"f\.parquet: the file changed since it was indexed \(its etag differs\)"):
        index.fetch(7)
    source.delete("f.parquet")
    with pytest.raises(StalePointer, match=r"f\.parquet: the file is gone since it was indexed"):
        index.fetch(7)


def test_an_object_rewritten_between_two_reads_is_a_stale_pointer(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    index = open_index(indexed(place))
    source, real, done = storage_at(f"{place}/source"), obstore.get, []

    def get(store: Any, path: str, **options: Any) -> Any:
        answer = real(store, path, **options)
        if path.endswith("f.parquet") and not done:
            done.append(True)
            data = source.read("f.parquet")
            source.delete("f.parquet")
            source.put_new("f.parquet", [data])
        return answer

    monkeypatch.setattr(obstore, "get", get)
    with pytest.raises(StalePointer, match="the file changed since it was indexed"):
        index.fetch(7)


def test_a_change_is_seen_where_nothing_is_read(place: str) -> None:
    """The file lacks the key and all requested columns."""
    other = pa.table({"other": [1, 2]})
    index = open_index(indexed(place, a=TABLE, b=other))
    assert index.fetch(None, columns=["text"]) == [{"text": None}] * 2
    source = storage_at(f"{place}/source")
    source.delete("b.parquet")
    with pytest.raises(StalePointer, match=r"b\.parquet: the file is gone"):
        index.fetch(None, columns=["text"])


def test_an_index_file_of_another_size_or_gone_is_noticed(place: str) -> None:
    location = indexed(place)
    storage = storage_at(location)
    files = {info.path: info.size for info in storage.list()}
    for path, size in files.items():
        storage.delete(path)
        storage.put_new(path, [b"x" * (size - 1)])
    with pytest.raises(DamagedIndexFile, match=r"expected \d+ bytes, found \d+"):
        open_index(location).fetch(7)
    for path in files:
        storage.delete(path)
    with pytest.raises(IndexFileGone, match="missing, though the snapshot names it"):
        open_index(location).fetch(7)


def test_what_is_not_there_is_said_as_on_local_disks(place: str) -> None:
    with pytest.raises(IndexNotFound):
        open_index(f"{place}/nothing")
    with pytest.raises(SourceNotFound, match="no such file or folder"):
        source_root(f"{place}/nothing")
    with pytest.raises(SourceNotFound, match="no data files there"):
        source_root(f"memory://{uuid.uuid4().hex}").list()


def test_one_object_is_a_source(place: str) -> None:
    storage_at(place).put_new("a b.parquet", [b"x"])
    root = source_root(f"{place}/a b.parquet")
    assert (root.storage.root, root.source.file_name, root.location) == (place, "a b.parquet", f"{place}/a b.parquet")
    assert [info.size for info in root.list()] == [1]
    assert source_root(place).source.file_name == ""


def test_an_index_among_the_objects_of_its_source_is_refused(place: str) -> None:
    storage_at(place).put_new("f.parquet", [b"x"])
    root = source_root(place)
    with pytest.raises(UsageError, match="would lie among the files of its source"):
        check_apart(root, storage_at(f"{place}/index"))
    check_apart(root, storage_at(f"{place}/_index"))
    check_apart(root, storage_at(f"{place}_index"))


@pytest.mark.parametrize("order", ["hash", "range"])
def test_a_range_on_s3_is_that_of_local_files(
    s3: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, order: str
) -> None:
    """Also of index files that are not read whole: of more than 4 MB."""
    monkeypatch.setattr("gnomon.shadow.lookup.index_files.BTreeWriter", partial(BTreeWriter, node_bytes=512))
    chance, remote, local = random.Random(1), s3.place(tmp_path, monkeypatch), str(tmp_path / "local")
    rows = pa.table({"k": [chance.choice([None, *range(400)]) for _ in range(3000)], "n": range(3000)})
    for place in (local, remote):
        write_source(storage_at(f"{place}/lake"), {f"{i}.parquet": rows.slice(1000 * i, 1000) for i in range(3)})
        index_source(source_root(f"{place}/lake"), storage_at(f"{place}/index"), ["k"], buckets=7)
        if order == "range":
            rebucket(storage_at(f"{place}/index"), 7, order=order)
    for whole_bytes in (1 << 22, 0):
        monkeypatch.setattr("gnomon.shadow.lookup.index_files.WHOLE_BYTES", whole_bytes)
        here, there = (open_index(f"{place}/index") for place in (local, remote))
        assert there.statistics() == here.statistics()
        for _ in range(examples(40)):
            ends: dict[str, Any] = {"low": chance.randrange(400), "high": chance.choice([None, chance.randrange(400)])}
            options = {"reverse": chance.random() < 0.5, "limit": chance.choice([None, 7, 300])}
            assert there.count(**ends) == here.count(**ends)
            assert list(there.range(**ends, **options)) == list(here.range(**ends, **options))


@pytest.fixture
def on_s3(s3: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    return s3.place(tmp_path, monkeypatch)


def cold(index: str, tmp_path: Path) -> Index:
    """The index as a new process opens it that uses the cache folder."""
    return open_index(index, cache_folder=tmp_path / "cache", keep_pages=False)


@pytest.mark.parametrize("page_maps", [False, True])
def test_a_new_process_with_a_cache_folder_asks_for_the_page_and_for_the_newest_snapshot(
    on_s3: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, page_maps: bool
) -> None:
    index = indexed(on_s3, page_maps=page_maps)
    with cold(index, tmp_path) as first:
        assert first.fetch(7) == [{"k": 7, "text": "row 7"}]
    calls = counted(monkeypatch)
    again = cold(index, tmp_path)
    assert again.fetch(7) == [{"k": 7, "text": "row 7"}]
    assert sorted(calls) == ["get", "get", "get", "list"]  # the page, the next snapshot, the spec
    assert again.contains(7)
    assert len(calls) == 4


def test_with_a_cache_folder_a_changed_or_vanished_object_is_a_stale_pointer_too(on_s3: str, tmp_path: Path) -> None:
    index = indexed(on_s3)
    with cold(index, tmp_path) as first:
        first.fetch(7)
    source = storage_at(f"{on_s3}/source")
    source.delete("f.parquet")
    write_source(source, {"f.parquet": TABLE.set_column(1, "text", pa.array([f"ROW {n}" for n in range(100)]))})
    for columns in (None, []):
        with pytest.raises(StalePointer, match=r"f\.parquet: the file changed since it was indexed"):
            cold(index, tmp_path).fetch(7, columns)
    index_source(source_root(f"{on_s3}/source"), storage_at(index), ["k"])
    for _ in range(2):
        assert cold(index, tmp_path).fetch(7) == [{"k": 7, "text": "ROW 7"}]
    source.delete("f.parquet")
    for columns in (None, []):
        with pytest.raises(StalePointer, match=r"f\.parquet: the file is gone since it was indexed"):
            cold(index, tmp_path).fetch(7, columns)


def test_a_cache_folder_hides_no_other_file_that_a_web_server_gives_the_same_etag(
    web: WebServer, tmp_path: Path
) -> None:
    web.etag = lambda _: '"time and size"'
    web.has_times = False
    lake, plain = storage_at(f"memory://{uuid.uuid4().hex}"), {"use_dictionary": False, "compression": "none"}
    write_source(
        lake,
        {"old": TABLE, "new": TABLE.set_column(1, "text", pa.array([f"ROW {n}" for n in range(100)]))},
        **plain,
    )
    web.put("/f.parquet", lake.read("old"))
    index_source(source_root(f"{web.address}/f.parquet"), tmp_path / "index", ["k"])
    assert cold(str(tmp_path / "index"), tmp_path).fetch(7) == [{"k": 7, "text": "row 7"}]
    assert len(lake.read("old")) == len(lake.read("new"))
    web.put("/f.parquet", lake.read("new"))
    with pytest.raises(StalePointer, match="the file is not the one that was indexed"):
        cold(str(tmp_path / "index"), tmp_path).fetch(7)


@pytest.mark.parametrize("whole_bytes", [1 << 22, 0])
def test_damage_on_the_store_is_in_no_cache_folder_once_it_is_repaired(
    on_s3: str, tmp_path: Path, whole_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gnomon.shadow.lookup.index_files.WHOLE_BYTES", whole_bytes)
    index = indexed(on_s3, page_maps=True)
    storage = storage_at(index)
    sound = {info.path: storage.read(info.path) for info in storage.list("", hidden=True)}
    noticed: set[str] = set()
    for path, data in sound.items():
        if path.endswith((".json", "/lock")):
            continue  # a snapshot that was replaced has another etag
        storage.delete(path)
        storage.put_new(path, [bytes([*data[:-1], data[-1] ^ 1])])
        try:
            assert cold(index, tmp_path).fetch(7) == [{"k": 7, "text": "row 7"}]
        except (DamagedIndexFile, DamagedMetadata):
            noticed.add(path.partition("/")[2].partition("/")[0] or "index file")
        storage.delete(path)
        storage.put_new(path, [data])
        assert cold(index, tmp_path).fetch(7) == [{"k": 7, "text": "row 7"}]
        assert cold(index, tmp_path).fetch(7) == [{"k": 7, "text": "row 7"}]
        shutil.rmtree(tmp_path / "cache")
    assert noticed == {"segments", "page_maps", "index file"}
