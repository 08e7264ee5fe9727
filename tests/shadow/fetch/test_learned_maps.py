"""What fetches learned about source pages is kept over restarts. Damaged files change no row, and no fetch fails."""

import logging
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pytest

from gnomon.base import kernel
from gnomon.shadow import FetchStats, open_index
from gnomon.shadow.fetch import page_maps
from gnomon.shadow.index import Index
from gnomon.shadow.storage.disk_cache import LOCK
from tests.profiles import examples
from tests.shadow.make_index import index_source, write_source

ROWS = 6000
DICE = random.Random(4)
WORDS = ["".join(DICE.choices("abcdefgh", k=DICE.randint(60, 150))) for _ in range(5000)]
TABLE = pa.table(
    {
        "k": range(ROWS),
        "html": ["".join(DICE.choices(WORDS, k=3)) for _ in range(ROWS)],
        "word": [DICE.choice(WORDS) for _ in range(ROWS)],
        "number": pa.array([None if k % 9 == 0 else k * 7 for k in range(ROWS)]),
    }
)
KEY = 4321
needs_kernel = pytest.mark.skipif(not kernel.COMPILED, reason="value maps are made by compiled loops")


class Lake(NamedTuple):
    index: str
    folder: Path
    file: Path

    def open(self, folder: Path | None = None) -> Index:
        return open_index(self.index, keep_pages=False, cache_folder=folder or self.folder)

    def kept(self) -> list[Path]:
        return sorted(path for path in self.folder.iterdir() if path.name != LOCK) if self.folder.exists() else []


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pages of plain values and of indices, dictionaries, and no page index."""
    place = tmp_path_factory.mktemp("lake")
    options = {"use_dictionary": ["word"], "data_page_size": 1 << 19, "write_batch_size": 64, "row_group_size": 6000}
    write_source(place / "lake", {"a.parquet": TABLE}, **options)
    index_source(place / "lake", place / "index", ["k"])
    return place


@pytest.fixture
def lake(made: Path, tmp_path: Path) -> Lake:
    return Lake(str(made / "index"), tmp_path / "maps", made / "lake" / "a.parquet")


@pytest.fixture
def saved_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_maps, "SAVE_SECONDS", 0)


def row(key: int) -> dict[str, object]:
    return TABLE.slice(key, 1).to_pylist()[0]


def fetched(index: Index, key: int = KEY) -> FetchStats:
    """What a fetch costs, after its row was compared."""
    stats = FetchStats()
    assert index.fetch(key, stats=stats) == [row(key)]
    return stats


@needs_kernel
def test_the_first_fetch_after_a_restart_reads_as_few_bytes_as_one_from_known_pages(lake: Lake) -> None:
    footer = min(lake.file.stat().st_size, 64 << 10)
    with lake.open() as index:
        first, known = fetched(index), fetched(index)
        neighbour = fetched(index, KEY + 1)
    assert first.source.bytes > 300_000
    with lake.open() as index:
        again = fetched(index)
        assert again.source.bytes == known.source.bytes + footer
        assert again.source.reads == known.source.reads + 1
        assert fetched(index).source.bytes == known.source.bytes
        assert fetched(index, KEY + 1).source.bytes == neighbour.source.bytes


@needs_kernel
@pytest.mark.process
def test_maps_outlive_a_killed_process(lake: Lake) -> None:
    program = f"""
import os, signal
from gnomon.shadow import open_index
from gnomon.shadow.fetch import page_maps
page_maps.SAVE_SECONDS = 0
index = open_index({lake.index!r}, keep_pages=False, cache_folder={str(lake.folder)!r})
index.fetch({KEY})
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", program], env=os.environ, check=False)
    assert done.returncode == -9
    assert fetched(lake.open()).source.bytes < 300_000


def test_nothing_is_written_unless_a_folder_is_named(lake: Lake) -> None:
    with open_index(lake.index) as index:
        fetched(index)
    assert not lake.folder.exists()


def test_fetches_write_now_and_then(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    index = lake.open()
    for key in (5, KEY):
        fetched(index, key)
    assert lake.kept() == []
    monkeypatch.setattr(page_maps, "SAVE_SECONDS", 0)
    fetched(index, 6)
    [file] = lake.kept()
    before = file.stat().st_mtime_ns
    fetched(index, 6)  # nothing new
    assert file.stat().st_mtime_ns == before


def damaged(dice: random.Random, data: bytes) -> Iterator[bytes]:
    """The file with a wrong byte or an end in each of its parts."""
    head = [*range(120), *range(len(data) - 40, len(data))]
    for at in [*head, *dice.sample(range(len(data)), examples(400))]:
        yield data[:at] + bytes([data[at] ^ 1 << dice.randrange(8)]) + data[at + 1 :]
        yield data[:at]
    yield data + b"\0"
    yield b"GNOMONC2" + data[8:]
    yield bytes(len(data))


def test_a_damaged_file_is_ignored_with_one_line_in_the_log(lake: Lake, caplog: pytest.LogCaptureFixture) -> None:
    with lake.open() as index:
        cost = fetched(index).source.bytes
    [file] = lake.kept()
    sound = file.read_bytes()
    for data in damaged(random.Random(6), sound):
        file.write_bytes(data)
        caplog.clear()
        index = lake.open()
        assert fetched(index).source.bytes == cost
        fetched(index, 17)
        [told] = [record for record in caplog.records if record.name == "gnomon.cache"]
        assert told.levelno == logging.WARNING
    with lake.open() as index:
        fetched(index)
    assert len(file.read_bytes()) >= len(sound)  # written again
    caplog.clear()
    assert fetched(lake.open()).source.bytes <= cost
    assert caplog.records == []


def test_a_file_of_another_source_file_is_ignored(lake: Lake, tmp_path: Path, saved_at_once: None) -> None:
    changed = TABLE.set_column(1, "html", pa.array(TABLE["html"].to_pylist()[::-1]))
    write_source(tmp_path / "other", {"a.parquet": changed}, use_dictionary=False)
    index_source(tmp_path / "other", tmp_path / "other index", ["k"])
    with open_index(tmp_path / "other index", cache_folder=lake.folder) as index:
        index.fetch(KEY)
    [foreign] = lake.kept()
    fetched(lake.open())
    [own] = [file for file in lake.kept() if file != foreign]
    own.write_bytes(foreign.read_bytes())
    fetched(lake.open())


def test_a_source_file_that_was_written_again_has_maps_of_its_own(tmp_path: Path, saved_at_once: None) -> None:
    for table in (TABLE, TABLE.set_column(3, "number", pa.array(range(ROWS)))):
        write_source(tmp_path / "lake", {"a.parquet": table}, compression="none")
        index_source(tmp_path / "lake", tmp_path / "index", ["k"], full=True)
        for _ in range(2):
            index = open_index(tmp_path / "index", keep_pages=False, cache_folder=tmp_path / "maps")
            for key in (5, KEY, KEY):
                assert index.fetch(key) == table.slice(key, 1).to_pylist()
    assert len(list((tmp_path / "maps").iterdir())) == 3  # with the lock


@needs_kernel
def test_processes_that_share_a_folder_keep_the_maps_of_each_other(lake: Lake, saved_at_once: None) -> None:
    one, other = lake.open(), lake.open()
    fetched(one, 5)
    fetched(other, ROWS - 5)
    index = lake.open()
    costs = [fetched(index, key).source.bytes for key in (5, ROWS - 5)]
    assert max(costs) < 300_000


def test_a_folder_that_cannot_be_written_costs_one_line_in_the_log(
    lake: Lake, tmp_path: Path, caplog: pytest.LogCaptureFixture, saved_at_once: None
) -> None:
    (tmp_path / "file").write_text("in the way")
    with lake.open(tmp_path / "file" / "maps") as index:
        for key in (1, 3000, KEY):
            fetched(index, key)
    assert len(caplog.records) == 1
