"""Scan of a whole Dione file as Arrow batches in key order, checked while it is read."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from gnomon.btree.block_batch import RecordBlocks
from gnomon.btree.columns import RowColumns
from gnomon.btree.dione.order import adjacent_nulls_last, is_arrow_ordered
from gnomon.btree.errors import Irregular
from gnomon.btree.keys import adjacent
from gnomon.btree.node import Row
from gnomon.btree.scan import Scan
from gnomon.btree.traversal import Traversal

ROWS_AT_ONCE = 8192  # rows per batch of a scan node by node


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
