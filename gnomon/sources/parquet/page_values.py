"""The content of a page, decompressed, and the values in it.

Pages are decompressed to exactly the size in their header: buffer bytes that a codec leaves unwritten would be read as
data. Single values are given in their PLAIN encoding, booleans as a byte each (0 or 1), byte arrays with their length
before them. Only the wanted values are decoded. But the start of a byte array depends on all lengths before it, which
pyarrow reads in one call.
"""

from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from gnomon.base import kernel
from gnomon.base.compression import DecompressionError, decompress_by_slices, decompress_stream
from gnomon.base.errors import check_memory
from gnomon.base.kernel import FRAGMENT
from gnomon.sources.parquet.footer import BINARY, BOOLEAN, CODECS, ChunkPlace, Leaf
from gnomon.sources.parquet.page_header import PLAIN, RLE, PageHeader
from gnomon.sources.parquet.synthetic_file import decode_byte_arrays, decode_hybrid, decompress_with_pyarrow
from gnomon.sources.parquet.thrift import Decoder, ThriftError

STREAMS_OF = {"ZSTD": "zstandard", "GZIP": "gzip or zlib"}  # codecs of Parquet that are streams
LEAST_SLICED = FRAGMENT  # content bytes of a stream that is decompressed slice by slice
RUNS = 64  # runs that a loop of Python decodes; for a page of more, pyarrow is faster
COMPILED_RUNS = 1 << 30
WIDTH_LIMIT = 32  # bits
LENGTH_BYTES = 4  # before a byte array, and before levels
LIKELY, LIKELY_BYTES = 1.2, 64 << 10  # margin over the share of a page that the first values are expected to take
LOOK_AHEAD = 4  # byte arrays
NUMBERS_LIMIT = 1 << 24  # indices that pyarrow may decode in one call

Span = tuple[int, int]  # values of a page: (first, after the last)


class Unpacked(NamedTuple):
    """The decompressed content of a page, without the levels of version 2.

    `body` is the position in the page where this content begins; None where it can only be decompressed as a whole.
    `starts` are the positions of its snappy fragments, counted from `body`; None where it is not compressed. `stream`
    is the codec of a stream that was decompressed slice by slice, with the content bytes after each slice."""

    content: memoryview
    body: int | None = None
    starts: bytes | None = None
    stream: tuple[str, "array[int]"] | None = None


def decompress(body: memoryview, size: int, place: ChunkPlace, offset: int, at: int, by_slices: bool) -> Unpacked:
    """Decompress `body`, which begins at `at` of the page, with the codec of its chunk. `offset` is the page's, for
    errors. `by_slices`: note which slices of a stream give which content. Raises DamagedSource, or ArrowException,
    OSError or ValueError of the codec."""
    name = CODECS[place.chunk.codec]
    if name == "UNCOMPRESSED" or not size:
        return Unpacked(body[: None if size else 0], at)
    if name == "SNAPPY":
        return _unpack_snappy(body, size, place, offset, at)
    if by_slices and name in STREAMS_OF and size > LEAST_SLICED:
        try:
            content, ends = decompress_by_slices(STREAMS_OF[name], body, size)
            return Unpacked(content, at, None, (STREAMS_OF[name], ends))
        except DecompressionError:
            pass  # several streams, or a damaged one: see below
    if name == "ZSTD":  # pyarrow raises on fewer bytes
        return Unpacked(memoryview(pa.Codec("zstd").decompress(body, size)).cast("B"))
    if name == "GZIP":
        data = _inflate(body, size)
        if len(data) == size:
            return Unpacked(memoryview(data))
    return Unpacked(decompress_with_pyarrow(body, size, place.chunk.codec))


def _unpack_snappy(body: memoryview, size: int, place: ChunkPlace, offset: int, at: int) -> Unpacked:
    decoder = Decoder(body[:10])
    claimed = decoder.varint()  # a snappy stream begins with its length
    if claimed != size:
        raise place.damaged(f"page unpacks to {claimed} bytes, its header says {size}", offset)
    if not kernel.COMPILED:  # pyarrow is faster than Python
        return Unpacked(memoryview(pa.Codec("snappy").decompress(body, size)).cast("B"))
    content, starts = kernel.unpack_snappy(body, decoder.position, size)
    if content is None:
        raise place.damaged("corrupt snappy data", offset)
    return Unpacked(memoryview(content), at if starts else None, starts)


def _inflate(body: memoryview, size: int) -> bytes:
    """Decompress a gzip or zlib stream to at most `size` bytes; empty where that fails. It is faster than pyarrow, but
    reads only one stream, while some writers make several."""
    try:
        return decompress_stream("gzip or zlib", body, size, end_required=False)[0]
    except DecompressionError:
        return b""


def decompress_page(
    page: bytes, header: PageHeader, place: ChunkPlace, offset: int, by_slices: bool = False
) -> tuple[memoryview, Unpacked]:
    """`(levels, values)` of a checked page of version 2, both decompressed. For version 1 and a dictionary page: no
    levels, and the whole content. `by_slices`: see `decompress`."""
    body = memoryview(page)[header.length :]
    if not header.is_v2:
        return body[:0], decompress(body, header.uncompressed, place, offset, header.length, by_slices)
    lead = header.definition_bytes + header.repetition_bytes
    if min(header.definition_bytes, header.repetition_bytes) < 0 or lead > min(len(body), header.uncompressed):
        raise place.damaged(f"levels of {lead} bytes in a page of {len(body)}", offset)
    if not header.values_compressed and not place.compressed_throughout:
        return body[:lead], Unpacked(body[lead:], header.length + lead)
    size, at = header.uncompressed - lead, header.length + lead
    return body[:lead], decompress(body[lead:], size, place, offset, at, by_slices)


def values_at(data: memoryview, width: int, positions: Sequence[int], limit: int) -> list[int]:
    """The numbers at ascending `positions`. ValueError where the bytes end before them, or for a number that is not
    below `limit`; ArrowException where pyarrow finds such an error."""
    found = _values_by_loop(data, width, positions, limit) if positions else []
    if found is None:
        found = decode_hybrid(data, width, positions[-1] + 1, limit)[np.array(positions)].tolist()
    return found


def _values_by_loop(data: memoryview, width: int, positions: Sequence[int], limit: int) -> list[int] | None:
    """As `values_at`. None where the numbers have too many runs for a loop."""
    found = kernel.hybrid_values(data, width, positions, COMPILED_RUNS if kernel.COMPILED else RUNS)
    if found is not None and max(found) >= limit:
        raise ThriftError(f"index {max(found)} where there are {limit}")
    return found


def flags_at(data: memoryview, positions: Sequence[int]) -> list[tuple[bool, int]]:
    """For numbers of one bit, at each of ascending `positions`: whether it is 1, and the number of ones before it."""
    if not positions:
        return []
    found = kernel.hybrid_flags(data, positions, COMPILED_RUNS if kernel.COMPILED else RUNS)
    if found is None:
        flags = decode_hybrid(data, 1, positions[-1] + 1, 2)
        found = [(bool(flags[p]), int(np.count_nonzero(flags[:p]))) for p in positions]
    return found


class NeedsPyarrow(Exception):
    """Single values of this page cannot be decoded here: pyarrow has to decode the whole page."""


@contextmanager
def decoding(place: ChunkPlace, offset: int | None = None) -> Iterator[None]:
    """Convert errors of decoders to DamagedSource at `offset` (None: at the chunk): they are never about the reader."""
    try:
        yield
    except pa.ArrowNotImplementedError as error:
        raise NeedsPyarrow from error
    except (ThriftError, pa.ArrowException, OSError, ValueError) as error:
        check_memory(error)
        raise place.damaged(f"cannot be decoded: {error}", offset) from error


class LeafRows(NamedTuple):
    """Rows of one leaf. `entries` counts values, nulls and empty lists. `repetitions` and `definitions` have a byte for
    each entry, or are empty where the leaf has no such levels. `values`: the values in the PLAIN encoding."""

    entries: int
    repetitions: bytes
    definitions: bytes
    values: bytes


def concatenate(parts: Sequence[LeafRows]) -> LeafRows:
    """The rows of several parts, in their order."""
    if len(parts) == 1:
        return parts[0]
    return LeafRows(
        sum(part.entries for part in parts),
        b"".join([part.repetitions for part in parts]),
        b"".join([part.definitions for part in parts]),
        b"".join([part.values for part in parts]),
    )


class PageValues(Protocol):
    def plain(self, spans: Sequence[Span]) -> bytes:
        """The values of ascending `spans`, concatenated. Raises ThriftError, or errors of pyarrow, where the bytes do
        not hold them."""


class FixedWidthValues:
    """PLAIN values of one length in bytes."""

    def __init__(self, body: memoryview, width: int) -> None:
        self._body = body
        self._width = width

    def plain(self, spans: Sequence[Span]) -> bytes:
        if spans and spans[-1][1] * self._width > len(self._body):
            raise ThriftError(f"value {spans[-1][1]} of {self._width} bytes in a page of {len(self._body)}")
        return b"".join([self._body[first * self._width : stop * self._width] for first, stop in spans])

    def at(self, indices: Sequence[int]) -> bytes:
        return self.plain([(index, index + 1) for index in indices])


class ByteArrayValues:
    """PLAIN byte arrays: `count` of them; None for as many as are wanted. Safe to share between threads."""

    def __init__(self, body: memoryview, count: int | None = None) -> None:
        self._body = body
        self._known = (0, np.zeros(1, np.int32)) if count is None else (count, _all_offsets(body, count))

    def plain(self, spans: Sequence[Span], share: float = 1.0) -> bytes:
        """Like `PageValues.plain`. `share` is the part of the page, from its begin, that should contain the values."""
        reached, offsets = self._known
        if spans and spans[-1][1] > reached:
            reached = spans[-1][1]
            offsets = _first_offsets(self._body, reached, share)
            self._known = reached, offsets
        bounds = [[int(offsets[value]) + LENGTH_BYTES * value for value in span] for span in spans]
        return b"".join([self._body[begin:end] for begin, end in bounds])

    def at(self, indices: Sequence[int]) -> bytes:
        return self.plain([(index, index + 1) for index in indices])


class BooleanBits:
    """PLAIN booleans, eight in a byte."""

    def __init__(self, body: memoryview) -> None:
        self._body = body

    def plain(self, spans: Sequence[Span]) -> bytes:
        first, stop = (spans[0][0], spans[-1][1]) if spans else (0, 0)
        if stop > 8 * len(self._body):
            raise ThriftError(f"value {stop} in a page of {len(self._body)} bytes of booleans")
        bits = np.unpackbits(np.frombuffer(self._body[first >> 3 : (stop + 7) >> 3], np.uint8), bitorder="little")
        begin = first & ~7
        return bits[[value - begin for span in spans for value in range(*span)]].tobytes()


class BooleanRuns:
    """Booleans in the RLE / bit-packing hybrid."""

    def __init__(self, body: memoryview) -> None:
        self._body = body  # a page of nulls does not even have a length

    def plain(self, spans: Sequence[Span]) -> bytes:
        numbers = level_section(self._body)[0]
        return bytes(values_at(numbers, 1, list(chain.from_iterable(range(*span) for span in spans)), 2))


class DictionaryIndices:
    """Indices into a dictionary. Where they have too many runs for a loop, it decodes and keeps all indices up to the
    last wanted one. Safe to share between threads."""

    def __init__(self, body: memoryview) -> None:
        if len(body) and body[0] > WIDTH_LIMIT:
            raise ThriftError(f"indices of {body[0]} bits")
        self._body = body
        self._known: NDArray[np.int32] = np.zeros(0, np.int32)

    def indices(self, spans: Sequence[Span], limit: int) -> list[int]:
        """The indices of ascending `spans`, each less than `limit`. Raises as `PageValues.plain`."""
        positions = list(chain.from_iterable(range(*span) for span in spans))
        if not positions:
            return []
        if not len(self._body):
            raise ThriftError("no bytes where indices should be")
        if limit > NUMBERS_LIMIT:
            raise NeedsPyarrow
        known, body, width = self._known, self._body[1:], self._body[0]
        if positions[-1] >= len(known):
            found = _values_by_loop(body, width, positions, limit)
            if found is not None:
                return found
            self._known = known = decode_hybrid(body, width, positions[-1] + 1, limit)
        return [known.item(position) for position in positions]


def page_values(body: memoryview, header: PageHeader, leaf: Leaf) -> PageValues | ByteArrayValues | DictionaryIndices:
    """The values of a data page. `body` begins after the levels."""
    encoding = header.encoding
    if encoding == PLAIN and leaf.kind == BINARY:
        return ByteArrayValues(body)
    if header.in_dictionary:
        return DictionaryIndices(body)
    if encoding == PLAIN and leaf.kind == BOOLEAN:
        return BooleanBits(body)
    if encoding == PLAIN and leaf.width > 0:
        return FixedWidthValues(body, leaf.width)
    if encoding == RLE and leaf.kind == BOOLEAN:
        return BooleanRuns(body)
    raise NeedsPyarrow


def _offsets(body: memoryview, count: int) -> NDArray[np.int32]:
    """The start of each of the first `count` byte arrays, and the end of the last, not counting lengths."""
    if not count:
        return np.zeros(1, np.int32)
    array = decode_byte_arrays(body, count)
    return np.frombuffer(array.buffers()[1], np.int32, count + 1, 4 * array.offset)


def _all_offsets(body: memoryview, count: int) -> NDArray[np.int32]:
    """`_offsets` of all byte arrays of a page. ThriftError unless they fill the page."""
    offsets = _offsets(body, count)
    used = int(offsets[-1]) + LENGTH_BYTES * count
    if used != len(body):
        raise ThriftError(f"{count} values of {used} bytes in a page of {len(body)}")
    return offsets


def _first_offsets(body: memoryview, count: int, share: float) -> NDArray[np.int32]:
    """`_offsets` of the first byte arrays and some more, since a wrong length shows in the next ones. Where there are
    fewer, the last has to end with the page. pyarrow gets a copy of no more bytes than are probably needed."""
    likely = int(len(body) * share * LIKELY) + LIKELY_BYTES
    for part in (body[:likely], body) if likely < len(body) else (body,):
        try:
            return _offsets(part, count + LOOK_AHEAD)
        except (pa.ArrowException, OSError) as error:
            check_memory(error)
    for more in range(LOOK_AHEAD - 1, 0, -1):
        try:
            return _all_offsets(body, count + more)
        except (pa.ArrowException, OSError, ThriftError) as error:
            check_memory(error)
    return _all_offsets(body, count)


def level_section(body: memoryview) -> tuple[memoryview, memoryview]:
    """`(section, bytes after it)`. A section begins with its length."""
    end = LENGTH_BYTES + int.from_bytes(body[:LENGTH_BYTES], "little")
    if len(body) < LENGTH_BYTES or end > len(body):
        raise ThriftError(f"a section of {end - LENGTH_BYTES} bytes in a page of {len(body)}")
    return body[LENGTH_BYTES:end], body[end:]
