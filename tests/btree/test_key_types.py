"""Key types: stored values as JSON shows them, and source types that Spark does not support as keys. Each of these is
stored as a supported type, without loss."""

import datetime as dt
import decimal
import json
import math
import uuid
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from gnomon.btree import BTreeError, Column
from gnomon.btree.__main__ import to_json_object
from gnomon.btree.key_types import MAPPED, Stored, key_type, mean_the_same, source_type
from gnomon.btree.keys import key_array, stored_array, stored_values, type_of_arrow

D = decimal.Decimal
UUID = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")
NOON = 12 * 3600
# Arrow type, its name as a source type, its stored type, values and their stored forms.
RULES: list[tuple[pa.DataType, str | None, str, list[Any], list[Any]]] = [
    (pa.uint8(), "uint8", "smallint", [0, 255], [0, 255]),
    (pa.uint16(), "uint16", "int", [0, 2**16 - 1], [0, 2**16 - 1]),
    (pa.uint32(), "uint32", "bigint", [0, 2**32 - 1], [0, 2**32 - 1]),
    (pa.uint64(), "uint64", "decimal(20,0)", [0, 2**64 - 1], [0, 2**64 - 1]),
    (pa.float16(), "half", "float", [np.float16(0.1), np.float16(-0.0)], [0.0999755859375, 0.0]),
    (pa.binary(3), "fixed", "binary", [b"abc", b"\xff\x00\x7f"], [b"abc", b"\xff\x00\x7f"]),
    (pa.uuid(), "uuid", "binary", [UUID.bytes, bytes(16)], [UUID.bytes, bytes(16)]),
    (pa.time32("s"), "time(s)", "bigint", [NOON, 0], [NOON, 0]),
    (pa.time32("ms"), "time(ms)", "bigint", [NOON * 1000 + 1, 0], [NOON * 1000 + 1, 0]),
    (pa.time64("us"), "time(us)", "bigint", [NOON * 10**6 + 1, 0], [NOON * 10**6 + 1, 0]),
    (pa.time64("ns"), "time(ns)", "bigint", [NOON * 10**9 + 1, 0], [NOON * 10**9 + 1, 0]),
    (pa.timestamp("ns", "Asia/Tokyo"), "timestamp(ns)", "bigint", [-(2**63), 2**63 - 1], [-(2**63), 2**63 - 1]),
    (pa.timestamp("ns"), "timestamp_ntz(ns)", "bigint", [-1, 10**18], [-1, 10**18]),
    (pa.decimal256(38, 2), None, "decimal(38,2)", [D(10) ** 35, D("-0.01")], [10**37, -1]),
    (pa.date64(), None, "date", [dt.date(1500, 1, 1), dt.date(1970, 1, 2)], [-171664, 1]),
    (pa.string_view(), None, "string", ["é", ""], ["é", ""]),
    (pa.binary_view(), None, "binary", [b"\xff", b""], [b"\xff", b""]),
    (pa.large_string(), None, "string", ["é", ""], ["é", ""]),
]


@pytest.mark.parametrize(
    ("stored", "kind", "shown"),
    [
        (b"\x00\xff", "binary", "AP8="),
        (1230, "decimal(9,2)", "12.30"),
        (-5, "decimal(9,2)", "-0.05"),
        (7, "decimal(9,0)", "7"),
        (20454, "date", "2026-01-01"),
        (-719163, "date", "0000-12-31"),
        (2932897, "date", "+10000-01-01"),
        (0, "timestamp", "1970-01-01T00:00:00Z"),
        (-1, "timestamp_ntz", "1969-12-31T23:59:59.999999"),
        (-(2**63), "timestamp", "-290308-12-21T19:59:05.224192Z"),
        (math.nan, "double", "NaN"),
        (-math.inf, "float", "-Infinity"),
        (True, "boolean", True),
        (2**63 - 1, "bigint", 2**63 - 1),
        (None, "date", None),
        ("é", "string", "é"),
    ],
)
def test_json_form(stored: Stored, kind: str, shown: object) -> None:
    assert key_type(kind).to_json(stored) == shown
    json.dumps(key_type(kind).to_json(stored), allow_nan=False)


def test_columns_by_name() -> None:
    columns = (Column("a", "date"), Column("b", "int"))
    assert to_json_object((0, 5), columns) == {"a": "1970-01-01", "b": 5}


def test_a_negative_zero_keeps_its_sign() -> None:
    for kind in ("float", "double"):
        assert repr(key_type(kind).show(-0.0)) == "-0.0"


def test_a_negative_zero_that_is_no_key_keeps_its_sign() -> None:
    assert repr(stored_array([-0.0, None, 0.0], "double").to_pylist()) == "[-0.0, None, 0.0]"
    assert repr(stored_array([-0.0, None, 0.0], "float").to_pylist()) == "[-0.0, None, 0.0]"


def column_of(arrow: pa.DataType, values: list[Any]) -> pa.Array:
    return pa.array([values[0], *values, None], arrow).slice(1)


@pytest.mark.parametrize(("arrow", "name", "kind", "values", "stored"), RULES, ids=lambda part: str(part)[:30])
def test_every_value_is_stored_exactly(
    arrow: pa.DataType, name: str | None, kind: str, values: list[Any], stored: list[Any]
) -> None:
    assert (source_type(arrow), type_of_arrow(arrow)) == (name, kind)
    column = column_of(arrow, values)
    for array in (column, pa.chunked_array([column.slice(0, 1), column.slice(1)])):
        found = key_array(array, kind, "k")
        assert found.type == key_type(kind).arrow
        assert [repr(v) for v in stored_values(found, kind)] == [repr(v) for v in [*stored, None]]


def test_each_mapped_type_has_a_rule_here() -> None:
    assert {name for _, name, *_ in RULES if name} | {"bool8"} == set(MAPPED)


def test_dictionaries_runs_and_extension_types_are_as_their_values() -> None:
    words = pa.DictionaryArray.from_arrays(pa.array([1, 0, None], pa.int8()), pa.array([7, None], pa.uint16()))
    assert stored_values(key_array(words, "int", "k"), "int") == [None, 7, None]
    runs = pc.run_end_encode(pa.array([NOON, NOON, None], pa.time32("s")))
    assert stored_values(key_array(runs, "bigint", "k"), "bigint") == [NOON, NOON, None]
    flags = pa.ExtensionArray.from_storage(pa.bool8(), pa.array([2, 0, None], pa.int8()))
    assert (source_type(flags.type), stored_values(key_array(flags, "boolean", "k"), "boolean")) == (
        "bool8",
        [True, False, None],
    )
    text = pa.ExtensionArray.from_storage(pa.json_(), pa.array(["{}", None]))
    assert stored_values(key_array(text, "string", "k"), "string") == ["{}", None]


@pytest.mark.parametrize("kind", ["string", "binary", "boolean", "int", "float", "date", "timestamp", "decimal(20,0)"])
def test_a_column_without_values_is_nulls_of_any_type(kind: str) -> None:
    found = key_array(pa.nulls(2), kind, "k")
    assert (found.type, found.to_pylist()) == (key_type(kind).arrow, [None, None])


@pytest.mark.parametrize(
    ("array", "kind"),
    [
        (pa.array([300], pa.uint16()), "tinyint"),
        (pa.array([2**63], pa.uint64()), "bigint"),
        (pa.array([1], pa.date64()), "date"),
        (pa.array([2**62], pa.timestamp("s")), "timestamp_ntz"),
        (pa.array([1], pa.timestamp("ns")), "timestamp_ntz"),
        (pa.array([D(10) ** 60], pa.decimal256(76, 2)), "decimal(38,2)"),
        (pa.array([D("1.5")], pa.decimal128(5, 2)), "decimal(20,0)"),
        (pa.array([NOON], pa.time32("s")), "int"),
        (pa.array([1], pa.timestamp("us")), "bigint"),
        (pa.array([1], pa.timestamp("us")), "timestamp"),
        (pa.array([0.1], pa.float64()), "float"),
        (pa.array([1], pa.int64()), "string"),
        (pa.array(["1"]), "bigint"),
    ],
    ids=str,
)
def test_what_does_not_fit_is_refused_with_the_column(array: pa.Array, kind: str) -> None:
    with pytest.raises(BTreeError, match=r"column my\.key: .*expected "):
        key_array(array, kind, "my.key")


def test_text_that_is_not_utf8_is_no_key() -> None:
    text = pa.array([b"ok", None, b"\xff\xfe"]).view(pa.string())
    with pytest.raises(BTreeError, match=r"^column my\.key: a value is not UTF-8; expected string"):
        key_array(text, "string", "my.key")
    assert key_array(text[:2], "string", "my.key").to_pylist() == ["ok", None]


def test_numbers_of_units_are_of_one_column_in_the_same_unit_only() -> None:
    assert mean_the_same("uint32", None)
    assert mean_the_same("uuid", "fixed")
    assert mean_the_same("time(us)", "time(us)")
    for one, other in (("time(us)", "time(ns)"), ("timestamp(ns)", None), ("timestamp(ns)", "timestamp_ntz(ns)")):
        assert not mean_the_same(one, other)
        assert not mean_the_same(other, one)
