"""service/indexes/threads.py: limits of running and waiting requests and of time; a request that hangs blocks no
other."""

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextvars import ContextVar
from functools import partial
from typing import Any
from uuid import uuid4

import pytest

from gnomon.service.errors import Overloaded, TookTooLong
from gnomon.service.indexes.threads import RequestThreads
from gnomon.service.memory import Hold, Memory
from gnomon.shadow.storage.waiting import check_deadline, left

LONG = 60.0  # seconds for events that must not happen


class Gate:
    """Work that runs until the test ends it, and counts the concurrent runs."""

    def __init__(self) -> None:
        self._open = threading.Event()
        self._lock = threading.Lock()
        self.begun = threading.Semaphore(0)
        self.inside = self.most = self.all = 0

    def pass_through(self) -> str:
        with self._lock:
            self.inside += 1
            self.all += 1
            self.most = max(self.most, self.inside)
        self.begun.release()
        assert self._open.wait(LONG)
        with self._lock:
            self.inside -= 1
        return "through"

    def open(self) -> None:
        self._open.set()


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate()
    yield gate
    gate.open()


def run(test: Coroutine[Any, Any, None]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(LONG):
            await test

    asyncio.run(limited())


async def work(threads: RequestThreads, call: Callable[[], Any]) -> Any:
    """The result of a call, each for a client of its own."""
    result, hold = await threads.work(lambda _: call(), uuid4().hex, 0)
    hold.close()
    return result


async def begun(gate: Gate, times: int) -> None:
    for _ in range(times):
        assert await asyncio.to_thread(gate.begun.acquire, timeout=LONG)


async def until(condition: Any) -> None:
    while not condition():
        await asyncio.sleep(0.005)


def test_results_and_errors_come_back_to_who_asked() -> None:
    threads = RequestThreads("a", 2, 200, LONG)

    async def ask() -> None:
        assert await asyncio.gather(*(threads.run(divmod, n, 7) for n in range(100))) == [
            divmod(n, 7) for n in range(100)
        ]
        with pytest.raises(ZeroDivisionError):
            await threads.run(divmod, 1, 0)
        assert (threads.running, threads.waiting, threads.stuck) == (0, 0, 0)

    run(ask())


def test_no_more_work_at_a_time_than_there_are_threads(gate: Gate) -> None:
    threads = RequestThreads("a", 3, 10, LONG)

    async def ask() -> None:
        asked = [asyncio.create_task(work(threads, gate.pass_through)) for _ in range(10)]
        await begun(gate, 3)
        assert (threads.running, threads.waiting) == (3, 7)
        gate.open()
        assert await asyncio.gather(*asked) == ["through"] * 10
        assert gate.most == 3

    run(ask())


def test_what_is_beyond_those_that_may_wait_is_refused_at_once(gate: Gate) -> None:
    threads = RequestThreads("a", 1, 2, LONG)

    async def ask() -> None:
        asked = [asyncio.create_task(work(threads, gate.pass_through)) for _ in range(3)]
        await begun(gate, 1)
        with pytest.raises(Overloaded, match="1 requests of index a are worked on and 2 wait"):
            await work(threads, gate.pass_through)
        gate.open()
        assert await asyncio.gather(*asked) == ["through"] * 3
        assert await work(threads, gate.pass_through) == "through"

    run(ask())


def test_none_may_wait_and_free_threads_still_take_work() -> None:
    threads = RequestThreads("a", 2, 0, LONG)

    async def ask() -> None:
        assert await asyncio.gather(*(work(threads, partial(str, n)) for n in (1, 2))) == ["1", "2"]

    run(ask())


def test_a_request_is_answered_in_its_time_though_its_reads_hang(gate: Gate) -> None:
    threads = RequestThreads("a", 1, 10, 0.05)

    async def ask() -> None:
        with pytest.raises(TookTooLong, match=r"not done in 0\.05 s .*: its reads went on"):
            await work(threads, gate.pass_through)
        assert (threads.running, threads.stuck) == (0, 1)
        gate.open()
        await until(lambda: threads.stuck == 0)

    run(ask())


def test_a_request_that_never_got_a_thread_says_so_and_its_work_is_not_done(gate: Gate) -> None:
    threads = RequestThreads("a", 1, 10, LONG)

    async def ask() -> None:
        first = asyncio.create_task(work(threads, gate.pass_through))
        await begun(gate, 1)
        threads._timeout_seconds = 0.05
        with pytest.raises(TookTooLong, match="it waited for a thread and for memory"):
            await work(threads, gate.pass_through)
        gate.open()
        await first
        assert await threads.run(str, 1) == "1"
        assert gate.all == 1

    run(ask())


def test_stuck_threads_are_replaced_up_to_a_bound_and_then_requests_are_refused_at_once(gate: Gate) -> None:
    threads = RequestThreads("a", 2, 10, 0.05)

    async def ask() -> None:
        for stuck in (2, 4):
            failed = await asyncio.gather(*(work(threads, gate.pass_through) for _ in range(2)), return_exceptions=True)
            assert [type(error) for error in failed] == [TookTooLong] * 2
            assert threads.stuck == stuck
            if stuck == 2:
                threads._timeout_seconds = LONG
                assert await threads.run(str, 1) == "1", "two threads stand in for those that hang"
                threads._timeout_seconds = 0.05
        with pytest.raises(Overloaded, match="all 4 threads of index a still end work whose time is over"):
            await threads.run(str, 1)
        gate.open()
        await until(lambda: threads.stuck == 0)
        threads._timeout_seconds = LONG
        assert await asyncio.gather(*(work(threads, partial(str, n)) for n in range(9))) == [str(n) for n in range(9)]
        assert threads._alive <= 2

    run(ask())


def test_reads_of_one_index_that_hang_leave_another_alone(gate: Gate) -> None:
    hangs, works = RequestThreads("a", 2, 2, LONG), RequestThreads("b", 2, 2, LONG)

    async def ask() -> None:
        asked = [asyncio.create_task(work(hangs, gate.pass_through)) for _ in range(4)]
        await begun(gate, 2)
        assert await works.run(str, 1) == "1"
        gate.open()
        await asyncio.gather(*asked)

    run(ask())


def test_work_of_a_caller_who_left_is_not_begun(gate: Gate) -> None:
    threads = RequestThreads("a", 1, 2, LONG)

    async def ask() -> None:
        first = asyncio.create_task(work(threads, gate.pass_through))
        await begun(gate, 1)
        left = [asyncio.create_task(work(threads, gate.pass_through)) for _ in range(2)]
        await until(lambda: threads.waiting == 2)
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        assert threads.waiting == 0
        gate.open()
        await first
        assert await threads.run(str, 1) == "1"
        assert gate.all == 1

    run(ask())


def test_work_has_the_context_of_who_asked_and_the_time_of_its_request() -> None:
    asker = ContextVar("asker", default="nobody")
    threads = RequestThreads("a", 2, 2, 30.0)

    def seen() -> tuple[str, float | None]:
        return asker.get(), left()

    async def ask() -> None:
        asker.set("somebody")
        name, seconds = await threads.run(seen)
        assert name == "somebody"
        assert seconds is not None
        assert 0 < seconds <= 30

    run(ask())


def test_clients_take_turns_and_one_leaves_a_quarter_of_the_threads_to_others(gate: Gate) -> None:
    threads, order = RequestThreads("a", 4, 20, LONG), []

    async def ask() -> None:
        greedy = [asyncio.create_task(threads.work(lambda _: gate.pass_through(), "greedy", 0)) for _ in range(4)]
        await begun(gate, 3)
        await asyncio.sleep(0.05)
        assert (threads.running, threads.waiting) == (3, 1), "the fourth thread is for others"
        result, _ = await threads.work(lambda _: "answered", "other", 0)
        assert result == "answered"
        gate.open()
        await asyncio.gather(*greedy)
        one = RequestThreads("a", 1, 20, LONG)
        held = Gate()
        first = asyncio.create_task(one.work(lambda _: held.pass_through(), "greedy", 0))
        await begun(held, 1)
        later = [asyncio.create_task(one.work(partial(_note, order, "greedy"), "greedy", 0)) for _ in range(3)]
        await until(lambda: one.waiting == 3)
        later += [asyncio.create_task(one.work(partial(_note, order, "other"), "other", 0)) for _ in range(2)]
        await until(lambda: one.waiting == 5)
        held.open()
        await asyncio.gather(first, *later)

    run(ask())
    assert order == ["greedy", "other", "greedy", "other", "greedy"]


def _note(order: list[str], name: str, _: Hold) -> None:
    order.append(name)


def test_one_client_has_half_of_the_places_to_wait(gate: Gate) -> None:
    threads = RequestThreads("a", 1, 4, LONG)

    async def ask() -> None:
        greedy = [asyncio.create_task(threads.work(lambda _: gate.pass_through(), "greedy", 0)) for _ in range(3)]
        await until(lambda: threads.waiting == 2)
        with pytest.raises(Overloaded, match="2 requests of this client wait for index a"):
            await threads.work(lambda _: gate.pass_through(), "greedy", 0)
        other = asyncio.create_task(threads.work(lambda _: gate.pass_through(), "other", 0))
        await until(lambda: threads.waiting == 3)
        gate.open()
        await asyncio.gather(*greedy, other)

    run(ask())


def test_memory_for_a_caller_itself_is_given_only_where_a_thread_would_begin_at_once(gate: Gate) -> None:
    async def test() -> None:
        memory = Memory(100)
        threads = RequestThreads("a", 4, 200, LONG, memory)

        def is_given(client: str, size: int = 10) -> bool:
            hold = threads.hold_at_once(client, size)
            if hold is not None:
                assert memory.held >= size
                hold.close()
            return hold is not None

        assert is_given("one")
        tasks = [asyncio.create_task(threads.work(lambda _: gate.pass_through(), "one", 10)) for _ in range(3)]
        await begun(gate, 3)
        assert (is_given("one"), is_given("two")) == (False, True), "the last thread is for other clients"
        taken = memory.take("three", 50)
        assert taken is not None
        assert not is_given("two", 30), "the memory is held"
        taken.close()
        tasks.append(asyncio.create_task(threads.work(lambda _: gate.pass_through(), "one", 10)))
        await until(lambda: threads.waiting == 1)
        assert not is_given("two"), "others wait"
        gate.open()
        for task in tasks:
            (await task)[1].close()
        assert is_given("one")

    run(test())


def test_work_begins_when_its_memory_is_free_and_is_done_again_where_it_needs_more() -> None:
    memory, tries = Memory(1000), []
    threads = RequestThreads("a", 2, 10, LONG, memory)

    def needy(hold: Hold) -> bytes:
        tries.append(hold.size)
        hold.need(400)
        hold.shrink_to(30)
        return b"a" * 30

    async def ask() -> None:
        others = memory.take("b", 500), memory.take("c", 300)
        waits = asyncio.create_task(threads.work(needy, "a", 300))
        await asyncio.sleep(0.1)
        assert tries == []
        others[1].close()  # type: ignore[union-attr]
        await until(lambda: tries == [300])
        result, hold = await waits
        assert (result, hold.size, memory.held, tries) == (b"a" * 30, 30, 530, [300])
        hold.close()
        small = memory.take("d", 150)
        again = asyncio.create_task(threads.work(needy, "a", 300))
        await until(lambda: len(tries) > 1)
        assert not again.done(), "400 bytes are not free"
        small.close()  # type: ignore[union-attr]
        _, hold = await again
        assert tries == [300, 300, 400]
        hold.close()
        others[0].close()  # type: ignore[union-attr]
        assert memory.held == 0

    run(ask())


def test_work_of_a_client_that_left_ends_at_its_next_check() -> None:
    threads, begun_, ended = RequestThreads("a", 1, 2, LONG), threading.Event(), threading.Event()

    def keys(_: Hold) -> None:
        begun_.set()
        try:
            while True:
                check_deadline("the next key")
                time.sleep(0.001)
        finally:
            ended.set()

    async def ask() -> None:
        asked = asyncio.create_task(threads.work(keys, "a", 0))
        assert await asyncio.to_thread(begun_.wait, LONG)
        asked.cancel()
        assert await asyncio.to_thread(ended.wait, LONG)
        await until(lambda: threads.stuck == 0)

    run(ask())


def test_storage_is_blamed_only_where_all_threads_are_in_its_calls(gate: Gate) -> None:
    threads, reads = RequestThreads("a", 1, 10, 0.05), {"__name__": "gnomon.shadow.storage.local", "gate": gate}
    exec("def read():\n    return gate.pass_through()", reads)

    async def ask() -> None:
        for _ in range(2):
            with pytest.raises(TookTooLong):
                await work(threads, reads["read"])  # type: ignore[arg-type]
        with pytest.raises(Overloaded, match="the storage of index a does not answer: all 2 threads"):
            await work(threads, str)
        gate.open()
        await until(lambda: threads.stuck == 0)

    run(ask())


def test_a_thread_without_work_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gnomon.service.indexes.threads.IDLE_SECONDS", 0.01)
    threads = RequestThreads("a", 2, 2, LONG)

    async def ask() -> None:
        for _ in range(3):
            assert await threads.run(str, 1) == "1"
            await until(lambda: threads._alive == 0)

    run(ask())


def test_a_system_without_threads_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that could not start does not count."""

    async def test() -> None:
        threads = RequestThreads("pages", 2, 10, LONG)
        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", _no_thread)
            waiting = [asyncio.create_task(threads.run(lambda: "made")) for _ in range(5)]
            while threads.waiting < 5:
                await asyncio.sleep(0)
        assert await threads.run(lambda: "now") == "now"
        assert await asyncio.gather(*waiting) == ["made"] * 5

    run(test())


def _no_thread(self: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")
