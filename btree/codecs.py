"""Compression of blocks, by the codec's Avro name."""

import bz2
import lzma
import zlib
from collections.abc import Callable
from typing import cast

import pyarrow as pa
from isal import isal_zlib

from btree.errors import BTreeError
from btree.format import decode_unsigned

RAW_DEFLATE = -15  # window bits of a stream without the zlib header (RFC 1951), as Avro stores it
ISAL_ERROR = cast(type[Exception], isal_zlib.error)  # its stub says an instance
PIECE_BYTES = 64 * 1024
XZ_MEMORY_BYTES = 128 * 1024 * 1024  # the strongest preset takes 65 MB to unpack
CRC_BYTES = 4  # after a snappy block, big-endian


class DecompressionError(Exception):
    """The payload is not what its codec says; the caller adds path and offset."""


def _deflate(data: bytes) -> bytes:
    packer = isal_zlib.compressobj(2, isal_zlib.DEFLATED, RAW_DEFLATE)
    return bytes(packer.compress(data) + packer.flush())


def _zstandard(data: bytes) -> bytes:
    packed: bytes = pa.Codec("zstd").compress(data, asbytes=True)
    return packed


def _snappy(data: bytes) -> bytes:
    packed: bytes = pa.Codec("snappy").compress(data, asbytes=True)
    return packed + zlib.crc32(data).to_bytes(CRC_BYTES, "big")


COMPRESSORS: dict[str, Callable[[bytes], bytes]] = {
    "null": bytes,
    "deflate": _deflate,
    "snappy": _snappy,
    "zstandard": _zstandard,
}


def compressor(codec: str) -> Callable[[bytes], bytes]:
    """The function that packs a node's records."""
    try:
        return COMPRESSORS[codec]
    except KeyError:
        raise BTreeError(f"codec {codec!r} cannot be written; choose of {', '.join(COMPRESSORS)}") from None


def _bounded(unpack: Callable[[bytes, int], bytes], finished: Callable[[], bool], data: bytes, limit: int) -> bytes:
    out = unpack(data, limit + 1)
    if len(out) > limit:
        raise DecompressionError(f"more than {limit} bytes of records")
    if not finished():
        raise DecompressionError("the compressed stream is cut")
    return out


def _unpack_deflate(data: bytes, limit: int) -> bytes:
    stream = isal_zlib.decompressobj(RAW_DEFLATE)
    return _bounded(stream.decompress, lambda: bool(stream.eof), data, limit)


def _unpack_bzip2(data: bytes, limit: int) -> bytes:
    stream = bz2.BZ2Decompressor()
    return _bounded(stream.decompress, lambda: stream.eof, data, limit)


def _unpack_xz(data: bytes, limit: int) -> bytes:
    stream = lzma.LZMADecompressor(memlimit=XZ_MEMORY_BYTES)
    return _bounded(stream.decompress, lambda: stream.eof, data, limit)


def _unpack_snappy(data: bytes, limit: int) -> bytes:
    body, crc = data[:-CRC_BYTES], int.from_bytes(data[-CRC_BYTES:], "big")
    length = decode_unsigned(body, 0)[0]  # a snappy block begins with the length of its content
    if length > limit:
        raise DecompressionError(f"more than {limit} bytes of records")
    out: bytes = pa.Codec("snappy").decompress(body, decompressed_size=length, asbytes=True) if length else b""
    if zlib.crc32(out) != crc:
        raise DecompressionError("the CRC after the snappy block does not match its records")
    return out


def _unpack_zstandard(data: bytes, limit: int) -> bytes:
    pieces, length = [], 0
    with pa.CompressedInputStream(pa.BufferReader(data), "zstd") as stream:
        while piece := stream.read(PIECE_BYTES):  # a read sets aside all it is asked for
            pieces.append(piece)
            length += len(piece)
            if length > limit:
                raise DecompressionError(f"more than {limit} bytes of records")
    return b"".join(pieces)


DECOMPRESSORS: dict[str, Callable[[bytes, int], bytes]] = {
    "null": lambda data, _limit: data,
    "deflate": _unpack_deflate,
    "bzip2": _unpack_bzip2,
    "xz": _unpack_xz,
    "snappy": _unpack_snappy,
    "zstandard": _unpack_zstandard,
}


def decompress(codec: str, data: bytes, limit: int) -> bytes:
    """The records of a block, at most `limit` bytes. Raises DecompressionError."""
    try:
        records = DECOMPRESSORS[codec](data, limit)
    except (OSError, ValueError, EOFError, IndexError, lzma.LZMAError, zlib.error, ISAL_ERROR) as error:
        raise DecompressionError(str(error) or type(error).__name__) from error
    if len(records) > limit:
        raise DecompressionError(f"more than {limit} bytes of records")
    return records
