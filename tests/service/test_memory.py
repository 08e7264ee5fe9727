"""service/memory.py: requests share a number of bytes, and one client never gets all of them."""

import random
import threading

import pytest

from gnomon.service.memory import Hold, Memory, NeedsMemory


def taken(memory: Memory, client: str, size: int) -> Hold:
    hold = memory.take(client, size)
    assert hold is not None
    return hold


def test_bytes_are_held_until_they_are_given_back() -> None:
    memory = Memory(100)
    with taken(memory, "a", 40) as first, taken(memory, "b", 50):
        assert (memory.held, memory.take("c", 20)) == (90, None)
        first.shrink_to(10)
        third = memory.take("c", 20)
        assert third is not None
        assert memory.held == 80
        third.close()
        third.close()
    assert memory.held == 0


def test_one_client_gets_half_and_what_asks_for_more_gets_that_half() -> None:
    memory = Memory(100)
    first = taken(memory, "a", 30)
    assert memory.take("a", 30) is None
    assert taken(memory, "b", 1000).size == 50
    first.need(50)
    assert first.grow_to(1000)
    assert first.size == 50, "a request that needs more than the share runs with the share"


def test_a_hold_that_cannot_grow_says_what_it_needs_and_keeps_what_it_has() -> None:
    memory = Memory(100)
    first, second, other = taken(memory, "a", 10), taken(memory, "b", 50), taken(memory, "c", 10)
    with pytest.raises(NeedsMemory) as found:
        first.need(45)
    assert (found.value.size, first.size, memory.held) == (45, 10, 70)
    first.shrink_to(20)
    assert first.size == 10, "less is not more"
    del other
    assert memory.held == first.size + second.size, "a hold that is forgotten gives its bytes back"


def test_a_moved_hold_is_given_back_once() -> None:
    memory = Memory(100)
    with taken(memory, "a", 40) as hold:
        moved = hold.moved()
    assert memory.held == 40
    moved.close()
    assert memory.held == 0


def test_threads_that_take_and_give_back_at_random_leave_nothing_and_never_exceed() -> None:
    memory, most = Memory(1000), [0]

    def use(seed: int) -> None:
        chance = random.Random(seed)
        for _ in range(2000):
            hold = memory.take(f"client {chance.randrange(3)}", chance.randrange(400))
            if hold is not None:
                hold.grow_to(chance.randrange(600))
                most[0] = max(most[0], memory.held)
                hold.shrink_to(chance.randrange(600))
                hold.close()

    threads = [threading.Thread(target=use, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert memory.held == 0
    assert 0 < most[0] <= 1000


def test_holds_of_a_client_without_bytes_are_forgotten() -> None:
    memory = Memory(1000)
    for number in range(100):
        hold = Hold(memory, f"client {number}")
        hold.grow_to(10)
        hold.close()
    assert not memory._of_clients
