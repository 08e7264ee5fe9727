"""Caches bounded by bytes, least recently used out first. Safe to share between threads."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Generic, NamedTuple, Protocol, TypeVar

from gnomon.shadow.errors import OutOfTime
from gnomon.shadow.storage.concurrency import Begun
from gnomon.shadow.storage.waiting import check_deadline


class Sized(Protocol):
    """A value that knows its bytes in memory. The number may grow while it is used."""

    @property
    def cache_bytes(self) -> int: ...


V = TypeVar("V", bound=Sized)


class CacheCounts(NamedTuple):
    """The hits and misses of a cache, and the bytes that it holds now."""

    hits: int
    misses: int
    bytes: int


class ByteCache(Generic[V]):
    """A cache of values by key, of at most `limit` bytes. The most recently used value stays, whatever its size."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._values: OrderedDict[Hashable, V] = OrderedDict()
        self._sizes: dict[Hashable, int] = {}
        self.cache_bytes = 0  # of all values, as counted after their last use
        self._hits = self._misses = 0
        self._lock = threading.Lock()

    def use(self, key: Hashable, make: Callable[[], V]) -> AbstractContextManager[V]:
        """The cached value, or a new one, for a block. Its size is counted again after the block.

        If two threads both make it, one of the two values is kept. A value that is dropped while in use stays
        usable."""
        return _Use(self, key, make)

    def get_kept(self, keys: Iterable[Hashable]) -> list[V | None]:
        """The cached values of these keys, which then count as used last. What is not cached counts as no miss: the
        caller makes it by `use`."""
        with self._lock:
            values = []
            for key in keys:
                value = self._values.get(key)
                if value is not None:
                    self._hits += 1
                    self._values.move_to_end(key)
                values.append(value)
            return values

    def get(self, key: Hashable) -> V | None:
        """The cached value, if there is one, which then counts as used last."""
        with self._lock:
            value = self._values.get(key)
            if value is None:
                self._misses += 1
            else:
                self._hits += 1
                self._values.move_to_end(key)
            return value

    def put(self, key: Hashable, value: V) -> None:
        """Keep a value, if it is not larger than the cache."""
        size = value.cache_bytes
        if size <= self._limit:
            with self._lock:
                if self._values.setdefault(key, value) is value:
                    self._account(key, size)

    @property
    def room(self) -> int:
        """The bytes that can be added without dropping a value."""
        return self._limit - self.cache_bytes

    def add(self, key: Hashable, value: V) -> None:
        """Keep a value that is dropped first, if there is room for it."""
        size = value.cache_bytes
        with self._lock:
            if size <= self._limit - self.cache_bytes and self._values.setdefault(key, value) is value:
                self._account(key, size)
                self._values.move_to_end(key, last=False)

    def discard(self, key: Hashable) -> None:
        """Drop a value that is no longer right."""
        with self._lock:
            if self._values.pop(key, None) is not None:
                self.cache_bytes -= self._sizes.pop(key, 0)

    def resize(self, limit: int) -> None:
        """Set the most bytes that the cache holds. The excess is dropped."""
        with self._lock:
            self._limit = limit
            if self.cache_bytes > limit:
                self._shrink(0)

    def peek(self, key: Hashable) -> V | None:
        """The cached value, if there is one; it is not counted as used."""
        with self._lock:
            return self._values.get(key)

    def _account(self, key: Hashable, size: int) -> None:
        self._values.move_to_end(key)
        grown = size - self._sizes.get(key, 0)
        if grown:
            self.cache_bytes += grown
            self._sizes[key] = size
            self._shrink(1)

    def _shrink(self, least: int) -> None:
        """Drop values until the limit is met, but keep the last `least` ones."""
        while self.cache_bytes > self._limit and len(self._values) > least:
            dropped, _ = self._values.popitem(last=False)
            self.cache_bytes -= self._sizes.pop(dropped, 0)

    @property
    def counts(self) -> CacheCounts:
        with self._lock:
            return CacheCounts(self._hits, self._misses, self.cache_bytes)


class _Use(AbstractContextManager[V]):
    """The block of `ByteCache.use`."""

    __slots__ = ("_cache", "_key", "_make", "_value")
    _value: V

    def __init__(self, cache: ByteCache[V], key: Hashable, make: Callable[[], V]) -> None:
        self._cache, self._key, self._make = cache, key, make

    def __enter__(self) -> V:
        cache, key = self._cache, self._key
        with cache._lock:
            value = cache._values.get(key)
            cache._hits += value is not None
        if value is None:
            value = self._make()
            with cache._lock:
                cache._misses += 1
                value = cache._values.setdefault(key, value)
        self._value = value
        return value

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        cache, key, size = self._cache, self._key, self._value.cache_bytes
        with cache._lock:
            if cache._values.get(key) is self._value:
                cache._account(key, size)


class CacheShare(Generic[V]):
    """The part of a cache that belongs to one owner. Keys of different owners may be equal."""

    def __init__(self, cache: ByteCache[V], owner: Hashable) -> None:
        self._cache = cache
        self._owner = owner

    def get(self, key: Hashable) -> V | None:
        """As `ByteCache.get`."""
        return self._cache.get((self._owner, key))

    def get_many(self, keys: Iterable[Hashable]) -> list[V | None]:
        """As `ByteCache.get_kept`."""
        return self._cache.get_kept([(self._owner, key) for key in keys])

    def room(self) -> int:
        """As `ByteCache.room`."""
        return self._cache.room

    def add(self, key: Hashable, value: V) -> None:
        """As `ByteCache.add`."""
        self._cache.add((self._owner, key), value)

    def put(self, key: Hashable, value: V) -> None:
        """As `ByteCache.put`."""
        self._cache.put((self._owner, key), value)


class EarlyCache(ByteCache[V]):
    """A cache in which a value may be begun before it is known whether it is used."""

    def __init__(self, limit: int) -> None:
        super().__init__(limit)
        self._begun: dict[Hashable, Begun[V]] = {}

    def begin(self, key: Hashable, make: Callable[[], V]) -> Begun[V] | None:
        """Begin to make a value. Until `end`, callers of `use` wait for it. Its error goes to one of them, who may look
        again. Returns None where the value is cached or already begun. The cache keeps the value unless it is larger
        than the cache."""

        def made() -> V:
            value = make()
            self.put(key, value)
            return value

        with self._lock:
            if key in self._values or key in self._begun:
                return None
            self._misses += 1
            return self._begun.setdefault(key, Begun(made))

    def end(self, key: Hashable) -> None:
        """Tell the cache that the caller of `begin` no longer needs the value. If no thread has begun to make it, it is
        not made."""
        with self._lock:
            self._begun.pop(key).leave()

    def use(self, key: Hashable, make: Callable[[], V]) -> AbstractContextManager[V]:
        return super().use(key, lambda: self._awaited(key, make))

    def _awaited(self, key: Hashable, make: Callable[[], V]) -> V:
        begun = self._begun.get(key)
        if begun is None or begun.has_failed:
            return make()
        try:
            return begun()
        except OutOfTime:
            if not begun.is_over:
                raise
        except Exception:
            begun.has_failed = True
            raise
        check_deadline("what was begun before")
        return make()  # the deadline that passed may be that of the caller that began it
