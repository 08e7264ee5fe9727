"""service/keys.py: a key is shown in one form, the rows' own, in whatever form it was asked for."""

import pytest

from service.errors import BadRequest
from service.keys import check_length, key_shown
from shadow import to_json
from shadow.spec import IndexSpec, KeyColumn


def spec_of(type_name: str) -> IndexSpec:
    return IndexSpec("/lake", False, "parquet", (), (KeyColumn("k", type_name),), (), 4)


@pytest.mark.parametrize(
    ("type_name", "given", "shown"),
    [
        ("string", "5", '"5"'),
        ("bigint", "+9007199254740993", "9007199254740993"),
        ("int", 5, "5"),
        ("boolean", "true", "true"),
        ("double", "1e3", "1000.0"),
        ("double", "NaN", '"NaN"'),
        ("date", "20260102", '"2026-01-02"'),
        ("timestamp", "2026-01-02T03:04:05+01:00", '"2026-01-02T02:04:05Z"'),
        ("timestamp_ntz", "2026-01-02", '"2026-01-02T00:00:00"'),
        ("decimal(38,2)", "123456789012345678901234567890123456.7", '"123456789012345678901234567890123456.70"'),
        ("decimal(5,0)", "7", '"7"'),
        ("binary", "AP8=", '"AP8="'),
        ("int", None, "null"),
        ("decimal(5,2)", None, "null"),
    ],
)
def test_a_key_is_shown_as_in_the_rows(type_name: str, given: object, shown: str) -> None:
    assert to_json(key_shown([given], spec_of(type_name))) == f'{{"k": {shown}}}'


@pytest.mark.parametrize(
    ("source_type", "type_name", "given", "shown"),
    [
        ("uuid", "binary", "00112233445566778899AABBCCDDEEFF", '"00112233-4455-6677-8899-aabbccddeeff"'),
        ("uuid", "binary", b"\x00\xff", '"AP8="'),
        ("uint64", "decimal(20,0)", "18446744073709551615", "18446744073709551615"),
        ("uint8", "smallint", "255", "255"),
        ("time(ms)", "bigint", "12:30", '"12:30:00"'),
        ("time(ns)", "bigint", 1, '"00:00:00.000000001"'),
        ("timestamp(ns)", "bigint", "2026-01-02T03:04:05.123456789+01:00", '"2026-01-02T02:04:05.123456789Z"'),
        ("timestamp_ntz(ns)", "bigint", "2026-01-02", '"2026-01-02T00:00:00"'),
        ("half", "float", 0.1, "0.0999755859375"),
        ("fixed", "binary", "AP8=", '"AP8="'),
        ("uuid", "binary", None, "null"),
    ],
)
def test_a_key_is_shown_in_the_form_of_its_type_in_the_source(
    source_type: str, type_name: str, given: object, shown: str
) -> None:
    column = KeyColumn("k", type_name, source_type=source_type)
    spec = IndexSpec("/lake", False, "parquet", (), (column,), (), 4)
    assert to_json(key_shown([given], spec)) == f'{{"k": {shown}}}'


def test_a_partition_column_of_a_key_is_shown_as_text() -> None:
    keys = (KeyColumn("id", "int"), KeyColumn("dt", "string", partition=True))
    spec = IndexSpec("/lake", False, "parquet", ("dt",), keys, (), 4)
    assert key_shown({"dt": "2026-01-01", "id": "7"}, spec) == {"id": 7, "dt": "2026-01-01"}


@pytest.mark.parametrize("key", ["ä" * 6, ["a", "b" * 11], {"k": "b" * 11}])
def test_a_value_is_measured_in_bytes(key: object) -> None:
    check_length(key, 12)
    with pytest.raises(BadRequest, match=r"a key value has 1[12] bytes; at most 10"):
        check_length(key, 10)
