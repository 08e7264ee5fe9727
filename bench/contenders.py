"""The contenders: each fetches the rows of one key, as Python values like a program would use them."""

import http.client
import json
import os
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any, ClassVar, NamedTuple
from urllib.parse import quote

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
from pyspark.sql import SparkSession

from bench.lake import all_rows, parquet_dataset
from bench.server import serve
from gnomon.commands.crawl import SCHEMA
from gnomon.indexer import build
from gnomon.shadow import open_index
from gnomon.shadow.fetch.results import FetchStats

HTTP_SECONDS = 60
Row = dict[str, Any]


class Answer(NamedTuple):
    """The rows of a key, and the bytes read for them where the contender itself counts them."""

    rows: list[Row]
    bytes: int | None = None


class Contender(ABC):
    """One way to fetch rows. It is opened on a source and on its extra data, and closed at the end."""

    name: ClassVar[str]
    extra: ClassVar[str | None] = None  # a name in `MAKERS`; None without extra data
    scans: ClassVar[bool] = False  # reads whole columns for every key, so it gets few keys
    is_by_position: ClassVar[bool] = False  # gets the row's position beforehand, so it gets no absent keys

    def __init__(self, source: Path, extra: Path) -> None:
        self.pid = os.getpid()  # the process that reads
        self.closing = ExitStack()

    @abstractmethod
    def fetch(self, key: str) -> Answer: ...

    def prepare(self, keys: Sequence[str]) -> None:  # noqa: B027
        """Called once with the keys of the run, before anything is timed."""

    def close(self) -> None:
        self.closing.close()


class GnomonInProcess(Contender):
    name = "Gnomon in process"
    extra = "index"

    def __init__(self, source: Path, extra: Path) -> None:
        super().__init__(source, extra)
        self._index = open_index(str(extra))

    def fetch(self, key: str) -> Answer:
        stats = FetchStats()
        rows = self._index.fetch(key, SCHEMA.names, stats=stats)
        return Answer(rows, stats.index.bytes + stats.source.bytes)


class GnomonWithKnownPages(GnomonInProcess):
    """The pages of the keys were read before, and are not in memory."""

    name = "Gnomon in process, pages known"

    def __init__(self, source: Path, extra: Path) -> None:
        super().__init__(source, extra)
        self._index = open_index(str(extra), keep_pages=False)

    def prepare(self, keys: Sequence[str]) -> None:
        for key in keys:
            self.fetch(key)


class GnomonOverHttp(Contender):
    """One connection, kept alive. The time is of the whole round trip, with the JSON decoded."""

    name = "Gnomon over HTTP"
    extra = "index"

    def __init__(self, source: Path, extra: Path) -> None:
        super().__init__(source, extra)
        self._index = extra
        self._serving = self.closing.enter_context(ExitStack())
        self._serve({})

    def _serve(self, environment: Mapping[str, str]) -> None:
        """Start the service, in place of the one before."""
        self._serving.close()
        server = self._serving.enter_context(serve(self._index, environment=environment))
        self.pid = server.pid
        self._connection = http.client.HTTPConnection(server.host, server.port, timeout=HTTP_SECONDS)
        self._serving.callback(self._connection.close)

    def fetch(self, key: str) -> Answer:
        self._connection.request("GET", f"/rows/{quote(key, safe='')}")
        response = self._connection.getresponse()
        body = response.read()
        if response.status not in (200, 404):
            raise RuntimeError(f"{key}: HTTP status {response.status}: {body[:500]!r}")
        return Answer(json.loads(body)["rows"] if response.status == 200 else [])


class GnomonOverHttpWithKnownPages(GnomonOverHttp):
    """The pages of the keys were read before, by a service that has ended: they are not in memory."""

    name = "Gnomon over HTTP, pages known"

    def prepare(self, keys: Sequence[str]) -> None:
        environment = {"GNOMON_CACHE_FOLDER": self.closing.enter_context(TemporaryDirectory())}
        self._serve(environment)
        for key in keys:
            self.fetch(key)
        self._serve(environment)


class DuckDbOnFiles(Contender):
    name = "DuckDB on the files"
    scans = True

    def __init__(self, source: Path, extra: Path) -> None:
        super().__init__(source, extra)
        self._connection = self.closing.enter_context(duckdb.connect())
        self._query = f"SELECT * FROM {self.relation(source)} WHERE url = ?"

    def relation(self, source: Path) -> str:
        files = str(source / "*" / "*.parquet").replace("'", "''")
        return f"read_parquet('{files}', hive_partitioning = true, hive_types = {{'dt': VARCHAR}})"

    def fetch(self, key: str) -> Answer:
        found = self._connection.execute(self._query, [key])
        names = [column[0] for column in found.description]
        return Answer([dict(zip(names, row, strict=True)) for row in found.fetchall()])


class PolarsOnFiles(Contender):
    name = "Polars on the files"
    scans = True

    def __init__(self, source: Path, extra: Path) -> None:
        super().__init__(source, extra)
        self._frame = self.frame(source)

    def frame(self, source: Path) -> pl.LazyFrame:
        return pl.scan_parquet(source / "*" / "*.parquet", hive_partitioning=True, hive_schema={"dt": pl.String})

    def fetch(self, key: str) -> Answer:
        return Answer(self._frame.filter(pl.col("url") == key).collect().to_dicts())


class PyarrowOnFiles(Contender):
    name = "pyarrow dataset on the files"
    scans = True

    def __init__(self, source: Path, extra: Path) -> None:
        super().__init__(source, extra)
        self._dataset = self.dataset(source)

    def dataset(self, source: Path) -> ds.Dataset:
        return parquet_dataset(source)

    def fetch(self, key: str) -> Answer:
        return Answer(self._dataset.to_table(filter=ds.field("url") == key).to_pylist())


class SqliteCopy(Contender):
    name = "SQLite, a full copy"
    extra = "sqlite"

    def __init__(self, source: Path, extra: Path) -> None:
        super().__init__(source, extra)
        self._connection = sqlite3.connect(f"{(extra / 'copy.db').absolute().as_uri()}?mode=ro", uri=True)
        self.closing.callback(self._connection.close)

    def fetch(self, key: str) -> Answer:
        found = self._connection.execute("SELECT * FROM pages WHERE url = ?", [key])
        return Answer([dict(zip(SCHEMA.names, row, strict=True)) for row in found.fetchall()])


class LanceCopy(Contender):
    name = "Lance, a full copy"
    extra = "lance"

    def __init__(self, source: Path, extra: Path) -> None:
        super().__init__(source, extra)
        self._dataset = _lance().dataset(str(extra))

    def fetch(self, key: str) -> Answer:
        quoted = key.replace("'", "''")
        return Answer(self._dataset.to_table(filter=f"url = '{quoted}'").to_pylist())


def _lance() -> ModuleType:
    """Lance, imported on demand: once imported, it warns whenever this process forks, for example to start Spark."""
    return import_module("lance")


# -- extra data for a source
# --------------------------------------------------------------------------------------------


def make_index(spark: SparkSession, source: Path, target: Path) -> None:
    """Gnomon's index, by Spark."""
    build(spark, str(source), str(target), ["url"])


def make_sqlite(spark: SparkSession, source: Path, target: Path) -> None:
    """All rows in a table with an index on `url`; `crawl_ts` as microseconds since 1970."""
    target.mkdir()
    connection = sqlite3.connect(target / "copy.db")
    try:
        connection.execute("PRAGMA journal_mode = off")
        connection.execute("PRAGMA synchronous = off")
        connection.execute(
            "CREATE TABLE pages (url TEXT, merchant_id INTEGER, crawl_ts INTEGER, status INTEGER, html TEXT, dt TEXT)"
        )
        for batch in all_rows(source):
            micros = batch.column("crawl_ts").cast(pa.int64())
            columns = [micros if name == "crawl_ts" else batch.column(name) for name in SCHEMA.names]
            rows = zip(*(column.to_pylist() for column in columns), strict=True)
            connection.executemany("INSERT INTO pages VALUES (?, ?, ?, ?, ?, ?)", rows)
        connection.execute("CREATE INDEX pages_url ON pages (url)")
        connection.commit()
    finally:
        connection.close()


def make_lance(spark: SparkSession, source: Path, target: Path) -> None:
    """All rows in a Lance dataset with a B-Tree index on `url`."""
    dataset = _lance().write_dataset(all_rows(source), str(target), schema=SCHEMA)
    dataset.create_scalar_index("url", "BTREE")


MAKERS: dict[str, Callable[[SparkSession, Path, Path], None]] = {
    "index": make_index,
    "sqlite": make_sqlite,
    "lance": make_lance,
}
