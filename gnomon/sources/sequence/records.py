"""Files of single records, whose values are plain or compressed one by one.

    record        four bytes: length of key and value; four bytes: length of the key; key; value
    sync marker   before some of the records: four bytes FF, the 16 bytes of the header

All lengths are big-endian. The pointer of a row is the position of its record, or of the marker before it.
"""

import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from gnomon.base.readers import RangeReader
from gnomon.sources.contract import Split
from gnomon.sources.errors import DamagedSource, SourceError
from gnomon.sources.pointers import with_pointers
from gnomon.sources.sequence.header import ESCAPE, SYNC
from gnomon.sources.sequence.row_layout import BATCH_ROWS, RowLayout
from gnomon.sources.sequence.scan_buffer import ScanBuffer, first_run
from gnomon.sources.sequence.varints import Longs
from gnomon.sources.sequence.writables import Cells, numbers_at
from gnomon.sources.types import int32s, int64s

HEAD = 8  # bytes: the two lengths
MARKER = len(ESCAPE) + SYNC
NO_MARKER = "expected the file's sync marker, found other bytes"
INT32_MAX = (1 << 31) - 1
UNPACK = struct.Struct(">i").unpack_from
UNPACK_HEAD = struct.Struct(">ii").unpack_from


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
