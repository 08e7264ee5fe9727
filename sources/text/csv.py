"""CSV as RFC 4180 has it, and as it is found: other delimiters, lone carriage returns, records of several widths.

A field that is empty and not quoted is null, a quoted empty one the empty text; a record with fewer fields than there
are columns has nulls for the rest, as in Spark; one with more is an error, unless the schema was made with it in view:
without the option `schema` it has as many columns as the widest record of the first megabyte, `infer_csv` looks at all.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress

import numpy as np
import pyarrow as pa

from gnomon.base.readers import RangeReader
from gnomon.sources.contract import Options
from gnomon.sources.errors import DamagedSource, OptionError, UnsupportedFormat
from gnomon.sources.text.csv_block import CR, LF, UNCLOSED, CsvBlock, Dialect, is_text
from gnomon.sources.text.csv_infer import Values, values_of
from gnomon.sources.text.grammar import check_utf8, mean_bytes
from gnomon.sources.text.open_text import END_BYTES, OPTIONS, Opened, flag, read_ends
from gnomon.sources.text.text_file import TextFile
from gnomon.sources.types import RefusedValue, converter, parse_ddl, to_ddl

SCHEMA = "schema"
INFER = "infer_schema"
CSV_OPTIONS: Mapping[str, str] = {
    "header": "true, which is the default: the first record has the names",
    "delimiter": "one character: a comma, in files named .tsv a tab, if not given",
    "quote": 'one character, " if not given; empty: quotes are characters like others',
    "escape": "one character that makes the quote behind it part of a value; a doubled quote is so always",
    "null_value": "what stands for null beside nothing at all",
    SCHEMA: "the columns, as Spark's DDL; all of them strings if not given",
    INFER: "true: without a schema types are inferred from all rows, as by Spark's inferSchema",
    "multiline": "false: no quoted field holds a line end, so that files can be split",
    **OPTIONS,
}
HEAD_BYTES = 1 << 20  # looked at for names and widths
COLUMNS_LIMIT = 20_000
TABBED = re.compile(r"\.tsv(\.\w+)?$", re.IGNORECASE)
ESCAPED = re.compile(r"\\(t|\\|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4})")


def open_csv(reader: RangeReader, options: Options) -> TextFile:
    """Open a CSV file and read its header. Type inference reads the whole file; the columns of a damaged file are
    strings, and a scan reports the damage."""
    if flag(options, INFER, False) and SCHEMA not in options:
        with suppress(DamagedSource):
            options = {**options, SCHEMA: to_ddl(infer_csv(reader, options))}
    dialect = dialect_of(options, reader.name)
    headed = flag(options, "header", True)
    opened = read_ends(reader, options, END_BYTES if SCHEMA in options else HEAD_BYTES)
    if headed and _ends_early(opened, dialect):
        opened = read_ends(reader, options, HEAD_BYTES)
    text = opened.head[opened.first :]
    names, first = _header(opened, dialect, text) if headed else (None, 0)
    head = _found(CsvGrammar(dialect, pa.schema([])), text[first:], opened.complete)
    width = max(int(head.widths.max(initial=0)), len(names or ()))
    given = parse_ddl(options[SCHEMA]) if SCHEMA in options else None
    schema = _limited(_schema(names, width, given), opened.path)
    return TextFile(opened, CsvGrammar(dialect, schema), opened.first + first, mean_bytes(head))


def infer_csv(reader: RangeReader, options: Options) -> pa.Schema:
    """As many columns as the widest record has fields, by the names of the header (`_c0`, `_c1` ... without one, and
    for fields beyond it). They are strings, unless `infer_schema` asks for the types that `Values` finds."""
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
        for values, texts in zip(seen, batch.columns, strict=False):  # the pointer's columns stand behind
            values.see(texts)
    return pa.schema([values.field(name) for name, values in zip(schema.names, seen, strict=True)])


def merge_csv(schemas: Sequence[pa.Schema]) -> pa.Schema:
    """The columns of several files by name, each where it is first seen, in the type that holds the values of all."""
    merged: dict[str, Values] = {}
    for field in (field for schema in schemas for field in schema):
        merged.setdefault(field.name, Values()).merge(values_of(field))
    return pa.schema([values.field(name) for name, values in merged.items()])


class CsvGrammar:
    def __init__(self, dialect: Dialect, schema: pa.Schema) -> None:
        self._dialect = dialect
        self.schema = schema

    @property
    def splittable(self) -> bool:
        return not self._dialect.multiline

    def find(self, data: bytes, final: bool) -> CsvBlock:
        return CsvBlock(self._dialect, self.schema, data, final)

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
        raise OptionError(f"option delimiter: {delimiter.decode()!r} is the quote or escape, too")
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
    raise OptionError(f"option {name}: {options[name]!r} is not one ASCII character, or a line end")


def _unescaped(match: re.Match[str]) -> str:
    """`\\t`, `\\x01` and `\\u0001`, for those who cannot type them."""
    text = match[1]
    return {"t": "\t", "\\": "\\"}.get(text) or chr(int(text[1:], 16))


def _found(grammar: CsvGrammar, text: bytes, complete: bool) -> CsvBlock:
    """The whole records of the head; of a damaged one, those before the damage, which a scan then comes upon."""
    try:
        return grammar.find(text, complete)
    except RefusedValue as error:
        return grammar.find(text[: error.index], True)


def _limited(schema: pa.Schema, path: str) -> pa.Schema:
    if len(schema) > COLUMNS_LIMIT:
        raise UnsupportedFormat(f"{len(schema)} columns, more than {COLUMNS_LIMIT}", path)
    return schema


def _ends_early(opened: Opened, dialect: Dialect) -> bool:
    """Whether the head is too short to hold the header."""
    text = opened.head[opened.first :]
    record = dialect.record(text, len(text) - len(text.lstrip(b"\r\n")))
    return not opened.complete and (record is None or record[1] >= len(text) - 1)


def _header(opened: Opened, dialect: Dialect, text: bytes) -> tuple[list[str], int]:
    """`(names, where the first row begins)`: of the first record that is not blank."""
    begin = len(text) - len(text.lstrip(b"\r\n"))
    record = dialect.record(text, begin)
    if _ends_early(opened, dialect):
        raise UnsupportedFormat(f"the header does not end within {len(text)} bytes", opened.path, opened.first)
    if record is None:
        raise DamagedSource(UNCLOSED.format("file"), opened.path, opened.first + begin)
    fields, end = record
    try:
        check_utf8(text, np.array([begin]), np.array([end]))
    except RefusedValue as error:
        raise DamagedSource(f"the header: {error}", opened.path, opened.first + begin) from None
    names = [value.decode() for value, _ in fields] if end > begin else []
    return names, min(end + (2 if text.startswith(b"\r\n", end) else 1), len(text))


def _schema(names: list[str] | None, width: int, given: pa.Schema | None) -> pa.Schema:
    """The columns of a file: `names` from its header, if it has one, and what is known of its records' width.

    A given schema says the columns of a file without a header, in their order. With a header it says the types of the
    columns by their names (others are strings); where it has none of the names, the names too, as in Spark."""
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
    """Names as Spark makes them: `_c3` for one that is empty, its place behind one that repeats."""
    counts = Counter(names)
    made: dict[str, None] = {}
    for place, name in enumerate(names):
        distinct = f"_c{place}" if not name else f"{name}{place}" if counts[name] > 1 else name
        while distinct in made:
            distinct += "_"
        made[distinct] = None
    return list(made)
