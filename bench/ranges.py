"""The first rows of a range of keys, through Gnomon and its peers: `python -m bench.ranges`.

The keys are URLs, a thousand of each site, and they lie in the files at random. A prefix is a site; a range has as many
keys, from the middle of one site to the middle of the next. Each contender gives the first 100 rows in key order, as
Python values. SQLite and Lance read copies of the whole table. DuckDB and Polars read the same files as Gnomon.
"""

import datetime as dt
import shutil
import sqlite3
import statistics
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, ClassVar, NamedTuple
from urllib.parse import urlsplit

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import typer

from bench.delays import Delays, longest_chain
from bench.page import RecordOption, Report, digits, head, row
from bench.rounds import WrongRows
from bench.slow_store import KEPT_ALIVE, variables_set
from gnomon import RangeQuery, build, open_index
from gnomon.commands.output import megabytes, say
from gnomon.shadow.fetch.results import FetchStats
from gnomon.shadow.metadata import BucketOrder
from gnomon.shadow.storage import storage_at
from tests.stores.s3 import s3_server

BENCH = "bench.ranges"
LIBRARIES = ("gnomon-index", "pyarrow", "duckdb", "polars", "pylance")
FILE_ROWS, GROUP_ROWS = 1_000_000, 250_000
OF_A_SITE = 1000
FIRST = 100
STEP = 7_368_787  # a prime: row i has key (i * STEP) modulo the number of rows
SCHEMA = pa.schema(
    [("url", pa.string()), ("status", pa.int32()), ("fetched", pa.timestamp("us")), ("title", pa.string())]
)
Row = dict[str, Any]

app = typer.Typer(pretty_exceptions_enable=False, add_completion=False, rich_markup_mode=None)


class Bounds(NamedTuple):
    """Keys from `low` to before `high`; `prefix` where they are all keys that begin with it."""

    low: str
    high: str
    prefix: str | None = None


def site(number: int) -> str:
    return f"https://www.site-{number:07d}.example/"


def urls(numbers: np.ndarray) -> pa.Array:
    sites, pages = (pa.array(part).cast(pa.string()) for part in np.divmod(numbers, OF_A_SITE))
    padded, page = pc.utf8_lpad(sites, 7, "0"), pc.utf8_lpad(pages, 4, "0")
    return pc.binary_join_element_wise("https://www.site-", padded, ".example/page/", page, "")


def tables(rows: int) -> Iterator[pa.Table]:
    """The rows, in tables of one file each."""
    for begin in range(0, rows, FILE_ROWS):
        numbers = np.arange(begin, min(begin + FILE_ROWS, rows), dtype=np.int64) * STEP % rows
        titles = pc.binary_join_element_wise(
            "Page ", pa.array(numbers * 31 % 999_983).cast(pa.string()), " of a site", ""
        )
        columns = [
            urls(numbers),
            pa.array((200 + numbers % 7).astype(np.int32)),
            pa.array(1_700_000_000_000_000 + numbers * 1000).cast(pa.timestamp("us")),
            titles,
        ]
        yield pa.table(columns, schema=SCHEMA)


def write(folder: Path, rows: int) -> None:
    """The files, unless they are there."""
    done = folder / "done"
    if done.exists():
        return
    source = folder / "source"
    shutil.rmtree(source, ignore_errors=True)
    source.mkdir(parents=True)
    for number, table in enumerate(tables(rows)):
        pq.write_table(table, source / f"part-{number:04d}.parquet", row_group_size=GROUP_ROWS, write_page_index=True)
    done.touch()


# -- contenders --------------------------------------------------------------------------------------------------------


class Contender(ABC):
    """One way to get the first rows of some keys in key order. `scans`: it reads whole columns, so it gets few."""

    name: ClassVar[str]
    scans: ClassVar[bool] = False

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def make(cls, folder: Path) -> Path | None:
        """Make its extra data, unless it is there. Returns the place; None where it has none."""
        return None

    @abstractmethod
    def rows(self, bounds: Bounds) -> list[Row]:
        """The first rows."""

    def keys(self, bounds: Bounds) -> list[str]:
        """The keys of the first rows."""
        return [row["url"] for row in self.rows(bounds)]

    @property
    def cost(self) -> tuple[int, int] | None:
        """The reads and bytes since it was opened, where it counts them."""
        return None


class Gnomon(Contender):
    name = "Gnomon, ranges"
    order: ClassVar[str] = "range"
    buckets: ClassVar[int | None] = None

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.index = open_index(str(self.place(folder)))
        self.stats = FetchStats()

    @classmethod
    def place(cls, folder: Path) -> Path:
        return folder / f"index-{cls.order}-{cls.buckets or 'default'}"

    @classmethod
    def make(cls, folder: Path) -> Path:
        place = cls.place(folder)
        if not (place / "_shadow" / "spec.json").exists():
            build(None, str(folder / "source"), str(place), ["url"], order=cls.order, buckets=cls.buckets)
        return place

    def rows(self, bounds: Bounds) -> list[Row]:
        return list(self.index.range(*_given(bounds), prefix=bounds.prefix, limit=FIRST, stats=self.stats))

    def keys(self, bounds: Bounds) -> list[str]:
        asked = RangeQuery(*_given(bounds), prefix=bounds.prefix, limit=FIRST)
        return [key for table in self.index.entry_tables(asked, self.stats) for key in table["url"].to_pylist()]

    @property
    def cost(self) -> tuple[int, int]:
        index, source = self.stats.index, self.stats.source
        return index.reads + source.reads, index.bytes + source.bytes


def _given(bounds: Bounds) -> tuple[str, str] | tuple[None, None]:
    return (bounds.low, bounds.high) if bounds.prefix is None else (None, None)


class GnomonHashed(Gnomon):
    name = "Gnomon, hashed"
    order = "hash"


class GnomonFewBuckets(Gnomon):
    name = "Gnomon, hashed to 50 buckets"
    order = "hash"
    buckets = 50


class Lance(Contender):
    name = "Lance, copy with a B-Tree"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._data = import_module("lance").dataset(str(folder / "lance"))

    @classmethod
    def make(cls, folder: Path) -> Path:
        place = folder / "lance"
        if not (folder / "lance-done").exists():
            shutil.rmtree(place, ignore_errors=True)
            lance = import_module("lance")
            data = lance.write_dataset(ds.dataset(folder / "source"), str(place))
            data.create_scalar_index("url", "BTREE")
            (folder / "lance-done").touch()
        return place

    def _found(self, bounds: Bounds, columns: Sequence[str]) -> pa.Table:
        condition = f"url >= '{bounds.low}' AND url < '{bounds.high}'"
        return self._data.to_table(columns=list(columns), filter=condition).sort_by("url").slice(0, FIRST)

    def rows(self, bounds: Bounds) -> list[Row]:
        found: list[Row] = self._found(bounds, SCHEMA.names).to_pylist()
        return found

    def keys(self, bounds: Bounds) -> list[str]:
        found: list[str] = self._found(bounds, ["url"])["url"].to_pylist()
        return found


class Sqlite(Contender):
    name = "SQLite, copy ordered by key"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._connection = sqlite3.connect(folder / "copy.db")

    @classmethod
    def make(cls, folder: Path) -> Path:
        place = folder / "copy.db"
        if not (folder / "sqlite-done").exists():
            place.unlink(missing_ok=True)
            with sqlite3.connect(place) as connection:
                connection.executescript("PRAGMA journal_mode = off; PRAGMA synchronous = off")
                connection.execute("CREATE TABLE pages (url TEXT PRIMARY KEY, status, fetched, title) WITHOUT ROWID")
                reader = duckdb.connect()
                reader.execute("SET memory_limit = '6GB'")
                taken = f"SELECT url, status, epoch_us(fetched), title FROM {_files(folder)} ORDER BY url"
                found = reader.execute(taken)
                while rows := found.fetchmany(100_000):
                    connection.executemany("INSERT INTO pages VALUES (?, ?, ?, ?)", rows)
            (folder / "sqlite-done").touch()
        return place

    def _found(self, what: str, bounds: Bounds) -> list[tuple[Any, ...]]:
        query = f"SELECT {what} FROM pages WHERE url >= ? AND url < ? ORDER BY url LIMIT {FIRST}"
        return self._connection.execute(query, (bounds.low, bounds.high)).fetchall()

    def rows(self, bounds: Bounds) -> list[Row]:
        names = SCHEMA.names
        found = [dict(zip(names, row, strict=True)) for row in self._found("*", bounds)]
        return [{**row, "fetched": EPOCH + dt.timedelta(microseconds=row["fetched"])} for row in found]

    def keys(self, bounds: Bounds) -> list[str]:
        return [key for (key,) in self._found("url", bounds)]


def _files(folder: Path) -> str:
    return f"read_parquet('{folder}/source/*.parquet')"


class DuckDb(Contender):
    name = "DuckDB on the files"
    scans = True

    def rows(self, bounds: Bounds) -> list[Row]:
        where = f"url >= '{bounds.low}' AND url < '{bounds.high}'"
        found = duckdb.sql(f"SELECT * FROM {_files(self.folder)} WHERE {where} ORDER BY url LIMIT {FIRST}")
        return [dict(zip(SCHEMA.names, row, strict=True)) for row in found.fetchall()]


class Polars(Contender):
    name = "Polars on the files"
    scans = True

    def rows(self, bounds: Bounds) -> list[Row]:
        frame = pl.scan_parquet(self.folder / "source" / "*.parquet")
        wanted = frame.filter((pl.col("url") >= bounds.low) & (pl.col("url") < bounds.high))
        return wanted.sort("url").head(FIRST).collect().to_dicts()


CONTENDERS = (Gnomon, GnomonHashed, GnomonFewBuckets, Sqlite, Lance, DuckDb, Polars)
EPOCH = dt.datetime(1970, 1, 1)


# -- measurement -------------------------------------------------------------------------------------------------------


def asked(rows: int, number: int) -> list[Bounds]:
    """Some prefixes, and as many ranges."""
    chance = np.random.default_rng(1)
    found = []
    for one, other in chance.choice(rows // OF_A_SITE - 1, (number, 2), replace=False).tolist():
        found.append(
            Bounds(site(one), site(one)[:-1] + "0", site(one))
        )  # a zero follows the slash in the order of bytes
        found.append(Bounds(f"{site(other)}page/0500", f"{site(other + 1)}page/0500"))
    return found


def expected(bounds: Bounds) -> list[str]:
    """The keys of the first rows."""
    first = int(bounds.low[len("https://www.site-") :][:7]) * OF_A_SITE + (0 if bounds.prefix else 500)
    found: list[str] = urls(np.arange(first, first + FIRST)).to_pylist()
    return found


def measured(contender: Contender, call: Callable[[Bounds], list[Any]], bounds: Sequence[Bounds]) -> list[str]:
    """Cells: the first of them, which finds nothing in its own caches; the median and the longest of the others; the
    reads and bytes of the median one, where it counts them."""
    times, costs = [], []
    for one in bounds:
        before = contender.cost
        begin = time.perf_counter()
        found = call(one)
        times.append((time.perf_counter() - begin) * 1000)
        if [row["url"] if isinstance(row, dict) else row for row in found] != expected(one):
            raise WrongRows(f"{contender.name}: {one}")
        if before is not None and contender.cost is not None:
            costs.append([after - former for after, former in zip(contender.cost, before, strict=True)])
    reads = [digits(statistics.median(cost[i] for cost in costs[1:])) for i in (0, 1)] if costs else ["", ""]
    later = times[1:] or times
    return [digits(times[0]), digits(statistics.median(later)), digits(max(later)), *reads]


COLUMNS = ("first", "contender", "extra data", "first ms", "p50 ms", "longest ms", "reads", "bytes")


def table(folder: Path, rows: int, number: int, few: int) -> Iterator[str]:
    yield from head(COLUMNS)
    every = asked(rows, number)
    for what in ("keys", "rows"):
        for kind in CONTENDERS:
            made = kind.make(folder)
            contender = kind(folder)
            size = "none" if made is None else megabytes(_bytes(made))
            cells = measured(contender, getattr(contender, what), every[:few] if kind.scans else every)
            yield row([f"{FIRST} {what}", kind.name, size, *cells])


def _bytes(place: Path) -> int:
    return sum(one.stat().st_size for one in [place, *place.rglob("*")] if one.is_file())


# -- on a store with delays --------------------------------------------------------------------------------------------

STORE_ROWS, STORE_BUCKETS, STORE_ASKED = 5_000_000, 100, 6
STORE_COLUMNS = ("100 ms to the first byte", "buckets", "what", "ms", "requests", "one after another", "KB")


def on_a_store(folder: Path) -> Iterator[str]:
    """The same from a local S3 server behind a proxy that delays each answer: the first page of a process, whose files
    nobody opened; the page behind it; and pages of other ranges."""
    yield from head(STORE_COLUMNS)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with variables_set(KEPT_ALIVE), s3_server(folder) as store:
        with variables_set(store.variables):
            for number, table in enumerate(tables(STORE_ROWS)):
                pq.write_table(table, folder / "part", row_group_size=GROUP_ROWS, write_page_index=True)
                storage_at(f"{store.address}/source").put_new(f"{number}.parquet", [(folder / "part").read_bytes()])
            for order in BucketOrder:
                place = f"{store.address}/{order}"
                build(None, f"{store.address}/source", place, ["url"], order=order, buckets=STORE_BUCKETS)
        address = urlsplit(store.variables["AWS_ENDPOINT_URL"])
        assert address.hostname
        assert address.port
        with Delays(address.hostname, address.port) as proxy:
            endpoint = {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{proxy.port}"}
            with variables_set({**store.variables, **endpoint}):
                for order in BucketOrder:
                    for what in ("keys", "rows"):
                        yield from _pages(f"{store.address}/{order}", order, what, proxy)


def _pages(place: str, order: str, what: str, proxy: Delays) -> Iterator[str]:
    first, *others = asked(STORE_ROWS, STORE_ASKED)
    index = open_index(place)
    stats = FetchStats()

    def page(bounds: Bounds, after: str | None = None) -> tuple[list[str], str | None, list[float]]:
        query = RangeQuery(*_given(bounds), prefix=bounds.prefix, limit=FIRST, after=after)
        passed, size = len(proxy.passed), stats.index.bytes + stats.source.bytes
        begin = time.perf_counter()
        if what == "rows":
            (found,) = index.range_pages(query, stats=stats)
            keys, cursor = [row["url"] for row in found.rows], found.cursor
        else:
            keys, cursor = [key for table in index.entry_tables(query, stats) for key in table["url"].to_pylist()], None
        took = (time.perf_counter() - begin) * 1000
        requests = proxy.passed[passed:]
        read = stats.index.bytes + stats.source.bytes - size
        return keys, cursor, [took, len(requests), longest_chain(requests), read / 1000]

    def line(name: str, costs: Sequence[Sequence[float]]) -> str:
        middle = [digits(statistics.median(cost)) for cost in zip(*costs, strict=True)]
        return row([name, f"{STORE_BUCKETS}, {order}", f"{FIRST} {what}", *middle])

    keys, cursor, cost = page(first)
    if keys != expected(first):
        raise WrongRows(f"{place}: {first}")
    yield line("first page of a process", [cost])
    if cursor is not None:
        yield line("the page behind it", [page(first, cursor)[2]])
    costs = []
    for bounds in others:
        keys, _, cost = page(bounds)
        costs.append(cost)
        if keys != expected(bounds):
            raise WrongRows(f"{place}: {bounds}")
    yield line("pages of other ranges", costs)


@app.command()
def ranges(
    rows: Annotated[int, typer.Option(help="Rows of the table.", min=2_000_000)] = 100_000_000,
    number: Annotated[int, typer.Option(help="Prefixes, and as many ranges.", min=2)] = 50,
    few: Annotated[int, typer.Option(help="Prefixes and ranges of contenders that scan.", min=1)] = 4,
    folder: Annotated[Path, typer.Option(help="Where the data goes; what is there is used.")] = Path(".bench/ranges"),
    record: RecordOption = False,
) -> None:
    """Get the first rows of prefixes and ranges through Gnomon, SQLite, Lance, DuckDB and Polars, side by side."""
    folder.mkdir(parents=True, exist_ok=True)
    write(folder, rows)
    for kind in CONTENDERS:
        say(f"{kind.name} ...")
        kind.make(folder)
    report = Report(BENCH, LIBRARIES, {"rows": rows, "number": number, "few": few})
    report.say("**Local disk**\n\n" + "\n".join(table(folder, rows, number, few)) + "\n")
    report.say("**Store with delays**\n\n" + "\n".join(on_a_store(folder.resolve() / "store")) + "\n")
    report.record(record)


if __name__ == "__main__":
    app()
