"""Both kinds of files, of records and of blocks: the classes of keys and values with their columns, the part of a file
that a scan holds, and the search for sync markers.

Splits follow Hadoop's rule: a file consists of runs of records (or single blocks), each of which begins at the end of
the header or at a sync marker. A split has the runs that begin in it.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from gnomon.base.actions import Action
from gnomon.base.compression import DecompressionError
from gnomon.base.readers import RangeReader
from gnomon.sources.contract import Split
from gnomon.sources.errors import DamagedSource, SourceError, StalePointer, UnsupportedFormat
from gnomon.sources.sequence.header import LARGEST, Header, Inflate
from gnomon.sources.sequence.value_columns import ValueColumns
from gnomon.sources.sequence.writables import BadCell, Cells, Longs, field_of, writable_of
from gnomon.sources.types import RefusedValue

CHUNK = 4 << 20  # bytes read at a time
BEYOND = 64 << 10  # bytes read at a time after the split's end, up to the next marker
TOGETHER = 16 << 20  # bytes of a fetch requested, and held, at once
KEY, VALUE = "key", "value"
BATCH_ROWS = 64 << 10
BATCH_BYTES = 32 << 20


class ScanBuffer:
    """A moving part of the file, from `base` on. `end`: end of the split. `size`: size of the file."""

    def __init__(self, path: str, size: int, base: int, end: int, data: bytes = b"") -> None:
        self.path = path
        self.size = size
        self.base = base
        self.end = end
        self.data = data

    def move(self, reader: RangeReader, position: int, length: int) -> None:
        """Hold at least `length` bytes from `position` on. `position` lies in the buffer. The caller has checked that
        the file has the bytes."""
        kept = self.data[position - self.base :]
        begin = position + len(kept)
        ahead = min(CHUNK, self.end - begin) if begin < self.end else BEYOND
        wanted = min(max(ahead, length - len(kept)), self.size - begin)
        self.base = position
        self.data = kept + reader.read_range(begin, wanted)

    def lacks(self, position: int, length: int, what: str) -> SourceError | None:
        """The error for `length` bytes from `position` on that exceed the file or a limit of this reader."""
        if position + length > self.size:
            message = f"{what} takes {length} bytes, the file ends after {self.size - position}"
            return DamagedSource(message, self.path, position)
        if length > LARGEST:
            return UnsupportedFormat(f"{what} takes {length} bytes; the limit is {LARGEST}", self.path, position)
        return None


def stale(why: str, path: str, offset: int) -> StalePointer:
    return StalePointer(f"no row begins here: {why}", path, int(offset), action=Action.BUILD_AGAIN)


def first_run(reader: RangeReader, header: Header, split: Split) -> int | None:
    """The position of the first run of records that begins in the split."""
    begin, end = split
    if begin <= header.end:
        return header.end if header.end < end else None
    marker, size = header.marker, reader.size
    at, held = begin, b""
    last = min(end + len(marker) - 1, size)  # the end of the last marker that begins before `end`
    while at < last:
        held += reader.read_range(at, min(CHUNK, last - at))
        at = min(at + CHUNK, last)
        found = held.find(marker)
        if found >= 0:
            return at - len(held) + found
        held = held[-len(marker) + 1 :]
    return None


class RowLayout:
    """The key and value classes, the codec, and how values are parsed into columns."""

    def __init__(self, header: Header, inflate: Inflate | None, parsed: ValueColumns | None) -> None:
        self.header = header
        self.inflate = inflate
        self._parsed = parsed
        self._key = writable_of(header.key_class)
        self._value = writable_of(header.value_class)
        key = field_of(KEY, header.key_class)
        if parsed is None:
            self.schema = pa.schema([key, field_of(VALUE, header.value_class)])
        else:  # a value column named like the key hides it, as in Hive, which shows no keys
            own = [] if KEY in parsed.schema.names else [key]
            self.schema = pa.schema([*own, *parsed.schema])
        self._key_shown = parsed is None or KEY not in parsed.schema.names

    @property
    def tells_its_records(self) -> bool:
        """Whether other bytes rarely look like a record of this file: a class states its own length, both classes have
        fixed lengths, or values must decompress."""
        key, value = self._key, self._value
        return self.inflate is not None or key.sized or value.sized or (key.width >= 4 and value.width >= 4)

    def wants_key(self, columns: Sequence[str]) -> bool:
        return self._key_shown and KEY in columns

    def wants_value(self, columns: Sequence[str]) -> bool:
        return any(name != KEY or not self._key_shown for name in columns)

    def arrays(
        self, columns: Sequence[str], keys: Cells | None, values: Cells | None, path: str, offsets: Longs
    ) -> list[pa.Array]:
        """The requested columns. `offsets`: the position of each row in the file, for messages."""
        key = _decoded(KEY, self.header.key_class, keys, path, offsets) if keys is not None else None
        value = _decoded(VALUE, self.header.value_class, values, path, offsets) if values is not None else None
        if self._parsed is None:
            return [key if name == KEY else value for name in columns]
        inner = [name for name in columns if name != KEY or not self._key_shown]
        try:
            parsed = dict(zip(inner, self._parsed.parse(value, inner), strict=True)) if inner else {}
        except RefusedValue as error:
            raise DamagedSource(str(error), path, int(offsets[error.index]), column=VALUE) from error
        return [parsed.get(name, key) for name in columns]

    def plain(self, values: Cells, path: str, offsets: Longs) -> Cells:
        """Decompress records that are compressed one by one: as many as fill a batch, at least one."""
        if self.inflate is None:
            return values
        pieces: list[bytes] = []
        total = 0
        data, inflate = values.data, self.inflate
        for start, length in zip(values.starts.tolist(), values.lengths.tolist(), strict=True):
            try:
                piece = inflate(data[start : start + length], LARGEST)
            except DecompressionError as error:
                where = int(offsets[len(pieces)])
                raise DamagedSource(f"cannot be decompressed: {error}", path, where, column=VALUE) from error
            pieces.append(piece)
            total += len(piece)
            if total >= BATCH_BYTES:
                break
        lengths = np.fromiter(map(len, pieces), dtype=np.int64, count=len(pieces))
        return Cells(b"".join(pieces), np.cumsum(lengths) - lengths, lengths)


def _decoded(column: str, name: str, cells: Cells, path: str, offsets: Longs) -> pa.Array:
    try:
        return writable_of(name).decode(cells)
    except BadCell as error:
        raise DamagedSource(f"not a {name}: {error}", path, int(offsets[error.row]), column=column) from error
