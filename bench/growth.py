"""The growth of an index with its source files, its partitions and its rows: `python -m bench.growth`.

Sources of many tiny Parquet files, and of a few large ones, are made and indexed without Spark. Each command is a
process of its own. The result is a table of docs/planning.md and one JSON line. A first build stays in the folder, and
a second run does not repeat it.
"""

import json
import sys
import time
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import typer

from bench.measured import Cost, measured
from bench.page import about, digits, head, row
from bench.server import serve
from gnomon.commands.crawl import page_urls
from gnomon.commands.output import megabytes, say
from gnomon.shadow import open_index
from gnomon.shadow.fetch import FetchStats
from gnomon.shadow.lookup import parse_key

COMMAND = ".venv/bin/python -m bench.growth"
LIBRARIES = ("gnomon-index", "pyarrow", "numpy", "fastavro", "isal")
ROWS_A_FILE = 10  # of a tiny file
PARTS = 8  # files of a large source
COLUMNS = (
    "index", "first build s", "its CPU s", "its peak", "no-op build s", "its peak", "open ms", "first look-up: reads",
    "index", "Bloom filters", "manifest", "snapshot", "service",
)  # fmt: skip
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
    Case(100, 100, False),
    Case(10_000, 10_000, False),
)


def build(*arguments: str | Path) -> Cost:
    return measured([sys.executable, "-m", "gnomon", "build", *map(str, arguments), "--engine", "local"])


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


def first_build(folder: Path, *arguments: str) -> Cost:
    """The first build of `source` to `index`, or its record from an earlier run."""
    record = folder / "first.json"
    if not record.exists():
        made = build(folder / "source", folder / "index", *arguments)
        record.write_text(json.dumps(made))
    return Cost(*json.loads(record.read_text()))


def make_rows(source: Path, rows: int) -> None:
    """Write the large files: a URL as the key, in random order."""
    source.mkdir(parents=True)
    for number, pages in enumerate(np.array_split(np.random.default_rng(1).permutation(rows), PARTS)):
        pq.write_table(pa.table({"id": page_urls(pages), "n": pages}), source / f"part-{number:05d}.parquet")


def folder_size(folder: Path, pattern: str) -> int:
    return sum(path.stat().st_size for path in folder.rglob(pattern) if path.is_file())


def opened(index: Path, key: str) -> tuple[float, int]:
    """Seconds to open an index, and the reads of the index by the first look-up of a key after it."""
    begin = time.perf_counter()
    one = open_index(index)
    seconds = time.perf_counter() - begin
    stats = FetchStats()
    if len(one.find([parse_key(key, one.spec)], stats.index)[0]) != 1:
        raise RuntimeError(f"{index}: expected one row of {key}")
    return seconds, stats.index.reads


def figures(name: str, folder: Path, key: str, *arguments: str) -> dict[str, float | str]:
    """The figures of one index."""
    first, index = first_build(folder, *arguments), folder / "index"
    again = build(index)
    seconds, reads = opened(index, key)
    with serve(index) as server:
        service = server.rss_bytes
    shadow = index / "_shadow"
    return {
        "index": name,
        "first_seconds": first.seconds,
        "first_cpu_seconds": first.cpu,
        "first_peak_mb": first.peak,
        "no_op_seconds": again.seconds,
        "no_op_peak_mb": again.peak,
        "open_seconds": seconds,
        "reads": reads,
        "index_bytes": folder_size(index, "*.btree.avro"),
        "filter_bytes": folder_size(shadow / "filters", "*"),
        "manifest_bytes": folder_size(shadow / "segments", "*"),
        "snapshot_bytes": folder_size(shadow / "snapshots", "*"),
        "service_bytes": service,
    }


def line(found: dict[str, float | str]) -> str:
    """The figures as a line of the table."""
    cells = []
    for name, value in found.items():
        if isinstance(value, str):
            cells.append(value)
        elif name.endswith("_bytes"):
            cells.append(megabytes(int(value)))
        elif name.endswith("_mb"):
            cells.append(f"{value:,} MB")
        else:
            cells.append(f"{value:g}" if name == "reads" else digits(value * (1e3 if name == "open_seconds" else 1)))
    return row(cells)


@app.command()
def growth(
    most_files: Annotated[int, typer.Option(help="Leave out sources with more files.")] = 100_000,
    rows: Annotated[list[int] | None, typer.Option(help="Rows of a large source; repeatable.")] = None,
    folder: Annotated[Path, typer.Option(help="Where sources and indexes go.")] = Path(".bench/growth"),
) -> None:
    """Build, open and serve indexes of more and more files, partitions and rows."""
    say(about(COMMAND, LIBRARIES))
    found = []
    for case in (case for case in CASES if case.files <= most_files):
        place = folder / case.name
        if not (place / "source").exists():
            make_files(place / "source", case)
        layout = "--flat" if case.flat else "--partitioned"
        found.append(figures(case.name.replace("-", " "), place, "7", "--key", "id", layout))
    for count in rows or ():
        place = folder / f"{count}-rows"
        if not (place / "source").exists():
            make_rows(place / "source", count)
        key = page_urls(np.array([count // 2])).to_pylist()[0]
        found.append(figures(f"{count:,} rows", place, key, "--key", "id"))
    say("\n".join([*head(COLUMNS), *map(line, found)]))
    say(json.dumps(found))


if __name__ == "__main__":
    app()
