"""Reads some rows of some stripes. The bytes of their row groups are read together, and decoded up to the last wanted
row.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from gnomon.base.readers import RangeReader
from gnomon.sources.orc.bit_packing import Ints
from gnomon.sources.orc.chunk_skipping import ChunkSkipper
from gnomon.sources.orc.column_base import BatchTooLarge, StripeStreams
from gnomon.sources.orc.column_types import make_column
from gnomon.sources.orc.errors import error_context
from gnomon.sources.orc.file_tail import Footer
from gnomon.sources.orc.schema import Type
from gnomon.sources.orc.stripe import StripeMeta, ranges_of, seekable
from gnomon.sources.orc.stripe_metadata import row_group_count
from gnomon.sources.types import int64s

TOGETHER = 16 << 20  # bytes requested, and held, at once
NEAR = 2  # row groups: up to this distance, the rows between are skipped by decoding
GAP_ROWS = 1024  # rows between two wanted ones that are decoded with them
GAP_BYTES = 64 << 10  # bytes between two wanted rows that are decoded with them
PIECE = 64 << 10  # bytes per read where a run continues in a chunk that was not read beforehand


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


def plan(
    footer: Footer, ordinal: int, meta: StripeMeta, requested: Sequence[tuple[str, Type]], rows: Ints
) -> Iterator[Share]:
    """The shares that read `rows` of a stripe, by column and then by row."""
    groups, total = row_group_count(footer.stripes[ordinal], footer), footer.stripes[ordinal].rows
    for slot, (name, tree) in enumerate(requested):
        with error_context(f"column {name!r} in stripe {ordinal}", footer.stripes[ordinal].offset):
            if groups > 1 and seekable(tree, meta, footer):
                group_of = rows // footer.stride
                for part in np.split(rows, np.flatnonzero(np.diff(group_of) > NEAR) + 1):
                    first, last = int(part[0]) // footer.stride, int(part[-1]) // footer.stride
                    ranges = list(ranges_of(tree, meta, footer, first, last, groups))
                    end = min((last + 1) * footer.stride, total)
                    yield Share(ordinal, meta, slot, name, tree, first, end, part, ranges)
            else:
                ranges = list(ranges_of(tree, meta, footer, 0, 0, 1))
                yield Share(ordinal, meta, slot, name, tree, 0, total, rows, ranges)


def read_shares(
    reader: RangeReader, footer: Footer, shares: Sequence[Share], row_bytes: int
) -> Iterator[tuple[int, pa.Array]]:
    """`(slot, rows)` of each share; about `TOGETHER` bytes in a round of reads."""
    gap = min(GAP_ROWS, GAP_BYTES // row_bytes)
    for batch in _together(shares):
        opened: dict[int, StripeStreams] = {}
        wanted: dict[tuple[int, int, int], list[tuple[int, int]]] = defaultdict(list)
        for share in batch:
            opened.setdefault(share.ordinal, StripeStreams(reader, share.meta, footer, PIECE, forward=False))
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
            place = footer.stripes[share.ordinal]
            with error_context(f"column {share.name!r} in stripe {share.ordinal}", place.offset):
                yield share.slot, _rows(opened[share.ordinal], share, place.rows, gap)


def _rows(streams: StripeStreams, share: Share, total: int, gap: int) -> pa.Array:
    """The rows of a share. They are read one by one if together they take too much memory. `total`: rows of the
    stripe."""
    try:
        return _pieces(streams, share, total, gap)
    except BatchTooLarge:
        return _pieces(streams, share, total, -1)


def _pieces(streams: StripeStreams, share: Share, total: int, gap: int) -> pa.Array:
    """The rows of a share. Gaps of at most `gap` rows between them are decoded, too; -1 decodes each row alone."""
    column = make_column(streams, share.tree, share.group)
    position = share.group * streams.footer.stride
    ChunkSkipper(streams, share.tree, share.group, share.end, total).attach_to(column)
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


def _together(shares: Sequence[Share]) -> Iterator[list[Share]]:
    """The shares in batches of about `TOGETHER` bytes. A share is never split."""
    batch: list[Share] = []
    size = 0
    for share in shares:
        if batch and size + share.size > TOGETHER:
            yield batch
            batch, size = [], 0
        batch.append(share)
        size += share.size
    if batch:
        yield batch
