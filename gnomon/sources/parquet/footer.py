"""Parses the footer of a Parquet file. pyarrow crashes the process in some metadata calls on unusual footers (unknown
codec, encrypted column), and its objects are large.

Numbers are not checked here: `ChunkPlace` checks an offset against the file before it is used.

The schema tree of a footer has top-level columns and the leaves below each. Schema elements are kept as bytes, so that
a generated footer repeats them exactly. The exception is a logical type that Hive 4 writes by mistake.
"""

import base64
import binascii
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa

from gnomon.base.errors import check_memory
from gnomon.sources.errors import DamagedSource, UnsupportedFormat
from gnomon.sources.parquet import thrift
from gnomon.sources.parquet.thrift import I8, I64, LIST, STRUCT, Decoder, ThriftError

OPTIONAL, REPEATED = 1, 2  # FieldRepetitionType; the default is required
DEPTH_LIMIT = 1000  # levels; pyarrow refuses columns deeper than 100
BOOLEAN, BINARY, FIXED_BYTES = 0, 6, 7  # physical types (Type in parquet.thrift)
WIDTHS = {1: 4, 2: 8, 3: 12, 4: 4, 5: 8}  # bytes of a value of INT32, INT64, INT96, FLOAT, DOUBLE
DECIMAL = 5  # ConvertedType
LOGICAL_TYPE = 10  # field of an element, the last one
# LogicalType of leaves that hold only nulls. Hive 4 gives it to the entries of maps, and pyarrow refuses it.
UNKNOWN = 11
END = bytes([thrift.STOP])  # ends a struct
DECIMAL128_DIGITS, DECIMAL128_BYTES = 38, 16
ARROW_SCHEMA = b"ARROW:schema"
VIEWS = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}
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
FIELDS_OF_FILE = {1: I64, 2: LIST, 4: LIST, 5: LIST, 6: thrift.BINARY}
FIELDS_OF_CHUNK = {1: thrift.BINARY, 3: STRUCT, 4: I64, 5: I64}


class Element(NamedTuple):
    """One node of the tree, in depth-first order. `kind` is the physical type of a leaf, None for a group; `width` the
    length of a fixed one, in bytes."""

    name: str
    kind: int | None
    width: int
    repetition: int
    children: int
    padded_decimal: bool
    field_id: int  # -1 for none
    raw: bytes


class Leaf(NamedTuple):
    """A column of values, with one chunk in each row group. `width`: bytes of a value of a fixed length, else 0.
    `repetitions` and `definitions`: the highest levels (parquet-format, Nested Encoding)."""

    ordinal: int
    kind: int
    path: tuple[bytes, ...]
    width: int
    repetitions: int
    definitions: int


class Column(NamedTuple):
    """A top-level column with its subtree. `flat`: one leaf, not repeated, so that each value is a row.
    `padded_decimal`: a decimal in more bytes than its digits need, and more than pyarrow reads."""

    ordinal: int
    name: str
    elements: tuple[Element, ...]
    leaves: tuple[Leaf, ...]
    flat: bool
    padded_decimal: bool


def read_elements(decoder: Decoder, wire: int) -> list[Element]:
    elements = []
    for _ in range(decoder.structs(wire)):
        start = decoder.position
        name, numbers = b"", dict.fromkeys((1, 2, 3, 5, 6, 8, 9), -1)
        before, logical, behind = start, -1, start  # the bytes of the last field, and its type if it is the logical one
        for field_id, field_wire in decoder.fields():
            before, logical = behind, -1
            if field_id in numbers and thrift.I8 <= field_wire <= thrift.I64:
                numbers[field_id] = decoder.number(field_wire)
            elif field_id == 4 and field_wire == thrift.BINARY:
                name = decoder.text(field_wire)
            elif field_id == LOGICAL_TYPE and field_wire == thrift.STRUCT:
                logical = next(iter(decoder.field_ids()), -1)
            else:
                decoder.skip(field_wire)
            behind = decoder.position
        is_mistake = logical == UNKNOWN and numbers[1] < 0
        kind, width, repetition, children, converted, precision, field_id = numbers.values()
        if not -1 <= repetition <= REPEATED:
            raise ThriftError(f"schema element {name!r} has the unknown repetition {repetition}")
        elements.append(
            Element(
                name=name.decode("utf-8", "replace"),
                kind=None if kind < 0 else kind,
                width=width,
                repetition=repetition,
                children=children,
                padded_decimal=kind == FIXED_BYTES
                and converted == DECIMAL
                and precision <= DECIMAL128_DIGITS
                and width > DECIMAL128_BYTES,
                field_id=field_id,
                raw=decoder.data[start:before] + END if is_mistake else decoder.data[start : decoder.position],
            )
        )
    return elements


def columns_of(elements: Sequence[Element]) -> tuple[Column, ...]:
    """The root's children. The tree has to end within `elements` and be no deeper than `DEPTH_LIMIT`."""
    if not elements:
        raise ThriftError("the footer has no schema")
    columns: list[Column] = []
    position, leaf_count = 1, 0
    for ordinal in range(elements[0].children):
        end, leaves = _leaves_below(elements, position, leaf_count)
        top = elements[position]
        flat = top.kind is not None and top.repetition != REPEATED
        own = tuple(elements[position:end])
        columns.append(Column(ordinal, top.name, own, leaves, flat, any(element.padded_decimal for element in own)))
        position, leaf_count = end, leaf_count + len(leaves)
    return tuple(columns)


def _leaves_below(elements: Sequence[Element], start: int, first_leaf: int) -> tuple[int, tuple[Leaf, ...]]:
    """`(position after the subtree at start, its leaves)`, without recursion."""
    leaves: list[Leaf] = []
    path: list[bytes] = []
    levels = [(0, 0)]  # the highest repetition and definition level, per level of groups
    open_groups: list[int] = []  # children still to come, per level
    position = start
    while True:
        if position >= len(elements):
            raise ThriftError(f"the schema tree needs more than its {len(elements)} elements")
        element = elements[position]
        position += 1
        if element.kind is not None and element.children > 0:
            raise ThriftError(f"schema element {element.name!r} is a leaf and has children")
        repetitions = levels[-1][0] + (element.repetition == REPEATED)
        definitions = levels[-1][1] + (element.repetition in (OPTIONAL, REPEATED))
        if element.kind is None and element.children > 0:
            if len(path) >= DEPTH_LIMIT:
                raise ThriftError(f"the schema is nested deeper than {DEPTH_LIMIT} levels")
            path.append(element.name.encode())
            levels.append((repetitions, definitions))
            open_groups.append(element.children)
            continue
        if element.kind is not None:
            width = element.width if element.kind == FIXED_BYTES else WIDTHS.get(element.kind, 0)
            full_path = (*path, element.name.encode())
            leaves.append(Leaf(first_leaf + len(leaves), element.kind, full_path, width, repetitions, definitions))
        while open_groups:
            open_groups[-1] -= 1
            if open_groups[-1]:
                break
            open_groups.pop()
            path.pop()
            levels.pop()
        if not open_groups:
            return position, tuple(leaves)


def narrowed_column(column: Column, path: Sequence[str], ordinal: int, name: str) -> Column | None:
    """A column with one leaf alone, in the groups on its path, under another name. None where the path, which begins
    below the column, does not lead to a leaf, or leads through a repeated group."""
    whole = tuple(part.encode() for part in (column.name, *path))
    leaves = [leaf for leaf in column.leaves if leaf.path == whole]
    if len(leaves) != 1 or leaves[0].repetitions:
        return None
    position, groups = 0, list[Element]()
    for part in path:
        group = column.elements[position]
        groups.append(group)
        children, position = list[int](), position + 1
        for _ in range(group.children):
            children.append(position)
            position = _end_of(column.elements, position)
        named = [child for child in children if column.elements[child].name == part]
        if len(named) != 1:
            return None
        position = named[0]
    element = column.elements[position]
    names = [name, *path[:-1]]
    heads = [group._replace(raw=_head(one, group)) for one, group in zip(names, groups, strict=True)]
    leaf = leaves[0]._replace(path=(name.encode(), *leaves[0].path[1:]))
    return Column(ordinal, name, (*heads, element), (leaf,), False, element.padded_decimal)


def _end_of(elements: Sequence[Element], position: int) -> int:
    """The position after the subtree at a position."""
    left = 1
    while left:
        left += max(elements[position].children, 0) - 1
        position += 1
    return position


def _head(name: str, group: Element) -> bytes:
    """The bytes of a group with one child."""
    numbers = {3: group.repetition, 5: 1, 9: group.field_id}
    fields = [(place, thrift.I32, thrift.integer(number)) for place, number in numbers.items() if number >= 0]
    return thrift.struct(sorted([*fields, (4, thrift.BINARY, thrift.binary(name.encode()))]))


def stored_fields(text: bytes | None, count: int) -> list[pa.Field] | None:
    """The Arrow fields that the writer recorded, in the types of `_plain_type`; None where there are none, or not one
    for each of `count` columns."""
    if text is None:
        return None
    try:
        schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))
    except (pa.ArrowException, OSError, binascii.Error) as error:
        check_memory(error)
        raise ThriftError(f"the Arrow schema in the footer cannot be read: {error}") from error
    if len(schema) != count:
        return None
    try:
        return [field.with_type(_plain_type(field.type)) for field in schema]
    except UnicodeDecodeError as error:
        raise ThriftError(f"the Arrow schema in the footer has a time zone that is not valid text: {error}") from error


def arrow_metadata(fields: Sequence[pa.Field]) -> bytes:
    """The encoded key-value entry that makes pyarrow use these fields."""
    text = base64.b64encode(pa.schema(fields).serialize().to_pybytes())
    return thrift.struct([(1, thrift.BINARY, thrift.binary(ARROW_SCHEMA)), (2, thrift.BINARY, thrift.binary(text))])


def _plain_type(kind: pa.DataType) -> pa.DataType:
    """The type with dictionaries replaced by their values, since pages of one column have different ones, and views by
    the viewed type, since pyarrow cannot take rows of a view."""
    if pa.types.is_dictionary(kind):
        return _plain_type(kind.value_type)
    if kind in VIEWS:
        return VIEWS[kind]
    if pa.types.is_timestamp(kind):
        return pa.timestamp(kind.unit, kind.tz)  # the zone is read here: an invalid one fails with a UnicodeDecodeError
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_plain_type(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(
            kind.key_field.with_type(_plain_type(kind.key_type)),
            kind.item_field.with_type(_plain_type(kind.item_type)),
            keys_sorted=kind.keys_sorted,
        )
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(_plain_value_field(kind), kind.list_size)
    if pa.types.is_large_list(kind) or pa.types.is_large_list_view(kind):
        return pa.large_list(_plain_value_field(kind))
    if pa.types.is_list(kind) or pa.types.is_list_view(kind):
        return pa.list_(_plain_value_field(kind))
    return kind


def _plain_value_field(kind: pa.DataType) -> pa.Field:
    return kind.value_field.with_type(_plain_type(kind.value_type))


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
        elements = sum(len(element.raw) + 400 for column in self.columns for element in column.elements)
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
            key_values = read_key_values(decoder)
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


def read_key_values(decoder: Decoder) -> dict[bytes, bytes]:
    """The key-values of a file."""
    found, start = {}, decoder.position
    wire, count = decoder.list_header()
    if wire != STRUCT:
        decoder.position, count = start, 0
        decoder.skip(LIST)
    for _ in range(count):
        entry = decoder.texts()
        if 1 in entry and 2 in entry:
            found[entry[1]] = entry[2]
    return found
