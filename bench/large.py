"""Look-ups in one index file of 100 million entries, cold and warm: `python -m bench.large`.

The file is written to its own folder, batch by batch; the tables go to standard output.
"""

import random
import resource
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import typer

from bench.btree import FILE_NAME, FILES, WrongAnswer
from bench.page import RecordOption, Report, digits, head, row
from bench.stores import BATCH_ROWS, entry_schema
from gnomon.btree import BTreeReader, BTreeWriter
from gnomon.btree.__main__ import LocalFile
from gnomon.btree.blocks import LookupStats
from gnomon.btree.keys import Key
from gnomon.commands.output import megabytes, say

BENCH = "bench.large"
LIBRARIES = ("gnomon-index", "pyarrow", "numpy", "isal")
COLD_KEYS, WARM_KEYS = 20, 1000
SIZES = (
    "entries", "bytes", "bytes an entry", "URL bytes before compression", "nodes", "levels", "written, µs an entry",
    "memory, most", "checked, µs an entry", "a warm reader keeps",
)  # fmt: skip

app = typer.Typer(pretty_exceptions_enable=False, add_completion=False, rich_markup_mode=None)


def url(number: int) -> str:
    """Key `number` of the file; keys ascend with their numbers."""
    return f"https://www.example.org/crawl/{number:010d}/index.html"


def batches(entries: int) -> Iterator[pa.Table]:
    """The entries in key order: a URL, and the pointer to a row of one of some Parquet files."""
    names = pa.array([FILE_NAME.format(i) for i in range(FILES)])
    chance = np.random.default_rng(1)
    for begin in range(0, entries, BATCH_ROWS):
        number = np.arange(begin, min(begin + BATCH_ROWS, entries))
        padded = pc.utf8_lpad(pa.array(number).cast(pa.string()), 10, "0")
        rows = chance.integers(0, entries, len(number))
        columns = {
            "url": pc.binary_join_element_wise("https://www.example.org/crawl/", padded, "/index.html", ""),
            "data_filename": names.take(pa.array(rows % FILES)),
            "data_offset": pa.array(rows // FILES),
            "data_sub_offset": pa.array(np.zeros(len(number), np.int32)),
            "data_size": pa.array((4000 + rows % 2000).astype(np.int32)),
        }
        yield pa.table(columns)


def write(entries: int, path: Path) -> float:
    """Write the file. Returns the seconds per entry, without the time to make up the entries."""
    schema = entry_schema(next(batches(1)))
    writer = BTreeWriter(schema)
    seconds = 0.0
    for batch in batches(entries):
        begin = time.perf_counter()
        writer.write(batch)
        seconds += time.perf_counter() - begin
    begin = time.perf_counter()
    with open(path, "wb") as file:
        file.writelines(writer.finish().chunks)
    return (seconds + time.perf_counter() - begin) / entries


def cold(path: Path, keys: list[str]) -> list[LookupStats]:
    """The cost of each look-up in a file that no program has opened yet, including the opening."""
    costs = []
    for key in keys:
        stats = LookupStats()
        file = LocalFile(str(path))
        _expect(BTreeReader(file, stats).get((key,), stats), key)
        file.close()
        costs.append(stats)
    return costs


def warm(path: Path, keys: list[str]) -> tuple[list[LookupStats], list[float], int]:
    """The cost of each look-up in a file whose upper nodes were used before, its seconds, and the memory of these
    nodes."""
    file = LocalFile(str(path))
    tree = BTreeReader(file)
    tree.contains_many([(key,) for key in keys])
    costs, seconds = [], []
    for key in keys:
        stats = LookupStats()
        begin = time.perf_counter()
        found = tree.get((key,), stats)
        seconds.append(time.perf_counter() - begin)
        _expect(found, key)
        costs.append(stats)
    file.close()
    return costs, seconds, tree.cache_bytes


def _expect(found: list[Key], key: str) -> None:
    if len(found) != 1:
        raise WrongAnswer(f"{key} has {len(found)} entries, expected 1")


def _cost_cells(name: str, costs: list[LookupStats], micros: str) -> list[str]:
    nodes, reads = max(cost.nodes for cost in costs), max(cost.reads for cost in costs)
    size = statistics.mean(cost.bytes for cost in costs)
    return [name, str(len(costs)), str(nodes), str(reads), f"{size:,.0f}", micros]


def measure(entries: int, path: Path) -> str:
    """The results as Markdown. The file is removed."""
    seconds = write(entries, path)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    chance = random.Random(1)
    cold_costs = cold(path, [url(chance.randrange(entries)) for _ in range(COLD_KEYS)])
    warm_costs, times, cached = warm(path, [url(chance.randrange(entries)) for _ in range(WARM_KEYS)])
    begin = time.perf_counter()
    file = LocalFile(str(path))
    census = BTreeReader(file).census()
    file.close()
    checked = time.perf_counter() - begin
    path.unlink()
    sizes = [megabytes(census.bytes), digits(census.bytes / entries), str(len(url(0)))]
    sizes += [f"{census.nodes:,}", str(census.height), digits(seconds * 1e6), megabytes(memory)]
    lines = [
        *head(SIZES),
        row([f"{census.entries:,}", *sizes, digits(checked * 1e6 / entries), megabytes(cached)]),
        "",
        *head(["look-up", "keys", "nodes, most", "dependent reads, most", "bytes, mean", "p50 µs"]),
        row(_cost_cells("cold: nothing of the file in memory, opening it included", cold_costs, "")),
        row(_cost_cells("warm: upper nodes in memory", warm_costs, digits(statistics.median(times) * 1e6))),
    ]
    return "\n".join(lines) + "\n"


@app.command()
def large(
    entries: Annotated[int, typer.Option(help="Entries of the file.", min=1000)] = 100_000_000,
    folder: Annotated[Path, typer.Option(help="Where the file goes; replaces it.")] = Path(".bench/large"),
    record: RecordOption = False,
) -> None:
    """Write one large index file, look keys up in it, and check it."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "large.btree.avro"
    report = Report(BENCH, LIBRARIES, {"entries": entries})
    say(f"writing {entries:,} entries ...")
    report.say(measure(entries, path))
    report.record(record)


if __name__ == "__main__":
    app()
