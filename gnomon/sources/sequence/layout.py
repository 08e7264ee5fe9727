"""The head of a SequenceFile (org.apache.hadoop.io.SequenceFile, "SequenceFile Formats").

    SEQ, version byte        4 to 6
    key class, value class   Text: a vint and that number of bytes of UTF-8
    compressed, in blocks    a byte each, 0 or 1
    codec class              Text, if compressed and version >= 5; version 4 means DefaultCodec
    metadata                 version 6: a count in four bytes, and that number of pairs of Text
    sync marker              16 bytes

The marker comes again between records, after an escape of four bytes FF.

Codecs have the names of Hadoop's classes. Deflate, gzip, bzip2 and zstandard are plain streams, several of which may
follow each other. Snappy and LZ4 data are in Hadoop's frames (`BlockCompressorStream`): the length of the decompressed
bytes, then chunks, each after its own length, until they add up to that length. All lengths are four bytes,
big-endian.

Both kinds of files, of records and of blocks, have the classes of keys and values with their columns, the part of a
file that a scan holds, and the search for sync markers. Splits follow Hadoop's rule: a file consists of runs of records
(or single blocks), each of which begins at the end of the header or at a sync marker. A split has the runs that begin
in it.
"""

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa

from gnomon.base.compression import (
    LZ4_GROWTH,
    CorruptData,
    DecompressionError,
    decompress_lz4,
    decompress_snappy,
    decompress_streams,
    snappy_length,
)
from gnomon.base.errors import Action
from gnomon.base.readers import RangeReader
from gnomon.sources.contract import Split
from gnomon.sources.errors import DamagedSource, SourceError, StalePointer, UnsupportedFormat
from gnomon.sources.literals import RefusedValue
from gnomon.sources.sequence.value_columns import ValueColumns
from gnomon.sources.sequence.writables import BadCell, Cells, Longs, field_of, one_vint, writable_of

LARGEST = 512 << 20  # most bytes to which one compressed piece of a file may decompress

Inflate = Callable[[bytes, int], bytes]
"""Decompresses to at most the given number of bytes. Raises DecompressionError."""

MAGIC = b"SEQ"
FIRST_READ = 64 << 10  # bytes: they contain nearly every header and the first records
LONGEST = 16 << 20  # bytes of a header
SYNC = 16  # bytes
ESCAPE = b"\xff\xff\xff\xff"
OLDEST, CODEC_NAMED, WITH_METADATA, NEWEST = 4, 5, 6, 6
DEFAULT_CODEC = "org.apache.hadoop.io.compress.DefaultCodec"
RCFILE = "RCFile"
CHUNK = 4 << 20  # bytes read at a time
BEYOND = 64 << 10  # bytes read at a time after the split's end, up to the next marker
TOGETHER = 16 << 20  # bytes of a fetch requested, and held, at once
KEY, VALUE = "key", "value"
BATCH_ROWS = 64 << 10
BATCH_BYTES = 32 << 20


def codec_named(name: str, path: str) -> Inflate:
    """The function of a codec class. UnsupportedFormat for an unknown one."""
    found = _CODECS.get(name.rpartition(".")[2])
    if found is not None:
        return found
    why = "LZO is not supported" if "lzo" in name.lower() else "unknown codec"
    known = ", ".join(_CODECS)
    raise UnsupportedFormat(f"compressed with {name[:80]!r}: {why}; supported: {known}", path, 0)


def _frames(unpack: Callable[[memoryview, int], bytes]) -> Inflate:
    """The decompressor of frames. `unpack(chunk, room)` decompresses a chunk to at most `room` bytes."""

    def inflate(data: bytes, most: int) -> bytes:
        try:
            return b"".join(_chunks(data, most, unpack))
        except struct.error as error:
            raise CorruptData(str(error)) from error

    return inflate


def _chunks(data: bytes, most: int, unpack: Callable[[memoryview, int], bytes]) -> Iterator[bytes]:
    """The decompressed bytes of each chunk, over all frames."""
    view, at, total = memoryview(data), 0, 0
    while at < len(data):
        (length,) = struct.unpack_from(">I", data, at)
        at += 4
        total += length
        if total > most or length > LZ4_GROWTH * (len(data) - at):
            raise CorruptData(f"a frame of {len(data) - at} bytes claims to unpack to {length}")
        while length:
            (size,) = struct.unpack_from(">I", data, at)
            chunk = view[at + 4 : at + 4 + size]
            if len(chunk) != size:
                raise CorruptData(f"a chunk claims {size} bytes, {len(chunk)} are left")
            plain = unpack(chunk, length)
            length -= len(plain)
            at += 4 + size
            yield plain


def _snappy(chunk: memoryview, room: int) -> bytes:
    length = snappy_length(chunk)
    if length > room:
        raise CorruptData(f"a chunk claims to unpack to {length} bytes, its frame has {room} left")
    return decompress_snappy(chunk, room)


_CODECS: dict[str, Inflate] = {
    "DefaultCodec": partial(decompress_streams, "zlib"),
    "DeflateCodec": partial(decompress_streams, "zlib"),
    "GzipCodec": partial(decompress_streams, "gzip"),
    "BZip2Codec": partial(decompress_streams, "bzip2"),
    "SnappyCodec": _frames(_snappy),
    "Lz4Codec": _frames(decompress_lz4),
    "ZStandardCodec": partial(decompress_streams, "zstandard"),
}


@dataclass(frozen=True)
class Header:
    """`codec` is None where nothing is compressed; `in_blocks`: many records are compressed together. `end`: the
    position of the first record, or of the escape before it."""

    key_class: str
    value_class: str
    codec: str | None
    in_blocks: bool
    sync: bytes
    end: int

    @property
    def marker(self) -> bytes:
        """The sync marker as it is between records: after its escape."""
        return ESCAPE + self.sync


class _CutShort(Exception):
    """More bytes are needed to read the header."""


def read_header(reader: RangeReader) -> tuple[Header, bytes]:
    """The header, and the first bytes of the file: the header and the bytes read with it."""
    path, size = reader.name, reader.size
    head = reader.read_range(0, min(size, FIRST_READ))
    while True:
        try:
            return _Cursor(head, path).header(), head
        except _CutShort:
            if len(head) == size:
                raise DamagedSource(f"ends inside its header, after {size} bytes", path, size) from None
            if len(head) >= LONGEST:
                raise DamagedSource(f"claims a header of more than {LONGEST} bytes", path, 0) from None
        head += reader.read_range(len(head), min(size, 8 * len(head), LONGEST) - len(head))


class _Cursor:
    def __init__(self, data: bytes, path: str) -> None:
        self._data = data
        self._path = path
        self._at = 0

    def header(self) -> Header:
        magic = self._take(len(MAGIC) + 1)
        if magic[:-1] != MAGIC:
            if magic[:-1] == b"RCF":
                raise self._rcfile()
            raise DamagedSource(f"begins with {magic[:-1]!r}, a SequenceFile begins with {MAGIC!r}", self._path, 0)
        version = magic[-1]
        if not OLDEST <= version <= NEWEST:
            message = f"a SequenceFile of version {version}, expected {OLDEST} to {NEWEST}"
            raise UnsupportedFormat(message, self._path, len(MAGIC))
        key_class, value_class = self._name("key class"), self._name("value class")
        if RCFILE in key_class:
            raise self._rcfile()
        compressed, in_blocks = self._flag(), self._flag()
        if in_blocks and not compressed:
            raise self._damaged("is marked as block-compressed but not as compressed")
        codec = None
        if compressed:
            codec = self._name("codec class") if version >= CODEC_NAMED else DEFAULT_CODEC
        if version >= WITH_METADATA:
            self._skip_metadata()
        sync = self._take(SYNC)
        return Header(key_class, value_class, codec, in_blocks, sync, self._at)

    def _rcfile(self) -> UnsupportedFormat:
        return UnsupportedFormat("a Hive RCFile, not a SequenceFile: it stores its rows by column", self._path, 0)

    def _damaged(self, what: str) -> DamagedSource:
        return DamagedSource(f"the header {what}", self._path, self._at)

    def _take(self, length: int) -> bytes:
        if self._at + length > len(self._data):
            raise _CutShort
        self._at += length
        return self._data[self._at - length : self._at]

    def _text(self, what: str) -> bytes:
        found = one_vint(self._data, self._at)
        if found is None:
            raise _CutShort
        length, size = found
        if not 0 <= length <= LONGEST:
            raise self._damaged(f"claims a {what} of {length} bytes")
        self._take(size)
        return self._take(length)

    def _name(self, what: str) -> str:
        begin, name = self._at, self._text(what)
        try:
            return name.decode()
        except UnicodeDecodeError:
            raise DamagedSource(f"the header's {what} is not UTF-8: {name[:80]!r}", self._path, begin) from None

    def _flag(self) -> bool:
        flag = self._take(1)[0]
        if flag > 1:
            self._at -= 1
            raise self._damaged(f"has a flag of {flag}, expected 0 or 1")
        return flag == 1

    def _skip_metadata(self) -> None:
        count = int.from_bytes(self._take(4), "big", signed=True)
        if not 0 <= count <= LONGEST // 2:  # a pair takes at least two bytes
            raise self._damaged(f"claims {count} pairs of metadata")
        for _ in range(2 * count):
            self._text("piece of metadata")


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
