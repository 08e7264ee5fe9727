"""Writes Parquet files like an existing one of the source, with its columns, types, codec and timestamps. For fast
fetches they have a page index, pages of 1 MB, and row groups of 64 MB in memory.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from pyarrow import types

from gnomon.base.arrow import parquet as pq
from gnomon.base.errors import check_memory
from gnomon.base.readers import RangeReader
from gnomon.sources.contract import Options
from gnomon.sources.errors import UnsupportedFormat
from gnomon.sources.parquet.footer import ARROW_SCHEMA, CODECS, Footer, parse_footer, read_key_values
from gnomon.sources.parquet.reader import open_parquet, read_footer
from gnomon.sources.parquet.synthetic_file import INT96
from gnomon.sources.parquet.thrift import LIST, Decoder
from gnomon.sources.types import arrays_of, holds, plan_columns

GROUP_BYTES = 64 << 20  # Arrow bytes after which a row group is written
PAGE_BYTES = 1 << 20
WRITTEN_TOGETHER = 1024  # values between two checks of a page's size
INT32, INT64 = 1, 2  # physical types
SPARK_COLUMNS, SPARK_VERSION = "org.apache.spark.sql.parquet.row.metadata", "org.apache.spark.version"
PROLEPTIC_SINCE = (3, 1)  # Spark: files of older versions may hold days of the Julian calendar


@dataclass(frozen=True)
class ParquetStyle:
    """How Parquet files are written. `fields` are the columns of the file as it is read, with its field ids, inner
    names and nullability; `refusals` say why some cannot be written. `int96`: the columns with INT96 timestamps.
    `arrow`: the file records its Arrow schema. `notes` are its key-values that hold for all files with the same
    columns."""

    fields: pa.Schema
    codec: str = "SNAPPY"
    int96: frozenset[str] = frozenset()
    whole_decimals: bool = False
    arrow: bool = True
    compliant: bool = True
    notes: Mapping[str, str] = field(default_factory=dict)
    refusals: Mapping[str, str] = field(default_factory=dict)
    ending: str = ".parquet"

    @property
    def columns(self) -> Sequence[str]:
        return list(self.fields.names)

    def open(self, schema: pa.Schema, path: str) -> "ParquetWriter":
        for name, why in self.refusals.items():
            raise UnsupportedFormat(
                f"the source's newest file has this column, but it cannot be written: {why}", path, column=name
            )
        return ParquetWriter(self, schema, path)


def parquet_style(reader: RangeReader | None, options: Options) -> ParquetStyle:
    """The style of a file. Without a file: snappy, and pyarrow's defaults."""
    if reader is None:
        return ParquetStyle(pa.schema([]))
    source = open_parquet(reader, options)
    body = read_footer(reader)[0]
    footer, notes = parse_footer(body), _key_values(body)
    refusals = {}
    for one in source.schema:
        if types.is_null(one.type):
            if not one.nullable:
                refusals[one.name] = "it is required, but is read as nulls"
            try:
                source.fetch(reader, [], [one.name])
            except UnsupportedFormat as error:
                refusals[one.name] = str(error)
    if len(source.schema) < len(footer.columns):
        raise UnsupportedFormat(
            "columns that share a name, of which only one is read; Gnomon writes no such file", reader.name
        )
    kinds = {leaf.kind for column in footer.columns for leaf in column.leaves}
    return ParquetStyle(
        fields=pa.schema([one for one in source.schema if one.name not in refusals]),
        codec=_codec(footer),
        int96=frozenset(c.name for c in footer.columns if any(leaf.kind == INT96 for leaf in c.leaves)),
        whole_decimals=bool(kinds & {INT32, INT64}) and _whole_decimals(source.schema, footer),
        arrow=ARROW_SCHEMA.decode() in notes,
        compliant=not _names_items(source.schema),
        notes=_spark_notes(notes),
        refusals=refusals,
    )


def _key_values(body: bytes) -> dict[str, str]:
    decoder, found = Decoder(body), dict[bytes, bytes]()
    for number, wire in decoder.fields():
        if number == 5 and wire == LIST:
            found = read_key_values(decoder)
        else:
            decoder.skip(wire)
    return {key.decode(errors="replace"): value.decode(errors="replace") for key, value in found.items()}


def _spark_notes(notes: Mapping[str, str]) -> dict[str, str]:
    """Spark's own key-values: its names of the column types, and its version if files of that version store days as
    this writer does."""
    kept = {SPARK_COLUMNS: notes[SPARK_COLUMNS]} if SPARK_COLUMNS in notes else {}
    parts = notes.get(SPARK_VERSION, "").split(".")
    if (
        len(parts) > 1
        and all(part.isdecimal() for part in parts[:2])
        and (int(parts[0]), int(parts[1])) >= PROLEPTIC_SINCE
    ):
        kept[SPARK_VERSION] = notes[SPARK_VERSION]
    return kept


def _codec(footer: Footer) -> str:
    """The codec of most bytes of the file. For LZ4 its raw form, which all readers know."""
    sizes: dict[int, int] = {}
    for chunk in (chunk for group in footer.row_groups for chunk in group.chunks):
        sizes[chunk.codec] = sizes.get(chunk.codec, 0) + max(chunk.compressed, 0)
    found = CODECS.get(max(sizes, key=lambda codec: sizes[codec]), "SNAPPY") if sizes else "SNAPPY"
    return {"LZ4_RAW": "LZ4", "UNCOMPRESSED": "NONE"}.get(found, found)


def _whole_decimals(schema: pa.Schema, footer: Footer) -> bool:
    """Whether a flat decimal is stored as an integer."""
    flat = [column for column in footer.columns if column.flat and types.is_decimal(schema.field(column.ordinal).type)]
    return any(column.leaves[0].kind in (INT32, INT64) for column in flat)


def _names_items(schema: pa.Schema) -> bool:
    """Whether some list names its items differently from the format's rule."""

    def is_named(kind: pa.DataType) -> bool:
        is_list = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
        return bool(is_list and kind.value_field.name != "element")

    return any(holds(one.type, is_named) for one in schema)


class ParquetWriter:
    """Writes a Parquet file. A row group is written when it is full."""

    def __init__(self, style: ParquetStyle, schema: pa.Schema, path: str) -> None:
        self._style, self._path = style, path
        self._columns = plan_columns(style.fields, schema, _natural, path)
        self._schema = pa.schema([column.field for column in self._columns])
        self._out = pa.BufferOutputStream()
        self._file: pq.ParquetWriter | None = None
        self._held: list[pa.RecordBatch] = []
        self._held_bytes = self._grouped_bytes = 0

    @property
    def size(self) -> int:
        """Approximate bytes of the file. Rows not written yet count at the compression ratio of the row groups before
        them, or at their size in memory if there are none."""
        done = self._out.tell() if self._grouped_bytes else 0
        share = done / self._grouped_bytes if done else 1.0
        return done + math.ceil(self._held_bytes * share)

    def write(self, batch: pa.RecordBatch) -> None:
        arrays = arrays_of(self._columns, batch, self._path)
        made = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        step = max(GROUP_BYTES * batch.num_rows // max(made.nbytes, 1), 1)  # a batch may be longer than a row group
        for low in range(0, made.num_rows, step):
            piece = made.slice(low, step)
            if self._held and self._held_bytes + piece.nbytes > GROUP_BYTES:
                self._write_group()
            self._held.append(piece)
            self._held_bytes += piece.nbytes

    def finish(self) -> bytes:
        self._write_group()
        assert self._file is not None
        self._file.close()
        return bytes(memoryview(self._out.getvalue()))

    def _write_group(self) -> None:
        table = pa.Table.from_batches(self._held, self._schema)
        try:
            if self._file is None:
                self._file = self._opened(table)
            if table.num_rows:
                self._file.write_table(table, row_group_size=table.num_rows)
        except (pa.ArrowException, ValueError) as error:
            check_memory(error)
            raise UnsupportedFormat(f"cannot be written as Parquet: {error}", self._path) from error
        self._grouped_bytes += self._held_bytes
        self._held, self._held_bytes = [], 0

    def _opened(self, first: pa.Table) -> "pq.ParquetWriter":
        style, widest = self._style, max((column.nbytes for column in first.columns), default=0)
        file = pq.ParquetWriter(
            self._out,
            self._schema,
            compression=style.codec,
            use_deprecated_int96_timestamps=self._as_int96(),
            data_page_size=PAGE_BYTES,
            write_batch_size=min(max(PAGE_BYTES * first.num_rows // max(widest, 1), 1), WRITTEN_TOGETHER),
            store_schema=style.arrow or not style.fields,
            use_compliant_nested_type=style.compliant,
            store_decimal_as_integer=style.whole_decimals,
            write_page_index=True,
        )
        if style.notes and all(column.kept for column in self._columns):
            file.add_key_value_metadata(dict(style.notes))
        return file

    def _as_int96(self) -> bool:
        """Whether timestamps are written as INT96. pyarrow writes all timestamps so, or none; so all, if the file has
        any."""
        timed = {column.field.name for column in self._columns if holds(column.field.type, types.is_timestamp)}
        kept = {column.field.name for column in self._columns if column.kept}
        old = self._style.int96 & timed
        if old and timed <= self._style.int96 & kept:
            return True
        for name in old:
            if types.is_nested(self._schema.field(name).type):
                raise UnsupportedFormat(
                    "it contains INT96, other timestamps do not",
                    self._path,
                    column=name,
                    expected="all or none",
                )
        return False


def _natural(kind: pa.DataType) -> pa.DataType:
    """The Parquet type for values of a new column, with the names of list and map items that the format defines."""
    if types.is_struct(kind):
        return pa.struct([one.with_type(_natural(one.type)) for one in kind])
    if types.is_map(kind):
        return pa.map_(_natural(kind.key_type), _natural(kind.item_type))
    if types.is_list(kind):
        return pa.list_(pa.field("element", _natural(kind.value_type)))
    return kind
