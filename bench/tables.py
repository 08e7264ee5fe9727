"""Rows by key of Delta and Iceberg tables: Gnomon beside the readers of the tables: `python -m bench.tables`.

Wide rows have a text of 2 KB; narrow ones have none. The tables' own writers delete 1 % of the rows. Peers run in this
process, one after the other, with the same keys. The tables of figures go to standard output."""

import os
import random
import resource
import shutil
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import typer
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from deltalake.transaction import AddAction
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import In

from bench.page import digits, row
from gnomon.indexer.build import BuildRequest, plan
from gnomon.indexer.build.job import build_index, nothing_to_do
from gnomon.shadow import open_index
from gnomon.shadow.tables import lake_source

SEED = 23
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


def make(folder: Path, count: int, wide: bool) -> tuple[str, str, SqlCatalog]:
    """Write both tables. Returns their names, and the catalog of the Iceberg one."""
    delta, place = folder / "delta", f"{folder.absolute()}"
    catalog = SqlCatalog("bench", uri=f"sqlite:///{place}/catalog.db", warehouse=f"file://{place}/warehouse")
    if not delta.exists():
        piece = PIECE if not wide else PIECE // 10
        catalog.create_namespace_if_not_exists("ns")
        table = catalog.create_table("ns.t", rows(0, 1, wide).schema)
        for first in range(0, count, piece):
            some = rows(first, min(first + piece, count), wide)
            write_deltalake(delta, some, mode="append")
            table.append(some)
        DeltaTable(delta).delete("n % 100 = 0")
        table.delete(In("n", list(range(0, min(count, 20_000), 100))))
    return f"delta:{delta.absolute()}", f"iceberg:{catalog.load_table('ns.t').metadata_location}", catalog


def peers(delta: str, catalog: SqlCatalog) -> dict[str, Ask]:
    """The tables' own readers."""
    path = delta.removeprefix("delta:")

    def datafusion(keys: Sequence[int]) -> int:
        query = QueryBuilder().register("t", DeltaTable(path))
        return pa.table(query.execute(f"select * from t where id in ({', '.join(map(str, keys))})")).num_rows

    def by_pyiceberg(keys: Sequence[int]) -> int:
        return int(catalog.load_table("ns.t").scan(row_filter=In("id", list(keys))).to_arrow().num_rows)

    def duck(keys: Sequence[int]) -> int:
        files = DeltaTable(path).file_uris()
        found = duckdb.execute(f"select * from read_parquet(?) where id in ({', '.join(map(str, keys))})", [files])
        return len(found.fetchall())

    def polars_delta(keys: Sequence[int]) -> int:
        return pl.scan_delta(path).filter(pl.col("id").is_in(list(keys))).collect().height

    def polars_iceberg(keys: Sequence[int]) -> int:
        return pl.scan_iceberg(catalog.load_table("ns.t")).filter(pl.col("id").is_in(list(keys))).collect().height

    return {
        "deltalake (DataFusion)": datafusion,
        "pyiceberg": by_pyiceberg,
        "DuckDB, the live files named to it": duck,
        "Polars scan_delta": polars_delta,
        "Polars scan_iceberg": polars_iceberg,
    }


def timed(ask: Ask, asked: Sequence[Sequence[int]]) -> tuple[float, float, int]:
    """Median wall ms and mean CPU ms of a call, and the rows found."""
    took, begin, found = [], time.process_time(), 0
    for keys in asked:
        start = time.perf_counter()
        found += ask(keys)
        took.append((time.perf_counter() - start) * 1000)
    return statistics.median(took), (time.process_time() - begin) * 1000 / len(asked), found


def fetches(index: str) -> Ask:
    opened = open_index(index)
    return lambda keys: sum(len(rows) for rows in opened.fetch_many(keys))


def look_up(name: str, folder: Path, count: int, wide: bool) -> None:
    delta, iceberg, catalog = make(folder, count, wide)
    contenders: dict[str, Ask] = {}
    for kind, source in (("Delta", delta), ("Iceberg", iceberg)):
        index = folder / f"index-{kind}"
        if not index.exists():
            build_index(None if count <= 5_000_000 else _spark(), source, str(index), BuildRequest(["id"]))
        contenders[f"Gnomon, {kind}"] = fetches(str(index))
    contenders |= peers(delta, catalog)
    print(f"\n{name}: {count:,} rows\n")
    print(row(["", "1 key, p50 ms", "CPU ms", "rows of 20", "1,000 keys, ms", "CPU ms", "rows"]))
    print(row(["---"] * 7), flush=True)
    singles = [[key] for key in keys_of(count, 20)]
    batch = [keys_of(count, 1000)]
    for who, ask in contenders.items():
        ask(singles[0])
        one, many = timed(ask, singles), timed(ask, batch)
        print(row([who, *map(digits, one[:2]), str(one[2]), *map(digits, many[:2]), str(many[2])]), flush=True)


def _spark() -> Any:
    from gnomon.commands.spark import spark_session

    return spark_session().__enter__()


def maintain(folder: Path) -> None:
    """Builds after changes of a table of 200,000 narrow rows."""
    shutil.rmtree(folder, ignore_errors=True)
    place, index, request = str(folder / "t"), str(folder / "index"), BuildRequest(["id"])
    for first in range(0, 200_000, 20_000):
        write_deltalake(place, rows(first, first + 20_000, False), mode="append")
    print("\nBuilds without Spark, 200,000 narrow rows in 10 files\n")
    print(row(["after", "ms", "files indexed", "rows indexed"]), row(["---"] * 4), sep="\n", flush=True)

    def changed(what: str, change: Callable[[], object]) -> None:
        change()
        start = time.perf_counter()
        built = build_index(None, f"delta:{place}", index, request)
        ms = (time.perf_counter() - start) * 1000
        print(row([what, digits(ms), str(built.new_files), f"{built.rows_indexed:,}"]), flush=True)

    changed("the first build", lambda: None)
    changed("nothing", lambda: None)
    changed("an append of 1,000 rows", lambda: write_deltalake(place, rows(200_000, 201_000, False), mode="append"))
    changed("a delete of 100 rows (copy-on-write)", lambda: DeltaTable(place).delete("n >= 500 and n < 600"))
    changed("OPTIMIZE of all files", lambda: DeltaTable(place).optimize.compact())  # noqa: PLW0108 - the table of then


def many_files(folder: Path, count: int) -> None:
    """A table of many files: a build with nothing to do, and one of a new file."""
    shutil.rmtree(folder, ignore_errors=True)
    place, index, request = folder / "t", str(folder / "index"), BuildRequest(["id"])
    write_deltalake(place, rows(0, 10, False))
    [file] = DeltaTable(place).file_uris()
    source = Path(file.removeprefix("file://"))
    actions = []
    for number in range(count):
        name = f"part-{number:06d}.parquet"
        os.link(source, place / name)
        size = source.stat().st_size
        actions.append(AddAction(name, size, {}, int(time.time() * 1000), True, '{"numRecords": 10}'))
    for first in range(0, count, 10_000):
        table, some = DeltaTable(place), actions[first : first + 10_000]
        table.create_write_transaction(some, mode="append", schema=table.schema(), partition_by=[])
    print(f"\nA table of {count:,} files\n")
    print(row(["", "s", "peak memory MB"]), row(["---"] * 3), sep="\n", flush=True)

    def step(what: str, work: Callable[[], object]) -> None:
        start = time.perf_counter()
        work()
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        print(row([what, digits(time.perf_counter() - start), str(peak)]), flush=True)

    name = f"delta:{place.absolute()}"
    step("the first build", lambda: build_index(None, name, index, request))
    step("a build with nothing to do", lambda: nothing_to_do(plan(lake_source(name), index, request), request))
    write_deltalake(place, rows(10, 20, False), mode="append")
    step("a build of one new file", lambda: build_index(None, name, index, request))
    opened = open_index(index)
    step("a row by its key", lambda: opened.fetch(15 * 7919))


@app.command()
def main(
    wide: Annotated[int, typer.Option(help="Rows of the wide tables.")] = 200_000,
    narrow: Annotated[int, typer.Option(help="Rows of the narrow tables.")] = 10_000_000,
    files: Annotated[int, typer.Option(help="Files of the table of many files.")] = 100_000,
    folder: Annotated[Path, typer.Option(help="Where the data go.")] = Path(".bench/tables"),
) -> None:
    """Compare look-ups and builds on Delta and Iceberg tables."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, count, is_wide in (("Wide rows", wide, True), ("Narrow rows", narrow, False)):
        if count:
            place = folder / f"{name.split()[0]}-{count}"
            place.mkdir(exist_ok=True)
            look_up(name, place, count, is_wide)
    maintain(folder / "maintain")
    if files:
        many_files(folder / "files", files)


if __name__ == "__main__":
    app()
