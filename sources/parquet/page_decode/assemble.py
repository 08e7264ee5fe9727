"""What the reads of a fetch found, column by column, until it becomes Arrow arrays."""

from collections.abc import Sequence

import pyarrow as pa

from sources.parquet.arrow_types import ArrowTypes
from sources.parquet.footer import ChunkPlace
from sources.parquet.page_decode.leaf_rows import LeafRows, as_table, is_plain, joined, plain_array
from sources.parquet.page_decode.select import PickRead
from sources.parquet.page_reads import decoding
from sources.parquet.schema import Column


class _Picked:
    """Rows of one column that have no type yet, from one row group after the other."""

    def __init__(self, place: ChunkPlace) -> None:
        self.place = place
        self.rows = 0
        self.leaves: list[list[LeafRows]] = []  # for each read


class Pieces:
    """The pieces of each column in the order of the rows. Columns all of whose rows were picked, which is the usual
    case, get their types together."""

    def __init__(self, types: ArrowTypes, asked: Sequence[Column]) -> None:
        self._types = types
        self._asked = asked
        self._of: list[list[_Picked | pa.ChunkedArray]] = [[] for _ in asked]

    def add_decoded(self, column: int, found: pa.ChunkedArray) -> None:
        self._of[column].append(found)

    def add_picked(self, read: PickRead, leaves: list[LeafRows]) -> None:
        pieces = self._of[read.column]
        if not pieces or not isinstance(pieces[-1], _Picked):
            pieces.append(_Picked(read.places[0]))
        last = pieces[-1]
        last.rows += len(read.wanted)
        last.leaves.append(leaves)

    def arrays(self, path: str) -> list[pa.ChunkedArray]:
        """One for each column, in the type of the file's schema."""
        alone = [i for i, pieces in enumerate(self._of) if len(pieces) == 1 and isinstance(pieces[0], _Picked)]
        for i, found in zip(alone, self._typed(alone, [self._of[i][0] for i in alone]), strict=True):
            self._of[i] = [found]
        arrays = []
        for i, (column, pieces) in enumerate(zip(self._asked, self._of, strict=True)):
            typed = [self._typed([i], [piece])[0] if isinstance(piece, _Picked) else piece for piece in pieces]
            kind = self._types.kinds[column.ordinal]
            arrays.append(pa.chunked_array([chunk for piece in typed for chunk in piece.chunks], kind))
        return arrays

    def _typed(self, columns: Sequence[int], picked: Sequence[_Picked]) -> list[pa.ChunkedArray]:
        found: dict[int, pa.ChunkedArray] = {}
        others: list[tuple[int, Column, _Picked]] = []
        for i, each in zip(columns, picked, strict=True):
            column = self._asked[i]
            if is_plain(column, kind := self._types.kinds[column.ordinal], each.rows):
                with decoding(each.place, each.place.chunk.start):
                    found[i] = pa.chunked_array([plain_array(column, kind, joined([rows for [rows] in each.leaves]))])
            else:
                others.append((i, column, each))
        if others:
            self._by_pyarrow(others, found)
        return [found[i] for i in columns]

    def _by_pyarrow(self, picked: Sequence[tuple[int, Column, _Picked]], found: dict[int, pa.ChunkedArray]) -> None:
        """Those columns, in one call."""
        asked, first = [column for _, column, _ in picked], picked[0][2]
        leaves = [leaf for column in asked for leaf in column.leaves]
        rows = [joined(parts) for _, _, each in picked for parts in zip(*each.leaves, strict=True)]
        with decoding(first.place, first.place.chunk.start):
            table = as_table(self._types.template(asked), leaves, rows, first.rows)
        for (i, column, _), array in zip(picked, table.columns, strict=True):
            kind = self._types.kinds[column.ordinal]
            found[i] = array if array.type == kind else array.cast(kind)
