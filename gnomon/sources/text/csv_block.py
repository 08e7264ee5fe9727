"""The records in a block of CSV, many at once.

If each quote opens at the beginning of a field and closes at its end (RFC 4180), a line end or delimiter belongs to a
field where an odd number of quotes precedes it. Then numpy finds the records, and pyarrow reads the fields. Other
blocks are read record by record with `Dialect.record`, which is the reference.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import types

from gnomon.base.arrow import compute as pc
from gnomon.base.arrow import csv
from gnomon.sources.literals import RefusedValue, from_text
from gnomon.sources.pointers import batch_without_columns
from gnomon.sources.text.text_file import Block, check_utf8

BOM = b"\xef\xbb\xbf"
LF, CR = 10, 13
LINE_END = re.compile(rb"[\r\n]")
UNCLOSED = "a quote that does not close before the {} ends"
SWALLOWED = (
    "text after a quote that opened in another line: a quote was not closed, and the next records are in its field"
)
Field = tuple[bytes, bool]  # the value, and whether it was quoted


@dataclass(frozen=True)
class Dialect:
    """The special characters, one byte each; `quote` is empty where there is none. In a quoted field, `escape` before a
    quote makes the quote part of the value; a doubled quote always is. `multiline`: whether a quoted field may hold
    line ends."""

    delimiter: bytes
    quote: bytes
    escape: bytes
    multiline: bool
    null: str

    def record(self, data: bytes, begin: int) -> tuple[list[Field], int] | None:
        """The fields of the record at `begin`, and the end of the record; None when `data` ends within a quote.
        RefusedValue where more than spaces follows a quoted field that has a line end: its quote was meant to close
        before.

        Bytes after a closing quote belong to the value unchanged; a quote elsewhere in a field is an ordinary
        character."""
        plain = self._without_quotes.match(data, begin)
        assert plain is not None
        if not self.quote or data[plain.end() : plain.end() + 1] != self.quote:
            return [(value, False) for value in plain[0].split(self.delimiter)], plain.end()
        fields: list[Field] = []
        position = begin
        while True:
            quoted = data.startswith(self.quote, position)
            value = b""
            if quoted:
                match = self._quoted.match(data, position + 1)
                if match is None:
                    return None
                value, position = self._plain_value(match[1]), match.end()
            rest = self._unquoted.match(data, position)
            assert rest is not None
            if quoted and rest[0].strip(b" \t") and LINE_END.search(value):
                raise RefusedValue(begin, SWALLOWED)
            fields.append((value + rest[0], quoted))
            position = rest.end()
            if data[position : position + 1] != self.delimiter:
                return fields, position
            position += 1

    @cached_property
    def _without_quotes(self) -> re.Pattern[bytes]:
        return re.compile(rb"[^\r\n" + re.escape(self.quote) + rb"]*+")

    @cached_property
    def _unquoted(self) -> re.Pattern[bytes]:
        return re.compile(rb"[^\r\n" + re.escape(self.delimiter) + rb"]*+")

    @cached_property
    def _quoted(self) -> re.Pattern[bytes]:
        quote, escape = re.escape(self.quote), re.escape(self.escape)
        ends = b"" if self.multiline else rb"\r\n"
        escaped = b"|" + escape + (b"." if self.multiline else rb"[^\r\n]") if self.escape else b""
        inside = b"[^" + quote + escape + ends + b"]++|" + quote + quote + escaped
        return re.compile(b"((?:" + inside + b")*+)" + quote, re.DOTALL)

    def _plain_value(self, inside: bytes) -> bytes:
        if not self.escape:
            return inside.replace(self.quote * 2, self.quote)
        quote, escape = re.escape(self.quote), re.escape(self.escape)
        return re.sub(escape + b"([" + quote + escape + b"])|" + quote + b"(" + quote + b")", _unescaped, inside)


def _unescaped(match: re.Match[bytes]) -> bytes:
    return match[1] or match[2]


class CsvBlock(Block):
    """The records of a block. `widths` has the number of fields of each record; the schema has the columns in the order
    of the fields. `fields` is the number of the header, or the most frequent one; records of another one are ragged."""

    def __init__(self, dialect: Dialect, schema: pa.Schema, data: bytes, final: bool, fields: int = 0) -> None:
        self._dialect, self._schema, self._fields = dialect, schema, fields
        self.data = data
        array = np.frombuffer(data, dtype=np.uint8)
        inside = self._inside_quotes(array)
        self.regular = inside is not None
        if inside is not None:
            self._find(array, inside, final)
        else:
            self._find_one_by_one(final)

    def _inside_quotes(self, array: NDArray[np.uint8]) -> NDArray[np.bool_] | bool | None:
        """For each byte whether it is part of a quoted field. False if no field is quoted, None if the quotes are
        irregular."""
        dialect, data = self._dialect, self.data
        if not dialect.quote or dialect.quote not in data:
            return False
        if dialect.escape and dialect.escape in data:
            return None
        quotes = array == dialect.quote[0]
        inside = np.logical_xor.accumulate(quotes)
        edge = quotes | (array == dialect.delimiter[0]) | (array == LF) | (array == CR)
        # Index i is now the byte before byte i, index i + 2 the byte after it.
        edge = np.concatenate(([True], edge, [True]))
        if (quotes & ~np.where(inside, edge[:-2], edge[2:])).any():
            return None
        if not dialect.multiline and (inside & ((array == LF) | (array == CR))).any():
            return None
        return inside

    def _find(self, array: NDArray[np.uint8], inside: NDArray[np.bool_] | bool, final: bool) -> None:
        outside = np.logical_not(inside)
        ends = np.flatnonzero((array == LF) & outside)
        if b"\r" in self.data:
            following = np.append(array[1:], 0)
            ends = np.flatnonzero(((array == LF) | ((array == CR) & (following != LF))) & outside)
            if not final and len(ends) and ends[-1] == len(array) - 1 and array[-1] == CR:
                ends = ends[:-1]  # the next byte may be the other half of the line end
        behind = ends + 1
        if len(ends):
            ends = ends - ((array[ends] == LF) & (ends > 0) & (array[ends - 1] == CR))
        starts = np.concatenate(([0], behind[:-1])) if len(ends) else ends
        self.consumed = int(behind[-1]) if len(behind) else 0
        if final and self.consumed < len(array):
            if not isinstance(inside, bool) and inside[-1]:
                raise RefusedValue(self.consumed, UNCLOSED.format("file"))
            starts, ends = np.append(starts, self.consumed), np.append(ends, len(array))
            self.consumed = len(array)
        kept = starts < ends
        self.starts, self.ends = starts[kept], ends[kept]
        delimiters = np.flatnonzero((array == self._dialect.delimiter[0]) & outside)
        self.widths = np.searchsorted(delimiters, self.ends) - np.searchsorted(delimiters, self.starts) + 1

    def _find_one_by_one(self, final: bool) -> None:
        data, position = self.data, 0
        starts, ends, widths = [], [], []
        self.consumed = 0
        while position < len(data):
            record = self._dialect.record(data, position)
            if record is None and not self._dialect.multiline and (final or re.search(rb"[\r\n]", data[position:])):
                raise RefusedValue(position, UNCLOSED.format("line"))
            if record is None and final:
                raise RefusedValue(position, UNCLOSED.format("file"))
            if record is None:
                break
            fields, end = record
            if not final and (end == len(data) or (end + 1 == len(data) and data[end] == CR)):
                break  # the record may continue, or its line end may
            line_end = 2 if data.startswith(b"\r\n", end) else 1
            if end > position:
                starts.append(position)
                ends.append(end)
                widths.append(len(fields))
            self.consumed = position = min(end + line_end, len(data))
        self.starts, self.ends, self.widths = (np.array(one, dtype=np.int64) for one in (starts, ends, widths))

    def ragged(self, rows: int) -> int:
        return int(np.count_nonzero(self.widths[:rows] != self._fields))

    def read(self, begin: int, end: int, columns: Sequence[str]) -> pa.RecordBatch:
        check_utf8(self.data, self.starts[begin:end], self.ends[begin:end])
        names, widths = self._schema.names, self.widths[begin:end]
        beyond = np.flatnonzero(widths > len(names))
        if len(beyond):
            at = int(beyond[0])
            known = f"{len(names)} columns are known; the option schema can name more"
            raise RefusedValue(at, f"a record of {widths[at]} fields, where {known}")
        places = {name: place for place, name in enumerate(names)}
        wanted = [places[name] for name in dict.fromkeys(columns)]
        texts = self._at_once(begin, end, wanted) if self.regular and (widths == len(names)).all() else None
        if texts is None:
            texts = self._one_by_one(begin, end, wanted)
        arrays = {}
        for place, text in zip(wanted, texts, strict=True):
            field = self._schema.field(place)
            try:
                arrays[field.name] = from_text(_values(text, field.type), field.type)
            except RefusedValue as error:
                raise RefusedValue(error.index, f"column {field.name}: {error}") from None
        if not columns:
            return batch_without_columns(end - begin)
        schema = pa.schema([self._schema.field(name) for name in columns])
        return pa.RecordBatch.from_arrays([arrays[name] for name in columns], schema=schema)

    def _at_once(self, begin: int, end: int, wanted: Sequence[int]) -> list[pa.Array] | None:
        """The columns as pyarrow reads them; None if it finds other records than this module."""
        if begin == end or not wanted:
            return [pa.array([], pa.string()) for _ in wanted]
        dialect = self._dialect
        data = self.data[self.starts[begin] : self.ends[end - 1]]
        if data.startswith(BOM):
            return None  # part of a value here, which pyarrow would omit
        # Without a final line end, pyarrow takes an empty last field after a quoted one for quoted.
        data += b"\n"
        names = [str(i) for i in range(len(self._schema))]
        nulls = ["", dialect.null] if dialect.null else [""]
        try:
            table = csv.read_csv(
                pa.BufferReader(data),
                csv.ReadOptions(use_threads=False, block_size=len(data) + 1, column_names=names),
                csv.ParseOptions(
                    delimiter=dialect.delimiter.decode(),
                    quote_char=dialect.quote.decode() or False,
                    double_quote=bool(dialect.quote),
                    newlines_in_values=True,
                ),
                csv.ConvertOptions(
                    include_columns=[names[i] for i in wanted],
                    column_types=dict.fromkeys(names, pa.string()),
                    null_values=nulls,
                    strings_can_be_null=True,
                    quoted_strings_can_be_null=False,
                ),
            )
        except pa.ArrowInvalid:
            return None
        return [column.combine_chunks() for column in table.columns] if table.num_rows == end - begin else None

    def _one_by_one(self, begin: int, end: int, wanted: Sequence[int]) -> list[pa.Array]:
        """The columns by `Dialect.record`. Fields that a record lacks are null."""
        dialect = self._dialect
        nulls = (b"", dialect.null.encode())
        columns: list[list[bytes | None]] = [[] for _ in wanted]
        for start in self.starts[begin:end].tolist():
            record = dialect.record(self.data, start)
            assert record is not None
            fields = record[0]
            for column, place in zip(columns, wanted, strict=True):
                value, quoted = fields[place] if place < len(fields) else (b"", False)
                column.append(None if not quoted and value in nulls else value)
        return [pc.cast(pa.array(column, pa.binary()), pa.string()) for column in columns]


def _values(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """The texts converted to the type. An empty quoted field is a value only for text; for other types it is null, as
    in Spark."""
    if is_text(kind):
        return texts
    return pc.if_else(pc.equal(texts, ""), pa.scalar(None, texts.type), texts)


def is_text(kind: pa.DataType) -> bool:
    """Whether every text is a value of the type."""
    return bool(types.is_string(kind) or types.is_binary(kind))
