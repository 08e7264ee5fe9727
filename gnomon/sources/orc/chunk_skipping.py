"""Finds the chunks that a fetch need not decompress.

Texts and floats are stored one after another. The lengths before a value give its byte in the stream, but not its
chunk, because a writer may end a chunk early. But no chunk decompresses to more than the block size. If the values
between two known positions have exactly as many bytes as the chunks between them can have at most, each of these chunks
is full, and the byte gives the chunk. Known positions are those of the row index, which a scan compares with the data
it reads, and the end of the stream. The chunk before the end is seldom full: it is decompressed to get its size.
"""

from contextlib import suppress
from functools import partial
from itertools import accumulate

from gnomon.sources.orc.column_base import Column, StripeStreams
from gnomon.sources.orc.column_types import RawColumn, make_column
from gnomon.sources.orc.errors import OrcError
from gnomon.sources.orc.schema import Type
from gnomon.sources.orc.streams import FullChunks
from gnomon.sources.orc.stripe import DATA, place_of


class ChunkSkipper:
    """Finds the chunks that decompress to full blocks, for some row groups of a column and its children. Computed at
    the first use."""

    def __init__(self, streams: StripeStreams, tree: Type, group: int, end: int, total: int) -> None:
        """Covers the rows from the first of `group` to `end`, another group's first row, or `total`, the rows of the
        stripe."""
        stride = streams.footer.stride
        self._streams = streams
        self._tree = tree
        self._group = group
        self._rows = end - group * stride
        self._after = end // stride if end < total else None
        self._sizes: dict[int, int] | None = None
        self._found: dict[int, FullChunks | None] = {}

    def attach_to(self, column: Column) -> None:
        """Let the streams of a column, made for these row groups, skip chunks."""
        for each in column.columns():
            if isinstance(each, RawColumn):
                each.data.full = partial(self._full, each.tree)

    def _full(self, tree: Type) -> FullChunks | None:
        if tree.column not in self._found:
            self._found[tree.column] = None
            with suppress(OrcError):  # damage may lie outside the requested rows
                self._found[tree.column] = self._proven(tree)
        return self._found[tree.column]

    def _proven(self, tree: Type) -> FullChunks | None:
        """The chunks of a column's data; None where some may not be full."""
        stream = self._streams.stream(tree.column, DATA)
        begin, offset, end, beyond = 0, 0, stream.length, 0
        places = self._streams.meta.positions.get(tree.column)
        if places is not None:
            at = place_of(DATA, tree, self._streams.meta, self._streams.footer)
            if self._group:
                begin, offset = places[self._group, at : at + 2].tolist()
            if self._after is not None:
                end, beyond = places[self._after, at : at + 2].tolist()
        values = self._bytes_of(tree.column)
        chunks = list(stream.most(begin, end))
        most = [each for _, each in chunks]
        if values is None or not chunks or offset > most[0]:
            return None
        size = offset + values - beyond  # the chunks' total
        if not sum(most[:-1]) < size <= sum(most):
            return None
        if self._after is None:
            last = stream.chunk(chunks[-1][0])
            most[-1] = len(last[0]) if last is not None else 0
        if sum(most) != size:
            return None
        return FullChunks([*(each for each, _ in chunks), end], list(accumulate(most, initial=0)))

    def _bytes_of(self, column: int) -> int | None:
        """The bytes of all values of a column; None where they could not be counted."""
        if self._sizes is None:
            self._sizes = {}  # so that a failure is final for all columns
            whole = make_column(self._streams, self._tree, self._group)
            counted = [each for each in whole.columns() if isinstance(each, RawColumn)]
            for each in counted:
                each.passed = 0
            whole.skip(self._rows)
            self._sizes = {each.tree.column: each.passed or 0 for each in counted}
        return self._sizes.get(column)
