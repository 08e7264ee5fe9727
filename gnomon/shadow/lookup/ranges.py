"""Ranges of keys: from bounds and prefixes as callers give them, and from conditions on key columns."""

import math
from collections.abc import Collection, Sequence
from itertools import product
from typing import NamedTuple

from gnomon.btree.key_types import Stored, key_type
from gnomon.btree.keys import Key, OrderKey
from gnomon.shadow.errors import UsageError
from gnomon.shadow.lookup.plan import ParsedKey, parse_values
from gnomon.shadow.metadata import IndexSpec, bytes_order

LAST_BYTE = b"\xff"
Types = Sequence[str]  # of the key columns


class Range(NamedTuple):
    """Keys from `low` to before `high`, in stored form (text as text or as its bytes); None is an open end. `where` has
    the partition values that the bounds name."""

    low: Key | None = None
    high: Key | None = None
    where: tuple[tuple[str, Stored], ...] = ()


def parse_range(spec: IndexSpec, low: object, high: object, prefix: object, inclusive: bool) -> Range:
    """The range of keys from `low` to before `high`, with `inclusive` to `high`; or those with a prefix. Each is a
    value of a one-column key, or a tuple of the first values of a key, which means all keys that begin with them. The
    last value of a prefix may be the beginning of a text. UsageError or KeyTypeError for values that no key can
    have."""
    types = spec.key_types
    if prefix is not None and (low is not None or high is not None):
        raise UsageError("expected a prefix, or a lowest and a highest key, not both")
    if prefix is not None:
        begin = _parsed(spec, prefix, "prefix")
        if not begin.stored:
            return Range(None, None, begin.where)
        last = begin.stored[-1]
        after = _after_texts if isinstance(last, str | bytes) else _after
        return Range(_padded(types, begin.stored), after(types, begin.stored), begin.where)
    first = _parsed(spec, low, "low") if low is not None else None
    last_key = _parsed(spec, high, "high") if high is not None else None
    wheres = {one.where for one in (first, last_key) if one is not None}
    if len(wheres) > 1:
        names = ", ".join(spec.partitions)
        raise UsageError(f"low and high: expected the same values of the partition columns {names}; use where")
    lowest, end = (None if one is None else one.stored for one in (first, last_key))
    stop = None if end is None else _after(types, end) if inclusive else _padded(types, end)
    return Range(None if lowest is None else _padded(types, lowest), stop, next(iter(wheres), ()))


def _parsed(spec: IndexSpec, given: object, name: str) -> ParsedKey:
    """The first columns of a key, with their partition values."""
    values = list(given) if isinstance(given, (tuple, list)) else [given]
    if len(values) > len(spec.keys) or not values:
        raise UsageError(f"{name}: the key has {len(spec.keys)} columns; found {len(values)} values")
    return parse_values(values, spec)


def _padded(types: Types, begin: Key) -> Key:
    """The least key that begins with these values: null is the least value of a column."""
    return (*begin, *[None] * (len(types) - len(begin)))


def _after(types: Types, begin: Key) -> Key | None:
    """The least key that is greater than all keys that begin with these values; None where there is none."""
    for place in range(len(begin) - 1, -1, -1):
        if next_value := key_type(types[place]).after(begin[place]):
            return _padded(types, (*begin[:place], *next_value))
    return None


def range_of_key(types: Types, key: Key) -> Range:
    """The range of one key."""
    return Range(key, _after(types, key))


def from_key(spec: IndexSpec, bounds: Range, key: Key, reverse: bool) -> Range:
    """The part of a range from a key on, in the direction of the merge. The range itself where the key lies before."""
    begin, end = key, _after(spec.key_types, key)
    if reverse:
        is_inside = end is not None and (bounds.high is None or bytes_order(end) < bytes_order(bounds.high))
        return bounds._replace(high=end) if is_inside else bounds
    is_inside = bounds.low is None or bytes_order(begin) > bytes_order(bounds.low)
    return bounds._replace(low=begin) if is_inside else bounds


def _after_texts(types: Types, begin: Key) -> Key | None:
    """As `_after`, where the last value is the beginning of a text."""
    after = _text_after(begin[-1])
    return _after(types, begin[:-1]) if after is None else _padded(types, (*begin[:-1], after))


def _text_after(beginning: Stored) -> bytes | None:
    """The least bytes that are greater than all texts with a beginning: its bytes, the last of which is raised."""
    data = beginning.encode() if isinstance(beginning, str) else beginning
    assert isinstance(data, bytes)
    kept = data.rstrip(LAST_BYTE)
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else None


# -- conditions --------------------------------------------------------------------------------------------------------


class Interval(NamedTuple):
    """Values of a key column, none of them null: from `low` to before `high`, in stored form; a high of None is an open
    end. It is empty where high is not greater than low."""

    low: Stored
    high: Stored = None

    def meets(self, other: "Interval") -> "Interval":
        """The values of both."""
        low = max(self.low, other.low, key=_order)
        highs = [one.high for one in (self, other) if one.high is not None]
        return Interval(low, min(highs, key=_order) if highs else None)

    def holds(self, value: Stored) -> bool:
        if value is None:
            return False
        return _order(self.low) <= _order(value) and (self.high is None or _order(value) < _order(self.high))

    @property
    def is_empty(self) -> bool:
        return self.high is not None and _order(self.high) <= _order(self.low)


def _order(value: Stored) -> OrderKey:
    return bytes_order((value,))


LESS, AT_MOST, MORE, AT_LEAST, BEGINS = "<", "<=", ">", ">=", "begins with"


def interval(type_name: str, operator: str, value: Stored) -> Interval:
    """The values of a key type for which a comparison with a value, which is not null, is true."""
    kind = key_type(type_name)
    after = kind.after(value)
    if operator == BEGINS:
        return Interval(value, _text_after(value))
    if operator == AT_LEAST:
        return Interval(value)
    if operator == MORE:
        return Interval(after[0]) if after else Interval(kind.least, kind.least)
    return Interval(kind.least, value if operator == LESS else next(iter(after), None))


def ranges_of(
    types: Types, values: Sequence[Collection[Stored]], within: Interval | None, most: int
) -> tuple[int, list[Range]]:
    """The number of key columns whose conditions are taken, and the ranges of keys that meet them: keys with one of
    some values in each of the first columns, and `within` an interval in the column behind these. Fewer columns are
    taken where there would be more ranges than `most`."""
    count = len(values)
    while count and math.prod(map(len, values[:count])) > most:
        count, within = count - 1, None
    begins = list(product(*values[:count]))
    if within is None:
        return count, [Range(_padded(types, begin), _after(types, begin)) for begin in begins] if count else []
    low, high = within
    if within.is_empty:
        return count + 1, []
    stops = [_after(types, begin) if high is None else _padded(types, (*begin, high)) for begin in begins]
    return count + 1, [Range(_padded(types, (*one, low)), stop) for one, stop in zip(begins, stops, strict=True)]
