"""What the running request has cost so far: noted where the work is done, read by metrics and the access log."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from gnomon.service.tracing import TraceIds
from gnomon.shadow import FetchStats
from gnomon.shadow.fetch import TimedStep


@dataclass
class Cost:
    """Of one request, with its ids for the log. `keys` and `stats` are there once its look-up has ended; a `count` is
    of rows. `table_version` is the version of a lake table that the answer is of. `steps`, if given, gets the steps of
    each look-up."""

    request_id: str = ""
    trace: TraceIds | None = None
    stats: FetchStats | None = None
    keys: int = 0
    count: int | None = None
    encode_seconds: float | None = None
    table_version: str | None = None
    errors_logged: int = 0
    steps: list[list[TimedStep]] | None = None


_running: ContextVar[Cost | None] = ContextVar("cost", default=None)


def begin(request_id: str, trace: TraceIds | None = None, timed: bool = False) -> Cost:
    """The cost of the request that runs in this context from here on; with its steps if they are `timed`."""
    cost = Cost(request_id, trace, steps=[] if timed else None)
    _running.set(cost)
    return cost


def running() -> Cost | None:
    """The cost of the request that runs here, in a task or in a thread that took its context over."""
    return _running.get()


def new_stats() -> FetchStats:
    """The cost of a look-up that begins; the running request gets its steps, if they are timed."""
    cost = _running.get()
    if cost is None or cost.steps is None:
        return FetchStats()
    stats = FetchStats(timed=[])
    assert stats.timed is not None
    cost.steps.append(stats.timed)
    return stats


def note(stats: FetchStats, keys: int, count: int | None) -> None:
    """The look-up of that many keys, in all pieces so far, ended; it found `count` rows, which None leaves open."""
    cost = _running.get()
    if cost is not None:
        cost.stats, cost.keys, cost.count = stats, keys, count


def note_version(version: str) -> None:
    """The answer is of this version of a lake table."""
    cost = _running.get()
    if cost is not None:
        cost.table_version = version


@contextmanager
def encoding() -> Iterator[None]:
    """The answer, or a piece of it, is written inside."""
    begin_ns = time.perf_counter_ns()
    yield
    end_ns = time.perf_counter_ns()
    cost = _running.get()
    if cost is not None:
        cost.encode_seconds = (cost.encode_seconds or 0.0) + (end_ns - begin_ns) / 1e9
        if cost.steps is not None:
            cost.steps.append([TimedStep("encode", begin_ns, end_ns, {})])
