"""The types of CSV columns, as Spark infers them, but without loss.

Integers are int or bigint, or decimal if larger; fractions are double; then come boolean, date and timestamp; columns
of several kinds are string. Where Spark would round or truncate, the type is wider. Fractions are decimals if a double
does not give one of them back. Numbers of more than 38 digits are string, and so are times finer than microseconds, and
decimals if some have white space around them.
"""

import re

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from gnomon.sources.types import DIGITS_LIMIT, LONGS, NOTHING, NUMBER, SEEN, SPECIAL, comes_back, converter, seen_in

INT_DIGITS, LONG_DIGITS = 10, 19
INTS = range(-(1 << 31), 1 << 31)
INTEGER = re.compile(r"[+-]?[0-9]{1,1000}")
DATE = re.compile(r"-?[0-9]{4}-[0-9]{2}-[0-9]{2}")
TOO_FINE = re.compile(r"\.[0-9]{6}[0-9]*[1-9]")
SMALL = "^-?[0-9]{1,9}$"  # most values of a column of integers, recognized at once
IS_DATE = converter(pa.date32())
IS_TIMESTAMP = converter(pa.timestamp("us", "UTC"))


class Values:
    """The kinds of the values of a column. `kinds` has the letters of number, boolean, date, timestamp, string."""

    def __init__(self) -> None:
        self.kinds: set[str] = set()
        self.before = self.behind = 0  # most digits of a number before and behind the point
        # Whether every number is an integer of 32 bits; of 64 bits; an integer; exact as a double; has digits.
        self.int = self.long = self.whole = self.exact = self.finite = True
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
            self._fraction(text.strip())
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

    def _fraction(self, text: str) -> None:
        self.kinds.add("n")
        self.int = self.long = self.whole = False
        before, behind, exact = seen_in(text)
        self.before, self.behind = max(self.before, before), max(self.behind, behind)
        self.exact = self.exact and exact

    def merge(self, other: "Values") -> None:
        """Add everything that another object has seen."""
        self.kinds |= other.kinds
        self.before, self.behind = max(self.before, other.before), max(self.behind, other.behind)
        self.int, self.long, self.whole = self.int and other.int, self.long and other.long, self.whole and other.whole
        self.exact, self.finite = self.exact and other.exact, self.finite and other.finite
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
        beside_long = LONG_DIGITS + 1 if self.some_long and self.whole else 1
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
        values.before = INT_DIGITS if values.int else LONG_DIGITS
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
