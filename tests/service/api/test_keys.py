"""service/api/query.py: a key is shown in the form of rows, whatever the form in the request."""

import pytest

from gnomon.service.api.query import key_given, key_shown, read_key
from gnomon.service.errors import BadRequest
from gnomon.service.indexes.places import Place
from gnomon.shadow import KeyTypeError, to_json
from gnomon.shadow.metadata import Folder
from gnomon.shadow.metadata.spec import IndexSpec, KeyColumn
from tests.profiles import examples

PLACE, OPEN = Place("index", "/index", hidden=("secret",)), Place("index", "/index")


def spec_of(*columns: KeyColumn | str) -> IndexSpec:
    keys = tuple(one if isinstance(one, KeyColumn) else KeyColumn("k", one) for one in columns)
    return IndexSpec(Folder("/lake"), "parquet", ("dt",), keys, (), 4)


def shown(key: object, spec: IndexSpec) -> dict[str, object]:
    return key_shown(read_key(key, spec, OPEN, 100), spec, OPEN)


TWO = spec_of(KeyColumn("country", "string"), KeyColumn("_limit", "int"))
WITH_SECRET = spec_of(KeyColumn("user", "string"), KeyColumn("secret", "int"))


@pytest.mark.parametrize(
    ("type_name", "given", "expected"),
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
def test_a_key_is_shown_as_in_the_rows(type_name: str, given: object, expected: str) -> None:
    assert to_json(shown([given], spec_of(type_name))) == f'{{"k": {expected}}}'


@pytest.mark.parametrize(
    ("source_type", "type_name", "given", "expected"),
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
    source_type: str, type_name: str, given: object, expected: str
) -> None:
    spec = spec_of(KeyColumn("k", type_name, source_type=source_type))
    assert to_json(shown([given], spec)) == f'{{"k": {expected}}}'


def test_a_partition_column_of_a_key_is_shown_as_text() -> None:
    spec = spec_of(KeyColumn("id", "int"), KeyColumn("dt", "string", partition=True))
    assert shown({"dt": "2026-01-01", "id": "7"}, spec) == {"id": 7, "dt": "2026-01-01"}


@pytest.mark.parametrize("key", ["ä" * 6, ["b" * 11], {"k": "b" * 11}])
def test_a_value_is_measured_in_bytes(key: object) -> None:
    read_key(key, spec_of("string"), OPEN, 12)
    with pytest.raises(BadRequest, match=r"key column k: a value of 1[12] bytes; at most 10"):
        read_key(key, spec_of("string"), OPEN, 10)


@pytest.mark.parametrize(
    ("key", "says"),
    [
        ("de", "the key has the columns country, _limit; found 1 values"),
        (["de", 1, 2], "the key has the columns country, _limit; found 3 values"),
        ({}, "the key needs the columns country, _limit; found none; _limit is an option of every query: ask by POST"),
        ({"country": "de"}, "the key needs the columns country, _limit; found country; _limit is an option"),
        ({"x" * 999: 1}, "found " + "x" * 100 + r"\.\.\.;"),
        ([["de"], 1], "key column country: expected string, found a list"),
        ({"country": "de", "_limit": {"a": 1}}, "key column _limit: expected int, found an object"),
    ],
)
def test_a_key_of_another_form_is_refused_with_what_is_expected(key: object, says: str) -> None:
    with pytest.raises(BadRequest, match=says):
        read_key(key, TWO, OPEN, 100)


def test_a_value_of_another_type_names_column_type_and_what_was_found() -> None:
    with pytest.raises(KeyTypeError, match="key column _limit: expected int, found '" + "9" * 70) as caught:
        read_key({"country": "de", "_limit": "9" * 90}, TWO, OPEN, 100)
    assert (caught.value.column, caught.value.expected) == ("_limit", "int")
    assert len(str(caught.value)) < 150


@pytest.mark.parametrize("key", [["u", "x"], ["u", [1]], ["u", "9" * 101], "u", {"user": "u"}, {"other": 1}])
def test_a_key_column_that_is_hidden_is_not_named(key: object) -> None:
    with pytest.raises(BadRequest) as caught:
        read_key(key, WITH_SECRET, PLACE, 100)
    assert "secret" not in str(caught.value)
    assert key_shown(read_key(["u", 5], WITH_SECRET, PLACE, 100), WITH_SECRET, PLACE) == {"user": "u"}
    assert key_given(["u", 5], WITH_SECRET, PLACE) == {"user": "u"}


def test_a_key_that_is_repeated_with_its_error_is_cut() -> None:
    deep: object = 1
    for _ in range(examples(5000)):
        deep = [deep]
    assert key_given(deep, TWO, OPEN) == ["a list"]
    assert key_given([deep, 5], TWO, OPEN) == {"country": "a list", "_limit": 5}
    assert key_given({"a" * 999: deep}, TWO, OPEN) == {"a" * 100 + "...": "a list"}
    assert key_given("x" * 999, TWO, OPEN) == "x" * 100 + "..."
    assert key_given([1] * 999, TWO, OPEN) == [1, 1, 1]
