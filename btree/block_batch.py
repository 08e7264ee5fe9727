"""A batch of blocks, decompressed and decoded together, for scans and for matches of many keys."""

from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from gnomon.base import kernel
from gnomon.btree.blocks import BlockFile
from gnomon.btree.columns import NO_LINK, Columns, Ints, JoinedColumns, OutOfRange, RowColumns, Unclear, VectorColumns
from gnomon.btree.errors import Irregular
from gnomon.btree.node import Row

CELL_BYTES = 24  # memory of one column of a record
CHUNK_BYTES = 64 * 1024 * 1024  # approximate memory that is decoded together; a single node may take more
LONG_BLOCK = 1 << 14  # records; a longer block is one run of equal keys, and is decoded in pieces
CUT_RECORDS = 1 << 9
# measured: decoding the i-th records of any number of nodes at once; decoding one record alone
STEP_US, ROW_US = 70.0, 2.0


class RecordBlocks(NamedTuple):
    """The blocks that records in key order come from."""

    offsets: Sequence[int]  # offset of each block
    firsts: Ints  # index of each block's first record, in key order; one more than there are blocks
    is_leaf: Sequence[bool]  # whether the block is a leaf: the records after it are of another block

    def offset_of(self, record: int) -> int:
        return self.offsets[int(np.searchsorted(self.firsts, record, side="right")) - 1]


class BlockBatch:
    """Blocks that are decoded together: whole leaves, and the needed records of inner nodes."""

    def __init__(self) -> None:
        self.index: dict[int, int] = {}  # offset of a block: number of its part
        self.offsets: list[int] = []
        self.is_leaf: list[bool] = []
        self.begins: list[int] = []  # index of the first record
        self.counts: list[int] = []
        self.records: list[bytes] = []
        self._bytes = self._records = 0

    def add_inner(self, offset: int, begin: int, count: int, records: bytes) -> None:
        """Add `count` records of a node, from record `begin` on."""
        self._add(offset, False, begin, count, records)

    def add_leaf(self, offset: int, count: int, records: bytes) -> None:
        self._add(offset, True, 0, count, records)

    def _add(self, offset: int, is_leaf: bool, begin: int, count: int, records: bytes) -> None:
        self.index[offset] = len(self.offsets)
        self.offsets.append(offset)
        self.is_leaf.append(is_leaf)
        self.begins.append(begin)
        self.counts.append(count)
        self.records.append(records)
        self._bytes += len(records)
        self._records += count

    def size(self, columns: int) -> int:
        """Approximate memory of the blocks when decoded."""
        return self._bytes + self._records * columns * CELL_BYTES


class Decoded(NamedTuple):
    """Decoded blocks: their columns, the first record of each part, and the link of each record (or NO_LINK)."""

    columns: Columns
    first: Ints
    links: Ints


def decode(file: BlockFile, blocks: BlockBatch, columns: Collection[str] | None = None) -> Decoded:
    """Decode the given columns (by default all) of the records of these blocks. The records have the order of decoding.
    Irregular where a block that was added as a leaf has links; DamagedIndexFile where a block is damaged."""
    part, counts, records = _cut(file, blocks)
    begins = np.searchsorted(part, np.arange(len(blocks.counts)))  # the first piece of each part
    is_cut = np.diff(begins, append=len(part))[part] > 1
    # the pieces of one part are decoded the same way
    single = np.empty(0, np.int64) if kernel.COMPILED else _long_parts(np.where(is_cut, 0, counts))
    while True:
        many = np.setdiff1d(np.arange(len(counts)), single)
        try:
            vector = VectorColumns(file.schema, counts[many], [records[i] for i in many], columns)
            break
        except Unclear:
            single = np.arange(len(counts))
    rows: list[Row] = []
    links: list[int] = []
    for i in single:
        node = file.decode(blocks.offsets[part[i]], int(counts[i]), records[i])
        rows += node.rows(0, len(node))
        own = [node.keys.link(record) for record in range(len(node))]
        links += [NO_LINK if link is None else link for link in own]
        if blocks.is_leaf[part[i]] and any(link is not None for link in own):
            raise _linked_leaf(file, blocks.offsets[part[i]])
    for i in part[many[vector.has_link]]:
        if blocks.is_leaf[i]:
            raise _linked_leaf(file, blocks.offsets[i])
    turn = np.concatenate([many, single])
    first = np.empty(len(counts), np.int64)
    first[turn] = np.cumsum(counts[turn]) - counts[turn]
    first = first[begins]
    if not len(single):
        return Decoded(vector, first, vector.links)
    joined = JoinedColumns(vector, int(counts[many].sum()), RowColumns(file.schema, rows))
    return Decoded(joined, first, np.concatenate([vector.links, np.array(links, np.int64)]))


def _linked_leaf(file: BlockFile, offset: int) -> Irregular:
    return file.irregular("a leaf with links, at a level whose other leaves have none", offset)


def _cut(file: BlockFile, blocks: BlockBatch) -> tuple[Ints, Ints, list[bytes]]:
    """The blocks in pieces: the part of each piece, the number of its records, and the records. Most blocks are one
    piece."""
    part: list[int] = []
    counts: list[int] = []
    records: list[bytes] = []
    for i, (offset, count, data) in enumerate(zip(blocks.offsets, blocks.counts, blocks.records, strict=True)):
        pieces = file.cut(offset, count, data, CUT_RECORDS) if count > LONG_BLOCK else [(count, data)]
        for some, piece in pieces:
            part.append(i)
            counts.append(some)
            records.append(piece)
    return np.array(part, np.int64), np.array(counts, np.int64), records


def _long_parts(counts: Ints) -> Ints:
    """The blocks to decode one by one: those much longer than the others. Joint decoding takes one step for each record
    of the longest block."""
    falling = np.argsort(-counts, kind="stable")
    steps = np.append(counts[falling], 0)  # steps that remain if the n longest blocks are left out
    alone = np.concatenate([[0], np.cumsum(counts[falling])])
    best = int(np.argmin(alone * ROW_US + steps * STEP_US))
    return falling[:best]


def take(file: BlockFile, columns: Columns, name: str, order: Ints, pieces: RecordBlocks) -> pa.Array:
    """A column of the records in `order`, which come from these pieces. DamagedIndexFile for a value that its type does
    not have."""
    try:
        return columns.take(name, order)
    except (pa.ArrowInvalid, OutOfRange):
        pass
    for piece, offset in enumerate(pieces.offsets):
        try:
            columns.take(name, order[pieces.firsts[piece] : pieces.firsts[piece + 1]])
        except OutOfRange as error:
            raise file.damaged(f"the block cannot be decoded ({error})", offset) from None
        except pa.ArrowInvalid:
            types = {column.name: column.type for column in file.schema.entry.columns}
            what = "text that is not UTF-8" if types[name] == "string" else "more digits than its type has"
            raise file.damaged(what, offset, column=name) from None
    raise file.damaged("cannot be read", pieces.offsets[0], column=name)
