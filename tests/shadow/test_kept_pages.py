"""Cached pages of source files: they never give a row of a changed file, and stay within the limit."""

import os
from pathlib import Path

import pyarrow as pa
import pytest

from gnomon.shadow import FetchStats, Trace
from gnomon.shadow.errors import StalePointer
from gnomon.shadow.index_for_jobs import OpenIndex
from tests.opened import open_index
from tests.shadow.make_index import index_source, write_source

ROWS = 3000
TABLE = pa.table({"k": range(ROWS), "text": [f"{key} " * 20 for key in range(ROWS)]})


def opened(folder: Path, cache_bytes: int = 1 << 26) -> OpenIndex:
    write_source(folder / "lake", {"a.parquet": TABLE}, data_page_size=8192, use_dictionary=False)
    index_source(folder / "lake", folder / "index", ["k"])
    return open_index(str(folder / "index"), cache_bytes=cache_bytes)


def test_a_second_fetch_reads_nothing_of_the_source(tmp_path: Path) -> None:
    index = opened(tmp_path)
    first = index.fetch(7)
    stats = FetchStats(trace=Trace())
    assert index.fetch(7, stats=stats) == first == [TABLE.slice(7, 1).to_pylist()[0]]
    assert (stats.source.reads, stats.source.bytes) == (0, 0)
    assert stats.trace is not None
    (pages,) = [step for step in stats.trace.to_json() if step["step"] == "pages"]
    assert (pages["cached"], pages["reads"], pages["pages"]) == (True, 0, 0)
    counts = index.cache_counts()["source_pages"]
    assert counts.hits >= 2
    assert counts.bytes > 0


def test_a_file_that_changed_gives_no_row_out_of_memory(tmp_path: Path) -> None:
    index = opened(tmp_path)
    index.fetch(7)
    file = tmp_path / "lake" / "a.parquet"
    now = file.stat()
    os.utime(file, ns=(now.st_atime_ns, now.st_mtime_ns + 1))
    with pytest.raises(StalePointer, match="the file changed since it was indexed"):
        index.fetch(7)
    os.utime(file, ns=(now.st_atime_ns, now.st_mtime_ns))
    assert index.fetch(7)
    file.unlink()
    with pytest.raises(StalePointer, match="the file is gone"):
        index.fetch(7)


def test_a_file_replaced_by_another_of_its_size_gives_no_row_out_of_memory(tmp_path: Path) -> None:
    index = opened(tmp_path)
    index.fetch(7)
    file, new = tmp_path / "lake" / "a.parquet", tmp_path / "new"
    new.write_bytes(file.read_bytes())
    os.utime(new, ns=(0, file.stat().st_mtime_ns + 1))
    new.rename(file)
    with pytest.raises(StalePointer, match="the file changed since it was indexed"):
        index.fetch(7)


@pytest.mark.parametrize("read", ["values", "fetch"])
def test_a_file_that_changes_while_its_row_is_taken_out_of_memory_is_noticed(
    read: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = opened(tmp_path)
    index.fetch(7)
    file = tmp_path / "lake" / "a.parquet"
    source = type(next(iter(index._current.state.fetcher.files._sources._values.values())))  # type: ignore[union-attr]
    real = getattr(source, read)

    def changing(*args: object) -> object:
        found = real(*args)
        os.utime(file, ns=(0, 1))
        return found

    if read == "fetch":
        monkeypatch.setattr(source, "values", lambda *_: None)
    monkeypatch.setattr(source, read, changing)
    with pytest.raises(StalePointer, match="the file changed since it was indexed"):
        index.fetch(7)


def test_who_reads_each_page_once_keeps_none(tmp_path: Path) -> None:
    opened(tmp_path)
    index = open_index(str(tmp_path / "index"), keep_pages=False)
    assert index.fetch(7) == index.fetch(7) == TABLE.slice(7, 1).to_pylist()
    assert "source_pages" not in index.cache_counts()


def test_no_more_is_kept_than_fits(tmp_path: Path) -> None:
    index = opened(tmp_path, cache_bytes=1 << 17)
    for key in (*range(0, ROWS, 50), *range(0, ROWS, 50)):
        assert index.fetch(key) == TABLE.slice(key, 1).to_pylist()
    counts = index.cache_counts()
    assert counts["source_pages"].misses > 10
    assert counts["source_pages"].bytes > 1 << 15  # the bytes that the other caches leave, not a quarter
    assert sum(one.bytes for one in counts.values()) <= 1 << 17


def test_pages_give_way_to_what_the_index_needs(tmp_path: Path) -> None:
    index = opened(tmp_path, cache_bytes=1 << 18)
    for key in range(0, ROWS, 50):
        index.fetch(key)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(type(index._lookup), "cache_bytes", 1 << 18)
        index.contains(0)
    assert index.cache_counts()["source_pages"].bytes == 0
