"""A service in separate processes: start, requests, end."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import httpx

from gnomon.service.settings.table import Settings

ROOT = Path(__file__).parents[2]
PROGRAM = """
import json, sys
from gnomon.service.process.server import run
from gnomon.service.settings.table import Settings
run(Settings(**json.loads(sys.argv[1])))
"""
SECONDS = 120.0


class Service:
    """A supervisor with its workers, in separate processes."""

    def __init__(self, settings: Settings, variables: Mapping[str, str] | None = None) -> None:
        command = [sys.executable, "-c", PROGRAM, json.dumps(asdict(settings))]
        environment = {**os.environ, **(variables or {})}
        self.process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=-1, stderr=-1, text=True)
        assert self.process.stdout is not None
        self.line = self.process.stdout.readline()
        self.url = self.line.rpartition(" ")[2].strip()
        self.port = int(self.url.rpartition(":")[2] or 0)

    def workers(self) -> set[int]:
        """The process ids of the living workers."""
        pid = self.process.pid
        found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return {int(one) for one in found if state(int(one)) != "Z"}

    def get(self, path: str) -> httpx.Response:
        return httpx.get(self.url + path, timeout=SECONDS)

    def end(self, number: signal.Signals = signal.SIGTERM) -> tuple[int, str, str]:
        """End the service. Returns the exit code, and the output after the ready line."""
        self.process.send_signal(number)
        rest, errors = self.process.communicate(timeout=SECONDS)
        return self.process.returncode, rest, errors


def state(pid: int) -> str:
    """The state of a process, "" for one that is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


@contextmanager
def started(settings: Settings, variables: Mapping[str, str] | None = None) -> Iterator[Service]:
    service = Service(settings, variables)
    with service.process:
        try:
            yield service
        finally:
            if service.process.poll() is None:
                service.process.terminate()


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < end, "it did not come to pass"
        time.sleep(0.02)
