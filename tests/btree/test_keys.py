"""Key types: given values to stored forms, their order, and Arrow."""

import datetime as dt
import decimal
import math
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gnomon.btree import KeyTypeError
from gnomon.btree.key_types import is_key_type, key_type
from gnomon.btree.keys import adjacent, order_key, same_values, stored_array, stored_values, type_of_arrow
from gnomon.btree.node import JavaOrder
from tests.btree.files import arrow_column

UTC = dt.UTC
GOOD: list[tuple[object, str, object]] = [
    ("é", "string", "é"),
    ("", "string", ""),
    (True, "boolean", True),
    ("false", "boolean", False),
    (-128, "tinyint", -128),
    ("+5", "smallint", 5),
    (np.int64(7), "int", 7),
    (2**63 - 1, "bigint", 2**63 - 1),
    (1.1, "float", 1.100000023841858),
    (-0.0, "double", 0.0),
    ("Infinity", "double", math.inf),
    (3, "double", 3.0),
    (dt.date(1969, 12, 31), "date", -1),
    ("2026-01-01", "date", 20454),
    ("20260101", "date", 20454),
    ("1970-01-01T00:00:00.000001Z", "timestamp", 1),
    ("1970-01-01", "timestamp", 0),
    ("1970-01-01T02:00:00+02:00", "timestamp", 0),
    (dt.datetime(1970, 1, 1, 0, 0, 1), "timestamp", 1_000_000),
    (dt.datetime(1969, 12, 31, 23, 59, 59, 999999, UTC), "timestamp", -1),
    ("1970-01-01 00:00:00.123456", "timestamp_ntz", 123456),
    ("0000-12-31", "date", -719163),
    ("10000-01-01", "date", 2932897),
    ("-0044-03-15", "date", -735525),
    ("+10000-01-01", "date", 2932897),
    ("10000-01-01", "timestamp", 253402300800_000000),
    ("10000-01-01 02:00:00.5+02:00", "timestamp", 253402300800_500000),
    ("12.30", "decimal(9,2)", 1230),
    ("12.3000", "decimal(9,2)", 1230),
    (-7, "decimal(9,2)", -700),
    (decimal.Decimal("1e3"), "decimal(9,2)", 100000),
    ("0e99999999", "decimal(9,2)", 0),
    ("9" * 28 + "." + "9" * 10, "decimal(38,10)", 10**38 - 1),
    ("AP8=", "binary", b"\x00\xff"),
    (b"ab", "binary", b"ab"),
    pytest.param(memoryview(b"ab"), "binary", b"ab", id="memoryview"),
]
BAD: list[tuple[object, str]] = [
    (5, "string"),
    ("\ud800", "string"),
    (1, "boolean"),
    ("True", "boolean"),
    (128, "tinyint"),
    (True, "int"),
    (5.0, "int"),
    ("5.0", "int"),
    ("1_0", "int"),
    ("٣", "int"),
    ("9" * 5000, "bigint"),
    (2**63, "bigint"),
    (1e39, "float"),
    ("1_0", "double"),
    ("٣", "double"),
    (10**400, "double"),
    (False, "double"),
    ("2026-13-01", "date"),
    ("2026-01-01T00:00:00", "date"),
    (dt.datetime(2026, 1, 1), "date"),
    ("10000-02-30", "date"),
    ("-0001-02-29", "date"),
    ("-0000-01-01", "date"),
    ("-000-01-01", "date"),
    ("-44-03-15", "date"),
    ("-2026-1-1", "date"),
    ("010000-01-01", "date"),
    ("10000-01", "date"),
    (" 10000-01-01", "date"),
    ("10000-01-01\n", "date"),
    ("10000-01-01T00:00:00", "date"),
    ("٣0000-01-01", "date"),
    ("5881580-07-12", "date"),  # one day beyond 32 bits
    ("10000-13-01T00:00:00Z", "timestamp"),
    ("10000-01-01T24:30:00Z", "timestamp"),
    ("10000-01-0100:00:00Z", "timestamp"),
    ("10000-01-01T00:00:00.1234567Z", "timestamp"),
    ("10000-01-01T00:00:00Z", "timestamp_ntz"),
    ("294247-01-10T04:00:54.775808Z", "timestamp"),  # one microsecond beyond 64 bits
    ("9999999-01-01", "timestamp"),
    ("2026-01-01T00:00:00.1234567", "timestamp"),
    ("2026-01-01T00:00:00.1234567Z", "timestamp"),
    ("2026-01-01T00:00:00,12345678", "timestamp_ntz"),
    ("2026-01-01T00:00:00.1234560", "timestamp_ntz"),
    ("2026-01-01T00:00:00Z", "timestamp_ntz"),
    (dt.datetime(2026, 1, 1, tzinfo=UTC), "timestamp_ntz"),
    (dt.date(2026, 1, 1), "timestamp"),
    (pd.Timestamp("2026-01-01T00:00:00.123456789"), "timestamp"),
    (12.3, "decimal(9,2)"),
    ("12.345", "decimal(9,2)"),
    ("1e999999", "decimal(9,2)"),
    ("1e-9999999", "decimal(9,2)"),
    ("NaN", "decimal(9,2)"),
    ("1_0", "decimal(9,2)"),
    (10**7, "decimal(9,2)"),
    ("a", "binary"),
    ("AP8", "binary"),
    ("é===", "binary"),
]


@pytest.mark.parametrize(("value", "kind", "stored"), GOOD, ids=str)
def test_a_value_or_its_text_gives_the_stored_form(value: object, kind: str, stored: object) -> None:
    found = key_type(kind).to_stored(value, "k")
    assert found == stored
    assert type(found) is type(stored)
    assert math.copysign(1, found) == 1 if found == 0 and isinstance(found, float) else True


@pytest.mark.parametrize(("value", "kind"), BAD, ids=lambda part: repr(part)[:40])
def test_a_value_of_another_type_is_refused_with_column_and_type(value: object, kind: str) -> None:
    with pytest.raises(KeyTypeError) as error:
        key_type(kind).to_stored(value, "col")
    assert (error.value.column, error.value.expected) == ("col", kind)
    assert len(str(error.value)) < 250


def test_null_stays_null_and_nan_nan() -> None:
    assert key_type("int").to_stored(None, "k") is None
    assert math.isnan(key_type("double").to_stored("NaN", "k"))  # type: ignore[arg-type]


ORDERED: dict[str, list[Any]] = {
    "string": [None, "", "a", "a\x00", "ab", "b", "é", "\uffff", "😀"],
    "binary": [None, b"", b"\x00", b"\x7f", b"\x7f\x00", b"\x80", b"\xff"],
    "boolean": [None, False, True],
    "int": [None, -(2**31), -1, 0, 2**31 - 1],
    "double": [None, -math.inf, -1.0, 0.0, 5e-324, math.inf, math.nan],
    "float": [None, -math.inf, -1.5, 0.0, math.inf, math.nan],
    "date": [None, -719162, -1, 0, 1],
    "timestamp": [None, -(10**15), 0, 10**15],
    "decimal(9,2)": [None, -999999999, -1, 0, 127, 128, 255, 256],
}


@pytest.mark.parametrize("kind", ORDERED)
def test_order_is_nulls_first_then_sparks(kind: str) -> None:
    values = ORDERED[kind]
    keys = [order_key((value,)) for value in values]
    assert all(a < b for a, b in pairwise(keys))
    assert all(key == order_key((value,)) for key, value in zip(keys, values, strict=True))


@pytest.mark.parametrize("kind", ORDERED)
def test_the_writers_comparison_is_the_readers(kind: str) -> None:
    values = ORDERED[kind]
    before = [a for a in values for _ in values]
    after = [b for _ in values for b in values]
    interleaved = arrow_column([v for pair in zip(before, after, strict=True) for v in pair], kind)
    equal, not_less = adjacent([interleaved])
    for i, (a, b) in enumerate(zip(before, after, strict=True)):
        keys = order_key((a,)), order_key((b,))
        assert (bool(equal[2 * i]), bool(not_less[2 * i])) == (keys[0] == keys[1], keys[0] <= keys[1]), (a, b)


def test_composites_compare_column_by_column() -> None:
    first, second = pa.array([1, 1, 1, 2]), pa.array(["b", None, "a", None])
    equal, not_less = adjacent([first, second])
    assert (equal.tolist(), not_less.tolist()) == ([False] * 3, [False, True, True])


def test_diones_order_may_put_nulls_last_and_compare_signed_bytes() -> None:
    order = JavaOrder([True, False], ["string", "binary"])
    keys = [("a", None), ("a", b"\x80"), ("a", b"\x7f"), (None, b"")]
    assert sorted([keys[i] for i in (3, 1, 0, 2)], key=order) == keys


def test_diones_order_tells_the_zeros_apart_and_puts_nan_last() -> None:
    keys = [-math.inf, -1.0, -5e-324, -0.0, 0.0, 5e-324, 1.0, math.inf, math.nan]
    order = JavaOrder([False], ["double"])
    ranks = [order((key,)) for key in keys]
    assert ranks == sorted(ranks)
    assert len(set(ranks)) == len(keys)


ARROW = [
    (pa.large_string(), "string"),
    (pa.string_view(), "string"),
    (pa.dictionary(pa.int32(), pa.string()), "string"),
    (pa.binary(16), "binary"),
    (pa.large_binary(), "binary"),
    (pa.int8(), "tinyint"),
    (pa.timestamp("ms", "Europe/Paris"), "timestamp"),
    (pa.timestamp("s"), "timestamp_ntz"),
    (pa.decimal128(20, 0), "decimal(20,0)"),
    (pa.run_end_encoded(pa.int32(), pa.date64()), "date"),
    (pa.json_(), "string"),
    (pa.dictionary(pa.int8(), pa.uuid()), "binary"),
    (pa.decimal256(38, 2), "decimal(38,2)"),
    (pa.decimal32(5, 2), "decimal(5,2)"),
    (pa.decimal256(39, 2), None),
    (pa.decimal128(5, -2), None),
    (pa.list_(pa.int32()), None),
    (pa.duration("us"), None),
    (pa.month_day_nano_interval(), None),
    (pa.null(), None),
]


@pytest.mark.parametrize(("arrow", "kind"), ARROW, ids=str)
def test_an_arrow_type_has_a_key_type_or_none(arrow: pa.DataType, kind: str | None) -> None:
    assert type_of_arrow(arrow) == kind


@pytest.mark.parametrize("kind", ORDERED)
def test_stored_values_of_a_sliced_column_are_its_stored_forms(kind: str) -> None:
    assert type_of_arrow(key_type(kind).arrow) == kind
    values = ORDERED[kind]
    column = arrow_column([values[-1], *values], kind).slice(1)
    assert [repr(v) for v in stored_values(column, kind)] == [repr(v) for v in values]
    chunked = pa.chunked_array([column.slice(0, 1), column.slice(1)])
    assert [repr(v) for v in stored_values(chunked, kind)] == [repr(v) for v in values]


@pytest.mark.parametrize("kind", ORDERED)
def test_stored_forms_make_the_column_they_are_of(kind: str) -> None:
    for values in (ORDERED[kind], ORDERED[kind][1:], ORDERED[kind][:1], []):
        column = stored_array(values, kind)
        column.validate(full=True)
        assert column.type == key_type(kind).arrow
        assert [repr(v) for v in stored_values(column, kind)] == [repr(v) for v in values]


@pytest.mark.parametrize("kind", ORDERED)
def test_values_are_the_same_where_their_stored_forms_are(kind: str) -> None:
    pairs = [(one, other) for one in ORDERED[kind] for other in ORDERED[kind]]
    same = same_values(*[stored_array(column, kind) for column in zip(*pairs, strict=True)])
    assert same.tolist() == [order_key((one,)) == order_key((other,)) for one, other in pairs]


@pytest.mark.parametrize("kind", ORDERED)
def test_the_json_form_gives_the_key_back(kind: str) -> None:
    for value in ORDERED[kind]:
        shown = key_type(kind).to_json(value)
        assert repr(key_type(kind).to_stored(shown, "k")) == repr(value), shown


NEAR_DAYS = st.integers(-1_500_000, 4_000_000)  # years -2137 to 12921: some of each length


@given(days=NEAR_DAYS | st.integers(-(2**31), 2**31 - 1))
@example(days=-(2**31))
@example(days=2**31 - 1)
def test_the_json_form_of_any_day_gives_it_back(days: int) -> None:
    assert key_type("date").to_stored(key_type("date").to_json(days), "k") == days


@pytest.mark.parametrize("kind", ["timestamp", "timestamp_ntz"])
@given(micros=NEAR_DAYS.map(lambda day: day * 86_400_000_000 - 1) | st.integers(-(2**63), 2**63 - 1))
@example(micros=-(2**63))
@example(micros=2**63 - 1)
def test_the_json_form_of_any_moment_gives_it_back(kind: str, micros: int) -> None:
    assert key_type(kind).to_stored(key_type(kind).to_json(micros), "k") == micros


def test_types_that_can_be_keys() -> None:
    assert all(map(is_key_type, [*ORDERED, "tinyint", "smallint", "bigint", "timestamp_ntz", "decimal(38,38)"]))
    assert not any(
        map(is_key_type, ["array<int>", "map<int,int>", "", "varchar", "decimal", "decimal(39,0)", "decimal(3,4)"])
    )
