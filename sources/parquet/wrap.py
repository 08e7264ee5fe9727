"""Pages, or whole chunks, wrapped as a Parquet file in memory whose footer we write: pyarrow decodes that, so
every encoding, codec and type it knows works, and it never sees the real footer.

    PAR1 | bytes of each chunk, as they lie in the real file | footer | footer length | PAR1
"""

from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from sources.parquet import thrift
from sources.parquet.footer import MAGIC, Footer
from sources.parquet.schema import FIXED_BYTES, Column, Leaf, arrow_metadata
from sources.parquet.thrift import BINARY, I32, I64, LIST, STRUCT

INT96_UNIT = "us"  # nanoseconds would wrap outside 1677..2262 (docs/pointers.md)


class WrittenChunk(NamedTuple):
    """A chunk as our footer describes it: `start` is its first byte, `data_start` its first data page."""

    codec: int
    values: int
    uncompressed: int
    compressed: int
    start: int
    data_start: int


class Template:
    """The parts of a footer that do not change: built once for a choice of columns, used for every fetch."""

    def __init__(self, footer: Footer, columns: Sequence[Column], fields: Sequence[pa.Field] | None) -> None:
        self._leaves: list[Leaf] = [leaf for column in columns for leaf in column.leaves]
        self._names = [column.name for column in columns]
        self._leaf_heads = [_leaf_head(leaf) for leaf in self._leaves]
        root = thrift.struct([(4, BINARY, thrift.binary(b"schema")), (5, I32, thrift.integer(len(columns)))])
        elements = [root, *(raw for column in columns for raw in column.elements)]
        self._before = thrift.open_struct(
            [(1, I32, thrift.integer(footer.version)), (2, LIST, thrift.array(STRUCT, elements))]
        )
        after = [(6, BINARY, thrift.binary(footer.created_by))]
        if fields is not None:
            stored = arrow_metadata([fields[column.ordinal] for column in columns])
            after.insert(0, (5, LIST, thrift.array(STRUCT, [stored])))
        self._after = thrift.open_struct(after, after=4) + b"\0"

    @property
    def cache_bytes(self) -> int:
        return 500 + len(self._before) + len(self._after) + 150 * len(self._leaves)

    def footer(self, rows: int, chunks: Sequence[WrittenChunk]) -> bytes:
        """What follows the chunks: one row group of `rows`, a chunk for each leaf; no chunks: no row group."""
        groups = []
        if chunks:
            written = [_chunk(head, chunk) for head, chunk in zip(self._leaf_heads, chunks, strict=True)]
            groups.append(
                thrift.struct(
                    [
                        (1, LIST, thrift.array(STRUCT, written)),
                        (2, I64, thrift.integer(sum(chunk.uncompressed for chunk in chunks))),
                        (3, I64, thrift.integer(rows)),
                    ]
                )
            )
        middle = [(3, I64, thrift.integer(rows)), (4, LIST, thrift.array(STRUCT, groups))]
        body = self._before + thrift.open_struct(middle, after=2) + self._after
        return body + len(body).to_bytes(4, "little") + MAGIC

    def open(
        self,
        rows: int,
        chunks: Sequence[WrittenChunk],
        parts: Sequence[bytes | memoryview],
        *,
        as_dictionary: bool = False,
        verify: bool = True,
    ) -> pq.ParquetFile:
        """The file in memory; the chunks' offsets count from its first byte, which is `MAGIC`. `as_dictionary`:
        flat columns come as indices and dictionary. `verify`: checksums of pages are still to be verified."""
        data = pa.BufferReader(_joined((MAGIC, *parts, self.footer(rows, chunks))))
        return open_with_pyarrow(data, dictionaries=self._names if as_dictionary else None, verify=verify)

    def schema(self) -> pa.Schema:
        """The columns' Arrow fields, as pyarrow reads them; it has to see the same columns, leaves and levels as we
        do: values that are picked are handed to it in those."""
        file = self.open(0, [], [])
        schema = file.schema_arrow.remove_metadata()
        if schema.names != self._names or len(file.schema) != len(self._leaves):
            raise pa.ArrowInvalid(f"the schema elements of {', '.join(self._names)} contradict themselves")
        for i, leaf in enumerate(self._leaves):
            theirs = file.schema.column(i)
            levels = (theirs.max_repetition_level, theirs.max_definition_level)
            if levels != (leaf.repetitions, leaf.definitions) or (
                leaf.kind == FIXED_BYTES and theirs.length != leaf.width
            ):
                raise pa.ArrowInvalid(f"pyarrow reads the schema element of {theirs.path} as another one")
        return schema


def open_with_pyarrow(
    source: pa.NativeFile, buffer_size: int = 0, dictionaries: Sequence[str] | None = None, verify: bool = True
) -> pq.ParquetFile:
    return pq.ParquetFile(
        source,
        read_dictionary=dictionaries,
        buffer_size=buffer_size,
        pre_buffer=False,
        coerce_int96_timestamp_unit=INT96_UNIT,
        page_checksum_verification=verify,
    )


def _joined(pieces: Sequence[bytes | memoryview]) -> pa.Buffer:
    """One buffer of Arrow's own pool, which keeps the memory of the fetch before: a fresh megabyte from the
    system costs more in page faults than the decoding of what is put in it."""
    buffer = pa.allocate_buffer(sum(map(len, pieces)))
    view, position = memoryview(buffer).cast("B"), 0
    for piece in pieces:
        view[position : position + len(piece)] = piece
        position += len(piece)
    return buffer


def _leaf_head(leaf: Leaf) -> bytes:
    """The fields of a chunk's metadata that are the leaf's own. Of the encodings pyarrow asks the pages."""
    path = [thrift.binary(name) for name in leaf.path]
    encodings = [thrift.integer(0), thrift.integer(3)]
    return thrift.open_struct(
        [
            (1, I32, thrift.integer(leaf.kind)),
            (2, LIST, thrift.array(I32, encodings)),
            (3, LIST, thrift.array(BINARY, path)),
        ]
    )


def _chunk(head: bytes, chunk: WrittenChunk) -> bytes:
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
