"""Fetches from a store that takes 100 ms to its first byte, like S3: a local S3 server behind a proxy that delays each
answer. The important figure is the number of reads that have to wait for others before them."""

import http.client
import json
import os
import shutil
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from bench.delays import Delays, longest_chain
from bench.format_files import FILES, FormatFile, data_file, rows_of, write_file
from bench.lake import FIRST_ABSENT_PAGE
from bench.page import digits, head, row
from bench.server import Server, serve
from gnomon.commands import crawl
from gnomon.commands.spark import spark_session
from gnomon.indexer import build
from gnomon.shadow.storage import storage_at
from tests.stores.process import Store
from tests.stores.s3 import s3_server

TIMEOUT_SECONDS = 60
# Turns off periodic checks, except at the start: they would be counted among the reads.
QUIET = {"GNOMON_REFRESH_SECONDS": "86400", "GNOMON_COVERAGE_SECONDS": "86400"}
KEPT_ALIVE = {"VGW_KEEP_ALIVE": "true"}  # S3 keeps its connections open, the local server by default does not
MANY_FILES = 16  # more than the number of files whose metadata is read before the needed one is known
BATCH_KEYS = 100
COLD_READS, COLD_MS, WARM_MS = 3, 350.0, 250.0
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
    """The time of a fetch, its reads, and the longest chain of reads that depend on each other."""

    ms: float
    reads: int
    waits: int


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
