"""The types of JSON rows and of CSV columns, as Spark infers them, but without loss.

JSON: integers are bigint, other numbers double, objects structs with their fields by name. Columns of several kinds,
and of nulls only, are string. CSV: integers are int or bigint, or decimal if larger; fractions are double; then come
boolean, date and timestamp; columns of several kinds are string.

Where Spark would round or truncate, the type is wider. Integers beyond 64 bits are decimals. So are fractions, if a
double does not give one of them back as written or with 17 digits. Numbers of more than 38 digits are string. In CSV so
are times finer than microseconds, and decimals if some have white space around them.

When types of several files will be merged, the metadata of each field records the numbers and nulls that were seen. The
merged schema of JSON files has this record in the fields' comments, which DDL keeps. So later files widen a column as
if all files came at once.
"""

import re
from collections.abc import Iterable, Sequence
from decimal import Decimal

import pyarrow as pa
from msgspec import Raw
from pyarrow import types

from gnomon.base.arrow import compute as pc
from gnomon.sources.literals.json_values import (
    BARE_NUMBERS,
    NOT_JSON,
    SPACES,
    WHOLE,
    WHOLE_LINE,
    decode_array,
    decode_object,
    not_json,
    one_value,
)
from gnomon.sources.literals.text_values import NUMBER, SPECIAL, RefusedValue, converter
from gnomon.sources.types import COMMENT, DEPTH_LIMIT

FIELD_LIMIT = 10_000  # names in one object; more are data, not names
DIGITS_LIMIT = 38  # digits of a decimal
LONG_DIGITS = 20  # digits of a decimal that replaces a bigint, as in Spark
SEEN = b"seen"  # metadata of a field: `nothing`, or for a number `numbers before,behind,exact,whole,long,finite`
NOTHING, NUMBERS = b"nothing", b"numbers "
ITEMS = b"items "  # prefix of the comment on a list's items. The list bears it, because DDL has no comments on items
EXACT_TEXT = re.compile(rb"-?[0-9.]{1,15}")  # a double gives back any number of at most 15 digits
LONGS = range(-(1 << 63), 1 << 63)
INT_DIGITS, BIGINT_DIGITS = 10, 19
INTS = range(-(1 << 31), 1 << 31)
INTEGER = re.compile(r"[+-]?[0-9]{1,1000}")
DATE = re.compile(r"-?[0-9]{4}-[0-9]{2}-[0-9]{2}")
TOO_FINE = re.compile(r"\.[0-9]{6}[0-9]*[1-9]")
SMALL = "^-?[0-9]{1,9}$"  # most values of a column of integers, recognized at once
IS_DATE = converter(pa.date32())
IS_TIMESTAMP = converter(pa.timestamp("us", "UTC"))


class TooManyNames(RefusedValue):
    """Rows are valid JSON, but have more names than a schema may have columns."""


class _Seen:
    """The kinds of the values seen in one place, as letters, and the digits of the numbers among them."""

    __slots__ = ("before", "behind", "exact", "finite", "kinds", "long", "whole")

    def __init__(self) -> None:
        self.kinds: set[str] = set()
        self.before = self.behind = 0  # most digits of a number before and behind the point
        # Whether a double gives back every number; every number is an integer; has 64 bits; has digits.
        self.exact = self.whole = self.long = self.finite = True

    def _see_fraction(self, text: str) -> None:
        """Add a number with a point or an exponent."""
        self.kinds.add("n")
        self.whole = False
        before, behind, exact = seen_in(text)
        self.before, self.behind = max(self.before, before), max(self.behind, behind)
        self.exact = self.exact and exact

    def _merge(self, other: "_Seen") -> None:
        """Add everything that another object has seen."""
        self.kinds |= other.kinds
        self.before, self.behind = max(self.before, other.before), max(self.behind, other.behind)
        self.exact, self.whole = self.exact and other.exact, self.whole and other.whole
        self.long, self.finite = self.long and other.long, self.finite and other.finite


class Shape(_Seen):
    """The values of JSON seen in one place. Letters: string, boolean, number, list, object."""

    __slots__ = ("fields", "item")

    def __init__(self) -> None:
        super().__init__()
        self.fields: dict[str, Shape] = {}
        self.item: Shape | None = None

    def see(self, raw: bytes, depth: int = 0) -> None:
        """Add a value, given as its JSON text."""
        first = raw[:1]
        if first == b"n":
            return
        if raw in BARE_NUMBERS:
            self.kinds.add("n")
            self.whole = self.finite = False
            return
        if first == b'"' or self.kinds == {"s"}:
            self.kinds.add("s")
        elif first in b"tf":
            self.kinds.add("b")
        elif first not in b"{[":
            self._number(raw)
        elif depth >= DEPTH_LIMIT:  # deeper than types may be nested: it stays text
            self.kinds.add("s")
        elif first == b"[":
            self.kinds.add("l")
            self.item = self.item or Shape()
            for item in decode_array(raw):
                self.item.see(bytes(item).strip(SPACES), depth + 1)
        else:
            self._object(decode_object(raw), depth)

    def _object(self, found: dict[str, Raw], depth: int) -> None:
        self.kinds.add("o")
        for name, raw in found.items():
            field = self.fields.get(name)
            if field is None:
                if len(self.fields) == FIELD_LIMIT:
                    raise TooManyNames(0, f"objects have over {FIELD_LIMIT} different names: give the option schema")
                field = self.fields[name] = Shape()
            field.see(bytes(raw).strip(SPACES), depth + 1)

    def _number(self, raw: bytes) -> None:
        self.kinds.add("n")
        text = raw.decode()
        if "e" in text or "E" in text:
            self._see_fraction(text)
            return
        whole, point, fraction = text.lstrip("-").partition(".")
        self.before = max(self.before, len(whole))
        self.behind = max(self.behind, len(fraction.rstrip("0")))
        self.whole = self.whole and not point
        self.exact = self.exact and (EXACT_TEXT.fullmatch(raw) is not None or comes_back(text))
        self.long = self.long and (len(whole) < 19 or (len(whole) == 19 and int(text.partition(".")[0]) in LONGS))

    def merge(self, other: "Shape") -> None:
        """Add all that the other has seen."""
        self._merge(other)
        for name, field in other.fields.items():
            self.fields.setdefault(name, Shape()).merge(field)
        if other.item is not None:
            self.item = self.item or Shape()
            self.item.merge(other.item)

    def field(self, name: str, key: bytes = SEEN) -> pa.Field:
        """A field of a type that holds all values seen, with a record of them in its metadata under `key`."""
        kind = self._kind(key)
        if not self.kinds:
            return pa.field(name, kind, metadata={key: NOTHING})
        if self.kinds == {"n"}:
            flags = (self.exact, self.whole, self.long, self.finite)
            seen = ",".join(str(int(each)) for each in (self.before, self.behind, *flags)).encode()
            return pa.field(name, kind, metadata={key: NUMBERS + seen})
        of_items = (kind.value_field.metadata or {}).get(COMMENT) if self.kinds == {"l"} else None
        return pa.field(name, kind, metadata=None if of_items is None else {COMMENT: ITEMS + of_items})

    def _kind(self, key: bytes) -> pa.DataType:
        if self.kinds == {"o"}:
            return pa.struct([self.fields[name].field(name, key) for name in sorted(self.fields)])
        if self.kinds == {"l"}:
            return pa.list_((self.item or Shape()).field("item", key))
        if self.kinds == {"b"}:
            return pa.bool_()
        return self._number_kind() if self.kinds == {"n"} else pa.string()

    def _number_kind(self) -> pa.DataType:
        if self.whole and self.long:
            return pa.int64()
        if not self.whole and self.exact:
            return pa.float64()
        digits = self.before + self.behind
        if digits > DIGITS_LIMIT or not self.finite:
            return pa.string()
        return pa.decimal128(max(digits, LONG_DIGITS) if self.whole else digits, self.behind)


def infer_rows(shape: Shape, texts: Iterable[bytes]) -> None:
    """Add the values of some rows to a shape. `RefusedValue` for the first row that is not one JSON value, or that
    exceeds the limit of names."""
    for index, text in enumerate(texts):
        try:
            shape.see(one_value(text))
        except NOT_JSON as error:
            raise RefusedValue(index, not_json(error, text)) from None
        except TooManyNames as error:
            raise TooManyNames(index, str(error)) from None


def schema_of(shape: Shape, key: bytes = SEEN) -> pa.Schema:
    """The schema of rows: the fields of objects, by name; else the one column `value`, the whole line. The record of
    the values seen is in the metadata under `key`."""
    if shape.kinds == {"o"} or not shape.kinds:
        return pa.schema([shape.fields[name].field(name, key) for name in sorted(shape.fields)])
    field = shape.field(WHOLE)
    return pa.schema([field.with_metadata({**(field.metadata or {}), **WHOLE_LINE})])


def merge_schemas(schemas: Sequence[pa.Schema]) -> pa.Schema:
    """One schema for the rows of several files, from the inferred or merged schemas of each."""
    merged = Shape()
    for schema in schemas:
        merged.merge(_shape_of_rows(schema))
    return schema_of(merged, COMMENT)


def _shape_of_rows(schema: pa.Schema) -> Shape:
    if schema.names == [WHOLE] and (schema.field(0).metadata or {}).get(COMMENT) == WHOLE_LINE[COMMENT]:
        return _shape_of(schema.field(0))
    return _shape_of(pa.field("rows", pa.struct(list(schema)))) if len(schema) else Shape()


def _shape_of(field: pa.Field) -> Shape:
    """The shape that a field records; for a field that was not inferred, the shape of its type."""
    shape, kind, known = Shape(), field.type, field.metadata or {}
    seen = known.get(SEEN) or known.get(COMMENT) or b""
    if seen.startswith(NUMBERS):
        shape.kinds = {"n"}
        shape.before, shape.behind, *flags = map(int, seen.removeprefix(NUMBERS).split(b","))
        shape.exact, shape.whole, shape.long, shape.finite = map(bool, flags)
    elif types.is_struct(kind):
        shape.kinds = {"o"}
        shape.fields = {member.name: _shape_of(member) for member in kind}
    elif types.is_list(kind):
        shape.kinds, item = {"l"}, kind.value_field
        if seen.startswith(ITEMS):
            item = item.with_metadata({COMMENT: seen.removeprefix(ITEMS)})
        shape.item = _shape_of(item)
    elif types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind):
        shape.kinds = {"n"}
        shape.whole = shape.long = types.is_integer(kind)
        shape.exact = types.is_floating(kind)  # some integers are not exact as doubles
        if types.is_decimal(kind):
            shape.before, shape.behind = kind.precision - kind.scale, kind.scale
            shape.whole = kind.scale == 0
        else:  # the digits of doubles are unknown: only text holds what a double cannot
            shape.before = LONG_DIGITS - 1 if shape.whole else DIGITS_LIMIT + 1
    elif seen != NOTHING:
        shape.kinds = {"b"} if types.is_boolean(kind) else {"s"}
    return shape


def seen_in(text: str) -> tuple[int, int, bool]:
    """The digits of a number before the point and behind it, and whether a double gives it back. The number has a point
    or an exponent. For a huge exponent, the digits are beyond the limit."""
    exponent = re.split("[eE]", text)[1:]
    if exponent and len(exponent[0]) > 5:
        return DIGITS_LIMIT + 1, 0, False
    _, digits, power = Decimal(text).as_tuple()
    assert isinstance(power, int)
    kept = "".join(map(str, digits)).rstrip("0")
    power = power + len(digits) - len(kept) if kept else 0
    before, behind = max(len(kept) + power, 1), max(-power, 0)
    return before, behind, EXACT_TEXT.fullmatch(text.encode()) is not None or comes_back(text)


def comes_back(text: str) -> bool:
    """Whether a double gives back the digits of the number, in one of the ways that doubles are written."""
    double, number = float(text), Decimal(text)
    return number in (Decimal(repr(double)), Decimal(f"{double:.17g}"), Decimal(double))


class Values(_Seen):
    """The values of a CSV column. Letters: number, boolean, date, timestamp, string."""

    __slots__ = ("int", "padded", "some_long")

    def __init__(self) -> None:
        super().__init__()
        self.int = True  # every number is an integer of 32 bits
        self.some_long = False  # some number is an integer of 64 bits, not of 32
        self.padded = False  # some number has white space around it: doubles may have it, decimals may not

    def see(self, texts: pa.Array) -> None:
        """Add some values. Nulls and empty texts count nothing."""
        if "s" in self.kinds:
            return
        texts = texts.filter(pc.not_equal(texts, "")).unique()
        if len(texts) and pc.all(pc.match_substring_regex(texts, SMALL)).as_py():
            self.kinds.add("n")
            self.before = max(self.before, pc.max(pc.binary_length(pc.utf8_ltrim(texts, "-0"))).as_py(), 1)
            return
        for text in texts.to_pylist():
            self._see(text)
            if "s" in self.kinds:
                return

    def _see(self, text: str) -> None:
        if INTEGER.fullmatch(text):
            self._integer(text.lstrip("+-").lstrip("0") or "0", text)
        elif NUMBER.fullmatch(text.strip()):
            self.padded = self.padded or text != text.strip()
            self.int = self.long = False
            self._see_fraction(text.strip())
        elif text.strip() in SPECIAL:
            self.kinds.add("n")
            self.int = self.long = self.whole = self.finite = False
        elif text.lower() in ("true", "false"):
            self.kinds.add("b")
        else:
            self.kinds.add(_moment(text))

    def _integer(self, digits: str, text: str) -> None:
        self.kinds.add("n")
        self.before = max(self.before, len(digits))
        value = int(text)
        self.int, self.long = self.int and value in INTS, self.long and value in LONGS
        self.some_long = self.some_long or (value in LONGS and value not in INTS)
        self.exact = self.exact and (len(digits) <= 15 or comes_back(text))

    def merge(self, other: "Values") -> None:
        """Add everything that another object has seen."""
        self._merge(other)
        self.int = self.int and other.int
        self.some_long, self.padded = self.some_long or other.some_long, self.padded or other.padded

    def field(self, name: str) -> pa.Field:
        """A field of the type that holds all values seen, with a record of them in its metadata."""
        seen = None if self.kinds else NOTHING
        if self.kinds == {"n"}:
            flags = (self.int, self.long, self.whole, self.exact, self.finite, self.some_long, self.padded)
            seen = ",".join(str(int(each)) for each in (self.before, self.behind, *flags)).encode()
        return pa.field(name, self._kind(), metadata=None if seen is None else {SEEN: seen})

    def _kind(self) -> pa.DataType:
        if self.kinds == {"n"}:
            return self._number_kind()
        if self.kinds == {"b"}:
            return pa.bool_()
        if self.kinds == {"d"}:
            return pa.date32()
        return pa.timestamp("us", "UTC") if self.kinds in ({"t"}, {"d", "t"}) else pa.string()

    def _number_kind(self) -> pa.DataType:
        if self.long:
            return pa.int32() if self.int else pa.int64()
        if not self.whole and self.exact:
            return pa.float64()
        digits = self.before + self.behind
        if digits > DIGITS_LIMIT or not self.finite or self.padded:
            return pa.string()
        # room for the 64-bit integers, as in Spark
        beside_long = BIGINT_DIGITS + 1 if self.some_long and self.whole else 1
        return pa.decimal128(max(digits, beside_long), self.behind)


def values_of(field: pa.Field) -> Values:
    """The values seen, as the field's metadata records them; for a field that was not inferred, the values that its
    type allows."""
    values, kind, seen = Values(), field.type, (field.metadata or {}).get(SEEN)
    if seen == NOTHING:
        return values
    if seen is not None:
        values.kinds = {"n"}
        values.before, values.behind, *flags = map(int, seen.split(b","))
        values.int, values.long, values.whole, values.exact, *others = map(bool, flags)
        values.finite, values.some_long, values.padded = others
    elif types.is_boolean(kind):
        values.kinds = {"b"}
    elif types.is_date(kind) or types.is_timestamp(kind):
        values.kinds = {"d" if types.is_date(kind) else "t"}
    elif types.is_integer(kind):
        values.kinds = {"n"}
        values.int = types.is_int32(kind)
        values.before = INT_DIGITS if values.int else BIGINT_DIGITS
        values.exact, values.some_long = values.int, not values.int
    elif types.is_decimal(kind):
        values.kinds = {"n"}
        values.before, values.behind = kind.precision - kind.scale, kind.scale
        values.int = values.long = values.exact = False
        values.whole = kind.scale == 0
    elif types.is_floating(kind):
        values.kinds = {"n"}
        values.before = DIGITS_LIMIT + 1  # the digits are unknown: only text holds what a double cannot
        values.int = values.long = values.whole = False
    else:
        values.kinds = {"s"}
    return values


def _moment(text: str) -> str:
    """The letter of a date or a timestamp; the letter of a string for other text."""
    try:
        if DATE.fullmatch(text):
            IS_DATE(text)
            return "d"
        IS_TIMESTAMP(text)
    except ValueError:
        return "s"
    return "s" if TOO_FINE.search(text) else "t"
