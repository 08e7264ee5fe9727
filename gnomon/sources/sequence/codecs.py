"""Codecs of records and blocks, by the name of Hadoop's class.

Deflate, gzip, bzip2 and zstandard are plain streams, several of which may follow each other. Snappy and LZ4 data are in
Hadoop's frames (`BlockCompressorStream`): the length of the decompressed bytes, then chunks, each after its own length,
until they add up to that length. All lengths are four bytes, big-endian.
"""

import struct
from collections.abc import Callable, Iterator
from functools import partial

from gnomon.base.compression import (
    LZ4_GROWTH,
    CorruptData,
    decompress_lz4,
    decompress_snappy,
    decompress_streams,
    snappy_length,
)
from gnomon.sources.errors import UnsupportedFormat

LARGEST = 512 << 20  # most bytes to which one compressed piece of a file may decompress

Inflate = Callable[[bytes, int], bytes]
"""Decompresses to at most the given number of bytes. Raises DecompressionError."""


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
