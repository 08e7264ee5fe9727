"""Several processes that answer on one socket, and the one that starts, watches and ends them.

Workers are fresh processes, not forks: threads and connections to stores do not survive a fork. They share the queue of
the socket, so another worker answers the connections that a dead worker had not accepted yet."""

import logging
import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from typing import Any

from gnomon.service.errors import WorkerFailed
from gnomon.service.metrics import Exchange, Slot
from gnomon.service.process.worker import BEATS, END_SECONDS, HEARTBEAT, Listening, Served
from gnomon.service.settings import Settings

WORKER = "from gnomon.service.process.worker import main; main()"
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 10.0  # seconds before a worker that dies again and again is started again
STEADY_SECONDS = 60.0  # after which the death of a worker counts as its first

logger = logging.getLogger("gnomon.service")


def supervise(settings: Settings, listening: Listening, ready: Callable[[Served], None]) -> None:
    """Serve with `settings.workers` processes until SIGINT or SIGTERM; `ready` is called once, when all are.

    A worker that dies is started again, ever later where it dies again and again. SIGHUP replaces the workers one after
    the other. A second SIGINT or SIGTERM kills them. Raises what keeps the first ones from serving."""
    with Exchange() as exchange, _signals() as woken:
        supervisor = _Supervisor(settings, listening, exchange, woken)
        try:
            served = supervisor.start()
            if not supervisor.stopped:
                ready(served)
            supervisor.watch()
        finally:
            supervisor.end()


@dataclass(eq=False)
class _Worker:
    """A worker process, and the link to it. The process ends when the link is closed."""

    number: int
    process: subprocess.Popen[bytes]
    link: Connection
    slot: Slot
    begun: float = field(default_factory=time.monotonic)
    is_ready: bool = False
    killed_at: float = float("inf")  # when its time to end is over
    silent_checks: int = 0  # successive checks without a heartbeat

    def fileno(self) -> int:
        return self.link.fileno()

    def how_it_ended(self) -> str:
        code = self.process.wait()
        return f"signal {-code}" if code < 0 else f"exit code {code}"


@dataclass
class _Place:
    """One of the `workers` places. It has at most one worker at a time, and counts how many died there in a row."""

    worker: _Worker | None = None
    deaths: int = 0  # in a row
    due: float = float("inf")  # when the next one is started


class _Supervisor:
    def __init__(self, settings: Settings, listening: Listening, exchange: Exchange, woken: int) -> None:
        self._settings = settings
        self._listening = listening
        self._exchange = exchange
        self._woken = woken
        self._places = [_Place() for _ in range(settings.workers)]
        self._coming: _Worker | None = None  # replaces the worker of the same number when it is ready
        self._leaving: list[_Worker] = []
        self._to_replace: deque[int] = deque()
        self._replaced: int | None = None  # workers replaced so far by the current SIGHUP
        self._stops = 0
        self._check_seconds = settings.hang_seconds / BEATS
        self._checked = time.monotonic()

    @property
    def stopped(self) -> bool:
        return self._stops > 0

    def start(self) -> Served:
        """Start all workers. Returns what they serve when all are ready. Raises the error of a worker that fails."""
        served: Served = []
        for number, place in enumerate(self._places):
            place.worker = self._begun(number, patient=False)
        while not all(place.worker is not None and place.worker.is_ready for place in self._places):
            for worker in self._heard(None):
                kind, told = _message(worker)
                if kind == HEARTBEAT:
                    continue
                if kind == "failed":
                    raise told
                if kind == "gone":
                    raise WorkerFailed(f"worker {worker.number} ended with {worker.how_it_ended()} before it was ready")
                worker.is_ready, served = True, told
            if self._stops:
                break
        return served

    def watch(self) -> None:
        """Watch the workers until all have ended after a signal to stop."""
        while not (self._stops and not self._all()):
            for worker in self._heard(self._pause()):
                kind, told = _message(worker)
                worker.silent_checks = 0
                if kind == HEARTBEAT:
                    continue
                if kind == "ready":
                    self._ready(worker, told)
                elif kind == "failed":
                    logger.error("worker %d cannot serve: %s", worker.number, told)
                else:
                    self._gone(worker)
            self._kill_hung()
            now = time.monotonic()
            for worker in self._leaving:
                if now >= worker.killed_at:
                    logger.error(
                        "worker %d (process %d) did not end in time: killed", worker.number, worker.process.pid
                    )
                    worker.killed_at = float("inf")
                    worker.process.kill()
            for number, place in enumerate(self._places):
                if now >= place.due and not self._stops:
                    self._start_again(number, place)
            self._replace_next()
        logger.info("all workers have ended")

    def end(self) -> None:
        """Kill what is left; there is nothing left after an orderly end."""
        for worker in self._all():
            worker.process.kill()
            worker.process.wait()
            worker.link.close()

    def _begun(self, number: int, patient: bool) -> _Worker:
        ours, theirs = Pipe()
        with theirs:
            descriptors = (self._listening.fileno(), theirs.fileno())
            command = [sys.executable, "-P", "-c", WORKER, *map(str, descriptors)]
            paths = os.pathsep.join(path or os.getcwd() for path in sys.path)
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, pass_fds=descriptors, env={**os.environ, "PYTHONPATH": paths}
            )
        worker = _Worker(number, process, ours, self._exchange.slot())
        with suppress(OSError):  # it has ended already: `_heard` will report it
            ours.send((self._settings, patient, worker.slot))
        return worker

    def _start_again(self, number: int, place: _Place) -> None:
        """Start a worker again. If the system has no memory or process left, this is tried later; the other workers go
        on."""
        try:
            place.due, place.worker = float("inf"), self._begun(number, patient=True)
        except OSError as error:
            place.due = time.monotonic() + LONGEST_PAUSE
            logger.error("worker %d cannot be started: %s; tried again in %g s", number, error, LONGEST_PAUSE)

    def _all(self) -> list[_Worker]:
        coming = [self._coming] if self._coming is not None else []
        return [*(place.worker for place in self._places if place.worker is not None), *coming, *self._leaving]

    def _pause(self) -> float | None:
        """Seconds until there is something to do."""
        times = [*(place.due for place in self._places), *(worker.killed_at for worker in self._leaving)]
        if self._check_seconds:
            times.append(self._checked + self._check_seconds)
        nearest = min(times, default=float("inf"))
        return None if nearest == float("inf") else max(0.0, nearest - time.monotonic())

    def _kill_hung(self) -> None:
        """Kill the workers that sent no heartbeat for `hang_seconds`. They are replaced like any that die.

        It counts checks, not seconds: while this process or the whole machine is stopped, no check takes place. After
        such a pause the count starts again."""
        now = time.monotonic()
        late = now - self._checked - self._check_seconds
        if not self._check_seconds or late < 0:
            return
        self._checked = now
        for worker in [place.worker for place in self._places] + [self._coming]:
            if worker is None or not worker.is_ready:
                continue
            worker.silent_checks = 0 if late > self._check_seconds else worker.silent_checks + 1
            if worker.silent_checks == BEATS + 1:  # the first may have come right after a heartbeat
                logger.error(
                    "worker %d (process %d) sent no heartbeat for %g s (setting hang_seconds): killed",
                    worker.number,
                    worker.process.pid,
                    self._settings.hang_seconds,
                )
                worker.process.kill()

    def _heard(self, seconds: float | None) -> list[_Worker]:
        """Wait for workers that sent a message or ended. Signals are handled during the wait."""
        watched: list[Any] = [self._woken, *self._all()]
        found: list[Any] = wait(watched, seconds)
        if self._woken in found:
            for number in os.read(self._woken, 1000):
                if number in (signal.SIGINT, signal.SIGTERM):
                    logger.info(
                        "%s: the workers are %s", signal.Signals(number).name, "killed" if self._stops else "stopped"
                    )
                    self._stop()
                elif number == signal.SIGHUP and not self._stops:
                    self._to_replace, self._replaced = deque(range(len(self._places))), 0
                    logger.info("SIGHUP: the workers are replaced, one after the other")
        return [one for one in found if isinstance(one, _Worker)]

    def _stop(self) -> None:
        self._stops += 1
        self._to_replace.clear()
        for place in self._places:
            place.due = float("inf")
            if place.worker is not None:
                self._leave(place.worker)
                place.worker = None
        if self._coming is not None:
            self._leave(self._coming)
            self._coming = None
        if self._stops > 1:
            for worker in self._leaving:
                worker.process.kill()

    def _leave(self, worker: _Worker) -> None:
        worker.killed_at = time.monotonic() + self._settings.shutdown_seconds + END_SECONDS
        worker.process.terminate()
        self._leaving.append(worker)

    def _ready(self, worker: _Worker, served: Served) -> None:
        worker.is_ready = True
        if worker is not self._coming:
            logger.info("worker %d (process %d) serves", worker.number, worker.process.pid)
            return
        self._coming = None
        shut = [path for path, snapshot in served if snapshot is None]
        before = self._places[worker.number].worker
        if shut and before is not None:
            logger.error("worker %d is not replaced: the new one could not open %s", worker.number, ", ".join(shut))
            self._to_replace.clear()
            self._leave(worker)
            return
        place = self._places[worker.number]
        place.worker, place.due, place.deaths = worker, float("inf"), 0
        self._replaced = (self._replaced or 0) + 1
        if before is not None:
            self._leave(before)

    def _gone(self, worker: _Worker) -> None:
        how = worker.how_it_ended()
        worker.link.close()
        self._exchange.ended(worker.slot, asked=worker in self._leaving)
        if worker in self._leaving:
            self._leaving.remove(worker)
            return
        if worker is self._coming:
            logger.error("worker %d is not replaced: the new one ended with %s", worker.number, how)
            self._coming = None
            self._to_replace.clear()
            return
        place, now = self._places[worker.number], time.monotonic()
        place.deaths = 1 if now - worker.begun > STEADY_SECONDS else place.deaths + 1
        pause = pause_after(place.deaths)
        place.worker, place.due = None, now + pause
        logger.error(
            "worker %d (process %d) ended with %s; started again in %g s", worker.number, worker.process.pid, how, pause
        )

    def _replace_next(self) -> None:
        if self._coming is not None or self._leaving:
            return
        if self._to_replace:
            number = self._to_replace.popleft()
            try:
                self._coming = self._begun(number, patient=False)
            except OSError as error:
                logger.error("worker %d is not replaced: the new one cannot be started: %s", number, error)
                self._to_replace.clear()
        if self._replaced is not None and self._coming is None and not self._stops:
            logger.info("SIGHUP: %d of %d workers were replaced", self._replaced, len(self._places))
            self._replaced = None


def pause_after(deaths: int) -> float:
    """Seconds until a worker is started again, after `deaths` workers in its place died soon after their start."""
    return 0.0 if deaths == 1 else min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(deaths - 2, 16))


def _message(worker: _Worker) -> tuple[str, Any]:
    try:
        kind, told = worker.link.recv()
    except (EOFError, OSError):
        return "gone", None
    return kind, told


@contextmanager
def _signals() -> Iterator[int]:
    """A descriptor from which the numbers of received signals (SIGINT, SIGTERM, SIGHUP) can be read."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    before = {
        number: signal.signal(number, lambda *_: None) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    }
    woken_before = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    try:
        yield reading
    finally:
        signal.set_wakeup_fd(woken_before)
        for number, handler in before.items():
            signal.signal(number, handler)
        os.close(reading)
        os.close(writing)
