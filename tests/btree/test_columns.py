"""Many nodes decoded at once give the records of fastavro, or the decoder gives up."""

import io
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest

from gnomon.base.varints import encode_signed
from gnomon.btree import Column
from gnomon.btree import format as fmt
from gnomon.btree.columns import JoinedColumns, OutOfRange, RowColumns, Unclear, VectorColumns
from gnomon.btree.node import Row
from gnomon.btree.schema import FileSchema, file_schema
from tests.loops import WAYS, use
from tests.profiles import positions

LINK = {"name": fmt.LINK_FIELD, "type": ["null", "long"]}
OWN = [
    {"name": "k", "type": ["null", "string"]},
    {"name": "n", "type": "long"},
    {"name": "b", "type": ["null", "boolean"]},
    {"name": "d", "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 2}]},
    {"name": "x", "type": "double"},
    {"name": "f", "type": ["null", "float"]},
    {"name": "i", "type": ["null", {"type": "int", "logicalType": "date"}]},
    {"name": "r", "type": ["null", "bytes"]},
    LINK,
]
DIONES = [
    {"name": field["name"], "type": field["type"][::-1] if isinstance(field["type"], list) else field["type"]}
    for field in OWN[::-1]  # link first, nulls last in every union
]


def schema_of(fields: list[dict[str, Any]]) -> FileSchema:
    names = [field["name"] for field in OWN[:-1]]
    return file_schema({"type": "record", "name": "r", "fields": fields}, names[:1], names[1:])


def row(number: int) -> dict[str, Any]:
    """A record of a file. Every third value of a nullable column is null."""
    full = {
        "k": f"k{number}é".encode() * (number % 50),
        "n": (-1) ** number * 7**number % 2**62,
        "b": number % 2 == 0,
        "d": (-(3**number)).to_bytes(16, "big", signed=True)[-1 - number % 16 :],
        "x": number / 7,
        "f": float(number),
        "i": number - 9,
        "r": bytes(range(number % 9)),
        fmt.LINK_FIELD: number * 1000 if number % 5 == 0 else None,
    }
    may_be_null = ["k", "b", "d", "f", "i", "r"]
    return {**full, **{name: None for i, name in enumerate(may_be_null) if (number + i) % 3 == 0}}


def plain_avro(schema: FileSchema) -> dict[str, Any]:
    """The record schema of values in their form in the file: without logical types, and bytes for text."""
    fields: list[dict[str, Any]] = []
    for field in schema.fields:
        if field is None:
            fields.append({"name": fmt.LINK_FIELD, "type": schema.link_type})
            continue
        plain = field.plain_type
        union = {None: plain, 0: ["null", plain], 1: [plain, "null"]}[field.null_branch]
        fields.append({"name": field.column.name, "type": union})
    return {"type": "record", "name": "r", "fields": fields}


def encoded(rows: list[dict[str, Any]], schema: FileSchema) -> bytes:
    """The records, encoded by fastavro."""

    out = io.BytesIO()
    for one in rows:
        fastavro.schemaless_writer(out, plain_avro(schema), one)
    return out.getvalue()


@pytest.fixture(params=WAYS, autouse=True)
def loops(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test runs with the loops in Python and compiled."""
    use(request.param, monkeypatch)


def as_rows(rows: list[dict[str, Any]], schema: FileSchema) -> list[Row]:
    """Records by name as rows in the order of the columns."""
    return [tuple(one[column.name] for column in schema.entry.columns) for one in rows]


def decoded(count: int, records: bytes, schema: FileSchema) -> list[dict[str, Any]]:
    """The records, decoded by fastavro."""
    array = fastavro.parse_schema({"type": "array", "items": plain_avro(schema)})
    stream = io.BytesIO(b"".join([encode_signed(count), records, b"\x00"]))
    rows: list[dict[str, Any]] = fastavro.schemaless_reader(stream, array, None)
    return rows


NODES = [[row(i) for i in range(begin, end)] for begin, end in ((0, 9), (9, 10), (10, 40), (40, 47))]
ORDER = np.array([3, 46, 0, 0, 17, 9, 45])


@pytest.mark.parametrize("fields", [OWN, DIONES])
def test_columns_are_those_of_the_records_in_any_order(fields: list[dict[str, Any]]) -> None:
    schema = schema_of(fields)
    records = [encoded(node, schema) for node in NODES]
    vector = VectorColumns(schema, np.array([len(node) for node in NODES]), records)
    rows = RowColumns(schema, as_rows([one for node in NODES for one in node], schema))
    last = RowColumns(schema, as_rows(NODES[2] + NODES[3], schema))
    joined = JoinedColumns(VectorColumns(schema, np.array([9, 1]), records[:2]), 10, last)
    for column in schema.entry.columns:
        expected = rows.take(column.name, ORDER)
        expected.validate(full=True)
        assert vector.take(column.name, ORDER).equals(expected), column
        assert joined.take(column.name, ORDER).equals(expected), column
    assert vector.has_link.tolist() == [True, False, True, True]


def test_no_node_has_no_records() -> None:
    schema = schema_of(OWN)
    columns = VectorColumns(schema, np.zeros(0, np.int64), [])
    assert [len(columns.take(one.name, np.zeros(0, np.int64))) for one in schema.entry.columns] == [0] * 8


@pytest.mark.parametrize("fields", [OWN, DIONES])
def test_any_changed_byte_gives_what_fastavro_gives_or_is_unclear(fields: list[dict[str, Any]]) -> None:
    schema = schema_of(fields)
    records = [encoded(node, schema) for node in (NODES[0][:4], NODES[1], NODES[3][:3])]
    counts = np.array([4, 1, 3])
    clear = 0
    tried = positions(range(len(records[0])))
    for at in tried:
        for mask in (1, 2, 0x80, 0xFF):
            damaged = bytearray(records[0])
            damaged[at] ^= mask
            changed = [bytes(damaged), *records[1:]]
            try:
                vector = VectorColumns(schema, counts, changed)
            except Unclear:
                continue
            clear += 1
            nodes = [decoded(n, one, schema) for n, one in zip(counts.tolist(), changed, strict=True)]
            rows = RowColumns(schema, as_rows([one for node in nodes for one in node], schema))
            for column in schema.entry.columns:
                assert _taken(vector, column) == _taken(rows, column), (at, mask, column)
    assert clear > len(tried) / 4


def _taken(columns: VectorColumns | RowColumns, column: Column) -> object:
    try:
        array = columns.take(column.name, np.arange(8))
    except (OutOfRange, pa.ArrowInvalid):
        return "refused"
    return [repr(value) for value in array.to_pylist()] if column.type in ("float", "double") else array


@pytest.mark.parametrize("cut", [1, 2, 5])
def test_bytes_missing_or_left_over_are_unclear(cut: int) -> None:
    schema = schema_of(OWN)
    records = [encoded(node, schema) for node in NODES]
    counts = np.array([len(node) for node in NODES])
    for i in range(len(NODES)):
        for changed in (records[i][:-cut], records[i] + bytes(cut)):
            with pytest.raises(Unclear):
                VectorColumns(schema, counts, [*records[:i], changed, *records[i + 1 :]])


def test_a_length_beyond_all_memory_is_unclear() -> None:
    schema = file_schema({"fields": [OWN[1], {"name": "k", "type": "string"}, LINK], "type": "record"}, ["k"], ["n"])
    for length in (2**62, -1, 2**63 - 1):
        with pytest.raises(Unclear):
            VectorColumns(schema, np.array([1]), [b"\x02" + encode_signed(length) + b"a\x00"])


def test_a_varint_of_more_than_64_bits_is_unclear() -> None:
    schema = file_schema({"fields": [OWN[1], {"name": "k", "type": "long"}, LINK], "type": "record"}, ["k"], ["n"])
    good = VectorColumns(schema, np.array([1]), [encode_signed(-(2**63)) + encode_signed(2**63 - 1) + b"\x00"])
    assert good.take("n", np.array([0])).to_pylist() == [-(2**63)]
    assert good.take("k", np.array([0])).to_pylist() == [2**63 - 1]
    for last in (b"\x02", b"\x80\x00"):
        with pytest.raises(Unclear):
            VectorColumns(schema, np.array([1]), [b"\xff" * 9 + last + b"\x02\x00"])


def test_values_that_their_type_cannot_hold_are_out_of_range() -> None:
    schema = schema_of(OWN)
    for change in ({"i": 2**31}, {"d": b"\x01" * 17}):
        rows = [{**row(1), **change}]
        with pytest.raises(OutOfRange):
            RowColumns(schema, as_rows(rows, schema)).take(next(iter(change)), np.array([0]))
        wide = [{"name": one["name"], "type": ["null", "long"] if one["name"] == "i" else one["type"]} for one in OWN]
        data = encoded(rows, schema_of(wide))
        with pytest.raises(OutOfRange):
            VectorColumns(schema, np.array([1]), [data]).take(next(iter(change)), np.array([0]))
