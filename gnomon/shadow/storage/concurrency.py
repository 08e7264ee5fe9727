"""Concurrent calls, for waits on remote storage. Results come in the order of the calls. The number of threads is
bounded, and the program can end while they run."""

import os
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, wait
from contextvars import copy_context
from functools import partial
from itertools import repeat
from queue import SimpleQueue
from typing import Any, Generic, TypeVar, cast

from gnomon.shadow.storage.waiting import awaited, carried, check_deadline, check_may_wait, left

Result = TypeVar("Result")


MOST_LEFT = 1024  # calls of a pool that go on without a caller


class Threads:
    """A pool of daemon threads. Unlike in `concurrent.futures`, a read that hangs does not keep the process from
    ending, and its thread counts no more once its caller has left it."""

    def __init__(self, name: str, most: int) -> None:
        self._name = name
        self._most = most
        self._calls: SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._started = 0
        self._left: set[Future[Any]] = set()
        self._lock = threading.Lock()

    def submit(self, call: Callable[[], Result]) -> "Future[Result]":
        """Begin a call, or let it wait until a thread is free."""
        future: Future[Result] = Future()
        self._calls.put((future, call))
        if not self._idle.acquire(blocking=False):
            self._start()
        return future

    def leave(self, future: "Future[Any]") -> None:
        """Go on without the result of a call. If it runs, another thread may take its place; its own ends with it."""
        with self._lock:
            if not future.running() or len(self._left) == MOST_LEFT:
                return
            self._left.add(future)
        if not self._calls.empty():
            self._start()

    def _start(self) -> None:
        with self._lock:
            if self._started == self._most + len(self._left):
                return
            threading.Thread(target=self._work, name=f"{self._name}-{self._started + 1}", daemon=True).start()
            self._started += 1  # after the start, which raises where the system has no thread left

    def _work(self) -> None:
        while True:
            future, call = self._calls.get()
            _do(future, call)
            with self._lock:
                if future in self._left:
                    self._left.remove(future)
                    self._started -= 1
                    return
            del future, call  # which hold the result while the thread waits
            self._idle.release()


def _do(future: "Future[Any]", call: Callable[[], Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = call()
    except BaseException as error:  # noqa: BLE001  (raised where the result is taken)
        future.set_exception(error)
    else:
        future.set_result(result)


def threads(name: str, most: int) -> Threads:
    """The pool of this name, made on its first use in this process."""
    with _lock:
        if name not in _pools:
            _pools[name] = Threads(name, most)
        return _pools[name]


_lock = threading.Lock()
_pools: dict[str, Threads] = {}


def _in_child() -> None:
    """Drop the pools, since a fork has none of its parent's threads."""
    _pools.clear()
    _lock.release()


os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_in_child)


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
    settled: bool = False,
) -> Iterator[Result]:
    """The results of independent calls, in the order of the calls, `ahead` at a time. `sizes` estimates the bytes of
    each result: calls begin early as long as their results together take at most `held` bytes; one call always begins.
    When a call fails, or the caller takes no more results, no further call begins, and the running ones are left; with
    `settled` they are waited for, as calls must be that write files which the caller then removes.

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
            check_deadline("reads side by side")
            yield call() if future.cancel() else future.result()
            del future  # the future holds the result
    finally:
        running = [future for _, future, _ in begun if not future.cancel()]
        if settled:
            wait(running)


def ahead(values: Iterator[Result]) -> Generator[Result, None, None]:
    """The values, each of which another thread makes while the caller uses the one before. Once this is exhausted or
    closed, the thread has ended. All values are made in one context, so that what an iterator sets there stays."""
    end = object()
    following = partial(copy_context().run, next, values, end)
    begun = Begun(following)
    try:
        while (value := begun()) is not end:
            begun = Begun(following)
            yield cast(Result, value)
            del value
    finally:
        begun.leave()
        begun.settle()
