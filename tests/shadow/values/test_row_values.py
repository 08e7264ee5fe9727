"""Values of a row, for every Arrow type a file can hold, in Python and in JSON."""

import datetime as dt
import decimal
import json
import math
import uuid
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from gnomon.shadow.values.row_values import python_values, to_json

BERLIN = dt.timezone(dt.timedelta(hours=1))
UUID = uuid.UUID("12345678-1234-5678-1234-567812345678")
DAY_S, YEAR_10000_S = 86_400, 253_402_300_800


def both(array: pa.Array) -> tuple[Any, Any]:
    """The first value in Python, and in JSON after parsing."""
    value = python_values(array)[0]
    return value, json.loads(to_json({"v": value}))["v"]


UTC_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
MILLISECOND = dt.timedelta(milliseconds=1)


PLAIN: list[tuple[pa.Array, Any, Any]] = [
    (pa.array([None]), None, None),
    (pa.array([True]), True, True),
    (pa.array([-128], pa.int8()), -128, -128),
    (pa.array([2**63 - 1], pa.int64()), 2**63 - 1, 2**63 - 1),
    (pa.array([2**64 - 1], pa.uint64()), 2**64 - 1, 2**64 - 1),
    (pa.array([1.5], pa.float16()), 1.5, 1.5),
    (pa.array([0.1], pa.float32()), 0.10000000149011612, 0.10000000149011612),
    (pa.array([math.inf]), math.inf, "Infinity"),
    (pa.array([-math.inf], pa.float16()), -math.inf, "-Infinity"),
    (pa.array(["Straße \x00"]), "Straße \x00", "Straße \x00"),
    (pa.array(["x"], pa.large_string()), "x", "x"),
    (pa.array(["a string beyond twelve bytes"], pa.string_view()), *["a string beyond twelve bytes"] * 2),
    (pa.array([b"\xff\x00"]), b"\xff\x00", "/wA="),
    (pa.array([b"\xff"], pa.large_binary()), b"\xff", "/w=="),
    (pa.array([b"\xff"], pa.binary_view()), b"\xff", "/w=="),
    (pa.array([b"ab"], pa.binary(2)), b"ab", "YWI="),
    (pa.array(["x"]).dictionary_encode(), "x", "x"),
    (pa.array([decimal.Decimal("-12.30")]), decimal.Decimal("-12.30"), "-12.30"),
    (pa.array([decimal.Decimal("1E+2")], pa.decimal128(38, 0)), decimal.Decimal(100), "100"),
    (pa.array([decimal.Decimal("1E-37")], pa.decimal128(38, 37)), decimal.Decimal("1E-37"), f"0.{'0' * 36}1"),
    (pa.array([decimal.Decimal("9" * 76)], pa.decimal256(76, 0)), decimal.Decimal("9" * 76), "9" * 76),
    (pa.array([decimal.Decimal("1.5")], pa.decimal32(3, 1)), decimal.Decimal("1.5"), "1.5"),
    (pa.array([UUID.bytes], pa.uuid()), str(UUID), str(UUID)),
    (pa.ExtensionArray.from_storage(pa.bool8(), pa.array([2], pa.int8())), True, True),
    (pa.array(['{"a": [1, null]}'], pa.json_()), {"a": [1, None]}, {"a": [1, None]}),
    (pa.array(["{"], pa.json_()), "{", "{"),
]

TEMPORAL: list[tuple[pa.Array, Any, str]] = [
    (pa.array([0], pa.date32()), dt.date(1970, 1, 1), "1970-01-01"),
    (pa.array([-719162], pa.date32()), dt.date.min, "0001-01-01"),
    (pa.array([-719163], pa.date32()), "0000-12-31", "0000-12-31"),
    (pa.array([2932896], pa.date32()), dt.date.max, "9999-12-31"),
    (pa.array([2932897], pa.date32()), "+10000-01-01", "+10000-01-01"),
    (pa.array([-DAY_S * 1000], pa.date64()), dt.date(1969, 12, 31), "1969-12-31"),
    (pa.array([YEAR_10000_S * 1000], pa.int64()).view(pa.date64()), "+10000-01-01", "+10000-01-01"),
    (pa.array([1], pa.time32("s")), "00:00:01", "00:00:01"),
    (pa.array([86_399_999], pa.time32("ms")), "23:59:59.999", "23:59:59.999"),
    (pa.array([1], pa.time64("us")), "00:00:00.000001", "00:00:00.000001"),
    (pa.array([1], pa.time64("ns")), "00:00:00.000000001", "00:00:00.000000001"),
    (pa.array([-1], pa.timestamp("s")), dt.datetime(1969, 12, 31, 23, 59, 59), "1969-12-31T23:59:59"),
    (
        pa.array([1], pa.timestamp("ms", "UTC")),
        UTC_EPOCH + MILLISECOND,
        "1970-01-01T00:00:00.001Z",
    ),
    (
        pa.array([0], pa.timestamp("us", "Europe/Berlin")),
        dt.datetime(1970, 1, 1, tzinfo=dt.UTC),
        "1970-01-01T00:00:00Z",
    ),
    (pa.array([1_000], pa.timestamp("ns")), dt.datetime(1970, 1, 1, 0, 0, 0, 1), "1970-01-01T00:00:00.000001"),
    (pa.array([1], pa.timestamp("ns")), *["1970-01-01T00:00:00.000000001"] * 2),
    (pa.array([1], pa.timestamp("ns", "UTC")), *["1970-01-01T00:00:00.000000001Z"] * 2),
    (pa.array([YEAR_10000_S], pa.timestamp("s", "UTC")), *["+10000-01-01T00:00:00Z"] * 2),
    (pa.array([YEAR_10000_S - 1], pa.timestamp("s")), dt.datetime(9999, 12, 31, 23, 59, 59), "9999-12-31T23:59:59"),
    (pa.array([-719163 * DAY_S * 1000], pa.timestamp("ms")), *["0000-12-31T00:00:00"] * 2),
    (pa.array([2**63 - 1], pa.timestamp("us")), *["+294247-01-10T04:00:54.775807"] * 2),
    (pa.array([1_500], pa.duration("ms")), dt.timedelta(seconds=1.5), "1500000us"),
    (pa.array([-1], pa.duration("us")), dt.timedelta(microseconds=-1), "-1us"),
    (pa.array([1], pa.duration("ns")), "1ns", "1ns"),
    (pa.array([2**62], pa.duration("s")), f"{2**62}s", f"{2**62}s"),
]


@pytest.mark.parametrize(("array", "python", "in_json"), PLAIN + TEMPORAL, ids=lambda value: str(value)[:30])
def test_a_value_has_its_python_and_its_json_form(array: pa.Array, python: Any, in_json: Any) -> None:
    value, shown = both(array)
    assert (value, type(value)) == (python, type(python))
    assert shown == in_json


@pytest.mark.parametrize("array", [array for array, _, _ in PLAIN + TEMPORAL], ids=lambda array: str(array.type))
def test_nulls_slices_chunks_and_nesting_change_no_value(array: pa.Array) -> None:
    value = python_values(array)[0]
    null = pa.nulls(1, array.type)
    with_nulls = pa.concat_arrays([array, null, array, null, array])
    assert python_values(with_nulls) == [value, None, value, None, value]
    assert python_values(with_nulls.slice(1, 3)) == [None, value, None]
    assert python_values(pa.chunked_array([array, with_nulls.slice(3)])) == [value, None, value]
    assert python_values(array.slice(1)) == []
    lists = pa.ListArray.from_arrays(pa.array([0, 2, 5], pa.int32()), with_nulls)
    assert python_values(lists.slice(1)) == [[value, None, value]]
    structs = pa.StructArray.from_arrays([with_nulls, lists.values], names=["a", "b"])
    assert python_values(structs.slice(1, 2)) == [{"a": None, "b": None}, {"a": value, "b": value}]


def test_nan_is_a_string_in_json_however_deep_it_lies() -> None:
    value = python_values(pa.array([{"a": [1.0, math.nan], "b": {"c": -math.inf}}]))[0]
    assert json.loads(to_json([value])) == [{"a": [1.0, "NaN"], "b": {"c": "-Infinity"}}]


def test_text_that_is_not_utf8_comes_as_bytes() -> None:
    for kind in (pa.string(), pa.large_string()):
        storage = pa.array([b"\xff\xfe", b"ok", None], pa.binary() if kind == pa.string() else pa.large_binary())
        broken = pa.Array.from_buffers(kind, 3, storage.buffers())
        assert python_values(broken) == [b"\xff\xfe", "ok", None]
        assert python_values(broken.slice(1)) == ["ok", None]
        assert python_values(broken.dictionary_encode()) == [b"\xff\xfe", "ok", None]
    assert json.loads(to_json([b"\xff\xfe"])) == ["//4="]


LISTS = [[1, 2], None, [], [3, None, 4], [5]]


@pytest.mark.parametrize("kind", [pa.list_, pa.large_list, pa.list_view, pa.large_list_view])
def test_lists_of_every_layout(kind: Any) -> None:
    array = pa.array(LISTS, kind(pa.int32()))
    assert python_values(array) == LISTS
    assert python_values(array.slice(2, 2)) == LISTS[2:4]


def test_lists_of_fixed_size_and_runs() -> None:
    array = pa.array([[1, 2], None, [3, None]], pa.list_(pa.int8(), 2))
    assert python_values(array) == [[1, 2], None, [3, None]]
    assert python_values(array.slice(1)) == [None, [3, None]]
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([2, 3]), pa.array(["a", None]))
    assert python_values(runs.slice(1)) == ["a", None]


def test_unions_give_the_value_that_is_there() -> None:
    children = [pa.array([1, 2]), pa.array([dt.date.max], pa.date32())]
    types, offsets = pa.array([0, 1, 0], pa.int8()), pa.array([0, 0, 1], pa.int32())
    dense = pa.UnionArray.from_dense(types, offsets, children)
    assert python_values(dense) == [1, dt.date.max, 2]
    assert python_values(dense.slice(1)) == [dt.date.max, 2]
    assert python_values(dense.slice(3)) == []
    sparse = pa.UnionArray.from_sparse(types, [pa.array([1, None, 2]), pa.array(["", "x", ""])])
    assert python_values(sparse) == [1, "x", 2]
    assert python_values(sparse.slice(1)) == ["x", 2]


def test_unions_within_records_that_may_be_null_give_their_values() -> None:
    """pyarrow's own `flatten` would end the process."""
    children = [pa.array([1, 2]), pa.array(["x"])]
    inner = pa.UnionArray.from_dense(pa.array([0, 1, 0], pa.int8()), pa.array([0, 0, 1], pa.int32()), children)
    records = pa.StructArray.from_arrays([inner], ["u"], mask=pa.array([False, True, False]))
    assert python_values(records) == [{"u": 1}, None, {"u": 2}]
    assert python_values(records.slice(1)) == [None, {"u": 2}]
    outer = pa.UnionArray.from_dense(pa.array([0, 0], pa.int8()), pa.array([2, 0], pa.int32()), [records])
    assert python_values(outer) == [{"u": 2}, {"u": 1}]


def maps(key: pa.DataType, *values: list[tuple[Any, Any]] | None) -> pa.Array:
    return pa.array(list(values), pa.map_(key, pa.float64()))


def test_maps_are_dicts_and_survive_slicing() -> None:
    array = maps(pa.string(), [("a", 1)], None, [], [("b", 2), ("c", None)])
    expected = [{"a": 1.0}, None, {}, {"b": 2.0, "c": None}]
    assert python_values(array) == expected
    assert python_values(array.slice(1)) == expected[1:]
    assert python_values(array.slice(3)) == expected[3:]
    assert python_values(array.slice(4)) == []
    assert to_json(expected[3]) == '{"b": 2.0, "c": null}'


def test_maps_with_other_keys_are_dicts_in_python_and_pairs_in_json() -> None:
    (numbers,) = python_values(maps(pa.int32(), [(1, 0.5), (2, math.nan)]))
    assert numbers[1] == 0.5
    assert to_json(numbers) == '[[1, 0.5], [2, "NaN"]]'
    (days,) = python_values(maps(pa.date32(), [(dt.date(2026, 1, 1), 1)]))
    assert days == {dt.date(2026, 1, 1): 1.0}
    assert to_json({"days": days}) == '{"days": [["2026-01-01", 1.0]]}'


def test_maps_whose_keys_repeat_or_cannot_be_keys_lose_nothing() -> None:
    assert python_values(maps(pa.string(), [("a", 1), ("a", 2)])) == [[["a", 1.0], ["a", 2.0]]]
    assert python_values(maps(pa.list_(pa.int32()), [([1], 2)])) == [[[[1], 2.0]]]


def test_a_record_with_two_fields_of_one_name_loses_nothing() -> None:
    array = pa.StructArray.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
    assert python_values(array) == [[["a", 1], ["a", 2]]]


def test_a_record_without_fields_is_empty_or_null() -> None:
    assert python_values(pa.array([{}, None], pa.struct([]))) == [{}, None]


def test_nested_types_in_sliced_chunks() -> None:
    kind = pa.list_(pa.struct([("m", pa.map_(pa.string(), pa.list_(pa.timestamp("ns")))), ("d", pa.date32())]))
    rows = [None, [{"m": [("k", [1, 1000])], "d": None}], [], [{"m": None, "d": dt.date.min}, None]]
    chunked = pa.chunked_array([pa.array(rows, kind).slice(1), pa.array(rows, kind).slice(0, 2)])
    instant = dt.datetime(1970, 1, 1, 0, 0, 0, 1)
    first = [{"m": {"k": ["1970-01-01T00:00:00.000000001", instant]}, "d": None}]
    assert python_values(chunked) == [first, [], [{"m": None, "d": dt.date.min}, None], None, first]


def test_json_of_values_that_callers_bring() -> None:
    given = {
        "in another zone": dt.datetime(2026, 1, 1, 1, tzinfo=BERLIN),
        "numpy": np.float64("nan"),
        "pairs": [(1, b"\x00")],
        "decimal": decimal.Decimal("1E+3"),
    }
    assert json.loads(to_json(given)) == {
        "in another zone": "2026-01-01T00:00:00Z",
        "numpy": "NaN",
        "pairs": [[1, "AA=="]],
        "decimal": "1000",
    }


def test_json_is_one_line_and_keeps_text_as_it_is() -> None:
    assert to_json({"ü": "a\nb \u2028"}) == '{"ü": "a\\nb \u2028"}'
