"""Partitions and statistics that say less than they seem to."""

import struct
from typing import Any

import pytest
from pyiceberg import types as iceberg
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import (
    IdentityTransform,
    TruncateTransform,
    UnknownTransform,
    VoidTransform,
    YearTransform,
)

from gnomon.service.catalog.filters import parse
from gnomon.service.catalog.pruning import PartitionedFilter, Statistics, may_match

SCHEMA = Schema(
    iceberg.NestedField(1, "id", iceberg.IntegerType()),
    iceberg.NestedField(2, "day", iceberg.DateType()),
    iceberg.NestedField(3, "share", iceberg.DoubleType()),
)
LEAST = -(2**31)


def residual(filter: Any, field: int, transform: Any, value: Any) -> Any:
    spec = PartitionSpec(PartitionField(field, 1000, transform, "p"))
    return PartitionedFilter(parse(filter, SCHEMA), spec).residual((value,))


def predicate(op: str, term: str, **more: Any) -> dict[str, Any]:
    return {"type": op, "term": term, **more}


EQUAL = predicate("eq", "id", value=7)


@pytest.mark.parametrize("value", [None, 7, "x"])
@pytest.mark.parametrize("transform", [UnknownTransform("zorder[4]"), VoidTransform()], ids=["unknown", "void"])
@pytest.mark.parametrize(
    "filter", [predicate("eq", "id", value=7), predicate("is-null", "id"), predicate("not-null", "id")], ids=str
)
def test_a_transform_that_is_not_known_says_nothing(filter: Any, transform: Any, value: Any) -> None:
    assert residual(filter, 1, transform, value) not in (True, False)


def test_a_truncated_integer_may_have_wrapped_around() -> None:
    wrapped = 2**31 - 2  # truncate[3] of the least integer, as Java has it
    assert residual(predicate("eq", "id", value=LEAST), 1, TruncateTransform(3), wrapped) is not False
    assert residual(predicate("lt", "id", value=5), 1, TruncateTransform(3), wrapped) is not False
    assert residual(predicate("lt", "id", value=5), 1, TruncateTransform(3), 300) is False


def test_a_date_that_the_library_does_not_know_leaves_nothing_out() -> None:
    assert residual(predicate("eq", "day", value="+12000-01-01"), 2, YearTransform(), 56) is not False


def test_years_before_1970_of_old_writers_are_found() -> None:
    assert residual(predicate("eq", "day", value="1968-05-05"), 2, YearTransform(), -1) is not False
    assert residual(predicate("eq", "day", value="1968-05-05"), 2, YearTransform(), -2) is not False
    assert residual(predicate("eq", "day", value="1968-05-05"), 2, YearTransform(), 0) is False


def test_both_zeros_of_a_partition_are_left_to_the_engine() -> None:
    for zero in (0.0, -0.0):
        for op in ("eq", "not-eq", "lt", "gt-eq"):
            assert residual(predicate(op, "share", value=0.0), 3, IdentityTransform(), zero) not in (True, False)


def statistics(**known: Any) -> Statistics:
    empty: dict[str, Any] = {name: {} for name in Statistics._fields}
    return Statistics(**{**empty, **{name: {1: value} for name, value in known.items()}})


def test_statistics_leave_out_what_cannot_match() -> None:
    bounds = {"lower_bounds": struct.pack("<i", 5), "upper_bounds": struct.pack("<i", 9)}
    for filter, expected in (
        (predicate("eq", "id", value=4), False),
        (predicate("in", "id", values=[1, 4, 10]), False),
        (predicate("in", "id", values=[1, 7, 10]), True),
        (predicate("lt", "id", value=5), False),
        (predicate("lt-eq", "id", value=5), True),
        (predicate("gt", "id", value=9), False),
        (predicate("not-eq", "id", value=5), True),
    ):
        assert may_match(parse(filter, SCHEMA), statistics(**bounds)) is expected
        assert may_match(parse(filter, SCHEMA), statistics())
    nulls = statistics(value_counts=3, null_value_counts=3)
    assert not may_match(parse(predicate("eq", "id", value=5), SCHEMA), nulls)
    assert may_match(parse(predicate("is-null", "id"), SCHEMA), nulls)
    assert not may_match(parse(predicate("is-null", "id"), SCHEMA), statistics(null_value_counts=0))
