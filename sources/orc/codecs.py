"""The chunks of a compressed stream (ORC specification, "Compression"): each unpacks to at most the block size that the
postscript states."""

import sys
from collections.abc import Callable

import cramjam
import lzallright
from isal import isal_zlib

from sources.errors import check_memory
from sources.orc.errors import Damage, Unsupported

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

HEADER = 3  # bytes before each chunk: its length * 2, plus 1 where it is not compressed
LARGEST_BLOCK = (1 << 23) - 1  # bytes: what the header can say
USUAL_BLOCK = 256 << 10  # where the postscript does not say
RAW_DEFLATE = -15
WINDOW: dict[int, int] = {zstd.DecompressionParameter.window_log_max: 27}  # 128 MiB

Unpack = Callable[[bytes, int], bytes]


def _zlib(data: bytes, limit: int) -> bytes:
    stream = isal_zlib.decompressobj(RAW_DEFLATE)
    out: bytes = stream.decompress(data, limit + 1)
    if not stream.eof and len(out) <= limit:
        raise Damage("the deflate stream is cut")
    return out


def _snappy(data: bytes, limit: int) -> bytes:
    out = bytearray(limit)
    return bytes(out[: cramjam.snappy.decompress_raw_into(data, out)])


def _lzo(data: bytes, _limit: int) -> bytes:
    """Grows by 255 times at most, and what it grows from is no longer than a block."""
    return bytes(lzallright.LZOCompressor.decompress(data))


def _lz4(data: bytes, limit: int) -> bytes:
    out = bytearray(limit)  # the other way the result is filled up with zeros
    return bytes(out[: cramjam.lz4.decompress_block_into(data, out)])


def _zstd(data: bytes, limit: int) -> bytes:
    stream = zstd.ZstdDecompressor(options=WINDOW)
    out: bytes = stream.decompress(data, limit + 1)
    if not stream.eof and len(out) <= limit:
        raise Damage("the zstandard frame is cut")
    return out


def _brotli(data: bytes, limit: int) -> bytes:
    out = bytearray(limit)
    return bytes(out[: cramjam.brotli.decompress_into(data, out)])


# By the number of CompressionKind. ORC C++ (and pyarrow with it) has no Brotli, Java 2.0 has.
KINDS: dict[int, Unpack] = {1: _zlib, 2: _snappy, 3: _lzo, 4: _lz4, 5: _zstd, 6: _brotli}
ISAL_ERROR: type[Exception] = isal_zlib.IsalError  # type: ignore[assignment]
FAILURES = (
    ISAL_ERROR,
    cramjam.DecompressionError,
    lzallright.LZOError,
    lzallright.InputNotConsumed,
    zstd.ZstdError,
    ValueError,
)


class Codec:
    """The compression of the streams of a file."""

    def __init__(self, kind: int, block_size: int) -> None:
        """`kind`: a number of CompressionKind, 0 for none. `block_size` in bytes, 0 where it is not stated."""
        if kind and kind not in KINDS:
            raise Unsupported(f"compression kind {kind} is not known")
        if block_size > LARGEST_BLOCK:
            raise Damage(f"a compression block size of {block_size} bytes, {LARGEST_BLOCK} can be")
        self._unpack = KINDS.get(kind)
        self.block_size = block_size or USUAL_BLOCK

    @property
    def packed(self) -> bool:
        """Whether the streams consist of chunks."""
        return self._unpack is not None

    def chunk_length(self, header: bytes) -> int:
        """Bytes of the chunk after its header."""
        length = int.from_bytes(header, "little") >> 1
        if length > max(self.block_size, USUAL_BLOCK):
            raise Damage(f"a chunk of {length} bytes, the block size is {self.block_size}")
        return length

    def most(self, header: bytes) -> int:
        """The most bytes to which a chunk can decompress; for an uncompressed chunk, its length."""
        return self.chunk_length(header) if header[0] & 1 else self.block_size

    def unpack(self, header: bytes, body: bytes) -> bytes:
        """Decompress a chunk."""
        if header[0] & 1 or self._unpack is None:
            return body
        try:
            content = self._unpack(body, self.block_size)
        except FAILURES as error:
            check_memory(error)
            raise Damage(f"a chunk that cannot be unpacked: {error}") from error
        if len(content) > self.block_size:
            raise Damage(f"a chunk unpacks to more than the block size of {self.block_size} bytes")
        return content

    def unpack_all(self, data: bytes, limit: int) -> bytes:
        """Decompress all chunks of a message, to at most `limit` bytes together."""
        if self._unpack is None:
            return data
        parts, position, total = [], 0, 0
        while position < len(data):
            header = data[position : position + HEADER]
            position += HEADER
            length = self.chunk_length(header)
            if len(header) < HEADER or position + length > len(data):
                raise Damage("a chunk runs beyond its message")
            parts.append(self.unpack(header, data[position : position + length]))
            position += length
            total += len(parts[-1])
            if total > limit:
                raise Damage(f"a message of more than {limit} bytes")
        return b"".join(parts)
