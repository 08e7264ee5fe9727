"""Keys to pointers: bucket, index file, B-Tree; an entry counts only if its own segment still covers its file."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, NamedTuple

from btree import BTreeReader, DamagedIndexFile, bucket_of
from btree.keys import Key, to_stored
from btree.reader import LookupStats
from shadow.caches import ByteCache
from shadow.errors import UsageError
from shadow.index_files import POINTER_FIELDS, open_index_file, pointer_of
from shadow.partitions import as_partition_value, matches
from shadow.segments import IndexFileEntry, Segment, SourceFileEntry
from shadow.spec import IndexSpec
from shadow.storage import Storage
from shadow.view import View
from sources import Pointer


class Hit(NamedTuple):
    """One row found: its pointer, the source file it lies in as it was indexed, and the included columns."""

    pointer: Pointer
    file: SourceFileEntry
    included: Key


@dataclass(frozen=True)
class Wanted:
    """A key asked for: the stored form of its stored columns, and the partition values it names."""

    stored: Key
    where: tuple[tuple[str, str | None], ...] = ()


def parse_key(key: object, spec: IndexSpec) -> Wanted:
    """A key as a caller gives it: the value of a one-column key; a tuple or list in key order; or a dict by name.

    Values may be of the column's type or in text form. UsageError and KeyTypeError name what is wrong."""
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
    where: list[tuple[str, str | None]] = []
    for column, value in zip(spec.keys, values, strict=True):
        if column.partition:
            where.append((column.name, as_partition_value(value)))
        else:
            stored.append(to_stored(value, column.type, column.name))
    return Wanted(tuple(stored), tuple(where))


def bucket_number(key: object, spec: IndexSpec) -> int:
    """The bucket a key is looked for in."""
    return bucket_of(parse_key(key, spec).stored, spec.key_types, spec.buckets)


class Lookup:
    """Answers keys from the index alone. Index files read before are kept in a cache bounded by bytes."""

    def __init__(self, storage: Storage, cache_bytes: int) -> None:
        self._storage = storage
        self._trees: ByteCache[BTreeReader] = ByteCache(cache_bytes)

    def find(
        self,
        view: View,
        keys: Sequence[Wanted],
        where: Mapping[str, str | None],
        stats: LookupStats,
    ) -> list[list[Hit]]:
        """For each key its hits: by partition, then by segment, then in the order of the index file."""
        found: list[list[Hit]] = [[] for _ in keys]
        for partition, bucket, places in self._work(view, keys, where):
            for segment in view.segments:
                entry = segment.by_bucket.get((partition, bucket))
                if entry is None:
                    continue
                with self._tree(view.spec, segment, entry, stats) as tree:
                    answers = tree.get_many([keys[i].stored for i in places], stats)
                for i, values in zip(places, answers, strict=True):
                    found[i].extend(self._hits(values, segment, entry))
        return found

    def _work(
        self, view: View, keys: Sequence[Wanted], where: Mapping[str, str | None]
    ) -> list[tuple[str, int, list[int]]]:
        """The (partition, bucket) pairs to look in, each with the places of its keys."""
        work: dict[tuple[str, int], list[int]] = {}
        types, buckets = view.spec.key_types, view.spec.buckets
        selected: dict[tuple[tuple[str, str | None], ...], Sequence[str]] = {}
        for i, key in enumerate(keys):
            if key.where not in selected:
                conditions = {**where, **dict(key.where)}
                agree = all(where.get(column, value) == value for column, value in key.where)
                selected[key.where] = _partitions(view, conditions) if agree else ()
            bucket = bucket_of(key.stored, types, buckets)
            for partition in selected[key.where]:
                work.setdefault((partition, bucket), []).append(i)
        return [(partition, bucket, places) for (partition, bucket), places in sorted(work.items())]

    def _tree(
        self, spec: IndexSpec, segment: Segment, entry: IndexFileEntry, stats: LookupStats
    ) -> AbstractContextManager[BTreeReader]:
        return self._trees.use(entry.path, lambda: open_index_file(self._storage, segment, entry, spec, stats))

    def _hits(self, values: list[Key], segment: Segment, entry: IndexFileEntry) -> list[Hit]:
        hits = []
        for value in values:
            pointer = pointer_of(value)
            file = segment.live.get(pointer.data_filename)
            if file is not None:
                hits.append(Hit(pointer, file, value[:-POINTER_FIELDS]))
            elif pointer.data_filename not in segment.partition_of:
                raise DamagedIndexFile(
                    f"an entry names {pointer.data_filename}, which its segment does not cover",
                    f"{self._storage.root}/{entry.path}",
                    0,
                )
        return hits


def _partitions(view: View, conditions: Mapping[str, str | None]) -> Sequence[str]:
    """The partitions that have the values asked for."""
    if not conditions:
        return view.partitions
    return [partition for partition, values in view.partition_values.items() if matches(values, conditions)]
