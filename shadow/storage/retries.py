"""Retries of calls to a store: how often, how long to wait, when to give up."""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from gnomon.base.errors import GnomonError
from gnomon.shadow.errors import Unreachable
from gnomon.shadow.storage.deadlines import awaited, check, left, out_of_time
from gnomon.shadow.storage.locations import host
from gnomon.shadow.storage.no_waiting import check_may_wait
from gnomon.shadow.storage.thread_pool import threads

_CHANCE = random.SystemRandom()  # callers may have seeded the module's own generator
WAITING = 64  # calls at a time to one store that have a deadline
Result = TypeVar("Result")


class Passing(GnomonError):
    """A transient failure: no answer, an incomplete answer, a busy store. Its text is one line."""


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


def retried(call: Callable[[], Result], patience: Patience, where: str) -> Result:
    """Repeat an idempotent call while it fails with a transient error. Waits double, with a random half, so that many
    clients do not retry at the same moment. Unreachable after the last try. Under a deadline no try begins that could
    not end in time, and no wait exceeds it: OutOfTime. `where` is the location for the error."""
    check_may_wait(where)
    begin = time.monotonic()
    for tries in range(1, patience.tries + 1):
        check(where)
        try:
            return _made(call, where)
        except Passing as error:
            took = time.monotonic() - begin
            if tries == patience.tries or took > patience.overall:
                what = f"{error.what}; gave up after {tries} tries in {took:.1f} s"
                raise Unreachable(what, error.path) from None
            failure = error
        pause = min(patience.longest_wait, patience.first_wait * 2 ** (tries - 1)) * _CHANCE.uniform(0.5, 1)
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
    return awaited(threads(f"gnomon-wait {host(where)}", WAITING).submit(call), where)
