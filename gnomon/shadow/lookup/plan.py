"""Keys to the index files that may hold them: by hash and partitions, and by Bloom filters, for one key as for many."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from gnomon.btree.blocks import LookupStats
from gnomon.btree.hashing import plain_column, xxhash64, xxhash64_columns
from gnomon.btree.key_types import Stored
from gnomon.btree.keys import Key, stable_order, stored_array, stored_values
from gnomon.shadow.errors import UsageError
from gnomon.shadow.lookup.index_files import BloomFilters, Flags, IndexFileCache, Numbers, Places
from gnomon.shadow.metadata import IndexFileEntry, IndexSpec, SegmentFile, View
from gnomon.shadow.storage import CacheCounts, Storage
from gnomon.shadow.tables import as_partition_value
from gnomon.shadow.values import key_batch, read_key, typed_key, typed_keys

PLAIN = frozenset((str, int))  # types of the values of one column alone
FEW_KEYS = 16  # up to this number, keys are hashed faster one by one
Where = tuple[tuple[str, Stored], ...]  # partition columns with a value each


class ParsedKey(NamedTuple):
    """A requested key: its stored columns in stored form, and its partition values."""

    stored: Key
    where: Where = ()


def parse_key(key: object, spec: IndexSpec) -> ParsedKey:
    """A key as a caller gives it: the value of a one-column key; a tuple or list in key order; or a dict by name.

    Values may have the column's type in the index or in the source, or be text. UsageError or KeyTypeError for an
    invalid key."""
    values: Sequence[object]
    if type(key) in PLAIN and len(spec.keys) == 1 and not spec.keys[0].partition:
        return ParsedKey((read_key(key, spec.keys[0]),))
    if isinstance(key, Mapping):
        names = [column.name for column in spec.keys]
        if set(key) != set(names):
            raise UsageError(
                f"the key needs the columns {', '.join(names)}; found {', '.join(map(str, key)) or 'none'}"
            )
        values = [key[name] for name in names]
    elif isinstance(key, (tuple, list)):
        values = key
    else:
        values = (key,)
    if len(values) != len(spec.keys):
        names = [column.name for column in spec.keys]
        raise UsageError(f"the key has {len(names)} columns ({', '.join(names)}); found {len(values)} values")
    return parse_values(values, spec)


def parse_keys(keys: Sequence[object] | pa.Array, spec: IndexSpec) -> list[ParsedKey]:
    """Keys in the forms of `parse_key`, or an array of the values of one column, or of structs with all columns.
    UsageError also for an array with a value that the type of the index does not hold."""
    if not isinstance(keys, pa.Array):
        return [parse_key(key, spec) for key in keys]
    arrays, _ = typed_keys(key_batch(keys, spec), spec, "keys", all_held=True)
    pairs = list(zip(spec.keys, arrays, strict=True))
    stored = [stored_values(array, column.type) for column, array in pairs if not column.partition]
    places = [(column, array.to_pylist()) for column, array in pairs if column.partition]
    return [
        ParsedKey(
            tuple(values[row] for values in stored),
            tuple((one.name, as_partition_value(values[row], one.type, one.name)) for one, values in places),
        )
        for row in range(len(keys))
    ]


def parse_values(values: Sequence[object], spec: IndexSpec) -> ParsedKey:
    """The first columns of a key from their values: all of them, or fewer."""
    stored: list[Any] = []
    where: list[tuple[str, Stored]] = []
    for column, value in zip(spec.keys, values, strict=False):
        if type(value) not in PLAIN and isinstance(value, (pa.Scalar, np.datetime64, np.timedelta64)):
            array = pa.array(np.array([value])) if isinstance(value, np.generic) else pa.repeat(value, 1)
            value = typed_key(array, column, "the key", all_held=True)[0].as_py()
        if column.partition:
            where.append((column.name, as_partition_value(value, column.type, column.name)))
        else:
            stored.append(read_key(value, column))
    return ParsedKey(tuple(stored), tuple(where))


class Keys:
    """Keys of a look-up with their hashes: up to FEW_KEYS of them are hashed one by one, others column by column."""

    def __init__(self, spec: IndexSpec, stored: Sequence[Key] = (), columns: Sequence[pa.Array] | None = None) -> None:
        """The keys in stored form, or their columns."""
        self.stored = stored
        self._types, self._bucketing = spec.key_types, spec.bucketing
        self._columns = columns
        self._few = columns is None and len(stored) <= FEW_KEYS
        self._buckets: Numbers | None = None
        self._hashes: Numbers | None = None

    @cached_property
    def _given(self) -> Sequence[pa.Array]:
        if self._columns is not None:
            return self._columns
        return [stored_array([key[i] for key in self.stored], kind) for i, kind in enumerate(self._types)]

    @cached_property
    def _plain(self) -> list[pa.Array]:
        return list(map(plain_column, self._given, self._types))

    @property
    def buckets(self) -> Numbers:
        if self._buckets is None:  # not by `cached_property`, whose lock takes longer than the hash of a key
            if self._few:
                self._buckets = list(map(self._bucketing.of, self.stored))
            else:
                buckets = self._bucketing.of_columns(self._given, self._plain)
                self._buckets = buckets.tolist() if self._columns is None else buckets
        return self._buckets

    @property
    def hashes(self) -> Numbers:
        """The hashes that Bloom filters take."""
        if self._hashes is None:
            few = self._few
            self._hashes = [xxhash64(key, self._types) for key in self.stored] if few else xxhash64_columns(self._plain)
        return self._hashes


def buckets_of_keys(keys: Sequence[Key], spec: IndexSpec) -> list[int]:
    """The bucket of each key, in stored form."""
    return list(Keys(spec, keys).buckets) if keys else []


class Lookup:
    """The index files and Bloom filters of an index for look-ups, in caches bounded by bytes."""

    def __init__(self, storage: Storage, cache_bytes: int, filters: bool = True) -> None:
        self.storage = storage
        self.filters = BloomFilters(storage, cache_bytes // 2) if filters else None
        self.index_files = IndexFileCache(storage, cache_bytes - (cache_bytes // 2 if filters else 0))
        self._caches = (*self.index_files.caches, *(self.filters.caches if self.filters is not None else ()))

    @property
    def cache_bytes(self) -> int:
        """The bytes that the caches hold."""
        return sum([cache.cache_bytes for cache in self._caches])

    @property
    def cache_counts(self) -> dict[str, CacheCounts]:
        """The hits, misses and bytes of each cache."""
        counts = self.index_files.counts
        return counts if self.filters is None else {**counts, "filters": self.filters.counts}

    def record_miss(self, entry: IndexFileEntry) -> None:
        """Record that a search of an index file found none of its keys."""
        if self.filters is not None:
            self.filters.record_miss(entry)


class Group(NamedTuple):
    """Keys of one bucket and of the same partitions: their places among the keys of the look-up, and the index files
    that may hold them, by partition and then by segment."""

    places: Places
    partitions: Collection[str]
    files: Sequence[SegmentFile]


class Plan:
    """The index files that may hold the keys of a look-up, and which of these keys pass their Bloom filters. Each way
    to search the files asks here, for one key as for many."""

    def __init__(
        self,
        lookup: Lookup,
        view: View,
        keys: Keys,
        partitions: Sequence[Collection[str]],
        selections: Numbers,
    ) -> None:
        """`partitions` has sets of partitions of the view, `selections` the number of each key's set."""
        self._filters = lookup.filters
        self._view = view
        self._keys = keys
        self._partitions = partitions
        self._selections = selections

    def groups(self) -> Iterator[Group]:
        """The keys that have a partition, each in one group."""
        view, buckets = self._view, self._view.spec.buckets
        if isinstance(self._selections, list):
            of_keys = zip(self._selections, self._keys.buckets, strict=True)
            numbers: Numbers = [selection * buckets + bucket for selection, bucket in of_keys]
        else:
            numbers = self._selections * buckets + np.asarray(self._keys.buckets)
        for number, places in _grouped(numbers):
            selection, bucket = divmod(number, buckets)
            if partitions := self._partitions[selection]:
                yield Group(places, partitions, view.files_in(partitions, bucket))

    def filter_pays(self, entry: IndexFileEntry, keys: int, spread: bool) -> bool:
        """Whether to read the Bloom filter of an index file before a search for a number of keys. `spread`: a key may
        lie in several files."""
        return self._filters is not None and self._filters.pays(entry, keys, spread, self._view.filter_bytes)

    def passes(self, entry: IndexFileEntry, places: Places, stats: LookupStats) -> Flags:
        """For each of some keys, whether it passes the Bloom filter of an index file."""
        assert self._filters is not None
        return self._filters.passes(entry, places, self._keys.hashes, self._view.filter_bytes, stats)

    def cached_answers(self, entries: Sequence[IndexFileEntry], stats: LookupStats) -> list[bool | None]:
        """For each index file, whether the first key passes its filter in memory; None where no whole filter is in
        memory."""
        assert self._filters is not None
        return self._filters.cached_answers(entries, int(self._keys.hashes[0]), stats)

    def filter_is_kept(self, entry: IndexFileEntry) -> bool:
        """Whether the whole filter of an index file is in memory."""
        return self._filters is not None and self._filters.needs_no_round_trip(entry)


def _grouped(numbers: Numbers) -> Iterable[tuple[int, Places]]:
    """Each number with its places: those of a list in the order of their first places, those of an array ascending."""
    if isinstance(numbers, list):
        found: dict[int, list[int]] = {}
        for place, number in enumerate(numbers):
            found.setdefault(number, []).append(place)
        return found.items()
    if not len(numbers):
        return []
    order = stable_order(numbers)
    begins = np.flatnonzero(np.diff(numbers[order], prepend=-1))
    return zip(numbers[order[begins]].tolist(), np.split(order, begins[1:]), strict=True)
