"""A caller with a deadline gets an error that names the unfinished work, and later calls are not affected."""

import threading
import time
import uuid
from concurrent.futures import Future
from typing import Any

import obstore
import pytest

from gnomon.shadow.errors import OutOfTime, StorageError
from gnomon.shadow.storage.concurrency import Threads
from gnomon.shadow.storage.objects import ObjectStorage
from gnomon.shadow.storage.retries import Passing, Patience, retried
from gnomon.shadow.storage.waiting import awaited, carried, check_deadline, left, within

FAR = 3600.0


def test_without_a_deadline_nothing_is_over() -> None:
    check_deadline("nothing")
    with within(None):
        assert left() is None


def test_of_two_deadlines_the_nearer_one_counts_and_ends_with_its_block() -> None:
    with within(FAR):
        with within(2 * FAR):
            assert 0 < (left() or 0) <= FAR
        with within(0), pytest.raises(OutOfTime, match=r"within 0 s: waited for the file; "):
            check_deadline("the file")
        with within(-0.0005, shown=10), pytest.raises(OutOfTime, match=r"within 10 s: waited for the file; "):
            check_deadline("the file")
        check_deadline("the file")
    assert left() is None


def test_a_deadline_goes_with_a_call_to_another_thread() -> None:
    seen: list[float | None] = []
    with within(FAR):
        thread = threading.Thread(target=carried(lambda: seen.append(left())))
    thread.start()
    thread.join()
    plain = threading.Thread(target=lambda: seen.append(left()))
    plain.start()
    plain.join()
    assert seen[0] is not None
    assert seen[1] is None


def test_no_try_begins_that_cannot_end_before_the_deadline() -> None:
    calls: list[int] = []

    def fails() -> None:
        calls.append(1)
        raise Passing("s3://b/f: the store is busy")

    begin = time.monotonic()
    patient = Patience(first_wait=FAR, longest_wait=FAR)
    with within(FAR / 4), pytest.raises(OutOfTime, match="another try after this: s3://b/f: the store is busy"):
        retried(fails, patient, "s3://b/f")
    assert len(calls) == 1
    assert time.monotonic() - begin < FAR / 4
    with within(0), pytest.raises(OutOfTime, match="waited for s3://b/f"):
        retried(fails, patient, "s3://b/f")
    assert len(calls) == 1


def test_a_read_that_hangs_is_left_behind_and_the_next_one_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    storage = ObjectStorage(f"memory://{uuid.uuid4().hex}/root")
    storage.put_new("f", [b"abc"])
    go_on, real = threading.Event(), obstore.get

    def hangs(*args: Any, **options: Any) -> Any:
        go_on.wait(60)
        return real(*args, **options)

    monkeypatch.setattr(obstore, "get", hangs)
    with within(0.05), pytest.raises(OutOfTime, match=r"memory://\w+/root/f; ask for less"):
        storage.read("f")
    monkeypatch.setattr(obstore, "get", real)
    with within(FAR):
        assert storage.read("f") == b"abc"
    go_on.set()


def test_a_failure_of_the_store_stays_what_it_is_under_a_deadline() -> None:
    def fails() -> None:
        raise Passing("s3://b/f: the store is busy")

    with within(FAR), pytest.raises(StorageError, match="gave up after 2 tries") as caught:
        retried(fails, Patience(tries=2, first_wait=0.001), "s3://b/f")
    assert not isinstance(caught.value, OutOfTime)


def test_a_call_that_was_not_begun_in_time_never_is() -> None:
    never: Future[int] = Future()
    with within(0), pytest.raises(OutOfTime):
        awaited(never, "a thread")
    assert never.cancelled()


def test_a_pool_has_so_many_threads_and_no_more_and_ends_with_the_process() -> None:
    pool, go_on, names = Threads("test-pool", 3), threading.Event(), set[str]()

    def work() -> bool:
        names.add(threading.current_thread().name)
        assert threading.current_thread().daemon
        return go_on.wait(60)

    futures = [pool.submit(work) for _ in range(10)]
    go_on.set()
    assert all(future.result(60) for future in futures)
    assert 1 <= len(names) <= 3
    failure: Future[int] = pool.submit(lambda: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        failure.result(60)


def test_calls_that_hang_keep_no_thread_from_others_once_their_callers_have_left() -> None:
    pool, end = Threads("of this test", 2), threading.Event()
    hung = [pool.submit(end.wait) for _ in range(2)]
    waiting = pool.submit(lambda: "done")
    with within(0.1), pytest.raises(OutOfTime):
        awaited(waiting, "a free thread")
    again = pool.submit(lambda: "answered")
    for future in hung:
        pool.leave(future)
    assert again.result(FAR) == "answered"
    end.set()
    assert [future.result(FAR) for future in hung] == [True, True]
    assert [pool.submit(lambda: 1).result(FAR) for _ in range(5)] == [1] * 5
