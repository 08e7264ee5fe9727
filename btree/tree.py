"""Look-ups in the tree of one open index file: root first, then forward seeks."""

from collections.abc import Callable, Iterator, Sequence
from itertools import chain

import numpy as np

from gnomon.btree.batch import Batch, Found
from gnomon.btree.blocks import Block, BlockFile, LookupStats
from gnomon.btree.errors import BTreeError, DamagedIndexFile, TooMany
from gnomon.btree.inner_levels import InnerLevels, inner_levels_of
from gnomon.btree.key_arrays import stored_array
from gnomon.btree.key_batch import SortedKeys
from gnomon.btree.keys import Key
from gnomon.btree.node import UNREADABLE
from gnomon.btree.scan import Scan
from gnomon.btree.traversal import Place, Traversal

_Wanted = list[tuple[Key, int]]  # in key order, each with the index of its result
_Steps = Iterator[tuple[int, _Wanted]]  # records whose children will be visited, and the keys wanted there
_Visit = Callable[[Place, _Wanted], _Steps]


class Tree:
    """The tree of a file that Gnomon's writer made. Threads may share it. `BTreeReader` documents the look-ups. A
    *probe* is a key in the form that the nodes hold."""

    def __init__(self, file: BlockFile) -> None:
        self._file = file
        self._inner_levels: InnerLevels | None = None  # set by the first `match`

    @property
    def inner_levels_bytes(self) -> int:
        """Memory of the levels above the leaves in the form for `match`; 0 before the first one."""
        return self._inner_levels.cache_bytes if self._inner_levels else 0

    def get_many(self, keys: Sequence[Key], stats: LookupStats, most: int | None) -> list[list[Key]]:
        """The values for each key."""
        return self._get([self._probe(key) for key in keys], stats, most)

    def _get(self, probes: Sequence[Key], stats: LookupStats, most: int | None) -> list[list[Key]]:
        found: list[list[Key]] = [[] for _ in probes]

        def collect(place: Place, wanted: _Wanted) -> _Steps:
            if most is not None and sum(map(len, found)) > most:
                raise TooMany(place.block.offset)
            return self._collect(place, wanted, found)

        self._look_up(probes, collect, stats, most)
        return found

    def contains_many(self, keys: Sequence[Key], stats: LookupStats, most: int | None) -> list[bool]:
        """For each key, whether an entry exists."""
        return self._contains([self._probe(key) for key in keys], stats, most)

    def _contains(self, probes: Sequence[Key], stats: LookupStats, most: int | None) -> list[bool]:
        found = [False] * len(probes)
        self._look_up(probes, lambda place, wanted: _mark(place, wanted, found), stats, most)
        return found

    def match(self, keys: SortedKeys, columns: Sequence[str], stats: LookupStats) -> Iterator[Found]:
        """The entries of many keys."""
        if self._file.is_empty or not len(keys):
            return
        if self._inner_levels is None:
            self._inner_levels = inner_levels_of(self._file, stats)
        yield from Batch(self._file, self._inner_levels, keys, columns, stats).pieces()

    def match_each(
        self, sorted_keys: SortedKeys, columns: Sequence[str], stats: LookupStats, most: int | None
    ) -> Found:
        """The entries of many keys, key by key."""
        keys = sorted_keys.stored()
        if not columns:
            return Found(np.flatnonzero(np.array(self.contains_many(keys, stats, most), bool)), [])
        answers = self.get_many(keys, stats, most)
        found = np.repeat(np.arange(len(keys)), [len(values) for values in answers])
        values = list(chain(*answers))
        place = {column.name: (i, column.type) for i, column in enumerate(self._file.schema.entry.values)}
        arrays = [stored_array([value[i] for value in values], kind) for i, kind in map(place.__getitem__, columns)]
        return Found(found, arrays)

    def scan_range(self, first: Key | None, last: Key | None, stats: LookupStats) -> Iterator[tuple[Key, Key]]:
        """The entries from key `first` to key `last`."""
        begin, end = (None if key is None else self._probe(key) for key in (first, last))
        yield from self._entries(begin, end, stats)

    def sample(self, count: int) -> list[tuple[Key, Key]]:
        """Up to `count` entries, spread over the root."""
        if self._file.is_empty or count < 1:
            return []
        block = Traversal(self._file, LookupStats()).root().block
        try:
            records = range(0, len(block.node), -(-len(block.node) // count))
            return [block.node.entries(record, record + 1)[0] for record in records]
        except UNREADABLE as error:
            raise self._unreadable(block, error) from None

    def scan(self, columns: Sequence[str], stats: LookupStats) -> Scan:
        """A scan of the whole file."""
        return Scan(self._file, columns, stats)

    # -- steps -----------------------------------------------------------------------------------------------------

    def _probe(self, key: Key) -> Key:
        """A key in stored form as the nodes of the file hold it: text as its UTF-8 bytes."""
        if len(key) != len(self._file.schema.entry.keys):
            raise BTreeError(f"a key of this file has {len(self._file.schema.entry.keys)} columns")
        return tuple([part.encode() if isinstance(part, str) else part for part in key])

    def _entries(self, first: Key | None, last: Key | None, stats: LookupStats) -> Iterator[tuple[Key, Key]]:
        """The entries from one probe to another."""
        if self._file.is_empty:
            return
        for place, begin, end in Traversal(self._file, stats).runs(first, last):
            node = place.block.node
            try:
                entries = node.entries(begin, end)
            except UNREADABLE as error:
                raise self._unreadable(place.block, error) from None
            yield from entries

    def _look_up(self, probes: Sequence[Key], visit: _Visit, stats: LookupStats, most: int | None) -> None:
        """Visit each node that may hold some of the probes, once. `visit` gets the node and the probes that it may
        hold, each with its index in `probes`."""
        wanted = [(probe, i) for i, probe in enumerate(probes)]
        if not wanted or self._file.is_empty:
            return
        traversal = Traversal(self._file, stats, most)
        place = traversal.root()
        stats.nodes += 1
        if len(wanted) == 1:
            place = self._descend(traversal, place, wanted[0][0], stats)
        else:
            order = self._file.decoder.order
            wanted.sort(key=lambda one: order(one[0]))
        stack = [(place, visit(place, wanted))]  # an explicit stack, since a damaged file may be as deep as it is long
        while stack:
            place, steps = stack[-1]
            step = next(steps, None)
            if step is None:
                stack.pop()
                continue
            record, below = step
            child = traversal.child(place, record)
            stats.nodes += 1
            stack.append((child, visit(child, below)))

    def _descend(self, traversal: Traversal, place: Place, key: Key, stats: LookupStats) -> Place:
        """The first node on the path to a key that holds the key, or that has no child that may hold it."""
        while True:
            keys = place.block.node.keys
            first, last = keys.find(key)
            if first < last or not first or keys.link(first - 1) is None:
                return place
            place = traversal.child(place, first - 1)
            stats.nodes += 1

    def _collect(self, place: Place, wanted: _Wanted, found: list[list[Key]]) -> _Steps:
        """Add the values of wanted keys in a node. Yields each record whose child is to be visited next, and the keys
        to find there."""
        node = place.block.node
        if len(wanted) == 1:  # the usual case: one key, which is not in this node
            first, last = node.keys.find(wanted[0][0])
            if first == last:
                if first and node.keys.link(first - 1) is not None:
                    yield first - 1, wanted
                return
        hits = [node.keys.find(probe) for probe, _ in wanted]
        below: dict[int, list[int]] = {}
        for i, (first, last) in enumerate(hits):
            # A key may lie in the child of each record equal to it. It may also lie in the child of the record before
            # the first of them: a run of equal keys may begin at the end of that child, if runs may be split.
            begin = first if first < last and self._file.has_whole_runs else max(first - 1, 0)
            for record in range(begin, last):
                if node.keys.link(record) is not None:
                    below.setdefault(record, []).append(i)
        done = [first for first, _ in hits]  # own records that are already in the result
        for record in sorted(below):
            for i in below[record]:  # in the tree's order a record comes before its child
                upto = min(record + 1, hits[i][1])
                self._emit(place.block, done[i], upto, found[wanted[i][1]])
                done[i] = max(done[i], upto)
            yield record, [wanted[i] for i in below[record]]
        for i, (_, last) in enumerate(hits):
            self._emit(place.block, done[i], last, found[wanted[i][1]])

    def _emit(self, block: Block, first: int, last: int, out: list[Key]) -> None:
        try:
            out.extend(block.node.values(first, last))
        except UNREADABLE as error:
            raise self._unreadable(block, error) from None

    def _unreadable(self, block: Block, error: Exception) -> DamagedIndexFile:
        why = f"a record cannot be decoded ({error})"
        if isinstance(error, UnicodeDecodeError):
            why = f"text that is not UTF-8 ({error.reason})"
        return self._file.damaged(why, block.offset)


def _mark(place: Place, wanted: _Wanted, found: list[bool]) -> _Steps:
    """Mark the wanted keys that a node holds. Yields the records whose children may hold the others."""
    node = place.block.node
    below: dict[int, _Wanted] = {}
    for probe, i in wanted:
        first, last = node.keys.find(probe)
        if last > first:
            found[i] = True
        elif first and node.keys.link(first - 1) is not None:
            below.setdefault(first - 1, []).append((probe, i))
    yield from below.items()
