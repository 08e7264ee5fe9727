"""Processes with a Spark session, or without (`dedup_child`), that get commands, and are killed during them."""

import enum
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.sql import SparkSession

from tests.end_to_end.test_kills import kill_session

ROOT = Path(__file__).parent.parent.parent
PATIENCE_SECONDS = 300  # for one command
POLL_SECONDS = 0.002


class How(enum.Enum):
    """The processes to kill: all that the child started; only Python, after which its JVM ends by itself; or only
    Python, with a session in another program's JVM, which lives on and finishes all Spark jobs."""

    ALL = "all of it"
    DRIVER = "Python alone"
    ORPHANED = "Python alone, Spark's tasks live on"


class Kill(NamedTuple):
    """The time of a kill: the n-th occurrence of a step of `dedup_child.STEPS`, or a number of seconds after a file was
    staged below a folder, or a number of seconds after the command. With `meanwhile`, the child is not killed at its
    step: it waits there until this has run."""

    step: str = ""
    count: int = 1
    staged_in: Path | None = None
    seconds: float = 0.0
    meanwhile: Callable[[], None] | None = None


class Answer(NamedTuple):
    """The result of a command: `done`, or an error, or `killed`, the place of the kill."""

    done: Any = None
    error: str = ""
    killed: str = ""


class Killable:
    """A child process, which starts with its first command, and again after each kill."""

    def __init__(self, folder: Path, name: str, jvm: SparkSession | None = None, is_local: bool = False) -> None:
        """With `jvm`, the child's session lives in the JVM of that session. A child that `is_local` has no Spark."""
        self.log, self.jvm, self.is_local = folder / f"{name}.log", jvm, is_local
        self.how = How.ORPHANED if jvm else How.ALL
        self.starts, self._is_ready = 0, False
        self._process: subprocess.Popen[bytes] | None = None
        self._sessions: list[int] = []
        self._lines: queue.Queue[dict[str, Any]] = queue.Queue()

    def start(self) -> None:
        """Start the child in the background. It accepts commands at once."""
        if self._process is not None:
            return
        words, environment = [sys.executable, "-m", "tests.end_to_end.dedup_child"], dict(os.environ)
        if self.is_local:
            words.append("--local")
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
        """Send a command, and wait until the child has finished it or is killed."""
        self.start()
        if not self._is_ready and "done" not in self._line(PATIENCE_SECONDS):
            raise AssertionError(f"it did not start: {self.log}")
        self._is_ready = True
        stop_at = [kill.step, kill.count] if kill is not None and kill.step else None
        known = _names(kill.staged_in) if kill is not None and kill.staged_in else set()
        self._send(json.dumps({"do": do, "with": words, "stop_at": stop_at}))
        return self._answer(kill, known)

    def _send(self, line: str) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n".encode())
        self._process.stdin.flush()

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
            if "stopped" in line and kill is not None and kill.meanwhile is not None:
                kill.meanwhile()
                self._send("")
            elif "stopped" in line and kill is not None:
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
        """Kill the child, and all processes that earlier kills left."""
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
