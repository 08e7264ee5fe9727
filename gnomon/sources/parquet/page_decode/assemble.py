"""Collects the rows that the reads of a fetch give, and makes an Arrow array of each column."""

from collections.abc import Mapping, Sequence
from itertools import chain

import pyarrow as pa

from gnomon.sources.parquet.arrow_types import ArrowTypes
from gnomon.sources.parquet.footer import ChunkPlace
from gnomon.sources.parquet.guards import decode_errors
from gnomon.sources.parquet.page_decode.leaf_rows import (
    LeafRows,
    build_array,
    concatenate,
    decode_leaves,
    has_arrow_layout,
)
from gnomon.sources.parquet.page_decode.select import RowRead
from gnomon.sources.parquet.schema import Column


class _UntypedRows:
    """Decoded rows of one column that are not Arrow arrays yet, of one or more row groups."""

    def __init__(self, place: ChunkPlace) -> None:
        self.place = place
        self.rows = 0
        self.leaves: list[list[LeafRows]] = []  # for each read


class RowAssembler:
    """Collects the rows of each column in order. Columns with only untyped rows, the usual case, become Arrow arrays
    together."""

    def __init__(self, types: ArrowTypes, requested: Sequence[Column]) -> None:
        self._types = types
        self._requested = requested
        self._of: list[list[_UntypedRows | pa.ChunkedArray]] = [[] for _ in requested]

    def add_decoded(self, column: int, found: pa.ChunkedArray) -> None:
        """Add rows that pyarrow decoded."""
        self._of[column].append(found)

    def add_untyped(self, read: RowRead, leaves: list[LeafRows]) -> None:
        """Add rows that `RowRead` decoded."""
        pieces = self._of[read.column]
        if not pieces or not isinstance(pieces[-1], _UntypedRows):
            pieces.append(_UntypedRows(read.places[0]))
        last = pieces[-1]
        last.rows += len(read.wanted)
        last.leaves.append(leaves)

    def arrays(self) -> list[pa.Array | pa.ChunkedArray]:
        """The rows of each column, in the type of the file's schema."""
        whole = {i: pieces[0] for i, pieces in enumerate(self._of) if len(pieces) == 1}
        found = self._typed({i: piece for i, piece in whole.items() if isinstance(piece, _UntypedRows)})
        for i, pieces in enumerate(self._of):
            if i not in found:
                typed = [self._typed({i: piece})[i] if isinstance(piece, _UntypedRows) else piece for piece in pieces]
                chunks = [piece.chunks if isinstance(piece, pa.ChunkedArray) else [piece] for piece in typed]
                found[i] = pa.chunked_array(list(chain(*chunks)), self._types.kinds[self._requested[i].ordinal])
        return [found[i] for i in range(len(self._of))]

    def _typed(self, untyped: Mapping[int, _UntypedRows]) -> dict[int, pa.Array | pa.ChunkedArray]:
        """The rows of columns, by the position of each among the requested ones."""
        found: dict[int, pa.Array | pa.ChunkedArray] = {}
        others: list[tuple[int, Column, _UntypedRows]] = []
        for i, each in untyped.items():
            column = self._requested[i]
            kind = self._types.kinds[column.ordinal]
            if has_arrow_layout(column, kind, each.rows):
                with decode_errors(each.place, each.place.chunk.start):
                    found[i] = build_array(column, kind, concatenate([rows for [rows] in each.leaves]))
            else:
                others.append((i, column, each))
        if others:
            self._by_pyarrow(others, found)
        return found

    def _by_pyarrow(
        self,
        untyped: Sequence[tuple[int, Column, _UntypedRows]],
        found: dict[int, pa.Array | pa.ChunkedArray],
    ) -> None:
        """Decode untyped rows of several columns in one call of pyarrow. Adds them to `found`."""
        requested, first = [column for _, column, _ in untyped], untyped[0][2]
        leaves = [leaf for column in requested for leaf in column.leaves]
        rows = [concatenate(parts) for _, _, each in untyped for parts in zip(*each.leaves, strict=True)]
        with decode_errors(first.place, first.place.chunk.start):
            table = decode_leaves(self._types.template(requested), leaves, rows, first.rows)
        for (i, column, _), array in zip(untyped, table.columns, strict=True):
            kind = self._types.kinds[column.ordinal]
            found[i] = array if array.type == kind else array.cast(kind)
