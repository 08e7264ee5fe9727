"""The life of an index whose files and source lie on a store: all commands, on each kind of store."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from gnomon.indexer import append_new, build, filter_new, load
from gnomon.service.settings.table import Settings
from gnomon.shadow import open_index
from gnomon.shadow.maintenance.compaction import compact
from gnomon.shadow.maintenance.vacuuming import vacuum
from gnomon.shadow.storage import storage_at
from gnomon.shadow.verify.snapshot import verify
from tests.end_to_end.killable import Kill, Killable
from tests.service.lake import Client
from tests.shadow.make_index import write_source
from tests.spark_fixtures import in_workers
from tests.stores.process import Store

ROWS = 400
COLUMNS = "k bigint, text string"
STEPS = (
    *("staged", "committed", "between the moves", "moved", "index files written", "before the snapshot"),
    *("after the snapshot", "before the batch's record", "after the batch's record", "finished"),
)


@pytest.fixture
def lake(remote_store: Store, remote_root: str, spark: SparkSession) -> Iterator[str]:
    """A folder on a store that Spark's Python workers can reach, with a source of two files."""
    with in_workers(spark, remote_store.variables):
        put(f"{remote_root}/lake", "a", 0, 300)
        put(f"{remote_root}/lake", "b", 300, ROWS)
        yield remote_root


def put(place: str, name: str, first: int, last: int) -> None:
    table = pa.table({"k": range(first, last), "text": [text_of(k) for k in range(first, last)]})
    write_source(storage_at(place), {f"{name}.parquet": table}, row_group_size=100)


def text_of(key: int) -> str:
    return f"row {key} " * 50


def check(index: str, rows: int) -> None:
    """The index has these rows and no others, and every file of it is sound."""
    opened = open_index(index)
    found = opened.fetch_many(range(rows + 5))
    assert [[row["text"] for row in one] for one in found] == [[text_of(k)] for k in range(rows)] + [[]] * 5
    report = verify(storage_at(index), sample=None)
    assert report.is_sound, report.faults


def test_an_index_lives_on_a_store(spark: SparkSession, lake: str) -> None:
    source, index = f"{lake}/lake", f"{lake}/index"
    assert build(spark, source, index, ["k"], buckets=2, page_maps=True).rows == ROWS
    assert not build(spark, source, index, ["k"]).committed
    check(index, ROWS)

    client = Client(Settings(indexes=[index]))
    assert client.get("/rows/7").json()["rows"] == [{"k": 7, "text": text_of(7)}]
    assert client.get("/rows/9999").status_code == 404
    batch = client.post({"keys": [1, 399, 9999]}).json()
    assert [one["count"] for one in batch["results"]] == [1, 1, 0]

    keys = spark.createDataFrame([(3,), (301,), (5000,)], "k bigint")
    assert {(row.k, row.text) for row in load(spark, index, keys).collect()} == {(3, text_of(3)), (301, text_of(301))}

    new = spark.createDataFrame([(k, text_of(k)) for k in range(350, 450)], COLUMNS)
    assert filter_new(spark, index, new).count() == 50
    result = append_new(spark, index, new, "monday")
    assert (result.appended, result.already_loaded) == (50, 50)
    assert append_new(spark, index, new, "monday").known_batch
    assert client.served.refresh()
    assert client.get("/rows/449").json()["count"] == 1
    check(index, 450)

    put(source, "c", 450, 500)
    assert build(spark, source, index, ["k"]).new_files == 1
    assert compact(storage_at(index)) is not None
    vacuum(storage_at(index), grace_seconds=0, unnamed_seconds=0)
    check(index, 500)

    copied = f"{lake}/copy"
    for info in list(storage_at(source).list()):
        storage_at(copied).put_new(info.path, [storage_at(source).read(info.path)])
    adopted = build(spark, copied, index, ["k"], adopt=True)
    assert (adopted.adopted_files, adopted.rows_indexed) == (4, 0)
    storage_at(source).delete_folder("")
    check(index, 500)


@pytest.mark.nightly
def test_appends_killed_on_a_store_are_finished_once(lake: str, tmp_path: Path) -> None:
    """The next append after each kill is another batch, or the same one again."""
    source, index, rows = f"{lake}/lake", f"{lake}/index", ROWS
    child = Killable(tmp_path, "appends")
    try:
        assert not child.ask("build", source, index, ["k"]).error
        for number, step in enumerate(STEPS):
            batch = str(tmp_path / f"batch-{number}")
            put(batch, "rows", rows - 20, rows + 30)
            words = ("append", index, batch, f"batch {number}", "dedup")
            assert child.ask(*words, kill=Kill(step)).killed == step
            again = child.ask(*words)
            assert not again.error, (step, again.error)
            rows += 30
            check(index, rows)
            assert storage_at(source).list(hidden=True) is not None
    finally:
        child.close()
    assert {info.path[0] for info in storage_at(source).list(hidden=True)} <= set("abp"), "staged files are left"


@pytest.mark.nightly
def test_a_compaction_killed_on_a_store_leaves_a_whole_snapshot(lake: str, tmp_path: Path) -> None:
    source, index = f"{lake}/lake", f"{lake}/index"
    child = Killable(tmp_path, "compactions")
    try:
        assert not child.ask("build", source, index, ["k"]).error
        for number, step in enumerate(("index files written", "before the snapshot", "after the snapshot")):
            put(source, f"more-{number}", ROWS + 10 * number, ROWS + 10 * number + 10)
            assert not child.ask("build", source, index, ["k"]).error
            assert child.ask("compact", index, kill=Kill(step)).killed == step
            check(index, ROWS + 10 * number + 10)
            assert not child.ask("compact", index).error
            vacuum(storage_at(index), grace_seconds=0, unnamed_seconds=0)
            check(index, ROWS + 10 * number + 10)
    finally:
        child.close()
