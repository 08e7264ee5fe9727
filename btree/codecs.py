"""Compression of blocks, by the codec's Avro name, and the checksum of a block's records.

Avro's snappy has a CRC at its end. Our deflate has one, too: readers stop at the end of the stream and ignore it. A
zstandard frame has an optional checksum, which Avro writers leave out and all readers check.
"""

from collections.abc import Callable

import pyarrow as pa
from isal import isal_zlib

from gnomon.base.compression import (
    RAW_DEFLATE,
    BoundExceeded,
    CorruptData,
    decompress_snappy,
    decompress_stream,
    zstd,
)
from gnomon.btree.errors import BTreeError
from gnomon.btree.format import CRC_BYTES

ZSTANDARD_WRITTEN: dict[int, int] = {
    # measured on nodes of 8 KiB: level 5 gains 0 to 7 %, and takes twice the time
    zstd.CompressionParameter.compression_level: 1,
    zstd.CompressionParameter.checksum_flag: 1,
}
ZSTANDARD_HEAD_BYTES = 5  # start of a frame: magic, and a byte of flags
ZSTANDARD_CHECKSUM_FLAG = 1 << 2

# the value of CHECKSUM_KEY for each codec without its own checksum
CHECKSUMS = {"deflate": b"crc32", "zstandard": b"xxh64"}

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
        packer.set_pledged_input_size(len(data))  # so that the frame states it
        return packer.compress(data, zstd.ZstdCompressor.FLUSH_FRAME)

    return pack


COMPRESSORS: dict[str, Callable[[], Compress]] = {
    "null": lambda: bytes,
    "deflate": lambda: _deflate,
    "snappy": lambda: _snappy,
    "zstandard": _zstandard,
}


def compressor(codec: str) -> Compress:
    """The function that compresses a node's records, with the checksum of CHECKSUMS. For one thread."""
    try:
        return COMPRESSORS[codec]()
    except KeyError:
        raise BTreeError(f"codec {codec!r} cannot be written; choose of {', '.join(COMPRESSORS)}") from None


def _check_crc(records: bytes, crc: bytes) -> None:
    if crc != _crc(records):
        raise CorruptData("the CRC after the compressed records does not match them")


def _unpack_null(data: bytes, limit: int, _checked: bool) -> bytes:
    if len(data) > limit:
        raise BoundExceeded(f"more than {limit} bytes of records")
    return data


def _unpack_deflate(data: bytes, limit: int, checked: bool) -> bytes:
    records, rest = decompress_stream("deflate", data, limit)
    if checked:
        _check_crc(records, rest)
    return records


def _unpack_bzip2(data: bytes, limit: int, _checked: bool) -> bytes:
    return decompress_stream("bzip2", data, limit)[0]


def _unpack_xz(data: bytes, limit: int, _checked: bool) -> bytes:
    return decompress_stream("xz", data, limit)[0]


def _unpack_snappy(data: bytes, limit: int, _checked: bool) -> bytes:
    records = decompress_snappy(data[:-CRC_BYTES], limit)
    _check_crc(records, data[-CRC_BYTES:])
    return records


def _unpack_zstandard(data: bytes, limit: int, checked: bool) -> bytes:
    if checked and not (len(data) >= ZSTANDARD_HEAD_BYTES and data[ZSTANDARD_HEAD_BYTES - 1] & ZSTANDARD_CHECKSUM_FLAG):
        raise CorruptData("the zstandard frame has no checksum")
    records, rest = decompress_stream("zstandard", data, limit)
    if rest:
        raise CorruptData("bytes follow the zstandard frame")
    return records


DECOMPRESSORS: dict[str, Callable[[bytes, int, bool], bytes]] = {
    "null": _unpack_null,
    "deflate": _unpack_deflate,
    "bzip2": _unpack_bzip2,
    "xz": _unpack_xz,
    "snappy": _unpack_snappy,
    "zstandard": _unpack_zstandard,
}


def decompress(codec: str, data: bytes, limit: int, checked: bool = False) -> bytes:
    """The records of a block, at most `limit` bytes. `checked`: the file's payloads carry the checksum of CHECKSUMS.
    Raises DecompressionError of `gnomon.base.compression`."""
    return DECOMPRESSORS[codec](data, limit, checked)
