"""Look-ups in one open index file: root first, then forward seeks."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from btree import format as fmt
from btree.blocks import Block, BlockFile, LookupStats, RangeReader
from btree.errors import BTreeError, DamagedIndexFile
from btree.keys import Key, OrderKey
from btree.node import Node, Probe
from btree.schema import EntrySchema

__all__ = ["BTreeReader", "Census", "LookupStats", "RangeReader"]


@dataclass(frozen=True)
class Census:
    """What a file holds, counted."""

    entries: int
    nodes: int
    height: int
    bytes: int


class _Place(NamedTuple):
    """A block, the least key that may follow its subtree, and its level (the root's is 1)."""

    block: Block
    bound: OrderKey | None
    level: int


_Wanted = list[tuple[Probe, int]]  # in key order, each with the place of its answer


class BTreeReader:
    """An open index file. Not bound to a thread: a look-up changes nothing but the cache of upper nodes.

    Each look-up checks what it touches: framing, sync markers, order, and that a node lies after its parent in the
    file and between its parent's keys in order. A block that two links reach is refused, so no look-up outlasts
    the file."""

    def __init__(self, reader: RangeReader, stats: LookupStats | None = None) -> None:
        self._file = BlockFile(reader, stats if stats is not None else LookupStats())
        self.path = self._file.path
        self.codec = self._file.codec
        self.schema: EntrySchema = self._file.schema.entry
        self.entries = self._file.entries  # None in a file that does not say

    @property
    def cache_bytes(self) -> int:
        """Memory this reader keeps."""
        return self._file.cache_bytes

    @property
    def is_empty(self) -> bool:
        return self._file.start == self._file.size

    @property
    def header_bytes(self) -> int:
        """Length of the header."""
        return self._file.start

    @property
    def upper_bytes(self) -> int:
        """Length of the levels above the leaves; 0 in a file that does not say, or has none."""
        return self._file.upper_bytes

    # -- look-ups --------------------------------------------------------------------------------------------------

    def get(self, key: Key, stats: LookupStats | None = None) -> list[Key]:
        """The values of every entry with this key (in stored form), in file order."""
        return self.get_many([key], stats)[0]

    def contains(self, key: Key, stats: LookupStats | None = None) -> bool:
        """Whether an entry with this key exists."""
        return bool(self.get(key, stats))

    def get_many(self, keys: Sequence[Key], stats: LookupStats | None = None) -> list[list[Key]]:
        """The values for each key, in the order asked. Each node is read and decoded once; the file is walked
        forward."""
        stats = stats if stats is not None else LookupStats()
        found: list[list[Key]] = [[] for _ in keys]
        if any(len(key) != len(self.schema.keys) for key in keys):
            raise BTreeError(f"a key of this file has {len(self.schema.keys)} columns")
        if self.is_empty or not keys:
            return found
        probe = self._file.decoder.probe
        wanted = sorted(((probe(key), i) for i, key in enumerate(keys)), key=lambda one: one[0].order)
        seen: set[int] = set()
        root = self._root(stats)
        visits = [self._visit(root, wanted, found, stats)]
        places = [root]
        while visits:  # a stack of our own: a damaged file may be as deep as it is long
            step = next(visits[-1], None)
            if step is None:
                visits.pop()
                places.pop()
                continue
            record, below = step
            places.append(self._child(places[-1], record, seen, stats))
            visits.append(self._visit(places[-1], below, found, stats))
        return found

    def _visit(
        self, place: _Place, wanted: _Wanted, found: list[list[Key]], stats: LookupStats
    ) -> Iterator[tuple[int, _Wanted]]:
        """Answer the wanted keys from a node; yields each record whose child is to be visited next, and the keys
        to look for there."""
        stats.nodes += 1
        node = place.block.node
        hits = [node.find(probe) for probe, _ in wanted]
        below: dict[int, list[int]] = {}
        for i, (first, last) in enumerate(hits):
            # A key may lie in the child of each record equal to it, and of the record before the first of them,
            # for a run of equal keys may begin at the end of that child.
            for record in range(max(first - 1, 0), last):
                if node.links[record] is not None:
                    below.setdefault(record, []).append(i)
        done = [first for first, _ in hits]  # own records already answered
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
            out.extend(map(block.node.value, range(first, last)))
        except UnicodeDecodeError as error:
            raise self._not_text(block, error) from None

    def scan(self, stats: LookupStats | None = None) -> Iterator[tuple[Key, Key]]:
        """All entries in key order, as (key, value) in stored form."""
        for place, begin, end in self._walk(stats if stats is not None else LookupStats()):
            node: Node = place.block.node
            try:
                entries = [(node.key(record), node.value(record)) for record in range(begin, end)]
            except UnicodeDecodeError as error:
                raise self._not_text(place.block, error) from None
            yield from entries

    def _walk(self, stats: LookupStats) -> Iterator[tuple[_Place, int, int]]:
        """The tree in key order, as runs of records (first, one past the last) of nodes."""
        if self.is_empty:
            return
        seen: set[int] = set()
        stack = [(self._root(stats), 0)]
        while stack:
            place, begin = stack.pop()
            links = place.block.node.links
            end = next((i + 1 for i in range(begin, len(links)) if links[i] is not None), len(links))
            yield place, begin, end
            if end < len(links):
                stack.append((place, end))
            if links[end - 1] is not None:
                stack.append((self._child(place, end - 1, seen, stats), 0))

    def sample(self, count: int) -> list[tuple[Key, Key]]:
        """Up to `count` entries, spread over the root, as (key, value) in stored form."""
        if self.is_empty or count < 1:
            return []
        block = self._root(LookupStats()).block
        try:
            records = range(0, len(block.node), -(-len(block.node) // count))
            return [(block.node.key(record), block.node.value(record)) for record in records]
        except UnicodeDecodeError as error:
            raise self._not_text(block, error) from None

    # -- proof -----------------------------------------------------------------------------------------------------

    def check(self) -> int:
        """Read the whole file as a tree and return its number of entries; DamagedIndexFile as `census`."""
        return self.census().entries

    def census(self) -> Census:
        """Read the whole file and count. DamagedIndexFile where anything is wrong: framing, order inside nodes and
        across them, a link, bytes that no link reaches or two do, text that is none, or the number of entries."""
        entries = height = 0
        spans = [(0, self._file.start)]
        for place, begin, end in self._walk(LookupStats()):
            entries += end - begin
            if begin == 0:
                spans.append((place.block.offset, place.block.end))
                height = max(height, place.level)
                try:
                    place.block.node.check_text()
                except UnicodeDecodeError as error:
                    raise self._not_text(place.block, error) from None
        spans.sort()
        for (_, end), (start, _) in pairwise([*spans, (self._file.size, self._file.size)]):
            if start > end:
                raise DamagedIndexFile(f"no link reaches the {start - end} bytes here", self.path, end)
            if start < end:
                raise DamagedIndexFile(f"a block that ends at {end} lies over this one", self.path, start)
        if self.entries not in (None, entries):
            raise DamagedIndexFile(f"expected {self.entries} entries, found {entries}", self.path, self._file.start)
        return Census(entries, len(spans) - 1, max(height, 1), self._file.size)

    def _not_text(self, block: Block, error: UnicodeDecodeError) -> DamagedIndexFile:
        return DamagedIndexFile(f"text that is not UTF-8 ({error.reason})", self.path, block.offset)

    # -- nodes -----------------------------------------------------------------------------------------------------

    def _root(self, stats: LookupStats) -> _Place:
        return _Place(self._file.block(self._file.start, stats), None, 1)

    def _child(self, place: _Place, record: int, seen: set[int], stats: LookupStats) -> _Place:
        """The node that a record with a link leads to, checked against its parent."""
        node = place.block.node
        link = node.links[record]
        if link is None:
            raise BTreeError("a record without a link has no child")
        offset = fmt.child_offset(self._file.size, link)
        if not place.block.end <= offset < self._file.size:
            raise DamagedIndexFile(f"a link to {link} bytes before the end leads astray", self.path, place.block.offset)
        if offset in seen:
            raise DamagedIndexFile("two links lead to one block", self.path, offset)
        seen.add(offset)
        following = node.links[record + 1] if record + 1 < len(node) else None
        child = self._file.block(offset, stats, link - following if following is not None else None)
        bound = node.order(record + 1) if record + 1 < len(node) else place.bound
        last = child.node.order(len(child.node) - 1)
        if child.node.order(0) < node.order(record) or (bound is not None and last > bound):
            raise DamagedIndexFile("a node holds keys outside of its parent's interval", self.path, offset)
        return _Place(child, bound, place.level + 1)
