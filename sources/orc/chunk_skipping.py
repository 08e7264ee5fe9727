"""Which chunks of a fetch need not be unpacked.

Texts and floats stand one behind the other, so the lengths before a value say at which byte of the stream it begins,
but not in which chunk: a writer may end a chunk early. No chunk unpacks to more than the block size, though. Where all
values from one known place to another have as many bytes as the chunks between can have at most, each of these has its
most, and the chunk follows from the byte. The places are those of the row index, which a scan compares with what it
reads, and the end of the stream: before that lie all values' bytes at least, or a scan fails. The chunk before the
end is seldom full: it is unpacked for its size.
"""

from contextlib import suppress
from functools import partial
from itertools import accumulate

from sources.orc.column_base import Column, StripeStreams
from sources.orc.column_types import RawColumn, make_column
from sources.orc.errors import OrcError
from sources.orc.schema import Type
from sources.orc.streams import FullChunks
from sources.orc.stripe import DATA, place_of


class Leaps:
    """The full chunks of some groups of rows of a column, and of those below it; looked for when first asked for."""

    def __init__(self, streams: StripeStreams, tree: Type, group: int, end: int, total: int) -> None:
        """From the first row of `group` to the row `end` of the `total` of the stripe: there another group begins."""
        stride = streams.footer.stride
        self._streams = streams
        self._tree = tree
        self._group = group
        self._rows = end - group * stride
        self._after = end // stride if end < total else None
        self._sizes: dict[int, int] | None = None
        self._found: dict[int, FullChunks | None] = {}

    def help(self, column: Column) -> None:
        """Tells the streams of a column that was made for these groups of rows."""
        for each in column.columns():
            if isinstance(each, RawColumn):
                each.data.full = partial(self._full, each.tree)

    def _full(self, tree: Type) -> FullChunks | None:
        if tree.column not in self._found:
            self._found[tree.column] = None
            with suppress(OrcError):  # what is damaged need not lie before the rows asked for
                self._found[tree.column] = self._proven(tree)
        return self._found[tree.column]

    def _proven(self, tree: Type) -> FullChunks | None:
        """The chunks of a column's data; None where some may be less than full."""
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
        size = offset + values - beyond  # of all chunks together
        if not sum(most[:-1]) < size <= sum(most):
            return None
        if self._after is None:
            last = stream.chunk(chunks[-1][0])
            most[-1] = len(last[0]) if last is not None else 0
        if sum(most) != size:
            return None
        return FullChunks([*(each for each, _ in chunks), end], list(accumulate(most, initial=0)))

    def _bytes_of(self, column: int) -> int | None:
        """Bytes of all values of a column; None where these could not be counted."""
        if self._sizes is None:
            self._sizes = {}  # once: if it fails, it fails for all columns
            whole = make_column(self._streams, self._tree, self._group)
            counted = [each for each in whole.columns() if isinstance(each, RawColumn)]
            for each in counted:
                each.passed = 0
            whole.skip(self._rows)
            self._sizes = {each.tree.column: each.passed or 0 for each in counted}
        return self._sizes.get(column)
