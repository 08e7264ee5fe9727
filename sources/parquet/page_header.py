"""The header before each page, and what is checked of a page before pyarrow decodes it."""

from typing import NamedTuple

from isal import isal_zlib

from sources.parquet.footer import CODECS, ChunkPlace
from sources.parquet.thrift import Decoder, ThriftError

DATA, INDEX, DICTIONARY, DATA_V2 = range(4)
DICTIONARY_ENCODINGS = (2, 8)  # PLAIN_DICTIONARY, RLE_DICTIONARY

# How far a page may claim to grow. Beyond it a claim is an attack or damage: pyarrow allocates what is claimed.
SMALL_PAGE = 16 << 20
GROWTH = {"UNCOMPRESSED": 2, "SNAPPY": 64, "GZIP": 1100, "LZ4": 300, "LZ4_RAW": 300, "ZSTD": 1 << 15, "BROTLI": 1 << 20}
VALUES_LIMIT = 1 << 26  # values a page: the largest row group any known writer makes by default


class PageHeader(NamedTuple):
    """`length` is of the header itself; the page's `compressed` bytes follow it. `checksum` None: not written."""

    kind: int
    length: int
    compressed: int
    uncompressed: int
    checksum: int | None
    values: int
    encoding: int

    @property
    def is_data(self) -> bool:
        return self.kind in (DATA, DATA_V2)

    @property
    def in_dictionary(self) -> bool:
        """Of a data page: its values are indices into the chunk's dictionary."""
        return self.encoding in DICTIONARY_ENCODINGS


def read_header(data: bytes, position: int = 0) -> PageHeader:
    """The header at `position`; `CutShort` when `data` ends before it does."""
    decoder = Decoder(data, position)
    kind = compressed = uncompressed = -1
    checksum = None
    values, encoding = -1, -1
    for field_id, wire in decoder.fields():
        if field_id == 1:
            kind = decoder.number(wire)
        elif field_id == 2:
            uncompressed = decoder.number(wire)
        elif field_id == 3:
            compressed = decoder.number(wire)
        elif field_id == 4:
            checksum = decoder.number(wire) & 0xFFFFFFFF
        elif field_id in (5, 7, 8):
            decoder.expect_struct(wire)
            values, encoding = _counts(decoder, encoding_field=4 if field_id == 8 else 2)
        else:
            decoder.skip(wire)
    if kind < 0 or compressed < 0 or uncompressed < 0:
        raise ThriftError("its type or a size is missing or negative")
    return PageHeader(kind, decoder.position - position, compressed, uncompressed, checksum, values, encoding)


def _counts(decoder: Decoder, encoding_field: int) -> tuple[int, int]:
    """`(number of values, encoding)` of a data or dictionary page's own header."""
    values = encoding = -1
    for field_id, wire in decoder.fields():
        if field_id == 1:
            values = decoder.number(wire)
        elif field_id == encoding_field:
            encoding = decoder.number(wire)
        else:
            decoder.skip(wire)
    return values, encoding


def check_sizes(header: PageHeader, place: ChunkPlace, offset: int) -> None:
    """The sizes a header claims are ones that can be."""
    limit = max(SMALL_PAGE, header.compressed * GROWTH[CODECS[place.chunk.codec]])
    if header.uncompressed > limit:
        raise place.damaged(
            f"page of {header.compressed} bytes claims to hold {header.uncompressed}, at most {limit} can be", offset
        )
    if header.values > VALUES_LIMIT:
        raise place.damaged(f"page claims {header.values} values, more than {VALUES_LIMIT}", offset)


def check_page(page: bytes, place: ChunkPlace, offset: int, rows: int | None) -> PageHeader:
    """`page`, header included, is whole and what the page map says: a data page of `rows` rows, or the
    dictionary page when `rows` is None. Its checksum is verified where the writer left one."""
    try:
        header = read_header(page)
    except ThriftError as error:
        raise place.damaged(f"no page header: {error}", offset) from error
    if header.length + header.compressed != len(page):
        claimed = header.length + header.compressed
        raise place.damaged(f"page of {claimed} bytes where the page map says {len(page)}", offset)
    if rows is None:
        if header.kind != DICTIONARY:
            raise place.damaged(f"page of type {header.kind} where the dictionary belongs", offset)
    elif not header.is_data or header.values != rows:
        found = f"page of type {header.kind} with {header.values} values"
        raise place.damaged(f"{found} where the page map says {rows} rows", offset)
    check_sizes(header, place, offset)
    if header.checksum is not None:
        actual = isal_zlib.crc32(memoryview(page)[header.length :])
        if actual != header.checksum:
            raise place.damaged(f"page checksum is {actual:08x}, the header says {header.checksum:08x}", offset)
    return header
