"""The chunks of a compressed stream (ORC specification, "Compression"). Each decompresses to at most the block size in
the postscript."""

from collections.abc import Callable

from gnomon.base.compression import (
    BoundExceeded,
    CorruptData,
    decompress_brotli,
    decompress_lz4,
    decompress_lzo,
    decompress_snappy,
    decompress_stream,
)
from gnomon.sources.orc.errors import Damage, Unsupported

HEADER = 3  # bytes before each chunk: its length * 2, plus 1 where it is not compressed
LARGEST_BLOCK = (1 << 23) - 1  # bytes: the largest length that the header can hold
USUAL_BLOCK = 256 << 10  # where the postscript has no block size

Unpack = Callable[[bytes, int], bytes]

# By the number of CompressionKind. Java 2.0 has Brotli; ORC C++ and pyarrow do not.
KINDS: dict[int, Unpack] = {
    1: lambda data, limit: decompress_stream("deflate", data, limit)[0],
    2: decompress_snappy,
    3: decompress_lzo,
    4: decompress_lz4,
    5: lambda data, limit: decompress_stream("zstandard", data, limit)[0],
    6: decompress_brotli,
}


class Codec:
    """The compression of the streams of a file."""

    def __init__(self, kind: int, block_size: int) -> None:
        """`kind`: a number of CompressionKind, 0 for none. `block_size` in bytes, 0 where it is not stated."""
        if kind and kind not in KINDS:
            raise Unsupported(f"unknown compression kind {kind}")
        if block_size > LARGEST_BLOCK:
            raise Damage(f"a compression block size of {block_size} bytes, the limit is {LARGEST_BLOCK}")
        self.kind, self._unpack = kind, KINDS.get(kind)
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
            return self._unpack(body, self.block_size)
        except BoundExceeded as error:
            raise Damage(f"a chunk unpacks to more than the block size of {self.block_size} bytes") from error
        except CorruptData as error:
            raise Damage(f"a chunk that cannot be unpacked: {error}") from error

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
