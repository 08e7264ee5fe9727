"""service/process/supervisor.py: real processes on one socket, killed, replaced and ended."""

import json
import os
import re
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest

from gnomon.service.metrics.multiprocess import Exchange
from gnomon.service.process.supervisor import _Supervisor, pause_after
from gnomon.service.process.worker import Listening
from gnomon.service.settings.table import Settings
from tests.service.lake import make_crawl
from tests.service.load import Load
from tests.service.processes import SECONDS, Service, started, state, until

pytestmark = pytest.mark.process


REPLACED = "SIGHUP: 2 of 2 workers were replaced"


def messages(log: str) -> list[str]:
    """The messages of log lines."""
    return [json.loads(line)["message"] for line in log.splitlines()]


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    made = make_crawl(tmp_path)
    return replace(made, port=0, workers=2, refresh_seconds=0.05, shutdown_seconds=20, access_log=False)


def test_workers_are_started_replaced_and_ended_and_nobody_notices(settings: Settings, tmp_path: Path) -> None:
    with started(settings) as service:
        assert re.fullmatch(
            rf"Gnomon serves {tmp_path}/shadow \(snapshot 1\) at http://127\.0\.0\.1:\d+\n", service.line
        )
        first = service.workers()
        assert len(first) == 2
        with Load(service.port, "/rows/second") as load:
            service.process.send_signal(signal.SIGHUP)
            until(lambda: len(service.workers()) == 2 and not service.workers() & first)
        assert (load.failed, set(load.statuses)) == ([], {200})
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
    said = messages(errors)
    assert said.index("SIGHUP: the workers are replaced, one after the other") < said.index(REPLACED)
    assert said.index(REPLACED) < said.index("SIGTERM: the workers are stopped")
    assert said[-1] == "all workers have ended"
    assert {f"process {one} has stopped" for one in (*first, left)} <= set(said)


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


HANG_SECONDS = 3.0
# In each worker, before anything of Gnomon: SIGUSR1 blocks the main thread, which runs the event loop.
BLOCKED_BY_SIGNAL = "import signal, time; signal.signal(signal.SIGUSR1, lambda *_: time.sleep(600))"


@pytest.mark.parametrize("number", [signal.SIGSTOP, signal.SIGUSR1])
def test_a_worker_whose_event_loop_stands_still_is_killed_and_replaced(
    settings: Settings, tmp_path: Path, number: signal.Signals
) -> None:
    (tmp_path / "sitecustomize.py").write_text(BLOCKED_BY_SIGNAL)
    variables = {"PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])}
    with started(replace(settings, hang_seconds=HANG_SECONDS), variables) as service:
        [hung, other] = service.workers()
        os.kill(hung, number)
        until(lambda: hung not in service.workers() and len(service.workers()) == 2)
        assert other in service.workers()
        until(lambda: "gnomon_worker_restarts_total 1.0" in service.get("/metrics").text)
        assert service.get("/rows/second").status_code == 200
        _, _, errors = service.end()
    said = [one for one in messages(errors) if f"process {hung}" in one]
    assert re.sub(r"worker \d", "worker", said[0]) == (
        f"worker (process {hung}) sent no heartbeat for 3 s (setting hang_seconds): killed"
    )
    assert said[1].endswith("ended with signal 9; started again in 0 s")


def test_nobody_is_killed_where_the_supervisor_was_stopped_with_its_workers(settings: Settings) -> None:
    with started(replace(settings, hang_seconds=HANG_SECONDS)) as service:
        workers = service.workers()
        everybody = [service.process.pid, *workers]
        for process in everybody:
            os.kill(process, signal.SIGSTOP)
        time.sleep(1.5 * HANG_SECONDS)
        for process in everybody:
            os.kill(process, signal.SIGCONT)
        time.sleep(1.5 * HANG_SECONDS)
        assert service.workers() == workers
        _, _, errors = service.end()
    assert not [one for one in messages(errors) if "killed" in one]


def test_a_worker_that_hangs_is_left_alone_where_the_setting_says_never(settings: Settings) -> None:
    with started(replace(settings, hang_seconds=0.0)) as service:
        workers = service.workers()
        [hung, _] = workers
        os.kill(hung, signal.SIGSTOP)
        time.sleep(1.0)
        os.kill(hung, signal.SIGCONT)
        until(lambda: service.get("/rows/second").status_code == 200)
        assert service.workers() == workers


def test_what_keeps_the_first_workers_from_serving_is_raised_and_none_is_left(tmp_path: Path) -> None:
    service = Service(Settings(indexes=[str(tmp_path)], workers=2, port=0))
    rest, errors = service.process.communicate(timeout=SECONDS)
    assert (service.process.returncode, service.line + rest) == (1, "")
    assert f"gnomon.shadow.errors.IndexNotFound: {tmp_path}: not an index" in errors


def test_a_worker_that_cannot_be_started_again_is_tried_later_and_the_others_are_left(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def no_process(*_: object, **__: object) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr("gnomon.service.process.supervisor.subprocess.Popen", no_process)
    with Exchange() as exchange, Listening() as listening:
        supervisor = _Supervisor(settings, listening, exchange, -1)
        place = supervisor._places[1]
        place.due = 0.0
        supervisor._start_again(1, place)
        assert (place.worker, place.due > time.monotonic()) == (None, True)
        supervisor._to_replace.extend([0, 1])
        supervisor._replaced = 0  # the state after SIGHUP
        caplog.set_level("INFO", "gnomon")
        supervisor._replace_next()
        assert (supervisor._coming, len(supervisor._to_replace)) == (None, 0)
        supervisor._replace_next()
    assert [record.levelname for record in caplog.records] == ["ERROR", "ERROR", "INFO"]
    assert caplog.records[-1].getMessage() == "SIGHUP: 0 of 2 workers were replaced"


def test_a_worker_that_dies_again_and_again_is_started_ever_later() -> None:
    assert [pause_after(deaths) for deaths in (1, 2, 3, 4, 6, 7, 1000)] == [0.0, 0.5, 1.0, 2.0, 8.0, 10.0, 10.0]
