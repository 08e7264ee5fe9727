"""Scans the rows of one stripe, in batches."""

from collections.abc import Iterator, Sequence

import pyarrow as pa

from gnomon.base.readers import RangeReader
from gnomon.sources.orc.column_base import BatchTooLarge, Column, StripeStreams
from gnomon.sources.orc.column_types import make_column
from gnomon.sources.orc.errors import Damage, error_context
from gnomon.sources.orc.file_tail import Footer, StripePlace
from gnomon.sources.orc.schema import Type
from gnomon.sources.orc.stripe import StripeMeta, ranges_of, seekable
from gnomon.sources.orc.stripe_metadata import row_group_count

BATCH = 64 << 10  # rows
BATCH_BYTES = 16 << 20  # target size of a batch
GROWTH = 4  # estimated bytes in memory per byte in the file, for the first batch
BUFFERS = 64 << 20  # bytes of all streams held at a time
PIECES = (256 << 10, 4 << 20)  # bytes of one stream: least, most


def scan_stripe(
    reader: RangeReader, footer: Footer, stripe: StripePlace, meta: StripeMeta, requested: Sequence[tuple[str, Type]]
) -> Iterator[tuple[list[pa.Array], int]]:
    """`(columns, rows)` of each batch. At the begin of each group, the row index is compared with the positions read,
    since a fetch uses the index."""
    groups = row_group_count(stripe, footer)
    checked = [groups > 1 and seekable(tree, meta, footer) for _, tree in requested]
    streams, columns = _open(reader, footer, meta, requested, stripe)
    size, row = min(max(BATCH_BYTES // (GROWTH * max(stripe.data_length // stripe.rows, 1)), 1), BATCH), 0
    while row < stripe.rows:
        count = min(size, stripe.rows - row)
        if any(checked):
            count = min(count, footer.stride - row % footer.stride)
        streams.limited = count > 1
        try:
            arrays = []
            for (name, _), column in zip(requested, columns, strict=True):
                with error_context(f"column {name!r}", stripe.offset):
                    arrays.append(column.read(count))
        except BatchTooLarge:
            size = max(count // 8, 1)
            streams, columns = _open(reader, footer, meta, requested, stripe)
            for column in columns:
                column.skip(row)
            continue
        row += count
        if any(checked) and row % footer.stride == 0 and row < stripe.rows:
            for (name, _), column, check in zip(requested, columns, checked, strict=True):
                if check and not column.check(row // footer.stride):
                    message = f"column {name!r}: the row index has another position for row {row} of the stripe"
                    raise Damage(message, stripe.offset)
        held = sum(array.nbytes for array in arrays)
        size = min(max(BATCH_BYTES * count // max(held, 1), 1), BATCH)
        yield arrays, count


def _open(
    reader: RangeReader, footer: Footer, meta: StripeMeta, requested: Sequence[tuple[str, Type]], stripe: StripePlace
) -> tuple[StripeStreams, list[Column]]:
    """The columns, at the first row. The beginnings of all streams are read in one round."""
    found: set[tuple[int, int]] = set()
    for name, tree in requested:
        with error_context(f"column {name!r}", stripe.offset):
            found |= {(column, kind) for column, kind, _, _ in ranges_of(tree, meta, footer, 0, 0, 1)}
    least, most = PIECES
    piece = min(max(BUFFERS // max(len(found), 1), least), most)
    streams = StripeStreams(reader, meta, footer, piece, forward=True)
    opened = [streams.stream(column, kind) for column, kind in sorted(found)]
    parts = reader.read_ranges([(each.offset, min(each.length, piece)) for each in opened if each.length])
    for each, part in zip((each for each in opened if each.length), parts, strict=True):
        each.hold(0, part)
    columns = []
    for name, tree in requested:
        with error_context(f"column {name!r}", stripe.offset):
            columns.append(make_column(streams, tree, 0, tracked=True))
    return streams, columns
