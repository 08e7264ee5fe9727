"""Reads the rows at pointers from files of single records.

The first bytes of a record have its length. One round reads an estimated length at each pointer, near records together;
a second round reads the records that are longer.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from gnomon.base.actions import Action
from gnomon.base.readers import RangeReader
from gnomon.sources.errors import StalePointer, UnsupportedFormat
from gnomon.sources.sequence.codecs import LARGEST
from gnomon.sources.sequence.records import HEAD, MARKER, UNPACK_HEAD, decoded
from gnomon.sources.sequence.row_layout import RowLayout
from gnomon.sources.sequence.varints import Longs
from gnomon.sources.sequence.writables import numbers_at

TOGETHER = 16 << 20  # bytes requested, and held, at once
# bytes read before a record that cannot be recognized by itself: Hadoop writes a marker every 100 KB
BEFORE = 128 << 10


def fetch_records(
    reader: RangeReader, layout: RowLayout, columns: Sequence[str], offsets: Longs, guess: int
) -> Iterator[tuple[Longs, list[pa.Array]]]:
    """`(ordinals of offsets, their columns)`, each once. `offsets` ascend and are distinct; `guess`: bytes."""
    size = reader.size
    outside = np.flatnonzero((offsets < layout.header.end) | (offsets > size - HEAD))
    if len(outside):
        raise stale("the position is outside the file's records", reader.name, offsets[outside[0]])
    begins = offsets if layout.tells_its_records else np.maximum(offsets - BEFORE, layout.header.end)
    ends = np.minimum(offsets + guess, size)
    rows = np.arange(len(offsets), dtype=np.int64)
    for share in _shares(ends - np.maximum(begins, np.append(0, ends[:-1]))):
        held = _HeldRanges(reader, begins[share], ends[share])
        records, lengths = _records(held, layout, offsets[share])
        stops = records + HEAD + lengths
        whole = stops <= held.stops
        yield from _rows(held, layout, columns, records, whole, rows[share])
        cut = np.flatnonzero(~whole)
        for part in _shares((stops - records)[cut]):
            few = cut[part]
            again = _HeldRanges(reader, begins[share][few], stops[few])
            yield from _rows(again, layout, columns, records[few], np.full(len(few), True), rows[share][few])


def stale(why: str, path: str, offset: int) -> StalePointer:
    return StalePointer(f"no row begins here: {why}", path, int(offset), action=Action.BUILD_AGAIN)


def _shares(sizes: Longs) -> Iterator[slice]:
    """Runs of about `TOGETHER` bytes."""
    if not len(sizes):
        return
    share = (np.cumsum(sizes) - sizes) // TOGETHER
    cuts = [0, *(np.flatnonzero(np.diff(share)) + 1).tolist(), len(sizes)]
    for begin, end in pairwise(cuts):
        yield slice(begin, end)


class _HeldRanges:
    """Ranges of the file in memory, concatenated, with touching ones joined. For each requested range: `begins` and
    `stops`, the range held around it; `shifts`, from a position in the file to that in `data`."""

    def __init__(self, reader: RangeReader, begins: Longs, ends: Longs) -> None:
        self.path = reader.name
        self.size = reader.size
        ends = np.maximum.accumulate(ends)  # a wrong pointer may claim a record that reaches beyond the next
        first = np.flatnonzero(np.append(True, begins[1:] > ends[:-1]))
        last = np.append(first[1:], len(begins)) - 1
        lengths = ends[last] - begins[first]
        parts = reader.read_ranges(list(zip(begins[first].tolist(), lengths.tolist(), strict=True)))
        self.data = parts[0] if len(parts) == 1 else b"".join(parts)
        counts = last - first + 1
        self.begins = np.repeat(begins[first], counts)
        self.stops = np.repeat(ends[last], counts)
        self.shifts = np.repeat(np.cumsum(lengths) - lengths - begins[first], counts)


def _records(held: _HeldRanges, layout: RowLayout, offsets: Longs) -> tuple[Longs, Longs]:
    """The positions of the records at the pointers, and the bytes of their keys and values."""
    marked = np.flatnonzero(numbers_at(held.data, ">i4", offsets + held.shifts) == -1)
    records = offsets.copy()
    records[marked] += MARKER
    _refuse(held, offsets, records > held.size - HEAD, "the file ends before it")
    sync = np.frombuffer(layout.header.sync, dtype=">i8")
    for word, behind in zip(sync, (4, 12), strict=True):
        found = numbers_at(held.data, ">i8", offsets[marked] + held.shifts[marked] + behind)
        _refuse(held, offsets[marked], found != word, "the sync marker differs from the file's")
    lengths = numbers_at(held.data, ">i4", records + held.shifts).astype(np.int64)
    keys = numbers_at(held.data, ">i4", records + held.shifts + 4)
    _refuse(held, offsets, (keys < 0) | (keys > lengths), "the lengths of key and record are impossible")
    _refuse(held, offsets, records + HEAD + lengths > held.size, "the file has fewer bytes than the record would take")
    if lengths.max() > LARGEST - HEAD:
        where = int(offsets[np.argmax(lengths)])
        raise UnsupportedFormat(f"a record of {lengths.max()} bytes; the limit is {LARGEST}", held.path, where)
    return records, lengths


def _refuse(held: _HeldRanges, offsets: Longs, wrong: NDArray[np.bool_], why: str) -> None:
    bad = np.flatnonzero(wrong)
    if len(bad):
        raise stale(why, held.path, offsets[bad[0]])


def _rows(
    held: _HeldRanges, layout: RowLayout, columns: Sequence[str], records: Longs, whole: NDArray[np.bool_], rows: Longs
) -> Iterator[tuple[Longs, list[pa.Array]]]:
    """The rows of the records that are `whole`."""
    starts = (records + held.shifts)[whole]
    if not layout.tells_its_records:
        for begin, record, shift in np.stack([held.begins, records, held.shifts], axis=1)[whole].tolist():
            if not _is_reached(held, layout, begin, record, shift):
                raise stale("the records before it do not end at this position", held.path, record)
    for part, _, arrays in decoded(layout, columns, held.data, starts, records[whole], held.path, check=True):
        yield rows[whole][part], arrays


def _is_reached(held: _HeldRanges, layout: RowLayout, begin: int, record: int, shift: int) -> bool:
    """Whether the lengths of records lead to the one at `record` from the last marker before it, or from the head of
    the file. True where the held bytes, from `begin` on, have neither."""
    marker = layout.header.marker
    at, goal = held.data.rfind(marker, begin + shift, record + shift), record + shift
    if at >= 0:
        at += len(marker)
    elif begin == layout.header.end:
        at = begin + shift
    else:
        return True
    while at < goal:
        length, _ = UNPACK_HEAD(held.data, at)
        if length < 0:
            return False
        at += HEAD + length
    return at == goal
