"""Results as Markdown, and their place in docs/benchmarks.md."""

import os
import platform
import sqlite3
import statistics
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from itertools import groupby
from pathlib import Path

from bench.contenders import GnomonInProcess
from bench.lake import folder_bytes
from bench.rounds import Cost, Line, Sample
from gnomon.output import megabytes

BEGIN, END = "<!-- bench.fetch: begin -->", "<!-- bench.fetch: end -->"
ENOUGH_FOR_P99 = 100
LIBRARIES = (
    *("gnomon-index", "pyarrow", "numpy", "fastavro", "isal", "fastapi", "uvicorn"),
    *("pyspark", "duckdb", "polars", "pylance"),
)
COLUMNS = (
    "", "keys", "p50 ms", "p99 ms", "p50 / Gnomon's", "read a fetch", "extra disk", "disk / Gnomon's", "built in s",
)  # fmt: skip


def about(command: str) -> str:
    """The run in words: command, date, machine, versions."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    versions = [f"Python {platform.python_version()}", f"SQLite {sqlite3.sqlite_version}"]
    versions += [f"{name} {version(name)}" for name in LIBRARIES]
    lines = [
        f"    {command}",
        "",
        f"{datetime.now(UTC):%Y-%m-%d}; {os.cpu_count()} cores, {megabytes(memory)} of memory, local disk, "
        f"{platform.system()} {platform.machine()}; load when fetching began: {os.getloadavg()[0]:.1f}.",
        f"{', '.join(versions)}.",
        "",
    ]
    return "\n".join(lines)


def described(title: str, source: Path) -> str:
    """A source in words."""
    files = sum(1 for _ in source.rglob("*.parquet"))
    return f"{title}: {megabytes(folder_bytes(source))} in {files} files"


def table(lines: Sequence[Line]) -> str:
    """All results, source by source, present keys before absent ones."""
    rows = [row(COLUMNS), row(["---", *["---:"] * (len(COLUMNS) - 1)])]
    for title, group in groupby(lines, lambda line: line.title):
        members = list(group)
        gnomon = next(line for line in members if line.contender is GnomonInProcess)
        rows.append(row([f"**{title}**", *[""] * (len(COLUMNS) - 1)]))
        for line in members:
            times = _times(line.present, gnomon.present)
            rows.append(row([line.contender.name, *times, *_costs(line.cost, gnomon.cost)]))
        rows += [
            row([f"{line.contender.name}: absent keys", *_times(line.absent, gnomon.absent), "", "", ""])
            for line in members
        ]
    return "\n".join(rows) + "\n"


def row(cells: Sequence[str]) -> str:
    """A line of a table."""
    return f"| {' | '.join(cells)} |"


def _times(samples: Sequence[Sample], gnomon: Sequence[Sample]) -> list[str]:
    ms = sorted(sample.ms for sample in samples)
    median = statistics.median(ms)
    ratio = median / statistics.median(sample.ms for sample in gnomon)
    read = round(statistics.median(sample.bytes for sample in samples))
    return [str(len(ms)), digits(median), _worst(ms), f"{digits(ratio)}x", megabytes(read) if read else "nothing"]


def _worst(ms: Sequence[float]) -> str:
    """The 99th percentile of times in order, or the longest when there are too few to tell."""
    if len(ms) < ENOUGH_FOR_P99:
        return f"max {digits(ms[-1])}"
    return digits(ms[-(-len(ms) * 99 // 100) - 1])


def _costs(cost: Cost | None, gnomon: Cost | None) -> list[str]:
    if cost is None or gnomon is None:
        return ["none", "", ""]
    return [megabytes(cost.bytes), f"{digits(cost.bytes / gnomon.bytes)}x", digits(cost.seconds)]


def digits(number: float) -> str:
    """Three digits, or all before the point."""
    return f"{number:,.{2 if number < 10 else 1 if number < 100 else 0}f}"


def insert(result: str, page: str) -> str:
    """The page with the result between its markers."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page has no {BEGIN} with {END} after it")
    return f"{before}{BEGIN}\n\n{result}\n{END}{after}"
