"""Reads some rows of some stripes, or scans all rows of one stripe in batches.

A fetch reads the bytes of the row groups together, and decodes them up to the last wanted row. It skips chunks that it
need not decompress. Texts and floats are stored one after another. The lengths before a value give its byte in the
stream, but not its chunk, because a writer may end a chunk early. But no chunk decompresses to more than the block
size. If the values between two known positions have exactly as many bytes as the chunks between them can have at most,
each of these chunks is full, and the byte gives the chunk. Known positions are those of the row index, which a scan
compares with the data it reads, and the end of the stream. The chunk before the end is seldom full: it is decompressed
to get its size.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import accumulate
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from gnomon.base.readers import RangeReader
from gnomon.sources.orc.columns import BatchTooLarge, Column, RawColumn, StripeStreams, make_column
from gnomon.sources.orc.metadata import (
    DATA,
    StripeMeta,
)
from gnomon.sources.orc.rle import Ints
from gnomon.sources.orc.schema import Type
from gnomon.sources.orc.streams import Damage, FullChunks, OrcError, error_context
from gnomon.sources.pointers import in_rounds
from gnomon.sources.types import int64s

TOGETHER = 16 << 20  # bytes requested, and held, at once
NEAR = 2  # row groups: up to this distance, the rows between are skipped by decoding
GAP_ROWS = 1024  # rows between two wanted ones that are decoded with them
GAP_BYTES = 64 << 10  # bytes between two wanted rows that are decoded with them
PIECE = 64 << 10  # bytes per read where a run continues in a chunk that was not read beforehand
BATCH = 64 << 10  # rows
BATCH_BYTES = 16 << 20  # target size of a batch
GROWTH = 4  # estimated bytes in memory per byte in the file, for the first batch
BUFFERS = 64 << 20  # bytes of all streams held at a time
PIECES = (256 << 10, 4 << 20)  # bytes of one stream: least, most


class ChunkSkipper:
    """Finds the chunks that decompress to full blocks, for some row groups of a column and its children. Computed at
    the first use."""

    def __init__(self, streams: StripeStreams, tree: Type, group: int, end: int) -> None:
        """Covers the rows from the first of `group` to `end`: another group's first row, or the end of the stripe."""
        stride = streams.footer.stride
        self._streams = streams
        self._tree = tree
        self._group = group
        self._rows = end - group * stride
        self._after = end // stride if end < streams.meta.place.rows else None
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
            at = self._streams.meta.place_of(DATA, tree)
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


class Share(NamedTuple):
    """Rows of one column that are read together. `slot`: the column's position in the requested columns. `rows`:
    ordinals in the stripe, ascending, between the first row of row group `group` and row `end`."""

    ordinal: int
    meta: StripeMeta
    slot: int
    name: str
    tree: Type
    group: int
    end: int
    rows: Ints
    ranges: list[tuple[int, int, int, int]]

    @property
    def size(self) -> int:
        return sum(end - begin for _, _, begin, end in self.ranges)


def plan(meta: StripeMeta, ordinal: int, requested: Sequence[tuple[str, Type]], rows: Ints) -> Iterator[Share]:
    """The shares that read `rows` of a stripe, by column and then by row."""
    groups, stride = meta.groups, meta.footer.stride
    for slot, (name, tree) in enumerate(requested):
        with error_context(f"column {name!r} in stripe {ordinal}", meta.place.offset):
            if groups > 1 and meta.seekable(tree):
                for part in np.split(rows, np.flatnonzero(np.diff(rows // stride) > NEAR) + 1):
                    first, last = int(part[0]) // stride, int(part[-1]) // stride
                    ranges = list(meta.ranges_of(tree, first, last, groups))
                    end = min((last + 1) * stride, meta.place.rows)
                    yield Share(ordinal, meta, slot, name, tree, first, end, part, ranges)
            else:
                ranges = list(meta.ranges_of(tree, 0, 0, 1))
                yield Share(ordinal, meta, slot, name, tree, 0, meta.place.rows, rows, ranges)


def read_shares(reader: RangeReader, shares: Sequence[Share], row_bytes: int) -> Iterator[tuple[int, pa.Array]]:
    """`(slot, rows)` of each share; about `TOGETHER` bytes in a round of reads."""
    gap = min(GAP_ROWS, GAP_BYTES // row_bytes)
    for batch in in_rounds(shares, lambda share: share.size, TOGETHER):
        opened: dict[int, StripeStreams] = {}
        wanted: dict[tuple[int, int, int], list[tuple[int, int]]] = defaultdict(list)
        for share in batch:
            opened.setdefault(share.ordinal, StripeStreams(reader, share.meta, PIECE, forward=False))
            for column, kind, begin, end in share.ranges:
                if begin < end:
                    wanted[share.ordinal, column, kind].append((begin, end))
        held = []
        for (ordinal, column, kind), spans in wanted.items():
            stream = opened[ordinal].stream(column, kind)
            held += [(stream, begin, end) for begin, end in _merged(spans)]
        parts = reader.read_ranges([(stream.offset + begin, end - begin) for stream, begin, end in held])
        for (stream, begin, _), part in zip(held, parts, strict=True):
            stream.hold(begin, part)
        for share in batch:
            with error_context(f"column {share.name!r} in stripe {share.ordinal}", share.meta.place.offset):
                yield share.slot, _rows(opened[share.ordinal], share, gap)


def _rows(streams: StripeStreams, share: Share, gap: int) -> pa.Array:
    """The rows of a share. They are read one by one if together they take too much memory."""
    try:
        return _pieces(streams, share, gap)
    except BatchTooLarge:
        return _pieces(streams, share, -1)


def _pieces(streams: StripeStreams, share: Share, gap: int) -> pa.Array:
    """The rows of a share. Gaps of at most `gap` rows between them are decoded, too; -1 decodes each row alone."""
    column = make_column(streams, share.tree, share.group)
    position = share.group * streams.footer.stride
    ChunkSkipper(streams, share.tree, share.group, share.end).attach_to(column)
    pieces = []
    for part in np.split(share.rows, np.flatnonzero(np.diff(share.rows) > gap + 1) + 1):
        first, last = int(part[0]), int(part[-1])
        column.skip(first - position)
        position = last + 1
        streams.limited = last > first
        values = column.read(position - first)
        pieces.append(values if len(part) == len(values) else values.take(int64s(part - first)))
    return pieces[0] if len(pieces) == 1 else pa.concat_arrays(pieces)


def _merged(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The spans, ascending, with touching ones merged."""
    merged: list[tuple[int, int]] = []
    for begin, end in sorted(spans):
        if merged and begin <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((begin, end))
    return merged


def scan_stripe(
    reader: RangeReader, meta: StripeMeta, requested: Sequence[tuple[str, Type]]
) -> Iterator[tuple[list[pa.Array], int]]:
    """`(columns, rows)` of each batch. At the begin of each group, the row index is compared with the positions read,
    since a fetch uses the index."""
    stripe, stride = meta.place, meta.footer.stride
    checked = [meta.groups > 1 and meta.seekable(tree) for _, tree in requested]
    streams, columns = _open(reader, meta, requested)
    size, row = min(max(BATCH_BYTES // (GROWTH * max(stripe.data_length // stripe.rows, 1)), 1), BATCH), 0
    while row < stripe.rows:
        count = min(size, stripe.rows - row)
        if any(checked):
            count = min(count, stride - row % stride)
        streams.limited = count > 1
        try:
            arrays = []
            for (name, _), column in zip(requested, columns, strict=True):
                with error_context(f"column {name!r}", stripe.offset):
                    arrays.append(column.read(count))
        except BatchTooLarge:
            size = max(count // 8, 1)
            streams, columns = _open(reader, meta, requested)
            for column in columns:
                column.skip(row)
            continue
        row += count
        if any(checked) and row % stride == 0 and row < stripe.rows:
            for (name, _), column, check in zip(requested, columns, checked, strict=True):
                if check and not column.check(row // stride):
                    message = f"column {name!r}: the row index has another position for row {row} of the stripe"
                    raise Damage(message, stripe.offset)
        held = sum(array.nbytes for array in arrays)
        size = min(max(BATCH_BYTES * count // max(held, 1), 1), BATCH)
        yield arrays, count


def _open(
    reader: RangeReader, meta: StripeMeta, requested: Sequence[tuple[str, Type]]
) -> tuple[StripeStreams, list[Column]]:
    """The columns, at the first row. The beginnings of all streams are read in one round."""
    found: set[tuple[int, int]] = set()
    for name, tree in requested:
        with error_context(f"column {name!r}", meta.place.offset):
            found |= {(column, kind) for column, kind, _, _ in meta.ranges_of(tree, 0, 0, 1)}
    least, most = PIECES
    piece = min(max(BUFFERS // max(len(found), 1), least), most)
    streams = StripeStreams(reader, meta, piece, forward=True)
    opened = [streams.stream(column, kind) for column, kind in sorted(found)]
    parts = reader.read_ranges([(each.offset, min(each.length, piece)) for each in opened if each.length])
    for each, part in zip((each for each in opened if each.length), parts, strict=True):
        each.hold(0, part)
    columns = []
    for name, tree in requested:
        with error_context(f"column {name!r}", meta.place.offset):
            columns.append(make_column(streams, tree, 0, tracked=True))
    return streams, columns
