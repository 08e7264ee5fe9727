"""Writes JSON lines like an existing file of the source: an object in a line, keys in the order of the columns, nulls
written or left out.
"""

import base64
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from gnomon.base.readers import RangeReader
from gnomon.sources.contract import Options
from gnomon.sources.errors import UnsupportedFormat
from gnomon.sources.text.jsonl import HEAD_BYTES, open_jsonl
from gnomon.sources.text.open_text import read_ends
from gnomon.sources.types import COMMENT, WHOLE, WHOLE_LINE, arrays_of, decode_object, one_value, plan_columns, texts_of

ENDINGS = (".jsonl", ".ndjson", ".json")
NULL = "null"
NULL_MEMBER = re.compile(rb'":\s*null\b')


@dataclass(frozen=True)
class JsonlStyle:
    """How JSON lines are written. `fields` are the columns of the file as they are read. `nulls`: nulls are written,
    else their keys are left out. `whole`: the rows are values instead of objects, in the only column."""

    fields: pa.Schema = field(default_factory=lambda: pa.schema([]))
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
    mapped = {one.name for one in schema if _has_map(one.type)}  # columns where a null may be that of a map entry
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


def _has_map(kind: pa.DataType) -> bool:
    return bool(types.is_map(kind)) or any(_has_map(kind.field(i).type) for i in range(kind.num_fields))


def _has_null(value: bytes, mapped: bool) -> bool:
    return value == NULL.encode() or (value[:1] in b"[{" and not mapped and NULL_MEMBER.search(value) is not None)


class JsonlWriter:
    """Writes JSON lines, from the texts of whole columns."""

    def __init__(self, style: JsonlStyle, schema: pa.Schema, path: str) -> None:
        self._style, self._path = style, path
        self._columns = plan_columns(style.fields, schema, _natural, path)
        if style.whole and len(self._columns) > 1:
            what = "the rows of the source's files are not objects"
            raise UnsupportedFormat(what, path, expected=f"the one column {WHOLE}")
        self._out: list[bytes] = []
        self.size = 0

    def write(self, batch: pa.RecordBatch) -> None:
        arrays = arrays_of(self._columns, batch, self._path)
        columns = []
        for column, array in zip(self._columns, arrays, strict=True):
            try:
                columns.append(_texts(array, self._style.nulls))
            except ValueError as error:
                raise UnsupportedFormat(str(error), self._path, column=column.field.name) from None
        names = [column.field.name for column in self._columns]
        lines = columns[0] if self._style.whole else _objects(names, columns, self._style.nulls)
        data = "".join(f"{line or NULL}\n" for line in lines).encode()
        self._out.append(data)
        self.size += len(data)

    def finish(self) -> bytes:
        return b"".join(self._out)


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
    if types.is_struct(kind):
        return pa.struct([one.with_type(_natural(one.type)) for one in kind])
    if types.is_map(kind):
        if not types.is_string(kind.key_type):
            raise TypeError("JSON has only string keys")
        return pa.map_(pa.string(), _natural(kind.item_type))
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return pa.list_(_natural(kind.value_type))
    if types.is_large_string(kind) or types.is_string_view(kind):
        return pa.string()
    if not types.is_binary(kind):
        texts_of(pa.array([], kind))
    return kind
