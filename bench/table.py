"""The results of fetches as Markdown."""

import statistics
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from bench.contenders import GnomonInProcess
from bench.lake import folder_bytes
from bench.page import digits, head, row
from bench.rounds import Cost, Line, Sample
from gnomon.commands.output import megabytes

ENOUGH_FOR_P99 = 100
LIBRARIES = (
    *("gnomon-index", "pyarrow", "numpy", "fastavro", "isal", "fastapi", "uvicorn"),
    *("pyspark", "duckdb", "polars", "pylance"),
)
COLUMNS = (
    "", "keys", "p50 ms", "p99 ms", "p50 / Gnomon's", "read a fetch", "extra disk", "disk / Gnomon's", "built in s",
)  # fmt: skip


def described(title: str, source: Path) -> str:
    """A source, described in words."""
    files = sum(1 for _ in source.rglob("*.parquet"))
    return f"{title}: {megabytes(folder_bytes(source))} in {files} files"


def table(lines: Sequence[Line]) -> str:
    """All results, source by source, present keys before absent ones."""
    rows = head(COLUMNS)
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
            if line.absent
        ]
    return "\n".join(rows) + "\n"


def _times(samples: Sequence[Sample], gnomon: Sequence[Sample]) -> list[str]:
    ms = sorted(sample.ms for sample in samples)
    median = statistics.median(ms)
    ratio = median / statistics.median(sample.ms for sample in gnomon)
    read = round(statistics.median(sample.bytes for sample in samples))
    return [str(len(ms)), digits(median), _worst(ms), f"{digits(ratio)}x", megabytes(read) if read else "nothing"]


def _worst(ms: Sequence[float]) -> str:
    """The 99th percentile of sorted times, or the longest if there are too few for a percentile."""
    if len(ms) < ENOUGH_FOR_P99:
        return f"max {digits(ms[-1])}"
    return digits(ms[-(-len(ms) * 99 // 100) - 1])


def _costs(cost: Cost | None, gnomon: Cost | None) -> list[str]:
    if cost is None or gnomon is None:
        return ["none", "", ""]
    return [megabytes(cost.bytes), f"{digits(cost.bytes / gnomon.bytes)}x", digits(cost.seconds)]
