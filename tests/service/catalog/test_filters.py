"""Filters of the protocol: what they are read as, and the keys that they name."""

from decimal import Decimal
from typing import Any

import pytest
from pyiceberg import types as iceberg
from pyiceberg.schema import Schema

from gnomon.service.catalog.filters import (
    InvalidPlan,
    Junction,
    Predicate,
    Unjudged,
    alternatives,
    parse,
    to_json,
)

SCHEMA = Schema(
    iceberg.NestedField(1, "id", iceberg.LongType()),
    iceberg.NestedField(2, "Name", iceberg.StringType()),
    iceberg.NestedField(3, "amount", iceberg.DecimalType(9, 2)),
    iceberg.NestedField(4, "ratio", iceberg.FloatType()),
    iceberg.NestedField(5, "day", iceberg.DateType()),
    iceberg.NestedField(6, "at", iceberg.TimestampType()),
    iceberg.NestedField(7, "instant", iceberg.TimestamptzType()),
    iceberg.NestedField(8, "time", iceberg.TimeType()),
    iceberg.NestedField(9, "uuid", iceberg.UUIDType()),
    iceberg.NestedField(10, "fixed", iceberg.FixedType(2)),
    iceberg.NestedField(11, "flag", iceberg.BooleanType()),
    iceberg.NestedField(12, "number", iceberg.IntegerType()),
    iceberg.NestedField(13, "place", iceberg.StructType(iceberg.NestedField(14, "x", iceberg.LongType()))),
    iceberg.NestedField(15, "share", iceberg.DoubleType()),
    iceberg.NestedField(16, "large", iceberg.DecimalType(38, 4)),
)


def predicate(op: str, term: Any, **more: Any) -> dict[str, Any]:
    return {"type": op, "term": term, **more}


def equal(term: str, value: Any) -> dict[str, Any]:
    return predicate("eq", term, value=value)


def both(left: Any, right: Any) -> dict[str, Any]:
    return {"type": "and", "left": left, "right": right}


def either(left: Any, right: Any) -> dict[str, Any]:
    return {"type": "or", "left": left, "right": right}


def keys(filter: Any) -> list[dict[int, set[Any]]]:
    return [{number: set(values) for number, values in one.items()} for one in alternatives(parse(filter, SCHEMA))]


@pytest.mark.parametrize(
    ("term", "given", "stored"),
    [
        ("id", 7, 7),
        ("Name", "é", "é"),
        ("amount", "1.5", 150),
        ("large", "1234567890123456789012345678901234.5678", 12345678901234567890123456789012345678),
        ("amount", "-0.01", -1),
        ("amount", 3, 300),
        ("ratio", 0.25, 0.25),
        ("ratio", 0.1, 0.10000000149011612),
        ("share", 1, 1.0),
        ("share", -0.0, 0.0),
        ("day", "2026-01-02", 20455),
        ("day", 20455, 20455),
        ("day", "+10000-01-01", 2932897),
        ("at", "2026-01-02T03:04:05.000006", 1767323045000006),
        ("at", 1767323045000006, 1767323045000006),
        ("instant", "2026-01-02T03:04:05+01:00", 1767319445000000),
        ("instant", "2026-01-02T03:04:05", 1767323045000000),
        ("time", "00:00:01.5", 1_500_000),
        ("time", 1_500_000, 1_500_000),
        ("uuid", "00000000-0000-0000-0000-0000000000FF", bytes(15) + b"\xff"),
        ("fixed", "00Ff", b"\0\xff"),
        ("flag", True, True),
    ],
)
def test_a_literal_is_read_in_the_columns_type(term: str, given: Any, stored: Any) -> None:
    for value in (given, {"type": "literal", "value": given}):
        found = parse(equal(term, value), SCHEMA)
        assert isinstance(found, Predicate)
        assert list(found.values) == [stored]
        assert to_json(found) == equal(term, value)


@pytest.mark.parametrize(
    ("op", "term", "value"),
    [
        ("eq", "id", "7"),
        ("eq", "id", 7.5),
        ("eq", "id", True),
        ("eq", "id", 2**63),
        ("eq", "number", 2**31),
        ("eq", "Name", 7),
        ("eq", "Name", "\ud800"),
        ("eq", "amount", "1.005"),
        ("eq", "amount", 1.5),
        ("eq", "amount", "NaN"),
        ("eq", "amount", "12345678901"),
        ("eq", "amount", "1e999999"),
        ("eq", "amount", "1e-999999"),
        ("eq", "amount", "9" * 5000),
        ("eq", "uuid", 7),
        ("eq", "id", {}),
        ("eq", "id", [1]),
        ("starts-with", "id", 7),
        ("starts-with", "fixed", "00ff"),
        ("lt", "ratio", 0.1),
        ("eq", "share", "NaN"),
        ("eq", "day", "2026-02-30"),
        ("eq", "at", "2026-01-02T03:04:05Z"),
        ("eq", "at", "2026-01-02T03:04:05.0000001"),
        ("eq", "uuid", "12"),
        ("eq", "fixed", "ff"),
        ("eq", "fixed", "f f0"),
        ("eq", "flag", 1),
        ("eq", "place", 1),
        ("eq", "nothing", 1),
        ("eq", "name", "a"),
        ("eq", {"type": "transform", "transform": "bucket[16]", "term": "id"}, 1),
    ],
)
def test_what_cannot_be_judged_leaves_nothing_out(op: str, term: Any, value: Any) -> None:
    asked = predicate(op, term, value=value)
    assert parse(asked, SCHEMA) == Unjudged(asked)
    assert keys(asked) == [{}]
    assert keys({"type": "not", "child": asked}) == [{}]
    assert keys(both(asked, equal("id", 1))) == [{1: {1}}]
    assert keys(either(asked, equal("id", 1))) == [{}]


def test_columns_are_found_in_any_case_where_asked() -> None:
    found = parse(equal("NAME", "a"), SCHEMA, case_sensitive=False)
    assert isinstance(found, Predicate)
    assert found.field_id == 2
    twice = Schema(iceberg.NestedField(1, "a", iceberg.LongType()), iceberg.NestedField(2, "A", iceberg.LongType()))
    assert isinstance(parse(equal("a", 1), twice, case_sensitive=False), Unjudged)


def test_a_field_within_structs_alone_names_a_key() -> None:
    assert keys(equal("place.x", 1)) == [{14: {1}}]
    assert keys(predicate("is-null", "place.x")) == [{14: {None}}]
    place = iceberg.NestedField(14, "x", iceberg.LongType())
    many = Schema(iceberg.NestedField(1, "l", iceberg.ListType(2, iceberg.StructType(place), False)))
    assert alternatives(parse(equal("l.element.x", 1), many)) == [{}]


def test_keys_of_nested_filters() -> None:
    name, number = equal("Name", "a"), predicate("in", "id", values=[1, 2])
    assert keys(both(number, name)) == [{1: {1, 2}, 2: {"a"}}]
    assert keys(both(number, equal("id", 2))) == [{1: {2}}]
    assert keys(both(equal("id", 1), equal("id", 2))) == []
    assert keys(either(equal("id", 1), number)) == [{1: {1, 2}}]
    assert keys(either(both(equal("id", 1), name), equal("id", 3))) == [{1: {3}}, {1: {1}, 2: {"a"}}]
    assert keys(both(either(name, equal("Name", "b")), predicate("gt", "amount", value="1"))) == [{2: {"a", "b"}}]
    assert keys(predicate("is-null", "id")) == [{1: {None}}]
    assert keys(either(predicate("is-null", "id"), equal("id", 1))) == [{1: {None, 1}}]
    assert keys(both(predicate("is-null", "id"), equal("id", 1))) == []
    assert keys({"type": "not", "child": predicate("not-in", "id", values=[1, 2])}) == [{1: {1, 2}}]
    assert keys(
        {"type": "not", "child": either(predicate("not-eq", "id", value=1), {"type": "not", "child": name})}
    ) == [{1: {1}, 2: {"a"}}]
    for other in ("not-eq", "lt", "gt-eq", "not-eq"):
        assert keys(predicate(other, "id", value=1)) == [{}]
    assert keys(predicate("in", "id", values=[])) == []
    assert keys(predicate("not-in", "id", values=[])) == [{}]
    assert keys(True) == keys({"type": "true"}) == keys(None) == keys({"type": "literal", "value": True}) == [{}]
    assert keys(False) == keys({"type": "not", "child": {"type": "true"}}) == []


def test_chains_of_any_length_are_read() -> None:
    chain: Any = equal("id", 0)
    for number in range(1, 20_000):
        chain = either(chain, equal("id", number))
    found = parse(chain, SCHEMA)
    assert isinstance(found, Junction)
    assert len(found.parts) == 20_000
    assert alternatives(found) == [{1: frozenset(range(20_000))}]
    assert alternatives(parse(to_json(found), SCHEMA)) == alternatives(found)


def test_a_part_that_is_nested_too_deeply_is_not_judged() -> None:
    deep: Any = equal("id", 0)
    for number in range(200):
        deep = both(either(deep, equal("id", number)), predicate("gt", "id", value=-1))
    found = parse(both(deep, equal("id", 3)), SCHEMA)
    assert alternatives(found) == [{1: frozenset([3])}]
    assert alternatives(parse(to_json(found), SCHEMA)) == [{1: frozenset([3])}]


def test_many_alternatives_are_given_up_for_more_rows() -> None:
    def many(term: str, count: int) -> Any:
        parts = [both(equal(term, number), equal("Name", str(number))) for number in range(count)]
        found = parts[0]
        for part in parts[1:]:
            found = either(found, part)
        return found

    found = keys(both(many("id", 200), many("number", 200)))
    assert len(found) == 200
    assert all(set(one) in ({1, 2}, {12, 2}) for one in found)


@pytest.mark.parametrize(
    "filter",
    [
        3,
        "id = 1",
        {"term": "id"},
        {"type": "like", "term": "id", "value": 1},
        {"type": "eq", "value": 1},
        {"type": "eq", "term": "id"},
        {"type": "in", "term": "id", "values": 1},
        {"type": "not"},
        {"type": "and", "left": True},
        {"type": "eq", "term": 3, "value": 1},
        {"type": "literal", "value": "yes"},
    ],
)
def test_what_is_no_expression_is_refused(filter: Any) -> None:
    with pytest.raises(InvalidPlan, match="filter"):
        parse(filter, SCHEMA)


def test_a_decimal_of_another_scale_is_the_same_number() -> None:
    assert keys(equal("amount", "1.50")) == keys(equal("amount", "1.5")) == [{3: {150}}]
    assert Decimal(150).scaleb(-2) == Decimal("1.5")
