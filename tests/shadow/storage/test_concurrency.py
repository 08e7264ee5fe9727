"""Concurrent calls: results in order, no more calls than the window, no useless call, no thread waiting for another."""

import threading
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from gnomon.shadow.errors import OutOfTime
from gnomon.shadow.storage.concurrency import THREADS, ahead, in_order
from gnomon.shadow.storage.waiting import left, within


class Crowd:
    """Calls that count how many of them run at once."""

    def __init__(self) -> None:
        self.now = self.most = 0
        self.begun: list[int] = []
        self._lock = threading.Lock()

    def call(self, number: int) -> int:
        with self._lock:
            self.begun.append(number)
            self.now += 1
            self.most = max(self.most, self.now)
        with self._lock:
            self.now -= 1
        return number


def meeting(count: int) -> list[Callable[[], bool]]:
    """Calls that end only when all of them have begun."""
    barrier = threading.Barrier(count)
    return [lambda: barrier.wait(60) >= 0] * count


def test_results_come_in_the_order_of_the_calls() -> None:
    crowd = Crowd()
    assert list(in_order([partial(crowd.call, i) for i in range(100)], ahead=4)) == list(range(100))
    assert sorted(crowd.begun) == list(range(100))
    assert crowd.most <= 4
    assert list(in_order([])) == []


def test_calls_are_under_way_at_once() -> None:
    assert list(in_order(meeting(8))) == [True] * 8


def test_no_more_is_begun_than_may_be_held() -> None:
    crowd = Crowd()
    results = in_order([partial(crowd.call, i) for i in range(10)], [60] * 10, held=100)
    assert next(results) == 0
    assert set(crowd.begun) == {0}  # the next call begins when its result is requested
    assert list(results) == list(range(1, 10))
    assert crowd.most == 1
    assert list(in_order([partial(crowd.call, 10)] * 2, [1000, 1000], held=100)) == [10, 10]


def test_calls_that_settle_have_ended_when_one_has_failed() -> None:
    begun, failed, ended = threading.Barrier(3), threading.Event(), list[int]()

    def fails() -> None:
        begun.wait(60)
        failed.set()
        raise OSError

    def writes(number: int) -> None:
        begun.wait(60)
        failed.wait(60)
        threading.Event().wait(0.1)  # the caller has the error by now
        ended.append(number)

    with pytest.raises(OSError):
        list(in_order([fails, partial(writes, 1), partial(writes, 2)], settled=True))
    assert sorted(ended) == [1, 2]


def test_when_one_fails_or_no_more_is_taken_the_rest_is_not_begun() -> None:
    crowd = Crowd()

    def fails() -> int:
        raise ValueError("the first")

    results = in_order([fails, *(partial(crowd.call, i) for i in range(50))], ahead=2)
    with pytest.raises(ValueError, match="the first"):
        list(results)
    assert len(crowd.begun) <= 1
    some = in_order([partial(crowd.call, i) for i in range(100, 150)], ahead=2)
    assert next(some) == 100
    some.close()
    assert len([number for number in crowd.begun if number >= 100]) <= 3


def test_closing_does_not_wait_for_a_call_that_is_stuck() -> None:
    stuck, go_on = threading.Event(), threading.Event()

    def hangs() -> bool:
        stuck.set()
        return go_on.wait(60)

    results = in_order([lambda: stuck.wait(60), hangs])
    assert next(results)
    results.close()
    assert not go_on.is_set()
    go_on.set()


@pytest.mark.slow
def test_calls_within_calls_need_no_free_thread() -> None:
    def outer() -> int:
        return sum(in_order([lambda: sum(in_order([lambda: 1] * 20))] * 20))

    assert list(in_order([outer] * (2 * THREADS), ahead=2 * THREADS)) == [400] * (2 * THREADS)


def test_the_deadline_goes_along() -> None:
    with within(3600):
        assert None not in list(in_order([left] * 10))
    with within(0), pytest.raises(OutOfTime):
        list(in_order([left] * 2))


def test_a_value_is_made_while_the_one_before_is_used() -> None:
    barrier = threading.Barrier(2)

    def values() -> Iterator[int]:
        yield 0
        barrier.wait(60)
        yield 1
        raise OSError("the third")

    made = ahead(values())
    assert next(made) == 0
    barrier.wait(60)  # the other thread is at the second value
    assert next(made) == 1
    with pytest.raises(OSError, match="the third"):
        next(made)


def test_who_takes_no_more_values_leaves_no_thread_that_makes_them() -> None:
    begun, ended = threading.Event(), list[int]()

    def values() -> Iterator[int]:
        yield 0
        begun.set()
        threading.Event().wait(0.1)
        ended.append(1)
        yield 1

    made = ahead(values())
    assert next(made) == 0
    begun.wait(60)
    made.close()
    assert ended == [1]


def test_what_values_set_in_their_context_holds_for_all_of_them() -> None:
    def values() -> Iterator[float | None]:
        with within(60):
            yield left()
            yield left()

    assert all(ahead(values()))
    assert left() is None
