"""The threads in which requests read files. Each index has its own for single keys and for batches, as many as the
settings say: reads of one index that hang do not block another index, and batches do not block single keys.

Clients take turns. One client may use three quarters of the threads, and never all if there are several; it may have
half of the places to wait. A request begins when the memory that it needs is free.

A wait for a store ends at the time limit of its request, or when its client leaves (`gnomon.shadow.storage.waiting`),
and work ends between keys. But nothing can end a thread that waits for a disk. A thread whose request was answered
before it ended is `stuck`, and another thread replaces it, as long as there are no more stuck threads than the settings
have threads. Beyond that, fewer threads remain to work. With none left, requests are refused at once until threads
end."""

import asyncio
import sys
import threading
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from contextvars import copy_context
from types import FrameType
from typing import Any, ParamSpec, TypeVar

from gnomon.service.errors import Overloaded, TookTooLong
from gnomon.service.memory import Hold, Memory, NeedsMemory
from gnomon.shadow.storage import within

IDLE_SECONDS = 30.0  # after which a thread without work ends
MEMORY_SECONDS = 0.02  # between two checks whether memory for waiting work is free
FOR_OTHERS = 4  # one thread in four stays free for other clients
STORAGE = "gnomon.shadow.storage"
P = ParamSpec("P")
T = TypeVar("T")


class _Work:
    """One call: its client, the context of its request, the bytes of memory that it needs, the seconds until its
    deadline (of `time.monotonic`), and the future of its result with the memory that the result holds."""

    def __init__(self, call: Callable[[Hold], Any], client: str, size: int, seconds: float) -> None:
        self.call = call
        self.client, self.size = client, size
        self.context = copy_context()
        self.seconds, self.ends = seconds, time.monotonic() + seconds
        self.loop = asyncio.get_running_loop()
        self.done: asyncio.Future[Any] = self.loop.create_future()
        self.left: Future[None] = Future()  # is done when the request no longer waits for the result
        self.hold: Hold | None = None
        self.running = False
        self.given_up = False
        self.thread = 0

    def make(self) -> Any:
        """Make the call, with a deadline for its waits."""
        return self.context.run(self._in_time)

    def _in_time(self) -> Any:
        assert self.hold is not None
        with within(self.ends - time.monotonic(), self.left, self.seconds):
            return self.call(self.hold)


class RequestThreads:
    """Threads for the requests of one index; safe to share between event loops."""

    def __init__(
        self, name: str, threads: int, max_waiting: int, timeout_seconds: float, memory: Memory | None = None
    ) -> None:
        self._name = name
        self._threads = threads
        self._max_waiting = max_waiting
        self._timeout_seconds = timeout_seconds
        self._memory = memory if memory is not None else Memory(sys.maxsize)
        self._of_client = max(1, threads - max(1, threads // FOR_OTHERS))
        self._waiting_of_client = (max_waiting + 1) // 2
        self._changed = threading.Condition()
        self._waiting: OrderedDict[str, deque[_Work]] = OrderedDict()  # by client, the next one first
        self._working: Counter[str] = Counter()  # threads by client, stuck ones included
        self._given_up: set[_Work] = set()  # that threads still work on
        self._alive = 0
        self._idle = 0
        self._running = 0
        self._refused_since: float | None = None  # no request was taken since then (of `time.monotonic`)

    @property
    def waiting(self) -> int:
        """Requests that wait for a thread or for memory."""
        return sum(map(len, list(self._waiting.values())))

    @property
    def running(self) -> int:
        """Requests that a thread works for."""
        return self._running - self.stuck

    @property
    def stuck(self) -> int:
        """Threads whose request was answered, or whose client left, before they were done."""
        return len(self._given_up)

    @property
    def saturated_seconds(self) -> float:
        """For how long all requests were refused; 0 where the next one would be taken."""
        since = self._refused_since
        return time.monotonic() - since if since is not None and self._is_full else 0.0

    @property
    def _is_full(self) -> bool:
        return not self._places or self.running + self.waiting >= self._places + self._max_waiting

    async def run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Make a blocking call that takes little memory: `work` without a client and without memory."""
        result, hold = await self.work(lambda _: call(*args, **kwargs), "", 0)
        hold.close()
        return result

    async def work(self, call: Callable[[Hold], T], client: str, size: int) -> tuple[T, Hold]:
        """Make a blocking call in a thread. Its argument holds `size` bytes of memory, and can get more.

        The call shrinks this memory to the bytes of its result, and the caller gives it back. Overloaded at once where
        too many requests wait; TookTooLong after the time limit, even if the call still runs. If the caller is
        cancelled, a waiting call is not made."""
        work = _Work(call, client, size, self._timeout_seconds)
        self._take(work)
        timer = work.loop.call_later(self._timeout_seconds, self._end, work)
        try:
            result: tuple[T, Hold] = await work.done
        finally:
            timer.cancel()
            self._give_up(work)
        return result

    def hold_at_once(self, client: str, size: int) -> Hold | None:
        """Memory for work that the caller does itself, without a wait; None where a thread could not begin the work
        now."""
        with self._changed:
            if self._waiting or self.running >= self._places or self._working[client] >= self._of_client:
                return None
            hold = self._memory.take(client, size)
            if hold is not None:
                self._refused_since = None
            return hold

    def _take(self, work: _Work) -> None:
        with self._changed:
            waiting = self.waiting
            if self._is_full:
                if self._refused_since is None:
                    self._refused_since = time.monotonic()
                raise Overloaded(
                    f"{self.running} requests of index {self._name} are worked on and {waiting} wait "
                    "(settings threads, max_waiting); ask again later"
                    if self._places
                    else self._all_stuck()
                )
            self._refused_since = None
            own = len(self._waiting.get(work.client, ()))
            if waiting and self._working[work.client] + own >= self._of_client + self._waiting_of_client:
                raise Overloaded(
                    f"{own} requests of this client wait for index {self._name}, half of those that may "
                    "(setting max_waiting); ask again later"
                )
            self._waiting.setdefault(work.client, deque()).append(work)
            self._wake()

    def _all_stuck(self) -> str:
        """Why no thread can take a request."""
        threads, frames = [work.thread for work in self._given_up], sys._current_frames()
        if all(_reads(frames.get(thread)) for thread in threads):
            return (
                f"the storage of index {self._name} does not answer: all {len(threads)} threads that may wait for it "
                "do (setting threads); ask again later"
            )
        return (
            f"all {len(threads)} threads of index {self._name} still end work whose time is over or whose client has "
            "left (setting threads); ask again later"
        )

    @property
    def _places(self) -> int:
        """The number of threads that may work, without the stuck ones."""
        return max(0, min(self._threads, 2 * self._threads - self.stuck))

    def _wake(self) -> None:
        """Let a thread take waiting work: an idle one or else a new one. The caller holds the lock."""
        if self._idle >= self.waiting:
            self._changed.notify()
        elif self._alive < self._places + self.stuck:
            with suppress(RuntimeError):  # the system has no thread left: a running one takes the work later
                threading.Thread(target=self._labour, name=f"gnomon-{self._name}", daemon=True).start()
                self._alive += 1

    def _end(self, work: _Work) -> None:
        """End a request whose time limit has passed."""
        if not work.done.done():
            what = "its reads went on" if work.running else "it waited for a thread and for memory"
            seconds = self._timeout_seconds
            work.done.set_exception(TookTooLong(f"not done in {seconds:g} s (setting timeout_seconds): {what}"))

    def _give_up(self, work: _Work) -> None:
        """Cancel the work, since nobody waits for it any more. Does nothing if it has ended."""
        with suppress(Exception):
            work.left.set_result(None)
        with self._changed:
            own = self._waiting.get(work.client)
            if own is not None and work in own:
                own.remove(work)
                self._forget_idle_client(work.client)
            elif work.running:
                work.given_up = True
                self._given_up.add(work)
                if self._waiting:
                    self._wake()

    def _labour(self) -> None:
        """The loop of a thread: it does one work after the other. It ends after a while without work, or when a stuck
        thread that it replaces is free again."""
        while (work := self._next()) is not None:
            result, error, hold = None, None, work.hold
            try:
                result = work.make()
            except BaseException as raised:  # noqa: BLE001 it is raised where it is waited for
                error = raised
            assert hold is not None
            if error is not None:
                hold.close()
            again = isinstance(error, NeedsMemory)
            if isinstance(error, NeedsMemory):
                work.size = error.size
            with self._changed:
                self._running -= 1
                self._working[work.client] -= 1
                work.running, work.hold = False, None
                if again and not work.given_up:
                    self._waiting.setdefault(work.client, deque()).appendleft(work)
                self._forget_idle_client(work.client)
                self._given_up.discard(work)
            if not again:
                with suppress(RuntimeError):  # the loop is closed
                    work.loop.call_soon_threadsafe(_answer, work, result, hold, error)
            del work, result, error, hold  # an idle thread holds no answer

    def _next(self) -> _Work | None:
        """Wait for the next work of the client whose turn it is, and mark the work as running. None: the thread has to
        end."""
        with self._changed:
            while self._alive <= self._places + self.stuck:
                for work in self._in_turn():
                    work.hold = self._memory.take(work.client, work.size)
                    if work.hold is not None:
                        return self._begun(work)
                self._idle += 1
                woken = self._changed.wait(MEMORY_SECONDS if self._waiting else IDLE_SECONDS)
                self._idle -= 1
                if not woken and not self._waiting:
                    break
            self._alive -= 1
            return None

    def _in_turn(self) -> Iterator[_Work]:
        """The next work of each client that may use another thread. The caller holds the lock."""
        return (own[0] for client, own in self._waiting.items() if own and self._working[client] < self._of_client)

    def _begun(self, work: _Work) -> _Work:
        self._waiting[work.client].popleft()
        self._waiting.move_to_end(work.client)
        self._working[work.client] += 1
        self._forget_idle_client(work.client)
        work.running, work.thread = True, threading.get_ident()
        self._running += 1
        return work

    def _forget_idle_client(self, client: str) -> None:
        """Drop a client without waiting or running work."""
        if not self._waiting.get(client, True):
            del self._waiting[client]
        if not self._working[client]:
            del self._working[client]


def _reads(frame: FrameType | None) -> bool:
    """Whether a thread is in a call of the storage."""
    while frame is not None:
        if str(frame.f_globals.get("__name__", "")).startswith(STORAGE):
            return True
        frame = frame.f_back
    return False


def _answer(work: _Work, result: Any, hold: Hold, error: BaseException | None) -> None:
    if work.done.done():  # given up
        hold.close()
    elif error is None:
        work.done.set_result((result, hold))
    else:
        work.done.set_exception(error)
