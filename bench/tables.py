"""Rows by key of Delta and Iceberg tables: Gnomon beside the readers of the tables: `python -m bench.tables`.

Wide rows have a text of 2 KB; narrow ones have none. 1 % of the rows are deleted: with `--spark` by Spark, as deletion
vectors of both formats, otherwise by deltalake and pyiceberg, which write files again. Peers run one after the other,
with the same keys, in this process but for Spark. The tables of figures go to standard output."""

import random
import shutil
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import typer
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from deltalake.transaction import AddAction
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import In
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.typedef import Record

from bench.measured import measured
from bench.page import RecordOption, Report, digits, row
from gnomon.jobs.build import BuildRequest, LocalEngine
from gnomon.jobs.build.job import build_index
from gnomon.shadow import open_index
from tests.golden.tables.session import CATALOG, SparkBeside, spark_beside

SEED = 23
LIBRARIES = ["gnomon-index", "deltalake", "pyiceberg", "duckdb", "polars", "pyarrow", "pyspark"]
SIZES = {1: 20, 10: 20, 1000: 5, 10_000: 3}  # keys of a call, and the calls with other keys each
PIECE = 500_000  # rows that are written at a time
Ask = Callable[[Sequence[int]], int]  # keys -> how many rows have them

app = typer.Typer(pretty_exceptions_enable=False, add_completion=False, rich_markup_mode=None)


def rows(first: int, last: int, wide: bool) -> pa.Table:
    """Rows of a table: scattered keys, two numbers, and a text where they are wide."""
    numbers = np.arange(first, last, dtype=np.int64)
    columns: dict[str, Any] = {"id": numbers * 7919 % 1_000_000_007, "n": numbers, "price": numbers * 0.25}
    if wide:
        texts = np.random.default_rng(first).integers(97, 123, (last - first, 2000), dtype=np.uint8)
        columns["html"] = (
            pa.FixedSizeBinaryArray.from_buffers(pa.binary(2000), last - first, [None, pa.py_buffer(texts.tobytes())])
            .cast(pa.binary())
            .cast(pa.string())
        )
    return pa.table(columns)


def keys_of(count: int, asked: int) -> list[int]:
    chance = random.Random(SEED)
    return [number * 7919 % 1_000_000_007 for number in chance.sample(range(count), asked)]


def make(folder: Path, count: int, wide: bool, spark: SparkBeside | None) -> tuple[str, SqlCatalog]:
    """Write both tables. Returns the path of the Delta one, and the catalog of the Iceberg one, `ns.t`."""
    delta, catalog = str(folder.absolute() / "delta"), catalog_of(folder)
    if not Path(delta).exists():
        piece = PIECE if not wide else PIECE // 10
        catalog.create_namespace_if_not_exists("ns")
        table = catalog.create_table("ns.t", rows(0, 1, wide).schema)
        for first in range(0, count, piece):
            some = rows(first, min(first + piece, count), wide)
            write_deltalake(delta, some, mode="append")
            table.append(some)
        if spark is None:
            DeltaTable(delta).delete("n % 100 = 0")
            table.delete(In("n", list(range(0, min(count, 20_000), 100))))
        else:
            delete_by_vectors(delta, spark, "n % 100 = 0")
    return delta, catalog


def catalog_of(folder: Path) -> SqlCatalog:
    """The Iceberg catalog of a folder."""
    place = folder.absolute()
    return SqlCatalog(CATALOG, uri=f"sqlite:///{place}/catalog.db", warehouse=f"file://{place}/warehouse")


def source_of(catalog: SqlCatalog) -> str:
    """The name of the Iceberg table of now."""
    return f"iceberg:{catalog.load_table('ns.t').metadata_location}"


def delete_by_vectors(delta: str, spark: SparkBeside, condition: str) -> None:
    """Delete rows of both tables, as deletion vectors."""
    spark.run(f"ALTER TABLE delta.`{delta}` SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
    spark.run("ALTER TABLE own.ns.t SET TBLPROPERTIES ('format-version' = '3', 'write.delete.mode' = 'merge-on-read')")
    for name in (f"delta.`{delta}`", "own.ns.t"):
        spark.run(f"DELETE FROM {name} WHERE {condition}")


def peers(path: str, catalog: SqlCatalog, spark: SparkBeside | None) -> dict[str, Ask]:
    """The tables' own readers."""

    def listed(keys: Sequence[int]) -> str:
        return ", ".join(map(str, keys))

    def datafusion(keys: Sequence[int]) -> int:
        query = QueryBuilder().register("t", DeltaTable(path))
        return pa.table(query.execute(f"select * from t where id in ({listed(keys)})")).num_rows

    def by_pyiceberg(keys: Sequence[int]) -> int:
        return int(catalog.load_table("ns.t").scan(row_filter=In("id", list(keys))).to_arrow().num_rows)

    def duck(keys: Sequence[int]) -> int:
        duckdb.register("asked", pa.table({"id": list(keys)}))  # faster than a long list in the statement
        query = f"select * from read_parquet({DeltaTable(path).file_uris()}) where id in (select id from asked)"
        return int(duckdb.sql(query).to_arrow_table().num_rows)

    def dataset(keys: Sequence[int]) -> int:
        schema = catalog.load_table("ns.t").schema().as_arrow()  # the files of deltalake say string_view
        files = ds.dataset(DeltaTable(path).file_uris(), schema)
        return int(files.to_table(filter=ds.field("id").isin(pa.array(keys, pa.int64()))).num_rows)

    def polars_delta(keys: Sequence[int]) -> int:
        return pl.scan_delta(path).filter(pl.col("id").is_in(list(keys))).collect().height

    def polars_iceberg(keys: Sequence[int]) -> int:
        return pl.scan_iceberg(catalog.load_table("ns.t")).filter(pl.col("id").is_in(list(keys))).collect().height

    found: dict[str, Ask] = {
        "deltalake (DataFusion)": datafusion,
        "pyiceberg": by_pyiceberg,
        "DuckDB, the live files named to it": duck,
        "pyarrow dataset, the live files named to it": dataset,
        "Polars scan_delta": polars_delta,
        "Polars scan_iceberg": polars_iceberg,
    }
    if spark is not None:
        found["Spark, Delta"] = lambda keys: spark.count(f"SELECT * FROM delta.`{path}` WHERE id IN ({listed(keys)})")
        found["Spark, Iceberg"] = lambda keys: spark.count(f"SELECT * FROM own.ns.t WHERE id IN ({listed(keys)})")
    return found


def timed(ask: Ask, asked: Sequence[Sequence[int]]) -> tuple[float, float, int]:
    """Median wall ms and mean CPU ms of a call, and the rows found by all."""
    took, begin, found = [], time.process_time(), 0
    for keys in asked:
        start = time.perf_counter()
        found += ask(keys)
        took.append((time.perf_counter() - start) * 1000)
    return statistics.median(took), (time.process_time() - begin) * 1000 / len(asked), found


def fetches(index: str) -> Ask:
    opened = open_index(index)
    return lambda keys: opened.table_many(keys).num_rows


def look_up(name: str, folder: Path, count: int, wide: bool, spark: SparkBeside | None) -> Iterator[str]:
    """The lines of the table of look-ups."""
    delta, catalog = make(folder, count, wide, spark)
    contenders: dict[str, Ask] = {}
    for kind, source in (("Delta", f"delta:{delta}"), ("Iceberg", source_of(catalog))):
        index = folder / f"index-{kind}"
        if not index.exists():
            build_index(LocalEngine(), source, str(index), BuildRequest(["id"]))
        contenders[f"Gnomon, {kind}"] = fetches(str(index))
    contenders |= peers(delta, catalog, spark)
    yield f"\n**{name}: {count:,} rows**\n"
    keys = keys_of(count, min(count, max(size * calls for size, calls in SIZES.items())))
    yield row(["", *(f"{_named(size)}, {what}" for size in SIZES for what in ("ms", "CPU ms", "rows"))])
    yield row(["---"] * (1 + 3 * len(SIZES)))
    for who, ask in contenders.items():
        cells = [who]
        for size, calls in SIZES.items():
            ms, cpu, found = timed(ask, [keys[at : at + size] for at in range(0, min(size * calls, len(keys)), size)])
            cells += [digits(ms), digits(cpu), f"{found:,}"]
        yield row(cells)


def _named(size: int) -> str:
    return "1 key" if size == 1 else f"{size:,} keys"


def maintain(folder: Path, spark: SparkBeside | None) -> Iterator[str]:
    """The lines of the table of builds after changes of tables of 200,000 narrow rows."""
    delta, catalog = make(folder, 200_000, False, None)
    table = catalog.load_table("ns.t")
    steps: dict[str, Callable[[], object]] = {"the first build": lambda: None, "nothing": lambda: None}
    more = rows(200_000, 201_000, False)
    steps["an append of 1,000 rows"] = lambda: (write_deltalake(delta, more, mode="append"), table.append(more))
    if spark is None:
        steps["a delete of 100 rows, copy on write"] = lambda: DeltaTable(delta).delete("n > 500 and n < 602")
        steps["a compaction of all files"] = lambda: DeltaTable(delta).optimize.compact()  # noqa: PLW0108 - of then
    else:
        steps["a delete of 100 rows, by vectors"] = lambda: delete_by_vectors(delta, spark, "n > 500 AND n < 602")
        steps["a compaction of all files"] = lambda: (
            spark.run(f"OPTIMIZE delta.`{delta}`"),
            spark.run("CALL own.system.rewrite_data_files(table => 'ns.t', options => map('rewrite-all', 'true'))"),
        )
    yield "\n**Builds without Spark, 200,000 narrow rows**\n"
    yield row(["after", "Delta, ms", "files indexed", "rows", "Iceberg, ms", "files indexed", "rows"])
    yield row(["---"] * 7)
    for what, change in steps.items():
        change()
        cells = [what]
        for kind, source in (("delta", f"delta:{delta}"), ("iceberg", source_of(catalog))):
            start = time.perf_counter()
            built = build_index(LocalEngine(), source, str(folder / f"index-{kind}"), BuildRequest(["id"]))
            ms = (time.perf_counter() - start) * 1000
            cells += [digits(ms), str(built.new_files), f"{built.rows_indexed:,}"]
        yield row(cells)


def delta_of_many(place: Path, count: int) -> Callable[[], object]:
    """Write a Delta table of many files of 10 rows. Returns what appends one more."""
    write_deltalake(place, rows(0, 10, False))
    source, actions = Path(DeltaTable(place).file_uris()[0].removeprefix("file://")), []
    size, now = source.stat().st_size, int(time.time() * 1000)
    for number in range(count):
        name = f"part-{number:06d}.parquet"
        shutil.copyfile(source, place / name)
        actions.append(AddAction(name, size, {}, now, True, '{"numRecords": 10}'))
    for first in range(0, count, 10_000):
        table = DeltaTable(place)
        table.create_write_transaction(actions[first : first + 10_000], "append", table.schema(), [])
    return lambda: write_deltalake(place, rows(10, 20, False), mode="append")


def iceberg_of_many(place: Path, count: int) -> Callable[[], object]:
    """Write an Iceberg table of many files of 10 rows, in manifests of 10,000. Returns what appends one more."""
    place.mkdir(parents=True)
    catalog = catalog_of(place)
    catalog.create_namespace_if_not_exists("ns")
    table = catalog.create_table("ns.t", rows(0, 1, False).schema)
    table.append(rows(0, 10, False))
    [task] = table.scan().plan_files()
    source = Path(task.file.file_path.removeprefix("file://"))
    for first in range(0, count, 10_000):
        with table.transaction() as change, change.update_snapshot().fast_append() as append:
            for number in range(first, min(first + 10_000, count)):
                file = source.with_name(f"part-{number:06d}.parquet")
                shutil.copyfile(source, file)
                append.append_data_file(
                    DataFile.from_args(
                        content=DataFileContent.DATA,
                        file_path=f"file://{file}",
                        file_format=FileFormat.PARQUET,
                        partition=Record(),
                        record_count=10,
                        file_size_in_bytes=task.file.file_size_in_bytes,
                        spec_id=0,
                    )
                )
    return lambda: table.append(rows(10, 20, False))


def many_files(folder: Path, count: int) -> Iterator[str]:
    """The lines of the table of commands on tables of many files: the first build, one with nothing to do, and one of a
    new file."""
    shutil.rmtree(folder, ignore_errors=True)
    yield f"\n**Tables of {count:,} files of 10 rows**\n"
    yield "\n".join([row(["", "s", "CPU s", "peak memory MB"]), row(["---"] * 4)])
    for kind, write in (("delta", delta_of_many), ("iceberg", iceberg_of_many)):
        place, index = folder / kind, str(folder / f"index-{kind}")
        append = write(place, count)

        def build(what: str, place: Path = place, index: str = index, kind: str = kind) -> str:
            source = f"delta:{place.absolute()}" if kind == "delta" else source_of(catalog_of(place))
            command = [sys.executable, "-m", "gnomon", "build", source, index, "--key", "id", "--engine=local"]
            cost = measured(command)
            return row([f"{kind.title()}: {what}", digits(cost.seconds), digits(cost.cpu), str(cost.peak)])

        yield build("the first build")
        yield build("a build with nothing to do")
        append()
        yield build("a build of one new file")


@app.command()
def main(
    wide: Annotated[int, typer.Option(help="Rows of the wide tables.")] = 200_000,
    narrow: Annotated[int, typer.Option(help="Rows of the narrow tables.")] = 10_000_000,
    files: Annotated[int, typer.Option(help="Files of the table of many files.")] = 100_000,
    spark: Annotated[str, typer.Option(help="The Python of the environment of deploy/make-tables.sh.")] = "",
    folder: Annotated[Path, typer.Option(help="Where the data go.")] = Path(".bench/tables"),
    record: RecordOption = False,
) -> None:
    """Compare look-ups and builds on Delta and Iceberg tables."""
    folder.mkdir(parents=True, exist_ok=True)
    report = Report("bench.tables", LIBRARIES, {"wide": wide, "narrow": narrow, "files": files, "spark": spark})
    for name, count, is_wide in (("Wide rows", wide, True), ("Narrow rows", narrow, False)):
        if count:
            place = folder / f"{name.split()[0]}-{count}"
            place.mkdir(exist_ok=True)
            with spark_beside(spark, place) if spark else nullcontext() as session:
                for line in look_up(name, place, count, is_wide, session):
                    report.say(line)
    shutil.rmtree(folder / "builds", ignore_errors=True)
    (folder / "builds").mkdir()
    with spark_beside(spark, folder / "builds") if spark else nullcontext() as session:
        for line in maintain(folder / "builds", session):
            report.say(line)
    if files:
        for line in many_files(folder / "files", files):
            report.say(line)
    report.record(record)


if __name__ == "__main__":
    app()
