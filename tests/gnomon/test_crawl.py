"""The generated crawl: what the demo and the benches rely on."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from gnomon.commands import crawl

PAGES = 3_000
ROWS = 600


def read(folder: Path) -> pa.Table:
    """The rows of a Parquet folder in one order, `dt` as text."""
    return in_order(pq.read_table(folder, schema=crawl.SCHEMA))


def in_order(table: pa.Table) -> pa.Table:
    return table.sort_by([("dt", "ascending"), ("url", "ascending")]).combine_chunks()


@pytest.fixture(scope="module")
def crawl_folder(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("crawl") / "crawl"
    crawl.write_crawl(spark, str(folder), pages=PAGES, partitions=3)
    return folder


@pytest.mark.spark
def test_a_crawl_lies_in_day_folders_and_its_first_day_is_one_file(crawl_folder: Path) -> None:
    files = {day.name: len(list(day.glob("*.snappy.parquet"))) for day in crawl_folder.glob("dt=*")}
    assert files == {"dt=2026-01-01": 1, "dt=2026-01-02": 2, "dt=2026-01-03": 2}
    assert (crawl_folder / "_SUCCESS").exists()


@pytest.mark.spark
def test_spark_reads_the_columns_of_the_crawl(spark: SparkSession, crawl_folder: Path) -> None:
    frame = spark.read.parquet(str(crawl_folder))
    assert frame.dtypes[:5] == [
        ("url", "string"),
        ("merchant_id", "bigint"),
        ("crawl_ts", "timestamp"),
        ("status", "int"),
        ("html", "string"),
    ]
    assert frame.columns[5:] == ["dt"]
    assert frame.count() == PAGES


@pytest.mark.spark
def test_this_process_writes_the_same_rows_into_the_same_folders(crawl_folder: Path, tmp_path: Path) -> None:
    crawl.write_crawl(None, str(tmp_path / "crawl"), pages=PAGES, partitions=3)
    assert read(tmp_path / "crawl").equals(read(crawl_folder))


@pytest.mark.spark
def test_urls_of_a_crawl_are_those_of_its_page_numbers_each_once(crawl_folder: Path) -> None:
    urls = read(crawl_folder)["url"].to_pylist()
    assert len(set(urls)) == PAGES
    assert set(urls) == set(crawl.page_urls(np.arange(PAGES)).to_pylist())


@pytest.mark.spark
def test_pages_are_one_to_nine_kilobytes_and_hold_their_url(crawl_folder: Path) -> None:
    table = read(crawl_folder)
    sizes = pc.binary_length(table["html"]).to_numpy()
    assert 1_000 <= sizes.min() < 2_000
    assert 8_000 < sizes.max() <= 9_216
    for row in table.slice(0, 20).to_pylist():
        assert row["html"].startswith("<!doctype html>")
        assert row["html"].endswith("</html>\n")
        assert f'href="{row["url"]}"' in row["html"]


@pytest.mark.spark
def test_snappy_halves_the_pages_but_does_not_swallow_them(crawl_folder: Path) -> None:
    (file,) = crawl_folder.glob("dt=2026-01-01/*.parquet")
    html = pq.read_metadata(file).row_group(0).column(4)
    assert html.compression == "SNAPPY"
    assert 2 < html.total_uncompressed_size / html.total_compressed_size < 3


@pytest.mark.spark
def test_pages_are_crawled_within_their_day(crawl_folder: Path) -> None:
    for row in read(crawl_folder).select(["dt", "crawl_ts"]).to_pylist():
        midnight = datetime.fromisoformat(row["dt"]).replace(tzinfo=UTC)
        assert midnight <= row["crawl_ts"] < midnight + timedelta(days=1)


@pytest.mark.spark
def test_rows_follow_from_the_seed_not_from_the_tasks_that_make_them(
    crawl_folder: Path, spark: SparkSession, tmp_path: Path
) -> None:
    files = crawl.crawl_files(PAGES, 3)
    batches = [batch for file in files for batch in crawl.file_batches(file, crawl.same_number, seed=2026)]
    table = read(crawl_folder)
    assert table == in_order(pa.Table.from_batches(batches))

    crawl.write_crawl(spark, str(tmp_path / "other"), pages=PAGES, partitions=3, seed=7)
    other = read(tmp_path / "other")
    assert other["url"] == table["url"]
    assert set(other["html"].to_pylist()).isdisjoint(table["html"].to_pylist())


@pytest.mark.spark
def test_writing_a_crawl_leaves_the_session_as_it_was(spark: SparkSession, tmp_path: Path) -> None:
    name = "spark.sql.maxConcurrentOutputFileWriters"
    before = spark.conf.get(name)
    crawl.write_crawl(spark, str(tmp_path / "crawl"), pages=10, partitions=1)
    assert spark.conf.get(name) == before
    assert [day.name for day in (tmp_path / "crawl").glob("dt=*")] == ["dt=2026-01-01"]


@pytest.mark.spark
def test_half_of_an_increment_is_known_and_some_of_it_repeats(spark: SparkSession, tmp_path: Path) -> None:
    counts = crawl.write_increment(spark, str(tmp_path / "batch"), crawl_pages=PAGES, rows=ROWS)
    assert not list((tmp_path / "batch").glob("dt=*"))
    table = read(tmp_path / "batch")
    known = set(crawl.page_urls(np.arange(PAGES)).to_pylist())
    urls = table["url"].to_pylist()
    old = [url for url in urls if url in known]
    assert counts == crawl.Increment(rows=len(urls), known=len(old), new=len(set(urls) - known))
    assert len(old) == len(urls) / 2 == ROWS / 2
    assert len(set(urls)) == ROWS * 9 // 10
    assert set(table["dt"].to_pylist()) == {"2026-01-07"}
    assert spark.read.parquet(str(tmp_path / "batch")).dtypes[5] == ("dt", "string")


def test_page_urls_never_meet_and_show_what_urls_can_hold() -> None:
    urls = crawl.page_urls(np.arange(200_000))
    assert pc.count_distinct(urls).as_py() == 200_000
    for part in (".example/", "?", "&", "%20", "%2F", "é", "毛布"):
        assert pc.any(pc.match_substring(urls, part)).as_py(), part
    assert pc.all(pc.starts_with(urls, "https://")).as_py()
    assert len({url.split("/")[2] for url in urls.slice(0, 1_000).to_pylist()}) == len(crawl.HOSTS)


def test_a_page_number_names_a_url_without_reading_data() -> None:
    assert crawl.page_url(5) == crawl.page_urls(np.arange(10))[5].as_py()
    assert crawl.page_url(2**32 - 1) not in set(crawl.page_urls(np.arange(10_000)).to_pylist())


@pytest.mark.parametrize("partitions", [1, 2, 6])
@pytest.mark.parametrize("pages", [1, 17, 200_000])
def test_files_cover_every_page_once(pages: int, partitions: int) -> None:
    files = crawl.crawl_files(pages, partitions)
    assert files[0].start == 0
    assert files[-1].stop == pages
    assert [file.stop for file in files[:-1]] == [file.start for file in files[1:]]
    assert {file.day for file in files} == set(range(partitions))


@pytest.mark.parametrize("rows", [2, 3, 20, 999, 1_000, 20_000])
def test_an_increment_takes_half_its_rows_from_the_crawl(rows: int) -> None:
    pages = crawl.increment_pages(np.arange(rows), crawl_pages=20_000, rows=rows)
    assert (pages < 20_000).sum() == (rows + 1) // 2
    assert np.unique(pages).size == rows - rows // 20 * 2
