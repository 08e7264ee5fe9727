"""An object container file: its header, its blocks, and where blocks begin (Avro 1.12, "Object Container Files").

header   magic, metadata (a map of bytes), sync marker
block    count of records, length of the payload, payload, sync marker

The payload of a block is compressed by one of the codecs of Avro 1.12, or by lz4 as fastavro writes it. Errors in the
bytes name no file and position: `block_errors` and `reader` add them.
"""

import zlib
from collections.abc import Callable
from dataclasses import dataclass

from gnomon.base.compression import (
    LZ4_GROWTH,
    BoundExceeded,
    CorruptData,
    decompress_lz4,
    decompress_snappy,
    decompress_stream,
    decompress_streams,
)
from gnomon.base.readers import RangeReader
from gnomon.base.varints import OverlongVarint, decode_signed
from gnomon.sources.errors import DamagedSource, UnsupportedFormat

CRC_BYTES = 4
LZ4_SIZE_BYTES = 4
MAGIC = b"Obj\x01"
SYNC_BYTES = 16
HEAD_BYTES = 20  # most bytes before the payload of a block: two numbers
HEADER_LIMIT = 16 << 20  # bytes
BLOCK_LIMIT = 1 << 30  # bytes of a block, both in the file and decompressed
MOST_ROWS = (1 << 31) - 1  # rows of a block: an ordinal in it has 31 bits
LONG_READ = 4 << 20  # bytes
SEARCHED = 64 << 10  # fewest bytes per step of a search beyond the long reads
LOOK_BACK = 1 << 20  # bytes before a split in which the search for its first block starts


class Malformed(ValueError):
    """The bytes violate the format or their schema: DamagedSource."""


class LimitExceeded(Exception):
    """The bytes may be sound, but exceed a limit of this reader: UnsupportedFormat."""


def _deflate(data: bytes, limit: int) -> bytes:
    """The content of a deflate stream, without a check for its end: some writers flush the stream and do not end it,
    and the row count shows whether the block is whole. Bytes after the end of the stream are ignored, as in other
    readers."""
    return decompress_stream("deflate", data, limit, end_required=False)[0]


def _snappy(data: bytes, limit: int) -> bytes:
    """The content of a snappy block, checked against the CRC that follows it."""
    records = decompress_snappy(data[:-CRC_BYTES], limit)
    if zlib.crc32(records) != int.from_bytes(data[-CRC_BYTES:], "big"):
        raise Malformed("the CRC after the compressed records does not match them")
    return records


def _lz4(data: bytes, limit: int) -> bytes:
    """The content of an LZ4 block, which its size precedes, little-endian."""
    if len(data) < LZ4_SIZE_BYTES:
        raise Malformed("the compressed block is truncated")
    size, body = int.from_bytes(data[:LZ4_SIZE_BYTES], "little"), data[LZ4_SIZE_BYTES:]
    if size > limit:
        raise LimitExceeded(f"unpacks to more than {limit} bytes")
    if size > LZ4_GROWTH * len(body):
        raise Malformed(f"{size} bytes of content claimed by {len(body)} bytes")
    records = decompress_lz4(body, size) if size else b""
    if len(records) != size:
        raise Malformed(f"unpacks to {len(records)} bytes, the block states {size}")
    return records


UNPACKERS: dict[str, Callable[[bytes, int], bytes]] = {
    "null": lambda data, _limit: data,
    "deflate": _deflate,
    "bzip2": lambda data, limit: decompress_streams("bzip2", data, limit),
    "xz": lambda data, limit: decompress_streams("xz", data, limit),
    "snappy": _snappy,
    "zstandard": lambda data, limit: decompress_streams("zstandard", data, limit),
    "lz4": _lz4,
}


def unpack(codec: str, data: bytes, limit: int) -> bytes:
    """The records of a block, at most `limit` bytes. Raises Malformed and LimitExceeded."""
    try:
        return UNPACKERS[codec](data, limit)
    except CorruptData as error:
        raise Malformed(str(error)) from error
    except BoundExceeded as error:
        raise LimitExceeded(str(error)) from error


@dataclass(frozen=True)
class Header:
    """`end` is the position of the first block."""

    metadata: dict[str, bytes]
    sync: bytes
    end: int


@dataclass(frozen=True)
class Block:
    """`payload` is its position in the file, `end` the position of the next block."""

    offset: int
    rows: int
    payload: int
    length: int

    @property
    def end(self) -> int:
        return self.payload + self.length + SYNC_BYTES

    @property
    def row_bytes(self) -> int:
        """Mean bytes of a row, at least 1."""
        return min(max((self.end - self.offset) // max(self.rows, 1), 1), MOST_ROWS)


def parse_header(head: bytes) -> Header:
    """The header at the start of `head`. IndexError where more bytes are needed; Malformed, LimitExceeded and
    OverlongVarint."""
    metadata: dict[str, bytes] = {}
    position = len(MAGIC)
    while True:
        count, position = decode_signed(head, position)
        if count == 0:
            break
        if count < 0:
            _, position = decode_signed(head, position)  # the length of the entries in bytes
        for _ in range(abs(count)):
            key, position = _sized(head, position)
            value, position = _sized(head, position)
            metadata[key.decode("utf-8", "replace")] = value
    end = position + SYNC_BYTES
    if end > len(head):
        raise IndexError
    return Header(metadata, head[position:end], end)


def _sized(head: bytes, position: int) -> tuple[bytes, int]:
    size, position = decode_signed(head, position)
    if size < 0:
        raise Malformed("a length below 0")
    if size > HEADER_LIMIT:
        raise LimitExceeded(f"a header of more than {HEADER_LIMIT} bytes")
    if position + size > len(head):
        raise IndexError
    return head[position : position + size], position + size


def parse_block(head: bytes, offset: int, file_bytes: int) -> Block:
    """The block at `offset`, from its first bytes. Malformed where it cannot lie in the file."""
    try:
        rows, position = decode_signed(head, 0)
        length, position = decode_signed(head, position)
    except IndexError:
        raise Malformed("the file ends inside the head of a block") from None
    except OverlongVarint as error:
        raise Malformed(str(error)) from None
    if not 0 <= rows <= MOST_ROWS:
        raise Malformed(f"a block of {rows} rows")
    block = Block(offset, rows, offset + position, length)
    if length < 0 or block.end > file_bytes:
        raise Malformed(f"a block of {length} bytes, the file ends at {file_bytes}")
    if length > BLOCK_LIMIT:
        raise LimitExceeded(f"a block of {length} bytes, more than {BLOCK_LIMIT}")
    return block


class ReadAheadBuffer:
    """The bytes of a file, in long forward reads up to `end`; beyond it only the requested bytes."""

    def __init__(self, reader: RangeReader, end: int) -> None:
        self.path = reader.name
        self.size = reader.size
        self.end = end
        self._reader = reader
        self._start = 0
        self._held = b""

    def hold(self, offset: int, length: int) -> None:
        """Load the part of these bytes that is not in memory. They must lie in the file."""
        at = offset - self._start
        if at >= 0 and at + length <= len(self._held):
            return
        rest = self._held[at:] if 0 <= at < len(self._held) else b""
        ahead = max(min(LONG_READ, self.end - offset), length)
        begin = offset + len(rest)
        self._held = rest + self._reader.read_range(begin, min(offset + ahead, self.size) - begin)
        self._start = offset

    def get(self, offset: int, length: int) -> bytes:
        """`length` bytes, which must lie in the file."""
        self.hold(offset, length)
        return self._held[offset - self._start : offset - self._start + length]

    def onward(self, offset: int) -> bytes:
        """The bytes of one long read from `offset` on, at least as many as one step of a search."""
        self.hold(offset, min(SEARCHED, self.size - offset))
        return self._held[offset - self._start :]

    def peek(self, offset: int, length: int) -> bytes:
        """Like `get`, but without a long read, and without replacing the bytes in memory."""
        at = offset - self._start
        if at >= 0 and at + length <= len(self._held):
            return self._held[at : at + length]
        return self._reader.read_range(offset, length)


def block_at(reads: ReadAheadBuffer, offset: int) -> Block:
    """The header of the block at an offset. Raises DamagedSource and UnsupportedFormat."""
    try:
        return parse_block(reads.get(offset, min(HEAD_BYTES, reads.size - offset)), offset, reads.size)
    except Malformed as error:
        raise DamagedSource(str(error), reads.path, offset) from error
    except LimitExceeded as error:
        raise UnsupportedFormat(str(error), reads.path, offset) from error


def payload_of(reads: ReadAheadBuffer, block: Block, sync: bytes) -> bytes:
    """The compressed content of a block. Checks the sync marker after it."""
    reads.hold(block.payload, block.length + SYNC_BYTES)
    check_sync(reads.get(block.end - SYNC_BYTES, SYNC_BYTES), sync, block, reads.path)
    return reads.get(block.payload, block.length)


def check_sync(found: bytes, sync: bytes, block: Block, path: str) -> None:
    if found != sync:
        message = f"expected the sync marker {sync.hex()} after the block at byte {block.offset}, found {found.hex()}"
        raise DamagedSource(message, path, block.end - SYNC_BYTES)


def _sound_block(reads: ReadAheadBuffer, offset: int, sync: bytes) -> Block | None:
    """The block at `offset`, if its head is valid and a sync marker follows it; else None."""
    try:
        block = parse_block(reads.get(offset, min(HEAD_BYTES, reads.size - offset)), offset, reads.size)
    except (Malformed, LimitExceeded):
        return None
    return block if reads.peek(block.end - SYNC_BYTES, SYNC_BYTES) == sync else None


def first_block(reads: ReadAheadBuffer, header: Header, begin: int) -> int:
    """The position of the first block at or after `begin`, if it is in the split; else a position after the split.

    A row may contain the bytes of a sync marker, and the bytes after them may look like a block. So the search starts
    well before `begin`, or at the header. From the first sync marker on, it follows the blocks one by one to `begin`.
    Where they do not reach it, the search starts again from the next sync marker.
    """
    if begin <= header.end:
        return header.end
    position = max(begin - LOOK_BACK, header.end) - SYNC_BYTES
    while (found := _find(reads, header.sync, position)) is not None:
        offset = found + SYNC_BYTES
        while offset < begin and (block := _sound_block(reads, offset, header.sync)) is not None:
            offset = block.end
        if offset >= begin and (offset == reads.size or _sound_block(reads, offset, header.sync)):
            return offset
        position = offset - SYNC_BYTES + 1
    return reads.size


def _find(reads: ReadAheadBuffer, sync: bytes, position: int) -> int | None:
    """The first position of the sync marker at or after `position`; None if that is after the split."""
    while position + SYNC_BYTES <= min(reads.end, reads.size):
        piece = reads.onward(position)
        at = piece.find(sync)
        if at >= 0:
            return position + at
        position += max(len(piece) - SYNC_BYTES + 1, 1)
    return None


def check_block(reads: ReadAheadBuffer, offset: int, sync: bytes) -> Block:
    """The block at `offset`, checked to be sound. DamagedSource, UnsupportedFormat.

    A split's scan checks the first block of the next split, because a search takes a damaged block for bytes of a
    row."""
    block = block_at(reads, offset)
    check_sync(reads.peek(block.end - SYNC_BYTES, SYNC_BYTES), sync, block, reads.path)
    return block
