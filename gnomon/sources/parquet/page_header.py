"""The header of a page, and the checks of a page before it is decoded."""

from typing import NamedTuple

from isal import isal_zlib

from gnomon.sources.parquet.footer import CODECS, ChunkPlace
from gnomon.sources.parquet.thrift import FALSE, I8, I64, STRUCT, TRUE, Decoder, ThriftError

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
