"""Spark with and without `gnomon catalog`, on an Iceberg table of many files: `python -m bench.catalog`.

The keys lie in the files at random, so that statistics leave few files out. Two equal tables (format 2, merge-on-read)
lie in one catalog: one has an index, and `gnomon catalog` plans its scans; Spark plans those of the other itself. Each
statement runs once on each, after one of its kind that warms Spark up. Files are those of the scan, bytes are what
Spark counts as read, seconds are of the whole statement. The index is of the first version: each change adds files that
it does not cover.
"""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, NamedTuple

import httpx
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import typer
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import In
from pyiceberg.io.pyarrow import parquet_files_to_data_files, schema_to_pyarrow
from pyiceberg.table import Table

import gnomon
from bench.page import Report, digits, head, row
from gnomon.commands.output import megabytes
from tests.golden.tables.session import SparkBeside, python, spark_beside
from tests.service.processes import until
from tests.stores.process import free_port

BENCH = "bench.catalog"
NAME = "bench"  # of the catalog
LIBRARIES = ("gnomon-index", "pyiceberg", "pyarrow")
SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("price", pa.float64())])
AT_ONCE = 1000  # files of one commit
INDEXED, PLAIN = "n.indexed", "n.plain"
KEYS = (1, 10, 1000)
COLUMNS = (
    "statement", "keys", "with, s", "without, s", "times", "files with", "files without", "read with", "read without",
)  # fmt: skip

app = typer.Typer(pretty_exceptions_enable=False, add_completion=False, rich_markup_mode=None)


class Cost(NamedTuple):
    """What a statement cost: seconds, files of the scan, bytes read."""

    seconds: float
    files: int
    bytes: int


def write(table: Table, folder: Path, files: int, rows: int) -> None:
    """Append files with random keys, the same ones in each table."""
    schema = schema_to_pyarrow(table.schema())
    keys = np.random.default_rng(1).permutation(files * rows)
    for begin in range(0, files, AT_ONCE):
        paths = []
        for number in range(begin, min(begin + AT_ONCE, files)):
            ids = keys[number * rows : (number + 1) * rows]
            columns = [pa.array(ids), pa.array([f"name of {key}" for key in ids]), pa.array(ids / 7)]
            path = folder / f"{table.name()[-1]}-{number:06d}.parquet"
            pq.write_table(pa.table(columns, schema=schema), path)
            paths.append(f"file://{path}")
        with table.transaction() as change, change.update_snapshot().fast_append() as append:
            for file in parquet_files_to_data_files(table.io, table.metadata, iter(paths)):
                append.append_data_file(file)


def statements(table: str, keys: Sequence[int], word: str) -> dict[str, str]:
    """A statement of each kind about some keys."""
    some = gnomon.key_filter(pa.table({"id": keys}), ["id"])
    rows = ", ".join(f"({key}L, '{word}')" for key in keys)
    return {
        "SELECT": f"SELECT * FROM {table} WHERE {some}",
        "MERGE": f"MERGE INTO {table} t USING (SELECT * FROM VALUES {rows} AS s(id, name)) s ON t.id = s.id AND "
        f"{gnomon.key_filter(pa.table({'id': keys}), ['id'], 't')} WHEN MATCHED THEN UPDATE SET t.name = s.name "
        "WHEN NOT MATCHED THEN INSERT (id, name) VALUES (s.id, s.name)",
        "DELETE": f"DELETE FROM {table} WHERE {some}",
    }


class Contest:
    """Both ways, and their counts."""

    def __init__(self, spark: SparkBeside, address: str, plain: Table) -> None:
        self._spark, self._address, self._plain = spark, address, plain

    def cost(self, way: str, statement: str, keys: Sequence[int]) -> Cost:
        """Run a statement. Its files are those of one plan; without the service, those that pyiceberg plans."""
        self._plain.refresh()
        (plans, planned), read, begin = self._counts(), self._spark.bytes_read(), time.perf_counter()
        self._spark.run(statement)
        seconds, files = time.perf_counter() - begin, len(list(self._plain.scan(In("id", keys)).plan_files()))
        if way == "with":
            now = self._counts()
            files = (now[1] - planned) // (now[0] - plans)
        return Cost(seconds, files, self._spark.bytes_read() - read)

    def _counts(self) -> tuple[int, int]:
        """The plans so far, and the files that they named."""
        counts = dict(line.split()[:2] for line in httpx.get(f"{self._address}/metrics").text.splitlines())
        plans, planned = (counts[f"gnomon_catalog_{name}_total"] for name in ("plans", "planned_files"))
        return int(float(plans)), int(float(planned))


@contextmanager
def tables(folder: Path, files: int, rows: int) -> Iterator[Table]:
    """Both tables, and the index of one. Yields the table without an index."""
    modes = {f"write.{what}.mode": "merge-on-read" for what in ("delete", "update", "merge")}
    with SqlCatalog(NAME, **properties(folder)) as catalog:
        catalog.create_namespace("n")
        for name in (INDEXED, PLAIN):
            table = catalog.create_table(name, SCHEMA, properties={"format-version": "2", **modes})
            write(table, folder, files, rows)
            if name == INDEXED:
                gnomon.build(
                    None, f"iceberg:{table.metadata_location.removeprefix('file://')}", f"{folder}/index", ["id"]
                )
        yield table


def properties(folder: Path) -> dict[str, str]:
    """Of the catalog of both tables."""
    return {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/lake"}


@contextmanager
def service(folder: Path) -> Iterator[str]:
    """The address of `gnomon catalog` in a process of its own."""
    address = f"http://127.0.0.1:{(port := free_port())}"
    command = [sys.executable, "-m", "gnomon", "catalog", f"{folder}/index", "--catalog", NAME, "--port", str(port)]
    own = {f"PYICEBERG_CATALOG__{NAME.upper()}__{name.upper()}": value for name, value in properties(folder).items()}
    with (folder / "gnomon.log").open("w") as log:
        child = subprocess.Popen(command, env={**os.environ, **own}, stdout=log, stderr=log)
        try:
            until(lambda: answers(address))
            yield address
        finally:
            child.terminate()
            child.wait()


def answers(address: str) -> bool:
    try:
        return httpx.get(f"{address}/readyz").status_code == 200
    except httpx.TransportError:
        return False


def rounds(contest: Contest, keys: int) -> Iterator[tuple[str, int, Mapping[str, Cost]]]:
    chance = np.random.default_rng(5)
    names = {"with": f"lake.{INDEXED}", "without": f"lake.{PLAIN}"}
    for number, count in enumerate((1, *KEYS)):  # the first round warms Spark up
        for kind in ("SELECT", "MERGE", "DELETE"):
            some = [int(key) for key in chance.choice(keys, count, replace=False)]
            costs = {
                way: contest.cost(way, statements(name, some, f"round {number}")[kind], some)
                for way, name in names.items()
            }
            if number:
                yield kind, count, costs


@app.command()
def main(
    files: Annotated[int, typer.Option(help="Files of each table.")] = 10_000,
    rows: Annotated[int, typer.Option(help="Rows of each file.")] = 200,
    folder: Annotated[Path, typer.Option(help="For the tables; made anew.")] = Path(".bench/catalog"),
    record: Annotated[bool, typer.Option("--record", help="Add the result to bench/results.")] = False,
) -> None:
    """Print, for each statement and number of keys, what it costs with and without the service."""
    report = Report(BENCH, LIBRARIES, {"files": files, "rows": rows})
    folder = folder.resolve()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with (
        tables(folder, files, rows) as plain,
        service(folder) as address,
        spark_beside(python(), folder, {"lake": address}) as spark,
    ):
        report.say(f"\n{files:,} files with {rows:,} rows each\n")
        report.say("\n".join(head(COLUMNS)))
        for kind, count, costs in rounds(Contest(spark, address, plain), files * rows):
            report.say(row(cells(kind, count, costs["with"], costs["without"])))
    report.record(record)


def cells(kind: str, count: int, by_index: Cost, alone: Cost) -> list[str]:
    return [
        kind,
        f"{count:,}",
        digits(by_index.seconds),
        digits(alone.seconds),
        digits(alone.seconds / by_index.seconds),
        f"{by_index.files:,}",
        f"{alone.files:,}",
        megabytes(by_index.bytes),
        megabytes(alone.bytes),
    ]


if __name__ == "__main__":
    app()
