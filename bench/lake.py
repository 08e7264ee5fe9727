"""The data of the benchmarks: one web crawl as two sources, and the requested keys."""

import hashlib
import json
import random
import shutil
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from gnomon.commands import crawl

AS_SPARK_WRITES, MEGABYTE_PAGES = "spark", "pages"  # the two sources: subfolders of the benchmark's folder
PARTITIONING = ds.partitioning(pa.schema([("dt", pa.string())]), flavor="hive")
PAGE_BYTES = 1024 * 1024
# pyarrow checks the size of a page only between batches of this number of rows. With its default of 1,024, a page of 5
# KB rows has 5 MB.
WRITE_BATCH_ROWS = 64
FIRST_ABSENT_PAGE = 2**31
PARAMETERS = "parameters.json"
COPY_BATCH_ROWS = 2_000


class Keys(NamedTuple):
    """URLs of the crawl for warm-up and for measurement; absent URLs."""

    warm_up: list[str]
    present: list[str]
    absent: list[str]


def sources(spark: SparkSession, folder: Path, pages: int) -> dict[str, Path]:
    """The sources below `folder`. Makes them, unless they exist with these parameters."""
    wanted = {
        "pages": pages,
        "generator": hashlib.sha256(Path(crawl.__file__).read_bytes()).hexdigest(),
        "writer of pages": [PAGE_BYTES, WRITE_BATCH_ROWS],
        "versions": {name: version(name) for name in ("pyspark", "pyarrow")},
    }
    places = {name: folder / name / "source" for name in (AS_SPARK_WRITES, MEGABYTE_PAGES)}
    note = folder / PARAMETERS
    if not note.exists() or json.loads(note.read_text()) != wanted:
        note.unlink(missing_ok=True)
        for place in places.values():
            shutil.rmtree(place.parent, ignore_errors=True)
        crawl.write_crawl(spark, str(places[AS_SPARK_WRITES]), pages)
        write_megabyte_pages(places[AS_SPARK_WRITES], places[MEGABYTE_PAGES])
        note.write_text(json.dumps(wanted, indent=1))  # last: an interrupted run begins again
    return places


def write_megabyte_pages(crawled: Path, target: Path) -> None:
    """Write the rows of `crawled` with pyarrow: pages of 1 MB, page index, one file a partition, the same row
    groups."""
    for day in sorted(crawled.glob("dt=*")):
        (target / day.name).mkdir(parents=True)
        schema = pa.schema([field for field in crawl.SCHEMA if field.name != "dt"])
        with pq.ParquetWriter(
            target / day.name / "rows.parquet",
            schema,
            data_page_size=PAGE_BYTES,
            write_batch_size=WRITE_BATCH_ROWS,
            write_page_index=True,
        ) as writer:
            for path in sorted(day.glob("*.parquet")):
                with pq.ParquetFile(path) as file:
                    for group in range(file.num_row_groups):
                        writer.write_table(file.read_row_group(group).cast(schema))


def all_rows(source: Path) -> Iterator[pa.RecordBatch]:
    """The rows of a source for a copy, `crawl.SCHEMA` in columns and types."""
    dataset = parquet_dataset(source)
    columns = {field.name: pc.field(field.name).cast(field.type) for field in crawl.SCHEMA}
    scanner = dataset.scanner(columns=columns, batch_size=COPY_BATCH_ROWS, batch_readahead=4, fragment_readahead=1)
    yield from scanner.to_batches()


def parquet_dataset(source: Path) -> ds.Dataset:
    """A source as pyarrow reads it, with `dt` as text."""
    return ds.dataset(source, format="parquet", partitioning=PARTITIONING)


def keys_of(pages: int, warm_up: int, present: int, absent: int, seed: int = 8) -> Keys:
    """Random keys, no page twice; the same arguments give the same keys."""
    if warm_up + present > pages:
        raise ValueError(f"{warm_up} keys to warm up and {present} to measure are more than {pages} pages")
    chosen = random.Random(seed).sample(range(pages), warm_up + present)
    urls = crawl.page_urls(np.array(chosen)).to_pylist()
    missing = crawl.page_urls(np.arange(FIRST_ABSENT_PAGE, FIRST_ABSENT_PAGE + absent)).to_pylist()
    return Keys(urls[:warm_up], urls[warm_up:], missing)


def folder_bytes(folder: Path) -> int:
    """The size of all files below a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
