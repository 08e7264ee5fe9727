"""Codecs of records and blocks, by the name of Hadoop's class.

Deflate, gzip, bzip2 and zstandard are plain streams, of which several may follow each other. Snappy and LZ4 data lie in
Hadoop's frames (`BlockCompressorStream`): the length of the decompressed bytes, then chunks, each after its own length,
until they make up that length. All lengths are four bytes, big-endian.
"""

import bz2
import struct
import sys
import zlib
from collections.abc import Callable
from typing import Protocol, cast

import cramjam
from isal import isal_zlib

from sources.errors import UnsupportedFormat, check_memory

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

LARGEST = 512 << 20  # bytes that one compressed piece of a file may unpack to
GZIP_BITS = 31  # zlib's name for: with a gzip header
LZ4_GROWTH = 255  # at most so many bytes from one; of snappy it is less
FAILURES: tuple[type[Exception], ...] = (
    cast(type[Exception], isal_zlib.error),  # its stub says an instance
    struct.error,
    zlib.error,
    zstd.ZstdError,
    cramjam.DecompressionError,
    OSError,
    ValueError,
    EOFError,
)


class CodecError(Exception):
    """The bytes do not decompress."""


Inflate = Callable[[bytes, int], bytes]
"""The plain bytes, at most so many of them, else CodecError: a stream that claims more is not unpacked."""


class _Stream(Protocol):
    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int) -> bytes: ...


def codec_named(name: str, path: str) -> Inflate:
    """The function of a codec class. UnsupportedFormat for one that is not known."""
    found = _CODECS.get(name.rpartition(".")[2])
    if found is not None:
        return found
    why = "LZO is not supported" if "lzo" in name.lower() else "the codec is not known"
    known = ", ".join(_CODECS)
    raise UnsupportedFormat(f"compressed with {name[:80]!r}: {why}; supported: {known}", path, 0)


def _streams(begin: Callable[[], _Stream]) -> Inflate:
    def inflate(data: bytes, most: int) -> bytes:
        pieces: list[bytes] = []
        room = most
        try:
            while True:
                stream = begin()
                pieces.append(stream.decompress(data, room + 1))  # one more: at the limit itself a stream still ends
                room -= len(pieces[-1])
                if room < 0:
                    raise CodecError(f"unpacks to more than {most} bytes")
                if not stream.eof:
                    raise CodecError("ends within its stream")
                data = stream.unused_data
                if not data:
                    return pieces[0] if len(pieces) == 1 else b"".join(pieces)
        except FAILURES as error:
            check_memory(error)
            raise CodecError(str(error) or type(error).__name__) from error

    return inflate


def _frames(unpack: Callable[[memoryview, memoryview], int]) -> Inflate:
    """`unpack(chunk, room)` fills room with the chunk's plain bytes and says how many they are."""

    def inflate(data: bytes, most: int) -> bytes:
        pieces: list[bytes] = []
        view, at, total = memoryview(data), 0, 0
        try:
            while at < len(data):
                (length,) = struct.unpack_from(">I", data, at)
                at += 4
                total += length
                if total > most or length > LZ4_GROWTH * (len(data) - at):
                    raise CodecError(f"a frame of {len(data) - at} bytes claims to unpack to {length}")
                plain, filled = bytearray(length), 0
                while filled < length:
                    (size,) = struct.unpack_from(">I", data, at)
                    chunk = view[at + 4 : at + 4 + size]
                    if len(chunk) != size:
                        raise CodecError(f"a chunk claims {size} bytes, {len(chunk)} are left")
                    filled += unpack(chunk, memoryview(plain)[filled:])
                    at += 4 + size
                pieces.append(bytes(plain))
        except FAILURES as error:
            check_memory(error)
            raise CodecError(str(error) or type(error).__name__) from error
        return b"".join(pieces)

    return inflate


def _snappy(chunk: memoryview, room: memoryview) -> int:
    length = cramjam.snappy.decompress_raw_len(chunk)
    if length > len(room):
        raise CodecError(f"a chunk claims to unpack to {length} bytes, its frame has {len(room)} left")
    return int(cramjam.snappy.decompress_raw_into(chunk, room[:length]))


def _lz4(chunk: memoryview, room: memoryview) -> int:
    return int(cramjam.lz4.decompress_block_into(chunk, room))


_DEFLATE = _streams(isal_zlib.decompressobj)
_CODECS: dict[str, Inflate] = {
    "DefaultCodec": _DEFLATE,
    "DeflateCodec": _DEFLATE,
    "GzipCodec": _streams(lambda: isal_zlib.decompressobj(GZIP_BITS)),
    "BZip2Codec": _streams(bz2.BZ2Decompressor),
    "SnappyCodec": _frames(_snappy),
    "Lz4Codec": _frames(_lz4),
    "ZStandardCodec": _streams(zstd.ZstdDecompressor),
}
