"""Compression of blocks, by the codec's Avro name, and the checksum of a block's records.

Avro's snappy ends in a CRC. Our deflate does so, too: readers stop at the end of the stream and do not see it. A
zstandard frame has room for a checksum of its own, which Avro writers leave out and all readers check.
"""

import bz2
import lzma
import sys
import zlib
from collections.abc import Callable
from typing import Protocol, cast

import pyarrow as pa
from isal import isal_zlib

from btree.errors import BTreeError
from btree.format import CRC_BYTES, decode_unsigned

if sys.version_info >= (3, 14):
    from compression import zstd as zstd
else:
    from backports import zstd as zstd

RAW_DEFLATE = -15  # window bits of a stream without the zlib header (RFC 1951), as Avro stores it
ISAL_ERROR = cast(type[Exception], isal_zlib.error)  # its stub says an instance
XZ_MEMORY_BYTES = 66 * 1024 * 1024  # what the strongest preset takes to unpack
ZSTANDARD_WRITTEN: dict[int, int] = {
    zstd.CompressionParameter.compression_level: 1,  # higher ones gain nothing on nodes of some KiB
    zstd.CompressionParameter.checksum_flag: 1,
}
ZSTANDARD_READ: dict[int, int] = {zstd.DecompressionParameter.window_log_max: 27}  # 128 MiB, what level 22 asks for
SNAPPY_MOST = 22  # times longer is the content at most: three bytes stand for up to 64
ZSTANDARD_HEAD_BYTES = 5  # of a frame: magic, and a byte of flags
ZSTANDARD_CHECKSUM_FLAG = 1 << 2

CHECKSUMS = {"deflate": b"crc32", "zstandard": b"xxh64"}  # what CHECKSUM_KEY says of each codec that can do without


class DecompressionError(Exception):
    """The payload is not what its codec says; the caller adds path and offset."""


Compress = Callable[[bytes], bytes]


def _crc(data: bytes) -> bytes:
    return isal_zlib.crc32(data).to_bytes(CRC_BYTES, "big")


def _deflate(data: bytes) -> bytes:
    packer = isal_zlib.compressobj(2, isal_zlib.DEFLATED, RAW_DEFLATE)
    return b"".join([packer.compress(data), packer.flush(), _crc(data)])


def _snappy(data: bytes) -> bytes:
    packed: bytes = pa.Codec("snappy").compress(data, asbytes=True)
    return packed + _crc(data)


def _zstandard() -> Compress:
    packer = zstd.ZstdCompressor(options=ZSTANDARD_WRITTEN)

    def pack(data: bytes) -> bytes:
        packer.set_pledged_input_size(len(data))  # so it stands in the frame
        return packer.compress(data, zstd.ZstdCompressor.FLUSH_FRAME)

    return pack


COMPRESSORS: dict[str, Callable[[], Compress]] = {
    "null": lambda: bytes,
    "deflate": lambda: _deflate,
    "snappy": lambda: _snappy,
    "zstandard": _zstandard,
}


def compressor(codec: str) -> Compress:
    """The function that packs a node's records, with the checksum that CHECKSUMS says. For one thread."""
    try:
        return COMPRESSORS[codec]()
    except KeyError:
        raise BTreeError(f"codec {codec!r} cannot be written; choose of {', '.join(COMPRESSORS)}") from None


class _Stream(Protocol):
    """What the decompressors of isal, bz2, lzma and zstd have in common."""

    @property
    def eof(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes, max_length: int, /) -> bytes: ...


def _unpack_stream(stream: _Stream, data: bytes, limit: int) -> tuple[bytes, bytes]:
    """The content of one compressed stream, and what follows it."""
    out = stream.decompress(data, limit + 1)
    if len(out) > limit:
        raise DecompressionError(f"more than {limit} bytes of records")
    if not stream.eof:
        raise DecompressionError("the compressed stream is cut")
    return out, stream.unused_data


def _check_crc(records: bytes, crc: bytes) -> None:
    if crc != _crc(records):
        raise DecompressionError("the CRC after the compressed records does not match them")


def _unpack_deflate(data: bytes, limit: int, checked: bool) -> bytes:
    records, rest = _unpack_stream(isal_zlib.decompressobj(RAW_DEFLATE), data, limit)
    if checked:
        _check_crc(records, rest)
    return records


def _unpack_bzip2(data: bytes, limit: int, _checked: bool) -> bytes:
    return _unpack_stream(bz2.BZ2Decompressor(), data, limit)[0]


def _unpack_xz(data: bytes, limit: int, _checked: bool) -> bytes:
    return _unpack_stream(lzma.LZMADecompressor(memlimit=XZ_MEMORY_BYTES), data, limit)[0]


def _unpack_snappy(data: bytes, limit: int, _checked: bool) -> bytes:
    body = data[:-CRC_BYTES]
    length = decode_unsigned(body, 0)[0]  # a snappy block begins with the length of its content
    if length > limit:
        raise DecompressionError(f"more than {limit} bytes of records")
    if length > SNAPPY_MOST * len(body):  # before so much is set aside
        raise DecompressionError(f"{length} bytes of records claimed by {len(body)}")
    out: bytes = pa.Codec("snappy").decompress(body, decompressed_size=length, asbytes=True) if length else b""
    _check_crc(out, data[-CRC_BYTES:])
    return out


def _unpack_zstandard(data: bytes, limit: int, checked: bool) -> bytes:
    if checked and not (len(data) >= ZSTANDARD_HEAD_BYTES and data[ZSTANDARD_HEAD_BYTES - 1] & ZSTANDARD_CHECKSUM_FLAG):
        raise DecompressionError("the zstandard frame has no checksum")
    records, rest = _unpack_stream(zstd.ZstdDecompressor(options=ZSTANDARD_READ), data, limit)
    if rest:
        raise DecompressionError("bytes follow the zstandard frame")
    return records


DECOMPRESSORS: dict[str, Callable[[bytes, int, bool], bytes]] = {
    "null": lambda data, _limit, _checked: data,
    "deflate": _unpack_deflate,
    "bzip2": _unpack_bzip2,
    "xz": _unpack_xz,
    "snappy": _unpack_snappy,
    "zstandard": _unpack_zstandard,
}
FAILURES = (OSError, ValueError, EOFError, IndexError, lzma.LZMAError, zlib.error, ISAL_ERROR, zstd.ZstdError)


def decompress(codec: str, data: bytes, limit: int, checked: bool = False) -> bytes:
    """The records of a block, at most `limit` bytes; `checked` says that the file's payloads carry the checksum of
    CHECKSUMS. Raises DecompressionError."""
    try:
        records = DECOMPRESSORS[codec](data, limit, checked)
    except FAILURES as error:
        raise DecompressionError(str(error) or type(error).__name__) from error
    if len(records) > limit:
        raise DecompressionError(f"more than {limit} bytes of records")
    return records
