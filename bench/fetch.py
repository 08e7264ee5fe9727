"""Fetch the same rows by key through Gnomon and its peers: `python -m bench.fetch`.

Data, index and copies go to `.bench`; the table to standard output.
"""

import os
import signal
import sys
from functools import partial
from pathlib import Path
from typing import Annotated, NamedTuple

import typer
from pyspark.sql import SparkSession

from bench.contenders import (
    MAKERS,
    Contender,
    DuckDbOnFiles,
    GnomonInProcess,
    GnomonOverHttp,
    GnomonOverHttpWithKnownPages,
    GnomonWithKnownPages,
    LanceCopy,
    PolarsOnFiles,
    PyarrowOnFiles,
    SqliteCopy,
)
from bench.goals import goals
from bench.lake import AS_SPARK_WRITES, MEGABYTE_PAGES, Keys, keys_of, sources
from bench.page import RecordOption, Report
from bench.rounds import Cost, Line, cost_of, measure
from bench.table import LIBRARIES, described, table
from gnomon.commands.output import say
from gnomon.commands.spark import spark_session


class Workload(NamedTuple):
    """A source, and its contenders."""

    source: str
    title: str
    contenders: tuple[type[Contender], ...]


WORKLOADS = (
    Workload(
        AS_SPARK_WRITES,
        "Parquet as Spark writes it",
        (
            *(GnomonInProcess, GnomonWithKnownPages, GnomonOverHttp, GnomonOverHttpWithKnownPages),
            *(DuckDbOnFiles, PolarsOnFiles, PyarrowOnFiles, SqliteCopy, LanceCopy),
        ),
    ),
    Workload(
        MEGABYTE_PAGES,
        "The same rows as pyarrow writes them, pages of 1 MB, one file a partition",
        (GnomonInProcess, GnomonWithKnownPages, GnomonOverHttp, GnomonOverHttpWithKnownPages, LanceCopy),
    ),
)
WARM_UP_KEYS = 20
ABSENT_SHARE = 5  # one absent key for this number of present ones
BENCH = "bench.fetch"

app = typer.Typer(pretty_exceptions_enable=False, add_completion=False, rich_markup_mode=None)


def prepare(spark: SparkSession, folder: Path, pages: int) -> list[Line]:
    """Make the sources, unless they exist, and all their extra data, which is always made again."""
    lines = []
    places = sources(spark, folder, pages)
    for workload in WORKLOADS:
        source = places[workload.source]
        title = described(workload.title, source)
        costs: dict[str, Cost] = {}
        for contender in workload.contenders:
            extra = source.parent / (contender.extra or "")
            if contender.extra is not None and contender.extra not in costs:
                costs[contender.extra] = cost_of(partial(MAKERS[contender.extra], spark, source, extra), extra)
            cost = costs.get(contender.extra or "")
            lines.append(Line(contender, workload.source, title, source, extra, cost))
    os.sync()  # so that nothing is written to disk while fetches are timed
    return lines


def choose_keys(pages: int, keys: int) -> Keys:
    """The keys of a run."""
    return keys_of(pages, min(WARM_UP_KEYS, pages // 10), keys, max(1, keys // ABSENT_SHARE))


@app.command()
def fetch(
    pages: Annotated[int, typer.Option(help="Pages of the crawl.", min=2_000)] = 200_000,
    keys: Annotated[
        int, typer.Option(help="Keys that each contender fetches; those that scan get fewer.", min=1)
    ] = 200,
    folder: Annotated[Path, typer.Option(help="Where the data goes; sources in it are used again.")] = Path(".bench"),
    record: RecordOption = False,
) -> None:
    """Fetch rows by key through Gnomon, DuckDB, Polars, pyarrow, SQLite and Lance, side by side."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that servers are stopped
    chosen = choose_keys(pages, keys)
    say(f"making {pages:,} pages, an index and copies in {folder} ...")
    folder.mkdir(parents=True, exist_ok=True)
    with spark_session() as spark:
        lines = prepare(spark, folder, pages)
    report = Report(BENCH, LIBRARIES, {"pages": pages, "keys": keys})
    say("fetching ...")
    measure(lines, chosen)
    report.say(f"{table(lines)}\n{goals(lines)}")
    report.record(record)


if __name__ == "__main__":
    app()
