"""A model of the writer's tree for a number of entries, by arithmetic. Tests compare files with it."""

from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from gnomon.btree.geometry import LEAST_RECORDS, MAX_HEIGHT, NODE_BYTES, is_full, leaf_target


class Tree(NamedTuple):
    """The shape of a tree, in numbers."""

    height: int
    nodes: int
    upper_bytes: int  # of the records above the leaves
    leaf_bytes: int  # of the records of the longest leaf


def tree_of(entries: int, record_bytes: int, node_bytes: int = NODE_BYTES) -> Tree:
    """The writer's tree for `entries` entries with different keys, whose records all have this length (in a leaf: with
    the byte for no link)."""
    levels: list[_Level] = []  # upper levels, the lowest first
    left, leaves, upper, longest = entries, 0, 0, 0
    while left:
        leaf = -(-leaf_target(upper, node_bytes) // record_bytes)
        leaf = min(left, leaf if leaves else max(leaf, LEAST_RECORDS))
        left, leaves, longest = left - leaf, leaves + 1, max(longest, leaf)
        if not left:
            break
        levels = levels or [_Level()]
        at = 0
        while at + 1 < MAX_HEIGHT - 1 and is_full(levels[at].records, levels[at].size, node_bytes):
            levels[at] = _Level(levels[at].nodes + 1, 0)
            at += 1
            if at == len(levels):
                levels.append(_Level())
        for level in islice(reversed(levels[: at + 1]), left):
            level.records += 1
            level.size += record_bytes - 1
            upper += record_bytes - 1
            left -= 1
    nodes = leaves + sum(level.nodes - (not level.records) for level in levels)
    return Tree(len(levels) + 1, nodes, upper + len(levels) * (record_bytes - 1), longest * record_bytes)


@dataclass
class _Level:
    nodes: int = 1
    records: int = 1  # in its last node; without the very first record, which is inserted at the end
    size: int = 0
