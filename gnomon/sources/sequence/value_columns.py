"""Values that are text, parsed into columns: delimited as Hive's text serde writes them, or JSON.

Delimited text follows Hive. U+0001 separates fields, U+0002 items of arrays, maps and structs, U+0003 a map's keys from
their values, and one further character each deeper level; options replace the first three. `\\N`, or the option `null`,
is null, and so is an empty field of a type that is not text. Missing fields are null, extra fields are ignored. Nothing
is escaped without the option `escape`. Binary values are base64, as the serde writes them; bytes that are not base64
are the value itself, as the serde reads them. A value that is not of its type is refused.

Before an escaped text is split, its escaped bytes are replaced by bytes that no separator has. They are restored in the
parts.
"""

import re
from binascii import a2b_base64
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa
from pyarrow import types

from gnomon.base.arrow import compute as pc
from gnomon.sources.contract import Options
from gnomon.sources.errors import OptionError, UnsupportedFormat
from gnomon.sources.literals import JsonColumns, RefusedValue, from_text
from gnomon.sources.sequence.writables import Longs, writable_of
from gnomon.sources.types import int32s, int64s, parse_ddl, to_ddl

MARK = b"\xff"
RAW = MARK + b"\xc0\xc0"  # the byte of the mark itself
HIDDEN = re.compile(rb"\xff(..)", re.DOTALL)
MEANINGS = {b"r": b"\r", b"n": b"\n"}  # meanings of escaped letters
OPTIONS = {
    "value_format": "delimited or json: parse text values into columns",
    "schema": "the columns of parsed values, as Spark's DDL: a bigint, b string",
    "delimiter": "the delimiter of fields in delimited values; default: U+0001",
    "item_delimiter": "the delimiter of items of arrays, maps and structs in them; default: U+0002",
    "map_delimiter": "the delimiter of a map's keys and values in them; default: U+0003",
    "null": "the text that stands for null in them; default: \\N",
    "escape": "one character; the character after it is not a delimiter; default: none",
}
HIVE_DELIMITER = "\x01"
DELIMITERS = ("delimiter", "item_delimiter", "map_delimiter")
ITEMS, KEYS = 2, 3  # the levels of the delimiters of items and of a map's keys
TEXTUAL = (types.is_string, types.is_binary)
BASE64 = re.compile(rb"[A-Za-z0-9+/_= \t\r\n-]+")  # both alphabets, and white space
PLAIN_ALPHABET = bytes.maketrans(b"-_", b"+/")


class Escapes:
    """Hides and restores escaped bytes, for one escape byte."""

    def __init__(self, escape: bytes) -> None:
        self._escape = escape
        self._found = re.compile(re.escape(escape) + rb"(.)|\xff", re.DOTALL)

    def hide(self, text: bytes) -> bytes:
        """The text with escaped bytes hidden. An escape at the end of the text is an ordinary byte."""
        return self._found.sub(_hidden, text)

    def hide_all(self, texts: pa.Array) -> pa.Array:
        """Like `hide`, for a column of binary in which most texts hold no escape."""
        return _mapped(texts, self.hide, (self._escape, MARK))

    def unescape(self, texts: pa.Array) -> pa.Array:
        """Parts of hidden texts, with each escape and its byte replaced by their meaning."""
        return _mapped(texts, lambda text: HIDDEN.sub(_meant, text), (MARK,))

    def restore(self, texts: pa.Array) -> pa.Array:
        """Parts of hidden texts, unchanged from the file, with escapes."""
        return _mapped(texts, lambda text: HIDDEN.sub(self._as_it_stood, text), (MARK,))

    def _as_it_stood(self, match: re.Match[bytes]) -> bytes:
        byte = _byte(match[1])
        return MARK if byte is None else self._escape + byte


def _hidden(match: re.Match[bytes]) -> bytes:
    if match[1] is None:
        return RAW
    return MARK + bytes([0x80 | match[1][0] >> 4, 0x80 | match[1][0] & 0xF])


def _meant(match: re.Match[bytes]) -> bytes:
    byte = _byte(match[1])
    return MARK if byte is None else MEANINGS.get(byte, byte)


def _byte(hidden: bytes) -> bytes | None:
    """The byte that was escaped; None for the mark's own byte, which was not."""
    return None if hidden == RAW[1:] else bytes([(hidden[0] & 0xF) << 4 | hidden[1] & 0xF])


def _mapped(texts: pa.Array, change: Callable[[bytes], bytes], signs: tuple[bytes, ...]) -> pa.Array:
    if not any(pc.any(pc.match_substring(texts, sign)).as_py() for sign in signs):
        return texts
    return pa.array([None if text is None else change(text) for text in texts.to_pylist()], pa.binary())


class Marks(NamedTuple):
    """The delimiters within fields, and the text for null."""

    items: bytes = b"\x02"
    keys: bytes = b"\x03"
    null: bytes = b"\\N"
    escapes: Escapes | None = None

    def at(self, level: int) -> bytes:
        return {ITEMS: self.items, KEYS: self.keys}.get(level) or bytes([level])


class ValueColumns(Protocol):
    """Converts values to columns. `parse` raises RefusedValue, with the row, for an invalid value."""

    @property
    def schema(self) -> pa.Schema: ...

    def parse(self, values: pa.Array, columns: Sequence[str]) -> list[pa.Array]: ...


def value_columns(options: Options, value_class: str, path: str) -> ValueColumns | None:
    """The parser of values; None where values are not parsed. OptionError for options that contradict each other."""
    format, ddl, delimiter, *marks, escape = (options.get(name) for name in OPTIONS)
    if format is None:
        for name in list(OPTIONS)[1:]:
            if options.get(name) is not None:
                raise OptionError(f"option {name}: requires value_format")
        return None
    if format not in ("delimited", "json"):
        raise OptionError("option value_format", expected="delimited or json", found=repr(format))
    if ddl is None:
        raise OptionError(f"option value_format: {format} needs the option schema, as in 'a bigint, b string'")
    if not any(is_kind(writable_of(value_class).kind) for is_kind in TEXTUAL):
        raise UnsupportedFormat(f"values of class {value_class} are not text and cannot be parsed as {format}", path)
    schema = parse_ddl(ddl)
    if not len(schema):
        raise OptionError("option schema: it has no column")
    if format == "delimited":
        for name in DELIMITERS:
            if options.get(name) == "":
                raise OptionError(f"option {name}: it is empty")
        if escape is not None and len(escape.encode()) != 1:
            raise OptionError("option escape", expected="one ASCII character", found=repr(escape))
        own = Marks()
        items, keys, null = (
            default if mark is None else mark.encode()
            for mark, default in zip(marks, (own.items, own.keys, own.null), strict=True)
        )
        escapes = Escapes(escape.encode()) if escape is not None else None
        null = null if escapes is None else escapes.hide(null)  # its form in texts whose escapes are hidden
        return _Delimited(schema, HIVE_DELIMITER if delimiter is None else delimiter, Marks(items, keys, null, escapes))
    for name in (*DELIMITERS, "null", "escape"):
        if options.get(name) is not None:
            raise OptionError(f"option {name}: not applicable to JSON")
    return _Json(schema)


def unnamed_values(columns: pa.Schema) -> dict[str, str]:
    """The option that parses values into columns of these types, under names that only number them."""
    return {"schema": to_ddl(pa.schema([pa.field(f"_col{i}", field.type) for i, field in enumerate(columns)]))}


class _Json:
    """Parses JSON values, row by row."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self._made: dict[tuple[str, ...], JsonColumns] = {}

    def parse(self, values: pa.Array, columns: Sequence[str]) -> list[pa.Array]:
        texts = values.cast(pa.binary())
        _utf8(texts)
        key = tuple(columns)
        made = self._made.get(key)
        if made is None:
            made = self._made[key] = JsonColumns(self.schema, columns)
        return list(made.read(texts.to_pylist()).columns)


class _Delimited:
    def __init__(self, schema: pa.Schema, delimiter: str, marks: Marks) -> None:
        self.schema = schema
        self._delimiter = delimiter.encode()
        self._marks = marks

    def parse(self, values: pa.Array, columns: Sequence[str]) -> list[pa.Array]:
        texts, escapes = values.cast(pa.binary()), self._marks.escapes
        parts = _Parts(texts if escapes is None else escapes.hide_all(texts), self._delimiter)
        made = {name: self._column(parts, self.schema.get_field_index(name)) for name in dict.fromkeys(columns)}
        return [made[name] for name in columns]

    def _column(self, parts: "_Parts", ordinal: int) -> pa.Array:
        field = self.schema.field(ordinal)
        try:
            return _converted(parts.item(ordinal), field.type, self._marks, ITEMS)
        except RefusedValue as error:
            raise RefusedValue(error.index, f"field {field.name!r}: {error}") from None


class _Parts:
    """Texts split at a separator. `offsets`: the begin of the items of each text in `items`; a null has none."""

    def __init__(self, texts: pa.Array, separator: bytes, most: int | None = None) -> None:
        lists = pc.split_pattern(texts, separator, max_splits=most)
        self.items: pa.Array = lists.values
        self.offsets: Longs = lists.offsets.to_numpy().astype(np.int64)

    def item(self, ordinal: int) -> pa.Array:
        """The item with that ordinal of each text; null for a text with fewer items."""
        at = self.offsets[:-1] + ordinal
        exists = at < self.offsets[1:]
        places = int64s(np.where(exists, at, 0))
        return self.items.take(pc.if_else(pa.array(exists), places, None))

    def of_text(self, index: int) -> int:
        """The ordinal of the text that contains an item."""
        return int(np.searchsorted(self.offsets, index, "right")) - 1


def _converted(texts: pa.Array, kind: pa.DataType, marks: Marks, level: int) -> pa.Array:
    """The texts, which are binary, converted to a type. `level`: that of the next separator."""
    texts = pc.if_else(pc.equal(texts, marks.null), None, texts)
    if marks.escapes is not None and not types.is_nested(kind):
        texts = marks.escapes.unescape(texts) if types.is_string(kind) else marks.escapes.restore(texts)
    if types.is_binary(kind):
        return pa.array([None if text is None else _from_base64(text) for text in texts.to_pylist()], kind)
    if types.is_string(kind):
        return texts.view(kind)
    if types.is_nested(kind):
        return _nested(texts, kind, marks, level)
    texts = pc.if_else(pc.equal(pc.binary_length(texts), 0), None, texts)
    _utf8(texts)
    return from_text(texts.view(pa.string()), kind)


def _from_base64(text: bytes) -> bytes:
    """The bytes of a base64 text. A text that ends inside a group of four characters, or has padding inside, is read up
    to there."""
    if BASE64.fullmatch(text) is None:
        return text
    digits = text.partition(b"=")[0].translate(PLAIN_ALPHABET, b" \t\r\n")
    whole = digits[:-1] if len(digits) % 4 == 1 else digits
    return a2b_base64(whole + b"=" * (-len(whole) % 4)) or text


def _nested(texts: pa.Array, kind: pa.DataType, marks: Marks, level: int) -> pa.Array:
    nulls = texts.is_null()
    separator = marks.at(level)
    if types.is_struct(kind):
        parts = _Parts(texts, separator)
        fields = [_converted(parts.item(i), kind.field(i).type, marks, level + 1) for i in range(kind.num_fields)]
        return pa.StructArray.from_arrays(fields, fields=list(kind), mask=nulls)
    # an empty text has no items
    parts = _Parts(pc.if_else(pc.equal(pc.binary_length(texts), 0), None, texts), separator)
    offsets = int32s(parts.offsets.astype(np.int32))
    if types.is_list(kind):
        items = _within(parts, lambda: _converted(parts.items, kind.value_type, marks, level + 1))
        return pa.ListArray.from_arrays(offsets, items, type=kind, mask=nulls)
    pairs = _Parts(parts.items, marks.at(level + 1), most=1)
    keys = _within(parts, lambda: _converted(pairs.item(0), kind.key_type, marks, level + 2))
    if keys.null_count:
        raise RefusedValue(parts.of_text(int(np.flatnonzero(keys.is_null())[0])), "a map has a null as key")
    items = _within(parts, lambda: _converted(pairs.item(1), kind.item_type, marks, level + 2))
    return pa.MapArray.from_arrays(offsets, keys, items, type=kind, mask=nulls)


def _within(parts: _Parts, convert: Callable[[], pa.Array]) -> pa.Array:
    """The result of `convert` on the items. A refusal names the text that contains the item."""
    try:
        return convert()
    except RefusedValue as error:
        raise RefusedValue(parts.of_text(error.index), str(error)) from None


def _utf8(texts: pa.Array) -> None:
    """RefusedValue for the first text that is not UTF-8."""
    try:
        texts.cast(pa.string())
    except pa.ArrowInvalid:
        for index, text in enumerate(texts.to_pylist()):
            try:
                if text is not None:
                    text.decode()
            except UnicodeDecodeError as error:
                raise RefusedValue(index, f"is not UTF-8: {error}") from None
        raise
