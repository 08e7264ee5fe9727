"""The service under those who use it badly, while another client asks for single keys: `python -m bench.overload`.

Each scenario starts the service with the settings of `deploy/gnomon.toml`, where the machine allows in a memory cgroup
of 2 GiB, as the container has. The data go to `.bench/overload`, the table to standard output."""

import asyncio
import itertools
import json
import multiprocessing
import os
import random
import re
import signal
import socket
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Annotated
from urllib.parse import quote

import numpy as np
import typer

from bench.attack import quantile
from bench.page import RecordOption, Report, digits, row
from bench.server import Server, started
from gnomon.commands import crawl
from gnomon.commands.output import megabytes
from gnomon.commands.spark import spark_session
from gnomon.indexer import build

MEMORY = Path("/sys/fs/cgroup/memory")  # of cgroups v1; the run without it shows sizes, and no kill
LIMIT_BYTES = 2 << 30
SINGLES_A_SECOND = 20
LONGEST_SECONDS = 75.0  # of a scenario
COLUMNS = ["load", "its answers", "kills", "memory", "singles right", "p50 ms", "p99 ms", "longest gap s"]
SEED = 22

app = typer.Typer(pretty_exceptions_enable=False, add_completion=False, rich_markup_mode=None)


@dataclass
class Singles:
    """The requests of the other client: when each was right (seconds from the start), and how long it took."""

    sent: int = 0
    right: list[float] = field(default_factory=list)
    took_ms: list[float] = field(default_factory=list)

    def longest_gap(self, seconds: float) -> float:
        """The longest time without a right answer."""
        times = [0.0, *sorted(self.right), seconds]
        return max(after - before for before, after in itertools.pairwise(times))


async def ask(server: Server, request: bytes, bytes_a_second: float | None = None) -> tuple[int, int, bool]:
    """One request on a connection of its own: status, bytes of the body, and whether all of it came."""
    connection = socket.socket()
    if bytes_a_second is not None:  # what the kernel takes ahead of a slow reader would hide it
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
    connection.setblocking(False)
    await asyncio.get_running_loop().sock_connect(connection, (server.host, server.port))
    reader, writer = await asyncio.open_connection(sock=connection, limit=64 * 1024)
    try:
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        status = int(head.split(b" ", 2)[1])
        length = re.search(rb"(?i)content-length: (\d+)", head)
        size, piece, end = 0, 65536 if bytes_a_second is None else int(bytes_a_second / 4), b""
        while part := await reader.read(piece):
            size, end = size + len(part), (end + part)[-5:]
            if bytes_a_second is not None:
                await asyncio.sleep(0.25)
        whole = size == int(length[1]) if length else end == b"0\r\n\r\n"
        return status, size, whole
    finally:
        writer.close()


def get(key: str) -> bytes:
    return f"GET /rows/{quote(key, safe='')} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".encode()


def post(keys: Sequence[str]) -> bytes:
    body = json.dumps({"keys": keys}).encode()
    head = f"POST /rows HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


async def outcome(of: Awaitable[tuple[int, int, bool]]) -> str:
    try:
        status, _, whole = await of
        return f"{status}" if whole else f"{status} cut"
    except (OSError, asyncio.IncompleteReadError):
        return "reset"


async def single_requests(server: Server, keys: Sequence[str], singles: Singles, begin: float) -> None:
    """Ask for a single key, `SINGLES_A_SECOND` times a second, until cancelled."""
    tasks: set[asyncio.Task[None]] = set()

    async def one(key: str) -> None:
        sent = time.monotonic()
        with suppress(OSError, asyncio.IncompleteReadError):
            status, _, whole = await ask(server, get(key))
            if status == 200 and whole:
                singles.right.append(time.monotonic() - begin)
                singles.took_ms.append((time.monotonic() - sent) * 1000)

    try:
        while True:
            singles.sent += 1
            tasks.add(asyncio.create_task(one(keys[singles.sent % len(keys)])))
            tasks = {task for task in tasks if not task.done()}
            await asyncio.sleep(1 / SINGLES_A_SECOND)
    finally:
        await asyncio.wait(tasks, timeout=5)
        for task in tasks:
            task.cancel()


Scenario = Callable[[Server, Sequence[str], random.Random], Awaitable[list[str]]]


def batches(count: int, size: int) -> Scenario:
    async def run(server: Server, keys: Sequence[str], chance: random.Random) -> list[str]:
        asked = [post(chance.choices(keys, k=size)) for _ in range(count)]
        return list(await asyncio.gather(*(outcome(ask(server, one)) for one in asked)))

    return run


def abandoned(count: int, size: int) -> Scenario:
    async def run(server: Server, keys: Sequence[str], chance: random.Random) -> list[str]:
        writers = []
        for _ in range(count):
            _, writer = await asyncio.open_connection(server.host, server.port)
            writer.write(post(chance.choices(keys, k=size)))
            with suppress(OSError):
                await writer.drain()
            writers.append(writer)
        await asyncio.sleep(1)
        for writer in writers:
            writer.transport.abort()
        await asyncio.sleep(25)
        return ["left"] * count

    return run


def slow_readers(count: int, size: int, bytes_a_second: Sequence[int]) -> Scenario:
    async def run(server: Server, keys: Sequence[str], chance: random.Random) -> list[str]:
        body = post(chance.sample(keys, size))
        rates = [bytes_a_second[i % len(bytes_a_second)] for i in range(count)]

        async def read(rate: int) -> str:
            try:
                async with asyncio.timeout(LONGEST_SECONDS - 5):
                    found = await outcome(ask(server, body, rate))
            except TimeoutError:
                found = "still reading"
            return found if len(bytes_a_second) == 1 else f"{found} at {rate // 1000} KB/s"

        return list(await asyncio.gather(*(read(rate) for rate in rates)))

    return run


def idle(count: int) -> Scenario:
    async def run(server: Server, keys: Sequence[str], chance: random.Random) -> list[str]:
        held = [await asyncio.open_connection(server.host, server.port) for _ in range(count)]
        probe = b"GET %s HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
        found = []
        for path in (b"/healthz", b"/readyz") * 20:
            found.append(f"{path.decode()} {await outcome(ask(server, probe % path))}")  # noqa: PERF401  one by one
        for _, writer in held:
            writer.close()
        return found

    return run


async def stopped_worker(server: Server, keys: Sequence[str], chance: random.Random) -> list[str]:
    """One worker of two is stopped as a program that hangs."""
    workers = Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split()
    os.kill(int(workers[0]), signal.SIGSTOP)
    await asyncio.sleep(60)
    state = Path(f"/proc/{workers[0]}/stat")
    still = state.exists() and state.read_text().rpartition(")")[2].split()[0] == "T"
    return ["the worker is still stopped" if still else "the worker was replaced"]


SCENARIOS: dict[str, Scenario] = {
    "nothing else": lambda server, keys, chance: asyncio.sleep(10, []),
    "48 batches of 1,000 keys": batches(48, 1000),
    "16 batches of 3,000": batches(16, 3000),
    "32 batches of 3,000": batches(32, 3000),
    "16 batches of 5,000": batches(16, 5000),
    "40 batches of 10,000, abandoned after 1 s": abandoned(40, 10_000),
    "80 readers of 5,000 keys at 70 KB/s": slow_readers(80, 5000, [70_000]),
    "8 readers of 5,000 keys, 4 to 45 KB/s": slow_readers(8, 5000, [4_000, 16_000, 30_000, 45_000]),
    "5,000 idle connections": idle(5000),
    "a worker stopped (SIGSTOP)": stopped_worker,
}


@contextmanager
def memory_group() -> Iterator[Path | None]:
    """A cgroup with the container's memory; None where this machine gives none."""
    group = MEMORY / f"gnomon-bench-{os.getpid()}"
    try:
        group.mkdir()
        (group / "memory.limit_in_bytes").write_text(str(LIMIT_BYTES))
    except OSError:
        yield None
        return
    try:
        yield group
    finally:
        time.sleep(0.5)  # until the processes are gone
        with suppress(OSError):
            group.rmdir()


@contextmanager
def service(index: Path, errors: Path) -> Iterator[Server]:
    """The service with deploy's numbers, its log in `errors`."""
    settings = Path("deploy/gnomon.toml").read_text()
    settings = settings.replace("crawl=/indexes/crawl", f"crawl={index.absolute()}").replace("0.0.0.0", "127.0.0.1")
    config = errors.with_name("gnomon.toml")
    config.write_text(settings.replace("port = 8000", "port = 0"))
    with memory_group() as group:
        inside = f"echo $$ > {group}/cgroup.procs; " if group is not None else ""
        command = ["sh", "-c", f'{inside}exec "$@" 2> {errors}', "sh", sys.executable, "-m", "gnomon", "serve"]
        with started([*command, "--config", str(config)], {"GNOMON_ACCESS_LOG": "false"}) as server:
            yield server


def send_load(name: str, server: Server, keys: Sequence[str], pipe: Connection) -> None:
    """Send the load of a scenario, in a process of its own with the lowest priority: users are on other machines, and
    take no CPU time from the service or the other client. Says when it is ready, waits for a word, sends answers."""
    os.nice(19)
    pipe.send("ready")
    pipe.recv()
    pipe.send(asyncio.run(SCENARIOS[name](server, keys, random.Random(SEED))))


async def run(name: str, server: Server, keys: Sequence[str]) -> tuple[Counter[str], Singles, float, int]:
    """Run a scenario. Returns its answers by kind, the requests of the other client, seconds, and the most memory."""
    ours, theirs = multiprocessing.Pipe()
    load = multiprocessing.get_context("spawn").Process(target=send_load, args=(name, server, keys, theirs))
    load.start()
    theirs.close()
    while not ours.poll():
        await asyncio.sleep(0.1)
    ours.recv()
    singles, begin, most = Singles(), time.monotonic(), 0
    other = asyncio.create_task(single_requests(server, keys[:200], singles, begin))
    ours.send("begin")
    while not ours.poll() and time.monotonic() - begin < LONGEST_SECONDS:
        await asyncio.sleep(0.1)
        most = max(most, server.rss_bytes)
    seconds = time.monotonic() - begin
    found = ours.recv() if ours.poll() else ["not done"]
    load.kill()
    load.join()
    other.cancel()
    await asyncio.wait([other])
    return Counter(found), singles, seconds, most


def line(name: str, index: Path, keys: Sequence[str], folder: Path) -> str:
    errors = folder / "service.log"
    with service(index, errors) as server:
        for key in keys[:200]:
            asyncio.run(ask(server, get(key)))
        found, singles, seconds, most = asyncio.run(run(name, server, keys))
    kills = len(re.findall(r"ended with signal", errors.read_text()))
    took = sorted(singles.took_ms) or [float("inf")]
    right = f"{len(singles.right)} of {singles.sent}"
    answers = ", ".join(f"{count} {what}" for what, count in sorted(found.items()))
    gap = singles.longest_gap(seconds)
    figures = [digits(quantile(took, 0.5)), digits(quantile(took, 0.99)), digits(gap)]
    return row([name, answers, str(kills), megabytes(most), right, *figures])


@app.command()
def main(
    pages: Annotated[int, typer.Option(help="Rows of the source.")] = 20_000,
    folder: Annotated[Path, typer.Option(help="Where the data go.")] = Path(".bench/overload"),
    only: Annotated[str, typer.Option(help="Run the scenarios whose names match this regular expression.")] = "",
    record: RecordOption = False,
) -> None:
    """Load the service beyond its means and print what becomes of it and of another client's requests."""
    source, index = folder / "source", folder / "index"
    if not index.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with spark_session() as spark:
            crawl.write_crawl(spark, str(source), pages)
            build(spark, str(source), str(index), ["url"])
    keys = crawl.page_urls(np.arange(pages)).to_pylist()
    random.Random(SEED).shuffle(keys)
    report = Report("bench.overload", ("gnomon-index", "fastapi", "uvicorn"), {"pages": pages, "only": only})
    report.say("\n".join([row(COLUMNS), row(["---"] * len(COLUMNS))]))
    for name in SCENARIOS:
        if re.search(only, name):
            report.say(line(name, index, keys, folder))
    report.record(record)


if __name__ == "__main__":
    app()
