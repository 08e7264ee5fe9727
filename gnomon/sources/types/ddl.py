"""Spark's DDL, the text that declares the columns of a file without types: `a bigint, b
array<struct<x:int,y:decimal(10,2)>> COMMENT 'why', `odd name` string`.

Nullability is ignored: any value may be missing from a text file. Comments are kept in the metadata of the field.
"""

import re

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
