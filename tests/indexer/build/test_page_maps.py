"""`build(page_maps=True)` records the page maps of each file, and so do all later builds."""

import json
import random
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from gnomon.indexer import append_new, build
from gnomon.shadow.errors import DamagedIndexFile, DamagedSource, UsageError
from gnomon.shadow.fetch.source_files import FetchStats
from gnomon.shadow.metadata import history
from gnomon.shadow.metadata.snapshot_view import open_view
from gnomon.shadow.metadata.snapshots import snapshot_numbers
from gnomon.shadow.storage import storage_at
from gnomon.shadow.verify.snapshot import verify
from tests.opened import open_index
from tests.shadow.make_index import write_source

PAGES = {"row_group_size": 60, "data_page_size": 100, "write_batch_size": 10, "use_dictionary": False}


def table(begin: int, end: int) -> pa.Table:
    return pa.table({"k": range(begin, end), "text": [f"row {i}" for i in range(begin, end)]})


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    days = {f"dt={day}/a.parquet": table(100 * day, 100 * (day + 1)) for day in range(3)}
    write_source(tmp_path / "lake", days | {"dt=1/empty.parquet": table(0, 0)}, **PAGES)
    return tmp_path


def places(lake: Path) -> tuple[str, str]:
    return str(lake / "lake"), str(lake / "index")


def mapped(lake: Path) -> list[str]:
    """The files whose rows were fetched with recorded page maps, after a check of the rows."""
    covered = open_view(storage_at(str(lake / "index"))).covered
    report = verify(storage_at(str(lake / "index")), None)
    assert report.faults == []
    having = sorted(path for path, file in covered.items() if file.page_maps is not None)
    assert report.page_maps == len(having)
    stats, index = FetchStats(), open_index(str(lake / "index"))
    keys = range(0, index.view.snapshot.rows, 7)
    rows = [row for found in index.fetch_many(list(keys), stats=stats) for row in found]
    assert [(row["k"], row["text"]) for row in rows] == [(key, f"row {key}") for key in keys]
    assert stats.source.page_maps.reads == len(having)
    return having


DAYS = [f"dt={day}/a.parquet" for day in range(3)]


def test_page_maps_are_recorded_by_the_build_that_is_asked_and_by_those_after_it(lake: Path) -> None:
    first = build(None, *places(lake), ["k"], page_maps=True)
    assert (first.snapshot, first.mapped_files) == (1, 3)  # the file without rows needs none
    assert mapped(lake) == DAYS
    entries = [file.page_maps for file in open_view(storage_at(places(lake)[1])).covered.values() if file.page_maps]
    assert first.page_map_bytes == sum(entry.length for entry in entries)
    again = build(None, *places(lake), ["k"], page_maps=True)
    assert (again.snapshot, again.committed, again.mapped_files) == (1, False, 0)
    write_source(lake / "lake", {"dt=3/a.parquet": table(300, 350)}, **PAGES)
    nightly = build(None, *places(lake), ["k"])
    assert (nightly.snapshot, nightly.mapped_files) == (2, 1)
    assert mapped(lake) == [*DAYS, "dt=3/a.parquet"]


def test_an_index_without_page_maps_gets_them_without_being_indexed_again(lake: Path) -> None:
    build(None, *places(lake), ["k"], flat=True)
    assert mapped(lake) == []
    files = sorted((lake / "index").rglob("*.btree.avro"))
    write_source(lake / "lake", {"dt=3/a.parquet": table(300, 350)}, **PAGES)
    (lake / "lake/dt=1/empty.parquet").unlink()
    result = build(None, *places(lake), ["k"], page_maps=True)
    assert (result.snapshot, result.new_files, result.vanished_files, result.mapped_files) == (3, 1, 1, 4)
    assert mapped(lake) == [*DAYS, "dt=3/a.parquet"]
    assert [record.operation for record in history(storage_at(places(lake)[1]))] == ["build", "page-maps", "build"]
    assert set(files) <= set((lake / "index").rglob("*.btree.avro"))


def test_asked_again_a_build_makes_anew_what_is_damaged(lake: Path) -> None:
    build(None, *places(lake), ["k"], page_maps=True)
    broken = sorted((lake / "index/_shadow/page_maps").rglob("*.maps"))[0]
    data = broken.read_bytes()
    broken.write_bytes(data[:-1] + bytes([data[-1] ^ 0xFF]))
    with pytest.raises(DamagedIndexFile, match="run gnomon build INDEX --page-maps"):
        open_index(places(lake)[1]).fetch_many(list(range(300)))
    assert not build(None, *places(lake), ["k"]).committed  # without the option it does not look
    result = build(None, *places(lake), ["k"], page_maps=True)
    assert (result.snapshot, result.mapped_files) == (2, 1)
    assert mapped(lake) == DAYS


def test_a_build_anew_records_them_where_the_index_does_or_where_it_is_asked(lake: Path) -> None:
    build(None, *places(lake), ["k"])
    assert build(None, *places(lake), ["k"], full=True, page_maps=True).mapped_files == 3
    assert mapped(lake) == DAYS
    assert build(None, *places(lake), ["k"], full=True).mapped_files == 3
    assert mapped(lake) == DAYS


def test_deep_ones_let_the_first_fetch_read_parts_of_pages_also_of_what_dedup_appends(
    spark: SparkSession, tmp_path: Path
) -> None:
    dice = random.Random(1)
    texts = [dice.randbytes(2000).hex() for _ in range(400)]
    lake = tmp_path / "lake"
    write_source(lake, {"a.parquet": pa.table({"k": range(200), "text": texts[:200]})}, use_dictionary=False)
    assert build(spark, *places(tmp_path), ["k"], page_maps="deep").mapped_files == 1
    rows = spark.createDataFrame(list(enumerate(texts)), "k bigint, text string").coalesce(1)
    assert append_new(spark, places(tmp_path)[1], rows, "b").appended == 200
    for key in (100, 300):
        stats = FetchStats()
        with open_index(places(tmp_path)[1]) as index:
            index.lookup(key)
            assert index.fetch(key, ["text"], stats=stats) == [{"text": texts[key]}]
        assert stats.source.bytes < 300_000  # of 800 KB in one page
    report = verify(storage_at(places(tmp_path)[1]), None)
    assert (report.faults, report.page_maps) == ([], 2)
    with pytest.raises(UsageError, match="page_maps: expected False, True or 'deep', found 'all'"):
        build(spark, *places(tmp_path), ["k"], page_maps="all")  # type: ignore[arg-type]


def test_a_format_without_pages_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    (tmp_path / "lake").mkdir()
    (tmp_path / "lake/a.jsonl").write_text("".join(json.dumps({"k": i}) + "\n" for i in range(9)))
    with pytest.raises(UsageError, match="--page-maps: files of format jsonl have no page maps; expected parquet"):
        build(None, *places(tmp_path), ["k"], page_maps=True)
    assert not (tmp_path / "index").exists()
    build(None, *places(tmp_path), ["k"])
    with pytest.raises(UsageError, match="--page-maps: files of format jsonl have no page maps"):
        build(None, *places(tmp_path), ["k"], page_maps=True)
    assert snapshot_numbers(storage_at(places(tmp_path)[1])) == [1]


def test_a_file_whose_page_headers_are_damaged_fails_the_build(lake: Path) -> None:
    """The header belongs to a column that is not indexed, which a build without page maps does not read."""
    path = lake / "lake/dt=2/a.parquet"
    data = path.read_bytes()
    at = data.index(b"row 230") - 40  # a page of the column, somewhere in its header
    path.write_bytes(data[:at] + b"\xff" * 36 + data[at + 36 :])
    with pytest.raises(DamagedSource, match=str(path)):
        build(None, *places(lake), ["k"], page_maps=True)
    assert snapshot_numbers(storage_at(places(lake)[1])) == []
    assert build(None, *places(lake), ["k"]).committed
