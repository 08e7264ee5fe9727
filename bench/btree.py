"""One index file compared with other files that find entries by key: `python -m bench.btree`.

Workloads: the entries of a made-up web crawl (text keys), and the same entries with numbers as keys (bigint). The files
go to their own folder; the tables to standard output.
"""

import gc
import os
import random
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import pyarrow as pa
import typer

from bench.choices import choices
from bench.page import RecordOption, Report, digits, head, row
from bench.stores import STORES, Key, Store, rows_of
from gnomon.commands.crawl import page_urls
from gnomon.commands.output import say

BENCH = "bench.btree"
LIBRARIES = ("gnomon-index", "pyarrow", "numpy", "fastavro", "isal", "zlib-ng", "polars", "rocksdict")
FILES = 8  # to which the entries point
FILE_NAME = "dt=2026-01-01/part-{:05d}-5f0c9f6e-6e0f-4d8a-9a0b-cafe00000000-c000.snappy.parquet"  # named as by Spark
SINGLE_KEYS, MANY_KEYS = 1000, 20_000  # in a round; a store that scans for a key gets 1
COLUMNS = (
    "", "write", "bytes an entry", "get µs", "get_many µs a key", "contains_many µs a key", "scan", "check",
    "nodes a get", "bytes a get",
)  # fmt: skip

app = typer.Typer(pretty_exceptions_enable=False, add_completion=False, rich_markup_mode=None)


class WrongAnswer(Exception):
    """A store gave an entry that differs from the written one."""


class Workload(NamedTuple):
    """Entries, sorted by key, and some absent keys."""

    title: str
    table: pa.Table
    absent: Sequence[Key]


def workloads(entries: int) -> list[Workload]:
    """The workloads. An entry is a key, and the pointer to a row of one of some Parquet files."""
    order = np.random.default_rng(1).permutation(entries)
    names = [FILE_NAME.format(i) for i in range(FILES)]
    pointers = {
        "data_filename": pa.array(names).take(pa.array(order % FILES)),
        "data_offset": pa.array(order // FILES),
        "data_sub_offset": pa.array(np.zeros(entries, np.int32)),
        "data_size": pa.array((4000 + order % 2000).astype(np.int32)),
    }
    urls = pa.table({"url": page_urls(np.arange(entries)), **pointers}).sort_by("url")
    numbers = pa.table({"id": pa.array(np.arange(entries) * 7), **pointers})
    absent = page_urls(np.arange(2**31, 2**31 + MANY_KEYS)).to_pylist()
    size = urls["url"].nbytes // max(entries, 1)
    return [
        Workload(f"{entries:,} entries of a web crawl, URLs of {size} bytes", urls, absent),
        Workload(f"{entries:,} entries, bigint keys", numbers, [i * 7 + 3 for i in range(min(entries, MANY_KEYS))]),
    ]


@dataclass
class Line:
    """The measurements of a store: seconds of each round."""

    store: Store
    seconds: dict[str, list[float]] = field(default_factory=dict)
    bytes: int = 0
    cost: tuple[float, float] | None = None  # nodes and bytes a get

    def time(self, what: str, work: Callable[[], Any], count: int) -> Any:
        """Run `work`, and record its seconds for each of `count` items."""
        begin = time.perf_counter()
        answer = work()
        self.seconds.setdefault(what, []).append((time.perf_counter() - begin) / count)
        return answer

    def median(self, what: str) -> float | None:
        """The median, in seconds."""
        return statistics.median(self.seconds[what]) if what in self.seconds else None


def measure(workload: Workload, stores: Sequence[type[Store]], folder: Path, rounds: int) -> list[Line]:
    """Write all files and query them, `rounds` times, in turns. WrongAnswer for a wrong entry."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = [Line(store(folder)) for store in stores]
    rows = {key: tuple(value) for key, *value in rows_of(workload.table)}
    keys = list(rows)
    gc.collect()
    gc.freeze()  # otherwise the collector would walk a million tuples in a round
    try:
        for turn in range(rounds):
            chance = random.Random(turn)
            single = chance.sample(keys, min(SINGLE_KEYS, len(keys)))
            half = min(MANY_KEYS, len(keys)) // 2
            many = sorted([*chance.sample(keys, half), *workload.absent[:half]])
            for line in chance.sample(lines, len(lines)):
                _round(line, workload.table, rows, single, many)
    finally:
        gc.unfreeze()
    return lines


def _round(line: Line, table: pa.Table, rows: dict[Key, Any], single: list[Key], many: list[Key]) -> None:
    store = line.store
    line.time("write", lambda: store.write(table), len(rows))
    line.bytes = store.bytes
    single = single[:1] if store.scans else single
    store.open()
    with closing(store):
        for key in [] if store.scans else single[: len(single) // 10]:
            store.get(key)  # to warm up
        _expect(store, line.time("get", lambda: [store.get(key) for key in single], len(single)), rows, single)
        _expect(store, line.time("get_many", lambda: store.get_many(many), len(many)), rows, many)
        there = line.time("contains_many", lambda: store.contains_many(many), len(many))
        counted = [line.time("scan", store.scan, len(rows)), line.time("check", store.check, len(rows))]
        if there != [key in rows for key in many] or counted[0] != len(rows) or counted[1] not in (None, len(rows)):
            raise WrongAnswer(f"{store.name}: keys or entries are missing")
        if counted[1] is None:
            del line.seconds["check"]
        costs = [cost for key in single if (cost := store.cost_of_get(key))]
        if costs:
            line.cost = (
                statistics.mean(cost.nodes for cost in costs),
                statistics.mean(cost.bytes for cost in costs),
            )


def _expect(store: Store, found: list[Any], rows: dict[Key, Any], keys: list[Key]) -> None:
    for key, value in zip(keys, found, strict=True):
        if value != rows.get(key):
            raise WrongAnswer(f"{store.name}: {key} has {value}, expected {rows.get(key)}")


def table(results: Sequence[tuple[Workload, Sequence[Line]]]) -> str:
    """All results, workload by workload."""
    lines = head(COLUMNS)
    for workload, measured in results:
        lines.append(row([f"**{workload.title}**", *[""] * (len(COLUMNS) - 1)]))
        lines += [row(_cells(line, workload.table.num_rows)) for line in measured]
    return "\n".join(lines) + "\n"


def _cells(line: Line, entries: int) -> list[str]:
    def micros(what: str) -> str:
        seconds = line.median(what)
        return "" if seconds is None else digits(seconds * 1e6)

    def rate(what: str) -> str:
        seconds = line.median(what)
        return "" if seconds is None else f"{digits(1e-6 / seconds)} M/s"

    cost = ["", ""] if line.cost is None else [digits(line.cost[0]), f"{line.cost[1]:,.0f}"]
    many = [micros("get"), micros("get_many"), micros("contains_many")]
    return [line.store.name, rate("write"), digits(line.bytes / entries), *many, rate("scan"), rate("check"), *cost]


@app.command()
def btree(
    entries: Annotated[int, typer.Option(help="Entries of each file.", min=1000)] = 1_000_000,
    rounds: Annotated[int, typer.Option(help="Rounds, of which the medians count.", min=1)] = 3,
    folder: Annotated[Path, typer.Option(help="Where the files go; replaces them.")] = Path(".bench/btree"),
    record: RecordOption = False,
) -> None:
    """Write, find, scan and check entries in an index file, plain Avro, SQLite and RocksDB, side by side."""
    report = Report(BENCH, LIBRARIES, {"entries": entries, "rounds": rounds})
    results = []
    all_workloads = workloads(entries)
    for workload in all_workloads:
        say(f"{workload.title} ...")
        results.append((workload, measure(workload, STORES, folder, rounds)))
    say("choices ...")
    crawl = all_workloads[0].table
    report.say(f"{table(results)}\n{choices(crawl.slice(0, min(entries, 200_000)), rounds)}")
    report.record(record)
    os.sync()


if __name__ == "__main__":
    app()
