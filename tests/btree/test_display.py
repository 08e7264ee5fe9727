"""Stored values as JSON shows them."""

import json
import math

import pytest

from gnomon.btree import Column
from gnomon.btree.__main__ import to_json_object
from gnomon.btree.key_types import Stored, key_type
from gnomon.btree.keys import stored_array


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
