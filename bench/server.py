"""Servers as separate processes for the length of a benchmark: `gnomon serve`, and others that print their address in
the same way."""

import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

START_SECONDS = 60
STOP_SECONDS = 15
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class Server(NamedTuple):
    host: str
    port: int
    pid: int

    @property
    def rss_bytes(self) -> int:
        """Resident memory of all its processes, added up: shared memory counts once for each process."""
        return sum(int(text.split()[1]) * PAGE_BYTES for text in self._of_each("statm"))

    @property
    def cpu_seconds(self) -> float:
        """CPU of its running processes, so far."""
        stats = (text.rpartition(")")[2].split() for text in self._of_each("stat"))
        return sum(int(fields[11]) + int(fields[12]) for fields in stats) / TICKS_PER_SECOND

    def _of_each(self, file: str) -> Iterator[str]:
        for pid in _tree(self.pid):
            with suppress(OSError):  # the process ended
                yield Path(f"/proc/{pid}/{file}").read_text()


def _tree(pid: int) -> list[int]:
    """A process and its descendants."""
    found = [pid]
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                found += _tree(int(child))
    return found


@contextmanager
def serve(index: Path | str, workers: int = 1, environment: Mapping[str, str] | None = None) -> Iterator[Server]:
    """Serve an index on a free port of this machine. The process ends with the block, in any case."""
    command = [sys.executable, "-m", "gnomon", "serve", str(index), "--host", "127.0.0.1", "--port", "0"]
    given = {**(environment or {}), "GNOMON_WORKERS": str(workers), "GNOMON_ACCESS_LOG": "false"}
    with started(command, given) as server:
        yield server


@contextmanager
def started(command: Sequence[str], environment: Mapping[str, str] | None = None) -> Iterator[Server]:
    """A server that prints a line with its `http:

    ` address when it is ready."""
    env = {**os.environ, **(environment or {})}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env) as process:
        try:
            host, _, port = _address(process).rpartition(":")
            yield Server(host, int(port), process.pid)
        finally:
            process.terminate()
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()


def _address(process: "subprocess.Popen[str]") -> str:
    """Host and port, from the line that the server prints when it is ready."""
    assert process.stdout is not None
    end = time.monotonic() + START_SECONDS
    while (left := end - time.monotonic()) > 0:
        if select.select([process.stdout], [], [], left)[0]:
            line = process.stdout.readline()
            if not line:
                raise RuntimeError(f"the server ended with exit code {process.wait(STOP_SECONDS)}")
            _, found, address = line.strip().rpartition("http://")
            if found:
                return address
    raise RuntimeError(f"the server was not ready within {START_SECONDS} s")
