"""JSON texts, one for each row, as Arrow columns of a schema.

`by_rule` is the reference: it converts the text of a value, so that nothing is lost (integers of any size, the digits
of a decimal, the spelling of a value in a string column). It costs Python calls for each value. msgspec decodes a whole
row at once wherever the result is the same. `by_rule` converts the values that msgspec does not accept, and reports
errors.
"""

import base64
import binascii
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from operator import attrgetter
from types import GenericAlias
from typing import Any, TypedDict

import msgspec
import pyarrow as pa
from msgspec import Raw
from pyarrow import types

from gnomon.base.errors import check_memory
from gnomon.sources.errors import OptionError
from gnomon.sources.literals.text_values import SPECIAL, RefusedValue, converter, from_text, shown
from gnomon.sources.types import COMMENT, rebuilt

WHOLE = "value"  # the only column of rows that are not objects
WHOLE_LINE = {COMMENT: b"the whole line"}  # its metadata where some rows are objects
SPACES = b" \t\r\n"
NOT_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)  # RecursionError: nested some 900 levels deep

# Python, Spark and others write NaN and the infinities without quotes, which JSON does not allow. They are passed to
# msgspec as strings in a spelling that no writer uses, so that they can still be recognized as numbers.
SPELLED = {b"NaN": rb'"\u004eaN"', b"Infinity": rb'"\u0049nfinity"', b"-Infinity": rb'"\u002dInfinity"'}
BARE_NUMBERS = frozenset(SPELLED.values())
BARE = re.compile(rb'"(?:[^"\\]|\\.)*+"|(?<![\w.+-])(?:NaN|-?Infinity)(?![\w.+-])', re.DOTALL)
HALF = re.compile(r"\\u[dD](?:[89abAB]..(?!\\u[dD][c-fC-F])|[c-fC-F]..)")  # half a pair, once WHOLE_PAIR was removed
WHOLE_PAIR = re.compile(r"\\\\|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}")

decode_object = msgspec.json.Decoder(dict[str, Raw]).decode
decode_array = msgspec.json.Decoder(list[Raw]).decode
decode_string = msgspec.json.Decoder(str).decode
decode_raw = msgspec.json.Decoder(Raw).decode


class JsonColumns:
    """A schema (or some of its columns), prepared to read many rows. If a key repeats in an object the last one counts,
    as in Spark. A missing key gives null; keys that the schema does not name are ignored."""

    def __init__(self, schema: pa.Schema, columns: Sequence[str] | None = None) -> None:
        names = schema.names if columns is None else list(columns)
        self._fields = [schema.field(name) for name in dict.fromkeys(names)]
        self._schema = pa.schema([schema.field(name) for name in names])
        self._may_be_whole = schema.names == [WHOLE]
        self._whole = self._may_be_whole and (schema.field(0).metadata or {}).get(COMMENT) == WHOLE_LINE[COMMENT]
        for field in self._fields:
            _check_keys(field.type, field.name)
        self._row, self._fast = _row_type(self._fields)

    def read(self, texts: Sequence[bytes]) -> pa.RecordBatch:
        """The rows, one for each text (UTF-8, which the caller has checked). `RefusedValue` says which text is not
        JSON, or has a value of another type, and in which column."""
        try:
            rows = [self._decode(text) for text in texts]
            made = [_column(list(map(attrgetter(f"c{i}"), rows)), field) for i, field in enumerate(self._fields)]
        except (*NOT_JSON, pa.ArrowException, OverflowError, ValueError) as error:
            check_memory(error)
            for index, text in enumerate(texts):
                self._check(index, text)
            raise RefusedValue(0, f"the rows cannot be held: {error}") from error
        arrays = dict(zip((field.name for field in self._fields), made, strict=True))
        if not arrays:
            return pa.RecordBatch.from_struct_array(pa.array([{}] * len(rows), pa.struct([])))
        return pa.RecordBatch.from_arrays([arrays[name] for name in self._schema.names], schema=self._schema)

    def _decode(self, text: bytes) -> Any:
        if self._fast is not None and not self._whole:
            try:
                return self._fast(text)
            except msgspec.DecodeError:
                pass  # a value of another type, for example: `by_rule` may convert it
        return self._by_rule(text)

    def _check(self, index: int, text: bytes) -> None:
        """`RefusedValue` if this row has an error."""
        try:
            self._by_rule(text)
        except NOT_JSON as error:
            raise RefusedValue(index, not_json(error, text)) from None
        except ValueError as error:
            raise RefusedValue(index, str(error)) from None

    def _by_rule(self, text: bytes) -> Any:
        raw = one_value(text)
        if self._whole or (self._may_be_whole and raw[:1] not in b"{n"):
            return self._row(*(by_rule(raw, field.type, field.name) for field in self._fields))
        if raw == b"null":
            return self._row()
        if raw[:1] != b"{":
            raise ValueError(f"expected an object, found {_excerpt(raw)}")
        found = decode_object(raw)
        return self._row(*(_member(found, field) for field in self._fields))


def one_value(text: bytes) -> bytes:
    """The only JSON value of a row, unquoted NaN and infinities as in `SPELLED`. An error of `NOT_JSON` where the row
    is not one value."""
    try:
        return bytes(decode_raw(text)).strip(SPACES)
    except msgspec.DecodeError:
        spelled = BARE.sub(lambda found: SPELLED.get(found[0], found[0]), text)
        if spelled != text:
            with suppress(msgspec.DecodeError):
                return bytes(decode_raw(spelled)).strip(SPACES)
        raise


def not_json(error: Exception, text: bytes) -> str:
    """The message for a decoder's error about a row."""
    if isinstance(error, RecursionError):
        return "it is nested too deeply to be read"
    half = HALF.search(WHOLE_PAIR.sub(" ", text.decode(errors="replace")))
    if half is not None:
        return f"a line that is not one JSON value: {half[0][:6]} is half of a character (a surrogate), not valid text"
    return f"a line that is not one JSON value: {error}"


def by_rule(raw: bytes, kind: pa.DataType, path: str) -> Any:
    """The value of a JSON text in the given type, in a form that pyarrow accepts (temporal values and decimals: as
    text). `path` names the value in messages. `ValueError` where the text is no such value."""
    first = raw[:1]
    if raw == b"null":
        return None
    if types.is_string(kind):
        return decode_string(raw) if first == b'"' else _as_written(raw).decode()
    if types.is_nested(kind):
        return _nested(raw, kind, path)
    try:
        if types.is_boolean(kind) and first in b"tf":
            return raw == b"true"
        if first in b"-0123456789":
            return _number(raw, kind)
        if first == b'"':
            return _quoted(decode_string(raw), kind)
    except ValueError as error:
        raise ValueError(f"column {path}: {error}") from None
    raise ValueError(f"column {path}: expected {kind}, found {_excerpt(raw)}")


def _as_written(raw: bytes) -> bytes:
    for written, spelled in SPELLED.items():
        raw = raw.replace(spelled, written)
    return raw


def _number(raw: bytes, kind: pa.DataType) -> Any:
    text = raw.decode()
    if types.is_integer(kind) or types.is_floating(kind):
        return converter(kind)(text)
    if types.is_decimal(kind):
        return str(converter(kind)(text))
    if types.is_timestamp(kind) and text.lstrip("-").isdecimal() and len(text) <= 12:
        try:  # seconds since 1970, as in Spark
            moment = datetime(1970, 1, 1) + timedelta(seconds=int(text))
        except OverflowError:
            raise ValueError(f"expected {kind}, found {text}") from None
        return moment.isoformat()
    raise ValueError(f"expected {kind}, found {_excerpt(raw)}")


def _quoted(text: str, kind: pa.DataType) -> Any:
    if types.is_binary(kind):
        try:
            return base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError):
            raise ValueError(f"expected bytes in base64, found {shown(text)}") from None
    if types.is_floating(kind) and text in SPECIAL:
        return SPECIAL[text]
    if types.is_decimal(kind):
        return str(converter(kind)(text))
    if types.is_temporal(kind):
        converter(kind)(text)
        return text
    raise ValueError(f"expected {kind}, found the string {shown(text)}")


def _nested(raw: bytes, kind: pa.DataType, path: str) -> Any:
    first = raw[:1]
    if types.is_list(kind) and first == b"[":
        return [by_rule(bytes(item), kind.value_type, f"{path}[]") for item in decode_array(raw)]
    if types.is_struct(kind) and first == b"{":
        found = decode_object(raw)
        return {field.name: _member(found, field, f"{path}.") for field in kind}
    if types.is_map(kind) and first == b"{":
        pairs = decode_object(raw).items()
        return [(key, by_rule(bytes(item), kind.item_type, f"{path}.{key}")) for key, item in pairs]
    raise ValueError(f"column {path}: expected {kind}, found {_excerpt(raw)}")


def _member(found: dict[str, Raw], field: pa.Field, path: str = "") -> Any:
    raw = found.get(field.name)
    return None if raw is None else by_rule(bytes(raw), field.type, f"{path}{field.name}")


def _check_keys(kind: pa.DataType, name: str) -> None:
    if types.is_map(kind) and not types.is_string(kind.key_type):
        raise OptionError(f"schema: column {name} has a map whose keys are not strings; JSON has only string keys")
    for i in range(kind.num_fields):
        _check_keys(kind.field(i).type, name)


def _excerpt(raw: bytes) -> str:
    return shown(raw.decode())


def _row_type(fields: Sequence[pa.Field]) -> tuple[Any, Callable[[bytes], Any] | None]:
    """A class with an attribute c0, c1 ... for each column, and the function that decodes a text into an instance of
    it."""
    members = [(f"c{i}", _fast_type(field.type) or Raw, None) for i, field in enumerate(fields)]
    try:
        row = msgspec.defstruct("Row", members, rename={f"c{i}": field.name for i, field in enumerate(fields)})
    except ValueError:  # msgspec refuses names with quotes, backslashes or control characters
        return msgspec.defstruct("Row", members), None
    return row, msgspec.json.Decoder(row).decode


def _fast_type(kind: pa.DataType) -> Any:
    """The type that msgspec decodes a value to, or null; None where only `by_rule` gives the right value."""
    for is_kind, made in FAST:
        if is_kind(kind):
            return made | None
    if types.is_list(kind):
        item = _fast_type(kind.value_type)
        return item and GenericAlias(list, (item,)) | None
    if types.is_map(kind):
        item = _fast_type(kind.item_type)
        return item and GenericAlias(dict, (str, item)) | None
    if types.is_struct(kind):
        members = {field.name: _fast_type(field.type) for field in kind}
        # msgspec 0.22 misses names that are not ASCII in such a type (its pull request 1126).
        if all(made and name.isascii() for name, made in members.items()):
            return TypedDict("Record", members, total=False) | None  # type: ignore[operator]
    return None


# A 32-bit float is not here, since it would be rounded twice by way of a double. A decimal is not, since pyarrow loses
# digits, and crashes on exponents. A date or timestamp is decoded as text first.
FAST: tuple[tuple[Callable[[pa.DataType], bool], type], ...] = (
    (types.is_boolean, bool),
    (types.is_signed_integer, int),
    (types.is_float64, float),
    (types.is_string, str),
    (types.is_binary, bytes),
    (types.is_temporal, str),
)


def _column(values: list[Any], field: pa.Field) -> pa.Array:
    """The values of all rows as an array. `by_rule` converts the values that are not decoded yet."""
    kind = field.type
    if _fast_type(kind) is None:
        values = [by_rule(bytes(one).strip(SPACES), kind, field.name) if type(one) is Raw else one for one in values]
    return _finished(pa.array(values, _carrier(kind)), kind)


def _carrier(kind: pa.DataType) -> pa.DataType:
    """The type, with text in place of each type that pyarrow does not convert from text."""
    return rebuilt(kind, lambda each: pa.string() if types.is_temporal(each) or types.is_decimal(each) else each)


def _finished(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """A carrier's array, just made of Python values, converted to the type."""
    if array.type == kind:
        return array
    if types.is_struct(kind):
        columns = array.flatten()  # null below a null, where pyarrow's own children hold empty text
        children = [_finished(column, field.type) for column, field in zip(columns, kind, strict=True)]
        return pa.Array.from_buffers(kind, len(array), array.buffers()[:1], children=children)
    if types.is_list(kind):
        items = [_finished(array.values, kind.value_type)]
        return pa.Array.from_buffers(kind, len(array), array.buffers()[:2], children=items)
    if types.is_map(kind):
        pairs = [_finished(array.keys, kind.key_type), _finished(array.items, kind.item_type)]
        entries = pa.StructArray.from_arrays(pairs, fields=[kind.key_field, kind.item_field])
        return pa.Array.from_buffers(kind, len(array), array.buffers()[:2], children=[entries])
    return from_text(array, kind)
