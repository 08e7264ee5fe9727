"""A whole file as Arrow batches in key order, checked while it is read.

A traversal of the upper levels alone gives the positions of the leaves and the records between them. Leaves are read in
long ranges and many are decoded at once (`columns`); Arrow puts the records in order. A tree whose shape differs from
that of its leftmost path is `Irregular`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from gnomon.btree.blocks import BlockFile, LookupStats
from gnomon.btree.columns import CHUNK_BYTES, BlockBatch, Columns, RecordBlocks, RowColumns, decode, take
from gnomon.btree.errors import Irregular
from gnomon.btree.keys import Ints, adjacent
from gnomon.btree.node import Node, Row, adjacent_nulls_last, is_arrow_ordered
from gnomon.btree.traversal import Traversal, leaf_level

LEAVES_AT_ONCE = 2048
ROWS_AT_ONCE = 8192  # rows per batch of a scan node by node


@dataclass(frozen=True)
class Census:
    """The counts of a file."""

    entries: int
    nodes: int
    height: int
    bytes: int


class _Step(NamedTuple):
    """Consecutive records in key order: all records of a leaf that is not read yet, or some records of another node."""

    offset: int
    node: Node | None = None  # None: a leaf
    begin: int = 0
    end: int = 0


class Scan:
    """One scan of a file. `census` has the counts once `batches` is exhausted."""

    def __init__(self, file: BlockFile, columns: Sequence[str], stats: LookupStats) -> None:
        self._file = file
        self._stats = stats
        self._types = {column.name: column.type for column in file.schema.entry.columns}
        self._columns = list(columns)
        self._keys = [column.name for column in file.schema.entry.keys]
        self._leaves_at_once = LEAVES_AT_ONCE
        self._reset()

    def _reset(self) -> None:
        self._entries = self._height = 0
        self._spans: list[list[tuple[int, int]]] = []  # (begin, end) of blocks
        self._last: list[pa.Array] | None = None  # the key before, as one-row arrays
        self._ended_in_leaf = False

    def batches(self) -> Iterator[pa.RecordBatch]:
        """All entries. DamagedIndexFile for any fault of the file, at the latest at the end."""
        if self._file.start < self._file.size:
            yield from self._batches()
        self._check_file()

    @property
    def census(self) -> Census:
        """The counts of the file."""
        return Census(self._entries, sum(map(len, self._spans)), max(self._height, 1), self._file.size)

    # -- many nodes at once ----------------------------------------------------------------------------------------

    def _batches(self) -> Iterator[pa.RecordBatch]:
        steps: list[_Step] = []
        leaves = inner = 0
        for step in self._steps():
            steps.append(step)
            leaves += step.node is None
            inner += 0 if step.node is None or step.begin else step.node.cache_bytes
            if leaves >= self._leaves_at_once or len(steps) >= 3 * self._leaves_at_once or inner > CHUNK_BYTES:
                yield from self._chunk(steps)
                steps, leaves, inner = [], 0, 0
        if steps:
            yield from self._chunk(steps)

    def _steps(self) -> Iterator[_Step]:
        """The tree in key order, without reading its leaves."""
        self._height = height = leaf_level(self._file, self._stats)
        traversal = Traversal(self._file, self._stats)
        if height == 1:
            yield _Step(self._file.start)
            return
        stack = [(traversal.root(), 0)]
        while stack:
            place, begin = stack.pop()
            block, keys = place.block, place.block.node.keys
            if begin == 0:
                self._spans.append([(block.offset, block.end)])
            while begin < len(keys):
                end = keys.next_link(begin)
                yield _Step(block.offset, block.node, begin, end)
                begin = end
                if keys.link(end - 1) is None:
                    continue
                if place.level + 1 == height:
                    yield _Step(traversal.child_offset(place, end - 1))
                    continue
                stack += [(place, end), (traversal.child(place, end - 1), 0)]
                break

    def _chunk(self, steps: list[_Step]) -> Iterator[pa.RecordBatch]:
        """The records of these steps, in several batches if one would take too much memory."""
        blocks = BlockBatch()
        inner: dict[int, list[_Step]] = {}
        for step in steps:
            if step.node is not None:
                inner.setdefault(step.offset, []).append(step)
        for runs in inner.values():  # consecutive runs of one node
            node, begin, end = runs[0].node, runs[0].begin, runs[-1].end
            if node is not None:
                blocks.add_inner(runs[0].offset, begin, end - begin, node.bytes(begin, end))
        leaves = sorted(step.offset for step in steps if step.node is None)
        spans = []
        for offset, (count, end, data) in zip(leaves, self._file.unpacked(leaves, self._stats), strict=True):
            blocks.add_leaf(offset, count, data)
            spans.append((offset, end))
            if blocks.size(len(self._types)) > CHUNK_BYTES and len(steps) > 1:
                half = len(steps) // 2
                self._leaves_at_once = max(half // 2, 1)
                yield from self._chunk(steps[:half])
                yield from self._chunk(steps[half:])
                return
        columns, first, _ = decode(self._file, blocks)
        self._spans.append(spans)
        part = np.array([blocks.index[step.offset] for step in steps])
        begins = np.array([step.begin for step in steps]) - np.array(blocks.begins)[part]
        is_leaf = [step.node is None for step in steps]
        lengths = np.where(is_leaf, np.array(blocks.counts)[part], [step.end - step.begin for step in steps])
        firsts = np.concatenate([[0], np.cumsum(lengths)])
        order = np.repeat(first[part] + begins - firsts[:-1], lengths) + np.arange(firsts[-1])
        pieces = RecordBlocks([step.offset for step in steps], firsts, is_leaf)
        yield self._batch(columns, order, pieces, check_order=True)

    # -- batches ---------------------------------------------------------------------------------------------------

    def _batch(self, columns: Columns, order: Ints, pieces: RecordBlocks, check_order: bool) -> pa.RecordBatch:
        arrays = {
            name: take(self._file, columns, name, order, pieces)
            for name in dict.fromkeys([*self._columns, *self._keys])
        }
        if check_order:
            self._check_order([arrays[name] for name in self._keys], pieces)
        self._entries += len(order)
        return pa.RecordBatch.from_arrays(list(arrays.values()), list(arrays)).select(self._columns)

    def _check_order(self, keys: list[pa.Array], pieces: RecordBlocks) -> None:
        """Check that the keys do not decrease. From a leaf to the record after it they must increase, if no run of
        equal keys is split."""
        if self._last is None:
            joined, before = keys, 0
        else:
            joined, before = [pa.concat_arrays(pair) for pair in zip(self._last, keys, strict=True)], 1
        equal, wrong = self._adjacent(joined)
        wrong = ~wrong
        if self._file.has_whole_runs:
            after_leaf = np.flatnonzero(np.concatenate([[self._ended_in_leaf], pieces.is_leaf[:-1]]))
            borders = pieces.firsts[after_leaf] + before - 1
            wrong[borders[borders >= 0]] |= equal[borders[borders >= 0]]
        if wrong.any():
            self._refuse_order(int(np.argmax(wrong)) + 1 - before, pieces)
        self._last = [key.slice(len(key) - 1) for key in keys]
        self._ended_in_leaf = bool(pieces.is_leaf[-1])

    def _adjacent(self, keys: list[pa.Array]) -> tuple[np.ndarray, np.ndarray]:
        return adjacent(keys)

    def _refuse_order(self, record: int, pieces: RecordBlocks) -> None:
        offset = pieces.offset_of(record)
        inside = record > 0 and pieces.offset_of(record - 1) == offset
        why = "the keys of a node are not in order" if inside else "a node holds keys outside of its parent's interval"
        raise self._file.damaged(why, offset)

    # -- checks ---------------------------------------------------------------------------------------------------

    def _check_file(self) -> None:
        """Check that each byte lies in one block, that the number of entries is the header's, and the checksum of the
        upper levels."""
        self._file.check_upper(self._stats)
        start, size = self._file.start, self._file.size
        spans = np.array(sorted(chain([(size, size)], *self._spans)))
        ends = np.concatenate([[start], spans[:-1, 1]])
        wrong = np.flatnonzero(ends != spans[:, 0])
        if len(wrong):
            end, begin = int(ends[wrong[0]]), int(spans[wrong[0], 0])
            if begin > end:
                raise self._file.damaged(f"no link reaches the {begin - end} bytes here", end)
            raise self._file.damaged(f"overlaps a block that ends at {end}", begin)
        if self._file.entries not in (None, self._entries):
            raise self._file.damaged("", start, expected=f"{self._file.entries} entries", found=str(self._entries))


# -- Dione's files -----------------------------------------------------------------------------------------------------


class DioneScan(Scan):
    """One scan of a file. The scan goes node by node if the tree is irregular, or if Arrow cannot compare the keys in
    the file's order."""

    def _batches(self) -> Iterator[pa.RecordBatch]:
        given = 0
        if is_arrow_ordered([column.type for column in self._file.schema.entry.keys]):
            try:
                for batch in super()._batches():
                    given += batch.num_rows
                    yield batch
                return
            except Irregular:
                self._reset()
        yield from _without_first(given, self._node_by_node())

    def _node_by_node(self) -> Iterator[pa.RecordBatch]:
        """All entries. The traversal checks the order, so the batches are not checked."""
        rows: list[Row] = []
        offsets: list[int] = []
        firsts = [0]
        for place, begin, end in Traversal(self._file, self._stats).runs():
            if begin == 0:
                self._spans.append([(place.block.offset, place.block.end)])
                self._height = max(self._height, place.level)
            rows += place.block.node.rows(begin, end)
            offsets.append(place.block.offset)
            firsts.append(len(rows))
            if len(rows) >= ROWS_AT_ONCE:
                yield self._row_batch(rows, offsets, firsts)
                rows, offsets, firsts = [], [], [0]
        if rows:
            yield self._row_batch(rows, offsets, firsts)

    def _row_batch(self, rows: list[Row], offsets: list[int], firsts: list[int]) -> pa.RecordBatch:
        columns = RowColumns(self._file.schema, rows)
        return self._batch(
            columns, np.arange(len(rows)), RecordBlocks(offsets, np.array(firsts), []), check_order=False
        )

    def _adjacent(self, keys: list[pa.Array]) -> tuple[np.ndarray, np.ndarray]:
        ends = {last for key, last in zip(keys, self._file.schema.nulls_last, strict=True) if key.null_count}
        if len(ends) > 1:
            raise self._file.irregular("nulls at both ends", self._file.start)
        return adjacent_nulls_last(keys) if True in ends else adjacent(keys)


def _without_first(rows: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        skip = min(rows, batch.num_rows)
        rows -= skip
        if skip < batch.num_rows:
            yield batch.slice(skip)
