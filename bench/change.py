"""Rows deleted and replaced by key in Delta and Iceberg tables: `python -m bench.change`.

The keys lie in the files at random. All contenders get tables with the same data files (format 2 with merge-on-read;
Delta with deletion vectors where the contender writes them), the same keys and the same batch, and Spark counts their
rows after each change. Each change runs in a process of its own, which is given up after `--patience` seconds; Spark's
run in one session, after a small change that warms it up. Seconds are of the change alone. Bytes are those that the
process read and wrote through system calls, of Spark those that its tasks count as read.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import typer
from deltalake import DeltaTable, Schema
from deltalake.transaction import AddAction, create_table_with_add_actions
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import In
from pyiceberg.io.pyarrow import parquet_files_to_data_files, schema_to_pyarrow

import gnomon
from bench.page import Report, digits, head, row
from bench.rounds import WrongRows
from gnomon.commands.output import megabytes
from tests.golden.tables.session import CATALOG, SparkBeside, python, spark_beside

BENCH = "bench.change"
LIBRARIES = ("gnomon-index", "deltalake", "pyiceberg", "pyarrow")
SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("price", pa.float64())])
MODES = {f"write.{what}.mode": "merge-on-read" for what in ("delete", "update", "merge")}
AT_ONCE = 1000  # files of one commit
FORMATS = {"delta": ("gnomon", "spark", "deltalake"), "iceberg": ("gnomon", "spark", "pyiceberg")}
MB = 1e6

app = typer.Typer(pretty_exceptions_enable=False, add_completion=False, rich_markup_mode=None)


class Cost(NamedTuple):
    """The cost of a change: its seconds, the bytes that it read and wrote, and the most memory of its process in bytes.
    An unknown number is -1. `failed` is the reason why there is no result."""

    seconds: float
    read: int
    written: int
    peak: int
    failed: str = ""


class Place(NamedTuple):
    """The tables of one contender, below the folder of all."""

    folder: Path
    format: str
    contender: str

    @property
    def root(self) -> Path:
        return self.folder / f"{self.format}-{self.contender}"

    @property
    def index(self) -> str:
        return f"{self.root}-index"

    @property
    def source(self) -> str:
        return f"delta:{self.root}" if self.format == "delta" else f"iceberg:{CATALOG}.n.{self.contender}"

    @property
    def of_spark(self) -> str:
        return f"delta.`{self.root}`" if self.format == "delta" else f"{CATALOG}.n.{self.contender}"


def catalog(folder: Path) -> SqlCatalog:
    return SqlCatalog(CATALOG, **properties(folder))


def properties(folder: Path) -> dict[str, str]:
    return {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/warehouse"}


# -- the tables --------------------------------------------------------------------------------------------------------


def write_files(folder: Path, files: int, rows: int) -> list[Path]:
    """Data files with random keys, and field ids as Iceberg has them."""
    keys = np.random.default_rng(1).permutation(files * rows)
    with catalog(folder) as opened:
        opened.create_namespace("n")
        schema = schema_to_pyarrow(opened.create_table("n.shape", SCHEMA).schema())
    paths = []
    for number in range(files):
        ids = pa.array(keys[number * rows : (number + 1) * rows])
        paths.append(folder / "data" / f"{number:06d}.parquet")
        pq.write_table(table_of(ids).cast(schema), paths[-1])
    return paths


def table_of(ids: pa.Array, word: str = "name") -> pa.Table:
    numbers = ids.to_numpy()
    names = np.char.add(f"{word} of ", numbers.astype("U12"))
    return pa.table([ids, pa.array(names), pa.array(numbers / 7)], schema=SCHEMA)


def make(place: Place, paths: Sequence[Path]) -> None:
    """A table of a contender, which has links to the data files, and its index."""
    if place.format == "delta":
        place.root.mkdir()
        adds = []
        for path in paths:
            os.link(path, place.root / path.name)
            stats = json.dumps({"numRecords": pq.read_metadata(path).num_rows})
            adds.append(AddAction(path.name, path.stat().st_size, {}, 1, True, stats))
        vectors = {} if place.contender == "deltalake" else {"delta.enableDeletionVectors": "true"}
        create_table_with_add_actions(str(place.root), Schema.from_arrow(SCHEMA), adds, configuration=vectors)
    else:
        with catalog(place.folder) as opened:
            table = opened.create_table(f"n.{place.contender}", SCHEMA, properties={"format-version": "2", **MODES})
            for begin in range(0, len(paths), AT_ONCE):
                some = (f"file://{path}" for path in paths[begin : begin + AT_ONCE])
                with table.transaction() as change, change.update_snapshot().fast_append() as append:
                    for file in parquet_files_to_data_files(table.io, table.metadata, some):
                        append.append_data_file(file)
    if place.contender == "gnomon":
        build = ["-m", "gnomon", "build", place.source, place.index, "--key", "id", "--engine", "local"]
        subprocess.run([sys.executable, *build], env=environment(place), capture_output=True, check=True)


# -- the changes -------------------------------------------------------------------------------------------------------


def environment(place: Place) -> dict[str, str]:
    """The environment of a process in which pyiceberg finds the catalog."""
    begin = f"PYICEBERG_CATALOG__{CATALOG.upper()}__"
    return {**os.environ, **{f"{begin}{name.upper()}": value for name, value in properties(place.folder).items()}}


def by_gnomon(place: Place, what: str, batch: str) -> None:
    if what == "delete":
        gnomon.delete(None, place.index, pq.read_table(batch, columns=["id"]))
    else:
        gnomon.upsert(None, place.index, pq.read_table(batch), batch)


def by_deltalake(place: Place, what: str, batch: str) -> None:
    merge = DeltaTable(str(place.root)).merge(pq.read_table(batch), "t.id = s.id", source_alias="s", target_alias="t")
    if what == "delete":
        merge.when_matched_delete().execute()
    else:
        merge.when_matched_update_all().when_not_matched_insert_all().execute()


def by_pyiceberg(place: Place, what: str, batch: str) -> None:
    rows = pq.read_table(batch)
    with catalog(place.folder) as opened:
        table = opened.load_table(f"n.{place.contender}")
        if what == "delete":
            table.delete(In("id", rows["id"].to_pylist()))
        else:
            table.upsert(rows.cast(schema_to_pyarrow(table.schema())), join_cols=["id"])


WAYS: Mapping[str, Callable[[Place, str, str], None]] = {
    "gnomon": by_gnomon,
    "deltalake": by_deltalake,
    "pyiceberg": by_pyiceberg,
}


@app.command("step")
def step(folder: Path, format: str, contender: str, what: str, batch: str) -> None:
    """Make one change, and print its cost as JSON. For the workload's own use."""
    place, before, begin = Place(folder, format, contender), io_bytes(), time.perf_counter()
    WAYS[contender](place, what, batch)
    seconds, after = time.perf_counter() - begin, io_bytes()
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    peak = int(status["VmHWM"].split()[0]) * 1024  # ru_maxrss is at least that of the process that started this one
    print(json.dumps([seconds, after[0] - before[0], after[1] - before[1], peak]), flush=True)
    os._exit(0)


def io_bytes() -> tuple[int, int]:
    """The bytes that this process has read and written."""
    fields = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(fields["rchar"]), int(fields["wchar"])


def in_child(place: Place, what: str, batch: str, patience: float) -> Cost:
    command = [sys.executable, "-m", BENCH, "step", str(place.folder), place.format, place.contender, what, batch]
    try:
        done = subprocess.run(
            command, env=environment(place), capture_output=True, text=True, timeout=patience, check=True
        )
    except subprocess.TimeoutExpired:
        return Cost(-1, -1, -1, -1, f"> {patience:g} s")
    except subprocess.CalledProcessError as error:
        if place.contender == "gnomon":
            raise WrongRows(error.stderr[-2000:]) from None
        lines = error.stderr.strip().splitlines() or [f"exit code {error.returncode}"]
        return Cost(-1, -1, -1, -1, lines[-1][:80])
    return Cost(*json.loads(done.stdout.splitlines()[-1]))


def in_spark(spark: SparkBeside, place: Place, what: str, batch: str) -> Cost:
    then = "DELETE" if what == "delete" else "UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    read, begin = spark.bytes_read(), time.perf_counter()
    try:
        spark.run(f"MERGE INTO {place.of_spark} t USING parquet.`{batch}` s ON t.id = s.id WHEN MATCHED THEN {then}")
    except RuntimeError as error:
        return Cost(-1, -1, -1, -1, str(error)[-80:])
    return Cost(time.perf_counter() - begin, spark.bytes_read() - read, -1, -1)


# -- the workload ------------------------------------------------------------------------------------------------------


def changes(folder: Path, total: int, sizes: Sequence[int]) -> Iterator[tuple[str, int, str]]:
    """Batches with different keys, all of which the tables have."""
    keys = np.random.default_rng(7).permutation(total)
    begin = 0
    for size in (1, *sizes):  # the first one warms Spark up
        for what in ("delete", "upsert"):
            batch = f"{folder}/{what}-{begin}.parquet"
            pq.write_table(table_of(pa.array(keys[begin : begin + size]), "new name"), batch)
            begin += size
            yield what, size, batch


@app.command()
def main(
    files: Annotated[int, typer.Option(help="Files of each table.")] = 10_000,
    rows: Annotated[int, typer.Option(help="Rows of each file.")] = 1_000,
    sizes: Annotated[list[int] | None, typer.Option(help="Keys of a change; repeatable.")] = None,
    formats: Annotated[list[str] | None, typer.Option(help="delta, iceberg; repeatable.")] = None,
    contenders: Annotated[list[str] | None, typer.Option(help="By default all; repeatable.")] = None,
    patience: Annotated[float, typer.Option(help="Seconds after which a change is given up.")] = 120,
    folder: Annotated[Path, typer.Option(help="For the tables; made anew.")] = Path(".bench/change"),
    record: Annotated[bool, typer.Option("--record", help="Add the result to bench/results.")] = False,
) -> None:
    """Print what each change costs each contender."""
    sizes, formats = sizes or [1, 1_000, 1_000_000], formats or list(FORMATS)
    report = Report(
        BENCH, LIBRARIES, {"files": files, "rows": rows, "sizes": sizes, "contenders": contenders, "patience": patience}
    )
    folder = folder.resolve()
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "data").mkdir(parents=True)
    paths = write_files(folder, files, rows)
    report.say(f"\n{files * rows:,} rows in {files:,} files with {rows:,} rows each\n")
    report.say("\n".join(head(("change", "keys", "contender", "s", "times Gnomon's", "read", "written", "peak"))))
    for format in formats:
        places = [Place(folder, format, one) for one in FORMATS[format] if one in (contenders or FORMATS[format])]
        for place in places:
            make(place, paths)
        live, given_up = dict.fromkeys(places, files * rows), set[Place]()
        with spark_beside(python(), folder) as spark:
            report.say(row([f"**{format}, {files * rows:,} rows**", *[""] * 7]))
            for number, (what, size, batch) in enumerate(changes(folder, files * rows, sizes)):
                costs: dict[str, Cost] = {}
                for place in places:
                    if place in given_up:
                        continue
                    by_spark = place.contender == "spark"
                    cost = in_spark(spark, place, what, batch) if by_spark else in_child(place, what, batch, patience)
                    costs[place.contender] = cost
                    if cost.failed:
                        given_up.add(place)
                        continue
                    live[place] -= size if what == "delete" else 0
                    if (found := int(spark.run(f"SELECT count(*) AS n FROM {place.of_spark}")[0]["n"])) != live[place]:
                        raise WrongRows(f"{place}: {found:,} rows after {what} of {size:,}, expected {live[place]:,}")
                if number > 1:
                    for contender, cost in costs.items():
                        report.say(row(cells(what, size, contender, cost, costs["gnomon"])))
    report.record(record)


def cells(what: str, size: int, contender: str, cost: Cost, ours: Cost) -> list[Any]:
    if cost.failed:
        return [what, f"{size:,}", contender, cost.failed, *["-"] * 4]
    amounts = [megabytes(one) if one >= 0 else "-" for one in (cost.read, cost.written, cost.peak)]
    return [what, f"{size:,}", contender, digits(cost.seconds), digits(cost.seconds / ours.seconds), *amounts]


if __name__ == "__main__":
    app()
