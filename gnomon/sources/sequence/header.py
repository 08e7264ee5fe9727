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
"""

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from gnomon.base.compression import (
    LZ4_GROWTH,
    CorruptData,
    decompress_lz4,
    decompress_snappy,
    decompress_streams,
    snappy_length,
)
from gnomon.base.readers import RangeReader
from gnomon.sources.errors import DamagedSource, UnsupportedFormat
from gnomon.sources.sequence.writables import one_vint

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
