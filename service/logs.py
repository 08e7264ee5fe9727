"""The log: JSON lines on stderr, one for each request and each message. A thread of its own writes them, so that no
request waits for the reader of the log.

A line has at most 4,096 bytes: that much a pipe takes whole, so that the lines of several workers never mix. The line
of a request shows its client, target and cost. Keys are left out unless the settings ask for them."""

import datetime as dt
import json
import logging
import os
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from logging.handlers import QueueHandler, QueueListener
from queue import SimpleQueue
from typing import Any
from urllib.parse import parse_qsl, urlencode

from starlette.types import Scope

from gnomon.service import costs
from gnomon.service.costs import Cost
from gnomon.service.http import NAMES, PROBES, WITH_KEYS

LINE_BYTES = 4096
MOST_WAITING = 10_000  # lines; more are counted, and left out
GATHER_SECONDS = 0.05  # how long lines are gathered before they are written
CLOSE_SECONDS = 2.0  # how long a program that ends waits for the reader of its log
STDERR = 2
TARGET_CHARACTERS = 1000
HIDDEN = "-"
MOST_WHOLE = 200  # entries of requests that wait, not formatted yet

_to_json = json.JSONEncoder(ensure_ascii=False, default=str).encode
Members = dict[str, Any]


class _Record(logging.LogRecord):
    """A record that is only the call that makes its members: what other records find out takes time in each request."""

    def __init__(self, members: Callable[[], Members]) -> None:
        self.members = members


class Lines(QueueHandler):
    """The handler that puts records into the queue of the writing thread, as calls that make their members. Where too
    many wait already, a record is dropped and counted."""

    def __init__(self, descriptor: int = STDERR, most_waiting: int = MOST_WAITING) -> None:
        self._waiting: SimpleQueue[logging.LogRecord] = SimpleQueue()
        super().__init__(self._waiting)
        self.dropped = 0
        self._most_waiting = most_waiting
        self._output = _Output(descriptor, self)
        self._listener: _Listener | None = None

    @property
    def waiting(self) -> int:
        """Records that are not written yet."""
        return self._waiting.qsize()

    def put(self, members: Callable[[], Members]) -> None:
        """Log the members that a call makes. The writing thread makes the call."""
        self.enqueue(_Record(members))

    def enqueue(self, record: logging.LogRecord) -> None:
        if self._waiting.qsize() >= self._most_waiting:
            self.dropped += 1
        else:
            self._waiting.put(record)

    def prepare(self, record: logging.LogRecord) -> logging.LogRecord:
        """Make the members where the message was logged: in the context of its request."""
        try:
            message = record.getMessage()
        except Exception:  # noqa: BLE001 a message that does not fit its arguments
            message = str(record.msg)
        members = _members(record.levelname, record.name, message, record.created)
        cost = costs.running()
        if cost is not None:
            members["request_id"] = cost.request_id
            if cost.trace is not None:
                members |= cost.trace._asdict()
        if record.exc_info:
            members["traceback"] = "".join(traceback.format_exception(*record.exc_info))
        return _Record(lambda: members)

    def start(self) -> None:
        """Start the writing thread. A forked process has to make new lines."""
        self._listener = _Listener(self._waiting, self._output)
        self._listener.start()

    def close(self) -> None:
        """Write the remaining lines, as long as the reader takes them, and end."""
        if self._listener is not None:
            ending = threading.Thread(target=self._listener.stop, name="gnomon-log-end", daemon=True)
            self._listener = None
            ending.start()
            ending.join(CLOSE_SECONDS)
        super().close()


class _Listener(QueueListener):
    """Gives records to the output. Lines are gathered for a moment, and written when no other line waits."""

    def __init__(self, waiting: "SimpleQueue[logging.LogRecord]", output: "_Output") -> None:
        super().__init__(waiting, output)
        self._waiting, self._output = waiting, output

    def dequeue(self, block: bool) -> logging.LogRecord:
        is_idle = self._waiting.empty()
        if is_idle:
            self._output.flush()
        record = super().dequeue(block)
        if is_idle:
            time.sleep(GATHER_SECONDS)
        return record

    def stop(self) -> None:
        super().stop()
        self._output.flush()


class _Output(logging.Handler):
    """Writes lines to a file descriptor, several at a time. It tells how many lines were dropped."""

    def __init__(self, descriptor: int, lines: Lines) -> None:
        super().__init__()
        self.setFormatter(_Formatter())
        self._descriptor, self._lines = descriptor, lines
        self._gathered = b""
        self._told = 0  # of the dropped lines

    def emit(self, record: logging.LogRecord) -> None:
        line = self.format(record).encode("utf-8", "backslashreplace")
        if len(self._gathered) + len(line) > LINE_BYTES:
            self._write()
        self._gathered += line

    def flush(self) -> None:
        dropped, told = self._lines.dropped - self._told, b""
        if dropped:
            self._write()
            text = f"{dropped} lines were dropped"
            told = self.format(_Record(lambda: _members("WARNING", "gnomon.log", text))).encode()
            self._told += dropped
        self._write(told)

    def _write(self, told: bytes = b"") -> None:
        data, self._gathered = self._gathered + told, b""
        try:
            while data:
                data = data[os.write(self._descriptor, data) :]
        except OSError:  # the log has no reader any more; serving goes on
            self._lines.dropped += data.count(b"\n") - bool(told)


class _Formatter(logging.Formatter):
    """A record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """The line. Its longest texts are cut until it fits: a traceback at its beginning, other texts at their end."""
        assert isinstance(record, _Record)
        try:
            members = record.members()
        except Exception as error:  # noqa: BLE001 a line that cannot be made must not end the log
            members = _members("ERROR", "gnomon.log", f"a line cannot be made: {type(error).__name__}: {error}")
        while True:
            line = _to_json(members) + "\n"
            if len(line.encode("utf-8", "backslashreplace")) <= LINE_BYTES:
                return line
            name = max(members, key=lambda one: len(members[one]) if isinstance(members[one], str) else 0)
            text = members[name]
            kept = min(len(text) * 3 // 4, LINE_BYTES)
            members = {
                **members,
                name: "..." + text[len(text) - kept :] if name == "traceback" else text[:kept] + "...",
            }


def _members(level: str, logger: str, message: str, at: float | None = None) -> Members:
    return {"time": _time(time.time() if at is None else at), "level": level, "logger": logger, "message": message}


def _time(seconds: float) -> str:
    return dt.datetime.fromtimestamp(seconds, dt.UTC).isoformat(timespec="milliseconds")


def start() -> Lines:
    """Let all loggers of this process write lines: Gnomon's from INFO on, libraries' from WARNING on."""
    _remove_handlers()  # of the parent process, after a fork
    lines = Lines(STDERR)
    logging.getLogger().addHandler(lines)
    logging.getLogger("gnomon").setLevel(logging.INFO)
    logging.getLogger("gnomon.match").setLevel(logging.WARNING)  # a line for each index file, for jobs
    logging.captureWarnings(True)
    threading.excepthook = _of_thread
    lines.start()
    return lines


def stop(lines: Lines) -> None:
    """Write the waiting lines, and stop logging."""
    _remove_handlers()
    for name in ("gnomon", "gnomon.match"):
        logging.getLogger(name).setLevel(logging.NOTSET)
    logging.captureWarnings(False)
    threading.excepthook = threading.__excepthook__
    lines.close()


def _remove_handlers() -> None:
    root = logging.getLogger()
    for handler in [one for one in root.handlers if isinstance(one, Lines)]:
        root.removeHandler(handler)


def _of_thread(what: threading.ExceptHookArgs) -> None:
    """Log an error that ended a thread on one line. Python would print it on many lines."""
    if what.exc_value is not None:
        name = what.thread.name if what.thread is not None else "a thread"
        logging.getLogger("gnomon.service").error("%s ended with an error", name, exc_info=what.exc_value)


@dataclass(slots=True)
class Entry:
    """The facts of a request that has ended. `began` is in seconds of the clock, `sent` in bytes of the body."""

    scope: Scope
    cost: Cost
    began: float
    seconds: float
    route: str
    index: str
    status: int
    sent: int
    rejected: str | None


class AccessLog:
    """Writes entries as lines of the log. `keys`: whether lines show keys, which may be personal data."""

    def __init__(self, lines: Lines, keys: bool) -> None:
        self._lines, self._keys = lines, keys

    def put(self, entry: Entry) -> None:
        """Log an entry. Its line is made later, in the writing thread. Probes that succeed are left out."""
        if entry.status < 400 and entry.route in PROBES:  # they come every few seconds
            return
        if self._lines.waiting < MOST_WHOLE:
            self._lines.put(partial(self._members, entry))
        else:  # no reader of the log: an entry that waits must not keep its request in memory
            members = self._members(entry)
            self._lines.put(lambda: members)

    def _members(self, entry: Entry) -> Members:
        scope, cost = entry.scope, entry.cost
        members = {
            "time": _time(entry.began),
            "level": "INFO",
            "logger": "gnomon.access",
            "request_id": cost.request_id,
            "client": _client(scope),
            "method": scope["method"],
            "route": entry.route,
            "target": _whole(scope)[:TARGET_CHARACTERS] if self._keys else _without_keys(scope, entry.route),
            "status": entry.status,
            "bytes": entry.sent,
            "microseconds": round(entry.seconds * 1e6),
        }
        if cost.trace is not None:
            members |= cost.trace._asdict()
        if entry.index:
            members["index"] = entry.index
        if cost.stats is not None:
            members |= {"snapshot": cost.stats.snapshot, "keys": cost.keys}
        if cost.count is not None:
            members["count"] = cost.count
        if entry.rejected:
            members["rejected"] = entry.rejected
        return members


def _client(scope: Scope) -> str:
    """The name of the token, else the address."""
    asker = scope["state"].get("asker")
    if asker is not None:
        return str(asker.token.name if asker.token else asker.address)
    return scope["client"][0] if scope.get("client") else HIDDEN


def _whole(scope: Scope) -> str:
    raw, query = scope.get("raw_path") or scope["path"].encode(), scope["query_string"]
    return str((raw + b"?" + query if query else raw)[: TARGET_CHARACTERS + 1].decode("latin-1"))


def _without_keys(scope: Scope, route: str) -> str:
    """The route, and the options in the query. The values of options that have keys are hidden, and names and values
    of all other parameters, since both may be keys."""
    if not scope["query_string"]:
        return route
    try:
        pairs = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True, max_num_fields=100)
    except ValueError:
        return f"{route}?{HIDDEN}"
    shown = [
        (name if name in NAMES else HIDDEN, HIDDEN if name in WITH_KEYS or name not in NAMES else value)
        for name, value in pairs
    ]
    told = urlencode(shown, safe="=,-{}")
    return (f"{route}?{told}" if told else route)[:TARGET_CHARACTERS]
