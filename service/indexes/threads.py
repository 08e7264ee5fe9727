"""The threads in which requests read files. Each index has its own, as many as the settings say, so that hanging reads
of one index do not block another.

A wait for a store ends with the time of its request (`gnomon.shadow.storage.deadlines`), but nothing can end a thread
that waits for a disk. A thread whose request was answered before it ended is `stuck`, and another thread replaces it,
as long as there are no more stuck threads than the settings have threads. Beyond that, fewer threads remain to work.
With none left, requests are refused at once until storage answers again."""

import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from typing import Any, ParamSpec, TypeVar

from gnomon.service.errors import Overloaded, TookTooLong
from gnomon.shadow.storage import within

IDLE_SECONDS = 30.0  # after which a thread without work ends
P = ParamSpec("P")
T = TypeVar("T")


class _Work:
    """One call, to be made in the context of who asked for it and done by a time (of `time.monotonic`), and the future
    of its result."""

    __slots__ = ("call", "context", "done", "ends", "given_up", "loop", "running")

    def __init__(self, call: Callable[[], Any], ends: float) -> None:
        self.call = call
        self.context = copy_context()
        self.ends = ends
        self.loop = asyncio.get_running_loop()
        self.done: asyncio.Future[Any] = self.loop.create_future()
        self.running = False
        self.given_up = False

    def make(self) -> Any:
        """Make the call, with a deadline for its waits."""
        return self.context.run(self._in_time)

    def _in_time(self) -> Any:
        with within(self.ends - time.monotonic()):
            return self.call()


class Threads:
    """Threads for the requests of one index; safe to share between event loops."""

    def __init__(self, name: str, threads: int, max_waiting: int, timeout_seconds: float) -> None:
        self._name = name
        self._threads = threads
        self._max_waiting = max_waiting
        self._timeout_seconds = timeout_seconds
        self._changed = threading.Condition()
        self._waiting: dict[_Work, None] = {}  # in the order they came
        self._alive = 0
        self._idle = 0
        self._running = 0
        self._stuck = 0

    @property
    def waiting(self) -> int:
        """Requests that wait for a thread."""
        return len(self._waiting)

    @property
    def running(self) -> int:
        """Requests that a thread works for."""
        return self._running - self._stuck

    @property
    def stuck(self) -> int:
        """Threads whose request was answered, or left, before they were done."""
        return self._stuck

    async def run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Make a blocking call in a thread. Overloaded at once where too many wait; TookTooLong after the time a
        request has, whatever the call does. Where the caller is cancelled a call that waits is not made."""
        work = _Work(lambda: call(*args, **kwargs), time.monotonic() + self._timeout_seconds)
        self._take(work)
        timer = work.loop.call_later(self._timeout_seconds, self._end, work)
        try:
            result: T = await work.done
        finally:
            timer.cancel()
            self._give_up(work)
        return result

    def _take(self, work: _Work) -> None:
        with self._changed:
            places = self._places
            if not places:
                raise Overloaded(
                    f"the storage of index {self._name} does not answer: all {self._stuck} threads that may wait for "
                    "it do (setting threads); ask again later"
                )
            if self.running + len(self._waiting) >= places + self._max_waiting:
                raise Overloaded(
                    f"{self.running} requests of index {self._name} are worked on and {len(self._waiting)} wait "
                    "(settings threads, max_waiting); ask again later"
                )
            self._waiting[work] = None
            self._wake()

    @property
    def _places(self) -> int:
        """The number of threads that may work, without the stuck ones."""
        return max(0, min(self._threads, 2 * self._threads - self._stuck))

    def _wake(self) -> None:
        """Let a thread take what waits; a new one where none is idle. The lock is held."""
        if self._idle >= len(self._waiting):
            self._changed.notify()
        elif self._alive < self._places + self._stuck:
            with suppress(RuntimeError):  # the system has none left: another thread takes the work, now or later
                threading.Thread(target=self._labour, name=f"gnomon-{self._name}", daemon=True).start()
                self._alive += 1

    def _end(self, work: _Work) -> None:
        """The time of a request is over."""
        if not work.done.done():
            what = "its reads went on" if work.running else "it waited for a thread"
            seconds = self._timeout_seconds
            work.done.set_exception(TookTooLong(f"not done in {seconds:g} s (setting timeout_seconds): {what}"))

    def _give_up(self, work: _Work) -> None:
        """Nobody waits for this work any more, if anybody did."""
        with self._changed:
            if self._waiting.pop(work, self) is None or not work.running:
                return
            work.given_up = True
            self._stuck += 1
            if self._waiting:
                self._wake()

    def _labour(self) -> None:
        """What a thread does: one work after the other, until there is none for a while, or a stuck thread that this
        one stands in for is back."""
        while (work := self._next()) is not None:
            result, error = None, None
            try:
                result = work.make()
            except BaseException as raised:  # noqa: BLE001 it is raised where it is waited for
                error = raised
            with self._changed:
                self._running -= 1
                self._stuck -= work.given_up
                work.running = False
            with suppress(RuntimeError):  # the loop is closed: nobody waits
                work.loop.call_soon_threadsafe(_answer, work, result, error)
            del work, result, error  # an idle thread holds no answer

    def _next(self) -> _Work | None:
        """The work that waited longest, begun; None for a thread that is to end."""
        with self._changed:
            while self._alive <= self._places + self._stuck:
                if self._waiting:
                    work = next(iter(self._waiting))
                    del self._waiting[work]
                    work.running = True
                    self._running += 1
                    return work
                self._idle += 1
                woken = self._changed.wait(IDLE_SECONDS)
                self._idle -= 1
                if not woken and not self._waiting:
                    break
            self._alive -= 1
            return None


def _answer(work: _Work, result: Any, error: BaseException | None) -> None:
    if work.done.done():  # given up
        return
    if error is None:
        work.done.set_result(result)
    else:
        work.done.set_exception(error)
