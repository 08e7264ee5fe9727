"""Arrow columns to Avro records: the bytes are fastavro's."""

import io
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from btree import BTreeError, Column, EntrySchema
from btree.encode import encode_rows, normalise
from btree.format import LINK_FIELD
from tests.btree.files import arrow_column

VALUES: dict[str, list[Any]] = {
    "string": ["", "é😀", "x" * 200, "\x00"],
    "boolean": [True, False],
    "tinyint": [-128, 127],
    "int": [0, -1, 2**31 - 1],
    "bigint": [0, 63, 64, -64, -65, 2**63 - 1, -(2**63)],
    "float": [0.0, 1.5, float("inf")],
    "double": [0.1, -1e300],
    "date": [0, -719162],
    "timestamp": [0, -1],
    "timestamp_ntz": [10**16],
    "decimal(9,2)": [0, -1, 1, 127, 128, -128, -129, 255, 256, 999999999],
    "decimal(38,10)": [10**38 - 1, 1 - 10**38, 2**63, -(2**63), -(2**63) - 1],
    "binary": [b"", b"\x80\xff"],
}
PLAIN = {"string": "string", "boolean": "boolean", "float": "float", "double": "double"}


def _records(values: list[Any], kind: str, nullable: bool) -> list[bytes]:
    column = Column("v", kind, nullable)
    schema = EntrySchema((Column("k", "int", False),), (column,))
    array = normalise(arrow_column([values[0], *values], kind).slice(1), column)
    rows = encode_rows([pa.array(range(len(values)), pa.int32()), array], schema)
    return [bytes(rows.data[a:b]) for a, b in zip(rows.starts, rows.starts[1:], strict=False)]


def _by_fastavro(values: list[Any], kind: str, nullable: bool) -> list[bytes]:
    plain = PLAIN.get(kind, "bytes" if kind == "binary" or kind.startswith("decimal") else "long")
    if kind.startswith("decimal"):
        values = [
            None if v is None else v.to_bytes(-(-((~v if v < 0 else v).bit_length() + 1) // 8), "big", signed=True)
            for v in values
        ]
    fields = [
        {"name": "k", "type": "int"},
        {"name": "v", "type": ["null", plain] if nullable else plain},
        {"name": LINK_FIELD, "type": ["null", "long"]},
    ]
    schema = fastavro.parse_schema({"type": "record", "name": "r", "fields": fields})
    out = []
    for i, value in enumerate(values):
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, schema, {"k": i, "v": value, LINK_FIELD: None})
        out.append(stream.getvalue())
    return out


@pytest.mark.parametrize("nullable", [True, False])
@pytest.mark.parametrize("kind", VALUES)
def test_records_are_the_bytes_fastavro_writes(kind: str, nullable: bool) -> None:
    values = VALUES[kind]
    assert _records(values, kind, nullable) == _by_fastavro(values, kind, nullable)


@pytest.mark.parametrize("kind", VALUES)
def test_nulls_are_the_null_branch(kind: str) -> None:
    values = [None, *VALUES[kind], None, None]
    assert _records(values, kind, True) == _by_fastavro(values, kind, True)
    assert _records([None], kind, True) == _by_fastavro([None], kind, True)


def _column_bytes(array: pa.Array, column: Column) -> bytes:
    schema = EntrySchema((Column("k", "int", False),), (column,))
    rows = encode_rows([pa.array([0] * len(array), pa.int32()), normalise(array, column)], schema)
    return bytes(rows.data)


@pytest.mark.parametrize("words", [pa.string(), pa.large_string(), pa.string_view()], ids=str)
def test_dictionary_text_of_any_width_is_plain_text(words: pa.DataType) -> None:
    plain = pa.array(["b", None, "a", "b", None])
    dictionary = pa.array(["a", "b", None], pa.string()).cast(words)
    for indices in ([1, None, 0, 1, None], [1, 2, 0, 1, 2]):  # a null index, and a null among the words
        encoded = pa.DictionaryArray.from_arrays(pa.array(indices, pa.int8()), dictionary)
        assert _column_bytes(encoded, Column("v", "string")) == _column_bytes(plain, Column("v", "string"))
    without = pa.DictionaryArray.from_arrays(pa.array([1, 0]), dictionary.slice(0, 2))
    exact = Column("v", "string", nullable=False)
    assert _column_bytes(without, exact) == _column_bytes(pa.array(["b", "a"]), exact)


def test_minus_zero_and_odd_nans_are_stored_as_one_value() -> None:
    column = Column("v", "double")
    odd = pa.Array.from_buffers(pa.float64(), 1, [None, pa.py_buffer(b"\x01\0\0\0\0\0\xf8\xff")])
    assert _column_bytes(pa.array([-0.0]), column) == _column_bytes(pa.array([0.0]), column)
    assert _column_bytes(odd, column) == _column_bytes(pa.array([float("nan")]), column)


def test_other_arrow_types_of_a_column_are_cast() -> None:
    moment = pa.array([0], pa.timestamp("ms", "Europe/Paris"))
    assert _column_bytes(moment, Column("v", "timestamp")) == _column_bytes(
        arrow_column([0], "timestamp"), Column("v", "timestamp")
    )
    assert _column_bytes(pa.array([5], pa.int64()), Column("v", "int")) == _column_bytes(
        pa.array([5], pa.int32()), Column("v", "int")
    )


@pytest.mark.parametrize(
    ("array", "column", "message"),
    [
        (pa.array([1, None]), Column("v", "bigint", nullable=False), "null"),
        (pa.array([2**40]), Column("v", "int"), "int"),
        (pa.array([1], pa.timestamp("ns")), Column("v", "timestamp_ntz"), "timestamp_ntz"),
        (pa.array([b"\xff"]).view(pa.string()), Column("v", "string"), "UTF"),
        (pa.DictionaryArray.from_arrays([0], pa.array([b"\xff"]).view(pa.string())), Column("v", "string"), "UTF"),
    ],
    ids=["null", "too large", "too fine", "no text", "no text in the dictionary"],
)
def test_a_value_that_does_not_fit_is_refused_with_its_column(array: pa.Array, column: Column, message: str) -> None:
    with pytest.raises(BTreeError, match=f"column v.*{message}"):
        normalise(array, column)
