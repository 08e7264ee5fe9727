"""Avro files that are written in the style of a file of their source."""

import io
import json
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from gnomon.sources import UnsupportedFormat, open_source, open_writer, style_of
from gnomon.sources.avro.container import UNPACKERS
from gnomon.sources.avro.write import PACKERS
from tests.sources.readers import BytesReader
from tests.sources.written import rows_of, write, written

SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "Row",
    "namespace": "org.example",
    "doc": "of a job",
    "aliases": ["Old"],
    "fields": [
        {"name": "id", "type": "long", "doc": "the key"},
        {"name": "last", "type": ["string", "null"], "default": "x"},
        {"name": "first", "type": ["null", "string"], "default": None},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"], "default": "A"}},
        {"name": "hash", "type": ["null", {"type": "fixed", "name": "Hash", "size": 2}]},
        {"name": "again", "type": ["null", "Hash"], "aliases": ["other"]},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}},
        {
            "name": "cost",
            "type": {"type": "fixed", "name": "Cost", "size": 9, "logicalType": "decimal", "precision": 20, "scale": 0},
        },
        {"name": "day", "type": ["null", {"type": "int", "logicalType": "date"}]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "local", "type": {"type": "long", "logicalType": "local-timestamp-micros"}},
        {"name": "nanos", "type": {"type": "long", "logicalType": "timestamp-nanos"}},
        {"name": "time", "type": {"type": "int", "logicalType": "time-millis"}},
        {"name": "uuid", "type": ["null", {"type": "string", "logicalType": "uuid"}]},
        {
            "name": "inner",
            "type": ["null", {"type": "record", "name": "Inner", "fields": [{"name": "x", "type": "int"}]}],
        },
        {"name": "list", "type": {"type": "array", "items": ["null", "Inner"]}},
        {"name": "map", "type": {"type": "map", "values": ["int", "null"]}},
        {"name": "several", "type": ["null", "int", "string", "Kind"]},
    ],
}


def avro(schema: dict[str, Any], rows: list[dict[str, Any]], codec: str = "null") -> BytesReader:
    out = io.BytesIO()
    fastavro.writer(out, schema, rows, codec=codec)
    return BytesReader(out.getvalue(), "lake/part.avro")


def row(i: int) -> dict[str, Any]:
    return {
        "id": i,
        "last": "z" if i % 2 else None,
        "first": None if i % 2 else "ž",
        "kind": "AB"[i % 2],
        "hash": b"ab" if i % 2 else None,
        "again": b"\0\xff",
        "price": Decimal(f"-{i}.25"),
        "cost": Decimal(-(10**19)),
        "day": None if i % 2 else 18_000,
        "at": 1_700_000_000_123 - i,
        "local": -i,
        "nanos": 1_700_000_000_000_000_001,
        "time": 86_399_999,
        "uuid": None if i % 2 else "00000000-0000-0000-0000-00000000002a",
        "inner": {"x": i} if i % 3 else None,
        "list": [None, {"x": -i}],
        "map": {"a": 1, "b": None} if i % 2 else {},
        "several": [None, 7, "B", ("org.example.Kind", "B")][i % 4],
    }


def header_of(file: BytesReader) -> dict[str, str]:
    return dict(fastavro.reader(io.BytesIO(file.data)).metadata)


@pytest.mark.parametrize("codec", ["null", "deflate", "bzip2", "xz", "snappy", "zstandard", "lz4"])
def test_the_schema_is_that_of_the_file_to_the_letter_and_so_is_the_codec(codec: str) -> None:
    own = avro(SCHEMA, [row(i) for i in range(40)], codec if codec in ("null", "deflate", "bzip2", "xz") else "null")
    style = style_of(own, "avro")
    style = type(style)(**{**vars(style), "codec": codec})
    table = rows_of(own, "avro", {})
    file = write("avro", style, table.schema, table.to_batches(max_chunksize=7))
    assert header_of(file)["avro.schema"] == header_of(own)["avro.schema"]
    assert header_of(file)["avro.codec"] == codec
    assert rows_of(file, "avro", {}) == table
    if codec in ("null", "deflate", "bzip2", "xz"):
        assert list(fastavro.reader(io.BytesIO(file.data))) == list(fastavro.reader(io.BytesIO(own.data)))


def test_records_are_put_together_in_blocks() -> None:
    table = pa.table({"text": ["x" * 1000] * 300})
    file = written(table, "avro", {})
    blocks = list(fastavro.block_reader(io.BytesIO(file.data)))
    assert [block.num_records for block in blocks] == [66, 66, 66, 66, 36]


def test_a_column_is_added_as_one_that_may_be_null() -> None:
    own = avro(SCHEMA, [row(0)])
    table = rows_of(own, "avro", {}).append_column("more", [[{"a": [1.5, None]}]])
    file = written(table, "avro", {}, like=own)
    declared = json.loads(header_of(file)["avro.schema"])
    assert declared["fields"][:-1] == json.loads(header_of(own)["avro.schema"])["fields"]
    assert declared["fields"][-1]["type"][0] == "null"
    assert declared["fields"][-1]["default"] is None
    assert next(iter(fastavro.reader(io.BytesIO(file.data))))["more"] == {"a": [1.5, None]}


@pytest.mark.parametrize(
    ("column", "values", "why"),
    [
        ("kind", pa.array(["C"]), "column kind: expected one of the enum's A, B, found 'C'"),
        ("kind", pa.array([None], pa.string()), "column kind: required in the source's files: found a null"),
        ("at", pa.array([1], pa.timestamp("us", "UTC")), "column at: expected timestamp"),
        ("cost", pa.array([Decimal(10**30)]), "column cost: expected decimal128"),
        (
            "list",
            pa.array([[{"x": None}]], pa.list_(pa.struct([("x", pa.int32())]))),
            "column list: expected int, found a null",
        ),
    ],
)
def test_a_value_that_the_schema_does_not_have_is_refused(column: str, values: pa.Array, why: str) -> None:
    own = avro(SCHEMA, [row(0)])
    table = rows_of(own, "avro", {})
    writer = open_writer(style_of(own, "avro"), table.schema, "lake/new")
    batch = table.set_column(table.column_names.index(column), column, values).to_batches()[0]
    with pytest.raises(UnsupportedFormat, match=f"^lake/new: {why}"):
        writer.write(batch)


def test_rows_that_are_not_records_are_written_as_they_are() -> None:
    out = io.BytesIO()
    fastavro.writer(out, ["null", "long"], [1, None, -5])
    own = BytesReader(out.getvalue(), "lake/part.avro")
    table = pa.table({"value": [7, None]})
    assert list(fastavro.reader(io.BytesIO(written(table, "avro", {}, like=own).data))) == [7, None]
    with pytest.raises(UnsupportedFormat, match="are not records but value; no column can be added"):
        open_writer(style_of(own, "avro"), pa.schema([("value", pa.int64()), ("x", pa.int64())]), "lake/new")


def test_a_type_within_itself_is_refused_by_name() -> None:
    node = {
        "type": "record",
        "name": "Node",
        "fields": [{"name": "id", "type": "int"}, {"name": "next", "type": ["null", "Node"]}],
    }
    own = avro(node, [{"id": 1, "next": {"id": 2, "next": None}}])
    schema = open_source(own, "avro").schema
    with pytest.raises(UnsupportedFormat, match=r"^lake/new: column next: a recursive type"):
        open_writer(style_of(own, "avro"), schema, "lake/new")
    table = pa.table({"id": pa.array([5], pa.int32())})
    assert rows_of(written(table, "avro", {}, like=own), "avro", {})["next"].to_pylist() == [None]


def test_each_codec_that_is_read_can_be_written() -> None:
    """An append writes with the codec of the newest file of its source."""
    assert PACKERS.keys() == UNPACKERS.keys()
