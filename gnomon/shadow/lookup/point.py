"""Keys to pointers: bucket, index file, B-Tree. An entry is live only if its own segment still covers its file."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from gnomon.btree import bucket_of
from gnomon.btree.blocks import LookupStats
from gnomon.btree.hashing import buckets_of, plain_keys, xxhash64, xxhash64_columns
from gnomon.btree.key_types import Stored
from gnomon.btree.keys import Key
from gnomon.shadow.errors import UsageError
from gnomon.shadow.lookup.bloom_filters import BloomFilters
from gnomon.shadow.lookup.index_files import IndexFileCache
from gnomon.shadow.lookup.matches import Hits
from gnomon.shadow.lookup.tree_search import DEFAULTS, InFile, LookupOptions, Search
from gnomon.shadow.metadata import IndexFileEntry, IndexSpec, View
from gnomon.shadow.storage import CacheCounts, Storage, step_of
from gnomon.shadow.tables import as_partition_value
from gnomon.shadow.values import read_key

FEW_KEYS = 16  # up to this number, keys are hashed faster one by one


@dataclass(frozen=True)
class ParsedKey:
    """A requested key: its stored columns in stored form, and its partition values."""

    stored: Key
    where: tuple[tuple[str, Stored], ...] = ()


def parse_key(key: object, spec: IndexSpec) -> ParsedKey:
    """A key as a caller gives it: the value of a one-column key; a tuple or list in key order; or a dict by name.

    Values may have the column's type in the index or in the source, or be text. UsageError or KeyTypeError for an
    invalid key."""
    names = [column.name for column in spec.keys]
    if isinstance(key, Mapping):
        if set(key) != set(names):
            raise UsageError(
                f"the key needs the columns {', '.join(names)}; found {', '.join(map(str, key)) or 'none'}"
            )
        values = [key[name] for name in names]
    elif isinstance(key, (tuple, list)):
        values = list(key)
    else:
        values = [key]
    if len(values) != len(names):
        raise UsageError(f"the key has {len(names)} columns ({', '.join(names)}); found {len(values)} values")
    stored: list[Any] = []
    where: list[tuple[str, Stored]] = []
    for column, value in zip(spec.keys, values, strict=True):
        if column.partition:
            where.append((column.name, as_partition_value(value, column.type, column.name)))
        else:
            stored.append(read_key(value, column))
    return ParsedKey(tuple(stored), tuple(where))


def buckets_of_keys(keys: Sequence[Key], spec: IndexSpec) -> list[int]:
    """The bucket of each key, in stored form."""
    return list(buckets_of(plain_keys(keys, spec.key_types), spec.buckets).tolist()) if keys else []


class _HashedKeys:
    """The keys of one look-up with their hashes: a few are hashed one by one, many column by column."""

    def __init__(self, keys: Sequence[ParsedKey], spec: IndexSpec) -> None:
        self.keys = [key.stored for key in keys]
        self._spec = spec
        self._many = len(keys) > FEW_KEYS

    @cached_property
    def _columns(self) -> list[pa.Array]:
        return plain_keys(self.keys, self._spec.key_types)

    @cached_property
    def buckets(self) -> list[int]:
        types, buckets = self._spec.key_types, self._spec.buckets
        if self._many:
            return list(buckets_of(self._columns, buckets).tolist())
        return [bucket_of(key, types, buckets) for key in self.keys]

    @cached_property
    def hashes(self) -> npt.NDArray[np.int64] | list[int]:
        """The hashes that Bloom filters take."""
        if self._many:
            return xxhash64_columns(self._columns)
        return [xxhash64(key, self._spec.key_types) for key in self.keys]


class Lookup:
    """Answers keys from the index alone. Caches bounded by bytes keep index files and filters."""

    def __init__(self, storage: Storage, cache_bytes: int, filters: bool = True) -> None:
        self.storage = storage
        self.filters = BloomFilters(storage, cache_bytes // 2) if filters else None
        self.index_files = IndexFileCache(storage, cache_bytes - (cache_bytes // 2 if filters else 0))

    @property
    def cache_bytes(self) -> int:
        """The bytes that the caches hold."""
        return self.index_files.cache_bytes + (0 if self.filters is None else self.filters.cache_bytes)

    @property
    def cache_counts(self) -> dict[str, CacheCounts]:
        """The hits, misses and bytes of each cache."""
        counts = self.index_files.counts
        return counts if self.filters is None else {**counts, "filters": self.filters.counts}

    def find(
        self,
        view: View,
        keys: Sequence[ParsedKey],
        where: Mapping[str, Collection[Stored]],
        stats: LookupStats,
        options: LookupOptions = DEFAULTS,
    ) -> list[Hits]:
        """The hits of each key, by partition, then by segment, then in the order of the index file."""
        found = [Hits() for _ in keys]
        bound, before_reads = options.bound, options.before_reads
        with step_of(options.trace, "key") as step:
            hashed = _HashedKeys(keys, view.spec)
            partitions = _selected(view, keys, where)
            files = self._files(view, hashed.buckets, partitions)
            step.say(keys=len(keys), bucket=hashed.buckets[0] if len(keys) == 1 else None, index_files=len(files))
        if before_reads is not None and (
            remote := [file for file in files if not self.index_files.needs_no_round_trip(file.entry)]
        ):
            before_reads(remote)
        search = Search(view, self.index_files, self.filters, hashed, partitions, options)
        for answer in search.answers(files):
            stats.add(answer.stats)
            for i, hits in zip(answer.places, answer.hits, strict=True):
                found[i].take(hits, bound.hits, view.spec.flat)
            for i in answer.places if answer.failure is not None else ():
                found[i].failure = answer.failure
        if view.spec.flat:
            for hits in found:
                hits.cut(bound.hits, True)
        return found

    def _files(self, view: View, buckets: Sequence[int], partitions: Sequence[Collection[str]]) -> list[InFile]:
        """The index files to search, each with the places of its keys. `partitions` has the partitions of each key."""
        work: dict[tuple[str, int], list[int]] = {}
        for i, (bucket, names) in enumerate(zip(buckets, partitions, strict=True)):
            for folder in view.spec.folders_of(names):
                work.setdefault((folder, bucket % view.spec.buckets_in(folder)), []).append(i)
        return [
            InFile(*found, places)
            for place, places in sorted(work.items())
            for found in view.index_files.get(place, ())
        ]

    @property
    def root(self) -> str:
        """Where the index lies."""
        return self.storage.root

    def record_miss(self, entry: IndexFileEntry) -> None:
        """Record that a search of an index file found none of its keys."""
        if self.filters:
            self.filters.record_miss(entry)


def _selected(view: View, keys: Sequence[ParsedKey], where: Mapping[str, Collection[Stored]]) -> list[Collection[str]]:
    """The partitions that may hold each key, in order."""
    selected: dict[tuple[tuple[str, Stored], ...], Collection[str]] = {}
    for key in keys:
        if key.where not in selected:
            selected[key.where] = view.partitions_of(where, key.where)
    return [selected[key.where] for key in keys]
