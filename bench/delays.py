"""A proxy that answers late, as a store that is far away does, and tells what passed through it."""

import asyncio
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

FIRST_BYTE_SECONDS = 0.1
CHUNK = 1 << 16
METHODS = (b"GET ", b"HEAD ", b"PUT ", b"POST ", b"DELETE ")
STILL_SECONDS = 0.5  # without a request: nothing comes by itself any more
SETTLE_SECONDS = 30


@dataclass
class Passed:
    """A request, when it came, and when the last byte of its answer was handed on that came so far (of the monotonic
    clock; None before the first)."""

    target: str
    begin: float
    end: float | None = None


def one_after_another(requests: Iterable[Passed]) -> int:
    """The most of them of which each came when the answer of the one before was there: as often as an answer that needs
    them had to wait. Those that are not answered yet were not waited for."""
    count, end = 0, float("-inf")
    for begin, answered in sorted(((one.begin, one.end) for one in requests if one.end), key=lambda span: span[1] or 0):
        if begin >= end:
            count, end = count + 1, answered or 0
    return count


class Delays:
    """The proxy, on a port of its own: the first byte of an answer is handed on no sooner than `FIRST_BYTE_SECONDS`
    after the request for it; the rest at once. `passed` are the requests, in the order in which they came."""

    def __init__(self, host: str, port: int) -> None:
        self.passed: list[Passed] = []
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

    def settle(self) -> None:
        """Wait until nothing is asked for by itself any more. RuntimeError where that has no end."""
        end = time.monotonic() + SETTLE_SECONDS
        while any(time.monotonic() - (one.end or one.begin) < STILL_SECONDS for one in self.passed[-10:]):
            if time.monotonic() > end:
                raise RuntimeError(f"requests without an end: {self.passed[-1].target}")
            time.sleep(STILL_SECONDS / 10)

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
        asked = Passed("", 0.0)

        async def ask() -> None:
            nonlocal asked
            while chunk := await client.read(CHUNK):
                if chunk.startswith(METHODS):
                    asked = Passed(chunk.partition(b"\r")[0].decode("latin-1"), time.monotonic())
                    self.passed.append(asked)
                requests.write(chunk)
                await requests.drain()
            requests.close()

        async def answer() -> None:
            while chunk := await server.read(CHUNK):
                await asyncio.sleep(max(0.0, asked.begin + FIRST_BYTE_SECONDS - time.monotonic()))
                asked.end = time.monotonic()
                answers.write(chunk)
                await answers.drain()
            answers.close()

        with suppress(OSError):
            await asyncio.gather(ask(), answer())
        for writer in (requests, answers):
            writer.close()
