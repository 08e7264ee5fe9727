"""Where the nodes of a finished tree lie in the file, and so what their links are.

Level order: root, inner levels, leaves in key order; the upper levels come in one read, seeks go forward.
"""

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Self

from btree import format as fmt
from btree.errors import BTreeError

EncodeBlock = Callable[[int, bytes], bytes]  # record count and records to a block


@dataclass
class IndexFile:
    """A finished index file: its bytes in order, and what they hold."""

    chunks: list[bytes]
    entries: int
    height: int
    nodes: int
    size: int
    crc32: int
    head_bytes: int  # of header and upper levels, or of the header where they do not come first

    @classmethod
    def of(cls, header: bytes, blocks: list[bytes], entries: int, height: int, upper_bytes: int = 0) -> Self:
        """The file of these blocks, of which the first `upper_bytes` are the levels above the leaves."""
        chunks = [header, *blocks]
        crc = 0
        for chunk in chunks:
            crc = zlib.crc32(chunk, crc)
        return cls(chunks, entries, height, len(blocks), sum(map(len, chunks)), crc, len(header) + upper_bytes)


def node_block(count: int, records: bytes, compress: Callable[[bytes], bytes], sync: bytes) -> bytes:
    """The block of a node. BTreeError where it is over a limit: readers refuse such a node."""
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
            parts += [record, fmt.LINK_BRANCH + fmt.encode_long(next(links)) if is_parent else fmt.NULL_LINK]
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
