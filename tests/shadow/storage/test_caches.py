"""The cache holds at most its limit, even if values grow and many threads use it."""

import random
import threading

import pytest

from gnomon.shadow.errors import OutOfTime, StorageError
from gnomon.shadow.storage.caches import ByteCache, CacheShare, EarlyCache
from tests.profiles import examples


class Thing:
    def __init__(self, size: int) -> None:
        self.cache_bytes = size


def sizes(cache: ByteCache[Thing], keys: str) -> list[int]:
    """The cached values of the keys; 0 where the cache has none."""
    found = []
    for key in keys:
        with cache.use(key, lambda: Thing(0)) as thing:
            found.append(thing.cache_bytes)
    return found


def put(cache: ByteCache[Thing], key: str, size: int) -> None:
    with cache.use(key, lambda: Thing(size)):
        pass


def test_a_value_is_made_once() -> None:
    cache: ByteCache[Thing] = ByteCache(100)
    with cache.use("a", lambda: Thing(1)) as first, cache.use("a", lambda: Thing(2)) as second:
        assert first is second


def test_a_cache_made_smaller_drops_what_is_more() -> None:
    cache: ByteCache[Thing] = ByteCache(100)
    for key in "abc":
        cache.put(key, Thing(30))
    cache.resize(70)
    assert [cache.peek(key) is not None for key in "abc"] == [False, True, True]
    cache.resize(0)
    assert cache.cache_bytes == 0
    cache.put("d", Thing(1))
    assert cache.peek("d") is None


def test_the_least_recently_used_goes_first() -> None:
    cache: ByteCache[Thing] = ByteCache(100)
    for key in "abc":
        put(cache, key, 30)
    put(cache, "a", 0)  # used again
    put(cache, "d", 30)
    assert cache.cache_bytes == 90
    assert sizes(cache, "acd") == [30, 30, 30]
    assert sizes(cache, "b") == [0]


def test_what_a_value_grows_to_in_use_counts() -> None:
    cache: ByteCache[Thing] = ByteCache(100)
    put(cache, "a", 10)
    put(cache, "b", 10)
    with cache.use("b", lambda: Thing(0)) as thing:
        thing.cache_bytes = 95
    assert cache.cache_bytes == 95
    assert sizes(cache, "ab") == [0, 95]


def test_the_value_used_last_is_kept_whatever_its_size() -> None:
    cache: ByteCache[Thing] = ByteCache(100)
    put(cache, "a", 10)
    put(cache, "big", 1000)
    assert cache.cache_bytes == 1000
    put(cache, "c", 10)
    assert cache.cache_bytes == 10


def test_a_value_that_cannot_be_made_leaves_nothing() -> None:
    cache: ByteCache[Thing] = ByteCache(100)

    def fail() -> Thing:
        raise OSError("unreachable")

    with pytest.raises(OSError, match="unreachable"), cache.use("a", fail):
        pass
    assert sizes(cache, "a") == [0]


def test_an_error_in_use_leaves_the_value() -> None:
    cache: ByteCache[Thing] = ByteCache(100)
    with pytest.raises(KeyError), cache.use("a", lambda: Thing(7)):
        raise KeyError
    assert cache.cache_bytes == 7


def test_threads_keep_the_limit_and_never_meet_an_error() -> None:
    cache: ByteCache[Thing] = ByteCache(1000)
    failures: list[BaseException] = []

    def work(seed: int) -> None:
        rng = random.Random(seed)
        try:
            for _ in range(examples(2000)):
                with cache.use(rng.randrange(50), lambda: Thing(10)) as thing:
                    thing.cache_bytes = min(thing.cache_bytes + rng.randrange(10), 200)
        except BaseException as error:
            failures.append(error)
            raise

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert 0 < cache.cache_bytes <= 1000
    with cache.use("last", lambda: Thing(1)):
        pass
    assert cache.cache_bytes == sum(cache._sizes.values())


def test_what_is_put_is_found_within_the_limit_and_counted() -> None:
    cache: ByteCache[Thing] = ByteCache(100)
    assert cache.get("a") is None
    things = {key: Thing(40) for key in "abc"}
    for key, thing in things.items():
        cache.put(key, thing)
        cache.put(key, Thing(1))  # a second value for the key: the first stays
    cache.put("huge", Thing(101))
    assert [cache.peek(key) for key in ("a", "b", "c", "huge")] == [None, things["b"], things["c"], None]
    assert cache.get("b") is things["b"]
    cache.put("d", Thing(40))
    assert [cache.peek(key) is not None for key in "abcd"] == [False, True, False, True]
    assert cache.counts == (1, 1, 80)


def test_what_is_added_drops_nothing_and_is_dropped_first() -> None:
    cache: ByteCache[Thing] = ByteCache(30)
    share = CacheShare(cache, "owner")
    cache.put("hot", Thing(10))
    share.add("first", Thing(10))
    share.add("second", Thing(11))  # no room
    assert (share.room(), [value is not None for value in share.get_many(["first", "second"])]) == (10, [True, False])
    cache.put("new", Thing(10))
    cache.get("hot")
    cache.resize(40)
    share.add("third", Thing(10))
    cache.put("newer", Thing(10))
    assert share.get_many(["third"]) == [None]
    assert [cache.peek(key) is not None for key in ("hot", "new", "newer")] == [True] * 3


# -- values that are begun before they are used ----------------------------------------------------------------------


def test_a_value_that_was_begun_is_made_once_and_waited_for() -> None:
    cache: EarlyCache[Thing] = EarlyCache(100)
    go, made = threading.Event(), []

    def make() -> Thing:
        assert go.wait(30)
        made.append(1)
        return Thing(7)

    assert cache.begin("a", make) is not None
    assert cache.begin("a", make) is None
    threading.Timer(0.01, go.set).start()
    with cache.use("a", make) as thing:
        assert thing.cache_bytes == 7
    cache.end("a")
    with cache.use("a", make) as again:
        assert again is thing
    assert made == [1]
    assert cache.counts.bytes == 7


def test_a_value_that_was_begun_and_never_used_is_kept_if_there_is_room() -> None:
    cache: EarlyCache[Thing] = EarlyCache(100)
    for key, size in (("a", 60), ("b", 101)):
        begun = cache.begin(key, lambda size=size: Thing(size))
        assert begun is not None
        begun()
        cache.end(key)
    assert sizes(cache, "a") == [60]
    assert cache.peek("b") is None


def test_who_uses_a_value_that_failed_gets_its_error_and_later_ones_a_new_try() -> None:
    cache: EarlyCache[Thing] = EarlyCache(100)

    def fail() -> Thing:
        raise StorageError("no")

    cache.begin("a", fail)
    with pytest.raises(StorageError, match="no"), cache.use("a", lambda: Thing(1)):
        pass
    cache.end("a")
    with cache.use("a", lambda: Thing(2)) as thing:
        assert thing.cache_bytes == 2


def test_the_time_of_who_began_a_value_is_not_that_of_others() -> None:
    cache: EarlyCache[Thing] = EarlyCache(100)

    def late() -> Thing:
        raise OutOfTime("of another")

    cache.begin("a", late)
    with cache.use("a", lambda: Thing(3)) as thing:
        assert thing.cache_bytes == 3
