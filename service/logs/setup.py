"""The log: one JSON object a line on stderr. A thread of its own writes it, so that no request waits for the reader of
the log.

A line has at most 4,096 bytes: that much a pipe takes whole, so that the lines of several workers never mix."""

import datetime as dt
import json
import logging
import os
import threading
import traceback
from collections import deque
from collections.abc import Callable
from typing import Any

from gnomon.service import costs

LINE_BYTES = 4096
MOST_WAITING = 10_000  # lines; more are counted, and left out
GATHER_SECONDS = 0.05  # how long lines are gathered before they are written
CLOSE_SECONDS = 2.0  # how long a program that ends waits for the reader of its log
STDERR = 2

_to_json = json.JSONEncoder(ensure_ascii=False, default=str).encode
Entry = Callable[[], dict[str, Any]]


class Lines:
    """Entries, each a call that makes a JSON object, written to a file descriptor in their order."""

    def __init__(self, descriptor: int = STDERR, most_waiting: int = MOST_WAITING) -> None:
        self.dropped = 0
        self._descriptor = descriptor
        self._most_waiting = most_waiting
        self._waiting: deque[Entry] = deque()
        self._some = threading.Event()
        self._closing = threading.Event()
        self._told = 0
        self._writer: threading.Thread | None = None

    @property
    def waiting(self) -> int:
        """Entries that are not written yet."""
        return len(self._waiting)

    def put(self, entry: Entry) -> None:
        """Take an entry, and return at once. Where too many wait already it is dropped and counted."""
        if len(self._waiting) >= self._most_waiting:
            self.dropped += 1
            return
        self._waiting.append(entry)
        if not self._some.is_set():
            self._some.set()

    def start(self) -> None:
        """Start the writing thread. A forked process has to call this again."""
        self._writer = threading.Thread(target=self._write_all, name="gnomon-log", daemon=True)
        self._writer.start()

    def close(self) -> None:
        """Write the remaining lines, as long as the reader takes them, and end."""
        self._closing.set()
        self._some.set()
        if self._writer is not None:
            self._writer.join(CLOSE_SECONDS)

    def _write_all(self) -> None:
        while not self._closing.is_set() or self._waiting:
            self._some.wait()
            self._closing.wait(GATHER_SECONDS)
            self._some.clear()
            self._write_waiting()

    def _write_waiting(self) -> None:
        together = b""
        while self._waiting:
            line = _line(self._waiting.popleft())
            if len(together) + len(line) > LINE_BYTES:
                self._write(together)
                together = b""
            together += line
        dropped = self.dropped
        if dropped > self._told:
            together += _line(lambda: _members("WARNING", "gnomon.log", f"{dropped - self._told} lines were dropped"))
            self._told = dropped
        self._write(together)

    def _write(self, data: bytes) -> None:
        try:
            while data:
                data = data[os.write(self._descriptor, data) :]
        except OSError:
            self.dropped += data.count(b"\n")  # the log has no reader any more; serving goes on


def _line(entry: Entry) -> bytes:
    try:
        members = entry()
    except Exception as error:  # noqa: BLE001 a line that cannot be made must not end the log
        members = _members("ERROR", "gnomon.log", f"a line cannot be made: {type(error).__name__}: {error}")
    return _encoded(members)


def _encoded(members: dict[str, Any]) -> bytes:
    """The line. Its longest texts are cut until it fits: a traceback at its beginning, other texts at their end."""
    while True:
        line = _to_json(members).encode("utf-8", "backslashreplace") + b"\n"
        if len(line) <= LINE_BYTES:
            return line
        name = max(members, key=lambda one: len(members[one]) if isinstance(members[one], str) else 0)
        text = members[name]
        kept = min(len(text) * 3 // 4, LINE_BYTES)
        members = {**members, name: "..." + text[len(text) - kept :] if name == "traceback" else text[:kept] + "..."}


def _members(level: str, logger: str, message: str) -> dict[str, Any]:
    now = dt.datetime.now(dt.UTC).isoformat(timespec="milliseconds")
    return {"time": now, "level": level, "logger": logger, "message": message}


class _Handler(logging.Handler):
    """Writes the records of the process's loggers as lines."""

    def __init__(self, lines: Lines) -> None:
        super().__init__()
        self._lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        try:
            members = _members(record.levelname, record.name, record.getMessage())
        except Exception:  # noqa: BLE001 a message that does not fit its arguments
            members = _members(record.levelname, record.name, str(record.msg))
        members["time"] = dt.datetime.fromtimestamp(record.created, dt.UTC).isoformat(timespec="milliseconds")
        cost = costs.running()
        if cost is not None:
            members["request_id"] = cost.request_id
            if cost.trace is not None:
                members |= cost.trace._asdict()
        if record.exc_info:
            members["traceback"] = "".join(traceback.format_exception(*record.exc_info))
        self._lines.put(lambda: members)


def start() -> Lines:
    """Let all loggers of this process write lines: Gnomon's from INFO on, libraries' from WARNING on."""
    lines = Lines(STDERR)
    root = logging.getLogger()
    for handler in [one for one in root.handlers if isinstance(one, _Handler)]:
        root.removeHandler(handler)  # of the parent process, after a fork
    root.addHandler(_Handler(lines))
    logging.getLogger("gnomon").setLevel(logging.INFO)
    logging.captureWarnings(True)
    threading.excepthook = _of_thread
    lines.start()
    return lines


def stop(lines: Lines) -> None:
    """Write the waiting lines, and stop logging."""
    root = logging.getLogger()
    for handler in [one for one in root.handlers if isinstance(one, _Handler)]:
        root.removeHandler(handler)
    logging.getLogger("gnomon").setLevel(logging.NOTSET)
    logging.captureWarnings(False)
    threading.excepthook = threading.__excepthook__
    lines.close()


def _of_thread(what: threading.ExceptHookArgs) -> None:
    """Log an error that ended a thread on one line. Python would print it on many lines."""
    if what.exc_value is not None:
        name = what.thread.name if what.thread is not None else "a thread"
        logging.getLogger("gnomon.service").error("%s ended with an error", name, exc_info=what.exc_value)
