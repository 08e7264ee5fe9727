"""Entries of many keys at once, without a Python object per key, for joins and appends.

Keys are grouped by bucket and partitions. Each index file is searched in the cheaper way: key by key, or leaf by leaf.
For dense keys, leaf by leaf is one read of the whole file. An entry is live only if its own segment still covers its
source file."""

import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property, partial
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from gnomon.btree import BTreeReader
from gnomon.btree.batch import Found
from gnomon.btree.blocks import LONG_READ_BYTES, LONGEST_GUESS_BYTES, LookupStats
from gnomon.btree.errors import TooMany
from gnomon.btree.key_types import key_type
from gnomon.btree.keys import KeyBatch, SortedKeys, stored_array
from gnomon.shadow.lookup.index_files import Places
from gnomon.shadow.lookup.plan import Group, Keys, Lookup, Plan, Where
from gnomon.shadow.metadata import NOT_LIVE, IndexFileEntry, Liveness, Segment, View
from gnomon.shadow.storage import in_order
from gnomon.shadow.tables import asked_values
from gnomon.sources import POINTER_COLUMNS

LOG = logging.getLogger("gnomon.match")
FILE_NAME, OFFSET = POINTER_COLUMNS[:2]
# CPU microseconds, measured in files of 0.5 million numbers and URLs. Either way: per record of a leaf that is read.
# Key by key: per key and per leaf. Leaf by leaf: per search; per record above the leaves, on their first read; per
# leaf; per key; and per byte of the long ranges read, which include gaps of up to LONGEST_GUESS_BYTES.
RECORD_US, EACH_US, EACH_LEAF_US = 0.02, 5.0, 20.0
START_US, FENCE_US, LEAF_US, KEY_US, BYTE_US = 300.0, 1.0, 10.0, 0.25, 0.0003
REQUEST_US = 10_000.0  # the wait for a read of a remote store; not measured
MOST_HITS = 100_000  # yielded at once
EACH_AT_ONCE = 64  # keys
FENCE_LENGTH = 1.5  # packed size of a record above the leaves, relative to one in a leaf; measured
WHOLE = 0.9  # a search that needs this share of the leaves reads the whole file
WORTH_KEYS = 10_000  # of a look-up by several threads
MOST_THREADS = 4  # more would wait for the interpreter's lock; two take 0.6 of the time of one
HELD_BYTES = 64 << 20  # of the entries that a thread finds ahead of its caller

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Result = TypeVar("Result")


class Matches(NamedTuple):
    """For each hit, the place of its key among the given keys, and its entry: included columns, partition columns,
    pointer columns."""

    rows: pa.Int64Array
    entries: pa.RecordBatch


@dataclass
class MatchStats(LookupStats):
    """The cost of a look-up of many keys, the number of index files that a Bloom filter ruled out, and the number
    searched in each way."""

    files_spared: int = 0
    files_by_key: int = 0
    files_by_leaf: int = 0
    files_read_whole: int = 0

    def add(self, other: LookupStats) -> None:
        super().add(other)
        if isinstance(other, MatchStats):
            for one in ("files_spared", "files_by_key", "files_by_leaf", "files_read_whole"):
                setattr(self, one, getattr(self, one) + getattr(other, one))


class Matcher:
    """Look-ups of many keys in one snapshot. `within` restricts each row to the partitions that have its values. Up to
    `threads` threads search the index files of different keys side by side."""

    def __init__(self, lookup: Lookup, view: View, stats: MatchStats, threads: int = 1) -> None:
        self._lookup = lookup
        self._view = view
        self._spec = view.spec
        self._stats = stats
        self._threads = min(threads, MOST_THREADS)

    def pieces(self, keys: Sequence[pa.Array], within: Mapping[str, pa.Array], null_safe: bool) -> Iterator[Matches]:
        """Yield the entries of each row's key in batches, in the order of the index files. A null matches nulls if
        `null_safe`, else nothing."""
        has_values = np.ones(len(keys[0]), bool)
        for array in () if null_safe else (*keys, *within.values()):
            has_values &= array.is_valid().to_numpy(zero_copy_only=False)
        rows = np.flatnonzero(has_values)
        some = pa.array(rows)
        keys, within = [_taken(key, some) for key in keys], {name: _taken(one, some) for name, one in within.items()}
        columns = [self._spec.file_names[column.name] for column in self._spec.include]
        columns += [column.name for column in self._spec.entries.pointer_columns]
        plan = self._plan(keys, within)

        def begun(part: Matcher, group: Group) -> tuple[list[Matches], Iterator[Matches]]:
            pieces = part._pieces_of(plan, keys, rows, group, columns)
            return _first(pieces, 0 if part is self else HELD_BYTES), pieces

        for first, others in self._each(plan, len(rows), begun):
            yield from first
            yield from others

    def holds(self, keys: Sequence[pa.Array], within: Mapping[str, pa.Array]) -> Bools:
        """Whether each row's key has an entry; nulls equal nulls. Only the columns that this needs are decoded."""
        held = np.zeros(len(keys[0]), bool)
        plan = self._plan(keys, within)
        names = [FILE_NAME] if self._spec.flat and within else []
        for places, there in self._each(plan, len(held), lambda part, group: part._held_of(plan, keys, group, names)):
            held[places] = there
        return held

    def _each(self, plan: Plan, keys: int, search: Callable[["Matcher", Group], Result]) -> Iterator[Result]:
        """The results of a search for each group of keys, in the order of the groups. Where several threads search, the
        groups have matchers with counts of their own, and no two groups an index file, which both might open."""
        several = self._threads > 1 and keys >= WORTH_KEYS
        groups = list(plan.groups()) if several else plan.groups()
        files = [one.file.path for group in groups for one in group.files] if several else []
        if not several or len(set(files)) < len(files):
            yield from (search(self, group) for group in groups)
            return
        _ = self._order, self._folders, self._schema  # once for all threads
        parts = [copy(self) for _ in groups]
        for part in parts:
            part._stats = MatchStats()
        searches = [partial(search, *one) for one in zip(parts, groups, strict=True)]
        for part, result in zip(parts, in_order(searches, ahead=self._threads), strict=True):
            yield result
            self._stats.add(part._stats)

    def _pieces_of(
        self, plan: Plan, keys: Sequence[pa.Array], rows: Ints, group: Group, columns: Sequence[str]
    ) -> Iterator[Matches]:
        """The entries of the keys of a group. `rows` has the row of each key."""
        batch = self._batch_of(keys, group.places)
        for segment, entry, found in self._found(plan, batch, group, columns):
            partition, kept = self._live(found, len(self._spec.include), segment, entry, group)
            for row, place in batch.spread(found.keys[kept], MOST_HITS):
                matched = rows[np.asarray(group.places)[row]]
                yield Matches(pa.array(matched), self._batch(found, partition, kept[place]))

    def _held_of(self, plan: Plan, keys: Sequence[pa.Array], group: Group, names: Sequence[str]) -> tuple[Ints, Bools]:
        """The places of the keys of a group that pass the Bloom filters, and whether each has an entry."""
        places = self._passing(plan, group)
        if not len(places):
            return places, np.zeros(0, bool)
        batch = self._batch_of(keys, places)
        there = np.zeros(len(batch.keys), bool)
        for segment, entry, found in self._found(plan, batch, group._replace(places=places), names, there):
            kept = self._live(found, 0, segment, entry, group)[1] if found.columns else slice(None)
            there[found.keys[kept]] = True
        return places, batch.by_row(there)

    # -- keys and partitions -----------------------------------------------------------------------------------------

    def _plan(self, keys: Sequence[pa.Array], within: Mapping[str, pa.Array]) -> Plan:
        """The plan of a look-up of each row's key in the partitions with the row's values."""
        selections = np.zeros(len(keys[0]), np.int64)
        wheres: list[Where] = [()]  # the values of each selection
        for name, array in within.items():
            encoded = array.dictionary_encode(null_encoding="encode")
            values = asked_values(encoded.dictionary, self._spec.partition_type(name), name)
            pairs = pa.array(selections * len(values) + encoded.indices.to_numpy()).dictionary_encode()
            numbers = [divmod(number, len(values)) for number in pairs.dictionary.to_pylist()]
            wheres = [(*wheres[before], (name, values[value])) for before, value in numbers]
            selections = pairs.indices.to_numpy().astype(np.int64)
        partitions = [self._view.partitions_of({}, where) for where in wheres]
        return Plan(self._lookup, self._view, Keys(self._spec, columns=keys), partitions, selections)

    def _batch_of(self, keys: Sequence[pa.Array], places: Places) -> KeyBatch:
        rows = pa.array(places)
        return KeyBatch([_taken(key, rows) for key in keys], self._spec.key_types)

    def _passing(self, plan: Plan, group: Group) -> Ints:
        """The places of a group that pass the Bloom filters. If the filters of all files pay, they are checked before
        the keys are sorted, since the sort takes longer."""
        places, files = np.asarray(group.places), [found.file for found in group.files]
        if not all(plan.filter_pays(file, len(places), len(files) > 1) for file in files):
            return places
        passed = np.zeros(len(places), bool)
        for file in files:
            left = np.flatnonzero(~passed)
            passed[left] = plan.passes(file, places[left], self._stats)
        self._stats.files_spared += len(files) * (not passed.any())
        return places[passed]

    # -- index files -------------------------------------------------------------------------------------------------

    def _found(
        self, plan: Plan, batch: KeyBatch, group: Group, columns: Sequence[str], there: Bools | None = None
    ) -> Iterator[tuple[Segment, IndexFileEntry, Found]]:
        """Yield the entries of the keys, one index file after the other. With `there`, only keys that are not found yet
        are looked up; of their entries it has the name of the source file, if the segment has dead files, and the
        offset, if it has masks."""
        places = np.asarray(group.places)[batch.keys.rows]  # of a row with each key
        for segment, entry in group.files:
            which = np.arange(len(places)) if there is None else np.flatnonzero(~there)
            if len(which) and plan.filter_pays(entry, len(which), len(group.files) > 1):
                asked, which = len(which), which[plan.passes(entry, places[which], self._stats)]
                self._stats.files_spared += not len(which)
                LOG.info("%s: its Bloom filter leaves %d of %d keys", entry.path, len(which), asked)
            if not len(which):
                continue
            names = columns
            if there is not None and (segment.dead or segment.masks):
                names = [FILE_NAME, OFFSET] if segment.masks else [FILE_NAME]
            for found in self._ask(segment, entry, batch.keys.some(which), names):
                yield segment, entry, found._replace(keys=which[found.keys])

    def _ask(
        self, segment: Segment, entry: IndexFileEntry, keys: SortedKeys, columns: Sequence[str]
    ) -> Iterator[Found]:
        """Search an index file in the way that costs less."""
        stats = self._stats
        with self._lookup.index_files.use(self._view, segment, entry, stats) as tree:
            each, by_leaf = costs_us(tree, entry, len(keys))
            begin, hits = stats.bytes, 0
            if each < by_leaf:
                stats.files_by_key += 1
                way, pieces = "key by key", _key_by_key(tree, keys, columns, stats)
            else:
                way, pieces = "", tree.match(keys, columns, stats)
            leaves = leaves_read = 0
            for found in pieces:
                hits += len(found.keys)
                leaves, leaves_read = found.leaves, leaves_read + found.leaves_read
                yield found
            if not way:
                is_whole = leaves_read >= WHOLE * leaves
                stats.files_read_whole += is_whole
                stats.files_by_leaf += not is_whole
                way = "read whole" if is_whole else f"{leaves_read} of {leaves} leaves"
        if not hits:
            self._lookup.record_miss(entry)
        LOG.info(
            "%s: %s, for %d keys; %d entries, %d bytes, read %d; expected: key by key %.0f us, leaf by leaf %.0f us",
            *(entry.path, way, len(keys), entry.entries, entry.size, stats.bytes - begin, each, by_leaf),
        )

    # -- entries -----------------------------------------------------------------------------------------------------

    def _live(
        self, found: Found, place: int, segment: Segment, entry: IndexFileEntry, group: Group
    ) -> tuple[Ints, Ints]:
        """For each entry found, the number of its partition in the view, or NOT_LIVE; and the indexes of the live
        entries in partitions of the group. The column at `place` has the file names; if the segment has masks, the next
        column has the offsets. All entries of a key-value folder are live, in the partition of the index file."""
        if not self._spec.entries.pointer_columns:
            rows = len(found.keys)
            return np.full(rows, self._order[entry.partition]), np.arange(rows)
        liveness = Liveness(self._spec, segment, entry, self._lookup.storage.root)
        named = liveness.source_files(found.columns[place], found.columns[place + 1] if segment.masks else None)
        partition = named.numbers(
            lambda file: self._order[file.partition] if file.partition in group.partitions else NOT_LIVE
        )
        return partition, np.flatnonzero(partition != NOT_LIVE)

    @cached_property
    def _order(self) -> dict[str, int]:
        """The number of each partition of the view."""
        return {partition: i for i, partition in enumerate(self._view.partition_values)}

    @cached_property
    def _folders(self) -> list[pa.Array]:
        """The partition columns, with a row for each partition."""
        folders = self._view.partition_values.values()
        return [stored_array([folder.get(n) for folder in folders], kind) for n, kind in self._partition_types.items()]

    @property
    def _partition_types(self) -> dict[str, str]:
        return {name: self._spec.partition_type(name) for name in self._spec.partitions}

    @cached_property
    def _schema(self) -> pa.Schema:
        included = [pa.field(column.name, key_type(column.type).arrow) for column in self._spec.include]
        folders = [pa.field(name, key_type(kind).arrow) for name, kind in self._partition_types.items()]
        pointers = self._spec.entries.pointer_columns
        return pa.schema([*included, *folders, *(pa.field(one.name, key_type(one.type).arrow) for one in pointers)])

    def _batch(self, found: Found, partition: Ints, kept: Ints) -> pa.RecordBatch:
        """The live entries, with the values of their partitions."""
        columns, some = [_taken(column, pa.array(kept)) for column in found.columns], pa.array(partition[kept])
        included = len(self._spec.include)
        arrays = [*columns[:included], *(value.take(some) for value in self._folders), *columns[included:]]
        cast = [array.cast(field.type) for array, field in zip(arrays, self._schema, strict=True)]
        return pa.RecordBatch.from_arrays(cast, schema=self._schema)


def costs_us(tree: BTreeReader, entry: IndexFileEntry, keys: int) -> tuple[float, float]:
    """The estimated costs of a search for `keys` keys in an index file: key by key, and leaf by leaf."""
    fences = tree.upper_bytes * entry.entries / max(entry.size, 1) / FENCE_LENGTH
    leaves = max(fences, 1.0)
    touched = leaves * -math.expm1(-keys / leaves)
    records = touched * entry.entries / leaves * RECORD_US
    span = min(touched * LONGEST_GUESS_BYTES, entry.size)
    each = keys * EACH_US + touched * EACH_LEAF_US + records
    by_leaf = START_US + touched * LEAF_US + records + keys * KEY_US + span * BYTE_US
    by_leaf += 0 if tree.has_inner_levels else fences * FENCE_US
    if tree.waits:
        each += touched * REQUEST_US
        are_far = span < entry.size  # so that each leaf is a read
        by_leaf += (touched if are_far else min(touched, 1 + span / LONG_READ_BYTES)) * REQUEST_US
    return each, by_leaf


def _first(pieces: Iterator[Matches], most_bytes: int) -> list[Matches]:
    """The first pieces, of about `most_bytes`."""
    first, size = list[Matches](), 0
    while size < most_bytes and (piece := next(pieces, None)) is not None:
        first.append(piece)
        size += piece.entries.nbytes
    return first


def _key_by_key(tree: BTreeReader, keys: SortedKeys, columns: Sequence[str], stats: MatchStats) -> Iterator[Found]:
    """Search a few keys at a time, since each may have any number of entries. Keys with too many are searched leaf by
    leaf."""
    for begin in range(0, len(keys), EACH_AT_ONCE):
        which = np.arange(begin, min(begin + EACH_AT_ONCE, len(keys)))
        some = keys.some(which)
        try:
            pieces: Iterable[Found] = [tree.match_each(some, columns, stats, MOST_HITS)]
        except TooMany:
            pieces = tree.match(some, columns, stats)
        for found in pieces:
            yield found._replace(keys=found.keys + begin)


def _taken(array: pa.Array, rows: pa.Array) -> pa.Array:
    """Rows of a column. If they are all rows in order, the column itself."""
    return array if len(rows) == len(array) and _is_range(rows) else array.take(rows)


def _is_range(rows: pa.Array) -> bool:
    return bool((np.diff(rows.to_numpy()) == 1).all())
