"""Arrow columns to Avro records: the bytes are fastavro's."""

import decimal
import io
import re
from collections.abc import Callable
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from gnomon.btree import BTreeError, Column, EntrySchema
from gnomon.btree.encode import encode_rows, normalise
from gnomon.btree.format import LINK_FIELD
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


def _days(millis: list[int]) -> pa.Array:
    return pa.array(millis, pa.int64()).view(pa.date64())


@pytest.mark.parametrize("encode", [lambda array: array, lambda array: array.dictionary_encode()], ids=["", "words"])
@pytest.mark.parametrize(
    ("array", "kind", "stored"),
    [
        (pa.array([7], pa.uint64()), "tinyint", 7),
        (pa.array([7], pa.int8()), "bigint", 7),
        (pa.array([0.5], pa.float16()), "float", 0.5),
        (pa.array([0.5], pa.float16()), "double", 0.5),
        (pa.array([0.5], pa.float32()), "double", 0.5),
        (pa.array([decimal.Decimal("1.50")], pa.decimal128(20, 2)), "decimal(9,1)", 15),
        (pa.array([decimal.Decimal("1.50")], pa.decimal256(50, 2)), "decimal(9,4)", 15000),
        (_days([-86_400_000]), "date", -1),
        (pa.array([1], pa.timestamp("s")), "timestamp_ntz", 1_000_000),
        (pa.array([1], pa.timestamp("ms", "Europe/Paris")), "timestamp", 1000),
        (pa.array([1000], pa.timestamp("ns", "UTC")), "timestamp", 1),
        (pa.array([b"ab"], pa.binary(2)), "binary", b"ab"),
        (pa.array([None], pa.null()), "decimal(9,2)", None),
    ],
    ids=lambda part: str(getattr(part, "type", part)),
)
def test_an_arrow_type_of_the_same_kind_keeps_the_value(
    array: pa.Array, kind: str, stored: object, encode: Callable[[pa.Array], pa.Array]
) -> None:
    column = Column("v", kind)
    assert _column_bytes(encode(array), column) == _column_bytes(arrow_column([stored], kind), column)


@pytest.mark.parametrize(
    ("array", "kind"),
    [
        (pa.array([0.5]), "float"),
        (pa.array([0.5]), "bigint"),
        (pa.array([0.5]), "decimal(9,2)"),
        (pa.array([1]), "double"),
        (pa.array([1]), "string"),
        (pa.array([1]), "boolean"),
        (pa.array([1]), "timestamp"),
        (pa.array([True]), "int"),
        (pa.array(["007"]), "int"),
        (pa.array(["2026-01-01"]), "date"),
        (pa.array(["a"]), "binary"),
        (pa.array([b"a"]), "string"),
        (pa.array([decimal.Decimal("1.00")]), "bigint"),
        (pa.array([decimal.Decimal("1.10")]), "double"),
        (pa.array([3_600_000_000], pa.timestamp("us")), "date"),
        (pa.array([0], pa.timestamp("us")), "timestamp"),
        (pa.array([0], pa.timestamp("us", "UTC")), "timestamp_ntz"),
        (pa.array([0], pa.date32()), "timestamp_ntz"),
        (pa.array([0], pa.date32()), "int"),
        (pa.array([0], pa.time64("us")), "int"),
        (pa.array(["007"]).dictionary_encode(), "int"),
    ],
    ids=lambda part: str(getattr(part, "type", part)),
)
def test_an_arrow_type_of_another_kind_is_refused_with_both_types(array: pa.Array, kind: str) -> None:
    for values in (array, array.slice(0, 0)):
        with pytest.raises(
            BTreeError, match=f"column v: expected {re.escape(kind)}, found .*{re.escape(str(array.type))}"
        ):
            normalise(values, Column("v", kind))


@pytest.mark.parametrize(
    ("array", "column", "message"),
    [
        (pa.array([1, None]), Column("v", "bigint", nullable=False), "null"),
        (pa.array([2**40]), Column("v", "int"), "int"),
        (pa.array([2**63], pa.uint64()), Column("v", "bigint"), "bigint"),
        (pa.array([decimal.Decimal("0.01")]), Column("v", "decimal(9,1)"), "decimal"),
        (_days([1]), Column("v", "date"), "date"),
        (pa.array([1], pa.timestamp("ns")), Column("v", "timestamp_ntz"), "timestamp_ntz"),
        (pa.array([b"\xff"]).view(pa.string()), Column("v", "string"), "UTF"),
        (pa.DictionaryArray.from_arrays([0], pa.array([b"\xff"]).view(pa.string())), Column("v", "string"), "UTF"),
    ],
    ids=[
        "null",
        "too large",
        "too large unsigned",
        "scale",
        "time of day",
        "too fine",
        "no text",
        "no text in the dictionary",
    ],
)
def test_a_value_that_does_not_fit_is_refused_with_its_column(array: pa.Array, column: Column, message: str) -> None:
    with pytest.raises(BTreeError, match=f"column v.*{message}"):
        normalise(array, column)
