"""The service under a load of constant rate, compared with a hello service and a copy in SQLite: `python -m
bench.serve`.

Data, index and copy go to `.bench/serve`; the tables to standard output.
"""

import random
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
import typer

from bench import services
from bench.attack import Load, attack, vegeta, write_targets
from bench.contenders import MAKERS
from bench.format_files import FILES, rows_of, write_file
from bench.lake import FIRST_ABSENT_PAGE
from bench.page import RecordOption, Report, digits, head, row
from bench.server import Server, serve, started
from bench.slow_store import slow_store
from gnomon.commands import crawl
from gnomon.commands.output import megabytes
from gnomon.commands.spark import spark_session
from gnomon.indexer import build
from gnomon.shadow import UsageError

BENCH = "bench.serve"
LIBRARIES = ("gnomon-index", "pyarrow", "fastavro", "fastapi", "uvicorn", "httptools", "pyspark")
PARTS = ("slow", "rates", "memory")  # the slow store comes first, since Spark has to be started with its addresses
SOURCES = {"Parquet": "parquet-pages", "Avro": "avro-deflate"}
ZIPF = 1.1  # the frequency of the k-th most frequent key is proportional to k to the power of minus this
SEED = 8
FIRST_RATE, FACTOR, LAST_RATE = 50.0, 1.4, 20_000.0
# A service is saturated beyond this p99, or below this share of the requested rate.
SATURATED_MS, ACHIEVED = 250.0, 0.95
WARM_SECONDS = 3.0
COLUMNS = [
    "load",
    "requested/s",
    "answered/s",
    "p50 ms",
    "p99 ms",
    "p99.9 ms",
    "wrong",
    "requests a CPU s",
    "cores: service",
    "cores: generator",
]


class Size(NamedTuple):
    """The amount of work."""

    pages: int
    rates: tuple[float, ...]
    seconds: float  # seconds of each load
    memory_seconds: float
    slow_keys: int


FULL = Size(20_000, (100, 500, 1_000), 8, 600, 15)
QUICK = Size(2_000, (100, 500), 2, 10, 5)


class Contender(NamedTuple):
    name: str
    start: Callable[[], AbstractContextManager[Server]]
    answers_absent: bool = True


class Keys(NamedTuple):
    """URLs in the order of the requests."""

    uniform: list[str]
    skewed: list[str]
    absent: list[str]


app = typer.Typer(pretty_exceptions_enable=False, add_completion=False, rich_markup_mode=None)


def prepare(folder: Path, pages: int) -> list[Contender]:
    """Make the files, an index of each, and the copy. Replaces existing ones."""
    contenders = []
    table = rows_of(pages)
    with spark_session() as spark:
        for title, name in SOURCES.items():
            one = next(one for one in FILES if one.name == name)
            source, index = folder / name / "source", folder / name / "index"
            write_file(spark, one, table, source)
            shutil.rmtree(index, ignore_errors=True)
            build(spark, str(source), str(index), [one.key], format=one.format, options=one.options)
            for workers in (1, 2):
                title_here = f"Gnomon, {title}, {workers} worker{'s' if workers > 1 else ''}"
                contenders.append(Contender(title_here, lambda index=index, workers=workers: serve(index, workers)))  # type: ignore[misc]
        copy = folder / "sqlite"
        shutil.rmtree(copy, ignore_errors=True)
        MAKERS["sqlite"](spark, folder / SOURCES["Parquet"] / "source", copy)
    words = [sys.executable, "-m", services.__name__]
    contenders.append(
        Contender("SQLite, a full copy, 1 worker", lambda: started([*words, "sqlite", str(copy / "copy.db")]))
    )
    contenders.append(Contender("hello, 1 worker", lambda: started([*words, "hello"]), answers_absent=False))
    return contenders


def choose_keys(pages: int, count: int) -> Keys:
    """The keys, which are the same in every run."""
    chance = np.random.default_rng(SEED)
    weights = 1 / np.arange(1, pages + 1) ** ZIPF
    ranks = chance.permutation(pages)
    skewed = ranks[chance.choice(pages, count, p=weights / weights.sum())]
    absent = np.arange(FIRST_ABSENT_PAGE, FIRST_ABSENT_PAGE + count)
    return Keys(*(crawl.page_urls(one).to_pylist() for one in (chance.integers(0, pages, count), skewed, absent)))


def keeps_up(load: Load) -> bool:
    """Whether a service keeps up with a load."""
    return load.right == load.sent and load.achieved >= ACHIEVED * load.requested and load.p99 <= SATURATED_MS


def saturation(ask: Callable[[float], Load]) -> tuple[Load | None, Load]:
    """The greatest load that the service keeps up with, of rates that rise step by step, and the last one tried."""
    sustained, rate = None, FIRST_RATE
    while True:
        load = ask(rate)
        if not keeps_up(load):
            return sustained, load
        sustained, rate = load, rate * FACTOR
        if rate > LAST_RATE:
            return sustained, load


def cells(name: str, load: Load) -> str:
    figures = [f"{load.requested:,.0f}", f"{load.achieved:,.0f}", *map(digits, (load.p50, load.p99, load.p999))]
    a_second = f"{load.achieved / load.server_cpu:,.0f}" if load.server_cpu else ""
    wrong = str(load.sent - load.right)
    return row([name, *figures, wrong, a_second, digits(load.server_cpu), digits(load.generator_cpu)])


def rates(contender: Contender, keys: Keys, size: Size, folder: Path) -> tuple[list[str], float]:
    """The lines of a contender, and the rate at which it is saturated."""
    targets = folder / "targets"
    lines = [row([f"**{contender.name}**", *[""] * (len(COLUMNS) - 1)])]
    with contender.start() as server:
        write_targets(targets, server, keys.uniform)
        attack(server, targets, FIRST_RATE, min(WARM_SECONDS, size.seconds))
        sustained, beyond = saturation(lambda rate: attack(server, targets, rate, size.seconds / 2))
        lines += [cells("greatest sustained load", sustained)] if sustained else []
        lines.append(cells("the next one", beyond))
        if sustained:
            for name, share in (("half of the greatest", 2), ("a tenth of the greatest", 10)):
                lines.append(cells(name, attack(server, targets, sustained.requested / share, size.seconds)))
        loads = [("uniform keys", keys.uniform, 200), ("skewed keys", keys.skewed, 200)]
        loads += [("absent keys", keys.absent, 404)] if contender.answers_absent else []
        for name, chosen, status in loads:
            write_targets(targets, server, chosen)
            for rate in size.rates:
                lines.append(cells(f"warm, {name}", attack(server, targets, rate, size.seconds, status)))
    for rate in size.rates:
        with contender.start() as server:
            write_targets(targets, server, keys.uniform)
            lines.append(cells("cold: a fresh process, uniform keys", attack(server, targets, rate, size.seconds)))
    return lines, sustained.requested if sustained else FIRST_RATE


def memory(contender: Contender, keys: Keys, rate: float, seconds: float, folder: Path) -> list[str]:
    """The line of a contender: resident memory of its processes under a steady load."""
    targets = folder / "targets"
    with contender.start() as server:
        write_targets(targets, server, random.Random(SEED).sample(keys.uniform, len(keys.uniform)))
        begun = server.rss_bytes
        seen, sent, wrong = [], 0, 0
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            load = attack(server, targets, rate, max(1, min(left, seconds / 20)))
            sent, wrong = sent + load.sent, wrong + load.sent - load.right
            seen.append(server.rss_bytes)
    tenth = seen[len(seen) // 10]
    return [
        row(
            [
                contender.name,
                digits(rate),
                f"{sent:,}",
                str(wrong),
                *map(megabytes, (begun, tenth, max(seen), seen[-1])),
            ]
        )
    ]


def parts(names: list[str], size: Size, folder: Path) -> Iterator[str]:
    """The results of the parts, as lines of Markdown."""
    sustained: dict[str, float] = {}
    if "slow" in names:
        yield from slow_store(folder / "slow", size.pages, size.slow_keys)
        yield ""
    if {"rates", "memory"} & set(names):
        contenders = prepare(folder, size.pages)
        keys = choose_keys(size.pages, int(max(size.rates) * size.seconds))
        if "rates" in names:
            yield from head(COLUMNS)
            for one in contenders:
                lines, sustained[one.name] = rates(one, keys, size, folder)
                yield from lines
            yield ""
        if "memory" in names:
            yield from head(
                [
                    "memory",
                    "requested/s",
                    "requested in total",
                    "wrong",
                    "at the start",
                    "after a tenth",
                    "greatest",
                    "at the end",
                ]
            )
            yield from _memory_of(contenders[1], keys, sustained, size, folder)


def _memory_of(one: Contender, keys: Keys, sustained: dict[str, float], size: Size, folder: Path) -> Iterator[str]:
    """The line of a contender at a tenth of its greatest load. Finds that load first, unless another part did."""
    rate = sustained.get(one.name)
    if rate is None:
        targets = folder / "targets"
        with one.start() as server:
            write_targets(targets, server, keys.uniform)
            load, _ = saturation(lambda tried: attack(server, targets, tried, size.seconds / 2))
            rate = load.requested if load else FIRST_RATE
    yield from memory(one, keys, rate / 10, size.memory_seconds, folder)


@app.command()
def main(
    only: Annotated[str, typer.Option(help=f"Parts, separated by commas: {', '.join(PARTS)}.")] = ",".join(PARTS),
    quick: Annotated[bool, typer.Option("--quick", help="A small run of each part, as a test.")] = False,
    folder: Annotated[Path, typer.Option(help="Where the data goes; replaces it.")] = Path(".bench/serve"),
    record: RecordOption = False,
) -> None:
    """Load the service at constant rates, measure its memory, and let it fetch from a slow store."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that servers are stopped
    names = [name.strip() for name in only.split(",")]
    for name in names:
        if name not in PARTS:
            raise UsageError(f"--only: expected some of {', '.join(PARTS)}, found {name!r}")
    folder.mkdir(parents=True, exist_ok=True)
    vegeta()
    report = Report(BENCH, LIBRARIES, {"quick": quick, "only": only})
    for line in parts(names, QUICK if quick else FULL, folder.absolute()):
        report.say(line)  # immediately: results are not lost where a later part fails
    report.record(record)


if __name__ == "__main__":
    app()
