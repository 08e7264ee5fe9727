"""Threads of this process that wait for stores. Their number is bounded, and the program can end while they run."""

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, TypeVar

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
