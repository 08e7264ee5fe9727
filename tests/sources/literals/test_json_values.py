"""JSON texts by a schema, and the schema inferred from them: nothing is lost."""

import datetime as dt
import re
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from gnomon.sources.errors import OptionError
from gnomon.sources.literals.inference import FIELD_LIMIT, Shape, TooManyNames, infer_rows, merge_schemas, schema_of
from gnomon.sources.literals.json_values import JsonColumns
from gnomon.sources.literals.text_values import RefusedValue
from gnomon.sources.types.ddl import parse_ddl, to_ddl


def read(ddl: str, *texts: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = JsonColumns(parse_ddl(ddl)).read([text.encode() for text in texts]).to_pylist()
    return rows


def inferred(*texts: str) -> pa.Schema:
    shape = Shape()
    infer_rows(shape, [text.encode() for text in texts])
    return schema_of(shape)


def test_rows_are_read_by_the_names_and_types_of_the_schema() -> None:
    schema = "a bigint, b string, c double, d boolean, e array<int>, f struct<x:int,`ü`:string>, g map<string,double>"
    first = '{"g":{"k":1,"l":null},"b":"\\u00fc","c":1.5,"d":true,"e":[1,null],"a":1,"f":{"ü":"y"},"more":[{}]}'
    assert read(schema, first, "{}", "null", ' {"a" : null}\t') == [
        {"a": 1, "b": "ü", "c": 1.5, "d": True, "e": [1, None],
         "f": {"x": None, "ü": "y"}, "g": [("k", 1.0), ("l", None)]},
        *[dict.fromkeys("abcdefg")] * 3,
    ]  # fmt: skip


def test_a_string_column_keeps_the_text_of_what_is_no_string() -> None:
    texts = [
        '{"a":1.50}',
        '{"a": {"x" : [1,  2]} }',
        '{"a":true}',
        '{"a":"1.50"}',
        '{"a":123456789012345678901234567890}',
    ]
    read_back = ["1.50", '{"x" : [1,  2]}', "true", "1.50", "123456789012345678901234567890"]
    assert [row["a"] for row in read("a string", *texts)] == read_back
    assert read("a array<string>", '{"a":["x",1E5,{"q": 1},null]}') == [{"a": ["x", "1E5", '{"q": 1}', None]}]


def test_decimals_temporal_values_and_bytes_are_exact_at_any_depth() -> None:
    schema = (
        "a decimal(38,3), b timestamp, c array<struct<d:date,n:decimal(4,1)>>, m map<string,timestamp_ntz>, x binary"
    )
    day = dt.date(2020, 1, 31)
    text = (
        '{"a":12345678901234567890123456789012345.678,"b":"2020-01-31T01:00:00+01:00","x":"AAE=",'
        '"c":[{"d":"2020-01-31","n":"2.5"},null,{}],"m":{"k":"2020-01-31 00:00:00"}}'
    )
    rows = read(schema, text, '{"c":null}', '{"b":1580428800}')
    assert rows[0]["a"] == Decimal("12345678901234567890123456789012345.678")
    assert rows[0]["b"] == rows[2]["b"] == dt.datetime(2020, 1, 31, tzinfo=dt.UTC)
    assert rows[0]["c"] == [{"d": day, "n": Decimal("2.5")}, None, {"d": None, "n": None}]
    assert rows[0]["m"] == [("k", dt.datetime(2020, 1, 31))]
    assert rows[0]["x"] == b"\0\1"


def test_of_keys_that_repeat_the_last_counts_as_in_spark() -> None:
    assert read("a bigint, b struct<x:int>", '{"a":1,"a":2,"b":{"x":1,"x":2}}') == [{"a": 2, "b": {"x": 2}}]
    assert read("a string", '{"a":1,"a":2}') == [{"a": "2"}]


def test_a_value_is_the_same_whatever_stands_in_other_columns() -> None:
    """One value of a wrong type sends the row through another code path."""
    schema = parse_ddl("f double, g float, i bigint, s string")
    for number in (
        "0.1",
        "-0",
        "-0.0",
        "1e22",
        "123456789012345678",
        "0.10000000149011612",
        "8.41e-45",
        "12345678901234567890",
    ):
        texts = [f'{{"f":{number},"g":{number},"s":{other}}}'.encode() for other in ('"x"', "5")]
        rows = JsonColumns(schema, ["f", "g", "s"]).read(texts)
        assert repr(rows["f"][0]) == repr(rows["f"][1])
        assert repr(rows["g"][0]) == repr(rows["g"][1])
        assert JsonColumns(schema, ["g"]).read(texts)["g"].equals(rows["g"])


@pytest.mark.parametrize(
    ("schema", "text", "message"),
    [
        ("a bigint", '{"a":1.0}', "column a: expected an integer of 64 bits, found '1.0'"),
        ("a bigint", '{"a":9223372036854775808}', "column a: expected an integer of 64 bits"),
        ("a tinyint", '{"a":128}', "column a: expected an integer of 8 bits"),
        ("a bigint", '{"a":"1"}', "column a: expected int64, found the string '1'"),
        ("a boolean", '{"a":0}', "column a: expected bool, found '0'"),
        ("a struct<x:array<date>>", '{"a":{"x":["2020-01-01","2020-02-30"]}}', r"column a.x\[\]: expected a date"),
        ("a map<string,int>", '{"a":{"k":"v"}}', "column a.k: expected int32"),
        ("a array<int>", '{"a":{}}', "column a: expected list<.*>, found '{}'"),
        ("a decimal(4,2)", '{"a":1.005}', r"column a: expected a decimal\(4,2\), found '1.005'"),
        ("a decimal(4,2)", '{"a":1e-99999999}', r"column a: expected a decimal\(4,2\)"),
        ("a binary", '{"a":"?"}', "column a: expected bytes in base64"),
        ("a void", '{"a":1}', "column a: expected null, found '1'"),
        ("a bigint", "[1]", "expected an object, found '.1.'"),
        ("a bigint", '{"a":1', "a line that is not one JSON value"),
        ("a bigint", '{"a":1} {"a":2}', "a line that is not one JSON value"),
        ("a bigint", '{"a":NaN}', "column a: expected int64, found the string 'NaN'"),
        ("a double", '{"a":-NaN}', "a line that is not one JSON value"),
        ("a double", '{"a":NaN.2e2}', "a line that is not one JSON value"),
        ("a bigint", '{"b":01}', "a line that is not one JSON value"),
        ("a bigint", "{'a':1}", "a line that is not one JSON value"),
        ("a string", '{"a":"\\ud83d\\ude00 \\ud800"}', r"not one JSON value: .ud800 is half of a character"),
        ("a string", '{"a":"\\ude00\\ud83d\\ude00"}', r"not one JSON value: .ude00 is half of a character"),
        ("a string", '{"a":"\t"}', "a line that is not one JSON value"),
        ("a string", '{"b":' + "[" * 1_000_000 + "]" * 1_000_000 + "}", "nested too deeply"),
        ("", "{,}", "a line that is not one JSON value"),
    ],
)
def test_what_is_not_of_its_type_or_not_json_is_refused_with_its_row(schema: str, text: str, message: str) -> None:
    with pytest.raises(RefusedValue, match=message) as caught:
        read(schema, "{}", text)
    assert caught.value.index == 1


def test_bare_numbers_that_are_none_to_json_are_read_as_python_and_spark_read_them() -> None:
    texts = [
        '{"a":NaN,"b":"NaN"}',
        '{"a": -Infinity ,"b":"\\"Infinity"}',
        '{"a":Infinity,"b":[NaN,"-Infinity"]}',
        '{"a":1}',
    ]
    schema = to_ddl(inferred(*texts))
    assert schema == "a double, b string"
    rows = read(schema, *texts)
    assert repr([row["a"] for row in rows]) == "[nan, -inf, inf, 1.0]"
    assert [row["b"] for row in rows] == ["NaN", '"Infinity', '[NaN,"-Infinity"]', None]
    assert read("b string", *texts) == [{"b": row["b"]} for row in rows]
    assert to_ddl(inferred('{"a":[NaN,1]}')) == "a array<double>"
    assert to_ddl(inferred('{"a":NaN}', '{"a":9007199254740993}')) == "a string"
    merged = merge_schemas([inferred('{"a":NaN}'), inferred('{"a":9007199254740993}')])
    assert without_what_was_seen(merged) == "a string"
    assert read("a float", '{"a":NaN}')[0]["a"] != 0


def test_maps_have_strings_for_keys() -> None:
    with pytest.raises(OptionError, match="column a has a map whose keys are not strings"):
        JsonColumns(parse_ddl("a array<map<int,int>>"))


def test_rows_that_are_no_objects_are_one_column() -> None:
    assert read("value array<bigint>", "[1,2]", "null", "[]") == [{"value": [1, 2]}, {"value": None}, {"value": []}]
    assert read("value bigint", "1", '{"value":2}') == [{"value": 1}, {"value": 2}]
    mixed = to_ddl(inferred("1", '{"value": 2}', '"x"'))
    assert read(mixed, "1", '{"value": 2}', '"x"') == [{"value": "1"}, {"value": '{"value": 2}'}, {"value": "x"}]


def test_names_that_the_fast_way_does_not_take_are_read_all_the_same() -> None:
    assert read('`a"\\` int, `` int, `\n` string', '{"a\\"\\\\":1,"":2,"\\n":3}') == [{'a"\\': 1, "": 2, "\n": "3"}]


@pytest.mark.parametrize(
    ("texts", "schema"),
    [
        (['{"b":1,"a":"x","c":null,"d":true,"e":[],"f":{},"g":1.5}'],
         "a string, b bigint, c string, d boolean, e array<string>, f struct<>, g double"),
        (['{"a":1}', '{"a":"x"}'], "a string"),
        (['{"a":1}', '{"a":null}', '{"a":1.5}'], "a double"),
        (['{"a":9223372036854775807}'], "a bigint"),
        (['{"a":9223372036854775808}', '{"a":1}'], "a decimal(20,0)"),
        (['{"a":' + "1" * 38 + "}"], "a decimal(38,0)"),
        (['{"a":' + "1" * 39 + "}"], "a string"),
        (['{"a":9007199254740993}', '{"a":1.5}'], "a decimal(17,1)"),
        (['{"a":9007199254740992}', '{"a":1.5}'], "a double"),
        (['{"a":0.30000000000000004}', '{"a":0.10000000000000001}', '{"a":1E300}'], "a double"),
        (['{"a":3.14159265358979323846}'], "a decimal(21,20)"),
        (['{"a":1e400}'], "a string"),
        (['{"a":1e-400}'], "a string"),
        (['{"a":1e99999999999}'], "a string"),
        (['{"a":[1,null]}', '{"a":[2.5]}'], "a array<double>"),
        (['{"a":[{"x":1}]}', '{"a":[{"y":null}]}'], "a array<struct<x:bigint,y:string>>"),
        (['{"a":{"x":1}}', '{"a":[1]}'], "a string"),
        (["1", "2.5"], "value double COMMENT 'the whole line'"),
        (["1", '{"a":1}'], "value string COMMENT 'the whole line'"),
        (["null", '{"a":1}'], "a bigint"),
        ([], ""),
    ],
)  # fmt: skip
def test_the_schema_is_sparks_where_that_loses_nothing(texts: list[str], schema: str) -> None:
    assert to_ddl(inferred(*texts)) == schema
    read(schema, *texts)


def test_schemas_of_several_files_merge_to_that_of_all_rows() -> None:
    values = ["1", "null", "9007199254740993", "1.5", '"x"', "[1]", "[null]", '[{"b":2}]', '{"b":18446744073709551616}']
    values += ['{"b":0.5}', "true", "[]", "1e30"]
    rows = [*(f'{{"a":{value}}}' for value in values), '{"b":1}', "1", "[]", "null", "{}"]
    for one in rows:
        for two in rows:
            for three in (rows[1], rows[3], rows[9]):
                merged = merge_schemas([inferred(one), inferred(two), inferred(three)])
                assert without_what_was_seen(merged) == to_ddl(inferred(one, two, three))
                assert to_ddl(
                    merge_schemas([merge_schemas([inferred(one), inferred(two)]), inferred(three)])
                ) == to_ddl(merged)


@pytest.mark.parametrize(
    ("known", "new", "kind"),
    [
        ("bigint", "1.5", "decimal(20,1)"),
        ("bigint", "7", "bigint"),
        ("double", "7", "double"),
        ("double", "1e300", "double"),
        ("double", "9007199254740993", "string"),
        ("decimal(20,0)", "1.5", "decimal(21,1)"),
    ],
)
def test_what_is_known_of_files_before_is_never_rounded(known: str, new: str, kind: str) -> None:
    """The values of earlier files are unknown; only their type is known."""
    assert without_what_was_seen(merge_schemas([parse_ddl(f"a {known}"), inferred(f'{{"a":{new}}}')])) == f"a {kind}"


def test_a_decimal_with_an_exponent_keeps_all_its_digits() -> None:
    text = '{"a":1.2345678901234567890123456789012345678e5}'
    (row,) = read(to_ddl(inferred(text)), text)
    assert str(row["a"]) == "123456.78901234567890123456789012345678"


def without_what_was_seen(schema: pa.Schema) -> str:
    return re.sub(r" COMMENT '(items )*(nothing|numbers [0-9,]+)'", "", to_ddl(schema))


@pytest.mark.parametrize(
    ("files", "schema"),
    [
        (["9007199254740993", "1.5"], "a decimal(17,1)"),
        (["1.5", "9007199254740993"], "a decimal(17,1)"),
        (["1", "1.5"], "a double"),
        (["1e300", "12345678901234567890"], "a string"),
        (['{"b":9007199254740993}', '{"b":1.5}'], "a struct<b:decimal(17,1)>"),
        (["[9007199254740993]", "[1.5]"], "a array<decimal(17,1)>"),
        (["[1e300]", "[12345678901234567890]"], "a array<string>"),
        (["[1]", "[2]"], "a array<bigint>"),
        (["[[1]]", "[[1.5],[]]"], "a array<array<double>>"),
        (["null", "1.5"], "a double"),
        (["null", '{"b":null}'], "a struct<b:string>"),
        (['{"b":null}', '{"b":true}'], "a struct<b:boolean>"),
        (["[]", "[[null]]"], "a array<array<string>>"),
        (["[[null]]", '[[{"b":1}]]'], "a array<array<struct<b:bigint>>>"),
    ],
)
def test_a_file_that_comes_later_widens_a_column_so_that_no_row_of_before_changes(
    files: list[str], schema: str
) -> None:
    """The earlier type is known from its stored text."""
    known = to_ddl(merge_schemas([inferred(f'{{"a":{files[0]}}}')]))
    widened = merge_schemas([parse_ddl(known), inferred(f'{{"a":{files[1]}}}')])
    assert without_what_was_seen(widened) == schema
    assert widened == merge_schemas([inferred(*(f'{{"a":{value}}}' for value in files))])
    read(to_ddl(widened), *(f'{{"a":{value}}}' for value in files))


def test_deep_lists_are_typed_to_a_limit_and_text_beyond() -> None:
    text = '{"a":' + "[" * 200 + "1" + "]" * 200 + "}"
    schema = inferred(text)
    assert parse_ddl(to_ddl(schema)) == schema
    (row,) = read(to_ddl(schema), text)
    value, depth = row["a"], 0
    while isinstance(value, list):
        value, depth = value[0], depth + 1
    assert value == "[" * (200 - depth) + "1" + "]" * (200 - depth)


def test_more_names_than_columns_can_be_are_refused() -> None:
    texts = [f'{{"a{i}":1}}' for i in range(FIELD_LIMIT + 1)]
    with pytest.raises(TooManyNames, match="over 10000 different names: give the option schema") as caught:
        inferred(*texts)
    assert caught.value.index == FIELD_LIMIT
