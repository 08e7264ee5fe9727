"""The inner levels of a file as columns: the records above the leaves in key order, and the leaf after each.

They are decoded level by level, each level at once, with the checks of a traversal: each link leads forward to a block
that no other link leads to, and the records are in order across levels. A tree of another shape is `Irregular`.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from gnomon.btree.block_batch import LONG_BLOCK, BlockBatch, RecordBlocks, decode, take
from gnomon.btree.blocks import BlockFile, LookupStats
from gnomon.btree.columns import NO_LINK, Ints
from gnomon.btree.geometry import MAX_HEIGHT
from gnomon.btree.key_batch import comparable
from gnomon.btree.key_types import key_type
from gnomon.btree.keys import adjacent
from gnomon.btree.traversal import Traversal


@dataclass(frozen=True)
class InnerLevels:
    """`entries` are the records above the leaves in key order, `keys` their keys in comparable form. `leaves` are the
    offsets of the leaves, in order; `below` has the index of the fence before each leaf, -1 for the leaf before all
    fences."""

    entries: pa.RecordBatch
    keys: list[pa.Array]
    leaves: Ints
    below: Ints

    @property
    def cache_bytes(self) -> int:
        """Approximate memory in bytes."""
        return int(2 * self.entries.nbytes + self.leaves.nbytes + self.below.nbytes)


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
    height = Traversal(file, stats, LONG_BLOCK).leftmost_level(MAX_HEIGHT)
    if height > MAX_HEIGHT:
        raise file.irregular(f"a tree of more than {MAX_HEIGHT} levels", file.start)
    for _ in range(height - 1):
        levels.append(_level(file, offsets, stats))
        offsets = levels[-1].children[levels[-1].children > 0]
    names = [column.name for column in columns]
    if not levels:  # the root is a leaf
        none = pa.RecordBatch.from_arrays([pa.array([], key_type(column.type).arrow) for column in columns], names)
        return InnerLevels(none, _keys(file, none), offsets, np.array([-1]))
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
    return InnerLevels(entries, keys, offsets, places[-1][levels[-1].children > 0])


def _keys(file: BlockFile, entries: pa.RecordBatch) -> list[pa.Array]:
    return [comparable(entries.column(key.name), key.type) for key in file.schema.entry.keys]


def _level(file: BlockFile, offsets: Ints, stats: LookupStats) -> _Level:
    """The level of the nodes at these offsets."""
    _check_forward(file, offsets, "the nodes of a level")
    if not len(offsets):
        raise file.irregular("a level without nodes", file.start)
    blocks, ends = BlockBatch(), []
    for offset, (frame, data) in zip(offsets.tolist(), file.unpacked(offsets.tolist(), stats), strict=True):
        blocks.add_inner(offset, 0, frame.count, data)
        ends.append(frame.end)
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
