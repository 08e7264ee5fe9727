"""Fetches from Parquet with compiled loops and value maps, and without: `python -m bench.known_pages`.

Each round is a process of its own, with the loops compiled or in Python (`GNOMON_KERNEL=python`), in turn. All columns
of the row of a URL are fetched in these states:

- first: the source file was never read;
- first, deep maps: the same, with the page maps and value maps that `build --page-maps deep` records;
- known: the pages were read before and are not in memory, as where the source is larger than the cache;
- cached: the pages are in memory.

A second table has the cost of recording page maps: the CPU time of a task, without Spark, in this process."""

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

import pyarrow.parquet as pq
import typer
from pyspark.sql import SparkSession

from bench.lake import AS_SPARK_WRITES, MEGABYTE_PAGES, keys_of, sources
from bench.page import RecordOption, Report, digits, head, row
from gnomon.base import kernel
from gnomon.commands.spark import spark_session
from gnomon.indexer import build
from gnomon.shadow import Index, open_index
from gnomon.shadow.fetch import FetchStats
from gnomon.shadow.metadata import DEEP
from gnomon.shadow.storage import storage_at
from gnomon.sources import open_mapped
from gnomon.sources.parquet.map_codec import RecordedMaps

BENCH = "bench.known_pages"
CHILD = "child"  # the argument of a process that measures one round
FIRST_DEEP = "first, deep maps"
STATES = ("first", FIRST_DEEP, "known", "cached")
INDEX, DEEP_INDEX = "index", "deep"  # the second has page maps and value maps
WAYS = ("python", "compiled")
TITLES = {AS_SPARK_WRITES: "as Spark writes it", MEGABYTE_PAGES: "pages of 1 MB by pyarrow"}
FIRST_KEYS = 30  # keys of the state `first`, each of which opens the index again
MAKES = 5  # of the maps of each file, of which the fastest counts
COSTS = ["recording maps of", "page maps", "CPU s", "source MB/s", "unpacked MB/s", "KB in the index", "bytes a page"]
COLUMNS = ["source", "state", "in Python, ms", "compiled, ms", "ratio", "in Python, read KB", "compiled, read KB"]

Samples = dict[str, dict[str, list[list[float]]]]  # by source and state

app = typer.Typer(pretty_exceptions_enable=False, add_completion=False, rich_markup_mode=None)


class Sample(NamedTuple):
    """A fetch: milliseconds, and bytes read of the source."""

    ms: float
    read: int


def fetched(index: Index, key: str) -> Sample:
    stats = FetchStats()
    begin = time.perf_counter()
    rows = index.fetch(key, stats=stats)
    ms = 1000 * (time.perf_counter() - begin)
    if len(rows) != 1:
        raise ValueError(f"{len(rows)} rows of {key}, expected 1")
    return Sample(ms, stats.source.bytes)


def first(place: str, keys: list[str]) -> list[Sample]:
    samples = []
    for key in keys[:FIRST_KEYS]:
        with open_index(place) as index:
            index.lookup(key)  # the index files are in memory, as in a service
            samples.append(fetched(index, key))
    return samples


def known(place: str, keys: list[str]) -> list[Sample]:
    with open_index(place, keep_pages=False) as index:
        return [fetched(index, key) for key in [*keys, *keys]][len(keys) :]


def cached(place: str, keys: list[str]) -> list[Sample]:
    with open_index(place, cache_bytes=4 << 30) as index:
        return [fetched(index, key) for key in [*keys, *keys]][len(keys) :]


MEASURES: dict[str, Callable[[str, list[str]], list[Sample]]] = {
    "first": first,
    FIRST_DEEP: first,
    "known": known,
    "cached": cached,
}


def child(folder: Path, pages: int, keys: int) -> None:
    """Print the samples of this process as JSON: by source and state."""
    chosen = keys_of(pages, 0, keys, 0).present
    found = {
        source: {state: MEASURES[state](str(folder / source / _index(state)), chosen) for state in STATES}
        for source in TITLES
    }
    print(json.dumps({"compiled": kernel.COMPILED, "samples": found}))


def _index(state: str) -> str:
    return DEEP_INDEX if state == FIRST_DEEP else INDEX


def run_round(way: str, folder: Path, pages: int, keys: int) -> Samples:
    command = [sys.executable, "-m", BENCH, CHILD, str(folder), str(pages), str(keys)]
    done = subprocess.run(command, env={**os.environ, kernel.VARIABLE: way}, check=True, capture_output=True, text=True)
    told = json.loads(done.stdout)
    if told["compiled"] != (way == "compiled"):
        raise ValueError(f"the loops were expected {way}: install Gnomon with a C compiler")
    samples: Samples = told["samples"]
    return samples


def compare(spark: SparkSession, folder: Path, pages: int, keys: int, rounds: int) -> list[str]:
    """The lines of the table."""
    folder.mkdir(parents=True, exist_ok=True)
    for source, place in sources(spark, folder, pages).items():
        build(spark, str(place), str(folder / source / INDEX), ["url"], full=True)
        build(spark, str(place), str(folder / source / DEEP_INDEX), ["url"], full=True, page_maps=DEEP)
    found: dict[str, list[Samples]] = {way: [] for way in WAYS}
    for _ in range(rounds):
        for way in WAYS:
            found[way].append(run_round(way, folder, pages, keys))
    lines = head(COLUMNS)
    for source, title in TITLES.items():
        for state in STATES:
            ms, read = ([middle(found[way], source, state, at) for way in WAYS] for at in (0, 1))
            figures = [*ms, ms[0] / ms[1], *[size / 1000 for size in read]]
            lines.append(row([title, state, *map(digits, figures)]))
    return lines


def costs(folder: Path) -> list[str]:
    """The lines of the table of the cost of recording maps."""
    lines = head(COSTS)
    for source, title in TITLES.items():
        paths = sorted((folder / source / "source").rglob("*.parquet"))
        groups = [group for path in paths for group in _groups(path)]
        packed, unpacked = (sum(sizes) / 1e6 for sizes in zip(*groups, strict=True))
        for name, deep in (("places", False), (DEEP, True)):
            made = [_made(path, deep) for path in paths]
            seconds, size, pages = (sum(figures) for figures in zip(*made, strict=True))
            figures = [seconds, packed / seconds, unpacked / seconds, size / 1000, size / pages]
            lines.append(row([title, name, *map(digits, figures)]))
    return lines


def _groups(path: Path) -> list[tuple[int, int]]:
    """Bytes and unpacked bytes of each chunk of a file."""
    footer = pq.read_metadata(path)
    groups = [footer.row_group(at) for at in range(footer.num_row_groups)]
    chunks = [group.column(at) for group in groups for at in range(group.num_columns)]
    return [(chunk.total_compressed_size, chunk.total_uncompressed_size) for chunk in chunks]


def _made(path: Path, deep: bool) -> tuple[float, int, int]:
    """The maps of a file: CPU seconds to make them, their bytes, and the pages of the file."""
    seconds = []
    with storage_at(str(path.parent)).open(path.name) as reader:
        for _ in range(MAKES):
            begin = time.process_time()
            file = open_mapped(reader, "parquet")
            data = file.export_maps(reader, deep)
            seconds.append(time.process_time() - begin)
        maps = RecordedMaps(data, file.digest)
        found = [maps.map_of(key, 0) for key in maps]
    return min(seconds), len(data), sum(len(one.offsets) for one in found if one)


def middle(rounds: Sequence[Samples], source: str, state: str, at: int) -> float:
    """The median over the rounds of the median over the keys."""
    return statistics.median([statistics.median([one[at] for one in found[source][state]]) for found in rounds])


@app.command()
def measure(
    pages: Annotated[int, typer.Option(help="Pages of the crawl.", min=2_000)] = 20_000,
    keys: Annotated[int, typer.Option(help="Keys of each state.", min=1)] = 300,
    rounds: Annotated[int, typer.Option(help="Processes of each way.", min=1)] = 5,
    folder: Annotated[Path, typer.Option(help="Where the data goes; sources in it are used again.")] = Path(".bench"),
    record: RecordOption = False,
) -> None:
    """Fetch rows whose pages were never read, are known, or are cached; with compiled loops and without."""
    parameters = {"pages": pages, "keys": keys, "rounds": rounds}
    report = Report(BENCH, ["gnomon-index", "pyarrow", "numpy", "pyspark"], parameters)
    with spark_session() as spark:
        report.say("\n".join([*compare(spark, folder, pages, keys, rounds), "", *costs(folder)]))
    report.record(record)


if __name__ == "__main__":
    if sys.argv[1:2] == [CHILD]:
        child(Path(sys.argv[2]), *map(int, sys.argv[3:]))
    else:
        app()
