"""Match many keys with one file at once.

The inner levels of the file become columns: the records above the leaves (the *fences*) in key order, and the leaf
after each. They are decoded level by level, each level at once, with the checks of a traversal: each link leads forward
to a block that no other link leads to, and the records are in order across levels. A tree of another shape is
`Irregular`.

The fences determine the leaves that may hold some of the keys. These leaves are read in long ranges. Their keys are
checked for order and against the fences, and matched: no Python object per key. A compiled loop does this in the bytes
of the leaves, so that only the entries found are decoded. Where it is not compiled, in Dione files, and where a leaf
may be damaged, all entries are decoded together, and Arrow matches them.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from gnomon.base import kernel
from gnomon.btree.blocks import BlockFile, LookupStats
from gnomon.btree.columns import (
    CELL_BYTES,
    CUT_RECORDS,
    NO_LINK,
    BlockBatch,
    OutOfRange,
    RecordBlocks,
    Unclear,
    VectorColumns,
    decode,
    take,
)
from gnomon.btree.encode import encode_keys
from gnomon.btree.geometry import MAX_HEIGHT
from gnomon.btree.key_types import key_type
from gnomon.btree.keys import (
    Bools,
    Ints,
    SortedKeys,
    adjacent,
    comparable,
    compare,
    index_in,
    is_rising,
    places,
    stored_array,
)
from gnomon.btree.schema import FileField, FileSchema
from gnomon.btree.traversal import LONG_BLOCK, leaf_level

LEAVES_AT_ONCE = 2048
TOGETHER = 16  # leaves that the compiled loop gets at once: their memory stays in the CPU's cache, and is used again
TOGETHER_BYTES = 2 * 1024 * 1024  # of their records, and one leaf more: a leaf of a long run may have fmt.NODE_LIMIT
CHUNK_BYTES = 32 * 1024 * 1024  # approximate memory that is decoded together; the results may take twice as much


@dataclass(frozen=True)
class InnerLevels:
    """`entries` are the records above the leaves in key order, `keys` their keys in comparable form. `leaves` are the
    offsets of the leaves, in order; `below` has the index of the fence before each leaf, -1 for the leaf before all
    fences. `fences` has the keys as `kernel.RecordKeys`, where they are compiled."""

    entries: pa.RecordBatch
    keys: list[pa.Array]
    leaves: Ints
    below: Ints
    fences: Any

    @property
    def cache_bytes(self) -> int:
        """Approximate memory in bytes."""
        own = self.fences.cache_bytes if self.fences else 0
        return int(2 * self.entries.nbytes + self.leaves.nbytes + self.below.nbytes + own)


@dataclass(frozen=True)
class _Level:
    """The records of a level, node after node: their columns, the number of records in each node, and the child of each
    record (0: none)."""

    columns: list[pa.Array]
    counts: Ints
    children: Ints

    @property
    def firsts(self) -> Ints:
        return np.cumsum(self.counts) - self.counts


def inner_levels_of(file: BlockFile, stats: LookupStats) -> InnerLevels:
    """The inner levels of a file that is not empty. DamagedIndexFile, Irregular among them."""
    columns = file.schema.entry.columns
    levels: list[_Level] = []
    offsets = np.array([file.start])
    height = leaf_level(file, stats, MAX_HEIGHT)
    if height > MAX_HEIGHT:
        raise file.irregular(f"a tree of more than {MAX_HEIGHT} levels", file.start)
    for _ in range(height - 1):
        levels.append(_level(file, offsets, stats))
        offsets = levels[-1].children[levels[-1].children > 0]
    names = [column.name for column in columns]
    if not levels:  # the root is a leaf
        none = pa.RecordBatch.from_arrays([pa.array([], key_type(column.type).arrow) for column in columns], names)
        return InnerLevels(none, _keys(file, none), offsets, np.array([-1]), _fences(file, none))
    _check_links(file, levels)
    places = _in_order(levels)
    turn = np.argsort(np.concatenate(places))
    arrays = [
        pa.concat_arrays(some).take(pa.array(turn)) for some in zip(*(one.columns for one in levels), strict=True)
    ]
    entries = pa.RecordBatch.from_arrays(arrays, names)
    keys = _keys(file, entries)
    depths = np.repeat(np.arange(len(levels)), [len(place) for place in places])[turn]
    _check_order(file, keys, depths)
    return InnerLevels(entries, keys, offsets, places[-1][levels[-1].children > 0], _fences(file, entries))


def _keys(file: BlockFile, entries: pa.RecordBatch) -> list[pa.Array]:
    return [comparable(entries.column(key.name), key.type) for key in file.schema.entry.keys]


def _fences(file: BlockFile, entries: pa.RecordBatch) -> Any:
    if not file.decoder.is_compiled:
        return None
    return _record_keys(file.schema, [entries.column(key.name) for key in file.schema.entry.keys])


def _record_keys(schema: FileSchema, arrays: Sequence[pa.Array]) -> Any:
    """Key columns, in the Arrow types of their key types, as `kernel.RecordKeys`."""
    columns = [replace(column, nullable=True) for column in schema.entry.keys]
    fields = tuple(FileField(column, 0) for column in columns)
    plan = replace(schema, fields=fields).plan([column.name for column in columns])
    return kernel.RecordKeys(encode_keys(arrays, columns), len(arrays[0]), *plan)


def _level(file: BlockFile, offsets: Ints, stats: LookupStats) -> _Level:
    """The level of the nodes at these offsets."""
    _check_forward(file, offsets, "the nodes of a level")
    if not len(offsets):
        raise file.irregular("a level without nodes", file.start)
    blocks, ends = BlockBatch(), []
    for offset, (count, end, data) in zip(offsets.tolist(), file.unpacked(offsets.tolist(), stats), strict=True):
        blocks.add_inner(offset, 0, count, data)
        ends.append(end)
        stats.nodes += 1
    columns, first, links = decode(file, blocks)
    counts = np.array(blocks.counts)
    firsts = np.concatenate([[0], np.cumsum(counts)])
    order = np.repeat(first - firsts[:-1], counts) + np.arange(firsts[-1])
    links = links[order]
    children = np.where(links == NO_LINK, 0, file.size - np.where(links == NO_LINK, 0, links))
    astray = (children < np.repeat(ends, counts)) | (children >= file.size)
    pieces = RecordBlocks(blocks.offsets, firsts, [])
    astray &= links != NO_LINK
    if astray.any():
        record = int(np.argmax(astray))
        why = f"the child link {links[record]} bytes from the end does not point to a block"
        raise file.irregular(why, pieces.offset_of(record))
    names = [column.name for column in file.schema.entry.columns]
    return _Level([take(file, columns, name, order, pieces) for name in names], counts, children)


def _check_links(file: BlockFile, levels: list[_Level]) -> None:
    """Check that no two links lead to one block, and that leaves lie in key order."""
    led = np.sort(np.concatenate([level.children[level.children > 0] for level in levels]))
    leaves = levels[-1].children[levels[-1].children > 0]
    _check_forward(file, led, "all blocks")
    _check_forward(file, leaves, "the leaves")


def _check_forward(file: BlockFile, offsets: Ints, what: str) -> None:
    """Check that blocks lie in the file in this order, and none twice."""
    steps = np.diff(offsets)
    if (steps <= 0).any():
        first = int(np.argmax(steps <= 0))
        why = f"{what} are not in key order" if steps[first] else "two links lead to one block"
        raise file.irregular(why, int(offsets[first + 1]))


def _in_order(levels: list[_Level]) -> list[Ints]:
    """The position of each record of each level among the records above the leaves, in key order."""
    spans: list[Ints] = []  # for each record: the number of records in it and its subtree, above the leaves
    below = np.zeros(0, np.int64)  # the number of records in each node of the level below and its subtree
    for level in reversed(levels):
        span = np.ones(len(level.children), np.int64)
        if spans:
            span[level.children > 0] += below
        below = np.add.reduceat(span, level.firsts)
        spans.insert(0, span)
    places: list[Ints] = []
    begins = np.zeros(1, np.int64)  # the position of the first record of each node
    for level, span in zip(levels, spans, strict=True):
        ahead = np.cumsum(span) - span
        places.append(ahead + np.repeat(begins - ahead[level.firsts], level.counts))
        begins = places[-1][level.children > 0] + 1
    return places


def _check_order(file: BlockFile, keys: list[pa.Array], depths: Ints) -> None:
    """Check that the records do not decrease. From a node to the record after it they must increase, if no run is
    split."""
    equal, rising = adjacent(keys)
    wrong = ~rising
    if file.has_whole_runs:
        wrong |= equal & (depths[1:] < depths[:-1])
    if wrong.any():
        raise file.irregular("a node holds keys outside of its parent's interval", file.start)


# -- matches -----------------------------------------------------------------------------------------------------------


class Found(NamedTuple):
    """Found entries in file order, which is key order. `keys` has the key of each entry, as an index in the key batch;
    `columns` has the columns of the entries. `leaves` is the number of leaves in the file, `leaves_read` the number of
    leaves read."""

    keys: Ints
    columns: list[pa.Array]
    leaves: int = 0
    leaves_read: int = 0


class _Leaves(NamedTuple):
    """Leaves that may hold a key, ascending: the index of each among all leaves, and its range in the key batch. A leaf
    of very many records is in several consecutive pieces."""

    which: Ints
    begins: Ints
    ends: Ints

    def some(self, begin: int, end: int) -> "_Leaves":
        return _Leaves(self.which[begin:end], self.begins[begin:end], self.ends[begin:end])


class _Bytes(NamedTuple):
    """Found keys, as in `_Hits`, and the bytes of their records, one after the other."""

    keys: Ints
    at: Ints
    records: bytes


class _Hits(NamedTuple):
    """Found keys, as indexes in the key batch. `at` has their positions in the file (fence i is at 2 i, the leaf after
    it at 2 i + 1), `columns` the columns of their entries."""

    keys: Ints
    at: Ints
    columns: list[pa.Array]


class Batch:
    """One look-up of many keys, which returns the given columns of their entries. Without columns, it only finds which
    keys exist."""

    def __init__(
        self,
        file: BlockFile,
        inner_levels: InnerLevels,
        sorted_keys: SortedKeys,
        columns: Sequence[str],
        stats: LookupStats,
    ) -> None:
        self._file = file
        self._inner_levels = inner_levels
        self._sorted_keys = sorted_keys
        self._columns = list(columns)
        self._stats = stats
        self._types = {column.name: column.type for column in file.schema.entry.columns}
        self._key_names = [column.name for column in file.schema.entry.keys]
        self._last: list[pa.Array] = []  # the last key that Arrow checked
        self._last_leaf = -1  # the number of its leaf
        self._wanted: Any = None  # the keys, where compiled loops match them
        if inner_levels.fences is not None:
            self._wanted = _record_keys(file.schema, sorted_keys.arrays())
            self._plan = file.schema.plan(self._key_names, stored=True).fields
            self._limits = self._decimal_limits()

    def _decimal_limits(self) -> Any:
        """The least and the greatest value of decimals, as two keys; None without decimals."""
        kinds = [key_type(self._types[name]).decimal for name in self._key_names]
        if not any(kinds):
            return None
        most = [10**kind.precision - 1 if kind else None for kind in kinds]
        both = [[None if one is None else -one, one] for one in most]
        arrays = [stored_array(pair, self._types[name]) for pair, name in zip(both, self._key_names, strict=True)]
        return _record_keys(self._file.schema, arrays)

    def pieces(self) -> Iterator[Found]:
        """Yield the entries of the keys in file order; one piece covers thousands of leaves. Raises DamagedIndexFile,
        or its subclass Irregular."""
        before, upto = self._places()
        leaves = self._leaves(before, upto)
        at = np.flatnonzero(upto > before)
        columns = [self._inner_levels.entries.column(name).take(pa.array(at)) for name in self._columns]
        fences, done, last = _Hits(before[at], 2 * at, columns), 0, -1
        for which, hits in self._in_leaves(leaves):
            until = int(np.searchsorted(fences.at, 2 * self._inner_levels.below[which[-1]] + 1))
            leaves_read = int(np.count_nonzero(np.diff(which, prepend=last)))
            yield self._piece([_some(fences, done, until), hits], leaves_read)
            done, last = until, int(which[-1])
        if done < len(at):
            yield self._piece([_some(fences, done, len(at))], 0)

    def _piece(self, hits: Sequence[_Hits], leaves_read: int) -> Found:
        """The hits in file order."""
        turn = np.argsort(np.concatenate([some.at for some in hits]), kind="stable")
        keys = np.concatenate([some.keys for some in hits])[turn]
        columns = [pa.concat_arrays(some).take(pa.array(turn)) for some in zip(*(h.columns for h in hits), strict=True)]
        return Found(keys, columns, len(self._inner_levels.leaves), leaves_read)

    def _leaves(self, before: Ints, upto: Ints) -> _Leaves:
        """The leaves that may hold a key.

        A leaf holds keys from the fence before it to the fence after it. The fence before may begin a run of equal keys
        that continues in the leaf. If runs may be split, the fence after may end such a run. A key that equals a fence
        exists, so without columns its leaves are not needed."""
        after_fence = self._inner_levels.below + 1  # index in arrays whose item 0 is for the leaf before all fences
        until = before if self._file.has_whole_runs or not self._columns else upto
        begins = np.concatenate([[0], before if self._columns else upto])[after_fence]
        ends = np.concatenate([until, [len(self._sorted_keys)]])[after_fence]
        which = np.flatnonzero(ends > begins)
        return _Leaves(which, begins[which], ends[which])

    def _places(self) -> tuple[Ints, Ints]:
        """For each fence, the number of keys that are less, and of those that are not greater."""
        if self._wanted is None:
            return places(self._inner_levels.keys, self._sorted_keys.columns)
        before, upto = (np.empty(self._inner_levels.fences.count, np.int64) for _ in range(2))
        self._inner_levels.fences.places(self._wanted, before, upto)
        return before, upto

    def _in_leaves(self, leaves: _Leaves) -> Iterator[tuple[Ints, _Hits]]:
        """Yield the numbers of some leaves, and the hits in them, in the order of the leaves."""
        read = self._file.leaves(self._inner_levels.leaves[leaves.which].tolist(), self._stats)
        if self._wanted is None:
            yield from self._by_arrow(leaves, read)
            return
        cells, size = CELL_BYTES * len(self._columns), 0
        begin, found = 0, list[_Bytes]()  # the first leaf that is not yielded, and what was found from it on
        end = 0
        while blocks := _together(read):
            first, end = end, end + len(blocks)
            group = leaves.some(first, end)
            hits = self._match_bytes(group, blocks)
            if hits is not None:
                found.append(hits)
                size += len(hits.records) + len(hits.keys) * cells
            if hits is None or size > CHUNK_BYTES or end - begin >= LEAVES_AT_ONCE:
                yield from self._decoded(leaves.some(begin, first if hits is None else end), found)
                begin, found, size = end, [], 0
            if hits is None:
                yield from self._by_arrow(group, iter(blocks))
        yield from self._decoded(leaves.some(begin, len(leaves.which)), found)

    def _match_bytes(self, leaves: _Leaves, blocks: Sequence[tuple[int, Any]]) -> _Bytes | None:
        """The hits in these leaves, found in their bytes. None where Arrow must match: a leaf is very long, or may be
        damaged."""
        counts, records = zip(*blocks, strict=True)
        if max(counts) > LONG_BLOCK:
            return None
        below, hits = self._inner_levels.below[leaves.which], np.empty(len(counts), np.int64)
        found = self._wanted.match(
            *(list(records), np.array(counts), self._plan, leaves.begins, leaves.ends),
            *(self._inner_levels.fences, below, self._file.has_whole_runs, self._limits, hits),
        )
        return (
            None
            if found is None
            else _Bytes(np.frombuffer(found[0], np.int64), np.repeat(2 * below + 1, hits), found[1])
        )

    def _decoded(self, leaves: _Leaves, found: Sequence[_Bytes]) -> Iterator[tuple[Ints, _Hits]]:
        """The hits in these leaves, decoded."""
        if not found:
            return
        keys, records = np.concatenate([one.keys for one in found]), [b"".join([one.records for one in found])]
        try:
            every = np.arange(len(keys))
            columns = VectorColumns(self._file.schema, np.array([len(keys)]), records, self._columns)
            arrays = [columns.take(name, every) for name in self._columns]
        except (Unclear, OutOfRange, pa.ArrowInvalid):  # Arrow names the damaged block
            again = self._file.leaves(self._inner_levels.leaves[leaves.which].tolist(), self._stats)
            yield from self._by_arrow(leaves, again)
            return
        yield leaves.which, _Hits(keys, np.concatenate([one.at for one in found]), arrays)

    def _by_arrow(self, leaves: _Leaves, read: Iterable[tuple[int, Any]]) -> Iterator[tuple[Ints, _Hits]]:
        """As `_in_leaves`, for leaves that are decoded and matched by Arrow."""
        columns = len({*self._columns, *self._key_names})
        which, blocks = list[int](), BlockBatch()
        for i, offset, count, records in self._cut(self._inner_levels.leaves[leaves.which].tolist(), read):
            which.append(i)
            blocks.add_leaf(offset, count, records)
            if len(which) == LEAVES_AT_ONCE or blocks.size(columns) > CHUNK_BYTES:
                yield leaves.which[which], self._match(_Leaves(*(some[which] for some in leaves)), blocks)
                which, blocks = [], BlockBatch()
        if which:
            yield leaves.which[which], self._match(_Leaves(*(some[which] for some in leaves)), blocks)

    def _cut(self, offsets: list[int], read: Iterable[tuple[int, Any]]) -> Iterator[tuple[int, int, int, bytes]]:
        """The number, offset and records of each leaf; a long leaf comes in pieces."""
        for i, (count, records) in enumerate(read):
            data = _bytes_of(records)
            if count <= LONG_BLOCK:
                yield i, offsets[i], count, data
                continue
            for some, piece in self._file.cut(offsets[i], count, data, CUT_RECORDS):
                yield i, offsets[i], some, piece

    def _match(self, leaves: _Leaves, blocks: BlockBatch) -> _Hits:
        """The hits in these leaves, by Arrow."""
        columns, first, _ = decode(self._file, blocks, {*self._columns, *self._key_names})
        counts = np.array(blocks.counts)
        firsts = np.concatenate([[0], np.cumsum(counts)])
        order = np.repeat(first - firsts[:-1], counts) + np.arange(firsts[-1])
        pieces = RecordBlocks(blocks.offsets, firsts, [])
        keys = [
            comparable(take(self._file, columns, name, order, pieces), self._types[name]) for name in self._key_names
        ]
        self._check_keys(keys, pieces, leaves)
        begin, end = int(leaves.begins[0]), int(leaves.ends[-1])
        found = index_in(keys, [column.slice(begin, end - begin) for column in self._sorted_keys.columns])
        rows = np.flatnonzero(found >= 0)
        some = RecordBlocks(blocks.offsets, np.searchsorted(rows, firsts), [])
        arrays = [take(self._file, columns, name, order[rows], some) for name in self._columns]
        at = np.repeat(2 * self._inner_levels.below[leaves.which] + 1, counts)[rows]
        return _Hits(found[rows] + begin, at, arrays)

    def _check_keys(self, keys: Sequence[pa.Array], pieces: RecordBlocks, leaves: _Leaves) -> None:
        """Check that the keys of each leaf are in order and between its fences."""
        rising = is_rising(keys, pieces.firsts[1:-1][np.diff(leaves.which) > 0])
        if not rising.all():
            offset = pieces.offset_of(int(np.argmin(rising)) + 1)
            raise self._file.damaged("the keys of a node are not in order", offset)
        if leaves.which[0] == self._last_leaf:  # the first piece continues a leaf
            equal, greater = compare(self._last, [key.slice(0, 1) for key in keys])
            if not (equal | greater)[0]:
                raise self._file.damaged("the keys of a node are not in order", pieces.offsets[0])
        self._last, self._last_leaf = [key.slice(len(key) - 1) for key in keys], int(leaves.which[-1])
        low = self._inner_levels.below[leaves.which]
        outside = np.zeros(len(low), bool)
        after = low >= 0
        outside[after] |= ~self._is_after(low[after], keys, pieces.firsts[:-1][after])
        bounded = low + 1 < len(self._inner_levels.keys[0])
        outside[bounded] |= ~self._is_before(keys, pieces.firsts[1:][bounded] - 1, low[bounded] + 1)
        if outside.any():
            offset = pieces.offsets[int(np.argmax(outside))]
            raise self._file.damaged("a node holds keys outside of its parent's interval", offset)

    def _is_after(self, fences: Ints, keys: Sequence[pa.Array], rows: Ints) -> Bools:
        """For each row, whether its key is at least the key of its fence."""
        equal, greater = compare(_rows(self._inner_levels.keys, fences), _rows(keys, rows))
        after: Bools = equal | greater
        return after

    def _is_before(self, keys: Sequence[pa.Array], rows: Ints, fences: Ints) -> Bools:
        """For each row, whether its key is less than the key of its fence. If runs of equal keys may be split, an equal
        key counts, too."""
        equal, greater = compare(_rows(keys, rows), _rows(self._inner_levels.keys, fences))
        before: Bools = greater if self._file.has_whole_runs else greater | equal
        return before


def _together(read: Iterator[tuple[int, Any]]) -> list[tuple[int, Any]]:
    """The next leaves for the compiled loop."""
    blocks, size = list[tuple[int, Any]](), 0
    for count, records in islice(read, TOGETHER):
        blocks.append((count, records))
        size += len(_bytes_of(records))
        if size > TOGETHER_BYTES:
            break
    return blocks


def _bytes_of(records: Any) -> bytes:
    """The bytes of records that `BlockFile.leaves` gives."""
    return records if isinstance(records, bytes) else records.records


def _some(hits: _Hits, begin: int, end: int) -> _Hits:
    return _Hits(
        hits.keys[begin:end], hits.at[begin:end], [column.slice(begin, end - begin) for column in hits.columns]
    )


def _rows(columns: Sequence[pa.Array], rows: Ints) -> list[pa.Array]:
    return [column.take(pa.array(rows)) for column in columns]
