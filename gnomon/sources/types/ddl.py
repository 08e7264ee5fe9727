"""Spark's DDL, the text that declares the columns of a file without types: `a bigint, b
array<struct<x:int,y:decimal(10,2)>> COMMENT 'why', `odd name` string`.

Nullability is ignored: any value may be missing from a text file. Comments are kept in the metadata of the field.

A table that renames its columns records each one's field id in files, its names there, or both, as JSON in the comment:
`price decimal(9,2) COMMENT '{"id": 7}'`. With an id, a file whose fields have ids is matched by them, as Iceberg and
Delta ask; another file by the names. Without a record, names match without regard to case.

The record also has the default of a column, `{"id": 7, "default": "12.50"}`: the value of all rows of files that lack
the column, in Iceberg's form of single values in JSON.
"""

import datetime as dt
import json
import re
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

import pyarrow as pa
from pyarrow import types

from gnomon.sources.errors import OptionError

COMMENT = b"comment"  # key in a field's metadata
DEPTH_LIMIT = 64  # levels of array, map and struct

TOKEN = re.compile(r"\s*(?:`((?:[^`]|``)*)`|'((?:[^'\\]|\\.)*)'|\"((?:[^\"\\]|\\.)*)\"|(\w+)|([<>(),:]))")
PLAIN_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
INSTANT = pa.timestamp("us", "UTC")

SIMPLE: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "byte": pa.int8(),
    "smallint": pa.int16(),
    "short": pa.int16(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "long": pa.int64(),
    "float": pa.float32(),
    "real": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": INSTANT,
    "timestamp_ltz": INSTANT,
    "timestamp_ntz": pa.timestamp("us"),
    "time": pa.time64("us"),
    "void": pa.null(),
}
SIZED_TEXT = ("char", "character", "varchar")
DECIMALS = ("decimal", "dec", "numeric")
NAMES = {kind: name for name, kind in reversed(SIMPLE.items())}
NAMES.update({pa.large_string(): "string", pa.string_view(): "string"})
NAMES.update({pa.large_binary(): "binary", pa.binary_view(): "binary"})
FIELD_ID = b"PARQUET:field_id"  # key in a field's metadata, from Arrow
ORC_FIELD_ID = b"iceberg.id"  # key in the metadata of a field of an ORC file, from Iceberg


def parse_ddl(text: str) -> pa.Schema:
    """The columns, in Arrow's types: timestamps in microseconds, instants in UTC. `OptionError` names the character
    (from 0) where the text is not DDL. Columns whose names repeat are refused."""
    return pa.schema(_Parser(text).fields(end=""))


def to_ddl(schema: pa.Schema) -> str:
    """The text that `parse_ddl` parses to the same columns. `OptionError` for a type that Spark does not have."""
    return ", ".join(f"{_name(field.name)} {_type(field.type)}{_comment(field)}" for field in schema)


class _Parser:
    """A recursive-descent parser. The current token is in `_mark` and `_value`."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._start = self._next = 0  # start and end of the current token
        self._depth = 0
        self._advance()

    def fields(self, end: str) -> list[pa.Field]:
        """`name type, ...` up to the mark `end`, which is not consumed."""
        found: dict[str, pa.Field] = {}
        while not self._at(end):
            if found:
                self._take(",")
            start = self._start
            field = self._field()
            if field.name in found:
                raise self._error(f"the name {field.name!r} occurs twice", start)
            found[field.name] = field
        return list(found.values())

    def _field(self) -> pa.Field:
        name = self._word("a name")
        if self._at(":"):
            self._advance()
        kind = self._kind()
        if self._keyword("not") and not self._keyword("null"):
            raise self._error("expected NULL after NOT")
        comment = self._word("a comment").encode() if self._keyword("comment") else None
        return pa.field(name, kind, metadata=None if comment is None else {COMMENT: comment})

    def _kind(self) -> pa.DataType:
        start = self._start
        name = self._word("a type").lower()
        numbers = self._numbers()
        if name in DECIMALS:
            return self._decimal(numbers, start)
        if name in SIZED_TEXT or (name in SIMPLE and (not numbers or name == "time")):
            return SIMPLE.get(name, pa.string())
        nested = {"array": self._array, "map": self._map, "struct": self._struct}.get(name)
        if nested is None or numbers:
            raise self._error(f"{self._text[start : self._start].strip()!r} is not a type of Spark", start)
        self._depth += 1
        if self._depth > DEPTH_LIMIT:
            raise self._error(f"types are nested more than {DEPTH_LIMIT} deep", start)
        self._take("<")
        made = nested()
        self._take(">")
        self._depth -= 1
        return made

    def _array(self) -> pa.DataType:
        return pa.list_(self._kind())

    def _map(self) -> pa.DataType:
        key = self._kind()
        self._take(",")
        return pa.map_(key, self._kind())

    def _struct(self) -> pa.DataType:
        return pa.struct(self.fields(end=">"))

    def _decimal(self, numbers: list[int], start: int) -> pa.DataType:
        precision, scale, *more = [*(numbers or [10]), 0][: max(len(numbers), 2)]
        if more or not 1 <= precision <= 38 or scale > precision:
            raise self._error("a decimal has 1 to 38 digits, of which any number may follow the point", start)
        return pa.decimal128(precision, scale)

    def _numbers(self) -> list[int]:
        """The numbers of `(10, 2)`; empty if there are none."""
        numbers: list[int] = []
        if not self._at("("):
            return numbers
        while not numbers or self._at(","):
            self._advance()
            number = self._word("a number")
            if not number.isdecimal() or len(number) > 9:
                raise self._error(f"expected a number, found {number!r}")
            numbers.append(int(number))
        self._take(")")
        return numbers

    def _at(self, mark: str) -> bool:
        return self._mark == mark and self._value is None

    def _keyword(self, word: str) -> bool:
        """Whether the token is this word. If so, it is consumed."""
        if self._mark or (self._value or "").lower() != word:
            return False
        self._advance()
        return True

    def _word(self, what: str) -> str:
        if self._value is None:
            raise self._error(f"expected {what}, found {self._mark or 'the end'}")
        value = self._value
        self._advance()
        return value

    def _take(self, mark: str) -> None:
        if not self._at(mark):
            raise self._error(f"expected {mark}, found {self._mark or self._value or 'the end'}")
        self._advance()

    def _advance(self) -> None:
        """Read the next token into `_mark` and `_value`. A mark has no value; the end is the mark ""."""
        self._start = self._next
        self._mark, self._value = "", None
        if not self._text[self._start :].strip():
            return
        match = TOKEN.match(self._text, self._start)
        if match is None:
            raise self._error(f"cannot be read: {self._text[self._start :].strip()[:20]!r}")
        self._next = match.end()
        name, single, double, word, mark = match.groups()
        if mark is not None:
            self._mark = mark
        elif name is not None:
            self._value = name.replace("``", "`")
        elif word is not None:
            self._value = word
        else:
            self._value = re.sub(r"\\(.)", r"\1", single if single is not None else double, flags=re.DOTALL)

    def _error(self, message: str, position: int | None = None) -> OptionError:
        at = self._start if position is None else position
        return OptionError(f"schema {self._text[:200]!r}, at character {at}: {message}")


def _type(kind: pa.DataType) -> str:
    if kind in NAMES:
        return NAMES[kind]
    if types.is_decimal(kind) and kind.precision <= 38 and 0 <= kind.scale <= kind.precision:
        return f"decimal({kind.precision},{kind.scale})"
    if types.is_map(kind):
        return f"map<{_type(kind.key_type)},{_type(kind.item_type)}>"
    if types.is_struct(kind):
        return f"struct<{','.join(f'{_name(f.name)}:{_type(f.type)}{_comment(f)}' for f in kind)}>"
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return f"array<{_type(kind.value_type)}>"
    raise OptionError(f"Spark's DDL has no type for {kind}")


def _name(name: str) -> str:
    quoted = name.replace("`", "``")
    return name if PLAIN_NAME.fullmatch(name) else f"`{quoted}`"


def _comment(field: pa.Field) -> str:
    comment = (field.metadata or {}).get(COMMENT)
    if comment is None:
        return ""
    quoted = re.sub(r"(['\\])", r"\\\1", comment.decode())
    return f" COMMENT '{quoted}'"


class Record(NamedTuple):
    """A table's record of a field: its field id in files, and its names in files without field ids."""

    id: int | None
    names: tuple[str, ...]


def matching(found: Sequence[pa.Field], wanted: Iterable[pa.Field]) -> list[tuple[pa.Field, list[int]]]:
    """Each wanted field, with the places of the found fields that match it: mostly one; none where the file lacks it;
    several where the match is ambiguous."""
    by_letters: dict[str, list[int]] = {}
    by_name: dict[str, list[int]] = {}
    by_id: dict[int, list[int]] = {}
    for place, field in enumerate(found):
        by_letters.setdefault(field.name.lower(), []).append(place)
        by_name.setdefault(field.name, []).append(place)
        number = field_id(field)
        if number is not None:
            by_id.setdefault(number, []).append(place)
    pairs = []
    for field in wanted:
        record = record_of(field)
        if record is None:
            places = by_letters.get(field.name.lower(), [])
        elif record.id is not None and by_id:
            places = by_id.get(record.id, [])
        else:
            places = [place for name in record.names for place in by_name.get(name, ())]
        pairs.append((field, places))
    return pairs


def field_id(field: pa.Field) -> int | None:
    """The field id of a field of a file; None where it has none."""
    metadata = field.metadata or {}
    number = metadata.get(FIELD_ID, metadata.get(ORC_FIELD_ID))
    return None if number is None else int(number)


def record_of(field: pa.Field) -> Record | None:
    """The record of a field; None where the table has none."""
    comment = (field.metadata or {}).get(COMMENT, b"")
    if not comment.startswith(b"{"):
        return None
    content = json.loads(comment)
    return Record(content.get("id"), tuple(content.get("names", ())))


def default_of(field: pa.Field) -> pa.Scalar | None:
    """The value of a field in files that lack it; None for null."""
    comment = (field.metadata or {}).get(COMMENT, b"")
    value = json.loads(comment).get("default") if comment.startswith(b"{") else None
    return None if value is None else pa.scalar(_from_json(value, field.type), field.type)


def default_array(field: pa.Field, rows: int) -> pa.Array:
    """The values of a field for the rows of a file that lacks it."""
    default = default_of(field)
    return pa.nulls(rows, field.type) if default is None else pa.repeat(default, rows)


def _from_json(value: Any, kind: pa.DataType) -> Any:
    """A single value in the form that Arrow takes."""
    if types.is_decimal(kind):
        return Decimal(value)
    if types.is_date(kind):
        return dt.date.fromisoformat(value)
    if types.is_timestamp(kind):
        return dt.datetime.fromisoformat(value)
    if types.is_binary(kind):
        return bytes.fromhex(value)
    if types.is_integer(kind) and isinstance(value, str):  # a time, which is declared as its microseconds
        time = dt.time.fromisoformat(value)
        return ((time.hour * 60 + time.minute) * 60 + time.second) * 1_000_000 + time.microsecond
    return value


def has_field_ids(columns: Iterable[pa.Field]) -> bool:
    """Whether a table records field ids of its columns."""
    records = (record_of(column) for column in columns)
    return any(record is not None and record.id is not None for record in records)


def has_records(kind: pa.DataType) -> bool:
    """Whether a type has fields with a table's record."""
    if types.is_struct(kind):
        return any(record_of(field) is not None or has_records(field.type) for field in kind)
    return any(has_records(kind.field(i).type) for i in range(kind.num_fields))


def lacks_names(found: Sequence[pa.Field], wanted: Iterable[pa.Field]) -> bool:
    """Whether a file has no field ids, and the table records ids alone: its columns cannot be matched."""
    records = [record for record in map(record_of, wanted) if record is not None]
    has_ids = any(field_id(field) is not None for field in found)
    return bool(records) and not has_ids and not any(record.names for record in records)
