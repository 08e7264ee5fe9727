"""Parses the footer of a Parquet file. pyarrow crashes the process in some metadata calls on unusual footers (unknown
codec, encrypted column), and its objects are large.

Numbers are not checked here: `ChunkPlace` checks an offset against the file before it is used.
"""

import re
from dataclasses import dataclass
from typing import NamedTuple

from gnomon.sources.errors import DamagedSource, UnsupportedFormat
from gnomon.sources.parquet.schema import ARROW_SCHEMA, Column, Leaf, columns_of, read_elements
from gnomon.sources.parquet.thrift import BINARY, I8, I64, LIST, STRUCT, Decoder, ThriftError

MAGIC = b"PAR1"
ENCRYPTED_MAGIC = b"PARE"
# Encodings of pages from which single values can be decoded: PLAIN, PLAIN_DICTIONARY, RLE (of levels and booleans),
# BIT_PACKED (of levels, where there are none), RLE_DICTIONARY.
DECODABLE_ENCODINGS = {0, 2, 3, 4, 8}
CODECS = {0: "UNCOMPRESSED", 1: "SNAPPY", 2: "GZIP", 4: "BROTLI", 5: "LZ4", 6: "ZSTD", 7: "LZ4_RAW"}

LEGACY_WRITER = re.compile(rb"parquet-mr version 1\.(?:[01]\.|2\.[0-8](?!\d))")
LEGACY_SLACK = 100  # bytes: more than a dictionary page's header takes
# The name that Arrow before 3.0 writes as the file's writer. It marks the values of all pages of version 2 as not
# compressed.
DENIES_COMPRESSION = re.compile(rb"parquet-cpp version [01]\.", re.IGNORECASE)

# Spark's key-values. Days before 1582-10-15 are of the Julian calendar in a file with OLD_CALENDAR, or of a version
# before 3.0.
OLD_CALENDAR, SPARK_VERSION = b"org.apache.spark.legacyDateTime", b"org.apache.spark.version"
NEW_CALENDAR_SINCE = b"3.0.0"


# The wire types of the fields that are read of FileMetaData and ColumnChunk; I64 stands for every integer. A field of
# another type counts as absent, as for the readers that Thrift generates.
FIELDS_OF_FILE = {1: I64, 2: LIST, 4: LIST, 5: LIST, 6: BINARY}
FIELDS_OF_CHUNK = {1: BINARY, 3: STRUCT, 4: I64, 5: I64}


class WrongPageMap(DamagedSource):
    """A page is not the one that the page map says. Either of them may be damaged."""


class Chunk(NamedTuple):
    """One leaf column in one row group. An offset of 0 means that there is none. `refusal` says why the chunk cannot be
    read, None if it can. `decodable`: whether `page` can decode single values of its pages."""

    kind: int
    codec: int
    values: int
    uncompressed: int
    compressed: int
    data_offset: int
    dictionary_offset: int
    index_offset: int
    index_length: int
    refusal: str | None
    decodable: bool = True

    @property
    def start(self) -> int:
        if 0 < self.dictionary_offset < self.data_offset:
            return self.dictionary_offset
        return self.data_offset


class RowGroup(NamedTuple):
    first_row: int
    rows: int
    chunks: tuple[Chunk, ...]


@dataclass(frozen=True, slots=True)
class Footer:
    version: int
    columns: tuple[Column, ...]
    row_groups: tuple[RowGroup, ...]
    rows: int
    arrow_schema: bytes | None
    created_by: bytes
    old_calendar: bool

    @property
    def cache_bytes(self) -> int:
        """Estimated bytes in memory: a chunk is a tuple and its numbers, a schema element its bytes."""
        chunks = sum(len(group.chunks) for group in self.row_groups)
        elements = sum(len(raw) + 200 for column in self.columns for raw in column.elements)
        return 1000 + 270 * chunks + 300 * len(self.row_groups) + elements + len(self.arrow_schema or b"")


class ChunkPlace(NamedTuple):
    """A chunk, with its file, column and row group for error messages. `repeated`: a row of it may be many values, or
    none; `nested`: it is repeated, or part of a struct. `compressed_throughout`: its pages are compressed even if their
    headers say that they are not. `packed_upwards`: see the function of this name."""

    path: str
    column: str
    row_group: int
    rows: int
    chunk: Chunk
    repeated: bool = False
    nested: bool = False
    compressed_throughout: bool = False
    leaf: Leaf | None = None
    packed_upwards: bool = False

    def damaged(self, message: str, offset: int | None = None) -> DamagedSource:
        where = self.chunk.start if offset is None else offset
        return DamagedSource(f"row group {self.row_group}: {message}", self.path, where, column=self.column)

    def wrong_map(self, message: str, offset: int) -> WrongPageMap:
        return WrongPageMap(f"row group {self.row_group}: {message}", self.path, offset, column=self.column)

    def check(self, file_size: int, kind: int) -> None:
        """DamagedSource or UnsupportedFormat unless the chunk can be read and lies within the file."""
        chunk = self.chunk
        if chunk.refusal is not None:
            raise UnsupportedFormat(f"row group {self.row_group}: {chunk.refusal}", self.path, column=self.column)
        if chunk.kind != kind:
            raise self.damaged(f"chunk of physical type {chunk.kind}, the schema has {kind}")
        if chunk.compressed < 0 or chunk.start < len(MAGIC) or chunk.start + chunk.compressed > file_size:
            raise self.damaged(f"chunk of {chunk.compressed} bytes at {chunk.start}, the file has {file_size}")
        if chunk.values < self.rows or (chunk.values > self.rows and not self.nested):
            raise self.damaged(f"chunk of {chunk.values} values, the row group has {self.rows} rows")


def parse_footer(data: bytes) -> Footer:
    """Parse the Thrift bytes of a footer. ThriftError where they are invalid."""
    decoder = Decoder(data)
    version, elements, created_by = 1, None, b""
    key_values: dict[bytes, bytes] = {}
    groups: list[tuple[int, tuple[Chunk, ...]]] | None = None
    for field_id, wire in decoder.fields():
        if not decoder.optional(wire, FIELDS_OF_FILE.get(field_id, wire)):
            continue
        if field_id == 1:
            version = decoder.number(wire)
        elif field_id == 2:
            elements = read_elements(decoder, wire)
        elif field_id == 4:
            groups = [_row_group(decoder) for _ in range(decoder.structs(wire))]
        elif field_id == 5:
            key_values = _key_values(decoder)
        elif field_id == 6:
            created_by = decoder.text(wire)
        else:
            decoder.skip(wire)
    columns = columns_of(elements or [])
    if groups is None:
        raise ThriftError("the footer has no list of row groups")
    leaves = sum(len(column.leaves) for column in columns)
    first_row, row_groups = 0, []
    for ordinal, (rows, chunks) in enumerate(groups):
        if rows < 0 or first_row + rows >= 1 << 63:
            raise ThriftError(f"row group {ordinal} claims {rows} rows")
        if len(chunks) != leaves:
            raise ThriftError(f"row group {ordinal} has {len(chunks)} column chunks, the schema {leaves} leaves")
        row_groups.append(RowGroup(first_row, rows, chunks))
        first_row += rows
    arrow_schema = key_values.get(ARROW_SCHEMA)
    old_calendar = OLD_CALENDAR in key_values or key_values.get(SPARK_VERSION, NEW_CALENDAR_SINCE) < NEW_CALENDAR_SINCE
    return Footer(version, columns, tuple(row_groups), first_row, arrow_schema, created_by, old_calendar)


def legacy_slack(footer: Footer) -> int:
    """Bytes that may belong to a chunk after its stated end: parquet-mr before 1.2.9 left the header of the dictionary
    page out of a chunk's length."""
    return LEGACY_SLACK if LEGACY_WRITER.match(footer.created_by) else 0


def denies_compression(footer: Footer) -> bool:
    """Whether the writer's pages of version 2 claim to be uncompressed but are compressed (ARROW-10353)."""
    return DENIES_COMPRESSION.match(footer.created_by) is not None


def packed_upwards(footer: Footer) -> bool:
    """Whether the writer packs BIT_PACKED levels from the lowest bit of each byte on, as Impala does, and not from the
    highest on, as the format says."""
    return footer.created_by.startswith(b"impala")


def _row_group(decoder: Decoder) -> tuple[int, tuple[Chunk, ...]]:
    rows, chunks = -1, []
    for field_id, wire in decoder.fields():
        if field_id == 1 and wire == LIST:
            chunks = [_chunk(decoder) for _ in range(decoder.structs(wire))]
        elif field_id == 3 and decoder.optional(wire, I64):
            rows = decoder.number(wire)
        else:
            decoder.skip(wire)
    return rows, tuple(chunks)


def _chunk(decoder: Decoder) -> Chunk:
    numbers: dict[int, int] = {}
    index_offset = index_length = 0
    refusal, decodable = None, True
    for field_id, wire in decoder.fields():
        if not decoder.optional(wire, FIELDS_OF_CHUNK.get(field_id, wire)):
            continue
        if field_id == 3:
            for meta_id, meta_wire in decoder.fields():
                if meta_id in (1, 4, 5, 6, 7, 9, 11) and I8 <= meta_wire <= I64:
                    numbers[meta_id] = decoder.number(meta_wire)
                elif meta_id == 2 and meta_wire == LIST:
                    decodable = _has_decodable_encodings(decoder)
                else:
                    decoder.skip(meta_wire)
        elif field_id == 4:
            index_offset = decoder.number(wire)
        elif field_id == 5:
            index_length = decoder.number(wire)
        elif field_id in (8, 9):
            decoder.skip(wire)
            refusal = "the column is encrypted"
        elif field_id == 1:
            refusal = "the chunk lies in another file" if decoder.text(wire) else refusal
        else:
            decoder.skip(wire)
    read = numbers.get
    codec = read(4, -1)
    if refusal is None and codec not in CODECS:
        refusal = f"compression codec {codec} is not supported"
    return Chunk(
        kind=read(1, -1),
        codec=codec,
        values=read(5, -1),
        uncompressed=read(6, -1),
        compressed=read(7, -1),
        data_offset=read(9, -1),
        dictionary_offset=read(11, 0),
        index_offset=index_offset,
        index_length=index_length,
        refusal=refusal,
        decodable=decodable,
    )


def _has_decodable_encodings(decoder: Decoder) -> bool:
    """Whether the next value, a list of encodings, has only `DECODABLE_ENCODINGS`."""
    start = decoder.position
    wire, count = decoder.list_header()
    if not I8 <= wire <= I64:
        decoder.position = start
        decoder.skip(LIST)
        return True
    return not {decoder.number(wire) for _ in range(count)} - DECODABLE_ENCODINGS


def _key_values(decoder: Decoder) -> dict[bytes, bytes]:
    """The key-values that determine how the file is read."""
    found, start = {}, decoder.position
    wire, count = decoder.list_header()
    if wire != STRUCT:
        decoder.position, count = start, 0
        decoder.skip(LIST)
    for _ in range(count):
        entry = decoder.struct()
        key, value = entry.get(1), entry.get(2)
        if key in (ARROW_SCHEMA, OLD_CALENDAR, SPARK_VERSION) and isinstance(value, bytes):
            found[key] = value
    return found
