"""The values of one page or dictionary. Single values are given in their PLAIN encoding, booleans as a byte each (0 or
1), byte arrays with their length before them. Only the wanted values are decoded. But the start of a byte array depends
on all lengths before it, which pyarrow reads in one call.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from gnomon.base.errors import check_memory
from gnomon.sources.parquet.footer import ChunkPlace
from gnomon.sources.parquet.page_decode.rle import WIDTH_LIMIT, values_at
from gnomon.sources.parquet.page_header import PLAIN, RLE, PageHeader
from gnomon.sources.parquet.schema import BINARY, BOOLEAN, Leaf
from gnomon.sources.parquet.synthetic_file import decode_byte_arrays, decode_hybrid
from gnomon.sources.parquet.thrift import ThriftError

Span = tuple[int, int]  # values of a page: (first, after the last)

LENGTH_BYTES = 4  # before a byte array, and before levels
LIKELY, LIKELY_BYTES = 1.2, 64 << 10  # margin over the share of a page that the first values are expected to take
LOOK_AHEAD = 4  # byte arrays
NUMBERS_LIMIT = 1 << 24  # indices that pyarrow may decode in one call


class NeedsPyarrow(Exception):
    """Single values of this page cannot be decoded here: pyarrow has to decode the whole page."""


@contextmanager
def decoding(place: ChunkPlace, offset: int) -> Iterator[None]:
    """Convert errors of decoders to DamagedSource: they are about the bytes at `offset`, never about the reader."""
    try:
        yield
    except pa.ArrowNotImplementedError as error:
        raise NeedsPyarrow from error
    except (ThriftError, pa.ArrowException, OSError, ValueError) as error:
        check_memory(error)
        raise place.damaged(f"cannot be decoded: {error}", offset) from error


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
        return b"".join([self._of(first, stop) for first, stop in spans])

    def _of(self, first: int, stop: int) -> bytes:
        data = self._body[first >> 3 : (stop + 7) >> 3]
        if stop > 8 * len(self._body):
            raise ThriftError(f"value {stop} in a page of {len(self._body)} bytes of booleans")
        bits = np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little")
        return bits[first & 7 : (first & 7) + stop - first].tobytes()


class BooleanRuns:
    """Booleans in the RLE / bit-packing hybrid."""

    def __init__(self, body: memoryview) -> None:
        self._body = body  # a page of nulls does not even have a length

    def plain(self, spans: Sequence[Span]) -> bytes:
        numbers = level_section(self._body)[0]
        return bytes(values_at(numbers, 1, list(chain.from_iterable(range(*span) for span in spans)), 2))


class DictionaryIndices:
    """Indices into a dictionary. From the second use on, it decodes and keeps all indices up to the last wanted one.
    Safe to share between threads."""

    def __init__(self, body: memoryview) -> None:
        if len(body) and body[0] > WIDTH_LIMIT:
            raise ThriftError(f"indices of {body[0]} bits")
        self._body = body
        self._known: NDArray[np.int32] | None = None

    def indices(self, spans: Sequence[Span], limit: int) -> list[int]:
        """The indices of ascending `spans`, each less than `limit`. Raises as `PageValues.plain`."""
        positions = list(chain.from_iterable(range(*span) for span in spans))
        if not positions:
            return []
        if not len(self._body):
            raise ThriftError("no bytes where indices should be")
        if limit > NUMBERS_LIMIT:
            raise NeedsPyarrow
        return self._indices(positions, limit)

    def _indices(self, positions: Sequence[int], limit: int) -> list[int]:
        known, body, width = self._known, self._body[1:], self._body[0]
        if known is None:
            self._known = np.zeros(0, np.int32)
            return values_at(body, width, positions, limit)
        if positions[-1] >= len(known):
            known = decode_hybrid(body, width, positions[-1] + 1, limit)
            self._known = known
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
