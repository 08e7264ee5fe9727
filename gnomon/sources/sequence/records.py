"""Files of single records, whose values are plain or compressed one by one.

    record        four bytes: length of key and value; four bytes: length of the key; key; value
    sync marker   before some of the records: four bytes FF, the 16 bytes of the header

All lengths are big-endian. The pointer of a row is the position of its record, or of the marker before it.

The first bytes of a record have its length. One round of a fetch reads an estimated length at each pointer, near
records together; a second round reads the records that are longer.
"""

import struct
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from gnomon.base.readers import RangeReader
from gnomon.sources.contract import Split
from gnomon.sources.errors import DamagedSource, SourceError, UnsupportedFormat
from gnomon.sources.pointers import with_pointers
from gnomon.sources.sequence.layout import (
    BATCH_ROWS,
    ESCAPE,
    LARGEST,
    SYNC,
    TOGETHER,
    RowLayout,
    ScanBuffer,
    first_run,
    stale,
)
from gnomon.sources.sequence.writables import Cells, Longs, numbers_at
from gnomon.sources.types import int32s, int64s

HEAD = 8  # bytes: the two lengths
MARKER = len(ESCAPE) + SYNC
NO_MARKER = "expected the file's sync marker, found other bytes"
INT32_MAX = (1 << 31) - 1
UNPACK = struct.Struct(">i").unpack_from
UNPACK_HEAD = struct.Struct(">ii").unpack_from
# bytes read before a record that cannot be recognized by itself: Hadoop writes a marker every 100 KB
BEFORE = 128 << 10


class RecordTable(NamedTuple):
    """The whole records of a window: `starts` within it; `marked`, the ordinals of those after a sync marker.
    `position`: in the file, after the last of them. `need`: bytes from there that the next one takes, 0 at the end of
    the file or the split. `failure`: the error of the next one."""

    starts: list[int]
    marked: list[int]
    position: int
    need: int = 0
    failure: SourceError | None = None


def walk(window: ScanBuffer, position: int, sync: bytes) -> RecordTable:
    """The records of the window, one by one: only the length of a record gives the position of the next."""
    data, base = window.data, window.base
    starts: list[int] = []
    marked: list[int] = []
    add, limit, length = starts.append, len(data) - 4, -1
    at = done = position - base
    while at <= limit:
        (length,) = UNPACK(data, at)
        if length < 0:
            if length != -1:
                below = DamagedSource(f"a record claims {length} bytes", window.path, base + at)
                return RecordTable(starts, marked, base + done, failure=below)
            if at + MARKER > len(data):
                break
            if data[at + 4 : at + MARKER] != sync:
                other = DamagedSource(NO_MARKER, window.path, base + at)
                return RecordTable(starts, marked, base + done, failure=other)
            if base + at >= window.end:
                return RecordTable(starts, marked, base + done)
            marked.append(len(starts))
            at += MARKER
            if base + at == window.size:  # the last bytes of the file are a marker
                done = at
            continue
        after = at + HEAD + length
        if after > len(data):
            break
        add(at)
        at = done = after
    if base + done == window.size:
        return RecordTable(starts, marked, base + done)
    if at > limit:
        what, takes = "the length of a record", 4
    elif length < 0:
        what, takes = "a sync marker", MARKER
    else:
        what, takes = "a record", HEAD + length
    failure = window.lacks(base + at, takes, what)
    return RecordTable(starts, marked, base + done, at - done + takes, failure)


def scan_records(
    reader: RangeReader, layout: RowLayout, columns: Sequence[str], split: Split
) -> Iterator[pa.RecordBatch]:
    position = first_run(reader, layout.header, split)
    if position is None:
        return
    window = ScanBuffer(reader.name, reader.size, position, split[1])
    fields = pa.schema([layout.schema.field(name) for name in columns])
    while True:
        walked = walk(window, position, layout.header.sync)
        starts = np.array(walked.starts, dtype=np.int64)
        offsets = starts + window.base
        marked = np.array(walked.marked, dtype=np.int64)
        offsets[marked[marked < len(starts)]] -= MARKER
        for rows, sizes, arrays in decoded(layout, columns, window.data, starts, offsets, window.path):
            yield with_pointers(
                pa.RecordBatch.from_arrays(arrays, schema=fields),
                int64s(offsets[rows]),
                int32s(np.zeros(len(sizes), dtype=np.int32)),
                int32s(np.minimum(sizes, INT32_MAX).astype(np.int32)),
            )
        position = walked.position
        if walked.failure is not None:
            raise walked.failure
        if not walked.need:
            return
        window.move(reader, position, walked.need)


def decoded(
    layout: RowLayout,
    columns: Sequence[str],
    data: bytes,
    starts: Longs,
    offsets: Longs,
    path: str,
    check: bool = False,
) -> Iterator[tuple[slice, Longs, list[pa.Array]]]:
    """`(rows, bytes of each, columns)` of whole records, a batch at a time. `check`: decode keys and values even if
    they are not requested."""
    lengths = numbers_at(data, ">i4", starts).astype(np.int64)
    key_lengths = numbers_at(data, ">i4", starts + 4).astype(np.int64)
    wrong = np.flatnonzero((key_lengths < 0) | (key_lengths > lengths))
    sound = int(wrong[0]) if len(wrong) else len(starts)
    keys = Cells(data, starts + HEAD, key_lengths)
    values = Cells(data, starts + HEAD + key_lengths, lengths - key_lengths)
    wants_key = check or layout.wants_key(columns)
    wants_value = check or layout.wants_value(columns)
    done = 0
    while done < sound:
        rows = slice(done, min(done + BATCH_ROWS, sound))
        try:
            plain = None
            if wants_value:
                plain = layout.plain(values.part(rows), path, offsets[rows])
                rows = slice(done, done + len(plain.starts))
            chosen = keys.part(rows) if wants_key else None
            arrays = layout.arrays(columns, chosen, plain, path, offsets[rows])
        except DamagedSource as error:  # one row is damaged: the rows before it are given first
            stop = done + int(np.searchsorted(offsets[rows], error.offset or 0))
            if stop > done:
                for few, sizes, arrays in decoded(layout, columns, data, starts[done:stop], offsets[done:stop], path):
                    yield slice(done + few.start, done + few.stop), sizes, arrays
            raise
        yield rows, lengths[rows] + HEAD, arrays
        done = rows.stop
    if len(wrong):
        message = f"a record of {lengths[sound]} bytes claims a key of {key_lengths[sound]}"
        raise DamagedSource(message, path, int(offsets[sound]))


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
