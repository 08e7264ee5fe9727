"""A steady load on a service of this machine: a few connections, each with one request after the other."""

import asyncio
import threading
import time
from collections import Counter
from types import TracebackType
from typing import Any, NamedTuple, Self

SECONDS = 120.0  # timeout of an answer


class Answered(NamedTuple):
    status: int
    seconds: float
    retry_after: str | None
    body: bytes


class Load:
    """Sends requests for paths in turn until the block ends. `answers` has the complete answers, `failed` the errors of
    the others, and the connections that ended before an answer, which a client would retry."""

    def __init__(self, port: int, *paths: str, connections: int = 4, every_seconds: float = 0.005) -> None:
        self._port, self._paths, self._every = port, paths, every_seconds
        self._connections = connections
        self.answers: list[Answered] = []
        self.failed: list[str] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._all()))

    @property
    def statuses(self) -> Counter[int]:
        return Counter(answer.status for answer in self.answers)

    @property
    def requests(self) -> int:
        return len(self.answers) + len(self.failed)

    def percentile(self, part: float) -> float:
        """The most milliseconds of this part of the answers."""
        times = sorted(answer.seconds for answer in self.answers)
        return 1000 * times[min(len(times) - 1, int(part * len(times)))]

    def summary(self) -> str:
        counts = ", ".join(f"{status}: {count}" for status, count in sorted(self.statuses.items()))
        p50, p99, most = (self.percentile(part) for part in (0.5, 0.99, 1.0))
        times = f"p50 {p50:.1f} ms, p99 {p99:.1f} ms, slowest {most:.0f} ms"
        return f"requests {self.requests}, failed {len(self.failed)}, answers {{{counts}}}, {times}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stop.set()
        self._thread.join(2 * SECONDS)

    async def _all(self) -> None:
        await asyncio.gather(*(self._one(number) for number in range(self._connections)))

    async def _one(self, number: int) -> None:
        streams: Any = None
        while not self._stop.is_set():
            path = self._paths[number % len(self._paths)]
            number += 1
            begin = time.monotonic()
            try:
                async with asyncio.timeout(SECONDS):
                    streams = streams or await asyncio.open_connection("127.0.0.1", self._port)
                    answer, stays = await _ask(*streams, path, begin)
                self.answers.append(answer)
            except (OSError, EOFError, TimeoutError) as error:
                self.failed.append(f"{path}: {error!r}")
                stays = False
            if not stays and streams:
                streams[1].close()
                streams = None
            await asyncio.sleep(max(0.0, begin + self._every - time.monotonic()))
        if streams:
            streams[1].close()


async def _ask(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, path: str, begin: float
) -> tuple[Answered, bool]:
    """An answer, and whether the connection stays."""
    writer.write(f"GET {path} HTTP/1.1\r\nHost: gnomon\r\n\r\n".encode())
    head = (await reader.readuntil(b"\r\n\r\n")).decode().lower().split("\r\n")
    fields = dict(line.split(": ", 1) for line in head[1:] if line)
    body = await reader.readexactly(int(fields["content-length"]))
    seconds = time.monotonic() - begin
    answer = Answered(int(head[0].split()[1]), seconds, fields.get("retry-after"), body)
    return answer, fields.get("connection") != "close"
