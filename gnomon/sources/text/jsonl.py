"""JSON lines: one value in a line (LF or CRLF). Blank lines are skipped.

A JSON text of several lines is an error: its first line is not a value. New files are like an existing one of the
source: an object in a line, keys in the order of the columns, nulls written or left out.
"""

import base64
import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import types

from gnomon.base.arrow import compute as pc
from gnomon.base.readers import RangeReader
from gnomon.sources.contract import Options
from gnomon.sources.errors import DamagedSource, UnsupportedFormat
from gnomon.sources.literals import (
    SPACES,
    WHOLE,
    WHOLE_LINE,
    JsonColumns,
    RefusedValue,
    Shape,
    TooManyNames,
    decode_object,
    infer_rows,
    one_value,
    schema_of,
    texts_of,
)
from gnomon.sources.text.text_file import OPTIONS, Block, Opened, Positions, TextFile, TextWriter, mean_bytes, read_ends
from gnomon.sources.types import COMMENT, holds, parse_ddl, rebuilt, to_ddl

SCHEMA = "schema"
JSON_OPTIONS: Mapping[str, str] = {
    SCHEMA: "the columns, as Spark's DDL; default: inferred from all rows",
    **OPTIONS,
}
HEAD_BYTES = 64 << 10
LF, CR = 10, 13
LEADING_SPACE = np.array([*SPACES], dtype=np.uint8)
ENDINGS = (".jsonl", ".ndjson", ".json")
NULL = "null"
NO_FIELDS = pa.schema([])
NULL_MEMBER = re.compile(rb'":\s*null\b')


def open_jsonl(reader: RangeReader, options: Options) -> TextFile:
    """Open a file of JSON lines with the schema of the option `schema`. Without that option, the whole file is read to
    infer one; the schema of a damaged file comes from the rows before the damage, which a scan reports."""
    opened = read_ends(reader, options, HEAD_BYTES)
    if SCHEMA in options:
        return _file(opened, parse_ddl(options[SCHEMA]))
    shape = Shape()
    with suppress(DamagedSource):
        _infer(reader, opened, shape)
    return _file(opened, parse_ddl(to_ddl(schema_of(shape))))


def infer_jsonl(reader: RangeReader, options: Options) -> pa.Schema:
    """The schema of all rows, by the rules of `gnomon.sources.literals.inference`."""
    shape = Shape()
    _infer(reader, read_ends(reader, options, HEAD_BYTES), shape)
    return schema_of(shape)


def _infer(reader: RangeReader, opened: Opened, shape: Shape) -> None:
    for base, block in _file(opened, pa.schema([])).blocks(reader, 0, opened.size):
        rows, refused = len(block.starts), None
        while rows:
            try:
                infer_rows(shape, block.texts(0, rows))
                break
            # invalid UTF-8 before any row was seen; an invalid row after the rows before it were
            except RefusedValue as error:
                refused, rows = refused or error, error.index
        if refused is not None:
            kind = UnsupportedFormat if isinstance(refused, TooManyNames) else DamagedSource
            raise kind(str(refused), opened.path, base + int(block.starts[refused.index])) from None


def _file(opened: Opened, schema: pa.Schema) -> TextFile:
    grammar = JsonGrammar(schema)
    row_bytes = mean_bytes(grammar.find(opened.head[opened.first :], opened.complete))
    return TextFile(opened, grammar, opened.first, row_bytes)


class JsonGrammar:
    splittable = True

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self._readers: dict[tuple[str, ...], JsonColumns] = {}
        self.reader_of(schema.names)

    def reader_of(self, columns: Sequence[str]) -> JsonColumns:
        made = self._readers.get(tuple(columns))
        if made is None:
            made = self._readers[tuple(columns)] = JsonColumns(self.schema, columns)
        return made

    def find(self, data: bytes, final: bool) -> "JsonBlock":
        return JsonBlock(self, data, final)

    def end_of(self, data: bytes, begin: int, final: bool) -> int | None:
        end = data.find(b"\n", begin)
        if end < 0:
            return len(data) if final else None
        return end - 1 if end > begin and data[end - 1] == CR else end

    def next_line(self, data: bytes) -> int | None:
        return data.find(b"\n") + 1 or None

    def parts(self, before: int, after: int) -> bool:
        return before == LF


class JsonBlock(Block):
    def __init__(self, grammar: JsonGrammar, data: bytes, final: bool) -> None:
        self._grammar = grammar
        self.data = data
        array = np.frombuffer(data, dtype=np.uint8)
        ends = np.flatnonzero(array == LF)
        self.consumed = int(ends[-1]) + 1 if len(ends) else 0
        starts = np.concatenate(([0], ends[:-1] + 1)) if len(ends) else ends
        if final and self.consumed < len(data):
            starts, ends = np.append(starts, self.consumed), np.append(ends, len(data))
            self.consumed = len(data)
        ends = ends - ((ends > starts) & (array[np.maximum(ends - 1, 0)] == CR) if len(ends) else 0)
        self.starts, self.ends = self._without_blank(array, starts, ends)

    def _without_blank(
        self, array: NDArray[np.uint8], starts: Positions, ends: Positions
    ) -> tuple[Positions, Positions]:
        kept = starts < ends
        starts, ends = starts[kept], ends[kept]
        suspects = np.flatnonzero(np.isin(array[starts], LEADING_SPACE)).tolist()
        blank = [i for i in suspects if not self.data[starts[i] : ends[i]].strip(SPACES)]
        return np.delete(starts, blank), np.delete(ends, blank)

    def read(self, begin: int, end: int, columns: Sequence[str]) -> pa.RecordBatch:
        return self._grammar.reader_of(columns).read(self.texts(begin, end))


@dataclass(frozen=True)
class JsonlStyle:
    """How JSON lines are written. `fields` are the columns of the file as they are read. `nulls`: nulls are written,
    else their keys are left out. `whole`: the rows are values instead of objects, in the only column."""

    fields: pa.Schema = NO_FIELDS
    nulls: bool = False
    whole: bool = False
    ending: str = ".jsonl"

    @property
    def columns(self) -> Sequence[str]:
        return list(self.fields.names)

    def open(self, schema: pa.Schema, path: str) -> "JsonlWriter":
        return JsonlWriter(self, schema, path)


def jsonl_style(reader: RangeReader | None, options: Options) -> JsonlStyle:
    """The style of a file, with its text decompressed; without a file, keys of nulls are left out, as in Spark."""
    if reader is None:
        return JsonlStyle()
    schema = open_jsonl(reader, options).schema
    opened = read_ends(reader, options, HEAD_BYTES)
    rows = [_values(line) for line in opened.head[opened.first :].splitlines()[:1000] if line.strip()]
    # columns where a null may be that of a map entry
    mapped = {one.name for one in schema if holds(one.type, types.is_map)}
    nulls = any(_has_null(value, name in mapped) for row in rows for name, value in (row or {}).items())
    path = reader.name.lower()
    of_name = next((one for one in ENDINGS if one in path.rpartition("/")[2]), ENDINGS[0])
    line = schema.names == [WHOLE] and (schema.field(0).metadata or {}).get(COMMENT) == WHOLE_LINE[COMMENT]
    whole = line or (schema.names == [WHOLE] and bool(rows) and rows[0] is None)
    return JsonlStyle(schema, nulls, whole, of_name)


def _values(line: bytes) -> dict[str, bytes] | None:
    """The values of an object; None where the line is not an object. The line may be truncated."""
    try:
        return {name: bytes(value) for name, value in decode_object(one_value(line)).items()}
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _has_null(value: bytes, mapped: bool) -> bool:
    return value == NULL.encode() or (value[:1] in b"[{" and not mapped and NULL_MEMBER.search(value) is not None)


class JsonlWriter(TextWriter):
    def __init__(self, style: JsonlStyle, schema: pa.Schema, path: str) -> None:
        super().__init__(style.fields, schema, _natural, path)
        self._style = style
        if style.whole and len(self._columns) > 1:
            what = "the rows of the source's files are not objects"
            raise UnsupportedFormat(what, path, expected=f"the one column {WHOLE}")

    def _texts(self, array: pa.Array, column: str) -> list[str | None]:
        return _texts(array, self._style.nulls)

    def _records(self, columns: Sequence[list[str | None]]) -> str:
        names = [column.field.name for column in self._columns]
        lines = columns[0] if self._style.whole else _objects(names, columns, self._style.nulls)
        return "".join(f"{line or NULL}\n" for line in lines)


def _objects(names: Sequence[str], columns: Sequence[Sequence[str | None]], nulls: bool) -> list[str]:
    heads = [f"{json.dumps(name, ensure_ascii=False)}:" for name in names]
    spelled = [
        [(head + NULL if nulls else None) if text is None else head + text for text in column]
        for head, column in zip(heads, columns, strict=True)
    ]
    return ["{" + ",".join(filter(None, members)) + "}" for members in zip(*spelled, strict=True)]


def _texts(array: pa.Array, nulls: bool) -> list[str | None]:
    """The JSON of each value, None for null."""
    kind, valid = array.type, array.is_valid().to_pylist()
    if types.is_struct(kind):
        columns = [_texts(column, nulls) for column in array.flatten()]
        made = _objects([one.name for one in kind], columns, nulls) if columns else ["{}"] * len(array)
        return [text if is_valid else None for text, is_valid in zip(made, valid, strict=True)]
    if types.is_list(kind):
        items = [text or NULL for text in _texts(array.flatten(), nulls)]
        lengths = pc.fill_null(pc.list_value_length(array), 0).to_pylist()
        return _joined(lengths, items, valid, "[]")
    if types.is_map(kind):
        return _maps(array, valid, nulls)
    if types.is_binary(kind):
        return [None if value is None else f'"{base64.b64encode(value).decode()}"' for value in array.to_pylist()]
    texts: list[str | None] = texts_of(array).to_pylist()
    if types.is_string(kind) or types.is_temporal(kind):
        return [None if text is None else json.dumps(text, ensure_ascii=False) for text in texts]
    if types.is_floating(kind):
        return [f'"{text}"' if text in ("NaN", "Infinity", "-Infinity") else text for text in texts]
    return texts


def _maps(array: pa.MapArray, valid: Sequence[bool], nulls: bool) -> list[str | None]:
    some = array.drop_null() if array.null_count else array
    offsets = some.offsets.to_pylist() or [0]
    begin, count = offsets[0], offsets[-1] - offsets[0]
    keys = _texts(some.keys.slice(begin, count), nulls)
    items = _texts(some.items.slice(begin, count), nulls)
    pairs = [f"{key}:{item or NULL}" for key, item in zip(keys, items, strict=True)]
    found = iter([after - before for before, after in pairwise(offsets)])
    return _joined([next(found) if is_valid else 0 for is_valid in valid], pairs, valid, "{}")


def _joined(lengths: Sequence[int], items: Sequence[str], valid: Sequence[bool], marks: str) -> list[str | None]:
    texts: list[str | None] = []
    at = 0
    for length, is_valid in zip(lengths, valid, strict=True):
        texts.append(f"{marks[0]}{','.join(items[at : at + length])}{marks[1]}" if is_valid else None)
        at += length
    return texts


def _natural(kind: pa.DataType) -> pa.DataType:
    if holds(kind, lambda each: types.is_map(each) and not types.is_string(each.key_type)):
        raise TypeError("JSON has only string keys")
    return rebuilt(kind, _natural_flat)


def _natural_flat(kind: pa.DataType) -> pa.DataType:
    if types.is_large_string(kind) or types.is_string_view(kind):
        return pa.string()
    if not types.is_binary(kind):
        texts_of(pa.array([], kind))
    return kind
