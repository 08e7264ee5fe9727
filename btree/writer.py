"""Sorted Arrow batches to one index file.

One pass: leaves are compressed as they fill, the records between them are kept, and at the end the levels above
are laid out from the bottom up (`layout`), for a record's link is the distance from its child to the end of the file.
Memory is bounded by the encoded file.

A tree grows at its root, as entries come. A node's first record is less than all below it, so each level that is
added takes one record from the head of the first leaf; that leaf is kept open until the end.

A node is closed only where the key changes, so that Dione's reader, which goes down once per node, finds every
row of a key; a run of equal keys longer than the node limit spills into children (ours finds those, too).
"""

import os
import zlib
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa

from btree import format as fmt
from btree.codecs import compressor
from btree.encode import EncodedRows, encode_rows, normalise
from btree.errors import BTreeError, UnsortedKeys
from btree.keys import adjacent
from btree.layout import InnerNode, dione_order, level_order
from btree.schema import EntrySchema
from btree.shape import LEAST_RECORDS, MAX_HEIGHT, NODE_BYTES, is_full


@dataclass
class IndexFile:
    """A finished index file: its bytes in order, and what they hold."""

    chunks: list[bytes]
    entries: int
    height: int
    nodes: int
    size: int
    crc32: int


class BTreeWriter:
    """Collects sorted entries and lays them out as an index file.

    The batches handed to `write` hold the columns of the schema in its order; their keys must not decrease
    (UnsortedKeys). The same entries and the same `sync` marker (16 bytes, random unless given) make the same bytes,
    however the entries are cut into batches."""

    def __init__(
        self,
        schema: EntrySchema,
        codec: str = "deflate",
        node_bytes: int = NODE_BYTES,
        node_limit: int = fmt.NODE_LIMIT,
        sync: bytes | None = None,
        order: Literal["level", "dione"] = "level",
    ) -> None:
        if sync is not None and len(sync) != fmt.SYNC_BYTES:
            raise BTreeError(f"a sync marker has {fmt.SYNC_BYTES} bytes, found {len(sync)}")
        self._schema = schema
        self._order = order
        self._codec = codec
        self._compress = compressor(codec)
        self._node_bytes = node_bytes
        self._node_limit = min(node_limit, fmt.NODE_LIMIT)
        self._sync = sync if sync is not None else os.urandom(fmt.SYNC_BYTES)
        self._entries = 0
        self._head: list[bytes] = []  # the first records of the file, one for each level that may come
        self._first_leaf = b""  # records of the first leaf, once it is full
        self._first_records = 0
        self._levels: list[list[InnerNode]] = []  # above the leaves, the lowest first; the last node of each is open
        self._forced: list[int] = []  # levels that need a record before the next leaf can begin
        self._leaf: list[memoryview] = []  # the open leaf
        self._leaf_records = 0
        self._leaf_bytes = 0
        self._blocks: list[bytes] = []  # finished leaves in key order, but for the first
        self._last: list[pa.Array] | None = None  # key of the last row, one-row arrays

    def write(self, batch: pa.RecordBatch | pa.Table) -> None:
        """Append the entries of a batch."""
        rows, columns = batch.num_rows, len(self._schema.columns)
        if batch.num_columns != columns:
            raise BTreeError(f"expected a batch of {columns} columns, found {batch.num_columns}")
        if rows == 0:
            return
        arrays = [normalise(batch.column(i), column) for i, column in enumerate(self._schema.columns)]
        changes = self._key_changes(arrays[: len(self._schema.keys)], rows)
        encoded = encode_rows(arrays, self._schema)
        for row in range(min(rows, MAX_HEIGHT - 1 - len(self._head))):
            self._head.append(_without_link(encoded, row))
        self._entries += rows
        self._place(encoded, changes, rows)

    def _key_changes(self, keys: list[pa.Array], rows: int) -> np.ndarray:
        """Positions whose key differs from the row before; checks the order, across batches too."""
        keys = [key.dictionary_decode() if pa.types.is_dictionary(key.type) else key for key in keys]
        if self._last is None:
            joined = keys
        else:
            joined = [pa.concat_arrays([last, key]) for last, key in zip(self._last, keys, strict=True)]
        equal, sorted_ = adjacent(joined)
        if not sorted_.all():
            at = self._entries + int(np.argmin(sorted_)) + (0 if self._last is not None else 1)
            raise UnsortedKeys(f"the key of row {at} is less than the key before it; sort by the key columns")
        self._last = [key.slice(rows - 1) for key in keys]
        changed = ~equal if len(equal) == rows else np.concatenate([[True], ~equal])
        return np.flatnonzero(changed)

    def _place(self, encoded: EncodedRows, changes: np.ndarray, rows: int) -> None:
        """Give each record of the batch its node."""
        starts, data = encoded.starts, encoded.data
        at = 0
        while at < rows:
            if self._forced:
                self._add_inner(self._forced.pop(0), _without_link(encoded, at))
                at += 1
                continue
            cut = self._leaf_end(starts, changes, at, rows)
            self._leaf.append(data[starts[at] : starts[cut]])
            self._leaf_bytes += int(starts[cut] - starts[at])
            self._leaf_records += cut - at
            at = cut
            if at < rows:  # there is a next row, and the leaf ends before it
                self._close_leaf()
                self._climb()

    def _add_inner(self, level: int, record: bytes) -> None:
        node = self._levels[level][-1]
        if not node.records and level + 1 < len(self._levels):
            self._levels[level + 1][-1].parents[-1] = True
        node.add(record)

    def _leaf_end(self, starts: np.ndarray, changes: np.ndarray, at: int, rows: int) -> int:
        """The row at which the open leaf ends: the first change of key at or after the target size, or `rows`."""
        begin = starts[at] - self._leaf_bytes
        full = max(at, int(np.searchsorted(starts[: rows + 1], begin + self._node_bytes)))
        if not self._levels:
            full = max(full, at + LEAST_RECORDS - self._leaf_records)  # some go to the levels above
        candidate = int(np.searchsorted(changes, full))
        cut = int(changes[candidate]) if candidate < len(changes) else rows
        limit = int(np.searchsorted(starts[: rows + 1], begin + self._node_limit, side="right")) - 1
        return min(cut, max(limit, at if self._leaf_records else at + 1), rows)

    def _close_leaf(self) -> None:
        """Compress the open leaf, or keep it when it is the first."""
        records = b"".join(self._leaf)
        if not self._levels:
            self._first_leaf, self._first_records = records, self._leaf_records
            self._levels.append([_spine_node()])
        else:
            self._blocks.append(self._block(self._leaf_records, records))
            self._levels[0][-1].parents[-1] = True
        self._leaf, self._leaf_records, self._leaf_bytes = [], 0, 0

    def _climb(self) -> None:
        """Find the lowest inner node that is not full: the next record goes there, and one to each level below."""
        most = min(MAX_HEIGHT - 1, self._first_records)
        level = 0
        while level + 1 < most:
            node = self._levels[level][-1]
            if not is_full(len(node.records), node.size, self._node_bytes):
                break
            self._levels[level].append(InnerNode())
            level += 1
            if level == len(self._levels):
                self._levels.append([_spine_node()])
        self._forced = list(range(level, -1, -1))

    def _block(self, count: int, records: bytes) -> bytes:
        if len(records) > fmt.NODE_LIMIT:
            raise BTreeError(f"a node of {len(records)} bytes is over the limit of {fmt.NODE_LIMIT}: a row is too long")
        return fmt.encode_block(count, self._compress(records), self._sync)

    def finish(self) -> IndexFile:
        """Close all open nodes and lay out the file. The writer is spent afterwards."""
        if not self._levels:
            leaves = [self._block(self._entries, b"".join(self._leaf))] if self._entries else []
        else:
            if self._leaf_records:
                self._close_leaf()
            leaves = self._settle_first_leaf() + self._blocks
        levels = [[node for node in level if node.records] for level in self._levels]
        upper: list[bytes] = []
        if self._order == "dione":
            blocks = dione_order(levels, leaves, self._block)
        else:
            upper = level_order(levels, leaves, self._block)
            blocks = upper + leaves
        chunks = [self._header(blocks, sum(map(len, upper))), *blocks]
        crc = 0
        for chunk in chunks:
            crc = zlib.crc32(chunk, crc)
        height = max(1, len(levels) + bool(leaves))
        return IndexFile(chunks, self._entries, height, len(blocks), sum(map(len, chunks)), crc)

    def _settle_first_leaf(self) -> list[bytes]:
        """Give each level its first record, from the head of the first leaf; the leaf that remains, if any."""
        height = len(self._levels)
        for level, record in zip(reversed(self._levels), self._head, strict=False):
            level[0].records[0] = record
        taken = sum(map(len, self._head[:height])) + height * len(fmt.NULL_LINK)
        count = self._first_records - height
        self._levels[0][0].parents[0] = count > 0
        return [self._block(count, self._first_leaf[taken:])] if count else []

    def _header(self, blocks: list[bytes], upper_bytes: int) -> bytes:
        names = [[column.name for column in part] for part in (self._schema.keys, self._schema.values)]
        numbers = {
            fmt.DATA_BYTES_KEY: sum(map(len, blocks)),
            fmt.UPPER_BYTES_KEY: upper_bytes,
            fmt.ENTRIES_KEY: self._entries,
            fmt.NODE_BYTES_KEY: max(map(len, blocks), default=0),
        }
        metadata = {
            fmt.SCHEMA_KEY: self._schema.to_json(),
            fmt.CODEC_KEY: self._codec.encode(),
            fmt.KEY_VALUE_KEY: fmt.encode_key_value_spec(*names),
            **{key: str(number).encode() for key, number in numbers.items()},
        }
        return fmt.encode_header(metadata, self._sync)


def _spine_node() -> InnerNode:
    """The first node of a new level; its first record is put in at the end."""
    return InnerNode([b""], [True])


def _without_link(encoded: EncodedRows, row: int) -> bytes:
    return bytes(encoded.data[encoded.starts[row] : encoded.starts[row + 1] - len(fmt.NULL_LINK)])
