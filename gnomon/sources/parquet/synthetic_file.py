"""Parquet files made in memory, which pyarrow decodes: real pages or chunks, with a generated footer.

    PAR1 | bytes of each chunk | footer | footer length | PAR1

pyarrow never sees the real footer. Every encoding, codec and type that pyarrow knows works. `FooterTemplate` makes a
file with the schema of the real one. `decode_byte_arrays`, `decode_hybrid` and `decompress_with_pyarrow` use a file of
one required column of one physical type: one C call instead of a loop over the values of a page.

`ArrowTypes` has the Arrow schema of a file, and a template for each choice of columns. A column that pyarrow cannot
give a type is refused alone, so that the other columns of the file can be read.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from gnomon.base.arrow import parquet as pq
from gnomon.base.errors import check_memory
from gnomon.base.varints import encode_unsigned
from gnomon.sources.parquet import thrift
from gnomon.sources.parquet.footer import (
    BINARY,
    FIXED_BYTES,
    MAGIC,
    Column,
    Element,
    Footer,
    Leaf,
    arrow_metadata,
    stored_fields,
)
from gnomon.sources.parquet.page_header import DATA, DICTIONARY, PLAIN
from gnomon.sources.types import narrowed

INT96_UNIT = "us"  # nanoseconds would wrap outside 1677..2262 (docs/reference/formats-and-types.md)
INT96 = 3  # physical type of a leaf
CHOICES = 32  # number of templates that are cached
NOT_A_TYPE = (pa.ArrowException, OSError, ValueError)


class ChunkEntry(NamedTuple):
    """A column chunk in the generated footer. `start` is the offset of its first byte, `data_start` that of its first
    data page; sizes are in bytes."""

    codec: int
    values: int
    uncompressed: int
    compressed: int
    start: int
    data_start: int


class FooterTemplate:
    """The constant parts of a footer, for one choice of columns. Built once, used for every fetch."""

    def __init__(self, footer: Footer, columns: Sequence[Column], fields: Sequence[pa.Field] | None) -> None:
        self._leaves: list[Leaf] = [leaf for column in columns for leaf in column.leaves]
        self._names = [column.name for column in columns]
        self._leaf_heads = [_leaf_head(leaf) for leaf in self._leaves]
        root = thrift.struct(
            [(4, thrift.BINARY, thrift.binary(b"schema")), (5, thrift.I32, thrift.integer(len(columns)))]
        )
        elements = [root, *(element.raw for column in columns for element in column.elements)]
        self._before = thrift.open_struct(
            [(1, thrift.I32, thrift.integer(footer.version)), (2, thrift.LIST, thrift.array(thrift.STRUCT, elements))]
        )
        after = [(6, thrift.BINARY, thrift.binary(footer.created_by))]
        if fields is not None:
            stored = arrow_metadata([fields[column.ordinal] for column in columns])
            after.insert(0, (5, thrift.LIST, thrift.array(thrift.STRUCT, [stored])))
        self._after = thrift.open_struct(after, after=4) + b"\0"

    @property
    def cache_bytes(self) -> int:
        return 500 + len(self._before) + len(self._after) + 150 * len(self._leaves)

    def footer(self, rows: int, chunks: Sequence[ChunkEntry]) -> bytes:
        """The bytes after the chunks: one row group of `rows` rows with a chunk for each leaf; no row group if there
        are no chunks."""
        groups = []
        if chunks:
            written = [_chunk(head, chunk) for head, chunk in zip(self._leaf_heads, chunks, strict=True)]
            groups.append(
                thrift.struct(
                    [
                        (1, thrift.LIST, thrift.array(thrift.STRUCT, written)),
                        (2, thrift.I64, thrift.integer(sum(chunk.uncompressed for chunk in chunks))),
                        (3, thrift.I64, thrift.integer(rows)),
                    ]
                )
            )
        middle = [(3, thrift.I64, thrift.integer(rows)), (4, thrift.LIST, thrift.array(thrift.STRUCT, groups))]
        body = self._before + thrift.open_struct(middle, after=2) + self._after
        return body + len(body).to_bytes(4, "little") + MAGIC

    def open(
        self,
        rows: int,
        chunks: Sequence[ChunkEntry],
        parts: Sequence[bytes | memoryview],
        *,
        as_dictionary: bool = False,
        verify: bool = True,
    ) -> "pq.ParquetFile":
        """Open the file in memory. Offsets of chunks count from its first byte, the start of `MAGIC`. `as_dictionary`:
        flat columns come as indices and a dictionary. `verify`: pyarrow verifies the checksums of pages."""
        data = pa.BufferReader(_concatenate((MAGIC, *parts, self.footer(rows, chunks))))
        return open_with_pyarrow(data, dictionaries=self._names if as_dictionary else None, verify=verify)

    def schema(self) -> pa.Schema:
        """The Arrow schema of the columns, as pyarrow reads it. ArrowInvalid unless pyarrow finds the same columns,
        leaves and levels as `footer` and `schema` found, since decoded rows are encoded with these."""
        file = self.open(0, [], [])
        schema = file.schema_arrow.remove_metadata()
        if schema.names != self._names or len(file.schema) != len(self._leaves):
            raise pa.ArrowInvalid(f"the schema elements of {', '.join(self._names)} contradict each other")
        for i, leaf in enumerate(self._leaves):
            parsed = file.schema.column(i)
            levels = (parsed.max_repetition_level, parsed.max_definition_level)
            if levels != (leaf.repetitions, leaf.definitions) or (
                leaf.kind == FIXED_BYTES and parsed.length != leaf.width
            ):
                raise pa.ArrowInvalid(f"pyarrow reads a different schema element at {parsed.path}")
        return schema


def open_with_pyarrow(
    source: pa.NativeFile, buffer_size: int = 0, dictionaries: Sequence[str] | None = None, verify: bool = True
) -> "pq.ParquetFile":
    return pq.ParquetFile(
        source,
        read_dictionary=dictionaries,
        buffer_size=buffer_size,
        pre_buffer=False,
        coerce_int96_timestamp_unit=INT96_UNIT,
        page_checksum_verification=verify,
    )


def _concatenate(pieces: Sequence[bytes | memoryview]) -> pa.Buffer:
    """One buffer of Arrow's own pool, which reuses the memory of the previous fetch. The page faults of a fresh
    megabyte from the system cost more than decoding its content."""
    buffer = pa.allocate_buffer(sum(map(len, pieces)))
    view, position = memoryview(buffer).cast("B"), 0
    for piece in pieces:
        view[position : position + len(piece)] = piece
        position += len(piece)
    return buffer


def _leaf_head(leaf: Leaf) -> bytes:
    """The fields of a chunk's metadata that depend on the leaf only. pyarrow reads the encodings from the pages."""
    path = [thrift.binary(name) for name in leaf.path]
    encodings = [thrift.integer(0), thrift.integer(3)]
    return thrift.open_struct(
        [
            (1, thrift.I32, thrift.integer(leaf.kind)),
            (2, thrift.LIST, thrift.array(thrift.I32, encodings)),
            (3, thrift.LIST, thrift.array(thrift.BINARY, path)),
        ]
    )


def _chunk(head: bytes, chunk: ChunkEntry) -> bytes:
    """ColumnChunk and ColumnMetaData in the compact protocol: a byte for each field id and type, then the number."""
    number = thrift.integer
    lead = b"\x26" + number(chunk.start) if chunk.start < chunk.data_start else b""
    return b"".join(
        (
            b"\x26\x00\x1c",
            head,
            b"\x15" + number(chunk.codec),
            b"\x16" + number(chunk.values),
            b"\x16" + number(chunk.uncompressed),
            b"\x16" + number(chunk.compressed),
            b"\x26" + number(chunk.data_start),
            lead,
            b"\x00\x00",
        )
    )


INT32 = 1  # physical type
RLE_DICTIONARY = 8  # Encoding
UNCOMPRESSED = 0  # CompressionCodec


# The bytes before, between and after the numbers of a page header (PageHeader in parquet.thrift, compact protocol).
_HEADS = {
    DATA: (b"\x15\x00\x15", b"\x2c\x15", b"\x15\x06\x15\x06\x00\x00"),  # both kinds of levels RLE
    DICTIONARY: (b"\x15\x04\x15", b"\x4c\x15", b"\x00\x00"),
}


def encode_page_header(kind: int, values: int, encoding: int, compressed: int, uncompressed: int) -> bytes:
    """The header of a data page (version 1) or a dictionary page. Sizes are in bytes."""
    before, own, end = _HEADS[kind]
    sizes = before + thrift.integer(uncompressed) + b"\x15" + thrift.integer(compressed)
    return sizes + own + thrift.integer(values) + b"\x15" + thrift.integer(encoding) + end


def encode_levels(levels: bytes, highest: int) -> bytes:
    """Levels encoded in the RLE / bit-packing hybrid, as one run, after their length in bytes."""
    if not highest:
        return b""
    width = highest.bit_length()
    if len(levels) == 0 or levels.count(levels[0]) == len(levels):
        run = encode_unsigned(len(levels) << 1) + (levels[:1] or b"\0")
    else:
        groups = (len(levels) + 7) >> 3
        numbers = np.zeros(8 * groups, np.uint8)
        numbers[: len(levels)] = np.frombuffer(levels, np.uint8)
        bits = numbers[:, None] >> np.arange(width, dtype=np.uint8) & 1
        run = encode_unsigned(groups << 1 | 1) + np.packbits(bits, bitorder="little").tobytes()
    return len(run).to_bytes(4, "little") + run


def decode_byte_arrays(body: memoryview, count: int) -> pa.BinaryArray:
    """The first `count` values of a PLAIN BYTE_ARRAY page. Bytes after them are ignored."""
    head = encode_page_header(DATA, count, PLAIN, len(body), len(body))
    return _decode_values(BINARY, 0, count, UNCOMPRESSED, [head, body])


def decode_hybrid(body: memoryview, width: int, count: int, limit: int) -> NDArray[np.int32]:
    """Decode `count` numbers of `width` bits from the RLE / bit-packing hybrid (parquet-format, Encodings), all below
    `limit`: pyarrow reads them as indices into a dictionary of 0, 1, 2, ..."""
    numbers = np.arange(limit, dtype=np.int32).tobytes()
    dictionary = encode_page_header(DICTIONARY, limit, PLAIN, len(numbers), len(numbers))
    size = 1 + len(body)
    head = encode_page_header(DATA, count, RLE_DICTIONARY, size, size)
    parts: list[bytes | memoryview] = [dictionary, numbers, head, bytes([width]), body]
    array = _decode_values(INT32, 0, count, UNCOMPRESSED, parts, lead=len(dictionary) + len(numbers))
    return np.frombuffer(array.buffers()[1], np.int32, count, 4 * array.offset)


def decompress_with_pyarrow(body: memoryview, size: int, codec: int) -> memoryview:
    """Decompress a page's bytes, which must give `size` bytes: pyarrow reads them as one value."""
    head = encode_page_header(DATA, 1, PLAIN, len(body), size)
    return memoryview(_decode_values(FIXED_BYTES, size, 1, codec, [head, body]).buffers()[1]).cast("B")[:size]


def _decode_values(
    kind: int, width: int, count: int, codec: int, parts: Sequence[bytes | memoryview], lead: int = 0
) -> pa.Array:
    """Decode one required column of `count` values from the pages in `parts`. `lead`: bytes of the
    dictionary page."""
    total = sum(map(len, parts))
    chunk = ChunkEntry(codec, count, total, total, len(MAGIC), len(MAGIC) + lead)
    file = _template(kind, width).open(count, [chunk], parts, verify=False)
    (array,) = file.read_row_group(0, use_threads=False).column(0).chunks
    if len(array) != count:
        raise pa.ArrowInvalid(f"{len(array)} values, expected {count}")
    return array


@lru_cache(CHOICES)
def _template(kind: int, width: int) -> FooterTemplate:
    """The template of one required column of a physical type. `width`: bytes of a value of a fixed length."""
    length = [(2, thrift.I32, thrift.integer(width))] if kind == FIXED_BYTES else []
    fields = [(1, thrift.I32, thrift.integer(kind)), *length, (3, thrift.I32, thrift.integer(0))]  # 0: required
    raw = thrift.struct([*fields, (4, thrift.BINARY, thrift.binary(b"v"))])
    element = Element("v", kind, width, 0, 0, False, -1, raw)
    column = Column(0, "v", (element,), (Leaf(0, kind, (b"v",), 0, 0, 0),), flat=True, padded_decimal=False)
    return FooterTemplate(Footer(1, (column,), (), 0, None, b"", old_calendar=False), [column], None)


class ArrowTypes:
    """The Arrow types of a file's columns.

    `schema` has a field for each column of the footer; a refused one has the type null. `kinds` are its types.
    `refusals` is by the ordinal of the column.
    """

    def __init__(self, footer: Footer) -> None:
        self._footer = footer
        self._fields = stored_fields(footer.arrow_schema, len(footer.columns))
        self._templates: dict[tuple[int, ...], FooterTemplate] = {}
        self.refusals: dict[int, str] = {}
        for column in footer.columns:
            if not column.leaves:
                self.refusals[column.ordinal] = "it has no leaves"
            elif any(b"\0" in name for leaf in column.leaves for name in leaf.path):
                self.refusals[column.ordinal] = (
                    "its name, or that of a nested field, contains a NUL, which pyarrow misreads"
                )
            elif column.padded_decimal:
                self.refusals[column.ordinal] = "it holds a decimal in more bytes than pyarrow reads"
        self.schema = pa.schema(
            [self._instant(field, column) for field, column in zip(self._schema(), footer.columns, strict=True)]
        )
        self.kinds = self.schema.types
        self.cache_bytes = 500 * len(footer.columns)

    @staticmethod
    def _instant(field: pa.Field, column: Column) -> pa.Field:
        """The field with an instant for INT96, as Spark, which writes INT96, reads it. pyarrow gives it no time
        zone."""
        if column.flat and column.leaves[0].kind == INT96 and field.type == pa.timestamp("us"):
            return field.with_type(pa.timestamp("us", "UTC"))
        return field

    def template(self, columns: Sequence[Column]) -> FooterTemplate:
        """The template for these columns. Cached, up to `CHOICES` templates besides those of single columns."""
        key = tuple([column.ordinal for column in columns])
        made = self._templates.get(key)
        if made is None:
            if len(self._templates) >= len(self._footer.columns) + CHOICES:
                self._templates.clear()
            made = self._templates[key] = FooterTemplate(self._footer, columns, self._fields)
            sizes = [each.cache_bytes for each in list(self._templates.values())]
            self.cache_bytes = 500 * len(self._footer.columns) + sum(sizes)
        return made

    def add(self, column: Column, path: Sequence[str]) -> bool:
        """Add a column of `narrowed_column`, whose ordinal follows all others; `path` is that of its leaf. Returns
        whether pyarrow gives it a type."""
        stored = self._fields
        try:
            if stored is not None:
                of_name = next(field for field in stored if field.name == path[0])
                stored = [*stored, narrowed(of_name, path[1:]).with_name(column.name)]
            field = FooterTemplate(self._footer, [column], stored).schema().field(0)
        except (*NOT_A_TYPE, KeyError, StopIteration) as error:
            check_memory(error)
            return False
        self._fields, self.schema = stored, self.schema.append(field)
        self.kinds = self.schema.types
        return True

    def _schema(self) -> pa.Schema:
        columns = self._footer.columns
        if not self.refusals:
            try:
                return FooterTemplate(self._footer, columns, self._fields).schema()
            except NOT_A_TYPE as error:
                check_memory(error)  # one of the columns has no valid type: reading them one by one shows which
        return pa.schema([self._field(column) for column in columns])

    def _field(self, column: Column) -> pa.Field:
        if column.ordinal not in self.refusals:
            try:
                return FooterTemplate(self._footer, [column], self._fields).schema().field(0)
            except NOT_A_TYPE as error:
                check_memory(error)
                self.refusals[column.ordinal] = f"pyarrow cannot read its type: {error}"
        return pa.field(column.name, pa.null())
