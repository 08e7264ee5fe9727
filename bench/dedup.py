"""The cost to find, and to append, the rows of a batch that a table lacks: `python -m bench.dedup`.

Gnomon is compared with Spark's anti join, and with a set of keys in each task. A batch of narrow rows goes into tables
of 1 to 50 million rows, one of wide rows into tables of up to a million. Tables and indexes go to `.bench/dedup`; the
figures to standard output.
"""

import itertools
import shutil
import statistics
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, NamedTuple

import typer
from pyspark.sql import DataFrame, Observation, SparkSession

from bench.dedup_contenders import CONTENDERS, AntiJoin, Contender, Gnomon, Took, measured, removing_new_files
from bench.dedup_data import Truth, Workload, sums, truth_of, write_batch, write_table
from bench.lake import folder_bytes
from bench.page import RecordOption, Report, digits, head, row
from bench.rounds import Cost, WrongRows, cost_of
from gnomon.commands.output import megabytes, say
from gnomon.commands.spark import spark_session

BENCH = "bench.dedup"
LIBRARIES = ("gnomon-index", "pyspark", "pyarrow", "numpy", "isal")
MEMORY = "6g"  # the anti join sorts wide rows
WORKLOADS = (
    Workload("narrow", 0, 1_000_000, (1_000_000, 10_000_000, 50_000_000)),
    Workload("wide", 5_000, 100_000, (100_000, 1_000_000)),
)
QUICK = 100  # a quick run has this factor fewer rows
SHARES = (0.01, 0.1, 0.5, 0.9)
APPENDED_SHARES = (0.1, 0.9)  # shares for which whole appends are measured, too
MOST_ROWS_OF_TURNS = 20_000_000  # fewer rounds on a table with more than its part of this number of rows
NUMBERS = itertools.count(1)  # for batches, all distinct
CHECK, APPEND = "The check alone", "The whole append"
COLUMNS = (
    "rows of the batch that are old", "contender", "runs", "s", "anti join's s / its own", "CPU s: JVM",
    "CPU s: Python", "shuffled", "read by Gnomon",
)  # fmt: skip
LAKE_COLUMNS = ("table", "bytes", "index", "built in s")
GOAL_ROWS, GOAL_TIMES, GOAL_FLAT = 10_000_000, 5.0, 1.5

app = typer.Typer(pretty_exceptions_enable=False, add_completion=False, rich_markup_mode=None)


class Line(NamedTuple):
    """A contender on a table. Without runs it was left out, since it was expected to take `expected` seconds."""

    existing: int
    share: float
    what: str
    contender: type[Contender]
    runs: list[Took]
    expected: float

    @property
    def seconds(self) -> float:
        return statistics.median(run.seconds for run in self.runs)


class Lake(NamedTuple):
    """A table, and the cost of its index."""

    rows: int
    bytes: int
    kept: Cost


class Table(NamedTuple):
    """A table under measurement."""

    spark: SparkSession
    source: Path
    batch: Path
    truth: Truth
    contenders: Sequence[Contender]


def run_check(table: Table, batch: DataFrame, new: Truth, one: Contender) -> Took:
    """Find the new rows, and read each of them. WrongRows unless they are the expected ones."""
    seen = Observation()

    def work() -> None:
        one.new_rows(batch).observe(seen, *sums()).write.format("noop").mode("overwrite").save()

    took = measured(table.spark, one, work)
    _check(one, Truth(seen.get["rows"], int(seen.get["checksum"])), new)
    return took


def run_append(table: Table, batch: DataFrame, new: Truth, one: Contender) -> Took:
    """Append the new rows, read the table, and remove them again."""
    with removing_new_files(table.source, one.extra):
        took = measured(table.spark, one, lambda: one.append(batch, next(NUMBERS)))
        _check(one, truth_of(table.spark.read.parquet(str(table.source))), table.truth + new)
    return took


def _check(one: Contender, found: Truth, expected: Truth) -> None:
    if found != expected:
        raise WrongRows(
            f"{one.name} gave {found.rows} rows ({found.checksum}), expected {expected.rows} ({expected.checksum})"
        )


RUNS: dict[str, Callable[[Table, DataFrame, Truth, Contender], Took]] = {CHECK: run_check, APPEND: run_append}


def measure(
    spark: SparkSession, folder: Path, workload: Workload, rounds: int, patience: float
) -> tuple[list[Line], list[Lake]]:
    """All contenders' runs on all tables of a workload, and the cost of the tables. Removes all their files."""
    lines: list[Line] = []
    lakes = []
    for existing in workload.existing:
        say(f"{workload.name} rows, {workload.incoming:,} into {existing:,} ...")
        shutil.rmtree(folder, ignore_errors=True)
        try:
            source = folder / "source"
            truth = write_table(spark, source, workload, existing)
            contenders = [kind(spark, source, folder / kind.__name__) for kind in CONTENDERS]
            costs = {type(one): cost_of(one.prepare, one.extra) for one in contenders}
            lakes.append(Lake(existing, folder_bytes(source), costs[Gnomon]))
            table = Table(spark, source, folder / "batch", truth, contenders)
            for share in SHARES:
                lines += measure_batch(table, workload, existing, share, rounds, patience, lines)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    return lines, lakes


def measure_batch(
    table: Table,
    workload: Workload,
    existing: int,
    share: float,
    rounds: int,
    patience: float,
    before: Sequence[Line],
) -> list[Line]:
    """The runs of all contenders with a batch, in turns. `before`: those on smaller tables."""
    new = write_batch(table.spark, table.batch, workload, existing, share)
    batch = table.spark.read.parquet(str(table.batch))
    turns = max(1, min(rounds, MOST_ROWS_OF_TURNS // existing))
    lines = []
    for what in (CHECK, APPEND) if share in APPENDED_SHARES else (CHECK,):
        run = partial(RUNS[what], table, batch, new)
        expected = [_expected(before, existing, share, what, type(one)) for one in table.contenders]
        runs: list[list[Took]] = [[] for _ in table.contenders]
        pairs = [
            (one, own)
            for one, own, seconds in zip(table.contenders, runs, expected, strict=True)
            if one.is_patient or seconds <= patience
        ]
        if rounds > 1 and all(line.what != what for line in before):
            for one, _ in pairs:  # so that the first contender does not pay for start-up and compilation
                run(one)
        for turn in range(turns):
            for one, own in pairs[turn % len(pairs) :] + pairs[: turn % len(pairs)]:
                own.append(run(one))
        lines += [
            Line(existing, share, what, type(one), own, seconds)
            for one, own, seconds in zip(table.contenders, runs, expected, strict=True)
        ]
    shutil.rmtree(table.batch)
    return lines


def _expected(before: Sequence[Line], existing: int, share: float, what: str, contender: type[Contender]) -> float:
    """The expected seconds of a run, at the cost per table row of the last run on a smaller table."""
    known = [line for line in before if (line.share, line.what, line.contender) == (share, what, contender)]
    measured_ones = [line for line in known if line.runs]
    return measured_ones[-1].seconds * existing / measured_ones[-1].existing if measured_ones else 0.0


def figures(lines: Sequence[Line]) -> str:
    """The runs of a workload as Markdown: a table for the check, one for the append."""
    parts = []
    for what in RUNS:
        made, last = head(COLUMNS), 0
        for line in lines:
            if line.what != what:
                continue
            if line.existing != last:
                made.append(row([f"**into {line.existing:,} rows**", *[""] * (len(COLUMNS) - 1)]))
                last = line.existing
            peer = next(one for one in lines if one[:3] == line[:3] and one.contender is AntiJoin)
            made.append(row([f"{line.share:.0%}" if line.contender is Gnomon else "", *_cells(line, peer)]))
        parts.append("\n".join([f"{what}:", "", *made, ""]))
    return "\n".join(parts)


def _cells(line: Line, peer: Line) -> list[str]:
    name = line.contender.name
    if not line.runs:
        return [name, f"left out: some {line.expected:,.0f} s expected", *[""] * (len(COLUMNS) - 3)]
    jvm, python = (
        statistics.median(cpu) for cpu in zip(*((run.cpu.jvm, run.cpu.python) for run in line.runs), strict=True)
    )
    shuffled = round(statistics.median(run.shuffled for run in line.runs))
    read = round(statistics.median(run.read for run in line.runs))
    return [
        name,
        str(len(line.runs)),
        digits(line.seconds),
        f"{digits(peer.seconds / line.seconds)}x",
        digits(jvm),
        digits(python),
        megabytes(shuffled),
        megabytes(read) if line.contender is Gnomon else "",
    ]


def lakes_table(lakes: Sequence[Lake]) -> str:
    """The tables of a workload as Markdown."""
    cells = (
        [f"{lake.rows:,} rows", megabytes(lake.bytes), megabytes(lake.kept.bytes), digits(lake.kept.seconds)]
        for lake in lakes
    )
    return "\n".join([*head(LAKE_COLUMNS), *map(row, cells), ""])


def goals(lines: Sequence[Line]) -> str:
    """The goals as Markdown: checks of narrow rows, on the measured tables."""
    seconds = {(one.existing, one.share, one.contender): one.seconds for one in lines if one.what == CHECK and one.runs}
    sizes = sorted({existing for existing, _, _ in seconds})
    made = [row(["goal for the check of narrow rows", "measured", ""]), row(["---", "---:", "---"])]
    for share in SHARES if GOAL_ROWS in sizes else ():
        faster = seconds[GOAL_ROWS, share, AntiJoin] / seconds[GOAL_ROWS, share, Gnomon]
        title = f"into {GOAL_ROWS:,}, {share:.0%} old: {GOAL_TIMES:g} times as fast as the anti join"
        made.append(row([title, f"{digits(faster)} times", "reached" if faster >= GOAL_TIMES else "missed"]))
    for share in SHARES if len(sizes) > 1 else ():
        times = seconds[sizes[-1], share, Gnomon] / seconds[sizes[0], share, Gnomon]
        title = f"{share:.0%} old, into {sizes[-1]:,}: at most {GOAL_FLAT:g} times as long as into {sizes[0]:,}"
        made.append(row([title, f"{digits(times)} times", "reached" if times <= GOAL_FLAT else "missed"]))
    return "\n".join(made) + "\n"


def smaller(workload: Workload) -> Workload:
    """The workload with a hundredth of the rows."""
    fewer = tuple(rows // QUICK for rows in workload.existing)
    return workload._replace(incoming=workload.incoming // QUICK, existing=fewer)


@app.command()
def dedup(
    kind: Annotated[list[str] | None, typer.Option(help="narrow, wide; repeatable, by default both.")] = None,
    existing: Annotated[list[int] | None, typer.Option(help="Rows of the tables of narrow rows; repeatable.")] = None,
    incoming: Annotated[int, typer.Option(help="Narrow rows of a batch.", min=100)] = 1_000_000,
    rounds: Annotated[int, typer.Option(help="Runs of each contender, fewer on large tables.", min=1)] = 3,
    patience: Annotated[float, typer.Option(help="Seconds of a run with hash sets; longer ones are left out.")] = 60.0,
    quick: Annotated[bool, typer.Option("--quick", help="A hundredth of all rows, one run each.")] = False,
    folder: Annotated[Path, typer.Option(help="Where tables, batches and indexes go.")] = Path(".bench/dedup"),
    record: RecordOption = False,
) -> None:
    """Find, and append, the new rows of a batch."""
    narrow, wide = WORKLOADS
    narrow = narrow._replace(incoming=incoming, existing=tuple(sorted(existing or narrow.existing)))
    workloads = [one for one in (narrow, wide) if one.name in (kind or ("narrow", "wide"))]
    parameters = {"kind": kind, "existing": existing, "incoming": incoming, "quick": quick}
    report = Report(BENCH, LIBRARIES, parameters | ({} if quick else {"rounds": rounds, "patience": f"{patience:g}"}))
    goal_lines: list[Line] = []
    with spark_session(conf=[f"spark.driver.memory={MEMORY}"]) as spark:
        for workload in map(smaller, workloads) if quick else workloads:
            lines, lakes = measure(spark, folder.resolve(), workload, 1 if quick else rounds, patience)
            goal_lines += lines if workload.name == narrow.name else []
            size = f" with {workload.payload:,} bytes of payload" if workload.payload else ""
            report.say(f"**{workload.incoming:,} {workload.name} rows{size}**\n")
            report.say(f"{figures(lines)}\n{lakes_table(lakes)}")
    if goal_lines:
        report.say(f"**Goals**\n\n{goals(goal_lines)}")
    report.record(record)


if __name__ == "__main__":
    app()
