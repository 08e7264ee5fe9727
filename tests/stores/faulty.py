"""A proxy before a store's server that lets it fail: slowly, not at all, cut off, or with errors of its own."""

import asyncio
import random
import threading
from collections import Counter
from types import TracebackType
from typing import Self

ERROR = b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
DELAY_SECONDS = 0.3
PIECE = 1 << 16


class FaultyProxy:
    """Passes bytes on to a port of this machine. Each request (each piece from a client) gets one of `faults` with
    probability `chance`; `injected` counts them. A hanging connection stays so until it ends."""

    def __init__(self, port: int, seed: int = 1) -> None:
        self._to = port
        self._random = random.Random(seed)
        self.faults: tuple[str, ...] = ()
        self.chance = 0.0
        self.injected: Counter[str] = Counter()
        self.requests = 0
        self._writers: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        server = asyncio.run_coroutine_threadsafe(asyncio.start_server(self._serve, "127.0.0.1", 0), self._loop)
        self._server = server.result(30)
        self.port = int(self._server.sockets[0].getsockname()[1])
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(30)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(30)
        self._loop.close()

    async def _end(self) -> None:
        self._server.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._cut()  # what has not been taken yet would keep a connection open
        await asyncio.gather(*(writer.wait_closed() for writer in self._writers), return_exceptions=True)

    def fail(self, *faults: str, chance: float = 1.0) -> None:
        """From now on; without any fault the store is well, and what hung is cut off."""
        self.faults, self.chance = faults, chance
        if not faults:
            self._loop.call_soon_threadsafe(self._cut)

    def _cut(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            there = await asyncio.open_connection("127.0.0.1", self._to)
            self._writers.add(there[1])
            back = asyncio.ensure_future(_copy(there[0], writer))
            try:
                while (piece := await reader.read(PIECE)) and await self._may_pass(writer):
                    there[1].write(piece)
            finally:
                back.cancel()
                there[1].close()
        except OSError:
            pass
        finally:
            writer.close()

    async def _may_pass(self, writer: asyncio.StreamWriter) -> bool:
        self.requests += 1
        if not self.faults or self._random.random() >= self.chance:
            return True
        fault = self._random.choice(self.faults)
        self.injected[fault] += 1
        if fault == "delay":
            await asyncio.sleep(DELAY_SECONDS)
            return True
        if fault == "hang":
            await asyncio.Event().wait()
        elif fault == "error":
            writer.write(ERROR)
            await writer.drain()
        else:
            writer.transport.abort()
        return False


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while piece := await reader.read(PIECE):
        writer.write(piece)
    writer.close()
