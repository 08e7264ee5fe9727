"""Compression of blocks, by the codec's Avro name: what Avro 1.12 lists, and lz4 as fastavro writes it."""

import bz2
import lzma
import sys
import zlib
from collections.abc import Callable
from typing import Protocol, cast

import pyarrow as pa
from isal import isal_zlib

from sources.avro.errors import LimitExceeded, Malformed
from sources.avro.varint import unsigned
from sources.errors import check_memory

if sys.version_info >= (3, 14):
    from compression import zstd as zstd
else:
    from backports import zstd as zstd

RAW_DEFLATE = -15  # window bits of a stream without the zlib header (RFC 1951), as Avro stores it
ISAL_ERROR = cast(type[Exception], isal_zlib.error)  # its stub says an instance
XZ_MEMORY_BYTES = 66 << 20  # what the strongest preset takes to unpack
ZSTANDARD_READ: dict[int, int] = {zstd.DecompressionParameter.window_log_max: 27}  # 128 MiB, what level 22 asks for
CRC_BYTES = 4
LZ4_SIZE_BYTES = 4
SNAPPY_MOST = 22  # times longer is the content at most: three bytes stand for up to 64
LZ4_MOST = 256  # likewise: a byte stands for up to 255


class _Stream(Protocol):
    """What the decompressors of isal, bz2, lzma and zstd have in common."""

    @property
    def eof(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes, max_length: int, /) -> bytes: ...


def _unpacked(stream: _Stream, data: bytes, limit: int) -> bytes:
    out = stream.decompress(data, limit + 1)
    if len(out) > limit:
        raise LimitExceeded(f"unpacks to more than {limit} bytes")
    return out


def _deflate(data: bytes, limit: int) -> bytes:
    """Some writers flush the stream and do not end it: that it holds all rows the block claims is seen with the rows.
    What follows its end is left alone, as other readers do it."""
    return _unpacked(isal_zlib.decompressobj(RAW_DEFLATE), data, limit)


def _stream(stream: _Stream, data: bytes, limit: int) -> bytes:
    """The content of one compressed stream."""
    out = _unpacked(stream, data, limit)
    if not stream.eof:
        raise Malformed("the compressed stream is cut")
    return out


def _streams(opened: Callable[[], _Stream], data: bytes, limit: int) -> bytes:
    """The content of compressed streams one behind the other, as parallel compressors write them."""
    stream = opened()
    out = _stream(stream, data, limit)
    while stream.unused_data:
        data, stream = stream.unused_data, opened()
        out += _stream(stream, data, limit - len(out))
    return out


def _sized(codec: str, data: bytes, size: int, most: int, limit: int) -> bytes:
    """Content of a codec that has to be told its size, which is looked at before so much is set aside."""
    if size > limit:
        raise LimitExceeded(f"unpacks to more than {limit} bytes")
    if size > most * len(data):
        raise Malformed(f"{size} bytes of records claimed by {len(data)}")
    return bytes(pa.Codec(codec).decompress(data, decompressed_size=size, asbytes=True)) if size else b""


def _snappy(data: bytes, limit: int) -> bytes:
    """A snappy block, which begins with the size of its content, and then the content's CRC."""
    body = data[:-CRC_BYTES]
    out = _sized("snappy", body, unsigned(body, 0)[0], SNAPPY_MOST, limit)
    if zlib.crc32(out) != int.from_bytes(data[-CRC_BYTES:], "big"):
        raise Malformed("the CRC after the compressed records does not match them")
    return out


def _lz4(data: bytes, limit: int) -> bytes:
    """The size of the content, little-endian, and an LZ4 block."""
    if len(data) < LZ4_SIZE_BYTES:
        raise Malformed("the compressed block is cut")
    size = int.from_bytes(data[:LZ4_SIZE_BYTES], "little")
    return _sized("lz4_raw", data[LZ4_SIZE_BYTES:], size, LZ4_MOST, limit)


UNPACKERS: dict[str, Callable[[bytes, int], bytes]] = {
    "null": lambda data, _limit: data,
    "deflate": _deflate,
    "bzip2": lambda data, limit: _streams(bz2.BZ2Decompressor, data, limit),
    "xz": lambda data, limit: _streams(lambda: lzma.LZMADecompressor(memlimit=XZ_MEMORY_BYTES), data, limit),
    "snappy": _snappy,
    "zstandard": lambda data, limit: _streams(lambda: zstd.ZstdDecompressor(options=ZSTANDARD_READ), data, limit),
    "lz4": _lz4,
}
FAILURES = (OSError, ValueError, EOFError, IndexError, lzma.LZMAError, zlib.error, ISAL_ERROR, zstd.ZstdError)


def unpack(codec: str, data: bytes, limit: int) -> bytes:
    """The records of a block, at most `limit` bytes."""
    try:
        return UNPACKERS[codec](data, limit)
    except FAILURES as error:
        check_memory(error)
        raise Malformed(str(error) or type(error).__name__) from error
