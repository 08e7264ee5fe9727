"""Conditions on the columns of an index, as engines push them down, as look-ups and ranges of keys.

An engine translates each of its conditions to the values that it accepts in one column, or to an interval of a key
column (`ranges.interval`), exactly. Conditions that name values of all columns of the key are look-ups. Otherwise they
are ranges of keys: values of the first columns, and an interval of the column behind these.
"""

import datetime as dt
import decimal
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import product, takewhile

from gnomon.btree.key_types import Stored, key_type
from gnomon.btree.keys import Key
from gnomon.shadow.lookup.entries import KEY, PARTITION, EntryColumn
from gnomon.shadow.lookup.ranges import Interval, Range, ranges_of

MOST_KEYS = 10_000  # keys that one query looks up; for more, the index is scanned
MOST_RANGES = 100  # of keys that one query reads
VALUE_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "boolean": (bool,),
    **dict.fromkeys(("tinyint", "smallint", "int", "bigint"), (int,)),
    "float": (float,),
    "double": (float,),
    "date": (dt.date,),
    "timestamp": (dt.datetime,),
    "timestamp_ntz": (dt.datetime,),
    "binary": (bytes, bytearray),
}


Values = dict[Stored, None]  # in the given order, each once; every NaN is `math.nan`


@dataclass(frozen=True)
class Selection:
    """The selection of a query: keys, or ranges of keys (None: all), in partitions that have one of the named values in
    each column. All values are in stored form."""

    keys: tuple[Key, ...] | None = None
    where: Mapping[str, frozenset[Stored]] = field(default_factory=dict)
    ranges: tuple[Range, ...] | None = None


class Conditions:
    """The conditions on one column: the values that they name, if any, and the interval that others leave."""

    def __init__(self) -> None:
        self.values: Values | None = None
        self.within: Interval | None = None

    def add(self, found: Values | Interval) -> None:
        if isinstance(found, Interval):
            self.within = found if self.within is None else self.within.meets(found)
        else:
            before = found if self.values is None else self.values
            self.values = dict.fromkeys(value for value in before if value in found)

    @property
    def allowed(self) -> Values | None:
        """The values that meet all of them; None where they name none."""
        if self.values is None or self.within is None:
            return self.values
        return dict.fromkeys(filter(self.within.holds, self.values))


def selected(
    found: Iterable[tuple[EntryColumn, Values | Interval]], columns: Iterable[EntryColumn]
) -> tuple[Selection, int]:
    """The selection of a conjunction of conditions, and the number of key columns whose conditions it has: those of
    further ones are left to the engine. `columns` are all columns of the index."""
    of_columns: dict[EntryColumn, Conditions] = {}
    for column, accepted in found:
        of_columns.setdefault(column, Conditions()).add(accepted)
    parts = {column.source: one.allowed for column, one in of_columns.items() if column.part == PARTITION}
    where = {source: frozenset(values) for source, values in parts.items() if values is not None}
    keys = [column for column in columns if column.part == KEY]
    conditions = [of_columns.get(column, Conditions()) for column in keys]
    allowed = takewhile(lambda values: values is not None, (one.allowed for one in conditions))
    firsts = [values for values in allowed if values is not None]
    if len(firsts) == len(keys) and math.prod(map(len, firsts)) <= MOST_KEYS:
        return Selection(tuple(product(*firsts)), where), len(keys)
    within = conditions[len(firsts)].within if len(firsts) < len(keys) else None
    taken, ranges = ranges_of([column.type for column in keys], firsts, within, MOST_RANGES)
    return Selection(None, where, tuple(ranges) if taken else None), taken


def chosen(partitions: Mapping[str, Mapping[str, Stored]], selection: Selection) -> list[str]:
    """The partitions that match a selection. `partitions` has all partitions with their values."""
    return [
        name
        for name, values in partitions.items()
        if all(_one(values.get(column)) in allowed for column, allowed in selection.where.items())
    ]


def _one(value: Stored) -> Stored:
    """The value, with one NaN object for all NaNs, which a set can find."""
    return math.nan if isinstance(value, float) and value != value else value


class NotExact(Exception):
    """A value that is not exactly a value of the column's type."""


def exact(value: object, column: EntryColumn) -> Stored:
    """A value of an engine in stored form. NotExact where it is not exactly a value of the column's type; KeyTypeError
    where the type does not hold it."""
    if value is None:
        return None
    kind = key_type(column.type)
    expected = (decimal.Decimal,) if kind.decimal else VALUE_TYPES[column.type]
    if type(value) not in expected:
        raise NotExact
    if isinstance(value, dt.datetime) and (value.tzinfo is None) != (column.type == "timestamp_ntz"):
        raise NotExact
    stored = _one(kind.to_stored(value, column.source))
    if isinstance(value, float) and value == value and stored != value:  # more digits than a float holds
        raise NotExact
    return stored
