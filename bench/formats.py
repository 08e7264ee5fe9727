"""Fetch the same rows by key from a file of every format: `python -m bench.formats`.

Files and indexes go to `.bench/formats`; the table to standard output.
"""

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from pyspark.sql import SparkSession

from bench.contenders import Contender, GnomonInProcess
from bench.fetch import choose_keys
from bench.format_contenders import (
    DuckDbOnFile,
    FastavroScan,
    GnomonByPointer,
    PolarsOnFile,
    PolarsReadsAvro,
    PyarrowOnFile,
    PyorcByRow,
)
from bench.format_files import FILES, FormatFile, data_file, rows_of, write_file
from bench.page import RecordOption, Report
from bench.rounds import Line, cost_of, measure
from bench.table import table
from gnomon.commands.output import megabytes, say
from gnomon.commands.spark import spark_session
from gnomon.indexer import build

BENCH = "bench.formats"
LIBRARIES = (
    *("gnomon-index", "pyarrow", "numpy", "fastavro", "isal", "cramjam", "msgspec"),
    *("pyspark", "duckdb", "polars", "pyorc"),
)
PEERS: dict[str, tuple[type[Contender], ...]] = {
    "parquet": (DuckDbOnFile, PolarsOnFile, PyarrowOnFile),
    "orc": (PyorcByRow, PyarrowOnFile),
    "avro": (FastavroScan, PolarsReadsAvro),
    "sequence": (),
    "csv": (DuckDbOnFile, PolarsOnFile, PyarrowOnFile),
    "jsonl": (DuckDbOnFile, PolarsOnFile, PyarrowOnFile),
}

app = typer.Typer(pretty_exceptions_enable=False, add_completion=False, rich_markup_mode=None)


def prepare(spark: SparkSession, folder: Path, rows: int, files: Sequence[FormatFile]) -> list[Line]:
    """Write the files and their indexes. Returns the contenders."""
    pages = rows_of(rows)
    lines = []
    for number, one in enumerate(files):
        source, extra = folder / one.name / "source", folder / one.name / "index"
        write_file(spark, one, pages, source)
        make = partial(build, spark, str(source), str(extra), [one.key], format=one.format, options=one.options)
        if number == 0:
            make()  # not measured: the first job of a session starts workers and warms up Java
        cost = cost_of(make, extra)
        title = f"{one.title}: {megabytes(data_file(source).stat().st_size)}"
        lines.append(Line(GnomonInProcess, one.name, title, source, extra, cost))
        lines += [Line(peer, one.name, title, source, extra) for peer in (GnomonByPointer, *PEERS[one.format])]
    os.sync()  # so that nothing is written to disk while fetches are timed
    return lines


@app.command()
def formats(
    rows: Annotated[int, typer.Option(help="Rows of each file.", min=2_000)] = 20_000,
    keys: Annotated[
        int, typer.Option(help="Keys that each contender fetches; those that scan get fewer.", min=1)
    ] = 100,
    only: Annotated[
        list[str] | None, typer.Option("--formats", help=f"One of {', '.join(one.name for one in FILES)}; repeatable.")
    ] = None,
    folder: Annotated[Path, typer.Option(help="Where the files and indexes go.")] = Path(".bench/formats"),
    record: RecordOption = False,
) -> None:
    """Fetch rows by key from Parquet, ORC, Avro, SequenceFiles, CSV and JSON lines, and compare other readers."""
    files = [one for one in FILES if not only or one.name in only]
    if unknown := set(only or ()) - {one.name for one in FILES}:
        raise typer.BadParameter(f"no format {', '.join(sorted(unknown))}", param_hint="--formats")
    say(f"writing {rows:,} rows as {len(files)} files, and indexes, in {folder} ...")
    with spark_session() as spark:
        lines = prepare(spark, folder, rows, files)
    report = Report(BENCH, LIBRARIES, {"rows": rows, "keys": keys, "formats": only})
    say("fetching ...")
    measure(lines, choose_keys(rows, keys))
    report.say(table(lines))
    report.record(record)


if __name__ == "__main__":
    app()
