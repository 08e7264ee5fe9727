"""The jobs on stores that Spark itself does not read: source and index on S3, and on HDFS."""

import base64
import random
from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from gnomon.indexer import build, load
from gnomon.shadow import FetchStats, StalePointer
from gnomon.shadow.storage import Storage, storage_at
from tests.indexer.test_formats import CASES, ENDINGS
from tests.opened import open_index
from tests.shadow.make_index import write_source
from tests.spark_fixtures import in_workers
from tests.stores.process import Store

pytestmark = pytest.mark.spark


@pytest.fixture
def lake(remote_store: Store, remote_root: str, spark: SparkSession) -> Iterator[str]:
    """A folder on a store that Spark's Python workers can reach."""
    with in_workers(spark, remote_store.variables):
        yield remote_root


def put(storage: Storage, path: str, first: int, rows: int, **more: pa.Array) -> None:
    numbers = range(first, first + rows)
    table = pa.table({"url": [f"u{n}" for n in numbers], "user.id": pa.array(numbers, pa.int32()), **more})
    write_source(storage, {path: table}, row_group_size=100)


def test_an_index_and_a_source_on_one_store(spark: SparkSession, lake: str) -> None:
    source, index = f"{lake}/crawl", f"{lake}/crawl_index"
    storage = storage_at(source)
    put(storage, "dt=2026-01-01/a b%.parquet", 0, 1_000)
    put(storage, "dt=2026-01-01/b.parquet", 1_000, 10, html=pa.array(["<html>"] * 10))
    put(storage, "dt=2026-01-02/c.parquet", 5, 1)

    built = build(spark, source, index, ["url", "user.id"], buckets=2, page_maps=True)
    assert (built.snapshot, built.new_files, built.rows, built.mapped_files) == (1, 3, 1_011, 3)
    assert not build(spark, source, index, ["url", "user.id"]).committed
    opened, stats = open_index(index), FetchStats()
    assert [row["dt"] for row in opened.fetch(("u5", 5), stats=stats)] == ["2026-01-01", "2026-01-02"]
    assert stats.source_files == 2
    assert 2 <= stats.source.page_maps.reads <= 3  # all three may be opened ahead
    assert opened.fetch(("u1003", 1003), columns=["html", "dt"]) == [{"html": "<html>", "dt": "2026-01-01"}]
    assert not opened.contains(("u5", 6))

    keys = spark.createDataFrame([("u5", 5), ("u999", 999), ("nobody", 1)], "url string, `user.id` int")
    found = load(spark, index, keys, columns=["dt"]).collect()
    assert sorted((row["url"], row["dt"]) for row in found) == [
        ("u5", "2026-01-01"),
        ("u5", "2026-01-02"),
        ("u999", "2026-01-01"),
    ]

    put(storage, "dt=2026-01-02/c.parquet", 6, 1)
    with pytest.raises(StalePointer, match=r"c\.parquet: the file changed since it was indexed \(its etag differs\)"):
        opened.fetch(("u5", 5), where={"dt": "2026-01-02"})
    storage.delete("dt=2026-01-01/b.parquet")
    with pytest.raises(StalePointer, match=r"b\.parquet: the file is gone since it was indexed"):
        opened.fetch(("u1003", 1003))
    assert [info.path for info in opened.coverage().changed] == ["dt=2026-01-02/c.parquet"]

    again = build(spark, source, index, ["url", "user.id"])
    assert (again.snapshot, again.new_files, again.changed_files, again.vanished_files) == (2, 0, 1, 1)
    assert opened.refresh()
    assert [row["dt"] for row in opened.fetch(("u6", 6))] == ["2026-01-01", "2026-01-02"]
    assert opened.fetch(("u1003", 1003)) == []


def test_a_source_of_one_file(spark: SparkSession, lake: str) -> None:
    put(storage_at(lake), "one.parquet", 0, 10)
    built = build(spark, f"{lake}/one.parquet", f"{lake}/index", ["user.id"], include=["url"])
    assert built.rows == 10
    assert open_index(f"{lake}/index").fetch(3) == [{"url": "u3", "user.id": 3}]


def test_files_of_every_format_are_indexed_fetched_and_loaded_by_range(spark: SparkSession, lake: str) -> None:
    noise = random.Random(7)
    rows = [(i, base64.b64encode(noise.randbytes(1_500)).decode()) for i in range(2_000)]  # incompressible
    for name, case in CASES.items():
        source, place = f"{lake}/{name}", f"{lake}/{name}_index"
        content = case.write(rows)
        storage_at(source).put_new(f"a{ENDINGS.get(name, '')}", [content])
        assert build(spark, source, place, [case.number], buckets=1).rows == 2_000, name
        index, asked = open_index(place), (1_900, 700)
        for number, most in zip(asked, (2, 10), strict=True):  # the first fetch also reads the file's own metadata
            stats = FetchStats()
            row = {case.number: case.kind(number), case.text: rows[number][1]}
            assert index.fetch(str(number), stats=stats) == [row], name
            assert 0 < stats.source.bytes < len(content) / most, name
        keys = spark.createDataFrame([(number,) for number in asked], f"`{case.number}` bigint")
        loaded = {row[case.text] for row in load(spark, place, keys, [case.text]).collect()}
        assert loaded == {rows[number][1] for number in asked}, name
