"""The geometry of a tree: the size of its nodes, and their order in the file.

The tree grows as entries come, so its shape follows from their bytes alone: the same entries make the same tree,
however they were cut into batches. Levels are counted from the leaves up; the top level is the root.

A first look-up reads all upper levels and one leaf. While the upper levels are short, leaves are short, too. Then
leaves grow in proportion to them, so that both are about the square root of the file: n entries have at most 16 *
sqrt(n) leaves.

Nodes lie in level order: root, inner levels, leaves in key order. One read gets the upper levels, and seeks go forward.
"""

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import isqrt
from typing import Self

from gnomon.base.varints import encode_signed
from gnomon.btree import format as fmt
from gnomon.btree.errors import BTreeError

EncodeBlock = Callable[[int, bytes], bytes]  # record count and records to a block
NODE_BYTES = 8 * 1024  # target bytes of records in a node, before compression
LEAST_RECORDS = 8  # in a full inner node, however long its records are; one record each would make the tree a list
MOST_LEAST_RECORDS = 64  # the same, for nodes of NODE_BYTES
LONG_INNER_BYTES = 16 * 1024 * 1024  # bytes at which an inner node is full with fewer records
MAX_HEIGHT = 8  # levels; the root of such a tree takes all further records
GROWING_BYTES = 1024 * 1024  # bytes of records above the leaves; beyond it, leaves are longer than NODE_BYTES
ENTRY_GUESS_BYTES = 48  # bytes of a compressed entry above the leaves; entries in leaves are shorter
UPPER_SHARE_GUESS = 48  # a file has one part in this number above its leaves, while these are NODE_BYTES long


def leaf_target(upper_bytes: int, node_bytes: int = NODE_BYTES) -> int:
    """Target bytes of the next leaf, for this number of bytes in the levels above."""
    return max(node_bytes, node_bytes * upper_bytes // GROWING_BYTES)


def is_full(records: int, size: int, node_bytes: int = NODE_BYTES) -> bool:
    """Whether an inner node with this number of records and bytes is full."""
    least = max(LEAST_RECORDS, min(MOST_LEAST_RECORDS, MOST_LEAST_RECORDS * node_bytes // NODE_BYTES))
    return (size >= node_bytes and records >= least) or (size >= LONG_INNER_BYTES and records > 1)


def head_guess(file_bytes: int) -> int:
    """The number of bytes of a file to read first. In most files they contain the header and the upper levels."""
    square = 2 * ENTRY_GUESS_BYTES * (GROWING_BYTES // NODE_BYTES) * file_bytes
    return min(file_bytes // UPPER_SHARE_GUESS, isqrt(square))


@dataclass
class IndexFile:
    """A finished index file: its bytes in order, and its counts."""

    chunks: list[bytes]
    entries: int
    height: int
    nodes: int
    size: int
    crc32: int
    head_bytes: int  # bytes of header and upper levels; of the header alone where these do not come first

    @classmethod
    def of(cls, header: bytes, blocks: list[bytes], entries: int, height: int, upper_bytes: int = 0) -> Self:
        """The file of these blocks. The first `upper_bytes` are the levels above the leaves."""
        chunks = [header, *blocks]
        crc = 0
        for chunk in chunks:
            crc = zlib.crc32(chunk, crc)
        return cls(chunks, entries, height, len(blocks), sum(map(len, chunks)), crc, len(header) + upper_bytes)


def node_block(count: int, records: bytes, compress: Callable[[bytes], bytes], sync: bytes) -> bytes:
    """The block of a node. BTreeError for a node over a limit, since readers refuse it."""
    if len(records) > fmt.NODE_LIMIT or count > fmt.NODE_RECORDS:
        limits = f"{fmt.NODE_LIMIT} bytes and {fmt.NODE_RECORDS} records"
        raise BTreeError(f"a node of {len(records)} bytes and {count} records is over the limit of {limits}")
    return fmt.encode_block(count, compress(records), sync)


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
            parts += [record, fmt.LINK_BRANCH + encode_signed(next(links)) if is_parent else fmt.NULL_LINK]
        return encode_block(len(self.records), b"".join(parts))


def level_order(levels: list[list[InnerNode]], leaves: list[bytes], encode_block: EncodeBlock) -> list[bytes]:
    """The blocks of the levels above the leaves, root first. `levels` has the lowest level first."""
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
    """For each block, the bytes from its start to the end of the file, with `after` bytes after the last block."""
    distances = []
    for block in reversed(blocks):
        after += len(block)
        distances.append(after)
    return distances[::-1]
