"""One large index file, and one large index, without Spark.

`python -m bench.large file`: look-ups in one index file of 100 million entries, cold and warm.
`python -m bench.large index`: an index of a billion integer keys, built from Parquet files that are made before it, and
its nightly work. Each command runs in a process of its own.

The data go to their own folder; the tables to standard output.
"""

import json
import random
import resource
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import typer

from bench.btree import FILE_NAME, FILES, WrongAnswer
from bench.growth import build, folder_size, gnomon
from bench.page import PYTHON, RecordOption, Report, digits, head, row
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


@app.command("file")
def large(
    entries: Annotated[int, typer.Option(help="Entries of the file.", min=1000)] = 100_000_000,
    folder: Annotated[Path, typer.Option(help="Where the file goes; replaces it.")] = Path(".bench/large"),
    record: RecordOption = False,
) -> None:
    """Write one large index file, look keys up in it, and check it."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "large.btree.avro"
    report = Report(BENCH, LIBRARIES, {"entries": entries}, f"{PYTHON} -m {BENCH} file --entries {entries}")
    say(f"writing {entries:,} entries ...")
    report.say(measure(entries, path))
    report.record(record)


# -- an index of a billion keys ----------------------------------------------------------------------------------------

ROWS_A_FILE = 10_000_000
SPREAD = 0x9E3779B97F4A7C15  # odd: a product with it, modulo a power of 2, gives each number once
KEYS = 1 << 63
CHECKED = 1_000_000  # keys of a dedup check
# Prints, of an index: ms to open it; ms of each first look-up after an opening; us of each warm one; seconds and bytes
# of a check of CHECKED keys, half of them known; and the peak memory of all this.
USE = """
import json, random, resource, statistics, sys, time
import pyarrow as pa
from bench.large import CHECKED, key
from gnomon.shadow import FetchStats, OpenIndex, open_index
from gnomon.shadow.lookup import MatchStats
place, rows = sys.argv[1], int(sys.argv[2])
dice, cold, opens = random.Random(1), [], []
for _ in range(20):
    number, begin = dice.randrange(rows), time.perf_counter()
    index = open_index(place)
    opens.append(time.perf_counter() - begin)
    begin, stats = time.perf_counter(), FetchStats()
    assert index.contains(key(number), stats=stats)
    cold.append((time.perf_counter() - begin, stats.index.reads))
warm = []
for number in [dice.randrange(rows) for _ in range(5000)]:
    begin = time.perf_counter()
    assert index.contains(key(number))
    warm.append(time.perf_counter() - begin)
numbers = [dice.randrange(rows) for _ in range(CHECKED // 2)] + list(range(rows, rows + CHECKED // 2))
keys = pa.record_batch({"id": pa.array([key(number) for number in numbers], pa.int64())})
begin, stats = time.perf_counter(), MatchStats()
found = OpenIndex.of(index).holds(keys, {}, stats)
seconds = time.perf_counter() - begin
assert found.to_pylist() == [True] * (CHECKED // 2) + [False] * (CHECKED // 2)
print(json.dumps({
    "open_ms": statistics.median(opens) * 1000,
    "cold_ms": statistics.median(one for one, _ in cold) * 1000,
    "cold_reads": max(reads for _, reads in cold),
    "warm_us": statistics.median(warm[1000:]) * 1e6,
    "check_s": seconds,
    "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
}))
"""


def key(number: int) -> int:
    """The key of a row: no two are equal, and they lie anywhere in 63 bits."""
    return number * SPREAD % KEYS


def write_rows(path: Path, begin: int, end: int) -> None:
    """A source file: a key of 8 bytes and a small payload in each row."""
    numbers = np.arange(begin, end, dtype=np.uint64)
    ids = (numbers * np.uint64(SPREAD) & np.uint64(KEYS - 1)).astype(np.int64)
    table = pa.table({"id": ids, "n": (numbers % np.uint64(1000)).astype(np.int16)})
    pq.write_table(table, path, compression="none", use_dictionary=["n"], row_group_size=1 << 20)


def measure_index(rows: int, folder: Path) -> str:
    """The results as Markdown. The data are removed."""
    source, index = folder / "source", folder / "index"
    shutil.rmtree(folder, ignore_errors=True)
    source.mkdir(parents=True)
    for begin in range(0, rows, ROWS_A_FILE):
        write_rows(source / f"part-{begin // ROWS_A_FILE:05d}.parquet", begin, min(begin + ROWS_A_FILE, rows))
    say(f"{megabytes(folder_size(source, '*'))} of source files; building ...")
    first = build(source, index, "--key", "id")
    shadow = index / "_shadow"
    files, filters = folder_size(index, "*.btree.avro"), folder_size(shadow / "filters", "*")
    buckets = len(list(index.rglob("*.btree.avro")))
    say(f"{first.seconds:.0f} s, {first.cpu:.0f} CPU s; using ...")
    done = subprocess.run([sys.executable, "-c", USE, index, str(rows)], stdout=subprocess.PIPE, check=True)
    used = json.loads(done.stdout)
    write_rows(source / "part-later.parquet", rows, rows + CHECKED)
    later = build(index)
    say(f"{later.seconds:.0f} s for {CHECKED:,} rows more; compacting ...")
    compact = gnomon("compact", index)
    shutil.rmtree(folder)
    sizes = [f"{rows:,}", digits(first.seconds), digits(first.cpu), f"{first.peak:,} MB"]
    sizes += [digits(files / rows), digits(filters / rows), f"{buckets:,}"]
    nightly = [digits(later.seconds), digits(compact.seconds), f"{compact.peak:,} MB"]
    nightly += [digits(compact.cpu / buckets * 1000)]
    lookups = [digits(used["open_ms"]), digits(used["cold_ms"]), str(used["cold_reads"]), digits(used["warm_us"])]
    lines = [
        *head(["keys", "build s", "its CPU s", "its largest process", "index bytes a key", "filter bytes", "buckets"]),
        row(sizes),
        "",
        *head(["open ms", "cold look-up ms", "its reads", "warm look-up us", f"check of {CHECKED:,} keys s", "peak"]),
        row([*lookups, digits(used["check_s"]), megabytes(used["peak"])]),
        "",
        *head([f"build of {CHECKED:,} rows more s", "compact s", "its largest process", "CPU ms a bucket"]),
        row(nightly),
    ]
    return "\n".join(lines) + "\n"


@app.command("index")
def large_index(
    rows: Annotated[int, typer.Option(help="Rows of the source.", min=CHECKED)] = 1_000_000_000,
    folder: Annotated[Path, typer.Option(help="Where the data go; replaces it.")] = Path(".bench/large-index"),
) -> None:
    """Build and use one large index of integer keys: 50 GB of disk for a billion. docs/planning.md has the result."""
    report = Report(BENCH, LIBRARIES, {"rows": rows}, f"{PYTHON} -m {BENCH} index --rows {rows}")
    report.say(measure_index(rows, folder))


if __name__ == "__main__":
    app()
