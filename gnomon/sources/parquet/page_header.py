"""The header of a page, the checks of a page before it is decoded, and checks around pyarrow, which trusts invalid
bytes.

`PageCheckingFile` checks page headers before pyarrow sees them: pyarrow allocates the size that a header claims, even
where the file ends before. `check_leaf_lengths` finds nested columns whose leaves hold different numbers of values:
pyarrow decodes each leaf alone, takes lists, maps and nulls from the first leaf, and drops the last entries of a longer
leaf, so that rows get values of other rows. Only Arrow's C data interface shows these lengths.
"""

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import pyarrow as pa
from isal import isal_zlib

from gnomon.base.errors import check_memory
from gnomon.base.readers import RangeFile, RangeReader
from gnomon.sources.errors import DamagedSource, UnsupportedFormat
from gnomon.sources.parquet.footer import CODECS, LEGACY_SLACK, ChunkPlace
from gnomon.sources.parquet.thrift import FALSE, I8, I64, STRUCT, TRUE, CutShort, Decoder, ThriftError

DATA, INDEX, DICTIONARY, DATA_V2 = range(4)
# fields of PageHeader that hold the header of each type of page
HEADER_FIELDS = {DATA: 5, DICTIONARY: 7, DATA_V2: 8}
# wire types of the fields that are read (I64: any integer)
FIELDS = {1: I64, 2: I64, 3: I64, 4: I64, 5: STRUCT, 7: STRUCT, 8: STRUCT}
PLAIN, RLE, BIT_PACKED = 0, 3, 4
DICTIONARY_ENCODINGS = (2, 8)  # PLAIN_DICTIONARY, RLE_DICTIONARY

# Limits of the size that a page may claim. A larger claim is an attack or damage: pyarrow allocates the claimed size.
SMALL_PAGE = 16 << 20
GROWTH = {"UNCOMPRESSED": 2, "SNAPPY": 64, "GZIP": 1100, "LZ4": 300, "LZ4_RAW": 300, "ZSTD": 1 << 15, "BROTLI": 1 << 20}
VALUES_LIMIT = 1 << 26  # values of a page: the largest row group that any known writer makes by default


class PageHeader(NamedTuple):
    """The header of a page. `length` is the header's own; the page's `compressed` bytes follow it. `checksum` is None
    if not written.

    Data pages of version 1 state the encodings of their levels. Those of version 2 state their number of `rows`, the
    bytes of levels before the values, and whether the values are compressed."""

    kind: int
    length: int
    compressed: int
    uncompressed: int
    checksum: int | None
    values: int
    encoding: int
    definition_encoding: int = RLE
    repetition_encoding: int = RLE
    rows: int = -1
    definition_bytes: int = 0
    repetition_bytes: int = 0
    values_compressed: bool = True

    @property
    def is_data(self) -> bool:
        return self.kind in (DATA, DATA_V2)

    @property
    def is_v2(self) -> bool:
        return self.kind == DATA_V2

    @property
    def in_dictionary(self) -> bool:
        """Whether the values of a data page are indices into the chunk's dictionary."""
        return self.encoding in DICTIONARY_ENCODINGS


def read_header(data: bytes, position: int = 0) -> PageHeader:
    """The header at `position`. `CutShort` when `data` ends inside it."""
    decoder = Decoder(data, position)
    kind = compressed = uncompressed = -1
    checksum = None
    headers: dict[int, dict[int, int]] = {}
    for field_id, wire in decoder.fields():
        if not decoder.optional(wire, FIELDS.get(field_id, wire)):
            continue
        if field_id == 1:
            kind = decoder.number(wire)
        elif field_id == 2:
            uncompressed = decoder.number(wire)
        elif field_id == 3:
            compressed = decoder.number(wire)
        elif field_id == 4:
            checksum = decoder.number(wire) & 0xFFFFFFFF
        elif field_id in (5, 7, 8):
            headers[field_id] = _numbers(decoder)
        else:
            decoder.skip(wire)
    if kind < 0 or compressed < 0 or uncompressed < 0:
        raise ThriftError("its type or a size is missing or negative")
    own = headers.get(HEADER_FIELDS.get(kind, 0), {})
    head = (kind, decoder.position - position, compressed, uncompressed, checksum, own.get(1, -1))
    if kind == DATA_V2:
        levels = (own.get(3, -1), own.get(5, -1), own.get(6, -1))
        return PageHeader(*head, own.get(4, -1), RLE, RLE, *levels, own.get(7) != FALSE)
    return PageHeader(*head, own.get(2, -1), own.get(3, -1), own.get(4, -1))


def _numbers(decoder: Decoder) -> dict[int, int]:
    """The numbers of a data or dictionary page's own header, by field. For a boolean, its wire type."""
    numbers: dict[int, int] = {}
    for field_id, wire in decoder.fields():
        if I8 <= wire <= I64:
            numbers[field_id] = decoder.number(wire)
        elif wire in (TRUE, FALSE):
            numbers[field_id] = wire
        else:
            decoder.skip(wire)
    return numbers


def misreads_levels(header: PageHeader, place: ChunkPlace) -> bool:
    """Whether pyarrow takes the levels of a page for others: it reads BIT_PACKED from the lowest bit of each byte on,
    and expects levels in a page without entries, and a row to begin after it."""
    leaf = place.leaf
    if leaf is None or not header.is_data or (header.values and header.is_v2):
        return False
    if not header.values:
        return True
    encodings = (header.repetition_encoding, leaf.repetitions), (header.definition_encoding, leaf.definitions)
    return not place.packed_upwards and any(encoding == BIT_PACKED and highest for encoding, highest in encodings)


def check_sizes(header: PageHeader, place: ChunkPlace, offset: int) -> None:
    """DamagedSource unless the sizes in a header are possible."""
    limit = max(SMALL_PAGE, header.compressed * GROWTH[CODECS[place.chunk.codec]])
    if header.uncompressed > limit:
        raise place.damaged(
            f"page of {header.compressed} bytes claims to hold {header.uncompressed}, the limit is {limit}", offset
        )
    if header.values > VALUES_LIMIT:
        raise place.damaged(f"page claims {header.values} values, more than {VALUES_LIMIT}", offset)


def check_page(page: bytes, place: ChunkPlace, offset: int, rows: int | None) -> PageHeader:
    """Check a page with its header. WrongPageMap unless it agrees with the page map; DamagedSource unless it is whole.
    `rows`: the rows of a data page, None for the dictionary page. Verifies the checksum where there is one."""
    try:
        header = read_header(page)
    except ThriftError as error:
        raise place.wrong_map(f"no page header: {error}", offset) from error
    if header.length + header.compressed != len(page):
        claimed = header.length + header.compressed
        raise place.wrong_map(f"page of {claimed} bytes where the page map says {len(page)}", offset)
    if rows is None:
        if header.kind != DICTIONARY:
            raise place.wrong_map(f"page of type {header.kind} where the dictionary belongs", offset)
    elif not header.is_data or (_rows(header, place) not in (rows, None)):
        found = f"page of type {header.kind} with {_rows(header, place)} values"
        raise place.wrong_map(f"{found} where the page map says {rows} rows", offset)
    check_sizes(header, place, offset)
    check_sum(page, header, place, offset)
    return header


def check_sum(page: bytes, header: PageHeader, place: ChunkPlace, offset: int) -> None:
    """DamagedSource unless a page is whole and has the checksum of its header, if there is one."""
    if len(page) < header.length + header.compressed:
        raise place.damaged("the page is cut short", offset)
    if header.checksum is not None:
        actual = isal_zlib.crc32(memoryview(page)[header.length :])
        if actual != header.checksum:
            raise place.damaged(f"page checksum is {actual:08x}, the header says {header.checksum:08x}", offset)


def _rows(header: PageHeader, place: ChunkPlace) -> int | None:
    """The rows of a data page; None where its header does not state them (version 1, repeated)."""
    if not place.repeated:
        return header.values
    return header.rows if header.kind == DATA_V2 else None


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
