"""The cost of a look-up with more and more partitions, in both layouts of an index: `python -m bench.partitions`.

The same rows are spread over 1, 30 and 365 partitions and indexed twice: in the partition folders, and flat. The table
goes to standard output.
"""

import random
import shutil
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import typer
from pyspark.sql import SparkSession

from bench.page import RecordOption, Report, digits, head, row
from gnomon.commands.crawl import page_urls
from gnomon.commands.output import say
from gnomon.commands.spark import spark_session
from gnomon.indexer import build
from gnomon.shadow import OpenIndex
from gnomon.shadow.fetch.results import FetchStats
from gnomon.shadow.lookup.plan import parse_key
from tests.opened import open_index

BENCH = "bench.partitions"
LIBRARIES = ("gnomon-index", "pyspark", "pyarrow", "numpy", "fastavro", "isal")
PARTITIONS = (1, 30, 365)
LAYOUTS = {"partitioned": False, "flat": True}
KEYS, WARM_UP = 300, 50
FIRST_ABSENT = 2**31
COLUMNS = (
    "layout", "partitions", "index files", "index bytes a row", "build s",
    "present key µs", "reads", "absent key µs", "reads", "first look-up after opening ms", "reads",
)  # fmt: skip

app = typer.Typer(pretty_exceptions_enable=False, add_completion=False, rich_markup_mode=None)


class WrongAnswer(Exception):
    """A look-up of a present key did not find one row, or one of an absent key found some."""


class Cost(NamedTuple):
    """Medians: microseconds of a look-up, and ranged reads it made."""

    micros: float
    reads: float


def write_source(folder: Path, rows: int, partitions: int) -> None:
    """Write one Parquet file a partition, with the URLs in random order."""
    order = np.random.default_rng(1).permutation(rows)
    for number, pages in enumerate(np.array_split(order, partitions)):
        path = folder / f"day={number:04d}" / "part-00000.parquet"
        path.parent.mkdir(parents=True)
        pq.write_table(pa.table({"url": page_urls(pages), "page": pages}), path)


def look_up(index: OpenIndex, urls: Sequence[str], expected: int) -> Cost:
    """The cost of finding each of these keys."""
    micros, reads = [], []
    for url in urls:
        stats = FetchStats()
        begin = time.perf_counter()
        found = index.find([parse_key(url, index.spec)], stats.index)[0]
        micros.append((time.perf_counter() - begin) * 1e6)
        reads.append(stats.index.reads)
        if len(found) != expected:
            raise WrongAnswer(f"{url} has {len(found)} rows, expected {expected}")
    return Cost(statistics.median(micros), statistics.median(reads))


def measure(spark: SparkSession, folder: Path, rows: int, partitions: int) -> list[str]:
    """The lines of both layouts."""
    shutil.rmtree(folder, ignore_errors=True)
    source = folder / "source"
    write_source(source, rows, partitions)
    chance = random.Random(1)
    present = page_urls(np.array(chance.sample(range(rows), min(KEYS + WARM_UP, rows)))).to_pylist()
    absent = page_urls(np.arange(FIRST_ABSENT, FIRST_ABSENT + KEYS + WARM_UP)).to_pylist()
    lines = []
    for layout, flat in LAYOUTS.items():
        place = str(folder / layout)
        begin = time.perf_counter()
        result = build(spark, str(source), place, ["url"], flat=flat)
        seconds = time.perf_counter() - begin
        firsts = [look_up(open_index(place), [url], 1) for url in present[:10]]
        first = Cost(statistics.median(one.micros for one in firsts), statistics.median(one.reads for one in firsts))
        index = open_index(place)
        look_up(index, present[:WARM_UP], 1)
        look_up(index, absent[:WARM_UP], 0)
        there, not_there = look_up(index, present[WARM_UP:], 1), look_up(index, absent[WARM_UP:], 0)
        cells = [
            layout,
            f"{partitions:,}",
            f"{result.index_files:,}",
            digits(result.index_bytes / rows),
            digits(seconds),
        ]
        for cost, unit in ((there, 1.0), (not_there, 1.0), (first, 1e3)):
            cells += [digits(cost.micros / unit), f"{cost.reads:g}"]
        lines.append(row(cells))
    shutil.rmtree(folder)
    return lines


@app.command()
def partitions(
    rows: Annotated[int, typer.Option(help="Rows of the source, spread over its partitions.", min=1000)] = 1_000_000,
    folder: Annotated[Path, typer.Option(help="Where sources and indexes go.")] = Path(".bench/partitions"),
    record: RecordOption = False,
) -> None:
    """Look keys up in partitioned and flat indexes of 1, 30 and 365 partitions."""
    report = Report(BENCH, LIBRARIES, {"rows": rows})
    lines = head(COLUMNS)
    with spark_session() as spark:
        for count in PARTITIONS:
            say(f"{count} partitions ...")
            lines += measure(spark, folder, rows, count)
    report.say("\n".join(lines))
    report.record(record)


if __name__ == "__main__":
    app()
