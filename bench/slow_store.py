"""Fetches from a store that takes 100 ms to its first byte, as S3 does: a local S3 server behind a proxy that delays
each answer. What counts there is how many reads have to wait for others before them."""

import asyncio
import http.client
import os
import shutil
import statistics
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import quote, urlsplit

import numpy as np
import pyarrow.parquet as pq

from bench.format_files import rows_of
from bench.lake import PAGE_BYTES, WRITE_BATCH_ROWS
from bench.page import digits, head, row
from bench.server import Server, serve
from gnomon import crawl
from gnomon.spark import spark_session
from indexer import build
from shadow.storage import storage_at
from tests.stores.s3 import s3_server

FIRST_BYTE_SECONDS = 0.1
CHUNK = 1 << 16
METHODS = (b"GET ", b"HEAD ", b"PUT ", b"POST ", b"DELETE ")
TIMEOUT_SECONDS = 60
# What the service looks for by itself would be counted among the reads.
QUIET = {"GNOMON_REFRESH_SECONDS": "86400", "GNOMON_COVERAGE_SECONDS": "86400"}


class Delays:
    """A proxy on a port of its own, which hands on the first byte of an answer no sooner than `FIRST_BYTE_SECONDS`
    after the request for it; the rest at once. `requests` counts what passed."""

    def __init__(self, host: str, port: int) -> None:
        self.requests = 0
        self.port = 0
        self._server = (host, port)
        self._ready = threading.Event()
        self._stop: asyncio.Event | None = None
        self._writers: list[asyncio.StreamWriter] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)

    def __enter__(self) -> "Delays":
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(self, *_: object) -> None:
        assert self._loop is not None
        assert self._stop is not None
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    async def _run(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        listening = await asyncio.start_server(self._connection, "127.0.0.1", 0)
        self.port = listening.sockets[0].getsockname()[1]
        self._ready.set()
        await self._stop.wait()
        listening.close()
        for writer in self._writers:
            writer.transport.abort()
        await asyncio.gather(*(writer.wait_closed() for writer in self._writers), return_exceptions=True)

    async def _connection(self, client: asyncio.StreamReader, answers: asyncio.StreamWriter) -> None:
        server, requests = await asyncio.open_connection(*self._server)
        self._writers += [requests, answers]
        due = 0.0

        async def ask() -> None:
            nonlocal due
            while chunk := await client.read(CHUNK):
                if chunk.startswith(METHODS):
                    self.requests += 1
                    due = time.monotonic() + FIRST_BYTE_SECONDS
                requests.write(chunk)
                await requests.drain()
            requests.close()

        async def answer() -> None:
            while chunk := await server.read(CHUNK):
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                answers.write(chunk)
                await answers.drain()
            answers.close()

        with suppress(OSError):
            await asyncio.gather(ask(), answer())
        for writer in (requests, answers):
            writer.close()


@contextmanager
def _variables(given: Mapping[str, str]) -> Iterator[None]:
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
    """Lines of Markdown: what a fetch takes where nothing is in memory, and where the index is."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with s3_server(folder) as store:
        source, index = f"{store.address}/source", f"{store.address}/index"
        with _variables(store.variables):
            _write(folder, source, pages)
            with spark_session() as spark:
                build(spark, source, index, ["url"])
        address = urlsplit(store.variables["AWS_ENDPOINT_URL"])
        assert address.hostname
        assert address.port
        urls = crawl.page_urls(np.arange(keys) * (pages // keys)).to_pylist()
        with Delays(address.hostname, address.port) as proxy:
            variables = {**store.variables, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{proxy.port}", **QUIET}
            yield from _measured(index, variables, urls, proxy)


def _write(folder: Path, source: str, pages: int) -> None:
    """One file with pages of 1 MB."""
    path = folder / "rows.parquet"
    layout = {"data_page_size": PAGE_BYTES, "write_batch_size": WRITE_BATCH_ROWS, "write_page_index": True}
    pq.write_table(rows_of(pages), path, **layout)
    storage_at(source).put_new(path.name, [path.read_bytes()])
    path.unlink()


def _measured(index: str, variables: Mapping[str, str], urls: list[str], proxy: Delays) -> Iterator[str]:
    yield from head(
        [
            "store with 100 ms to the first byte",
            "fetches",
            "p50 ms",
            "longest ms",
            "reads a fetch",
            "waits one after another",
        ]
    )
    cold: list[tuple[float, int]] = []
    for url in urls[: max(1, len(urls) // 4)]:
        with serve(index, environment=variables) as server:
            cold += _ask(server, [url], proxy)
    yield _line("cold: the first fetch of a process", cold)
    with serve(index, environment=variables) as server:
        _ask(server, urls[:1], proxy)
        yield _line("warm: other keys of the same file", _ask(server, urls[1:], proxy))
        yield _line("warm: the same keys again", _ask(server, urls[1:], proxy))


def _ask(server: Server, urls: list[str], proxy: Delays) -> list[tuple[float, int]]:
    """Milliseconds and reads of each fetch, one after the other."""
    connection = http.client.HTTPConnection(server.host, server.port, timeout=TIMEOUT_SECONDS)
    found = []
    for url in urls:
        requests, begin = proxy.requests, time.perf_counter()
        connection.request("GET", f"/rows/{quote(url, safe='')}")
        answer = connection.getresponse()
        body = answer.read()
        if answer.status != 200:
            raise RuntimeError(f"{url}: HTTP status {answer.status}: {body[:500]!r}")
        found.append(((time.perf_counter() - begin) * 1000, proxy.requests - requests))
    connection.close()
    return found


def _line(name: str, fetches: list[tuple[float, int]]) -> str:
    """The waits are those that fit into the median: a fetch of 230 ms had two, of 100 ms each."""
    p50 = statistics.median(took for took, _ in fetches)
    reads = statistics.median(count for _, count in fetches)
    waits = int(p50 / 1000 / FIRST_BYTE_SECONDS)
    return row(
        [name, str(len(fetches)), digits(p50), digits(max(took for took, _ in fetches)), digits(reads), str(waits)]
    )
