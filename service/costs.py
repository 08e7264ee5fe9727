"""The cost of the running request so far. The code that does the work records it; metrics and the access log read
it."""

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
    """The cost of one request, with its ids for the log. `keys` and `stats` are set when its look-up has ended; `count`
    is a number of rows. `table_version` is the version of the lake table in the answer. `steps`, if not None, receives
    the steps of each look-up."""

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
    """Begin the cost of a request that runs in this context, and return it. With `timed` it records steps, too."""
    cost = Cost(request_id, trace, steps=[] if timed else None)
    _running.set(cost)
    return cost


def running() -> Cost | None:
    """The cost of the request that runs in this context: in its task, or in a thread with a copy of the context. None
    without a request."""
    return _running.get()


def new_stats() -> FetchStats:
    """A new `FetchStats` for a look-up. The cost of the running request receives its steps, if they are timed."""
    cost = _running.get()
    if cost is None or cost.steps is None:
        return FetchStats()
    stats = FetchStats(timed=[])
    assert stats.timed is not None
    cost.steps.append(stats.timed)
    return stats


def note(stats: FetchStats, keys: int, count: int | None) -> None:
    """Record that the look-up of `keys` keys, in all pieces so far, ended and found `count` rows (None: not
    counted)."""
    cost = _running.get()
    if cost is not None:
        cost.stats, cost.keys, cost.count = stats, keys, count


def note_version(version: str) -> None:
    """Record the version of the lake table in the answer."""
    cost = _running.get()
    if cost is not None:
        cost.table_version = version


@contextmanager
def encoding() -> Iterator[None]:
    """Record the time of the block, which encodes an answer or a piece of it."""
    begin_ns = time.perf_counter_ns()
    yield
    end_ns = time.perf_counter_ns()
    cost = _running.get()
    if cost is not None:
        cost.encode_seconds = (cost.encode_seconds or 0.0) + (end_ns - begin_ns) / 1e9
        if cost.steps is not None:
            cost.steps.append([TimedStep("encode", begin_ns, end_ns, {})])
