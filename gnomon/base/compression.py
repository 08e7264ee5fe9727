"""Bounded decompression, for every file format.

Each function takes the largest allowed size of the content, and never returns more. There are two kinds of codecs:

- *Streams* (`STREAMS`) mark their own end: deflate, zlib, gzip, bzip2, xz and zstandard. Several may follow each other.
- *Blocks* end where the caller says: snappy, LZ4, LZO and Brotli.

Errors are `CorruptData` and `BoundExceeded`, without path and offset: the caller adds them. A lack of memory is a
MemoryError, since it says nothing about the data.
"""

import bz2
import lzma
import sys
import zlib
from array import array
from collections.abc import Callable, Iterator
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, Protocol, cast

import pyarrow as pa
from isal import isal_zlib

from gnomon.base.errors import check_memory
from gnomon.base.later import Later

if TYPE_CHECKING:
    import cramjam
    import lzallright
else:
    cramjam, lzallright = Later("cramjam"), Later("lzallright")

if sys.version_info >= (3, 14):
    from compression import zstd as zstd
else:
    from backports import zstd as zstd

RAW_DEFLATE = -15  # window bits of a deflate stream without a header (RFC 1951)
ZLIB, GZIP, GZIP_OR_ZLIB = 15, 31, 47  # window bits of deflate streams with a header
XZ_MEMORY_BYTES = 66 << 20  # the strongest preset needs this much to decompress
ZSTANDARD_OPTIONS: dict[int, int] = {zstd.DecompressionParameter.window_log_max: 27}  # 128 MiB, which level 22 uses
SLICE, STEP = 16 << 10, 64 << 10  # compressed bytes, and content bytes, of `decompress_by_slices`
SNAPPY_GROWTH = 22  # content bytes per compressed byte at most: a copy of 64 bytes takes three
LZ4_GROWTH = 255  # a byte of a length adds at most 255

LIBRARY_ERRORS: tuple[type[Exception], ...] = (
    cast(type[Exception], isal_zlib.error),  # the stub of isal declares an instance
    zlib.error,
    lzma.LZMAError,
    zstd.ZstdError,
    OSError,  # bz2, pyarrow
    ValueError,  # bz2, pyarrow
    EOFError,
)


class DecompressionError(Exception):
    """Base of the errors of decompression."""


class CorruptData(DecompressionError):
    """The bytes are not valid for their codec."""


class BoundExceeded(DecompressionError):
    """The content is longer than the caller allows. The bytes may be sound."""


class Stream(Protocol):
    """The interface that the decompressors of isal, bz2, lzma and zstd share."""

    @property
    def eof(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes | memoryview, max_length: int, /) -> bytes: ...


STREAMS: dict[str, Callable[[], Stream]] = {
    "deflate": lambda: isal_zlib.decompressobj(RAW_DEFLATE),
    "zlib": lambda: isal_zlib.decompressobj(ZLIB),
    "gzip": lambda: isal_zlib.decompressobj(GZIP),
    "gzip or zlib": lambda: isal_zlib.decompressobj(GZIP_OR_ZLIB),
    "bzip2": bz2.BZ2Decompressor,
    "xz": lambda: lzma.LZMADecompressor(memlimit=XZ_MEMORY_BYTES),
    "zstandard": lambda: zstd.ZstdDecompressor(options=ZSTANDARD_OPTIONS),
}


def decompress_stream(
    codec: str, data: bytes | memoryview, limit: int, *, end_required: bool = True
) -> tuple[bytes, bytes]:
    """The content of the first stream in `data`, at most `limit` bytes, and the bytes after that stream.

    `codec` is a key of STREAMS. Without `end_required`, a truncated stream gives the content that can be decoded."""
    return _decompress_stream(codec, data, limit, limit, end_required)


def decompress_streams(codec: str, data: bytes | memoryview, limit: int) -> bytes:
    """The content of one or more consecutive streams in `data`, at most `limit` bytes in total."""
    content, rest = _decompress_stream(codec, data, limit, limit)
    if not rest:
        return content
    parts, room = [content], limit - len(content)
    while rest:
        content, rest = _decompress_stream(codec, rest, room, limit)
        parts.append(content)
        room -= len(content)
    return b"".join(parts)


def _decompress_stream(
    codec: str, data: bytes | memoryview, room: int, limit: int, end_required: bool = True
) -> tuple[bytes, bytes]:
    """Like `decompress_stream`, but gives at most `room` bytes. The error names `limit` as the bound."""
    stream = STREAMS[codec]()
    try:
        content = stream.decompress(data, room + 1)  # one more, so that a stream of `room` bytes reaches its end
    except LIBRARY_ERRORS as error:
        raise _corrupt(error) from error
    if len(content) > room:
        raise BoundExceeded(f"unpacks to more than {limit} bytes")
    if end_required and not stream.eof:
        raise CorruptData("the compressed stream is truncated")
    return content, stream.unused_data


def decompress_by_slices(codec: str, data: bytes | memoryview, size: int) -> tuple[memoryview, "array[int]"]:
    """The content of `data`, a whole stream of `size` content bytes, and the content bytes that are complete after each
    `SLICE` bytes of `data`. `codec` is "zstandard" or a deflate stream. CorruptData for anything else."""
    ends = array("i", bytes(4 * -(-len(data) // SLICE)))
    unpack = _zstandard_by_slices if codec == "zstandard" else partial(_deflate_by_slices, STREAMS[codec]())
    try:
        content = unpack(data, size, ends)
    except LIBRARY_ERRORS as error:
        raise _corrupt(error) from error
    return content, array("i", accumulate(ends, max))


def _zstandard_by_slices(data: bytes | memoryview, size: int, ends: "array[int]") -> memoryview:
    """By pyarrow, whose memory pool makes large blocks cheaper than Python's. It reads ahead, which makes the ends
    smaller than they could be."""
    source = pa.BufferReader(data)
    stream = pa.CompressedInputStream(source, "zstd")
    content = memoryview(pa.allocate_buffer(size)).cast("B")
    done = 0
    while done < size:
        read = stream.readinto(content[done : done + STEP])
        if not read:
            break
        done += read
        ends[-(-source.tell() // SLICE) - 1] = done
    if done != size or stream.read(1) or source.tell() != len(data):
        raise CorruptData(f"not a stream of {size} bytes")
    return content


def _deflate_by_slices(stream: Stream, data: bytes | memoryview, size: int, ends: "array[int]") -> memoryview:
    view, pieces, done = memoryview(data), [], 0
    for place in range(len(ends)):
        piece = stream.decompress(view[place * SLICE : (place + 1) * SLICE], size + 1 - done)
        pieces.append(piece)
        done += len(piece)
        ends[place] = done
        if done > size or stream.eof:
            break
    if done != size or not stream.eof or stream.unused_data or place + 1 < len(ends):
        raise CorruptData(f"not one stream of {size} bytes")
    return memoryview(b"".join(pieces))


def decompress_begin(codec: str, data: bytes | memoryview, size: int) -> memoryview:
    """The first `size` content bytes of a stream that begins with `data`. CorruptData where these give fewer."""
    try:
        if codec == "zstandard":
            content = memoryview(pa.CompressedInputStream(pa.BufferReader(data), "zstd").read_buffer(size)).cast("B")
        else:
            content = memoryview(STREAMS[codec]().decompress(data, size))
    except LIBRARY_ERRORS as error:
        raise _corrupt(error) from error
    if len(content) != size:
        raise CorruptData(f"the begin of a stream gives {len(content)} bytes, not {size}")
    return content


class PieceDecompressor:
    """Decompresses consecutive streams, from input in pieces, to output in pieces.

    Zero bytes after a gzip stream are padding."""

    def __init__(self, codec: str, piece_bytes: int) -> None:
        """`codec` is a key of STREAMS. A piece of output has at most `piece_bytes` bytes."""
        self._codec, self._piece_bytes = codec, piece_bytes
        self._stream = STREAMS[codec]()
        self._begun = False  # whether the stream has had input
        self.unread = 0  # bytes of input not yet decompressed when the last piece began

    @property
    def at_end(self) -> bool:
        """Whether the input so far ends with the end of a stream, or is empty."""
        return not self._begun

    def pieces(self, data: bytes) -> Iterator[bytes]:
        """The pieces of content that `data` completes. Consume all of them before the next call."""
        while data or self._begun:
            if self._codec == "gzip" and not self._begun:
                data = data.lstrip(b"\0")
                if not data:
                    return
            self.unread = len(data)
            try:
                piece = self._stream.decompress(data, self._piece_bytes)
            except LIBRARY_ERRORS as error:
                raise _corrupt(error) from error
            self._begun = not self._stream.eof
            if self._begun:
                data = getattr(self._stream, "unconsumed_tail", b"")  # only isal exposes it
            else:
                data, self._stream = self._stream.unused_data, STREAMS[self._codec]()
            if piece:
                yield piece
            elif not data:
                return


def snappy_length(data: bytes | memoryview) -> int:
    """The number of content bytes that a snappy block states."""
    if not len(data):
        raise CorruptData("a snappy block without a length")
    try:
        return int(cramjam.snappy.decompress_raw_len(data))
    except _beside(cramjam.DecompressionError) as error:
        raise _corrupt(error) from error


def decompress_snappy(data: bytes | memoryview, limit: int) -> bytes:
    """The content of a raw snappy block, at most `limit` bytes."""
    length = snappy_length(data)
    if length > limit:
        raise BoundExceeded(f"unpacks to more than {limit} bytes")
    if length > SNAPPY_GROWTH * len(data):  # checked before the memory is allocated
        raise CorruptData(f"{length} bytes of content claimed by {len(data)} bytes")
    if not length:
        return b""
    try:
        return cast(bytes, pa.Codec("snappy").decompress(data, decompressed_size=length, asbytes=True))
    except LIBRARY_ERRORS as error:
        raise _corrupt(error) from error


def decompress_lz4(data: bytes | memoryview, limit: int) -> bytes:
    """The content of a raw LZ4 block. It does not state its length: content beyond `limit` bytes is CorruptData."""
    return _decompress_into(cramjam.lz4.decompress_block_into, data, min(limit, LZ4_GROWTH * len(data)))


def decompress_brotli(data: bytes | memoryview, limit: int) -> bytes:
    """The content of a Brotli stream. It does not state its length: content beyond `limit` bytes is CorruptData."""
    return _decompress_into(cramjam.brotli.decompress_into, data, limit)


def decompress_lzo(data: bytes | memoryview, limit: int) -> bytes:
    """The content of an LZO1X block, at most `limit` bytes. The library allocates up to 255 times the length of
    `data`."""
    try:
        content = bytes(lzallright.LZOCompressor.decompress(data))
    except _beside(lzallright.LZOError, lzallright.InputNotConsumed) as error:
        raise _corrupt(error) from error
    if len(content) > limit:
        raise BoundExceeded(f"unpacks to more than {limit} bytes")
    return content


def _decompress_into(decompress: Callable[..., int], data: bytes | memoryview, room: int) -> bytes:
    buffer = bytearray(room)
    try:
        length = decompress(data, buffer)
    except _beside(cramjam.DecompressionError) as error:
        raise _corrupt(error) from error
    return bytes(memoryview(buffer)[:length])


def _beside(*own: type[Exception]) -> tuple[type[Exception], ...]:
    """The errors of a library that is imported when it is first used, and of all others."""
    return (*LIBRARY_ERRORS, *own)


def _corrupt(error: Exception) -> CorruptData:
    """A library's error as CorruptData. Raises MemoryError where memory ran out."""
    check_memory(error)
    return CorruptData(str(error) or type(error).__name__)
