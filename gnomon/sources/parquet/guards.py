"""Checks around pyarrow, which trusts invalid bytes.

`PageCheckingFile` checks page headers before pyarrow sees them: pyarrow allocates the size that a header claims, even
where the file ends before. `check_leaf_lengths` finds nested columns whose leaves hold different numbers of values:
pyarrow decodes each leaf alone, takes lists, maps and nulls from the first leaf, and drops the last entries of a longer
leaf, so that rows get values of other rows. Only Arrow's C data interface shows these lengths.
"""

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa

from gnomon.base.errors import check_memory
from gnomon.base.readers import RangeFile, RangeReader
from gnomon.sources.errors import DamagedSource, UnsupportedFormat
from gnomon.sources.parquet.footer import LEGACY_SLACK, ChunkPlace
from gnomon.sources.parquet.page_header import check_sizes, misreads_levels, read_header
from gnomon.sources.parquet.thrift import CutShort, ThriftError


class _Array(ctypes.Structure):
    """`ArrowArray` of the C data interface."""


_Array._fields_ = [
    ("length", ctypes.c_int64),
    ("null_count", ctypes.c_int64),
    ("offset", ctypes.c_int64),
    ("n_buffers", ctypes.c_int64),
    ("n_children", ctypes.c_int64),
    ("buffers", ctypes.c_void_p),
    ("children", ctypes.POINTER(ctypes.POINTER(_Array))),
]  # the other members are not used

_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


def check_leaf_lengths(batch: pa.RecordBatch) -> None:
    """ArrowInvalid where the fields of a struct, or the keys and values of a map, have different lengths."""
    if not any(pa.types.is_nested(kind) for kind in batch.schema.types):
        return
    _, capsule = batch.__arrow_c_array__()  # the capsule frees the exported array
    found = _Array.from_address(_pointer(capsule, b"arrow_array"))
    for i, name in enumerate(batch.schema.names):
        _check(found.children[i].contents, name)


def _check(array: _Array, name: str) -> None:
    children = [array.children[i].contents for i in range(array.n_children)]
    lengths = [child.length for child in children]
    if len(set(lengths)) > 1:
        raise pa.ArrowInvalid(f"the leaves of {name!r} contradict each other: {lengths} values of one struct or map")
    for child in children:
        _check(child, name)


class NeedsRecoding(Exception):
    """pyarrow would misread a page."""


HEADER_LIMIT = 16 << 20  # bytes of one page header, as in pyarrow


class PageCheckingFile(RangeFile):
    """A file that pyarrow scans. A read raises DamagedSource for an impossible page header in its bytes, and keeps the
    error as `failure`."""

    def __init__(self, reader: RangeReader, tail: bytes, places: Sequence[ChunkPlace]) -> None:
        super().__init__(reader, tail)
        self._checks = [ChunkCheck(place) for place in places]

    def read(self, size: int = -1) -> bytes:
        start = self.tell()
        data = super().read(size)
        for check in self._checks:
            if check.position == start:
                try:
                    check.check(data)
                except (DamagedSource, NeedsRecoding) as error:
                    self.failure = error
                    raise
        return data


class ChunkCheck:
    """Checks the page headers of one chunk, which pyarrow reads from its start to its end: their sizes, and that their
    values are no more than the chunk's, since pyarrow would cut the last row of a repeated chunk. `position` is the
    offset of the first byte not checked yet."""

    def __init__(self, place: ChunkPlace) -> None:
        self.position = place.chunk.start
        self._place = place
        self._header = place.chunk.start  # offset of the next header
        self._end = place.chunk.start + place.chunk.compressed + LEGACY_SLACK
        self._values = place.chunk.values  # not yet covered by pages
        self._held = b""  # the begin of a header

    def check(self, data: bytes) -> None:
        """Check the headers in the next bytes of the chunk."""
        begin = self.position - len(self._held)
        self.position += len(data)
        if self._held:
            data = self._held + data
        while begin <= self._header < min(begin + len(data), self._limit):
            try:
                self._step(data, self._header - begin)
            except ThriftError as error:
                if self._values <= 0:
                    self._header = self._end  # other bytes follow the last page
                    break
                self._held = data[self._header - begin :]
                if isinstance(error, CutShort) and len(self._held) <= HEADER_LIMIT:
                    return
                raise self._place.damaged(f"no page header: {error}", self._header) from error
        self._held = b""

    @property
    def _limit(self) -> int:
        """Where no further header begins. Behind the values that a repeated chunk claims, a page may hold the rest of
        its last row."""
        if self._values > 0:
            return self._end
        return self._end - LEGACY_SLACK if self._place.repeated else self._header

    def _step(self, data: bytes, at: int) -> None:
        header = read_header(data, at)
        check_sizes(header, self._place, self._header)
        if misreads_levels(header, self._place):
            raise NeedsRecoding
        length = header.length + header.compressed
        if self._header + length > self._end:
            raise self._place.damaged(f"page of {length} bytes runs beyond its chunk", self._header)
        self._values -= header.values if header.is_data else 0
        if self._values < 0:
            total = self._place.chunk.values
            raise self._place.damaged(f"pages of {total - self._values} values, the chunk has {total}", self._header)
        self._header += length


@contextmanager
def decode_errors(place: ChunkPlace, offset: int) -> Iterator[None]:
    """Turn errors of pyarrow over bytes in memory into DamagedSource or UnsupportedFormat at `offset`."""
    try:
        yield
    except pa.ArrowNotImplementedError as error:
        what = f"row group {place.row_group}: {error}"
        raise UnsupportedFormat(what, place.path, offset, column=place.column) from error
    except (pa.ArrowException, OSError, ValueError) as error:
        check_memory(error)
        raise place.damaged(f"cannot be decoded: {error}", offset) from error
