"""Which data files may hold a row that a filter matches, by their partitions and by the statistics of their columns.

The rules are those of Iceberg's inclusive projections and metrics: a file that is left out has no matching row. A value
of a partition whose transform is the identity decides a predicate; the rest of the filter is the residual of the
file."""

import struct
from bisect import bisect_left
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from pyiceberg import types as iceberg_types
from pyiceberg.conversions import from_bytes
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import BucketTransform, IdentityTransform, TimeTransform, Transform, TruncateTransform

from gnomon.service.catalog.filters import Filter, Junction, Predicate, Stored, Unjudged, junction
from gnomon.shadow.tables.iceberg_files import ContentFile

COMPARED: Mapping[str, Callable[[Any, Any], bool]] = {
    "lt": lambda value, literal: value < literal,
    "lt-eq": lambda value, literal: value <= literal,
    "gt": lambda value, literal: value > literal,
    "gt-eq": lambda value, literal: value >= literal,
}
# What a null and a value of other transforms say of the column is not known.
KNOWN = (IdentityTransform, BucketTransform, TruncateTransform, TimeTransform)
MOST = {iceberg_types.IntegerType: 2**31 - 1, iceberg_types.LongType: 2**63 - 1}
WITHOUT_ORDER = (iceberg_types.UUIDType,)  # engines order UUIDs in different ways


class Statistics(NamedTuple):
    """What a manifest records of the columns of a file, by field id: counts, and bounds in Iceberg's binary form."""

    value_counts: Mapping[int, int]
    null_value_counts: Mapping[int, int]
    nan_value_counts: Mapping[int, int]
    lower_bounds: Mapping[int, bytes]
    upper_bounds: Mapping[int, bytes]

    @classmethod
    def of(cls, file: ContentFile) -> "Statistics":
        maps = file.maps
        return cls(*(maps.get(name, {}) for name in cls._fields))


class PartitionedFilter:
    """A filter for the files of one partition spec."""

    def __init__(self, found: Filter, spec: PartitionSpec) -> None:
        self._filter = found
        self._fields: dict[int, list[tuple[int, PartitionField]]] = {}
        for place, field in enumerate(spec.fields):
            if isinstance(field.transform, KNOWN):
                self._fields.setdefault(field.source_id, []).append((place, field))
        self._residuals: dict[tuple[Stored, ...], Filter] = {}
        self._transformed: dict[tuple[int, int], _Transformed] = {}

    def residual(self, partition: tuple[Stored, ...]) -> Filter:
        """What is left of the filter for rows of a partition: False where no row of it matches."""
        if not self._fields:
            return self._filter
        if partition not in self._residuals:
            self._residuals[partition] = self._left(self._filter, partition)
        return self._residuals[partition]

    def _left(self, found: Filter, partition: tuple[Stored, ...]) -> Filter:
        if isinstance(found, Junction):
            return junction(found.is_and, [self._left(part, partition) for part in found.parts])
        if not isinstance(found, Predicate):
            return found
        for place, field in self._fields.get(found.field_id, ()):
            answer = self._of_partition(found, place, field, partition[place])
            if answer is not None:
                return answer
        return found

    def _of_partition(self, predicate: Predicate, place: int, field: PartitionField, value: Any) -> bool | None:
        """Whether rows of a partition match; None where they may, and may not. `value` is the partition's value."""
        op, is_identity = predicate.op, isinstance(field.transform, IdentityTransform)
        if op in ("is-null", "not-null"):
            return (value is None) is (op == "is-null")
        if value is None:  # every row is null there
            return (True if is_identity else None) if op.startswith("not-") else False
        if value != value or op.endswith("-nan") or (isinstance(value, float) and value == 0):
            return None  # whether -0.0 equals 0.0 depends on the engine
        if is_identity:
            return None if op in COMPARED and isinstance(predicate.type, WITHOUT_ORDER) else matches(predicate, value)
        if (id(predicate), place) not in self._transformed:
            self._transformed[id(predicate), place] = _transformed(predicate, field.transform)
        least, most, wrapped, values = self._transformed[id(predicate), place]
        is_out = (least is not None and value < least) or (most is not None and value > most)
        is_out = is_out and not (wrapped is not None and value > wrapped)
        return False if is_out or (values is not None and value not in values) else None


class _Transformed(NamedTuple):
    """The partitions that rows which match a predicate may be in: least and greatest value, and values. Writers wrap
    around where they truncate the least integers: partitions beyond `wrapped` may have these."""

    least: Any = None
    most: Any = None
    wrapped: Any = None
    values: frozenset[Any] | None = None


def _transformed(predicate: Predicate, transform: Transform[Any, Any]) -> _Transformed:
    if isinstance(predicate.type, (iceberg_types.DecimalType, iceberg_types.UUIDType)):
        return _Transformed()  # the library's transforms take these in another form than the stored one
    is_time = isinstance(transform, TimeTransform)
    try:
        apply: Callable[[Any], Any] = transform.transform(predicate.type)
        most = MOST.get(type(predicate.type)) if isinstance(transform, TruncateTransform) else None
        if predicate.op in ("eq", "in"):
            values = [apply(literal) for literal in predicate.values]
            # Old writers put times before 1970 into the partition after their own.
            values += [value + 1 for value in values if is_time and value < 0]
            if most is not None and any(value < -most - 1 for value in values):
                return _Transformed()
            return _Transformed(values=frozenset(values))
        if predicate.op in COMPARED and transform.preserves_order:
            value = apply(predicate.value)
            if predicate.op.startswith("gt"):
                return _Transformed(least=value)
            wrapped = most - transform.width if most is not None and isinstance(transform, TruncateTransform) else None
            return _Transformed(most=value + 1 if is_time and value < 0 else value, wrapped=wrapped)
    except (ValueError, TypeError, AttributeError, ArithmeticError, NotImplementedError):
        pass
    return _Transformed()


def matches(predicate: Predicate, value: Any) -> bool:
    """Whether a row with this value, which is not null, matches."""
    if predicate.op in ("eq", "in"):
        return value in predicate.values
    if predicate.op in ("not-eq", "not-in"):
        return value not in predicate.values
    if predicate.op in ("starts-with", "not-starts-with"):
        return value.startswith(predicate.value) is (predicate.op == "starts-with")
    return COMPARED[predicate.op](value, predicate.value)


def may_match(found: Filter, statistics: Statistics) -> bool:
    """Whether a file may hold a matching row, by the statistics of its columns."""
    if isinstance(found, bool):
        return found
    if isinstance(found, Unjudged):
        return True
    if isinstance(found, Junction):
        parts = (may_match(part, statistics) for part in found.parts)
        return all(parts) if found.is_and else any(parts)
    return _may_match(found, statistics)


def _may_match(predicate: Predicate, of: Statistics) -> bool:
    number, op = predicate.field_id, predicate.op
    values, nulls, nans = (counts.get(number) for counts in of[:3])
    if predicate.is_top:
        all_null = values is not None and nulls is not None and values == nulls
        if op == "is-null":
            return nulls != 0
        if op == "not-nan":
            return values is None or nans is None or values != nans
        if op == "is-nan":
            return nans != 0 and not all_null
        if all_null and not op.startswith("not-"):
            return False
        if op == "not-null":
            return not all_null
    if op.startswith(("not-", "is-")) or isinstance(predicate.type, WITHOUT_ORDER):
        return True
    low, high = (_bound(predicate.type, bounds.get(number)) for bounds in of[3:])
    if op == "starts-with":
        prefix = predicate.value
        too_high = low is not None and low[: len(prefix)] > prefix
        return not too_high and not (high is not None and high[: len(prefix)] < prefix)
    if op in ("eq", "in"):
        ordered = predicate.ordered
        begin = 0 if low is None else bisect_left(ordered, low)
        return begin < len(ordered) and bool(high is None or ordered[begin] <= high)
    if op.startswith("lt"):
        return low is None or COMPARED[op](low, predicate.value)
    return high is None or COMPARED[op](high, predicate.value)


def _bound(kind: iceberg_types.PrimitiveType, data: bytes | None) -> Any:
    """A bound in stored form; None where there is none, or one that says nothing. A bound that was written before the
    column was widened is shorter."""
    if data is None:
        return None
    try:
        if isinstance(kind, (iceberg_types.LongType, iceberg_types.IntegerType)):
            return int.from_bytes(data, "little", signed=True)
        if isinstance(kind, (iceberg_types.DoubleType, iceberg_types.FloatType)):
            number: float = struct.unpack("<f" if len(data) == 4 else "<d", data)[0]
            return number if number == number else None
        if isinstance(kind, iceberg_types.DecimalType):
            return int.from_bytes(data, "big", signed=True)
        return from_bytes(kind, data)
    except (ValueError, struct.error):
        return None
