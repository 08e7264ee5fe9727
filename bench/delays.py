"""A proxy that delays answers, like a remote store, and records its requests."""

import asyncio
import random
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

FIRST_BYTE_SECONDS = 0.1
# The first byte of S3, as shares of all answers and seconds; between them in straight lines.
S3_SHARES, S3_SECONDS = (0.0, 0.5, 0.99, 0.999, 1.0), (0.050, 0.063, 0.078, 0.118, 0.150)
SEED = 8
CHUNK = 1 << 16
METHODS = (b"GET ", b"HEAD ", b"PUT ", b"POST ", b"DELETE ")
IDLE_SECONDS = 0.5  # without a request: the proxy is idle
LONGEST_WAIT_SECONDS = 30


@dataclass
class ProxiedRequest:
    """A request, the time when it came, and the time when the last byte of its answer so far was forwarded (of the
    monotonic clock; None before the first byte)."""

    target: str
    begin: float
    end: float | None = None
    wait: float = 0.0  # seconds to the first byte of the answer


def longest_chain(requests: Iterable[ProxiedRequest]) -> int:
    """The length of the longest chain of requests of which each came after the answer of the previous one. A program
    that needs the answers waits this number of times. A request without an answer does not count."""
    count, end = 0, float("-inf")
    for begin, answered in sorted(((one.begin, one.end) for one in requests if one.end), key=lambda span: span[1] or 0):
        if begin >= end:
            count, end = count + 1, answered or 0
    return count


def always(seconds: float = FIRST_BYTE_SECONDS) -> Callable[[], float]:
    """Each answer takes as long as any other."""
    return lambda: seconds


def like_s3() -> Callable[[], float]:
    """Each answer takes another time, the same ones in each run."""
    chance = random.Random(SEED)
    return lambda: float(np.interp(chance.random(), S3_SHARES, S3_SECONDS))


class Delays:
    """The proxy, on its own port. It forwards the first byte of an answer no sooner than the seconds of `first_byte`
    after the request; the rest at once. `passed` are the requests, in order of arrival."""

    def __init__(self, host: str, port: int, first_byte: Callable[[], float] | None = None) -> None:
        self._first_byte = always() if first_byte is None else first_byte
        self.passed: list[ProxiedRequest] = []
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

    def wait_until_idle(self) -> None:
        """Wait until the client sends no more requests by itself. RuntimeError if that does not end."""
        end = time.monotonic() + LONGEST_WAIT_SECONDS
        while any(time.monotonic() - (one.end or one.begin) < IDLE_SECONDS for one in self.passed[-10:]):
            if time.monotonic() > end:
                raise RuntimeError(f"requests do not end: {self.passed[-1].target}")
            time.sleep(IDLE_SECONDS / 10)

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
        request = ProxiedRequest("", 0.0)

        async def ask() -> None:
            nonlocal request
            while chunk := await client.read(CHUNK):
                if chunk.startswith(METHODS):
                    target = chunk.partition(b"\r")[0].decode("latin-1")
                    request = ProxiedRequest(target, time.monotonic(), wait=self._first_byte())
                    self.passed.append(request)
                requests.write(chunk)
                await requests.drain()
            requests.close()

        async def answer() -> None:
            while chunk := await server.read(CHUNK):
                await asyncio.sleep(max(0.0, request.begin + request.wait - time.monotonic()))
                request.end = time.monotonic()
                answers.write(chunk)
                await answers.drain()
            answers.close()

        with suppress(OSError):
            await asyncio.gather(ask(), answer())
        for writer in (requests, answers):
            writer.close()
