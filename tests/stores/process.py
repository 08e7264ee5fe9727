"""Servers of tests: started on free ports of this machine alone, waited for, stopped by their process id."""

import fcntl
import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import NoReturn

import pytest

CACHE = Path(os.environ.get("GNOMON_TEST_CACHE", "~/.cache/gnomon-tests")).expanduser()


class HttpServer(ThreadingHTTPServer):
    """A server in threads of this process."""

    request_queue_size = 128  # a client that finds the queue full tries again after a second

    def serve_forever(self, poll_interval: float = 0.01) -> None:
        """Serve until a shutdown, which waits for as long as a poll takes: half a second, as Python has it."""
        super().serve_forever(poll_interval)


@dataclass(frozen=True)
class Store:
    """A store that runs: its address, and the variables of the environment that lead to it."""

    address: str
    variables: dict[str, str]

    def place(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
        """A place of the test's own, named like its folder, which the environment leads to."""
        for name, value in self.variables.items():
            monkeypatch.setenv(name, value)
        return f"{self.address}/{folder.parent.name}/{folder.name}"


def unavailable(reason: str) -> NoReturn:
    """Skip the tests of a store that cannot be had here; in CI it must be there."""
    if os.environ.get("GNOMON_TEST_STORES") == "required":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def locked(name: str) -> Iterator[Path]:
    """A folder that stays from one run to the next; one process at a time fills it."""
    folder = CACHE / name
    folder.mkdir(parents=True, exist_ok=True)
    with (CACHE / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder


@contextmanager
def server(
    command: Sequence[str],
    log: Path,
    is_ready: Callable[[], bool],
    seconds: float,
    env: Mapping[str, str] | None = None,
) -> Iterator[None]:
    """Run a server until the block ends. RuntimeError, with what it said, when it does not get ready in time."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env={**os.environ, **(env or {})}
        )
    try:
        end = time.monotonic() + seconds
        while not is_ready():
            if process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"{command[0]} did not get ready: {log.read_text(errors='replace')[-2000:]}")
            time.sleep(0.1)
        yield
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def answers(port: int, host: str = "127.0.0.1") -> bool:
    """Whether a server listens."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex((host, port)) == 0
