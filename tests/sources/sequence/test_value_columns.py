"""Values of SequenceFiles that are text, parsed into columns: Hive's delimited text, and JSON."""

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from gnomon.shadow.values.row_values import python_values
from gnomon.sources import DamagedSource, OptionError, UnsupportedFormat, check_options, open_source
from tests.sources.readers import BytesReader
from tests.sources.sequence_files import written
from tests.sources.source_contract import Sample, SourceContract, pointers_of

LAYOUTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "record": {"codec": "DefaultCodec"},
    "block": {"codec": "SnappyCodec", "blocks": True},
}
HIVE = {"value_format": "delimited"}


def read(values: list[str | bytes], options: dict[str, str], **written_as: Any) -> pa.Table:
    reader = BytesReader(written([(f"k{i}", value) for i, value in enumerate(values)], **written_as), "lake/x")
    source = open_source(reader, "sequence", options)
    return pa.Table.from_batches(source.scan(reader, source.schema.names)).select(source.schema.names)


def rows_of(table: pa.Table) -> list[tuple[Any, ...]]:
    return list(zip(*(python_values(column) for column in table.columns), strict=True))


class TestDelimited(SourceContract):
    @pytest.fixture(params=LAYOUTS)
    def sample(self, request: pytest.FixtureRequest) -> Sample:
        data = written([(f"k{i}", f"{i}|name {i}|{i / 4}") for i in range(50)], **LAYOUTS[request.param])
        rows: list[dict[str, object]] = [{"key": f"k{i}", "id": i, "name": f"name {i}", "at": i / 4} for i in range(50)]
        options = {"value_format": "delimited", "schema": "id bigint, name string, at double", "delimiter": "|"}
        return Sample(data, "sequence", rows, 8192, options, knows_rows=False, cut_is_seen=False)


class TestJson(SourceContract):
    @pytest.fixture(params=LAYOUTS)
    def sample(self, request: pytest.FixtureRequest) -> Sample:
        data = written(
            [(i, f'{{"id": {i}, "name": "n{i}"}}') for i in range(50)], "IntWritable", **LAYOUTS[request.param]
        )
        rows: list[dict[str, object]] = [{"key": i, "id": i, "name": f"n{i}"} for i in range(50)]
        options = {"value_format": "json", "schema": "id bigint, name string"}
        return Sample(data, "sequence", rows, 8192, options, knows_rows=False, cut_is_seen=False)


def test_hive_tables_are_read_with_their_own_delimiters() -> None:
    schema = "a int, b string, tags array<string>, m map<string,int>, s struct<x:int,y:string>, n array<array<int>>"
    values = [
        "1\x01text\x01t1\x02t2\x01k1\x031\x02k2\x032\x017\x02seven\x011\x032\x023",
        "\\N\x01\\N\x01\\N\x01\\N\x01\\N\x01\\N",
        "\x01\x01\x01\x01\x01",
        "3\x01a\x01x\x02\\N\x01k\x03\\N\x028\x01",
        "4",
        "5\x01b\x01\x01\x019\x01\x01further\x01fields",
    ]
    assert rows_of(read([*values], {**HIVE, "schema": schema})) == [
        ("k0", 1, "text", ["t1", "t2"], {"k1": 1, "k2": 2}, {"x": 7, "y": "seven"}, [[1, 2], [3]]),
        ("k1", None, None, None, None, None, None),
        ("k2", None, "", [], {}, {"x": None, "y": None}, []),
        ("k3", 3, "a", ["x", None], {"k": None, "8": None}, {"x": None, "y": None}, None),
        ("k4", 4, None, None, None, None, None),
        ("k5", 5, "b", [], {}, {"x": 9, "y": None}, []),
    ]


def test_every_type_of_a_schema_is_parsed() -> None:
    schema = "t boolean, d decimal(10,2), f float, day date, ts timestamp, raw binary, l bigint, v varchar(3)"
    value = "true,12.30,1.5,2020-01-31,2020-01-31 23:59:59.5,\x00raw,-9223372036854775808,abc"
    table = read([value], {**HIVE, "schema": schema, "delimiter": ","})
    at = dt.datetime(2020, 1, 31, 23, 59, 59, 500000, dt.UTC)
    day = dt.date(2020, 1, 31)
    assert rows_of(table) == [("k0", True, Decimal("12.30"), 1.5, day, at, b"\x00raw", -(2**63), "abc")]
    assert table.schema.field("d").type == pa.decimal128(10, 2)


def test_binary_is_base64_as_the_serde_writes_it_else_the_bytes_themselves() -> None:
    written_as = {
        "/wBoZWxsbw==": b"\xff\0hello",
        "_wBoZWxsbw": b"\xff\0hello",
        "abcd": b"\x69\xb7\x1d",
        "ab": b"\x69",
        "abcde": b"\x69\xb7\x1d",
        "1": b"1",
        "=": b"=",
        "raw bytes!": b"raw bytes!",
        "": b"",
        "\\N": None,
    }
    table = read([*written_as], {**HIVE, "schema": "b binary"})
    assert table["b"].to_pylist() == list(written_as.values())
    nested = read(["/w==\x02!\x02\\N"], {**HIVE, "schema": "b array<binary>"})
    assert nested["b"].to_pylist() == [[b"\xff", b"!", None]]


def test_a_delimiter_may_be_of_several_characters_and_no_ascii() -> None:
    for delimiter in ("||", "→", "\t"):
        table = read([delimiter.join(("1", "ü"))], {**HIVE, "schema": "a int, b string", "delimiter": delimiter})
        assert rows_of(table) == [("k0", 1, "ü")]


def test_items_and_keys_of_maps_may_have_delimiters_and_null_a_text_of_their_own() -> None:
    options = HIVE | {"schema": "a string, m map<string,array<int>>, l array<string>, n int"}
    own = {"delimiter": "|", "item_delimiter": ";", "map_delimiter": ":", "null": "none"}
    values = ["x|k:1\x042;l:none|p;none|3", "none|none|none|none", "\\N|||"]
    assert rows_of(read(values, options | own).drop(["key"])) == [
        ("x", {"k": [1, 2], "l": None}, ["p", None], 3),
        (None, None, None, None),
        ("\\N", {}, [], None),
    ]


def test_what_is_escaped_is_no_delimiter_and_comes_without_the_escape() -> None:
    schema = "a string, l array<string>, m map<string,string>, n int, b binary, end string"
    own = {"delimiter": "|", "item_delimiter": ";", "map_delimiter": ":", "escape": "!", "schema": schema}
    values = ["x!|y!!|p!;q;!n!r!z|k!:1:v!;;k2:w!:|7|YQ==|!", "plain|||||é", "\\N|\\N|\\N|\\N|\\N|\\N"]
    assert rows_of(read(values, HIVE | own).drop(["key"])) == [
        ("x|y!", ["p;q", "\n\rz"], {"k:1": "v;", "k2": "w:"}, 7, b"a", "!"),
        ("plain", [], {}, None, b"", "é"),
        (None, None, None, None, None, None),
    ]
    null = read(["!N|x!N"], HIVE | {"schema": "a string, b string", "delimiter": "|", "escape": "!", "null": "!N"})
    assert rows_of(null.drop(["key"])) == [(None, "xN")]
    raw = [b"\xff\xc0!\xff|\xff\xc0\xc0!|", b"\xc3\xa9!|"]
    table = read(raw, HIVE | {"schema": "b binary, c binary", "delimiter": "|", "escape": "!"}, value="BytesWritable")
    assert rows_of(table.drop(["key"])) == [(b"\xff\xc0!\xff", b"\xff\xc0\xc0!|"), (b"\xc3\xa9!|", None)]


def test_values_may_be_bytes_and_their_text_need_not_be_utf8() -> None:
    table = read([b"1,\xff", b"2,ok"], {**HIVE, "schema": "a int, b string", "delimiter": ","}, value="BytesWritable")
    assert rows_of(table) == [("k0", 1, b"\xff"), ("k1", 2, "ok")]


def test_json_keeps_what_the_schema_says() -> None:
    schema = "id bigint, price decimal(10,2), tags array<string>, m map<string,int>, at timestamp"
    values = [
        '{"id": 9007199254740993, "price": 12.30, "tags": ["a", null], "m": {"x": 1}, "at": "2020-01-31T00:00:00Z"}',
        '{"other": 1}',
    ]
    assert rows_of(read([*values], {"value_format": "json", "schema": schema})) == [
        ("k0", 2**53 + 1, Decimal("12.30"), ["a", None], {"x": 1}, dt.datetime(2020, 1, 31, tzinfo=dt.UTC)),
        ("k1", None, None, None, None, None),
    ]


def test_a_column_named_key_hides_the_key_of_the_file_as_in_hive() -> None:
    options = {**HIVE, "schema": "key int, value string"}
    reader = BytesReader(written([("hidden", "1\x01one"), ("hidden", "2\x01two")]))
    source = open_source(reader, "sequence", options)
    assert source.schema.names == ["key", "value"]
    pointers = pointers_of(source.scan(reader, []))
    assert source.fetch(reader, pointers[1:], ["value", "key"]).to_pylist() == [{"value": "two", "key": 2}]


@pytest.mark.parametrize(
    ("values", "options", "message"),
    [
        (["1,a", "x,b"], {**HIVE, "schema": "a int, b string", "delimiter": ","}, "field 'a': expected an integer"),
        ([b"1", b"\xff"], {**HIVE, "schema": "a int"}, "field 'a': is not UTF-8"),
        (["1\x022", "1\x02x"], {**HIVE, "schema": "a array<int>"}, "field 'a': expected an integer of 32 bits"),
        (["a\x031", "\\N\x031"], {**HIVE, "schema": "a map<string,int>"}, "field 'a': a map has a null as key"),
        (["a\x031", "b\x03x"], {**HIVE, "schema": "a map<string,int>"}, "field 'a': expected an integer"),
        (["{}", "{"], {"value_format": "json", "schema": "a int"}, "JSON"),
        (["{}", '{"a": "x"}'], {"value_format": "json", "schema": "a int"}, "column a: expected int32"),
        ([b"{}", b'{"a": "\xff"}'], {"value_format": "json", "schema": "a string"}, "is not UTF-8"),
    ],
)
def test_a_value_that_is_not_of_its_type_is_refused_with_its_place(
    values: list[Any], options: dict[str, str], message: str
) -> None:
    reader = BytesReader(written([("k", value) for value in values]), "lake/x")
    source = open_source(reader, "sequence", options)
    second = pointers_of(source.scan(reader, []))[1][0]
    batches = source.scan(reader, ["a"])
    assert next(batches).num_rows == 1
    with pytest.raises(DamagedSource, match=f"lake/x at byte {second}: column value: .*{message}"):
        next(batches)
    with pytest.raises(DamagedSource, match=f"lake/x at byte {second}: column value"):
        source.fetch(reader, [(second, 0)], ["a"])
    source.fetch(reader, [(second, 0)], ["key"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"value_format": "xml", "schema": "a int"}, "option value_format: expected delimited or json, found 'xml'"),
        ({"value_format": "json"}, "option value_format: json needs the option schema"),
        ({"schema": "a int"}, "option schema: requires value_format"),
        ({"delimiter": ","}, "option delimiter: requires value_format"),
        ({"value_format": "json", "schema": "a int", "delimiter": ","}, "option delimiter: not applicable to JSON"),
        ({**HIVE, "schema": "a int", "delimiter": ""}, "option delimiter: it is empty"),
        ({**HIVE, "schema": "a int", "escape": "ab"}, "option escape: expected one ASCII character, found 'ab'"),
        ({**HIVE, "schema": ""}, "option schema: it has no column"),
        ({**HIVE, "schema": "a strange"}, "'strange' is not a type of Spark"),
    ],
)
def test_options_that_do_not_go_together_are_refused(options: dict[str, str], message: str) -> None:
    check_options("sequence", options)
    with pytest.raises(OptionError, match=message):
        open_source(BytesReader(written([("a", "b")])), "sequence", options)


def test_values_that_are_no_text_are_not_parsed() -> None:
    data = written([("a", 1)], value="IntWritable")
    with pytest.raises(UnsupportedFormat, match="IntWritable are not text and cannot be parsed as json"):
        open_source(BytesReader(data), "sequence", {"value_format": "json", "schema": "a int"})
