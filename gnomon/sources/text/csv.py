"""CSV as in RFC 4180, and as other programs write it: other delimiters, lone carriage returns, records of several
widths.

An empty field without quotes is null, with quotes the empty text. A record with fewer fields than columns has nulls for
the rest, as in Spark; a build counts such records. A record with more fields is an error, unless the schema allows for
it: without the option `schema` the file has as many columns as the widest record of the first megabyte, while
`infer_csv` reads all records.

New files are like an existing one of the source: its header, column order, delimiter, quotes and line ends. Where the
file does not show them, RFC 4180 applies.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyarrow import types

from gnomon.base.arrow import compute as pc
from gnomon.base.readers import RangeReader
from gnomon.sources.contract import Options
from gnomon.sources.errors import DamagedSource, OptionError, UnsupportedFormat
from gnomon.sources.literals import RefusedValue, Values, converter, texts_of, values_of
from gnomon.sources.text.csv_block import CR, LF, UNCLOSED, CsvBlock, Dialect, is_text
from gnomon.sources.text.text_file import (
    END_BYTES,
    OPTIONS,
    Opened,
    TextFile,
    TextWriter,
    check_utf8,
    flag,
    mean_bytes,
    read_ends,
)
from gnomon.sources.types import parse_ddl, to_ddl

SCHEMA = "schema"
INFER = "infer_schema"
RAGGED = "ragged"
CSV_OPTIONS: Mapping[str, str] = {
    "header": "true (the default): the first record has the column names",
    "delimiter": "one character; default: a comma, in files named .tsv a tab",
    "quote": 'one character; default: "; empty: no quoting',
    "escape": "one character that makes the quote after it part of a value; a doubled quote always is",
    "null_value": "text that stands for null, besides the empty field",
    SCHEMA: "the columns, as Spark's DDL; default: all are strings",
    INFER: "true: without a schema types are inferred from all rows, as by Spark's inferSchema",
    "multiline": "false: no quoted field holds a line end, so files can be split",
    RAGGED: "true: any share of the records may have fewer or more fields than the header",
    **OPTIONS,
}
HEAD_BYTES = 1 << 20  # read for names and widths
COLUMNS_LIMIT = 20_000
TABBED = re.compile(r"\.tsv(\.\w+)?$", re.IGNORECASE)
ESCAPED = re.compile(r"\\(t|\\|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4})")
LINE_ENDS = ("\r\n", "\n", "\r")
BOM = "\ufeff"
NO_FIELDS = pa.schema([])


def open_csv(reader: RangeReader, options: Options) -> TextFile:
    """Open a CSV file and read its header. Type inference reads the whole file. The columns of a damaged file are
    strings, and a scan reports the damage."""
    if flag(options, INFER, False) and SCHEMA not in options:
        with suppress(DamagedSource):
            options = {**options, SCHEMA: to_ddl(infer_csv(reader, options))}
    dialect = dialect_of(options, reader.name)
    headed = flag(options, "header", True)
    opened = read_ends(reader, options, END_BYTES if SCHEMA in options else HEAD_BYTES)
    names, first = None, 0
    if headed:
        header = _header(opened, dialect)
        if header is None:
            opened = read_ends(reader, options, HEAD_BYTES)
            header = _header(opened, dialect)
        if header is None:
            length = len(opened.head) - opened.first
            raise UnsupportedFormat(f"the header does not end within {length} bytes", opened.path, opened.first)
        names, first = header
    text = opened.head[opened.first :]
    head = _whole_records(CsvGrammar(dialect, pa.schema([])), text[first:], opened.complete)
    width = max(int(head.widths.max(initial=0)), len(names or ()))
    given = parse_ddl(options[SCHEMA]) if SCHEMA in options else None
    schema = _limited(_schema(names, width, given), opened.path)
    usual = int(np.bincount(head.widths).argmax()) if len(head.widths) else len(schema)
    fields = usual if names is None else len(names)
    return TextFile(opened, CsvGrammar(dialect, schema, fields), opened.first + first, mean_bytes(head))


def infer_csv(reader: RangeReader, options: Options) -> pa.Schema:
    """As many columns as the widest record has fields, named by the header (`_c0`, `_c1` ... without one, and for
    fields beyond it). They are strings, unless `infer_schema` requests the types that `Values` infers."""
    plain = {name: value for name, value in options.items() if name not in (SCHEMA, INFER)}
    file = open_csv(reader, plain)
    width = len(file.schema)
    for _, block in file.blocks(reader, 0, 1 << 62):
        assert isinstance(block, CsvBlock)
        width = max(width, int(block.widths.max(initial=0)))
    schema = _limited(_schema(file.schema.names, width, None), reader.name)
    if not flag(options, INFER, False):
        return schema
    seen = [Values() for _ in schema]
    for batch in open_csv(reader, {**plain, SCHEMA: to_ddl(schema)}).scan(reader, schema.names):
        for values, texts in zip(seen, batch.columns, strict=False):  # the pointer columns come last
            values.see(texts)
    return pa.schema([values.field(name) for name, values in zip(schema.names, seen, strict=True)])


def merge_csv(schemas: Sequence[pa.Schema]) -> pa.Schema:
    """The columns of several files by name, in order of first occurrence, each in the type that holds the values of all
    files."""
    merged: dict[str, Values] = {}
    for field in (field for schema in schemas for field in schema):
        merged.setdefault(field.name, Values()).merge(values_of(field))
    return pa.schema([values.field(name) for name, values in merged.items()])


class CsvGrammar:
    def __init__(self, dialect: Dialect, schema: pa.Schema, fields: int = 0) -> None:
        self._dialect = dialect
        self.schema = schema
        self._fields = fields

    @property
    def splittable(self) -> bool:
        return not self._dialect.multiline

    def find(self, data: bytes, final: bool) -> CsvBlock:
        return CsvBlock(self._dialect, self.schema, data, final, self._fields)

    def end_of(self, data: bytes, begin: int, final: bool) -> int | None:
        found = self._dialect.record(data, begin)
        return found[1] if found is not None and (final or found[1] < len(data)) else None

    def next_line(self, data: bytes) -> int | None:
        match = re.search(rb"\r\n|\n|\r(?=.)", data, re.DOTALL)
        return match.end() if match else None

    def parts(self, before: int, after: int) -> bool:
        return before == LF or (before == CR and after != LF)


def dialect_of(options: Options, path: str) -> Dialect:
    """The dialect of a file, from its name and the options."""
    quote = _character(options, "quote", '"', may_be_empty=True)
    escape = _character(options, "escape", "", may_be_empty=True)
    delimiter = _character(options, "delimiter", "\t" if TABBED.search(path) else ",")
    if delimiter in (quote, escape):
        raise OptionError(f"option delimiter: {delimiter.decode()!r} is the quote or escape as well")
    return Dialect(
        delimiter=delimiter,
        quote=quote,
        escape=b"" if escape == quote or not quote else escape,
        multiline=flag(options, "multiline", True) and bool(quote),
        null=options.get("null_value", ""),
    )


def _character(options: Options, name: str, default: str, may_be_empty: bool = False) -> bytes:
    text = ESCAPED.sub(_unescaped, options.get(name, default))
    if (len(text) == 1 and text.isascii() and text not in "\r\n") or (may_be_empty and not text):
        return text.encode()
    raise OptionError(f"option {name}: {options[name]!r} is not one ASCII character, or is a line end")


def _unescaped(match: re.Match[str]) -> str:
    """The character of an escape like `\\t`, `\\x01` or `\\u0001`, for users who cannot type it."""
    text = match[1]
    return {"t": "\t", "\\": "\\"}.get(text) or chr(int(text[1:], 16))


def _whole_records(grammar: CsvGrammar, text: bytes, complete: bool) -> CsvBlock:
    """The whole records of the head. For a damaged head, the records before the damage; a scan reports it."""
    try:
        return grammar.find(text, complete)
    except RefusedValue as error:
        return grammar.find(text[: error.index], True)


def _limited(schema: pa.Schema, path: str) -> pa.Schema:
    if len(schema) > COLUMNS_LIMIT:
        raise UnsupportedFormat(f"{len(schema)} columns, more than {COLUMNS_LIMIT}", path)
    return schema


def _header(opened: Opened, dialect: Dialect) -> tuple[list[str], int] | None:
    """`(names, position of the first row)`, from the first record that is not blank; None where the head is too short
    to hold it. DamagedSource for a header with a quote that is not closed, or that is not UTF-8."""
    text = opened.head[opened.first :]
    begin = len(text) - len(text.lstrip(b"\r\n"))
    try:
        record = dialect.record(text, begin)
        if not opened.complete and (record is None or record[1] >= len(text) - 1):
            return None
        if record is None:
            raise DamagedSource(UNCLOSED.format("file"), opened.path, opened.first + begin)
        fields, end = record
        check_utf8(text, np.array([begin]), np.array([end]))
    except RefusedValue as error:
        raise DamagedSource(f"the header: {error}", opened.path, opened.first + begin) from None
    names = [value.decode() for value, _ in fields] if end > begin else []
    return names, min(end + (2 if text.startswith(b"\r\n", end) else 1), len(text))


def _schema(names: list[str] | None, width: int, given: pa.Schema | None) -> pa.Schema:
    """The columns of a file: `names` from its header, if it has one, and the known width of its records.

    For a file without a header, a given schema lists the columns in order. With a header it gives the types of columns
    by name; the others are strings. If no name of the schema is in the header, the schema also gives the names, as in
    Spark."""
    known = {field.name: field for field in given or ()}
    for field in known.values():
        try:
            if not is_text(field.type):
                converter(field.type)
        except TypeError as error:
            raise OptionError(f"option {SCHEMA}: column {field.name}: {error}") from None
    if names is None:
        return given if given is not None else pa.schema([pa.field(f"_c{i}", pa.string()) for i in range(width)])
    made = _distinct(names)
    if given is not None and known.keys().isdisjoint(made):
        made = [*given.names, *made[len(given) :]]
    while len(made) < width or f"_c{len(made)}" in known:
        made.append(f"_c{len(made)}")
    return pa.schema([known.get(name, pa.field(name, pa.string())) for name in _distinct(made)])


def _distinct(names: Sequence[str]) -> list[str]:
    """Names as Spark makes them: an empty one becomes `_c3`, a repeated one gets its position appended."""
    counts = Counter(names)
    made: dict[str, None] = {}
    for place, name in enumerate(names):
        distinct = f"_c{place}" if not name else f"{name}{place}" if counts[name] > 1 else name
        while distinct in made:
            distinct += "_"
        made[distinct] = None
    return list(made)


@dataclass(frozen=True)
class CsvStyle:
    """How CSV files are written. `fields` are the columns of the file in its order; `header` is the exact text of its
    first record, if that names them."""

    dialect: Dialect
    fields: pa.Schema = NO_FIELDS
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


class CsvWriter(TextWriter):
    def __init__(self, style: CsvStyle, schema: pa.Schema, path: str) -> None:
        super().__init__(style.fields, schema, _natural, path)
        self._style, self._dialect = style, style.dialect
        self._delimiter = style.dialect.delimiter.decode()
        marks = (self._delimiter, style.dialect.quote.decode(), *style.line_end, "\r", "\n")
        self._special = "[" + "".join(re.escape(mark) for mark in dict.fromkeys(marks) if mark) + f"]|^$|^{BOM}"
        if style.headed:
            self._append(self._header())

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

    def _texts(self, array: pa.Array, column: str) -> pa.Array:
        return self._quoted(texts_of(array), column)

    def _records(self, columns: Sequence[pa.Array]) -> str:
        rows = pc.binary_join_element_wise(*columns, self._delimiter)
        return "".join(text + self._style.line_end for text in rows.to_pylist())

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


def _natural(kind: pa.DataType) -> pa.DataType:
    if types.is_large_string(kind) or types.is_string_view(kind):
        return pa.string()
    if types.is_nested(kind):
        raise TypeError("CSV has no nested columns")
    if not is_text(kind):
        texts_of(pa.array([], kind))
    return kind
