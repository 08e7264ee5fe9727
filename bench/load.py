"""The cost to load the rows of 0.01 to 10 % of a table's keys, compared with Spark's own joins: `python -m bench.load`.

There are two tables of wide rows, of 5 KB and of 100 KB. All contenders get the same sample of keys, in turns; the sums
of the hashes of all columns of their answers are compared. The tables go to standard output.
"""

import itertools
import random
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

import typer
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from bench.lake import folder_bytes
from bench.load_contenders import CONTENDERS, KEY, BroadcastJoin, Contender, Gnomon, Run, SortMergeJoin, spark_settings
from bench.page import RecordOption, Report, digits, head, row
from bench.rounds import Cost, WrongRows, cost_of
from gnomon.commands.output import megabytes, say
from gnomon.commands.spark import spark_session

BENCH = "bench.load"
LIBRARIES = ("gnomon-index", "pyspark", "pyarrow", "numpy")
ROW_BYTES = {"5 KB": 5_000, "100 KB": 100_000}
SHARES = (0.0001, 0.001, 0.01, 0.1)
HASH_BYTES = 128  # text bytes of one hash
FILES = 8
MEMORY = "6g"  # Spark's joins hold thousands of rows of 100 KB at a time in each task
RUNS = itertools.count()  # numbers for runs, unique in a session
COLUMNS = ("rows wanted", "contender", "s", "/ Gnomon's", "shuffled", "read")
EXTRA_COLUMNS = ("beside the source", "made in s", "bytes")
# Goals: workload, share of the keys, the contender to beat, and the factor.
GOALS = (("5 KB", 0.001, SortMergeJoin, 5), ("100 KB", 0.01, SortMergeJoin, 5), ("5 KB", 0.01, BroadcastJoin, 1))

app = typer.Typer(pretty_exceptions_enable=False, add_completion=False, rich_markup_mode=None)


class Line(NamedTuple):
    """A contender's best run."""

    workload: str
    share: float
    contender: type[Contender]
    run: Run


def write_source(spark: SparkSession, folder: Path, rows: int, row_bytes: int) -> None:
    """Write rows in random order of their keys; the payload hardly compresses."""
    hashes = f"transform(sequence(1, {row_bytes // HASH_BYTES}), i -> sha2(id || '-' || i, 512))"
    page = F.expr(f"array_join({hashes}, '')").alias("page")
    table = spark.range(0, rows, 1, FILES)
    table.select(url_of(F.xxhash64("id")).alias(KEY), F.col("id").alias("n"), page).write.parquet(str(folder))


def url_of(number: F.Column) -> F.Column:
    return F.concat(F.lit("https://example.org/"), F.hex(number))


def write_sample(spark: SparkSession, path: Path, rows: int, share: float) -> None:
    """The keys of some rows."""
    chosen = random.Random(1).sample(range(rows), max(round(rows * share), 1))
    numbers = spark.createDataFrame([(number,) for number in chosen], "id bigint")
    numbers.select(url_of(F.xxhash64("id")).alias(KEY)).coalesce(1).write.parquet(str(path))


def measure(
    spark: SparkSession, folder: Path, workload: str, rows: int, shares: Sequence[float], rounds: int
) -> tuple[list[Line], dict[str, Cost], int]:
    """All contenders' runs on a source of this number of rows, the cost of each one's extra data, and the source's
    bytes."""
    shutil.rmtree(folder, ignore_errors=True)
    source = folder / "source"
    write_source(spark, source, rows, ROW_BYTES[workload])
    samples = [folder / f"keys-{share:g}" for share in shares]
    for sample, share in zip(samples, shares, strict=True):
        write_sample(spark, sample, rows, share)
    contenders = [kind(spark, source, folder / kind.__name__) for kind in CONTENDERS]
    costs = {one.name: cost_of(one.prepare, folder / type(one).__name__) for one in contenders}
    try:
        for one in contenders:  # so that the first contender does not pay for start-up
            one.run(spark.read.parquet(str(samples[0])), next(RUNS))
        lines = []
        for sample, share in zip(samples, shares, strict=True):
            keys, runs = spark.read.parquet(str(sample)), [[] for _ in contenders]
            for _ in range(rounds):
                for one, own in zip(contenders, runs, strict=True):
                    own.append(one.run(keys, next(RUNS)))
            check([(one.name, run) for one, own in zip(contenders, runs, strict=True) for run in own])
            lines += [Line(workload, share, type(one), min(own)) for one, own in zip(contenders, runs, strict=True)]
    finally:
        for one in contenders:
            one.close()
    size = folder_bytes(source)
    shutil.rmtree(folder)
    return lines, {name: cost for name, cost in costs.items() if cost.bytes}, size


def check(runs: Sequence[tuple[str, Run]]) -> None:
    """WrongRows unless all gave the same rows."""
    first, expected = runs[0]
    for name, run in runs:
        if (run.rows, run.checksum) != (expected.rows, expected.checksum):
            others = f"{first} {expected.rows} ({expected.checksum})"
            raise WrongRows(f"{name} gave {run.rows} rows ({run.checksum}), {others}")


def table(lines: Sequence[Line]) -> list[str]:
    """The runs as Markdown."""
    made = head(COLUMNS)
    for line in lines:
        gnomon = next(one.run for one in lines if one.share == line.share and one.contender is Gnomon)
        run = line.run
        wanted = f"{100 * line.share:g} %: {run.rows:,}" if line.contender is Gnomon else ""
        ratio = f"{digits(run.seconds / gnomon.seconds)}x"
        made.append(
            row([wanted, line.contender.name, digits(run.seconds), ratio, megabytes(run.shuffled), megabytes(run.read)])
        )
    return made


def goals(lines: Sequence[Line]) -> list[str]:
    """The goals as Markdown, for the measured workloads."""
    seconds = {(line.workload, line.share, line.contender): line.run.seconds for line in lines}
    made = [row(["goal", "measured", ""]), row(["---", "---:", "---"])]
    for workload, share, peer, times in GOALS:
        if (workload, share, peer) not in seconds:
            continue
        faster = seconds[workload, share, peer] / seconds[workload, share, Gnomon]
        goal = f"{100 * share:g} % of rows of {workload}: {times} times as fast as a {peer.name}"
        made.append(row([goal, f"{digits(faster)} times", "reached" if faster >= times else "missed"]))
    return made


@app.command()
def load(
    gigabytes: Annotated[float, typer.Option(help="Of each of the two tables.", min=0.001)] = 5.0,
    rounds: Annotated[int, typer.Option(help="Runs of each contender, of which the best counts.", min=1)] = 1,
    folder: Annotated[Path, typer.Option(help="Where tables, indexes and copies go.")] = Path(".bench/load"),
    record: RecordOption = False,
) -> None:
    """Load 0.01 to 10 % of the rows of wide tables by key."""
    report = Report(BENCH, LIBRARIES, {"gigabytes": f"{gigabytes:g}", "rounds": rounds})
    measured: list[Line] = []
    with spark_session(conf=[f"spark.driver.memory={MEMORY}"]) as spark:
        for workload, row_bytes in ROW_BYTES.items():
            say(f"rows of {workload} ...")
            rows = max(int(gigabytes * 1e9) // row_bytes, 1)
            with spark_settings(spark):
                lines, costs, size = measure(spark, folder.resolve(), workload, rows, SHARES, rounds)
            measured += lines
            report.say(f"**{rows:,} rows of {workload}, {megabytes(size)}**\n")
            extra = [row([name, digits(cost.seconds), megabytes(cost.bytes)]) for name, cost in costs.items()]
            report.say("\n".join([*table(lines), "", *head(EXTRA_COLUMNS), *extra, ""]))
    report.say("\n".join(["**Goals**", "", *goals(measured), ""]))
    report.record(record)


if __name__ == "__main__":
    app()
