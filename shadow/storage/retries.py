"""Calls to a store that may be made again: how often, how long to wait, when to give up."""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from shadow.errors import StorageError

Result = TypeVar("Result")


class Passing(Exception):
    """A failure that may pass: no answer, an answer cut short, a store that is busy. Its text is one line."""


@dataclass(frozen=True)
class Patience:
    """How long a store is waited for: seconds, and tries of one call, all together."""

    tries: int = 6
    first_wait: float = 0.1
    longest_wait: float = 5.0
    connect: float = 5.0
    read: float = 60.0  # without a byte
    request: float = 600.0  # for all of one answer, or all of one put
    overall: float = 180.0  # after that no other try begins


def retried(call: Callable[[], Result], patience: Patience) -> Result:
    """Make a call that is safe to repeat until it does not fail in passing. Waits double, and are random from half
    their length on, so that many clients do not come back at once. StorageError after the last try."""
    begin = time.monotonic()
    for tries in range(1, patience.tries + 1):
        try:
            return call()
        except Passing as error:
            took = time.monotonic() - begin
            if tries == patience.tries or took > patience.overall:
                raise StorageError(f"{error}; gave up after {tries} tries in {took:.1f} s") from None
        time.sleep(min(patience.longest_wait, patience.first_wait * 2 ** (tries - 1)) * random.uniform(0.5, 1))
    raise AssertionError("unreachable: the last try returns or raises")
