"""Concurrent calls, for waits on remote storage. Results come in the order of the calls."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, wait
from itertools import repeat
from typing import Generic, TypeVar

from gnomon.shadow.storage.deadlines import awaited, carried, check, left
from gnomon.shadow.storage.no_waiting import check_may_wait
from gnomon.shadow.storage.thread_pool import threads

Result = TypeVar("Result")

POOL = "gnomon-at-once"
THREADS = 48  # of a process
AHEAD = 16  # calls of one caller that are running, or whose results are not taken yet
HELD_BYTES = 64 << 20  # of the results of such calls


class Begun(Generic[Result]):
    """A call that a thread of the pool begins at once. Calling this object waits for the result. If no thread was free
    until then, the waiting thread makes the call."""

    def __init__(self, call: Callable[[], Result]) -> None:
        check_may_wait("another thread")
        self.has_failed = False  # and a caller knows it
        self._call = call
        self._future = threads(POOL, THREADS).submit(carried(call))

    def __call__(self) -> Result:
        check_may_wait("another thread")
        return self._call() if self._future.cancel() else awaited(self._future, "reads side by side")

    def leave(self) -> None:
        """Cancel the call if no thread has begun it yet."""
        self._future.cancel()

    @property
    def is_over(self) -> bool:
        """Whether the call has ended, or was cancelled."""
        return self._future.done()

    def settle(self) -> None:
        """Wait until the call has ended, with or without an error, or the deadline has passed."""
        if not self._future.cancelled():
            wait([self._future], left())


def in_order(
    calls: Sequence[Callable[[], Result]],
    sizes: Sequence[int] | None = None,
    ahead: int = AHEAD,
    held: int = HELD_BYTES,
) -> Iterator[Result]:
    """The results of independent calls, in the order of the calls, `ahead` at a time. `sizes` estimates the bytes of
    each result: calls begin early as long as their results together take at most `held` bytes; one call always begins.
    When a call fails, or the caller takes no more results, no further call begins, and the running ones are left.

    A call may make concurrent calls itself: the waiting thread makes a call for which no thread is free."""
    if len(calls) == 1:
        yield calls[0]()
        return
    check_may_wait("other threads")
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
            del future  # the future holds the result
    finally:
        for _, future, _ in begun:
            future.cancel()
