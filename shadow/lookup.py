"""Keys to pointers: bucket, index file, B-Tree; an entry counts only if its own segment still covers its file."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from btree import BTreeReader, DamagedIndexFile, bucket_of
from btree.hash_columns import buckets_of, plain_keys, xxhash64_columns
from btree.hashing import xxhash64
from btree.keys import Key, Stored
from btree.reader import LookupStats
from shadow.caches import ByteCache
from shadow.errors import UsageError
from shadow.filter_files import KeyFilters
from shadow.index_files import open_index_file, pointer_of
from shadow.key_forms import read_key
from shadow.partitions import as_partition_value, matches
from shadow.segments import IndexFileEntry, Segment, SourceFileEntry
from shadow.spec import IndexSpec
from shadow.storage import Storage
from shadow.view import View
from sources import Pointer

FEW_KEYS = 16  # which are hashed faster one by one
NO_POINTER = Pointer("", 0, 0, 0)  # of an entry that holds values


class Hit(NamedTuple):
    """One row found: its pointer, the source file it lies in as it was indexed, and the included columns."""

    pointer: Pointer
    file: SourceFileEntry
    included: Key


@dataclass(frozen=True)
class Wanted:
    """A key asked for: the stored form of its stored columns, and the partition values it names."""

    stored: Key
    where: tuple[tuple[str, Stored], ...] = ()


def parse_key(key: object, spec: IndexSpec) -> Wanted:
    """A key as a caller gives it: the value of a one-column key; a tuple or list in key order; or a dict by name.

    Values may be of the column's type, in the index or in the source, or in text form. UsageError and KeyTypeError name
    what is wrong."""
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
    return Wanted(tuple(stored), tuple(where))


def bucket_number(key: object, spec: IndexSpec) -> int:
    """The bucket a key is looked for in."""
    return bucket_of(parse_key(key, spec).stored, spec.key_types, spec.buckets)


def buckets_of_keys(keys: Sequence[Key], spec: IndexSpec) -> list[int]:
    """The bucket of each key, in stored form."""
    return list(buckets_of(plain_keys(keys, spec.key_types), spec.buckets).tolist()) if keys else []


class _Asked:
    """The keys of one look-up, hashed: few of them one by one, many of them column by column."""

    def __init__(self, keys: Sequence[Wanted], spec: IndexSpec) -> None:
        self._keys = [key.stored for key in keys]
        self._spec = spec
        self._many = len(keys) > FEW_KEYS

    @cached_property
    def _columns(self) -> list[pa.Array]:
        return plain_keys(self._keys, self._spec.key_types)

    @cached_property
    def buckets(self) -> list[int]:
        types, buckets = self._spec.key_types, self._spec.buckets
        if self._many:
            return list(buckets_of(self._columns, buckets).tolist())
        return [bucket_of(key, types, buckets) for key in self._keys]

    @cached_property
    def hashes(self) -> npt.NDArray[np.int64] | list[int]:
        """What filters are asked for."""
        if self._many:
            return xxhash64_columns(self._columns)
        return [xxhash64(key, self._spec.key_types) for key in self._keys]


class Lookup:
    """Answers keys from the index alone. Index files and filters read before are kept in caches bounded by bytes."""

    def __init__(self, storage: Storage, cache_bytes: int, filters: bool = True) -> None:
        self._storage = storage
        self.filters = KeyFilters(storage, cache_bytes // 2) if filters else None
        self._trees: ByteCache[BTreeReader] = ByteCache(cache_bytes - (cache_bytes // 2 if filters else 0))

    def find(
        self,
        view: View,
        keys: Sequence[Wanted],
        where: Mapping[str, Stored],
        stats: LookupStats,
    ) -> list[list[Hit]]:
        """For each key its hits: by partition, then by segment, then in the order of the index file."""
        found: list[list[Hit]] = [[] for _ in keys]
        asked = _Asked(keys, view.spec)
        partitions = _selected(view, keys, where)
        files = self._files(view, asked.buckets, partitions)
        spread = sum(len(places) for _, _, places in files) > len(keys)
        for segment, entry, places in files:
            if self.filters and self.filters.pays(entry, len(places), spread, view.filter_bytes):
                places = self.filters.likely(entry, places, asked.hashes, view.filter_bytes, stats)
                if not places:
                    continue
            with self.tree(view.spec, segment, entry, stats) as tree:
                answers = tree.get_many([keys[i].stored for i in places], stats)
            if not any(answers):
                self.asked_in_vain(entry)
            for i, values in zip(places, answers, strict=True):
                found[i].extend(self._hits(values, view.spec, segment, entry))
        if view.spec.flat:
            for i, names in enumerate(partitions):
                found[i] = sorted((hit for hit in found[i] if hit.file.partition in names), key=_partition)
        return found

    def _files(
        self, view: View, buckets: Sequence[int], partitions: Sequence[Mapping[str, object]]
    ) -> list[tuple[Segment, IndexFileEntry, Sequence[int]]]:
        """The index files to look in, each with the places of its keys; `partitions` are those of each key."""
        work: dict[tuple[str, int], list[int]] = {}
        for i, (bucket, names) in enumerate(zip(buckets, partitions, strict=True)):
            folders = ([""] if names else []) if view.spec.flat else names
            for folder in folders:
                work.setdefault((folder, bucket), []).append(i)
        return [
            (segment, entry, places)
            for place, places in sorted(work.items())
            for segment in view.segments
            if (entry := segment.by_bucket.get(place)) is not None
        ]

    @property
    def root(self) -> str:
        """Where the index lies."""
        return self._storage.root

    def asked_in_vain(self, entry: IndexFileEntry) -> None:
        """An index file was read, and held none of the keys it was asked for."""
        if self.filters:
            self.filters.asked_in_vain(entry)

    def tree(
        self, spec: IndexSpec, segment: Segment, entry: IndexFileEntry, stats: LookupStats
    ) -> AbstractContextManager[BTreeReader]:
        """An index file, open and kept."""
        return self._trees.use(entry.path, lambda: open_index_file(self._storage, segment, entry, spec, stats))

    def _hits(self, values: list[Key], spec: IndexSpec, segment: Segment, entry: IndexFileEntry) -> list[Hit]:
        if spec.holds_values:
            written = segment.source_files_in[entry.partition][0]
            return [Hit(NO_POINTER, written, value) for value in values]
        hits = []
        included = len(spec.include)
        for value in values:
            pointer = pointer_of(value)
            file = segment.live.get(pointer.data_filename)
            if file is not None:
                hits.append(Hit(pointer, file, value[:included]))
            elif pointer.data_filename not in segment.partition_of:
                raise DamagedIndexFile(
                    f"an entry names {pointer.data_filename}, which its segment does not cover",
                    f"{self._storage.root}/{entry.path}",
                    0,
                )
        return hits


def _selected(view: View, keys: Sequence[Wanted], where: Mapping[str, Stored]) -> list[Mapping[str, object]]:
    """The partitions that each key may lie in, in order."""
    selected: dict[tuple[tuple[str, Stored], ...], Mapping[str, object]] = {}
    for key in keys:
        if key.where not in selected:
            both = {**dict(key.where), **where}
            selected[key.where] = _partitions(view, both) if matches(both, dict(key.where)) else {}
    return [selected[key.where] for key in keys]


def _partitions(view: View, conditions: Mapping[str, Stored]) -> Mapping[str, object]:
    """The partitions that have the values asked for."""
    if not conditions:
        return view.partition_values
    return {partition: values for partition, values in view.partition_values.items() if matches(values, conditions)}


def _partition(hit: Hit) -> str:
    return hit.file.partition
