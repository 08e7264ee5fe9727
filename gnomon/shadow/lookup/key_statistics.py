"""Statistics of all keys of a snapshot, exact, from its index files alone.

A key lies in one bucket, so each bucket is counted alone. Its files are merged in key order, so that memory holds some
entries of each file, and equal keys are counted as runs of columns."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from gnomon.btree import DamagedIndexFile
from gnomon.btree.blocks import LookupStats
from gnomon.btree.key_types import key_type
from gnomon.btree.keys import Key, adjacent, comparable, compare, key_order, order_key, stored_array, stored_values
from gnomon.shadow.lookup.entries import shown_column
from gnomon.shadow.lookup.index_files import prove_index_file
from gnomon.shadow.lookup.ordered import ALL_KEYS, CODE, SOURCE, OrderedEntries, Source
from gnomon.shadow.lookup.plan import Lookup
from gnomon.shadow.metadata import IndexSpec, View
from gnomon.shadow.storage import in_order

MOST_FREQUENT = 10  # keys that are named
Ints = npt.NDArray[np.int64]
Counted = tuple[Key, int]  # a key in stored form, and its number of rows


class Piece(NamedTuple):
    """Distinct keys, or rows, as columns, and for each the number of its rows."""

    columns: list[pa.Array]
    rows: Ints


@dataclass(frozen=True)
class KeyStatistics:
    """The live rows of a snapshot, those with a null in the key, and the distinct keys (a null is a value of its own,
    and all NaN are one). `least` and `greatest` are keys without a null, `frequent` the keys with the most rows, and
    their numbers: the first ones in key order where numbers are equal. A key is a tuple of the values of the `columns`
    of the key, as rows have them."""

    columns: tuple[str, ...]
    rows: int
    distinct_keys: int
    null_rows: int
    least: tuple[Any, ...] | None
    greatest: tuple[Any, ...] | None
    frequent: tuple[tuple[tuple[Any, ...], int], ...]


def key_statistics(lookup: Lookup, view: View, stats: LookupStats) -> KeyStatistics:
    """The statistics of a snapshot. Errors as of a range of all keys."""
    entries = OrderedEntries(lookup, view, ALL_KEYS, {}, False, None, of_keys=True)
    total = _Tally(view.spec)
    calls = [partial(_counted, entries, group) for group in _groups(view.spec, entries)]
    for one in in_order(calls) if lookup.storage.is_remote else (call() for call in calls):
        total.add(one)
    stats.add(entries.cost)
    return total.shown()


def _groups(spec: IndexSpec, entries: OrderedEntries) -> list[list[Source]]:
    """The index files in groups, so that the files with a key are in one. Numbers of hashed buckets, which folders may
    have of their own, divide `spec.buckets`."""
    least = math.gcd(spec.buckets, *spec.folder_buckets.values()) if spec.cuts is None else spec.buckets
    groups: dict[int, list[Source]] = {}
    for source in entries.sources:
        groups.setdefault(source.place.file.bucket % least, []).append(source)
    return list(groups.values())


def _counted(entries: OrderedEntries, group: list[Source]) -> "_Tally":
    tally, runs = _Tally(entries.view.spec), _Runs(entries)
    for table in entries.merged(group, None):
        tally.count(*runs.closed(table))
    tally.count(*runs.rest())
    return tally


def distinct_rows(
    lookup: Lookup,
    view: View,
    stats: LookupStats,
    included: bool = False,
    in_bucket: Callable[[int], bool] | None = None,
) -> Iterator[Piece]:
    """Yield the distinct keys of a snapshot, or with `included` the distinct rows of key and included columns, each
    with its number of live rows. The columns are in stored form: the stored key columns, then the key's partition
    columns, then the included ones, and the rows are in the order of these columns. All rows of a key are in one piece.
    `in_bucket` selects hashed buckets: only theirs are read.

    Each index file is proved before it is read. Errors as of a range of all keys, maybe after some pieces, and
    DamagedIndexFile where keys are not in order, or a file has another number of entries than it states."""
    spec = view.spec
    entries = OrderedEntries(lookup, view, ALL_KEYS, {}, False, None, of_keys=True, included=included)
    sources = [one for one in entries.sources if in_bucket is None or in_bucket(one.place.file.bucket)]
    proofs = [partial(prove_index_file, lookup.storage, spec, one.place.file) for one in sources]
    for _ in in_order(proofs) if lookup.storage.is_remote else (proof() for proof in proofs):
        pass
    runs = _Runs(entries, [one.type for one in spec.include] if included else [])
    order = [place for place, key in enumerate(spec.keys) if not key.partition]
    order += [place for place, key in enumerate(spec.keys) if key.partition]
    order += range(len(order), len(order) + len(spec.include) * included)
    is_moved = any(key.partition for key in spec.keys)

    def moved(piece: Piece) -> Piece:
        if in_bucket is not None and len(piece.rows):
            stored = [piece.columns[place] for place, key in enumerate(spec.keys) if not key.partition]
            if not all(map(in_bucket, np.unique(spec.bucketing.of_columns(stored)).tolist())):
                raise DamagedIndexFile("holds an entry of another bucket", entries.root, 0, action=spec.remedy)
        columns, rows = [piece.columns[place] for place in order], piece.rows
        if is_moved:
            types = [runs.types[place] for place in order]
            sorted_ = key_order([comparable(one, kind) for one, kind in zip(columns, types, strict=True)])
            columns, rows = [one.take(pa.array(sorted_)) for one in columns], rows[sorted_]
        return Piece(columns, rows)

    for table in entries.batches(None) if in_bucket is None else entries.merged(sources, None):
        yield moved(runs.closed(table))
    yield moved(runs.rest())
    for one in sources:
        if one.entries != one.place.file.entries:
            where, expected = f"{entries.root}/{one.place.file.path}", f"{one.place.file.entries} entries"
            raise DamagedIndexFile("", where, 0, expected=expected, found=one.entries, action=spec.remedy)
    stats.add(entries.cost)


class _Runs:
    """Runs of equal keys in entries in the order of the stored key. A key whose run may go on is held back."""

    def __init__(self, entries: OrderedEntries, included: Sequence[str] = ()) -> None:
        """`included` are the types of the included columns of the entries. Entries of one key are distinct where these
        columns differ."""
        self._entries, self._spec = entries, entries.view.spec
        self.types = [*(key.type for key in self._spec.keys), *included]
        self._stored = [place for place, key in enumerate(self._spec.keys) if not key.partition]
        self._combinations = entries.combinations
        self._keys = [stored_array([], kind) for kind in self.types]
        self._rows = np.zeros(0, np.int64)

    def closed(self, table: pa.Table) -> Piece:
        """The distinct keys of entries, as columns, that no further entry has, and their numbers of rows.
        DamagedIndexFile where a key is less than the one before it."""
        columns = [pa.concat_arrays(pair) for pair in zip(self._keys, self._columns(table), strict=True)]
        rows = np.concatenate([self._rows, np.ones(len(table), np.int64)])
        keys = [comparable(one, kind) for one, kind in zip(columns, self.types, strict=True)]
        equal, rising = adjacent([keys[place] for place in self._stored])
        if not rising.all():
            raise self._unsorted(table, columns, int(np.argmin(rising)))
        last = pa.array([len(rows) - 1])
        ends = [keys[place].take(last) for place in self._stored]  # the greatest stored key
        if len(self._stored) < len(keys):
            order = key_order(keys)
            columns, keys = ([one.take(pa.array(order)) for one in some] for some in (columns, keys))
            rows, equal = rows[order], adjacent(keys)[0]
        firsts = np.flatnonzero(np.concatenate([[True], ~equal]))
        rows, picked = np.add.reduceat(rows, firsts), pa.array(firsts)
        columns = [one.take(picked) for one in columns]
        every = pa.array(np.zeros(len(firsts), np.int64))
        is_open = compare([end.take(every) for end in ends], [keys[at].take(picked) for at in self._stored])[0]
        self._keys, self._rows = [one.filter(pa.array(is_open)) for one in columns], rows[is_open]
        return Piece([one.filter(pa.array(~is_open)) for one in columns], rows[~is_open])

    def rest(self) -> Piece:
        """As `closed`, at the end of the entries."""
        return Piece(self._keys, self._rows)

    def _unsorted(self, table: pa.Table, columns: list[pa.Array], before: int) -> DamagedIndexFile:
        """The error of the key that follows the one at `before`. That one, if held back, is of an earlier table."""
        entries, spec = self._entries, self._spec
        source = entries.sources[table.column(SOURCE)[before + 1 - len(self._rows)].as_py()]
        found, least = (
            [stored_values(columns[at].slice(row, 1), self.types[at])[0] for at in self._stored]
            for row in (before + 1, before)
        )
        return DamagedIndexFile(
            "keys are not in order",
            f"{entries.root}/{source.place.file.path}",
            0,
            expected=f"a key of at least {least!r}",
            found=repr(found),
            action=spec.remedy,
        )

    def _columns(self, table: pa.Table) -> Iterator[pa.Array]:
        """The columns of the key, with those of partitions, and the included ones."""
        own = iter(table.columns)
        for place, key in enumerate(self._spec.keys):
            if key.partition:
                values = stored_array([one[place] for one in self._combinations], key.type)
                yield values.take(table.column(CODE).combine_chunks())
            else:
                yield next(own).combine_chunks().cast(key_type(key.type).arrow)
        for kind in self.types[len(self._spec.keys) :]:
            yield next(own).combine_chunks().cast(key_type(kind).arrow)


class _Tally:
    """Counts of keys, each of which is counted once. Keys are in stored form."""

    def __init__(self, spec: IndexSpec) -> None:
        self._spec = spec
        self.rows = self.distinct = self.null_rows = 0
        self.ends: list[Key] = []  # the least and the greatest one
        self.frequent: list[Counted] = []

    def count(self, columns: list[pa.Array], rows: Ints) -> None:
        """Count distinct keys in key order, given as columns, with their numbers of rows."""
        has_null = np.logical_or.reduce([one.is_null().to_numpy(False) for one in columns])
        self.rows += int(rows.sum())
        self.distinct += len(rows)
        self.null_rows += int(rows[has_null].sum())
        sound = np.flatnonzero(~has_null)
        self._widen(self._keys(columns, sound[[0, -1]]) if len(sound) else [])
        most = np.flatnonzero(rows >= (self.frequent[-1][1] if len(self.frequent) == MOST_FREQUENT else 1))
        most = most[np.argsort(-rows[most], kind="stable")[:MOST_FREQUENT]]
        self._rank(list(zip(self._keys(columns, most), rows[most].tolist(), strict=True)))

    def add(self, other: "_Tally") -> None:
        self.rows, self.distinct = self.rows + other.rows, self.distinct + other.distinct
        self.null_rows += other.null_rows
        self._widen(other.ends)
        self._rank(other.frequent)

    def _widen(self, keys: list[Key]) -> None:
        ordered = sorted([*self.ends, *keys], key=order_key)
        self.ends = [ordered[0], ordered[-1]] if ordered else []

    def _rank(self, counted: list[Counted]) -> None:
        ranked = sorted([*self.frequent, *counted], key=lambda one: (-one[1], order_key(one[0])))
        self.frequent = ranked[:MOST_FREQUENT]

    def _keys(self, columns: list[pa.Array], picked: Ints) -> list[Key]:
        some = pa.array(picked)
        values = [stored_values(one.take(some), key.type) for one, key in zip(columns, self._spec.keys, strict=True)]
        return list(zip(*values, strict=True))

    def shown(self) -> KeyStatistics:
        stored = [*self.ends, *(key for key, _ in self.frequent)]
        columns = [shown_column([key[i] for key in stored], column) for i, column in enumerate(self._spec.keys)]
        keys = list(zip(*columns, strict=True))
        names, count = tuple(column.name for column in self._spec.keys), len(self.ends)
        frequent = tuple((key, rows) for key, (_, rows) in zip(keys[count:], self.frequent, strict=True))
        least, greatest = keys[:count] or (None, None)
        return KeyStatistics(names, self.rows, self.distinct, self.null_rows, least, greatest, frequent)
