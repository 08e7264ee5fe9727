"""Processes with a Spark session (`dedup_child`) that are given work, and killed in it."""

import enum
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.sql import SparkSession

from tests.end_to_end.test_kills import kill_session

ROOT = Path(__file__).parent.parent.parent
PATIENCE_SECONDS = 300  # with one command
POLL_SECONDS = 0.002


class How(enum.Enum):
    """What dies: all that the process started; Python alone, and the JVM ends by itself as it misses it; Python alone,
    and the JVM, which is another program's, lives on, and all that Spark was asked for is done to its end."""

    ALL = "all of it"
    DRIVER = "Python alone"
    ORPHANED = "Python alone, Spark's tasks live on"


class Kill(NamedTuple):
    """When: at the n-th time of a step of `dedup_child.STEPS`; or so many seconds after a file was staged below a
    folder; or so many seconds after the command."""

    step: str = ""
    count: int = 1
    staged_in: Path | None = None
    seconds: float = 0.0


class Answer(NamedTuple):
    """What came of a command: `done`, or an error, or `killed`, which is where the kill hit."""

    done: Any = None
    error: str = ""
    killed: str = ""


class Killable:
    """A child process, started when it is first given work, and again after each kill."""

    def __init__(self, folder: Path, name: str, jvm: SparkSession | None = None) -> None:
        """With `jvm` its session lives in the JVM of that one."""
        self.log, self.jvm = folder / f"{name}.log", jvm
        self.how = How.ORPHANED if jvm else How.ALL
        self.starts, self._is_ready = 0, False
        self._process: subprocess.Popen[bytes] | None = None
        self._sessions: list[int] = []
        self._lines: queue.Queue[dict[str, Any]] = queue.Queue()

    def start(self) -> None:
        """Begin to start it; it may be given work at once."""
        if self._process is not None:
            return
        words, environment = [sys.executable, "-m", "tests.end_to_end.dedup_child"], dict(os.environ)
        if self.jvm is not None:
            words.append("--attach")
            parameters = self.jvm.sparkContext._gateway.gateway_parameters
            environment |= {
                "PYSPARK_GATEWAY_PORT": str(parameters.port),
                "PYSPARK_GATEWAY_SECRET": str(parameters.auth_token),
            }
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                words,
                cwd=ROOT,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        self.starts += 1
        self._sessions.append(self._process.pid)
        self._lines = queue.Queue()
        threading.Thread(target=_read_lines, args=(self._process, self._lines), daemon=True).start()

    def ask(self, do: str, *words: object, kill: Kill | None = None) -> Answer:
        """Give it a command, and wait until it is done or killed."""
        self.start()
        assert self._process is not None
        assert self._process.stdin is not None
        if not self._is_ready and "done" not in self._line(PATIENCE_SECONDS):
            raise AssertionError(f"it did not start: {self.log}")
        self._is_ready = True
        stop_at = [kill.step, kill.count] if kill is not None and kill.step else None
        known = _names(kill.staged_in) if kill is not None and kill.staged_in else set()
        self._process.stdin.write(f"{json.dumps({'do': do, 'with': words, 'stop_at': stop_at})}\n".encode())
        self._process.stdin.flush()
        return self._answer(kill, known)

    def _answer(self, kill: Kill | None, known: set[str]) -> Answer:
        begin, at, stage = time.monotonic(), None, "beginning"
        if kill is not None and not kill.step and kill.staged_in is None:
            at = begin + kill.seconds
        while True:
            if kill is not None and kill.staged_in and at is None and _names(kill.staged_in) - known:
                at, stage = time.monotonic() + kill.seconds, "files being staged"
            now = time.monotonic()
            if at is not None and now >= at:
                self.kill()
                return Answer(killed=stage)
            if now - begin > PATIENCE_SECONDS:
                self.kill()
                return Answer(error=f"no answer in {PATIENCE_SECONDS} s, in {stage}")
            watches = kill is not None and kill.staged_in is not None and at is None
            line = self._line(POLL_SECONDS if watches else 1.0 if at is None else min(1.0, at - now))
            if "stopped" in line and kill is not None:
                self.kill()
                return Answer(killed=kill.step)
            if "done" in line or "error" in line:
                return Answer(line.get("done"), line.get("error", ""))
            if stage != "files being staged":
                stage = line.get("stage", stage)

    def kill(self) -> None:
        if self._process is None:
            return
        os.kill(self._process.pid, signal.SIGKILL)
        if self.how is How.ALL:
            kill_session(self._process.pid)
        self._process.wait()
        with suppress(BrokenPipeError):
            self._process.stdin.close()  # type: ignore[union-attr]
        self._process, self._is_ready = None, False

    def close(self) -> None:
        """Kill it, and whatever earlier kills have spared."""
        self.kill()
        for session in self._sessions:
            kill_session(session)

    def _line(self, seconds: float) -> dict[str, Any]:
        try:
            return self._lines.get(timeout=seconds)
        except queue.Empty:
            return {}


def _read_lines(process: subprocess.Popen[bytes], lines: "queue.Queue[dict[str, Any]]") -> None:
    assert process.stdout is not None
    with process.stdout as answers:
        for line in answers:
            lines.put(json.loads(line))
    lines.put({"error": "the process ended by itself"})


def _names(folder: Path) -> set[str]:
    return {os.path.join(where, name) for where, _, names in os.walk(folder) for name in names}
