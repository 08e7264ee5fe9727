"""`gnomon serve` as a process of its own, for the length of a bench."""

import select
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

START_SECONDS = 60
STOP_SECONDS = 15


class Server(NamedTuple):
    host: str
    port: int
    pid: int


@contextmanager
def serve(index: Path) -> Iterator[Server]:
    """Serve an index on a free port of this machine. The process is gone at the end, whatever happens."""
    command = [sys.executable, "-m", "gnomon", "serve", str(index), "--host", "127.0.0.1", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
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
    """Host and port, from the line that is printed when the server is ready."""
    assert process.stdout is not None
    end = time.monotonic() + START_SECONDS
    while (left := end - time.monotonic()) > 0:
        if select.select([process.stdout], [], [], left)[0]:
            line = process.stdout.readline()
            if not line:
                raise RuntimeError(f"gnomon serve ended with exit code {process.wait(STOP_SECONDS)}")
            _, found, address = line.strip().rpartition("http://")
            if found:
                return address
    raise RuntimeError(f"gnomon serve was not ready within {START_SECONDS} s")
