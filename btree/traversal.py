"""Traversal of an open file: from a node along its links to its children."""

import math
import sys
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

from gnomon.btree import format as fmt
from gnomon.btree.blocks import NODE_READ_BYTES, Block, BlockFile, LookupStats, Visit, Window
from gnomon.btree.errors import BTreeError, TooMany
from gnomon.btree.keys import Key
from gnomon.btree.node import Node

HELD_BYTES = 1 << 30  # memory of a node and of the nodes above it; one alone may take up to a third of that
LONG_BLOCK = 1 << 14  # records; a longer block is one run of equal keys, and is decoded in pieces


class Place(NamedTuple):
    """A block of the tree. `bound` is the record that follows its subtree, as (node, index), None at the right end.
    `level` is 1 for the root. `held` is the memory of the block's node and of the nodes above it."""

    block: Block
    bound: tuple[Node, int] | None
    level: int
    held: int


class Descent(NamedTuple):
    """The path to one key, as `kernel.RecordKeys.descend` returns it."""

    traversal: "Traversal"
    is_whole: bool
    block: Block
    first: int
    last: int
    level: int
    held: int
    bound_block: Block | None
    bound: int

    @property
    def place(self) -> Place:
        """The end of the path, where a look-up that is not whole goes on."""
        bound = None if self.bound_block is None else (self.bound_block.node, self.bound)
        return Place(self.block, bound, self.level, self.held)


class Traversal:
    """The traversal of one look-up or scan. It reaches no block twice, so it ends even in a damaged file."""

    def __init__(
        self, file: BlockFile, stats: LookupStats, most: int | None = None, expected: int | None = None
    ) -> None:
        """TooMany where a node has more than `most` records. `expected` is about the number of entries that the caller
        will take from `runs`: on a remote store, their leaves are read together."""
        self._file = file
        self._stats = stats
        self._most = most
        has_window = expected is not None and file.is_remote and not file.is_whole
        self._window = Window((expected or 0) * file.entry_bytes * 5 // 4) if has_window else None
        self._seen: set[int] = set()

    def root(self) -> Place:
        """The root of a file that is not empty."""
        block = self.root_block()
        return Place(block, None, 1, block.node.cache_bytes)

    def root_block(self) -> Block:
        """The block of the root."""
        return self.block(self._file.start, 0)

    def descend(self, key: Key) -> Descent:
        """The path to a key, in a file whose nodes are compiled and that is not empty."""
        file, stats, most = self._file, self._stats, sys.maxsize if self._most is None else self._most
        kept = file.kept if stats.visits is None else {}  # else `block` records each visit
        root = kept.get(file.start)
        if root is None or len(root.node.keys) > most:
            root = self.root_block()
        stats.nodes += 1
        limits = (file.size, file.has_whole_runs, HELD_BYTES, most)
        keys: Any = root.node.keys  # `kernel.RecordKeys`
        return Descent(self, *keys.descend(key, root, kept, self.block, stats, *limits))

    def block(self, offset: int, level: int, length: int | None = None) -> Block:
        """The block at an offset, at a level below the root, with a guess at its length. Its place is not checked."""
        stats, window = self._stats, self._window
        if window is not None and not window.begin <= offset < window.end:
            window = None
        if stats.visits is None:
            return self._file.block(offset, stats, length, self._most, window)
        begin, reads, size = time.perf_counter_ns(), stats.reads, stats.bytes
        block = self._file.block(offset, stats, length, self._most, window)
        cost = (stats.reads - reads, stats.bytes - size)
        stats.visits.append(Visit(offset, level, len(block.node), *cost, begin, time.perf_counter_ns()))
        return block

    def child_offset(self, place: Place, record: int) -> int:
        """The offset of a record's child: the link counts from there to the end of the file. Checks the link, but not
        the child. (Dione's form, header end + data_bytes - link, is the same number in a sound file.)"""
        link = place.block.node.keys.link(record)
        if link is None:
            raise BTreeError("a record without a link has no child")
        offset = self._file.size - link
        if not place.block.end <= offset < self._file.size:
            why = f"the child link {link} bytes from the end does not point to a block"
            raise self._file.damaged(why, place.block.offset)
        if offset in self._seen:
            raise self._file.damaged("two links lead to one block", offset)
        self._seen.add(offset)
        return offset

    def child(self, place: Place, record: int) -> Place:
        """The node to which a record's link leads, checked against its parent."""
        offset = self.child_offset(place, record)
        node = place.block.node
        is_last = record + 1 == len(node)
        following = None if is_last else node.keys.link(record + 1)
        link = self._file.size - offset
        length = link - following if following is not None else None
        child = self.block(offset, place.level, length)
        bound = place.bound if is_last else (node, record + 1)
        inside = node.keys.is_ordered(record, child.node.keys, 0)
        if not inside or (bound is not None and not self._ends_before(child.node, *bound)):
            raise self._file.damaged("a node holds keys outside of its parent's interval", offset)
        held = place.held + child.node.cache_bytes
        if held > HELD_BYTES:
            raise self._file.damaged(f"nested nodes that take {held} bytes", offset)
        return Place(child, bound, place.level + 1, held)

    def _ends_before(self, child: Node, node: Node, record: int) -> bool:
        """Whether all keys of a child are at most the key of its bound. If no run of equal keys is split, they must be
        less."""
        last = len(child) - 1
        if self._file.has_whole_runs:
            return not node.keys.is_ordered(record, child.keys, last)
        return child.keys.is_ordered(last, node.keys, record)

    def runs(
        self, begin: Key | None = None, end: Key | None = None, reverse: bool = False
    ) -> Iterator[tuple[Place, int, int]]:
        """The tree in key order from key `begin` to before key `end` (None: an open end), as runs of records (first,
        one past the last) of nodes. With `reverse` the runs come in the opposite order, with their records in key
        order. Nodes outside of the range are not read."""
        if self._file.is_empty:
            return
        if reverse:
            yield from self._backward(begin, end)
            return
        stack = [self._span(self.root(), begin, end)]
        while stack:
            place, low, least, most = stack.pop()
            keys = place.block.node.keys
            stop = min(keys.next_link(low), most)
            if stop > least:
                yield place, max(low, least), stop
            if stop < most:
                stack.append((place, stop, least, most))
            if stop > low and keys.link(stop - 1) is not None:
                if self._window is not None:
                    self._look_forward(self._window, place, stop - 1, most)
                stack.append(self._span(self.child(place, stop - 1), begin, end))

    def _backward(self, begin: Key | None, end: Key | None) -> Iterator[tuple[Place, int, int]]:
        stack = [(*self._span(self.root(), begin, end), False)]
        while stack:
            place, low, least, most, is_run = stack.pop()
            if is_run:
                yield place, low, most
            elif most > low:
                keys, last = place.block.node.keys, most - 1
                if keys.link(last) is None:
                    first = low if keys.next_link(low) >= most else last  # none of the records has a link
                    stack += [(place, low, least, first, False), (place, max(first, least), 0, most, most > least)]
                    continue
                stack.append((place, low, least, last, False))
                stack += [(place, last, 0, most, True)] if last >= least else []
                if self._window is not None:
                    self._look_backward(self._window, place, last, least)
                stack.append((*self._span(self.child(place, last), begin, end), False))

    def _look_forward(self, window: Window, place: Place, record: int, most: int) -> None:
        """Choose the bytes to read if the child of a record is a leaf: those of the leaf, and of whole leaves after it,
        up to that of the record before `most`. Leaves lie in key order."""
        begin, end = self._leaf(place, record)
        if not self._file.is_leaf(begin) or len(window.at(begin)) >= end - begin:
            return
        keys, stop, wanted = place.block.node.keys, record + 1, end + window.ahead
        while stop < most and self._leaf(place, stop)[0] < wanted:
            stop += 1
        link = keys.link(stop) if stop < len(place.block.node) else None  # or the leaves of the next node follow
        beyond = min(wanted + end - begin, self._file.size)  # leaves of about this length
        window.begin, window.end = begin, self._file.size - link if link else beyond

    def _look_backward(self, window: Window, place: Place, record: int, least: int) -> None:
        """As `_look_forward`, the leaves before that of a record, down to that of the record before `least`."""
        begin, end = self._leaf(place, record)
        if not self._file.is_leaf(begin) or len(window.at(begin)) >= end - begin:
            return
        first = self._leaf(place, least - 1)[0] if least else self._file.start + self._file.upper_bytes
        window.begin, window.end = min(begin, max(2 * begin - end - window.ahead, first)), end

    def _leaf(self, place: Place, record: int) -> tuple[int, int]:
        """Where the child of a record begins and ends, if it is a leaf; the end of a node's last one is a guess."""
        keys, size = place.block.node.keys, self._file.size
        link, following = keys.link(record), keys.link(record + 1) if record + 1 < len(place.block.node) else None
        begin = size - (link or 0)
        return begin, size - following if following is not None else min(begin + NODE_READ_BYTES, size)

    def _span(self, place: Place, begin: Key | None, end: Key | None) -> tuple[Place, int, int, int]:
        """For a node that is visited: the first record whose child may hold a wanted key, the first record with a
        wanted key, and one past the last record of both kinds."""
        node = place.block.node
        self._stats.nodes += 1
        least = 0 if begin is None else node.keys.find(begin)[0]
        most = len(node) if end is None else node.keys.find(end)[0]
        return place, max(least - 1, 0), least, max(least, most)


def leaf_level(file: BlockFile, stats: LookupStats, deepest: float = math.inf, longest: int | None = None) -> int:
    """The level of the leaf at the left end, or, if it is deeper than `deepest`, a level greater than that. A leaf of
    more than `longest` records (by default LONG_BLOCK) is not decoded, if the header says where the leaves begin."""
    traversal = Traversal(file, stats, longest or LONG_BLOCK)
    level = 1
    try:
        place = traversal.root()
        while place.level <= deepest:
            keys = place.block.node.keys
            first = keys.next_link(0)
            if keys.link(first - 1) is None:
                break
            level += 1
            place = traversal.child(place, first - 1)
    except TooMany as error:
        if not file.is_leaf(error.offset):
            return leaf_level(file, stats, deepest, fmt.NODE_RECORDS)
    return level
