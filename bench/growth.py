"""The growth of an index with its source files, its partitions and its rows: `python -m bench.growth`.

Sources of many tiny Parquet files, and of a few large ones, are made and indexed without Spark. Each command is a
process of its own. The result is the tables of docs/planning.md and one JSON line. The figures of an index stay in its
folder, and a second run does not measure it again.
"""

import json
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import typer

from bench.measured import Cost, measured
from bench.page import RecordOption, Report, digits, head, row
from bench.server import serve
from gnomon.commands.crawl import page_urls
from gnomon.commands.output import megabytes, say
from gnomon.shadow import open_index
from gnomon.shadow.fetch import FetchStats

LIBRARIES = ("gnomon-index", "pyarrow", "numpy", "fastavro", "isal")
ROWS_A_FILE = 10  # of a tiny file
PARTS = 8  # files of a large source
LATER = "later.parquet"  # a file that comes after the first build: a copy of another one
Figures = dict[str, float | str]
# Figures by the heading of their column. The names say the unit.
SIZES = {
    "first build s": "first_seconds",
    "its CPU s": "first_cpu_seconds",
    "its peak": "first_peak_mb",
    "index files": "index_bytes",
    "Bloom filters": "filter_bytes",
    "manifest": "manifest_bytes",
    "snapshot": "snapshot_bytes",
    "service": "service_bytes",
    "open ms": "open_ms",
    "reads of a look-up": "lookup_reads",
    "and of its row": "row_reads",
}
NIGHTLY = {
    "no-op build s": "no_op_seconds",
    "its peak": "no_op_peak_mb",
    "build of a new file s": "one_file_seconds",
    "compact s": "compact_seconds",
    "vacuum s": "vacuum_seconds",
}
WITH_SPARK = {
    "build by Spark s": "seconds",
    "peak of Java": "java_mb",
    "of the driver's Python": "driver_mb",
    "of the largest worker": "worker_mb",
}
TEMPLATE = np.arange(1 << 60, (1 << 60) + ROWS_A_FILE, dtype=np.int64)  # keys that no other bytes of the file look like

app = typer.Typer(pretty_exceptions_enable=False, add_completion=False, rich_markup_mode=None)


class Case(NamedTuple):
    """A source: its tiny files, its partitions (1: no folders), and whether its index has a folder for each."""

    files: int
    partitions: int
    flat: bool

    @property
    def name(self) -> str:
        return f"{self.files}-files-{self.partitions}-partitions-{'flat' if self.flat else 'partitioned'}"


CASES = (
    Case(100, 1, True),
    Case(10_000, 1, True),
    Case(100_000, 1, True),
    Case(100, 100, True),
    Case(10_000, 10_000, True),
    Case(100_000, 100_000, True),
    Case(100, 100, False),
    Case(10_000, 10_000, False),
)


def gnomon(*arguments: str | Path) -> Cost:
    return measured([sys.executable, "-m", "gnomon", *map(str, arguments)])


def build(*arguments: str | Path, engine: str = "local") -> Cost:
    return gnomon("build", *arguments, "--engine", engine)


def make_files(source: Path, case: Case) -> None:
    """Write the tiny files. Each has keys of its own: the bytes of one file, with its key column overwritten."""
    staged = source.with_name("template.parquet")
    source.mkdir(parents=True)
    for number in range(case.files):
        make_file(source, case, number, staged)
    staged.unlink(missing_ok=True)


def make_file(source: Path, case: Case, number: int, staged: Path) -> None:
    if not staged.exists():
        table = pa.table({"id": TEMPLATE, "n": np.arange(ROWS_A_FILE)})
        pq.write_table(table, staged, compression="none", use_dictionary=False, write_statistics=False)
    folder = source / f"day={number % case.partitions:05d}" if case.partitions > 1 else source
    folder.mkdir(exist_ok=True)
    keys = np.arange(number * ROWS_A_FILE, (number + 1) * ROWS_A_FILE, dtype=np.int64)
    data = staged.read_bytes().replace(TEMPLATE.tobytes(), keys.tobytes())
    (folder / f"part-{number:06d}.parquet").write_bytes(data)


def make_rows(source: Path, rows: int) -> None:
    """Write the large files: a URL as the key, in random order."""
    source.mkdir(parents=True)
    for number, pages in enumerate(np.array_split(np.random.default_rng(1).permutation(rows), PARTS)):
        pq.write_table(pa.table({"id": page_urls(pages), "n": pages}), source / f"part-{number:05d}.parquet")


def folder_size(folder: Path, pattern: str) -> int:
    return sum(path.stat().st_size for path in folder.rglob(pattern) if path.is_file())


def looked_up(index: Path, key: object) -> dict[str, float]:
    """The milliseconds to open an index, and the reads of the first fetch after it: in the index, one after another,
    and in the source, without page maps."""
    begin = time.perf_counter()
    one = open_index(index)
    seconds = time.perf_counter() - begin
    stats = FetchStats()
    if len(one.fetch(key, stats=stats)) != 1:
        raise RuntimeError(f"{index}: expected one row of {key}")
    return {"open_ms": seconds * 1000, "lookup_reads": stats.index.reads, "row_reads": stats.source.reads}


def figures(name: str, folder: Path, key: object, *arguments: str) -> Figures:
    """The figures of the index of `source` in a folder, measured now or by an earlier run."""
    record = folder / "figures.json"
    if not record.exists():
        record.write_text(json.dumps(measure(name, folder, key, *arguments)))
    found: Figures = json.loads(record.read_text())
    return found


def measure(name: str, folder: Path, key: object, *arguments: str) -> Figures:
    source, index = folder / "source", folder / "index"
    shutil.rmtree(index, ignore_errors=True)
    shadow = index / "_shadow"
    first = build(source, index, *arguments)
    sizes = {
        "index_bytes": folder_size(index, "*.btree.avro"),
        "filter_bytes": folder_size(shadow / "filters", "*"),
        "manifest_bytes": folder_size(shadow / "segments", "*"),
        "snapshot_bytes": folder_size(shadow / "snapshots", "*"),
    }
    with serve(index) as server:
        service = server.rss_bytes
    reads, again = looked_up(index, key), build(index)
    one = min(source.rglob("*.parquet"))
    shutil.copyfile(one, one.with_name(LATER))
    return {
        "index": name,
        "first_seconds": first.seconds,
        "first_cpu_seconds": first.cpu,
        "first_peak_mb": first.peak,
        **sizes,
        "service_bytes": service,
        **reads,
        "no_op_seconds": again.seconds,
        "no_op_peak_mb": again.peak,
        "one_file_seconds": build(index).seconds,
        "compact_seconds": gnomon("compact", index).seconds,
        "vacuum_seconds": gnomon("vacuum", index, "--grace", "0s").seconds,
    }


def figures_with_spark(name: str, folder: Path, *arguments: str) -> Figures:
    """The figures of a first build by Spark of the `source` in a folder, which keeps them, too."""
    record = folder / "figures-spark.json"
    if not record.exists():
        index = folder / "index-spark"
        shutil.rmtree(index, ignore_errors=True)
        cost = build(folder / "source", index, *arguments, engine="spark")
        of_workers = [peak for program, peak in cost.programs.items() if program.startswith("python")]
        peaks = {
            "java_mb": cost.programs["java"],
            "driver_mb": cost.programs["command"],
            "worker_mb": max(of_workers, default=0),
        }
        record.write_text(json.dumps({"index": name, "seconds": cost.seconds, **peaks}))
        shutil.rmtree(index)
    found: Figures = json.loads(record.read_text())
    return found


def table(found: Sequence[Figures], columns: Mapping[str, str]) -> str:
    """Figures of all indexes as a table."""
    lines = [row([str(one["index"]), *(cell(name, one[name]) for name in columns.values())]) for one in found]
    return "\n".join([*head(("index", *columns)), *lines])


def cell(name: str, value: float | str) -> str:
    number = float(value)
    if name.endswith("_bytes"):
        return megabytes(int(number))
    if name.endswith("_mb"):
        return f"{number:,.0f} MB"
    return f"{number:g}" if name.endswith("_reads") else digits(number)


@app.command()
def growth(
    most_files: Annotated[int, typer.Option(help="Leave out sources with more files.")] = 100_000,
    rows: Annotated[list[int] | None, typer.Option(help="Rows of a large source; repeatable.")] = None,
    spark: Annotated[bool, typer.Option("--spark", help="Build each source by Spark, too.")] = False,
    folder: Annotated[Path, typer.Option(help="Where sources and indexes go.")] = Path(".bench/growth"),
    record: RecordOption = False,
) -> None:
    """Build, open and serve indexes of more and more files, partitions and rows."""
    report = Report("bench.growth", LIBRARIES, {"most_files": most_files, "rows": rows, "spark": spark})
    found: list[Figures] = []
    by_spark: list[Figures] = []
    for case in (case for case in CASES if case.files <= most_files):
        place = folder / case.name
        if not (place / "source").exists():
            make_files(place / "source", case)
        name, options = case.name.replace("-", " "), ("--key", "id", "--flat" if case.flat else "--partitioned")
        found.append(figures(name, place, 7, *options))
        by_spark += [figures_with_spark(name, place, *options)] if spark else []
    for count in rows or ():
        place = folder / f"{count}-rows"
        if not (place / "source").exists():
            make_rows(place / "source", count)
        key = page_urls(np.array([count // 2])).to_pylist()[0]
        found.append(figures(f"{count:,} rows", place, key, "--key", "id"))
        by_spark += [figures_with_spark(f"{count:,} rows", place, "--key", "id")] if spark else []
    report.say(
        "\n\n".join([table(found, SIZES), table(found, NIGHTLY), *([table(by_spark, WITH_SPARK)] if spark else [])])
    )
    say(json.dumps([found, by_spark]))
    report.record(record)


if __name__ == "__main__":
    app()
