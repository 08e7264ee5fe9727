"""Where the nodes of a finished tree lie in the file, and so what their links are.

Level order (ours): root, inner levels, leaves in key order; the upper levels come in one read, seeks go forward.
Dione's order: root, then the subtree of its last record, of the one before it, ... and so in each subtree. Readers of
either kind read both.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from btree.format import LINK_BRANCH, NULL_LINK, encode_long

EncodeBlock = Callable[[int, bytes], bytes]  # record count and records to a block


@dataclass
class InnerNode:
    """A node above the leaves: records without their link, and whether a child follows each."""

    records: list[bytes] = field(default_factory=list)
    parents: list[bool] = field(default_factory=list)
    size: int = 0

    def add(self, record: bytes) -> None:
        self.records.append(record)
        self.parents.append(False)
        self.size += len(record)

    def encode(self, links: Iterator[int], encode_block: EncodeBlock) -> bytes:
        """The block of this node; `links` gives the links to its children in order."""
        parts: list[bytes] = []
        for record, is_parent in zip(self.records, self.parents, strict=True):
            parts += [record, LINK_BRANCH + encode_long(next(links)) if is_parent else NULL_LINK]
        return encode_block(len(self.records), b"".join(parts))


def level_order(levels: list[list[InnerNode]], leaves: list[bytes], encode_block: EncodeBlock) -> list[bytes]:
    """The blocks of the levels above the leaves, root first. `levels` holds the lowest level first."""
    links = iter(_distances(leaves, 0))
    after = sum(map(len, leaves))
    upper: list[bytes] = []
    for level in levels:
        blocks = [node.encode(links, encode_block) for node in level]
        links = iter(_distances(blocks, after))
        after += sum(map(len, blocks))
        upper = blocks + upper
    return upper


def _distances(blocks: list[bytes], after: int) -> list[int]:
    """For each block, the bytes from its start to the end of the file, with `after` bytes behind the last."""
    distances = []
    for block in reversed(blocks):
        after += len(block)
        distances.append(after)
    return distances[::-1]


def dione_order(levels: list[list[InnerNode]], leaves: list[bytes], encode_block: EncodeBlock) -> list[bytes]:
    """All blocks, leaves among them. Each is made after its children, and the file holds them last made first."""
    made: list[bytes] = []
    nodes = [iter(level) for level in levels]
    leaf = iter(leaves)
    total = 0

    def make(level: int) -> int:
        """Make the next subtree whose root is of this level, and return the link to it."""
        nonlocal total
        if level < 0:
            made.append(next(leaf))
        else:
            node = next(nodes[level])
            links = [make(level - 1) for is_parent in node.parents if is_parent]
            made.append(node.encode(iter(links), encode_block))
        total += len(made[-1])
        return total

    if levels or leaves:
        make(len(levels) - 1)
    return made[::-1]
