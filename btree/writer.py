"""Sorted Arrow batches to one index file.

The writer takes one pass. Leaves are compressed as they fill, and the records between them are kept. At the end the
levels above are laid out from the bottom up (`geometry.level_order`), since a record's link is the distance from its
child to the end of the file. Memory holds the encoded leaves, and the records above them unencoded (one in 70 for
entries of 100 bytes).

A tree grows at its root, as entries come. A node's first record is less than all below it, so each new level takes one
record from the head of the first leaf. That leaf is kept open until the end.

A node is closed only where the key changes, so that Dione's reader, which goes down once per node, finds every row of a
key. A run of equal keys longer than the node limit is split into children, where only our reader finds all of it.
"""

import numpy as np
import pyarrow as pa

from gnomon.btree import format as fmt
from gnomon.btree.codecs import CHECKSUMS, compressor
from gnomon.btree.encode import EncodedRows, RowEncoder
from gnomon.btree.geometry import (
    LEAST_RECORDS,
    MAX_HEIGHT,
    NODE_BYTES,
    IndexFile,
    InnerNode,
    is_full,
    leaf_target,
    level_order,
    node_block,
)
from gnomon.btree.schema import EntrySchema


class BTreeWriter:
    """Collects sorted entries and lays them out as an index file.

    The batches given to `write` hold the columns of the schema in its order; their keys must not decrease
    (UnsortedKeys). The same entries and the same `sync` marker (16 bytes, random by default) make the same bytes,
    however the entries are cut into batches."""

    def __init__(
        self,
        schema: EntrySchema,
        codec: str = "deflate",
        node_bytes: int = NODE_BYTES,
        node_limit: int = fmt.NODE_LIMIT,
        sync: bytes | None = None,
    ) -> None:
        self._schema = schema
        self._codec = codec
        self._compress = compressor(codec)
        self._node_bytes = node_bytes
        self._node_limit = min(node_limit, fmt.NODE_LIMIT)
        self._sync = fmt.sync_marker(sync)
        self._rows = RowEncoder(schema)
        self._head: list[bytes] = []  # the first records of the file, one for each possible level
        self._first_leaf = b""  # records of the first leaf, once it is full
        self._first_records = 0
        self._levels: list[list[InnerNode]] = []  # above the leaves, the lowest first; the last node of each is open
        self._upper_bytes = 0  # bytes of the records in `_levels`
        self._split_runs = 0  # leaves that end between two equal keys
        self._forced: list[int] = []  # levels that need a record before the next leaf can begin
        self._leaf: list[memoryview] = []  # the open leaf
        self._leaf_records = 0
        self._leaf_bytes = 0
        self._blocks: list[bytes] = []  # finished leaves in key order, without the first

    def write(self, batch: pa.RecordBatch | pa.Table) -> None:
        """Append the entries of a batch."""
        rows = self._rows.encode(batch)
        if rows is None:
            return
        for row in range(min(len(rows), MAX_HEIGHT - 1 - len(self._head))):
            self._head.append(_without_link(rows.records, row))
        self._place(rows.records, rows.changes, len(rows))

    def _place(self, encoded: EncodedRows, changes: np.ndarray, rows: int) -> None:
        """Assign each record of the batch to a node."""
        starts, data = encoded.starts, encoded.data
        at = 0
        while at < rows:
            if self._forced:
                self._add_inner(self._forced.pop(0), _without_link(encoded, at))
                at += 1
                continue
            cut, splits_run = self._leaf_end(starts, changes, at, rows)
            self._leaf.append(data[starts[at] : starts[cut]])
            self._leaf_bytes += int(starts[cut] - starts[at])
            self._leaf_records += cut - at
            at = cut
            if at < rows:  # there is a next row, and the leaf ends before it
                self._close_leaf()
                self._climb()
                self._split_runs += splits_run

    def _add_inner(self, level: int, record: bytes) -> None:
        node = self._levels[level][-1]
        if not node.records and level + 1 < len(self._levels):
            self._levels[level + 1][-1].parents[-1] = True
        node.add(record)
        self._upper_bytes += len(record)

    def _leaf_end(self, starts: np.ndarray, changes: np.ndarray, at: int, rows: int) -> tuple[int, bool]:
        """The row at which the open leaf ends: the first change of key at or after the target size, or `rows`. The flag
        is true if the leaf has to end earlier, inside a run of equal keys, since it would exceed a limit."""
        begin = int(starts[at]) - self._leaf_bytes
        full = max(at, int(starts.searchsorted(begin + leaf_target(self._upper_bytes, self._node_bytes))))
        if not self._levels:
            full = max(full, at + LEAST_RECORDS - self._leaf_records)  # some go to the levels above
        candidate = int(changes.searchsorted(full))
        cut = int(changes[candidate]) if candidate < len(changes) else rows
        if starts[cut] - begin <= self._node_limit and cut - at + self._leaf_records <= fmt.NODE_RECORDS:
            return cut, False
        limit = int(starts.searchsorted(begin + self._node_limit, side="right")) - 1
        limit = min(limit, at + fmt.NODE_RECORDS - self._leaf_records)
        end = min(cut, max(limit, at if self._leaf_records else at + 1))
        return end, end < rows and not _holds(changes, end)

    def _close_leaf(self) -> None:
        """Compress the open leaf, or keep it if it is the first."""
        records = b"".join(self._leaf)
        if not self._levels:
            self._first_leaf, self._first_records = records, self._leaf_records
            self._levels.append([_spine_node()])
        else:
            self._blocks.append(self._block(self._leaf_records, records))
            self._levels[0][-1].parents[-1] = True
        self._leaf, self._leaf_records, self._leaf_bytes = [], 0, 0

    def _climb(self) -> None:
        """Find the lowest inner node that is not full: the next record goes there, and one record to each level
        below."""
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
        return node_block(count, records, self._compress, self._sync)

    def finish(self) -> IndexFile:
        """Close all open nodes and lay out the file. The writer cannot be used afterwards."""
        if not self._levels:
            leaves = [self._block(self._rows.entries, b"".join(self._leaf))] if self._rows.entries else []
        else:
            if self._leaf_records:
                self._close_leaf()
            leaves = self._settle_first_leaf() + self._blocks
        levels = [[node for node in level if node.records] for level in self._levels]
        upper = level_order(levels, leaves, self._block)
        blocks = upper + leaves
        upper_bytes = sum(map(len, upper))
        height = max(1, len(levels) + bool(leaves))
        return IndexFile.of(self._header(upper, blocks), blocks, self._rows.entries, height, upper_bytes)

    def _settle_first_leaf(self) -> list[bytes]:
        """Give each level its first record, from the head of the first leaf. Returns the rest of that leaf, if any."""
        height = len(self._levels)
        for level, record in zip(reversed(self._levels), self._head, strict=False):
            level[0].records[0] = record
        taken = sum(map(len, self._head[:height])) + height * len(fmt.NULL_LINK)
        count = self._first_records - height
        self._levels[0][0].parents[0] = count > 0
        return [self._block(count, self._first_leaf[taken:])] if count else []

    def _header(self, upper: list[bytes], blocks: list[bytes]) -> bytes:
        names = [[column.name for column in part] for part in (self._schema.keys, self._schema.values)]
        numbers = {
            fmt.DATA_BYTES_KEY: sum(map(len, blocks)),
            fmt.UPPER_BYTES_KEY: sum(map(len, upper)),
            fmt.ENTRIES_KEY: self._rows.entries,
            fmt.NODE_BYTES_KEY: max(map(len, blocks), default=0),
            fmt.SPLIT_RUNS_KEY: self._split_runs,
        }
        metadata = {
            fmt.SCHEMA_KEY: self._schema.to_json(),
            fmt.CODEC_KEY: self._codec.encode(),
            fmt.KEY_VALUE_KEY: fmt.encode_key_value_spec(*names),
            **{key: str(number).encode() for key, number in numbers.items()},
        }
        metadata[fmt.UPPER_CRC_KEY] = fmt.crc_text(*upper)
        if self._codec in CHECKSUMS:
            metadata[fmt.CHECKSUM_KEY] = CHECKSUMS[self._codec]
        return fmt.encode_header(fmt.sealed(metadata, self._sync), self._sync)


def _holds(ascending: np.ndarray, value: int) -> bool:
    at = int(ascending.searchsorted(value))
    return at < len(ascending) and int(ascending[at]) == value


def _spine_node() -> InnerNode:
    """The first node of a new level. Its first record is inserted at the end."""
    return InnerNode([b""], [True])


def _without_link(encoded: EncodedRows, row: int) -> bytes:
    return bytes(encoded.data[encoded.starts[row] : encoded.starts[row + 1] - len(fmt.NULL_LINK)])
