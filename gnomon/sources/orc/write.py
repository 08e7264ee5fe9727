"""Writes ORC files like an existing one of the source, with its columns and codec.

pyarrow's writer has errors that its own reader and Gnomon's reader correct, but Java's reader does not. Values for
which such an error would occur are refused.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from pyarrow import types

from gnomon.base.arrow import compute as pc
from gnomon.base.arrow import orc
from gnomon.base.errors import check_memory
from gnomon.base.json_forms import DIGITS
from gnomon.base.readers import RangeReader
from gnomon.sources.contract import Options
from gnomon.sources.errors import UnsupportedFormat
from gnomon.sources.orc.reader import open_orc
from gnomon.sources.orc.values import FIRST_GREGORIAN
from gnomon.sources.types import arrays_of, leaves, plan_columns, rebuilt

STRIPE_BYTES = 64 << 20
# by CompressionKind; pyarrow has no LZO and no Brotli
CODECS = ("uncompressed", "zlib", "snappy", "zstd", "lz4", "zstd")
NUMBERS = (types.is_int8, types.is_int16, types.is_int32, types.is_int64, types.is_float32, types.is_float64)
FLAT = (*NUMBERS, types.is_boolean, types.is_string, types.is_binary, types.is_date32, types.is_timestamp)
DAY = 86_400  # seconds
LEAST = -(1 << 63)  # no day of nanoseconds in 64 bits is of the Julian calendar


@dataclass(frozen=True)
class OrcStyle:
    """How ORC files are written. `fields` are the columns of the file as it is read; `refusals` say why some cannot be
    written."""

    fields: pa.Schema
    codec: str = "zstd"
    refusals: Mapping[str, str] = field(default_factory=dict)
    ending: str = ".orc"

    @property
    def columns(self) -> Sequence[str]:
        return list(self.fields.names)

    def open(self, schema: pa.Schema, path: str) -> "OrcWriter":
        for name, why in self.refusals.items():
            raise UnsupportedFormat(
                f"the source's newest file has this column, but it cannot be written: {why}", path, column=name
            )
        return OrcWriter(self, schema, path)


def orc_style(reader: RangeReader | None, options: Options) -> OrcStyle:
    """The style of a file; without a file, zstandard, as Spark writes."""
    if reader is None:
        return OrcStyle(pa.schema([]))
    source = open_orc(reader, options)
    if len(source.schema) < len(source.names):
        names = ", ".join(source.names)
        raise UnsupportedFormat(f"columns that share a name, of {names}; Gnomon writes no such file", reader.name)
    refusals = {}
    for one in source.schema:
        try:
            source.fetch(reader, [], [one.name])
        except UnsupportedFormat as error:
            refusals[one.name] = str(error)
    fields_read = pa.schema([one for one in source.schema if one.name not in refusals])
    return OrcStyle(fields_read, CODECS[source.codec] if source.codec < len(CODECS) else "zstd", refusals)


class OrcWriter:
    """Writes an ORC file. pyarrow writes a stripe when it is full."""

    def __init__(self, style: OrcStyle, schema: pa.Schema, path: str) -> None:
        self._path = path
        self._columns = plan_columns(style.fields, schema, lambda kind: rebuilt(kind, _natural), path)
        self._schema = pa.schema([column.field for column in self._columns])
        self._out = pa.BufferOutputStream()
        self._file = orc.ORCWriter(self._out, compression=style.codec, stripe_size=STRIPE_BYTES)
        # Bytes in memory of all rows, and of the current stripe; bytes in the file.
        self._given = self._held_bytes = self._written = 0
        self._begun = False

    @property
    def size(self) -> int:
        share = self._written / max(self._given - self._held_bytes, 1) if self._written else 1.0
        return self._written + int(self._held_bytes * share)

    def write(self, batch: pa.RecordBatch) -> None:
        arrays = arrays_of(self._columns, batch, self._path)
        for column, array in zip(self._columns, arrays, strict=True):
            for leaf in leaves(array):
                self._check_moments(leaf, column.field.name)
        self._put(pa.Table.from_arrays(arrays, schema=self._schema))

    def _put(self, table: pa.Table) -> None:
        try:
            self._file.write(table)
        except (pa.ArrowException, OSError, ValueError) as error:
            check_memory(error)
            raise UnsupportedFormat(f"cannot be written as ORC: {error}", self._path) from error
        self._begun = True
        self._given, self._held_bytes = self._given + table.nbytes, self._held_bytes + table.nbytes
        if self._out.tell() > self._written + STRIPE_BYTES // 64:  # by more than the magic: a stripe was written
            self._written, self._held_bytes = self._out.tell(), 0

    def _check_moments(self, array: pa.Array, name: str) -> None:
        if types.is_timestamp(array.type):
            ticks = array.view(pa.int64())
            second = 10 ** DIGITS[array.type.unit]
            whole = pc.multiply(pc.divide(ticks, second), second)
            if pc.any(pc.and_(pc.less(ticks, 0), pc.not_equal(whole, ticks))).as_py():
                self._refuse(
                    name,
                    "an instant before 1970 has a fraction of a second; as pyarrow writes it, Java fails",
                )
            days, least = ticks, max(FIRST_GREGORIAN * DAY * second, LEAST)
        elif types.is_date32(array.type):
            days, least = array.view(pa.int32()), FIRST_GREGORIAN
        else:
            return
        if pc.any(pc.less(days, least)).as_py():
            self._refuse(name, "a day before 1582-10-15; as pyarrow writes it, Java reads another day")

    def _refuse(self, name: str, why: str) -> None:
        raise UnsupportedFormat(f"{why}; write this source with Spark", self._path, column=name)

    def finish(self) -> bytes:
        if not self._begun:
            self._put(self._schema.empty_table())
        self._file.close()
        return bytes(memoryview(self._out.getvalue()))


def _natural(kind: pa.DataType) -> pa.DataType:
    """The type in which the values of a new column are written, for a type that is not nested."""
    if types.is_large_string(kind) or types.is_string_view(kind):
        return pa.string()
    if types.is_large_binary(kind) or types.is_binary_view(kind) or types.is_fixed_size_binary(kind):
        return pa.binary()
    if types.is_decimal128(kind) or any(is_kind(kind) for is_kind in FLAT):
        return kind
    raise TypeError("ORC has no such type, or pyarrow does not write it")
