"""service/workers.py: real processes on one socket, killed, replaced and ended."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from service.settings import Settings
from tests.service.lake import make_crawl

ROOT = Path(__file__).parents[2]
PROGRAM = """
import sys
from service.server import run
from service.settings import Settings
run(Settings.model_validate_json(sys.argv[1]))
"""
SECONDS = 120.0


class Service:
    """A supervisor with its workers, in processes of their own."""

    def __init__(self, settings: Settings) -> None:
        command = [sys.executable, "-c", PROGRAM, settings.model_dump_json()]
        self.process = subprocess.Popen(command, cwd=ROOT, stdout=-1, stderr=-1, text=True)
        assert self.process.stdout is not None
        self.line = self.process.stdout.readline()
        self.url = self.line.rpartition(" ")[2].strip()

    def workers(self) -> set[int]:
        """The process ids of those that live."""
        pid = self.process.pid
        found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return {int(one) for one in found if state(int(one)) != "Z"}

    def get(self, path: str) -> httpx.Response:
        return httpx.get(self.url + path, timeout=SECONDS)

    def end(self, number: signal.Signals = signal.SIGTERM) -> tuple[int, str, str]:
        """Exit code and what was written after the ready line."""
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
def started(settings: Settings) -> Iterator[Service]:
    service = Service(settings)
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


class Load:
    """One request after the other until the block ends; `answered` counts them by status, `failed` are the others."""

    def __init__(self, service: Service, path: str) -> None:
        self._service, self._path = service, path
        self.answered: dict[int, int] = {}
        self.failed: list[str] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Load":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(SECONDS)

    def _run(self) -> None:
        with httpx.Client(timeout=SECONDS) as client:
            while not self._stop.is_set():
                try:
                    status = client.get(self._service.url + self._path).status_code
                    self.answered[status] = self.answered.get(status, 0) + 1
                except httpx.HTTPError as error:
                    self.failed.append(repr(error))


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    made = make_crawl(tmp_path)
    return made.model_copy(update={"port": 0, "workers": 2, "refresh_seconds": 0.05, "shutdown_seconds": 20})


def test_workers_are_started_replaced_and_ended_and_nobody_notices(settings: Settings, tmp_path: Path) -> None:
    with started(settings) as service:
        assert re.fullmatch(
            rf"Gnomon serves {tmp_path}/shadow \(snapshot 1\) at http://127\.0\.0\.1:\d+\n", service.line
        )
        first = service.workers()
        assert len(first) == 2
        with Load(service, "/rows/second") as load:
            service.process.send_signal(signal.SIGHUP)
            until(lambda: len(service.workers()) == 2 and not service.workers() & first)
        assert (load.failed, set(load.answered)) == ([], {200})
        second = service.workers()
        [killed, left] = second
        os.kill(killed, signal.SIGKILL)
        assert service.get("/rows/second").status_code == 200
        until(lambda: len(service.workers()) == 2)
        assert left in service.workers()
        assert killed not in service.workers()
        last = service.workers()
        code, rest, errors = service.end()
    assert (code, rest) == (0, "")
    assert f"process {killed}) ended with signal 9; started again in 0 s" in errors
    assert not any(map(state, first | second | last))


def test_workers_started_again_wait_for_an_index_that_is_gone_and_end_when_their_parent_is_killed(
    settings: Settings, tmp_path: Path
) -> None:
    with started(settings) as service:
        (tmp_path / "shadow").rename(tmp_path / "away")
        first = service.workers()
        for worker in first:
            os.kill(worker, signal.SIGKILL)
        refused = service.get("/rows/second")
        assert (refused.status_code, refused.json()["title"]) == (503, "Index not open")
        assert service.get("/readyz").status_code == 503
        (tmp_path / "away").rename(tmp_path / "shadow")
        until(lambda: {service.get("/rows/second").status_code for _ in range(10)} == {200})
        workers = service.workers()
        service.process.kill()
        until(lambda: not any(map(state, workers)))


def test_what_keeps_the_first_workers_from_serving_is_raised_and_none_is_left(tmp_path: Path) -> None:
    service = Service(Settings(indexes=[str(tmp_path)], workers=2, port=0))
    rest, errors = service.process.communicate(timeout=SECONDS)
    assert (service.process.returncode, service.line + rest) == (1, "")
    assert f"shadow.errors.IndexNotFound: {tmp_path}: not an index" in errors
