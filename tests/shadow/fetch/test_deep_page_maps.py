"""With recorded value maps, the first fetch from a page reads a part of it, in any process."""

import random
import zlib
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from isal import isal_zlib

from gnomon.base import kernel
from gnomon.shadow import open_index
from gnomon.shadow.commit.publishing import new_segment_id
from gnomon.shadow.commit.relocate import record
from gnomon.shadow.errors import DamagedIndexFile
from gnomon.shadow.fetch.page_maps import page_maps_path, prove_page_maps, without_maps, write_page_maps
from gnomon.shadow.fetch.source_files import FetchStats
from gnomon.shadow.maintenance.compaction import compact
from gnomon.shadow.maintenance.vacuuming import vacuum
from gnomon.shadow.metadata.manifests import SourceFileEntry
from gnomon.shadow.metadata.snapshot_view import open_view
from gnomon.shadow.metadata.source_files import source_root
from gnomon.shadow.storage import Storage, storage_at
from gnomon.shadow.verify.snapshot import verify
from gnomon.sources.parquet.map_codec import decode_maps
from tests.shadow.make_index import index_source, write_maps, write_source

pytestmark = pytest.mark.skipif(not kernel.COMPILED, reason="value maps need compiled loops")
ROWS = 300
PAGES = {"use_dictionary": False, "data_page_size": 1 << 19, "write_page_index": True}
DAYS = ["dt=0/a.parquet", "dt=1/a.parquet"]


def table(day: int) -> pa.Table:
    dice = random.Random(day)
    texts = [dice.randbytes(2000).hex() for _ in range(ROWS)]
    return pa.table({"k": range(day * ROWS, (day + 1) * ROWS), "text": texts})


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    write_source(tmp_path / "lake", {path: table(day) for day, path in enumerate(DAYS)}, **PAGES)
    return tmp_path


@pytest.fixture
def deep(lake: Path) -> Path:
    index_source(lake / "lake", lake / "index", ["k"], buckets=2, page_maps="deep")
    return lake


def index_of(lake: Path) -> Storage:
    return storage_at(str(lake / "index"))


def covered(lake: Path) -> dict[str, SourceFileEntry]:
    return open_view(index_of(lake)).covered


def first_fetch(lake: Path, key: int) -> int:
    """The bytes of the source that a fetch reads from a file that was never opened. Checks the row."""
    stats = FetchStats()
    with open_index(str(lake / "index")) as index:
        index.lookup(key)
        found = index.fetch(key, ["text"], stats=stats)
    assert found == table(key // ROWS).select(["text"]).slice(key % ROWS, 1).to_pylist()
    return stats.source.bytes


def check_deep(lake: Path) -> None:
    for key in (3, 150, 299, 300, 450, 599):
        assert first_fetch(lake, key) < 250_000  # of 1.3 MB: the footer, a key page, parts of a page of text


def upgrade(lake: Path) -> list[str]:
    """Record missing value maps, as `gnomon build --page-maps deep` does. Returns the files."""
    index = index_of(lake)
    files = without_maps(index, "parquet", covered(lake).values(), deep=True)
    made = write_maps(source_root(str(lake / "lake")), index, new_segment_id(), files, True) if files else {}
    record(index, made, "deep")
    return sorted(file.path for file in files)


def test_the_first_fetch_from_a_file_reads_parts_of_its_pages(deep: Path) -> None:
    check_deep(deep)
    report = verify(index_of(deep), None)
    assert (report.faults, report.page_maps) == ([], 2)


def test_an_index_with_page_maps_gets_value_maps_in_one_commit_that_later_builds_follow(lake: Path) -> None:
    index_source(lake / "lake", lake / "index", ["k"], buckets=2, page_maps=True)
    assert first_fetch(lake, 150) > 500_000
    before = open_view(index_of(lake))
    assert upgrade(lake) == DAYS
    after = open_view(index_of(lake))
    assert (after.snapshot.number, after.spec) == (2, replace(before.spec, page_maps="deep"))
    check_deep(lake)
    assert upgrade(lake) == []
    assert open_view(index_of(lake)).snapshot.number == 2
    write_source(lake / "lake", {DAYS[1]: table(1)}, **PAGES)
    index_source(lake / "lake", lake / "index", ["k"], page_maps=True)  # the setting stays
    assert open_view(index_of(lake)).spec.page_maps == "deep"
    check_deep(lake)


def test_merged_segments_keep_them_and_vacuum_removes_those_of_dead_files(deep: Path) -> None:
    write_source(deep / "lake", {DAYS[1]: table(1)}, **PAGES)
    index_source(deep / "lake", deep / "index", ["k"])
    compact(index_of(deep))
    vacuum(index_of(deep), grace_seconds=0, unnamed_seconds=0)
    check_deep(deep)
    assert verify(index_of(deep), None).is_sound


def test_damaged_ones_are_an_error_until_they_are_made_anew(deep: Path) -> None:
    entry = covered(deep)[DAYS[0]].page_maps
    assert entry is not None
    path = deep / "index" / entry.path
    data, at = path.read_bytes(), entry.offset + entry.length - 20
    path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
    with pytest.raises(DamagedIndexFile, match="run gnomon build INDEX --page-maps"):
        open_index(str(deep / "index")).fetch(7)
    assert len(verify(index_of(deep), 4).faults) == 1
    assert upgrade(deep) == [DAYS[0]]
    check_deep(deep)


def test_verify_all_compares_them_with_the_pages(deep: Path) -> None:
    """The lying block has the checksum of a fragment that the page does not have, under a valid checksum of its own."""
    index, file = index_of(deep), covered(deep)[DAYS[0]]
    assert file.page_maps is not None
    block = prove_page_maps(index, "parquet", file.page_maps, file.digest)
    _, values = decode_maps(block, file.digest)
    assert values is not None
    at = 28 + int.from_bytes(block[24:28], "little")
    inflated = bytearray(isal_zlib.decompress(block[at:]))
    check = values.get(next(iter(values))).stored().parts[1][:4]  # type: ignore[union-attr, index]
    where = inflated.index(check)
    inflated[where] ^= 1
    body = block[8:at] + isal_zlib.compress(bytes(inflated), 3)
    lie = block[:4] + zlib.crc32(body).to_bytes(4, "little") + body
    (lying,) = write_page_maps(index, page_maps_path(new_segment_id(), 0), [lie])
    record(index, {file: lying}, "deep")
    assert verify(index, 4).faults == []
    faults = [(one.path, one.what) for one in verify(index, None).faults]
    assert faults == [(f"{index.root}/{lying.path}", f"not the page maps of {DAYS[0]}")]
    first_fetch(deep, 3)  # the page is read whole where a check fails
