"""Fetches from a store that takes 100 ms to its first byte: a local S3 server behind a proxy that delays each answer.
The important figure is the number of reads that have to wait for others before them. Then rows from a store with the
delays of S3, without and with a cache folder, and what their requests cost."""

import http.client
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.fs as fs
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from bench.attack import quantile
from bench.delays import Delays, like_s3, longest_chain
from bench.format_files import FILES, FormatFile, data_file, rows_of, write_file
from bench.lake import FIRST_ABSENT_PAGE
from bench.page import digits, head, row
from bench.server import Server, serve
from gnomon.commands import crawl
from gnomon.commands.spark import spark_session
from gnomon.indexer import build
from gnomon.shadow import OpenIndex
from gnomon.shadow.storage import storage_at
from tests.opened import open_index
from tests.stores.process import Store
from tests.stores.s3 import s3_server

TIMEOUT_SECONDS = 60
# Turns off periodic checks, except at the start: they would be counted among the reads.
QUIET = {"GNOMON_REFRESH_SECONDS": "86400", "GNOMON_COVERAGE_SECONDS": "86400"}
KEPT_ALIVE = {"VGW_KEEP_ALIVE": "true"}  # S3 keeps its connections open, the local server by default does not
MANY_FILES = 16  # more than the number of files whose metadata is read before the needed one is known
BATCH_KEYS = 100
COLD_READS, COLD_MS, WARM_MS = 3, 350.0, 250.0
S3_SOURCES = (0, 2)  # of `SOURCES`
ROWS_OF_A_KEY = 10  # rows of the part with the delays of S3, for each key of the other part
GET_DOLLARS, LIST_DOLLARS = 0.40, 5.00  # a million requests
FOLDER_COLD_MS, COLD_P50_MS, COLD_P99_MS = 75.0, 140.0, 250.0
COLD, OPENING, WARM, MAKE_LANCE = "cold", "opening", "warm", "make lance"
Ask = Callable[[str], list[Any]]  # the rows of a URL
LIST = "list-type="  # in the target of a request that lists
S3_COLUMNS = [
    "store with the delays of S3",
    "rows",
    "p50 ms",
    "p99 ms",
    "longest ms",
    "GETs",
    "lists",
    "one after another",
    "dollars a million rows",
]
COLUMNS = ["store with 100 ms to the first byte", "fetches", "p50 ms", "longest ms", "reads", "one after another"]


class Source(NamedTuple):
    """A kind of file, by its name in `FILES`, and the number of files that hold the rows."""

    title: str
    file: str
    files: int = 1


SOURCES = (
    Source("Parquet, page index", "parquet-pages"),
    Source(f"Parquet, page index, {MANY_FILES} files", "parquet-pages", MANY_FILES),
    Source("Parquet, neither page index nor recorded page maps", "parquet-pyarrow"),
    Source("Avro", "avro-deflate"),
)


class Fetch(NamedTuple):
    """The time of a fetch, its reads, the longest chain of reads that depend on each other, and the lists among the
    reads."""

    ms: float
    reads: int
    waits: int
    lists: int = 0


class Load(NamedTuple):
    """Fetches of one kind. `cold`: each is the first of a process. `goal`: whether there is one for it."""

    name: str
    cold: bool
    goal: bool
    fetches: list[Fetch]

    @property
    def p50(self) -> float:
        return statistics.median(fetch.ms for fetch in self.fetches)

    @property
    def waits(self) -> int:
        return max(fetch.waits for fetch in self.fetches)


class Request(NamedTuple):
    """A request, and the expected answer: its status, and the number of keys that have rows."""

    method: str
    path: str
    body: str | None
    status: int
    found: int


@contextmanager
def variables_set(given: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in given}
    os.environ.update(given)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def slow_store(folder: Path, pages: int, keys: int) -> Iterator[str]:
    """Lines of Markdown: fetches with nothing in memory, and with the index in memory; and the goals."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    goals: list[str] = []
    with variables_set(KEPT_ALIVE), s3_server(folder) as store:
        with variables_set(store.variables):
            _write(folder, store, rows_of(pages))
        address = urlsplit(store.variables["AWS_ENDPOINT_URL"])
        assert address.hostname
        assert address.port
        urls = crawl.page_urls(np.arange(keys) * (pages // keys)).to_pylist()
        batch = crawl.page_urls(np.arange(BATCH_KEYS) * (pages // BATCH_KEYS)).to_pylist()
        yield from head(COLUMNS)
        for place, source in enumerate(SOURCES):
            with Delays(address.hostname, address.port) as proxy:
                variables = {**store.variables, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{proxy.port}", **QUIET}
                yield row([f"**{source.title}**", *[""] * (len(COLUMNS) - 1)])
                for load in _measured(f"{store.address}/{place}/index", variables, urls, batch, proxy):
                    yield _line(load)
                    goals += [_goal(source, load)] if load.goal else []
        yield ""
        yield from head(["goal for a fetch of a key", "one after another, most", "p50 ms", ""])
        yield from goals
        yield ""
        yield from _like_s3(store, address.hostname, address.port, folder, pages, keys * ROWS_OF_A_KEY)


def _like_s3(store: Store, host: str, port: int, folder: Path, pages: int, rows: int) -> Iterator[str]:
    """The lines of single rows in process, from a store with the delays of S3."""
    urls = crawl.page_urls(np.arange(rows) * 7919 % pages).to_pylist()
    goals: list[str] = []
    yield from head(S3_COLUMNS)
    for place in S3_SOURCES:
        yield row([f"**{SOURCES[place].title}**", *[""] * (len(S3_COLUMNS) - 1)])
        with variables_set(store.variables):
            _child(f"{store.address}/{place}", MAKE_LANCE, "", [])
        with Delays(host, port, like_s3()) as proxy:
            variables = {**store.variables, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{proxy.port}"}
            with variables_set(variables):
                for load in _rows_in_process(f"{store.address}/{place}", folder / f"cache-{place}", urls, proxy):
                    yield _priced(load)
                    goals += [_s3_goal(SOURCES[place], load)] if load.goal else []
    yield ""
    yield from head(["goal for a row with the delays of S3", "one after another, most", "p50 ms", "p99 ms", ""])
    yield from goals


def _child(place: str, way: str, more: str, urls: Sequence[str]) -> list[tuple[float, float]]:
    """`fetch_each` in a process of its own. In this one the proxy would compete for the interpreter."""
    command = [sys.executable, "-m", "bench.slow_store", place, way, more]
    done = subprocess.run(command, input=json.dumps(urls), stdout=subprocess.PIPE, text=True, check=True)
    return [(begin, end) for begin, end in json.loads(done.stdout)]


def _rows_in_process(place: str, cache: Path, urls: Sequence[str], proxy: Delays) -> Iterator[Load]:
    """Rows in a process without a service, and then those of peers, which read the files or a copy."""

    def measured(way: str, more: str, of: Sequence[str] = urls) -> list[Fetch]:
        return [_between(begin, end, proxy) for begin, end in _child(place, way, more, of)]

    measured(WARM, str(cache))  # fills the folder
    yield Load("cold, no folder", True, True, measured(COLD, ""))
    yield Load("cold, no folder: the index opened, too", True, False, measured(OPENING, ""))
    yield Load("cold, a warm folder", True, True, measured(COLD, str(cache)))
    yield Load("cold, a warm folder: the index opened, too", True, True, measured(OPENING, str(cache)))
    yield Load("warm", False, False, measured(WARM, ""))
    some = urls[: max(2, len(urls) // ROWS_OF_A_KEY)]
    for peer in PEERS:
        yield Load(f"{peer}: cold", True, False, measured(peer, COLD, some))
        yield Load(f"{peer}: warm", False, False, measured(peer, WARM, some))


def _between(begin: float, end: float, proxy: Delays) -> Fetch:
    passed = [one for one in proxy.passed if begin <= one.begin < end]
    return Fetch((end - begin) * 1000, len(passed), longest_chain(passed), sum(LIST in one.target for one in passed))


def _duckdb(place: str) -> Ask:
    """DuckDB's own reader of S3 is an extension that it downloads."""
    endpoint = urlsplit(os.environ["AWS_ENDPOINT_URL"])
    store = fs.S3FileSystem(endpoint_override=endpoint.netloc, scheme=endpoint.scheme)
    pages = ds.dataset(f"{place}/source".removeprefix("s3://"), filesystem=store)
    connection = duckdb.connect()
    connection.register("pages", pages)
    return lambda url: connection.execute("SELECT * FROM pages WHERE url = ?", [url]).fetchall()


def _polars(place: str) -> Ask:
    options = {"aws_endpoint_url": os.environ["AWS_ENDPOINT_URL"], "aws_allow_http": "true"}
    frame = pl.scan_parquet(f"{place}/source/*.parquet", storage_options=options)
    return lambda url: frame.filter(pl.col("url") == url).collect().to_dicts()


def _lance(place: str) -> Ask:
    dataset = import_module("lance").dataset(f"{place}/lance", storage_options=_lance_options())
    return lambda url: dataset.to_table(filter=f"url = '{url}'").to_pylist()


def _lance_options() -> dict[str, str]:
    return {"endpoint": os.environ["AWS_ENDPOINT_URL"], "allow_http": "true"}


def _make_lance(place: str) -> None:
    """Copy the rows of a source."""
    storage = storage_at(f"{place}/source")
    table = pa.concat_tables(pq.read_table(pa.BufferReader(storage.read(info.path))) for info in storage.list())
    options = _lance_options()
    import_module("lance").write_dataset(table, f"{place}/lance", storage_options=options).create_scalar_index(
        "url", "BTREE"
    )


PEERS: dict[str, Callable[[str], Ask]] = {
    "DuckDB on the files, by pyarrow's S3": _duckdb,
    "Polars on the files": _polars,
    "Lance, a full copy": _lance,
}


def fetch_each(place: str, way: str, more: str, urls: Sequence[str]) -> list[tuple[float, float]]:
    """When the fetch of each row began and ended. Of a peer, `more` is COLD or WARM; of the index it is a cache folder,
    and the index is opened for each row, before it or with it, or once, after all rows were read."""
    if way == MAKE_LANCE:
        _make_lance(place)
    if way in PEERS:
        return _of_peer(PEERS[way], place, more == WARM, urls)
    return _of_index(f"{place}/index", way, more, urls)


def _of_peer(opened: Callable[[str], Ask], place: str, warm: bool, urls: Sequence[str]) -> list[tuple[float, float]]:
    """A cold peer is opened with each row, a warm one has read each row before."""
    times, ask = [], opened(place)
    for url in urls if warm else ():
        ask(url)
    for url in urls:
        begin = time.monotonic()
        answer = (ask if warm else opened(place))(url)
        times.append((begin, time.monotonic()))
        if len(answer) != 1:
            raise RuntimeError(f"{url}: {len(answer)} rows")
    return times


def _of_index(index: str, way: str, folder: str, urls: Sequence[str]) -> list[tuple[float, float]]:
    times = []
    with open_index(index, cache_folder=folder or None, keep_pages=False) as warm:
        if way == WARM:
            warm.fetch_many(urls)
        for url in urls:
            opened: OpenIndex | None = warm
            if way != WARM:
                opened = open_index(index, cache_folder=folder or None) if way == COLD else None
            if opened is not None:
                assert opened.view  # which is proven to be the newest
            begin = time.monotonic()
            answer = (opened or open_index(index, cache_folder=folder or None)).fetch(url)
            times.append((begin, time.monotonic()))
            if len(answer) != 1:
                raise RuntimeError(f"{url}: {len(answer)} rows")
    return times


def _priced(load: Load) -> str:
    """The line of a load, with what the requests of a million rows cost."""
    times, count = sorted(fetch.ms for fetch in load.fetches), len(load.fetches)
    lists = sum(fetch.lists for fetch in load.fetches) / count
    gets = sum(fetch.reads for fetch in load.fetches) / count - lists
    dollars = f"{gets * GET_DOLLARS + lists * LIST_DOLLARS:.2f}"
    figures = [*map(digits, (load.p50, quantile(times, 0.99), times[-1])), f"{gets:.2f}", f"{lists:.2f}"]
    return row([load.name, str(count), *figures, str(load.waits), dollars])


def _s3_goal(source: Source, load: Load) -> str:
    """The line of a goal: a cold row takes two reads one after the other, and one with a warm folder."""
    has_folder, p99 = "warm folder" in load.name, quantile(sorted(fetch.ms for fetch in load.fetches), 0.99)
    waits, most = (1, FOLDER_COLD_MS) if has_folder else (2, COLD_P50_MS)
    met = load.p50 < most and load.waits <= waits and (has_folder or p99 < COLD_P99_MS)
    name = f"{load.name}, {source.title}: at most {waits} one after another, p50 under {most:g} ms"
    name += "" if has_folder else f", p99 under {COLD_P99_MS:g} ms"
    return row([name, str(load.waits), digits(load.p50), digits(p99), "reached" if met else "missed"])


def _write(folder: Path, store: Store, table: pa.Table) -> None:
    """Write the sources, each with its index."""
    with spark_session() as spark:
        for place, source in enumerate(SOURCES):
            (one,) = (one for one in FILES if one.name == source.file)
            for number, rows in enumerate(_shares(table, source.files)):
                staged = folder / "staged"
                write_file(spark, one, rows, staged)
                _put(f"{store.address}/{place}/source", number, data_file(staged))
            _index(spark, f"{store.address}/{place}", one)


def _shares(table: pa.Table, count: int) -> Iterator[pa.Table]:
    size = -(-table.num_rows // count)
    return (table.slice(begin, size) for begin in range(0, table.num_rows, size))


def _put(source: str, number: int, file: Path) -> None:
    storage_at(source).put_new(f"{number}{file.suffix}", [file.read_bytes()])


def _measured(
    index: str, variables: Mapping[str, str], urls: list[str], batch: list[str], proxy: Delays
) -> Iterator[Load]:
    some = max(1, len(urls) // 4)
    absent = crawl.page_urls(np.arange(FIRST_ABSENT_PAGE, FIRST_ABSENT_PAGE + some)).to_pylist()

    def cold(requests: Sequence[Request]) -> list[Fetch]:
        fetches = []
        for one in requests:
            with serve(index, environment=variables) as server:
                proxy.wait_until_idle()
                fetches += _ask(server, [one], proxy)
        return fetches

    yield Load("cold: the first fetch of a process", True, True, cold([_of_key(url) for url in urls]))
    yield Load("cold: an absent key", True, False, cold([_of_key(url, 404) for url in absent]))
    yield Load(f"cold: a batch of {BATCH_KEYS} keys", True, False, cold([_of_keys(batch)] * some))
    with serve(index, environment=variables) as server:
        proxy.wait_until_idle()
        _ask(server, [_of_keys(batch)], proxy)
        yield Load(
            "warm: other keys of the same files", False, True, _ask(server, [_of_key(url) for url in urls], proxy)
        )
        yield Load("warm: the same batch again", False, False, _ask(server, [_of_keys(batch)] * some, proxy))


def _of_key(url: str, status: int = 200) -> Request:
    return Request("GET", f"/rows/{quote(url, safe='')}", None, status, status == 200)


def _of_keys(urls: Sequence[str]) -> Request:
    return Request("POST", "/rows", json.dumps({"keys": urls}), 200, len(urls))


def _index(spark: SparkSession, place: str, one: FormatFile) -> None:
    build(spark, f"{place}/source", f"{place}/index", [one.key], format=one.format, options=one.options)


def _ask(server: Server, requests: Sequence[Request], proxy: Delays) -> list[Fetch]:
    """Send the requests one after the other, and check each answer."""
    connection = http.client.HTTPConnection(server.host, server.port, timeout=TIMEOUT_SECONDS)
    fetches = []
    for one in requests:
        before, begin = len(proxy.passed), time.perf_counter()
        connection.request(one.method, one.path, one.body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        body = answer.read()
        took = (time.perf_counter() - begin) * 1000
        if answer.status != one.status or _keys_found(json.loads(body)) != one.found:
            raise RuntimeError(f"{one.path}: HTTP status {answer.status}: {body[:500]!r}")
        passed = proxy.passed[before:]
        fetches.append(Fetch(took, len(passed), longest_chain(passed)))
    connection.close()
    return fetches


def _keys_found(answer: dict[str, Any]) -> int:
    """The number of keys that have rows."""
    return sum(bool(result.get("count")) for result in answer.get("results", [answer]))


def _line(load: Load) -> str:
    times = [fetch.ms for fetch in load.fetches]
    reads = statistics.median(fetch.reads for fetch in load.fetches)
    return row([load.name, str(len(times)), digits(load.p50), digits(max(times)), f"{reads:g}", str(load.waits)])


def _goal(source: Source, load: Load) -> str:
    """The line of a goal: whether fetches of this kind of load reach it."""
    most = COLD_MS if load.cold else WARM_MS
    met = load.p50 < most and (not load.cold or load.waits <= COLD_READS)
    name = f"{'cold' if load.cold else 'warm'}, {source.title}: "
    name += f"at most {COLD_READS} reads one after another, under {most:g} ms" if load.cold else f"under {most:g} ms"
    return row([name, str(load.waits), digits(load.p50), "reached" if met else "missed"])


if __name__ == "__main__":
    print(json.dumps(fetch_each(sys.argv[1], sys.argv[2], sys.argv[3], json.load(sys.stdin))))
