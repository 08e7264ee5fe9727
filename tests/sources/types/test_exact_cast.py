"""Values of a file in the declared types of a table."""

import datetime as dt
import decimal
import uuid
from collections.abc import Callable

import pyarrow as pa
import pytest

from gnomon.sources.types.exact_cast import SAFE_CAST, SAME_KIND, WIDENED, Rules, Unfit, can_hold, conform

UTC = pa.timestamp("us", "UTC")
NOON = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)
HELD = [
    (pa.int8(), -7, pa.int64(), -7),
    (pa.uint32(), 2**32 - 1, pa.int64(), 2**32 - 1),
    (pa.int32(), -(2**31), pa.float64(), -2147483648.0),
    (pa.int32(), 2**31 - 1, pa.decimal128(12, 2), decimal.Decimal("2147483647.00")),
    (pa.float32(), 0.5, pa.float64(), 0.5),
    (pa.decimal128(5, 2), decimal.Decimal("123.45"), pa.decimal128(10, 4), decimal.Decimal("123.4500")),
    (pa.timestamp("ms", "UTC"), NOON, UTC, NOON),
    (pa.timestamp("us"), NOON.replace(tzinfo=None), UTC, NOON),
    (pa.binary(), "é".encode(), pa.string(), "é"),
    (pa.string(), "é", pa.binary(), "é".encode()),
    (pa.large_string(), "é", pa.string(), "é"),
    (pa.dictionary(pa.int8(), pa.string()), "é", pa.string(), "é"),
    (pa.date32(), dt.date(2026, 1, 1), pa.timestamp("us"), dt.datetime(2026, 1, 1)),
    (pa.time32("ms"), dt.time(0, 0, 1), pa.int32(), 1000),
    (pa.list_(pa.int32()), [1, None], pa.list_(pa.int64()), [1, None]),
    (pa.null(), None, pa.list_(pa.int64()), None),
    (pa.uuid(), uuid.UUID(int=5).bytes, pa.string(), str(uuid.UUID(int=5))),
]
REFUSED = [
    (pa.int64(), pa.int32()),
    (pa.uint64(), pa.int64()),
    (pa.int64(), pa.float64()),
    (pa.int32(), pa.decimal128(9, 0)),
    (pa.float64(), pa.float32()),
    (pa.decimal128(10, 4), pa.decimal128(10, 2)),
    (UTC, pa.timestamp("us")),
    (pa.string(), pa.int32()),
    (pa.int32(), pa.string()),
    (pa.bool_(), pa.int32()),
    (pa.date32(), UTC),
    (pa.list_(pa.int64()), pa.list_(pa.int32())),
    (pa.list_(pa.int32()), pa.map_(pa.string(), pa.int32())),
    (pa.struct([("a", pa.int32()), ("A", pa.int32())]), pa.struct([("a", pa.int32())])),
]


@pytest.mark.parametrize(("found", "value", "wanted", "expected"), HELD)
def test_a_type_that_holds_every_value_takes_them_all(
    found: pa.DataType, value: object, wanted: pa.DataType, expected: object
) -> None:
    assert can_hold(found, wanted, WIDENED)
    made = conform(pa.array([None, value, None, value], found).slice(1), wanted)
    assert (made.type, made.to_pylist()) == (wanted, [expected, None, expected])


@pytest.mark.parametrize(("found", "wanted"), REFUSED)
def test_a_type_that_would_cut_or_round_is_none(found: pa.DataType, wanted: pa.DataType) -> None:
    assert not can_hold(found, wanted, WIDENED)


def test_parts_of_records_are_found_by_name_whatever_their_case_within_slices_too() -> None:
    inner = [{"B": b"q", "gone": 1}, None]
    rows = [{"A": 0, "x": inner}, None, {"A": 2, "x": None}, {"A": 3, "x": inner[::-1]}]
    wanted = pa.struct([("a", pa.int64()), ("X", pa.list_(pa.struct([("b", pa.string()), ("n", pa.int32())])))])
    array = pa.array(rows)
    held = {"b": "q", "n": None}
    expected = [{"a": 0, "X": [held, None]}, None, {"a": 2, "X": None}, {"a": 3, "X": [None, held]}]
    assert can_hold(array.type, wanted, WIDENED)
    for begin in range(4):
        assert conform(array.slice(begin), wanted).to_pylist() == expected[begin:]
    maps = pa.array([[("k", {"A": 1})], None, [("z", None), ("y", {"A": 2})]], pa.map_(pa.string(), array.type))
    made = conform(maps.slice(1), pa.map_(pa.string(), wanted)).to_pylist()
    assert made == [None, [("z", None), ("y", {"a": 2, "X": None})]]
    assert conform(pa.array([[1, 2], None], pa.list_(pa.int8(), 2)), pa.list_(pa.int64())).to_pylist() == [[1, 2], None]


LISTS = [pa.list_, pa.large_list, lambda kind: pa.list_(kind, 2), pa.list_view, pa.large_list_view]


@pytest.mark.parametrize("list_of", LISTS)
def test_lists_of_records_with_a_column_without_a_type_are_read_from_any_slice(
    list_of: Callable[[pa.DataType], pa.DataType],
) -> None:
    """Arrow's own casts give wrong rows for them, or end the process."""
    record = pa.struct([("A", pa.int32()), ("none", pa.null()), ("in", list_of(pa.struct([("none", pa.null())])))])
    wanted_in = pa.list_(pa.struct([("none", pa.string())]))
    wanted = pa.list_(pa.struct([("a", pa.int64()), ("none", pa.int64()), ("in", wanted_in)]))
    parts = [{"A": i, "none": None, "in": [{"none": None}, None] if i % 2 else None} for i in range(8)]
    array = pa.array([parts[:2], None, parts[2:4], [None, parts[5]], parts[6:]], list_of(record))
    held: list[dict[str, object]] = [{"a": part["A"], "none": None, "in": part["in"]} for part in parts]
    expected = [held[:2], None, held[2:4], [None, held[5]], held[6:]]
    for begin in range(6):
        for end in range(begin, 6):
            made = conform(array.slice(begin, end - begin), wanted)
            made.validate(full=True)
            assert (made.type, made.to_pylist()) == (wanted, expected[begin:end])


def test_a_value_that_is_none_of_the_declared_type_is_an_error() -> None:
    with pytest.raises(Unfit, match="UTF8"):
        conform(pa.array([b"a", b"\xff"]), pa.string())
    with pytest.raises(Unfit, match="lose data"):
        conform(pa.array([1], pa.timestamp("ns", "UTC")), UTC)
    assert conform(pa.array([decimal.Decimal("1.50")]), pa.decimal128(9, 3)).to_pylist() == [decimal.Decimal("1.500")]


@pytest.mark.parametrize("rules", [WIDENED, SAME_KIND, SAFE_CAST])
def test_a_struct_without_fields_is_held_by_structs_only(rules: Rules) -> None:
    assert can_hold(pa.struct([]), pa.struct([]), rules)
    assert not any(can_hold(pa.struct([]), wanted, rules) for wanted in (pa.int64(), pa.string(), pa.list_(pa.int8())))


def test_a_safe_cast_needs_unique_names_and_leaves_no_field_out() -> None:
    one, two = pa.struct([("a", pa.int8())]), pa.struct([("b", pa.int64()), ("a", pa.int64())])
    assert can_hold(one, two, SAFE_CAST)
    assert not can_hold(two, one, SAFE_CAST)
    assert not can_hold(one, two, SAME_KIND)
    twice = pa.struct([("a", pa.int8()), ("a", pa.int8())])
    assert not can_hold(twice, twice, SAFE_CAST)
    assert can_hold(twice, twice, WIDENED)


def test_a_timestamp_changes_its_zone_only_by_the_rules_that_say_so() -> None:
    bare, berlin = pa.timestamp("us"), pa.timestamp("us", "Europe/Berlin")
    assert [can_hold(bare, UTC, rules) for rules in (WIDENED, SAME_KIND, SAFE_CAST)] == [True, True, False]
    assert [can_hold(bare, berlin, rules) for rules in (WIDENED, SAME_KIND, SAFE_CAST)] == [True, False, False]
    assert [can_hold(UTC, bare, rules) for rules in (WIDENED, SAME_KIND, SAFE_CAST)] == [False, True, False]
    assert can_hold(pa.list_(bare), pa.list_(UTC), SAFE_CAST)  # INT96
