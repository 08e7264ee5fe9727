"""Retries of calls to a store: how often, how long to wait, when to give up."""

import math
import os
import random
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import count
from typing import TypeVar

from gnomon.base.errors import Action, GnomonError
from gnomon.shadow.errors import OutOfTime, Unreachable, UsageError
from gnomon.shadow.storage.concurrency import threads
from gnomon.shadow.storage.locations import host
from gnomon.shadow.storage.waiting import awaited, check_deadline, check_may_wait, left, out_of_time

_CHANCE = random.SystemRandom()  # callers may have seeded the module's own generator
MINUTES = "GNOMON_STORE_MINUTES"
WAITING = 64  # calls at a time to one store that have a deadline
Result = TypeVar("Result")


class Passing(GnomonError):
    """A transient failure: no answer, an incomplete answer, a busy store. Its text is one line."""


class Expired(Passing):
    """The credentials of the connection have expired. A new connection reads them again."""


@dataclass(frozen=True)
class Patience:
    """The limits of a wait for a store: seconds, and tries of one call."""

    tries: int = 6
    first_wait: float = 0.1
    longest_wait: float = 5.0
    connect: float = 5.0
    read: float = 60.0  # without a byte
    request: float = 600.0  # for one whole answer, or one whole put
    overall: float = 180.0  # after that no further try begins
    longest_wait_of_jobs: float = 20.0


_answered: set[str] = set()  # the stores that this process has heard of
_JOB: ContextVar[bool] = ContextVar("a job", default=False)


@contextmanager
def patiently() -> Iterator[None]:
    """Let each call of a job, which has no deadline, outlast an outage of some minutes: `minutes_of_jobs`."""
    token = _JOB.set(True)
    try:
        yield
    finally:
        _JOB.reset(token)


def minutes_of_jobs() -> float:
    """How long a call of a job is repeated: GNOMON_STORE_MINUTES, by default 5. UsageError where it is no number."""
    text = os.environ.get(MINUTES, "5")
    try:
        minutes = float(text)
    except ValueError:
        minutes = -1.0
    if not 0 <= minutes < math.inf:
        raise UsageError(MINUTES, expected="a number of minutes, 0 or more", found=repr(text))
    return minutes


def retried(call: Callable[[], Result], patience: Patience, where: str) -> Result:
    """Repeat an idempotent call while it fails with a transient error. Waits double, with a random half, so that many
    clients do not retry at the same moment. Unreachable after the last try. Under a deadline no try begins that could
    not end in time, and no wait exceeds it: OutOfTime. In a job without one, tries go on for `minutes_of_jobs`, if the
    store has answered this process before. `where` is the location for the error."""
    check_may_wait(where)
    begin, store = time.monotonic(), host(where)
    is_job = _JOB.get() and left() is None and store in _answered
    longest = patience.longest_wait_of_jobs if is_job else patience.longest_wait
    for tries in count(1):
        check_deadline(where)
        try:
            made = _made(call, where)
            _answered.add(store)
            return made
        except Passing as error:
            took = time.monotonic() - begin
            is_last = tries >= patience.tries
            if (is_last and took > minutes_of_jobs() * 60) if is_job else (is_last or took > patience.overall):
                what = f"{error.what}; gave up after {tries} tries in {took:.1f} s"
                raise Unreachable(what, error.path, action=error.action or Action.RUN_AGAIN_ANSWERING) from None
            failure = error
        pause = min(longest, patience.first_wait * 2 ** min(tries - 1, 30)) * _CHANCE.uniform(0.5, 1)
        remaining = left()
        if remaining is not None and pause >= remaining:
            raise out_of_time(f"another try after this: {failure}")
        time.sleep(pause)
    raise AssertionError("unreachable: the last try returns or raises")


def _made(call: Callable[[], Result], where: str) -> Result:
    """Make one try. A library call cannot be interrupted, so under a deadline a thread makes it. A call that takes
    longer goes on in the thread without its caller. Each store has its own threads, so that one that hangs does not
    block the others."""
    if left() is None:
        return call()
    pool = threads(f"gnomon-wait {host(where)}", WAITING)
    future = pool.submit(call)
    try:
        return awaited(future, where)
    except OutOfTime:
        pool.leave(future)
        raise


def next_of(pages: Iterator[Result], seconds: float, where: str) -> Result | None:
    """The next page of a listing; None after the last one. Unreachable where none comes for so many seconds: a store
    that answers empty pages, each with a next one, keeps the client busy without end."""
    pool = threads(f"gnomon-list {host(where)}", WAITING)
    future: Future[Result | None] = pool.submit(lambda: next(pages, None))
    try:
        return future.result(seconds)
    except TimeoutError:
        if future.done():  # the call's own
            raise
        pool.leave(future)
        what = f"the store's listing brings no name for {seconds:g} s"
        raise Unreachable(what, where, action=Action.RUN_AGAIN) from None
