"""The build of an index of narrow rows, compared with Spark's own shuffle, sort and write of the same entries: `python
-m bench.build`.

Data, indexes and copies go to `.bench/build`; the table to standard output.
"""

import shutil
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, NamedTuple

import pyarrow as pa
import typer
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from bench.lake import folder_bytes
from bench.page import RecordOption, Report, digits, head, row
from bench.processes import Cpu, cpu_of
from bench.sampling import Sampled, report
from gnomon.commands.output import megabytes, say
from gnomon.commands.spark import spark_session
from gnomon.indexer import build as build_index
from gnomon.indexer.build import write as index_writing
from gnomon.shadow.metadata.spec import ENTRIES_PER_BUCKET
from tests.opened import open_index

BENCH = "bench.build"
LIBRARIES = ("gnomon-index", "pyspark", "pyarrow", "numpy", "isal")
ROWS_PER_FILE = 500_000
GNOMON, SPARK = "Gnomon: build, with read-back and filters", "Spark: repartition, sort, Parquet"
KEYS = ("url", "id")
GOAL = 1.3
PROFILE_LINES = 30

app = typer.Typer(pretty_exceptions_enable=False, add_completion=False, rich_markup_mode=None)


class WrongCount(Exception):
    """A contender wrote more or fewer entries than there are rows."""


class Run(NamedTuple):
    """The cost of one run of a contender: seconds, seconds of CPU, bytes written."""

    seconds: float
    cpu: Cpu
    bytes: int


def write_source(spark: SparkSession, folder: Path, rows: int) -> None:
    """Write rows in random order of their keys: a URL of 51 bytes, a number as another key, and a short payload."""
    number = F.xxhash64("id").bitwiseAND(2**60 - 1)
    frame = spark.range(0, rows, 1, max(1, rows // ROWS_PER_FILE)).select(
        F.format_string("https://www.example.org/crawl/%010d/index.html", F.col("id") * 7919 % rows).alias("url"),
        number.alias("id"),
        F.concat(F.lit("page "), F.col("id")).alias("title"),
    )
    frame.write.parquet(str(folder))


def buckets_of(rows: int) -> int:
    """The number of buckets that a build of this number of rows uses, for both contenders."""
    return -(-rows // ENTRIES_PER_BUCKET)


def gnomon(spark: SparkSession, source: Path, target: Path, key: str, buckets: int) -> None:
    build_index(spark, str(source), str(target), [key], buckets=buckets)


def gnomon_count(spark: SparkSession, target: Path) -> int:
    return sum(entry.entries for segment in open_index(str(target)).view.segments for entry in segment.index_files)


def spark_alone(spark: SparkSession, source: Path, target: Path, key: str, buckets: int) -> None:
    """Write the same entries with Spark: key, file, row."""
    rows = spark.read.parquet(str(source))
    file, ordinal = (
        F.col("_metadata.file_path").alias("data_filename"),
        F.col("_metadata.row_index").alias("data_offset"),
    )
    entries = rows.select(key, file, ordinal).repartition(buckets, key).sortWithinPartitions(key)
    entries.write.parquet(str(target))


def spark_count(spark: SparkSession, target: Path) -> int:
    return spark.read.parquet(str(target)).count()


# Each with the function that runs it, and the one that counts its entries.
CONTENDERS: dict[str, tuple[Callable[..., None], Callable[[SparkSession, Path], int]]] = {
    GNOMON: (gnomon, gnomon_count),
    SPARK: (spark_alone, spark_count),
}


def measure(spark: SparkSession, folder: Path, rows: int, key: str, rounds: int) -> dict[str, list[Run]]:
    """The runs of each contender, in turns, so that a slow phase of the machine slows both. The first run of each
    compiles and starts workers; it does not count if there are more."""
    source = folder / "source"
    runs: dict[str, list[Run]] = {name: [] for name in CONTENDERS}
    for turn in range(rounds + 1):
        for name, (contender, counted) in CONTENDERS.items():
            target = folder / f"target-{turn}"
            before, begin = cpu_of(spark), time.perf_counter()
            contender(spark, source, target, key, buckets_of(rows))
            seconds, after = time.perf_counter() - begin, cpu_of(spark)
            if (count := counted(spark, target)) != rows:
                raise WrongCount(f"{name}: {count} entries of {rows} rows")
            runs[name].append(Run(seconds, after - before, folder_bytes(target)))
            shutil.rmtree(target)
    return {name: found[1:] for name, found in runs.items()}


def profile(spark: SparkSession, folder: Path, rows: int, key: str) -> str:
    """The functions in which the Python tasks that write index files spend their CPU time, in a separate build."""
    stats = folder / "profiles"
    stats.mkdir()
    writer = index_writing._writer
    index_writing._writer = lambda task, entries: partial(_profiled, writer(task, entries), str(stats))  # type: ignore[assignment]
    try:
        gnomon(spark, folder / "source", folder / "target-profile", key, buckets_of(rows))
    finally:
        index_writing._writer = writer
    text = report(stats.iterdir(), PROFILE_LINES)
    shutil.rmtree(stats)
    shutil.rmtree(folder / "target-profile")
    return text


def _profiled(
    write: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]],
    folder: str,
    batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    with Sampled() as samples:
        written = list(write(batches))
    samples.save(Path(folder) / str(time.time_ns()))
    yield from written


def table(found: dict[tuple[int, str], dict[str, list[Run]]]) -> str:
    """All results, and their distance from the goal."""
    lines = head(["", "wall s", "CPU s: JVM", "CPU s: Python", "µs of CPU an entry", "written", "bytes an entry"])
    for (rows, key), runs in found.items():
        lines.append(row([f"**{rows:,} entries, key `{key}`**", *[""] * 6]))
        for name, some in runs.items():
            lines.append(row([name, *_cells(some, rows)]))
        ours, sparks = (runs[name] for name in CONTENDERS)
        ratios = [_middle(ours, get) / _middle(sparks, get) for get in (_wall, _cpu)]
        words = [f"{digits(ratio)}x ({'reached' if ratio <= GOAL else 'missed'})" for ratio in ratios]
        lines.append(row([f"Gnomon / Spark, goal {GOAL:g}x", words[0], f"all CPU: {words[1]}", *[""] * 4]))
    return "\n".join(lines) + "\n"


def _cells(runs: Sequence[Run], rows: int) -> list[str]:
    jvm, python = _middle(runs, lambda run: run.cpu.jvm), _middle(runs, lambda run: run.cpu.python)
    size = round(_middle(runs, lambda run: run.bytes))
    each = digits((jvm + python) / rows * 1e6)
    return [digits(_middle(runs, _wall)), digits(jvm), digits(python), each, megabytes(size), digits(size / rows)]


def _middle(runs: Sequence[Run], get: Callable[[Run], float]) -> float:
    return statistics.median(map(get, runs))


def _wall(run: Run) -> float:
    return run.seconds


def _cpu(run: Run) -> float:
    return run.cpu.jvm + run.cpu.python


@app.command()
def build(
    entries: Annotated[list[int] | None, typer.Option(help="Rows to index; repeatable.", min=1)] = None,
    key: Annotated[list[str] | None, typer.Option(help=f"Key columns, each alone: {', '.join(KEYS)}.")] = None,
    rounds: Annotated[int, typer.Option(help="Runs of each contender that count.", min=1)] = 3,
    folder: Annotated[Path, typer.Option(help="Where the data goes.")] = Path(".bench/build"),
    profiled: Annotated[bool, typer.Option("--profile/--no-profile", help="Profile the Python tasks, too.")] = True,
    record: RecordOption = False,
) -> None:
    """Build indexes of narrow rows, and let Spark shuffle, sort and write the same entries, in turns."""
    sizes, keys = entries or [1_000_000, 10_000_000, 50_000_000], key or list(KEYS)
    shutil.rmtree(folder, ignore_errors=True)
    found, text = {}, ""
    report = Report(BENCH, LIBRARIES, {"entries": sizes, "key": keys, "rounds": rounds})
    with spark_session() as spark:
        for rows in sizes:
            write_source(spark, folder / "source", rows)
            for name in keys:
                say(f"{rows:,} entries, key {name} ...")
                found[rows, name] = measure(spark, folder, rows, name, rounds)
                if profiled and rows == sizes[0]:
                    text += (
                        f"\n{rows:,} entries, key `{name}`:\n\n```\n{profile(spark, folder, rows, name).strip()}\n```\n"
                    )
            shutil.rmtree(folder / "source")
    report.say(table(found))
    say(text)
    report.record(record)


if __name__ == "__main__":
    app()
