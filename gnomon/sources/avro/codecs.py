"""Compression of blocks, by the codec's Avro name: the codecs of Avro 1.12, and lz4 as fastavro writes it."""

import zlib
from collections.abc import Callable

from gnomon.base.compression import (
    LZ4_GROWTH,
    BoundExceeded,
    CorruptData,
    decompress_lz4,
    decompress_snappy,
    decompress_stream,
    decompress_streams,
)
from gnomon.sources.avro.errors import LimitExceeded, Malformed

CRC_BYTES = 4
LZ4_SIZE_BYTES = 4


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
