"""CSV and JSON lines that are written in the style of a file of their source."""

import gzip
from collections.abc import Mapping

import pyarrow as pa
import pytest

from gnomon.sources import UnsupportedFormat, open_writer, style_of
from tests.sources.readers import BytesReader
from tests.sources.written import TEXTS, rows_of, write, written

AWKWARD = pa.table({"n": pa.array(range(len(TEXTS)), pa.int64()), "text": pa.array(TEXTS)})
DDL = {"schema": "n bigint, text string"}


def csv(text: str, name: str = "lake/part.csv") -> BytesReader:
    return BytesReader(text.encode(), name)


def lines_of(table: pa.Table, format: str, options: Mapping[str, str], like: BytesReader | None) -> str:
    return written(table, format, options, like=like).data.decode()


@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"delimiter": ";"},
        {"delimiter": r"\t", "quote": "'"},
        {"delimiter": "|", "escape": "\\"},
        {"null_value": "null"},
        {"header": "false"},
        {"header": "false", "null_value": r"\N", "escape": "\\"},
    ],
    ids=str,
)
def test_text_of_all_sorts_comes_back_in_every_dialect(options: dict[str, str], line_end: str) -> None:
    delimiter = {r"\t": "\t"}.get(options.get("delimiter", ","), options.get("delimiter", ","))
    head = "" if options.get("header") == "false" else f"n{delimiter}text{line_end}"
    own = csv(f"{head}1{delimiter}x{line_end}")
    more = pa.table({"n": [1, 2, 3, None], "text": ["back\\slash", '\\"', "\ufeff|;'", "\\"]})
    for table in (AWKWARD, more, more.slice(2)):
        file = written(table, "csv", {**DDL, **options}, like=own)
        assert rows_of(file, "csv", {**DDL, **options}) == table
        assert file.data.decode().startswith(head)
        assert file.data.decode().endswith(line_end)


def test_the_header_stands_as_it_does_in_the_file() -> None:
    own = csv('\n"n", text ,,n\n1,a,b,c\n')
    table = rows_of(own, "csv", {})
    assert table.schema.names == ["n0", " text ", "_c2", "n3"]
    assert lines_of(table, "csv", {}, own) == '"n", text ,,n\n1,a,b,c\n'


def test_a_tsv_stays_one() -> None:
    own = csv("n\ttext\n1\tx,y\n", "lake/part.TSV")
    assert style_of(own, "csv", DDL).ending == ".tsv"
    assert lines_of(AWKWARD.slice(0, 2), "csv", DDL, own) == 'n\ttext\n0\t""\n1\tplain\n'


def test_a_compressed_file_gives_the_style_of_its_text() -> None:
    packed = BytesReader(gzip.compress(b"n;text\r\n1;x\r\n"), "lake/part.csv.gz")
    options = {**DDL, "whole_file": "true", "delimiter": ";"}
    style = style_of(packed, "csv", options)
    assert style.ending == ".csv"
    assert lines_of(AWKWARD.slice(0, 2), "csv", options, packed) == 'n;text\r\n0;""\r\n1;plain\r\n'
    packed = BytesReader(gzip.compress(b'{"n":1,"text":null}\n'), "lake/part.json.gz")
    assert style_of(packed, "jsonl", {**DDL, "whole_file": "true"}).ending == ".json"
    assert lines_of(AWKWARD.slice(9, 2), "jsonl", {**DDL, "whole_file": "true"}, packed) == (
        '{"n":9,"text":"null"}\n{"n":10,"text":null}\n'
    )


@pytest.mark.parametrize(
    ("options", "column", "why"),
    [
        ({"quote": ""}, pa.array(["a,b"]), r"column x: 'a,b' has to be quoted; expected no such value, or a quote"),
        ({"quote": ""}, pa.array([""]), r"column x: '' has to be quoted"),
        ({"multiline": "false"}, pa.array(["a", "b\nc"]), r"column x: a value holds a line end"),
        ({}, pa.array(["a", None]), r"column x: a null as the only column"),
        ({}, pa.array([b"\xff"]), r"column x: expected bytes that are valid UTF-8, found others"),
    ],
)
def test_values_that_a_dialect_does_not_have_are_refused(options: dict[str, str], column: pa.Array, why: str) -> None:
    schema = pa.schema([("x", column.type)])
    writer = open_writer(style_of(None, "csv", options), schema, "lake/new")
    with pytest.raises(UnsupportedFormat, match=f"^lake/new: {why}"):
        writer.write(pa.record_batch([column], schema=schema))


def test_a_null_in_the_only_column_is_written_where_it_is_spelled() -> None:
    options = {"schema": "x string", "null_value": "NULL"}
    table = pa.table({"x": ["a", None, "NULL", ""]})
    assert lines_of(table, "csv", options, None) == 'x\na\nNULL\n"NULL"\n""\n'
    assert rows_of(written(table, "csv", options), "csv", options) == table


@pytest.mark.parametrize(
    "kind", [pa.list_(pa.int64()), pa.struct([("a", pa.int64())]), pa.map_(pa.string(), pa.int64())]
)
def test_csv_has_no_nested_columns(kind: pa.DataType) -> None:
    with pytest.raises(UnsupportedFormat, match=r"^lake/new: column x: .*: CSV has no nested columns"):
        open_writer(style_of(None, "csv"), pa.schema([("x", kind)]), "lake/new")


def test_json_spells_nulls_or_leaves_them_out_as_the_file_does() -> None:
    table = pa.table({"n": [1, None], "text": [None, "x"]})
    spelled, left_out = csv('{"n":null,"text":"y"}\n', "a.json"), csv('{"n":1}\n{"text":"a null"}\n', "a.ndjson")
    assert lines_of(table, "jsonl", DDL, spelled) == '{"n":1,"text":null}\n{"n":null,"text":"x"}\n'
    assert lines_of(table, "jsonl", DDL, left_out) == '{"n":1}\n{"text":"x"}\n'
    assert style_of(spelled, "jsonl", DDL).ending == ".json"
    assert style_of(left_out, "jsonl", DDL).ending == ".ndjson"


def test_rows_that_are_no_objects_are_written_as_values() -> None:
    own = csv("[1]\n[]\n", "lake/part.jsonl")
    options = {"schema": "value array<bigint>"}
    assert lines_of(pa.table({"value": [[1, 2], [], None]}), "jsonl", options, own) == "[1,2]\n[]\nnull\n"


@pytest.mark.parametrize("kind", [pa.map_(pa.int64(), pa.string()), pa.uint8(), pa.uuid(), pa.duration("us")])
def test_types_that_json_does_not_have_are_refused_by_name(kind: pa.DataType) -> None:
    with pytest.raises(UnsupportedFormat, match=r"^lake/new: column x: .*"):
        open_writer(style_of(None, "jsonl"), pa.schema([("x", kind)]), "lake/new")


def test_a_map_that_names_a_key_twice_is_not_handed_out() -> None:
    table = pa.table({"m": pa.array([[("a", 1), ("a", 2)]], pa.map_(pa.string(), pa.int64()))})
    with pytest.raises(Exception, match="column m: row 0"):
        written(table, "jsonl", {"schema": "m map<string,bigint>"})
    assert write("jsonl", style_of(None, "jsonl"), table.schema, table.to_batches()).data == b'{"m":{"a":1,"a":2}}\n'
