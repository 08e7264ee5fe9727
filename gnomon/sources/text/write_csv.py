"""Writes CSV files like an existing one of the source: its header, column order, delimiter, quotes and line ends. Where
the file does not show them, RFC 4180 applies.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from gnomon.base.readers import RangeReader
from gnomon.sources.contract import Options
from gnomon.sources.errors import UnsupportedFormat
from gnomon.sources.text.csv import HEAD_BYTES, SCHEMA, TABBED, dialect_of, open_csv
from gnomon.sources.text.csv_block import Dialect, is_text
from gnomon.sources.text.open_text import flag, read_ends
from gnomon.sources.types import arrays_of, plan_columns, texts_of

LINE_ENDS = ("\r\n", "\n", "\r")
BOM = "\ufeff"


@dataclass(frozen=True)
class CsvStyle:
    """How CSV files are written. `fields` are the columns of the file in its order; `header` is the exact text of its
    first record, if that names them."""

    dialect: Dialect
    fields: pa.Schema = field(default_factory=lambda: pa.schema([]))
    headed: bool = True
    header: str | None = None
    line_end: str = "\n"
    ending: str = ".csv"

    @property
    def columns(self) -> Sequence[str]:
        return list(self.fields.names)

    def open(self, schema: pa.Schema, path: str) -> "CsvWriter":
        return CsvWriter(self, schema, path)


def csv_style(reader: RangeReader | None, options: Options) -> CsvStyle:
    """The style of a file, with its text decompressed; without a file, the style of the options."""
    headed = flag(options, "header", True)
    if reader is None:
        return CsvStyle(dialect_of(options, ""), headed=headed)
    path = reader.name
    dialect = dialect_of(options, path)
    source = open_csv(reader, {**options, "infer_schema": "false"} if SCHEMA not in options else options)
    opened = read_ends(reader, options, HEAD_BYTES)
    text = opened.head[opened.first :]
    begin = len(text) - len(text.lstrip(b"\r\n"))
    record = dialect.record(text, begin)
    end = record[1] if record is not None else len(text)
    line_end = next((one for one in LINE_ENDS if text.startswith(one.encode(), end)), "\n")
    header = text[begin:end].decode() if headed and end > begin else None
    ending = ".tsv" if TABBED.search(path) else ".csv"
    return CsvStyle(dialect, source.schema, headed, header, line_end, ending)


class CsvWriter:
    """Writes records as text, many at once."""

    def __init__(self, style: CsvStyle, schema: pa.Schema, path: str) -> None:
        self._style, self._path, self._dialect = style, path, style.dialect
        self._columns = plan_columns(style.fields, schema, _natural, path)
        self._delimiter = style.dialect.delimiter.decode()
        dialect = style.dialect
        marks = (self._delimiter, dialect.quote.decode(), *style.line_end, "\r", "\n")
        self._special = "[" + "".join(re.escape(mark) for mark in dict.fromkeys(marks) if mark) + f"]|^$|^{BOM}"
        self._out: list[bytes] = [self._header().encode()] if style.headed else []
        self.size = sum(map(len, self._out))

    def _header(self) -> str:
        """The file's header, extended by the names of columns that it lacks."""
        known = len(self._style.fields)
        if self._style.header is not None:
            names = [column.field.name for column in self._columns[known:]]
            head = [self._style.header]
        else:
            names, head = [column.field.name for column in self._columns], []
        quoted = self._quoted(pa.array(names, pa.string()), "header").to_pylist()
        return self._delimiter.join([*head, *quoted]) + self._style.line_end

    def write(self, batch: pa.RecordBatch) -> None:
        arrays = arrays_of(self._columns, batch, self._path)
        texts = []
        for column, array in zip(self._columns, arrays, strict=True):
            try:
                text = texts_of(array)
            except ValueError as error:
                raise UnsupportedFormat(str(error), self._path, column=column.field.name) from None
            texts.append(self._quoted(text, column.field.name))
        rows = pc.binary_join_element_wise(*texts, self._delimiter)
        data = "".join(text + self._style.line_end for text in rows.to_pylist()).encode()
        self._out.append(data)
        self.size += len(data)

    def _quoted(self, texts: pa.Array, column: str) -> pa.Array:
        """The fields as written in the file. A null is the empty field, or the text of option `null_value`."""
        dialect = self._dialect
        null = dialect.null
        needed = pc.match_substring_regex(texts, self._special)
        if null:
            needed = pc.or_(needed, pc.equal(texts, null))
        if pc.any(needed).as_py():
            self._check(texts.filter(pc.fill_null(needed, False)), column)
            quote, escape = dialect.quote.decode(), dialect.escape.decode()
            inside = pc.replace_substring(texts, escape, escape * 2) if escape else texts
            inside = pc.replace_substring(inside, quote, (escape or quote) + quote)
            texts = pc.if_else(needed, pc.binary_join_element_wise(quote, inside, quote, ""), texts)
        alone = len(self._columns) == 1 and not null and texts.null_count
        if alone:
            raise UnsupportedFormat(
                "a null as the only column, which is a blank line and not a row",
                self._path,
                column=column,
                expected="a value, or option null_value",
            )
        return pc.fill_null(texts, null)

    def _check(self, texts: pa.Array, column: str) -> None:
        """UnsupportedFormat for texts that need quotes, where the dialect has none."""
        value = texts[0].as_py()
        if not self._dialect.quote:
            raise UnsupportedFormat(
                f"{value[:80]!r} has to be quoted", self._path, column=column, expected="no such value, or a quote"
            )
        if not self._dialect.multiline and pc.any(pc.match_substring_regex(texts, "[\r\n]")).as_py():
            what = "a value holds a line end"
            raise UnsupportedFormat(what, self._path, column=column, expected="none (multiline=false)")

    def finish(self) -> bytes:
        return b"".join(self._out)


def _natural(kind: pa.DataType) -> pa.DataType:
    if types.is_large_string(kind) or types.is_string_view(kind):
        return pa.string()
    if types.is_nested(kind):
        raise TypeError("CSV has no nested columns")
    if not is_text(kind):
        texts_of(pa.array([], kind))
    return kind
