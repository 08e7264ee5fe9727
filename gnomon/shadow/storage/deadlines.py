"""The deadline of a caller for its work in all threads. The caller may leave before the deadline."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from typing import Any, NamedTuple, ParamSpec, TypeVar

from gnomon.shadow.errors import OutOfTime

P = ParamSpec("P")
Result = TypeVar("Result")


class _Deadline(NamedTuple):
    end: float  # of the monotonic clock
    seconds: float  # the duration that errors show
    left: "Future[None] | None"  # is done when the caller has left


_DEADLINE: ContextVar[_Deadline | None] = ContextVar("deadline", default=None)


@contextmanager
def within(seconds: float | None, left: "Future[None] | None" = None, shown: float | None = None) -> Iterator[None]:
    """Limit the storage calls of the block to a number of seconds; later calls raise OutOfTime. The earliest of nested
    deadlines counts. None sets no limit. Once `left` is done, the next check or wait raises OutOfTime, too. Errors name
    `shown` seconds, where the caller's time began before the block."""
    known = _DEADLINE.get()
    if seconds is not None:
        known_left = left if left is not None or known is None else known.left
        mine = _Deadline(time.monotonic() + seconds, seconds if shown is None else shown, known_left)
        known = mine if known is None or mine.end < known.end else known._replace(left=known_left)
    token = _DEADLINE.set(known)
    try:
        yield
    finally:
        _DEADLINE.reset(token)


def left() -> float | None:
    """The seconds left, at least 0; None without a deadline."""
    deadline = _DEADLINE.get()
    return None if deadline is None else max(deadline.end - time.monotonic(), 0.0)


def check(what: str) -> None:
    """Raise OutOfTime once the deadline has passed or the caller has left. `what` names the work waited for."""
    deadline = _DEADLINE.get()
    if deadline is not None and (time.monotonic() >= deadline.end or _has_left(deadline)):
        raise out_of_time(what)


def _has_left(deadline: _Deadline) -> bool:
    return deadline.left is not None and deadline.left.done()


def out_of_time(what: str) -> OutOfTime:
    deadline = _DEADLINE.get()
    if deadline is not None and _has_left(deadline):
        return OutOfTime(f"the caller has left: waited for {what}")
    seconds = 0.0 if deadline is None else deadline.seconds
    return OutOfTime(f"not answered within {seconds:g} s: waited for {what}; ask for less, or with more time")


def carried(call: Callable[P, Result]) -> Callable[P, Result]:
    """The call with the deadline of this context, for one call in another thread."""
    context = copy_context()

    def run(*args: P.args, **kwargs: P.kwargs) -> Result:
        return context.run(call, *args, **kwargs)

    return run


def awaited(future: "Future[Result]", what: str) -> Result:
    """The result of a call in another thread. OutOfTime where the deadline passes or the caller leaves first: a waiting
    call is then cancelled, and a running one goes on in its thread."""
    deadline = _DEADLINE.get()
    futures: list[Future[Any]] = [future]
    if deadline is not None and deadline.left is not None:
        futures.append(deadline.left)
    if future not in wait(futures, left(), FIRST_COMPLETED).done:
        future.cancel()
        raise out_of_time(what)
    return future.result()
