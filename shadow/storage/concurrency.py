"""Calls made side by side, for what they wait for lies far away. Their results are taken in order."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, wait
from itertools import repeat
from typing import Generic, TypeVar

from gnomon.shadow.storage.deadlines import awaited, carried, check, left
from gnomon.shadow.storage.thread_pool import threads

Result = TypeVar("Result")

POOL = "gnomon-at-once"
THREADS = 48  # of a process
AHEAD = 16  # calls of one caller that are under way, or whose results wait to be taken
HELD_BYTES = 64 << 20  # of the results of such calls


class Begun(Generic[Result]):
    """A call that is begun when this is made. To call this is to wait for the result; where no thread was free for it
    until then, the call is made by whoever waits."""

    def __init__(self, call: Callable[[], Result]) -> None:
        self._call = call
        self._future = threads(POOL, THREADS).submit(carried(call))

    def __call__(self) -> Result:
        return self._call() if self._future.cancel() else awaited(self._future, "reads side by side")

    def leave(self) -> None:
        """Nobody waits for it: it is not made where no thread was free for it yet."""
        self._future.cancel()

    @property
    def is_over(self) -> bool:
        """Whether it has ended, or was left."""
        return self._future.done()

    def settle(self) -> None:
        """Wait until it has ended, whatever came of it, or the deadline has passed."""
        if not self._future.cancelled():
            wait([self._future], left())


def in_order(
    calls: Sequence[Callable[[], Result]],
    sizes: Sequence[int] | None = None,
    ahead: int = AHEAD,
    held: int = HELD_BYTES,
) -> Iterator[Result]:
    """The results of calls that do not depend on each other, in the order of the calls; `ahead` at a time. `sizes` are
    the bytes that each result takes, roughly: as many calls are begun before the first is taken as come to `held`, one
    at least. When a call fails, or no more results are taken, those that were not begun never are, and nobody waits for
    the others.

    A call may itself make calls at once: one for which no thread is free is made by the thread that waits for it."""
    if len(calls) == 1:
        yield calls[0]()
        return
    pool = threads(POOL, THREADS)
    begun: deque[tuple[Callable[[], Result], Future[Result], int]] = deque()
    waiting = deque(zip(calls, repeat(0) if sizes is None else sizes, strict=False))
    size_of_begun = 0
    try:
        while waiting or begun:
            while waiting and len(begun) < ahead and (not begun or size_of_begun + waiting[0][1] <= held):
                call, size = waiting.popleft()
                begun.append((call, pool.submit(carried(call)), size))
                size_of_begun += size
            call, future, size = begun.popleft()
            size_of_begun -= size
            check("reads side by side")
            yield call() if future.cancel() else future.result()
            del future  # which holds the result
    finally:
        for _, future, _ in begun:
            future.cancel()
