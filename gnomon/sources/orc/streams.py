"""The bytes of one stream of a stripe: read chunk by chunk, and decompressed as they are needed (ORC specification,
"Compression"). A chunk decompresses to at most the block size in the postscript.

Errors in the bytes name no file: `reader` adds it, `error_context` the column and the position of its stripe.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from gnomon.base.compression import (
    BoundExceeded,
    CorruptData,
    decompress_brotli,
    decompress_lz4,
    decompress_lzo,
    decompress_snappy,
    decompress_stream,
)
from gnomon.base.readers import RangeReader

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
PLAIN_PIECE = 64 << 10  # bytes of a stream without chunks that are read at a time
PLAIN_GIVEN = 256 << 10  # bytes returned at a time, of those that were read already
LEAST_LEAP = 1 << 20  # skipped bytes: for fewer, no search for full chunks


class OrcError(ValueError):
    """`offset` is a byte position in the file, where known."""

    def __init__(self, message: str, offset: int | None = None) -> None:
        self.offset = offset
        super().__init__(message)


class Damage(OrcError):
    """The bytes violate the ORC specification."""


class Unsupported(OrcError):
    """The bytes may be sound, but hold something that this reader does not know."""


@contextmanager
def error_context(what: str, offset: int) -> Iterator[None]:
    """Add `what` and `offset` to errors of the bytes."""
    try:
        yield
    except OrcError as error:
        raise type(error)(f"{what}: {error}", offset) from error


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


class FullChunks(NamedTuple):
    """Consecutive chunks whose decompressed sizes are known: the begin of each in the stream, and the coordinate (see
    `ByteStream`) of its first byte. For the last, only the begin is known."""

    begins: list[int]
    coordinates: list[int]


class PackedStream:
    """A stream in the file. Bytes that were read beforehand (`hold`) cost no read; others are read on demand, `piece`
    bytes at a time. With `forward`, bytes before those read last are dropped."""

    def __init__(self, reader: RangeReader, offset: int, length: int, codec: Codec, piece: int, forward: bool) -> None:
        self.offset = offset
        self.length = length
        self._reader = reader
        self._codec = codec
        self._piece = piece
        self._forward = forward
        self._starts: list[int] = []
        self._parts: list[bytes] = []
        # the chunk decompressed last, which neighbours share
        self._last: tuple[int, tuple[bytes, int]] = (-1, (b"", 0))

    @property
    def packed(self) -> bool:
        return self._codec.packed

    def hold(self, start: int, part: bytes) -> None:
        """Keep bytes of the stream, from `start` on, in memory. Called with ascending `start`."""
        self._starts.append(start)
        self._parts.append(part)

    def chunk(self, at: int) -> tuple[bytes, int] | None:
        """`(content, position of the next chunk)` of the chunk that begins at `at`; None at the end."""
        if at >= self.length:
            if at == self.length:
                return None
            raise Damage(f"byte {at} of a stream of {self.length}")
        if self._last[0] == at:
            return self._last[1]
        if not self.packed:
            content = self._held(at, PLAIN_GIVEN) or self._read(at, min(PLAIN_PIECE, self.length - at))
            found = content, at + len(content)
        else:
            header, after = self._header(at)
            found = self._codec.unpack(header, self._read(at + HEADER, after - at - HEADER)), after
        self._last = at, found
        return found

    def most(self, begin: int, end: int) -> Iterator[tuple[int, int]]:
        """`(start, most bytes)` of each chunk between two positions: the most bytes to which it can decompress.
        Decompresses nothing."""
        while begin < end:
            header, after = self._header(begin)
            yield begin, self._codec.most(header)
            begin = after
        if begin > end:
            raise Damage(f"no chunk begins at byte {end}")

    def _header(self, at: int) -> tuple[bytes, int]:
        """`(header, position of the next chunk)` of the chunk that begins at `at`."""
        if at + HEADER > self.length:
            raise Damage("the stream ends in the header of a chunk")
        header = self._read(at, HEADER)
        after = at + HEADER + self._codec.chunk_length(header)
        if after > self.length:
            raise Damage(f"a chunk at byte {at} runs beyond the stream of {self.length}")
        return header, after

    def _read(self, at: int, length: int) -> bytes:
        held = self._held(at, length)
        if len(held) == length:
            return held
        fetched = self._reader.read_range(self.offset + at, min(max(length, self._piece), self.length - at))
        if self._forward:
            self._starts, self._parts = [], []
        slot = bisect_right(self._starts, at)
        self._starts.insert(slot, at)
        self._parts.insert(slot, fetched)
        return fetched[:length]

    def _held(self, at: int, most: int) -> bytes:
        """The bytes from `at` on that were read already, at most `most`."""
        slot = bisect_right(self._starts, at) - 1
        if slot < 0:
            return b""
        begin = at - self._starts[slot]
        return self._parts[slot][begin : begin + most]  # no more: parts of many MB are cut into thousands of chunks


class ByteStream:
    """The content of a stream from a position on. `data[position:]` is in memory; `fill` gets more.

    `coordinate` numbers the bytes of the content. `tracked` streams compare it with the row index."""

    def __init__(self, stream: PackedStream, chunk: int = 0, offset: int = 0, tracked: bool = False) -> None:
        """Starts at byte `offset` of the content of the chunk at `chunk`; in a stream without chunks, at byte
        `chunk`."""
        self._stream = stream
        self._next = chunk
        self._chunks: dict[int, int] = {}  # for a tracked stream, the coordinate of each chunk read
        self.tracked = tracked
        self.full: Callable[[], FullChunks | None] | None = None  # gives the known full chunks from `chunk` on
        self._base = 0  # coordinate of data[0]
        self.data = b""
        self.position = 0
        self._offset = offset  # in the next chunk; used only before the first data
        self._pending_skip = 0  # bytes still to skip before the next are returned

    @property
    def coordinate(self) -> int:
        return self._base + self.position + self._offset + self._pending_skip

    def coordinate_of(self, chunk: int, offset: int) -> int:
        """The coordinate of a position in the row index; -1 where no chunk begins there."""
        if not self._stream.packed:
            return chunk
        start = self._base + len(self.data) if chunk == self._next else self._chunks.get(chunk, -1)
        return start + offset if start >= 0 else -1

    def fill(self) -> bool:
        """Get more bytes after the ones left; False at the end."""
        found = self._stream.chunk(self._next)
        if found is None:
            return False
        if self.tracked:
            self._chunks[self._next] = self._base + len(self.data)
        content, self._next = found
        self._base += self.position
        self.data = self.data[self.position :] + content if self.position < len(self.data) else content
        self.position, self._offset = self._offset, 0
        if self.position > len(self.data):
            raise Damage(f"byte {self.position} of a chunk of {len(self.data)}")
        return True

    def take(self, count: int) -> bytes:
        """The next `count` bytes."""
        if self._pending_skip:
            self._apply_skip()
        end = self.position + count
        if end <= len(self.data):
            taken = self.data[self.position : end]
            self.position = end
            return taken
        parts, missing = [], count
        while missing:
            part = self.data[self.position : self.position + missing]
            parts.append(part)
            self.position += len(part)
            missing -= len(part)
            if missing and not self.fill():
                raise Damage(f"a stream ends {missing} bytes early")
        return b"".join(parts)

    def skip(self, count: int) -> None:
        """Skip the next `count` bytes."""
        self._pending_skip += count
        if self.tracked:
            self._apply_skip()

    def _apply_skip(self) -> None:
        count, self._pending_skip = self._pending_skip, 0
        if count >= LEAST_LEAP:
            count = self._skip_chunks(count)
        while count > len(self.data) - self.position:
            count -= len(self.data) - self.position
            self.position = len(self.data)
            if not self.fill():
                raise Damage(f"a stream ends {count} bytes early")
        self.position += count

    def _skip_chunks(self, count: int) -> int:
        """Skip chunks that need not be decompressed, at most `count` bytes. Returns the bytes still to skip."""
        target, after = self.coordinate + count, self._base + len(self.data)
        if not self._stream.packed:
            begin = min(self._next + target - after, self._stream.length)
            coordinate = after + begin - self._next
        else:
            chunks = self.full() if self.full is not None else None
            if chunks is None:
                return count
            slot = bisect_right(chunks.coordinates, target) - 1
            begin, coordinate = chunks.begins[slot], chunks.coordinates[slot]
        if coordinate <= after:
            return count
        self._next, self._base, self.data, self.position, self._offset = begin, coordinate, b"", 0, 0
        return target - coordinate
