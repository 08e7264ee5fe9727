"""Avro through the public functions: every shape, codec and type, splits, and the reads of a fetch."""

import datetime as dt
import json
import struct
import subprocess
import sys
import uuid
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from gnomon.shadow.values.row_values import python_values
from gnomon.sources import UnsupportedFormat, detect
from gnomon.sources.avro import open_avro
from gnomon.sources.avro.reader import AvroFile
from tests.sources.avro_files import (
    CODECS,
    FLAT,
    LIST,
    NESTED,
    ROWS,
    SYNC,
    block,
    container,
    flat_rows,
    header,
    nested_rows,
    number,
    records,
    sized,
    written,
)
from tests.sources.readers import BytesReader
from tests.sources.source_contract import Sample, SourceContract, pointers_of


def sample(data: bytes, rows: list[dict[str, Any]], one_row_bytes: int = 8_000) -> Sample:
    return Sample(data, "avro", rows, one_row_bytes, knows_rows=False, cut_is_seen=False)


class TestFlatColumns(SourceContract):
    @pytest.fixture(params=CODECS)
    def sample(self, request: pytest.FixtureRequest) -> Sample:
        return sample(written(FLAT, flat_rows(), request.param), flat_rows())


class TestNestedColumns(SourceContract):
    @pytest.fixture
    def sample(self) -> Sample:
        return sample(written(NESTED, nested_rows(dict)), nested_rows(list))


class TestABlockForEachRow(SourceContract):
    @pytest.fixture
    def sample(self) -> Sample:
        return sample(written(FLAT, flat_rows(), block_bytes=1), flat_rows())


class TestOneBlock(SourceContract):
    @pytest.fixture
    def sample(self) -> Sample:
        return sample(written(FLAT, flat_rows(), block_bytes=1 << 20), flat_rows())


class TestRowsThatAreNoRecords(SourceContract):
    @pytest.fixture
    def sample(self) -> Sample:
        values = [f"v{i}" * i for i in range(ROWS)]
        return sample(written("string", values), [{"value": value} for value in values])


def opened(data: bytes) -> tuple[BytesReader, AvroFile]:
    reader = BytesReader(data, "lake/file")
    return reader, open_avro(reader)


def one_column(kind: Any, payloads: list[bytes]) -> tuple[pa.DataType, list[Any]]:
    """The Arrow type and the Python values of a column of this Avro type with these bytes as values, after a check that
    the scan and the fetches of single rows agree."""
    schema = {"type": "record", "name": "R", "fields": [{"name": "c", "type": kind}, {"name": "end", "type": "int"}]}
    data = container(schema, [(len(payloads), b"".join(payload + number(7) for payload in payloads))])
    reader, source = opened(data)
    (batch,) = source.scan(reader, ["c", "end"])
    assert batch["end"].to_pylist() == [7] * len(payloads)
    assert next(source.scan(reader, ["end"]))["end"].to_pylist() == [7] * len(payloads)  # skips `c`
    values = python_values(batch["c"])
    pointers = pointers_of([batch])
    alone = [python_values(source.fetch(reader, [pointer], ["c"])["c"])[0] for pointer in pointers]
    assert repr(alone) == repr(values)  # as text, since NaN differs from itself
    backwards = source.fetch(reader, pointers[::-1], ["c"])["c"]
    assert repr(python_values(backwards)) == repr(values[::-1])
    return source.schema.field("c").type, values


def logical(kind: str, name: str, **more: object) -> dict[str, object]:
    return {"type": kind, "logicalType": name, **more}


MICROS_10000 = 253402300800_000000  # 10000-01-01T00:00
TYPES: dict[str, tuple[Any, pa.DataType, list[tuple[bytes, Any]]]] = {
    "long": ("long", pa.int64(), [(number(v), v) for v in (0, -1, 63, -64, 64, 2**63 - 1, -(2**63))]),
    "int": ("int", pa.int32(), [(number(v), v) for v in (0, 2**31 - 1, -(2**31))]),
    "a long in more bytes than it needs": ("long", pa.int64(), [(b"\x82\x00", 1)]),
    "float": ("float", pa.float32(), [(struct.pack("<f", v), v) for v in (0.5, -0.0, float("inf"))]),
    "double": ("double", pa.float64(), [(struct.pack("<d", v), v) for v in (0.1, -1e300)]),
    "boolean": ("boolean", pa.bool_(), [(b"\0", False), (b"\1", True)]),
    "bytes": ("bytes", pa.binary(), [(sized(b""), b""), (sized(b"\xff" * 300), b"\xff" * 300)]),
    "string": ("string", pa.string(), [(sized(b""), ""), (sized("é😀".encode()), "é😀")]),
    "null": ("null", pa.null(), [(b"", None), (b"", None)]),
    "fixed": ({"type": "fixed", "name": "F", "size": 2}, pa.binary(2), [(b"ab", b"ab")]),
    "fixed of no bytes": ({"type": "fixed", "name": "F", "size": 0}, pa.binary(0), [(b"", b"")]),
    "enum": ({"type": "enum", "name": "E", "symbols": ["a", "b-c", "1"]}, pa.string(), [(b"\2", "b-c"), (b"\4", "1")]),
    "date": (
        logical("int", "date"),
        pa.date32(),
        [
            (number(0), dt.date(1970, 1, 1)),
            (number(-141428), dt.date(1582, 10, 14)),
            (number(2932897), "+10000-01-01"),
            (number(-719529), "-0001-12-31"),
        ],
    ),
    "time-millis": (logical("int", "time-millis"), pa.time32("ms"), [(number(45_296_789), "12:34:56.789")]),
    "time-micros": (logical("long", "time-micros"), pa.time64("us"), [(number(1), "00:00:00.000001")]),
    "timestamp-millis": (
        logical("long", "timestamp-millis"),
        pa.timestamp("ms", "UTC"),
        [
            (number(-1), dt.datetime(1969, 12, 31, 23, 59, 59, 999000, dt.UTC)),
            (number(2**53), "+287396-10-12T08:59:00.992Z"),
        ],
    ),
    "timestamp-micros": (
        logical("long", "timestamp-micros"),
        pa.timestamp("us", "UTC"),
        [(number(1), dt.datetime(1970, 1, 1, 0, 0, 0, 1, dt.UTC)), (number(MICROS_10000), "+10000-01-01T00:00:00Z")],
    ),
    "timestamp-nanos": (
        logical("long", "timestamp-nanos"),
        pa.timestamp("ns", "UTC"),
        [(number(1), "1970-01-01T00:00:00.000000001Z")],
    ),
    "local-timestamp-millis": (
        logical("long", "local-timestamp-millis"),
        pa.timestamp("ms"),
        [(number(1), dt.datetime(1970, 1, 1, 0, 0, 0, 1000))],
    ),
    "local-timestamp-micros": (
        logical("long", "local-timestamp-micros"),
        pa.timestamp("us"),
        [(number(MICROS_10000), "+10000-01-01T00:00:00")],
    ),
    "local-timestamp-nanos": (
        logical("long", "local-timestamp-nanos"),
        pa.timestamp("ns"),
        [(number(-1), "1969-12-31T23:59:59.999999999")],
    ),
    "decimal in bytes": (
        logical("bytes", "decimal", precision=10, scale=2),
        pa.decimal128(10, 2),
        [(sized(b"\x04\xce"), Decimal("12.30")), (sized(b"\xff"), Decimal("-0.01")), (sized(b""), Decimal("0.00"))],
    ),
    "decimal in fixed, more bytes than digits": (
        {"type": "fixed", "name": "D", "size": 20, "logicalType": "decimal", "precision": 5, "scale": 0},
        pa.decimal128(5, 0),
        [(b"\xff" * 19 + b"\xfe", Decimal(-2))],
    ),
    "decimal of 60 digits": (
        logical("bytes", "decimal", precision=60, scale=1),
        pa.decimal256(60, 1),
        [(sized((10**59).to_bytes(25, "big")), Decimal(10**58))],
    ),
    "decimal of more digits than Arrow's": (
        logical("bytes", "decimal", precision=77, scale=38),
        pa.string(),
        [
            (sized((1 << 255).to_bytes(33, "big")), "578960446186580977117854925043439539266." + str(1 << 255)[-38:]),
            (sized(b"\xfb"), "-0." + "5".rjust(38, "0")),
            (sized(b""), "0." + "0" * 38),
        ],
    ),
    "decimal of more digits than Arrow's, in fixed": (
        {"type": "fixed", "name": "D", "size": 40, "logicalType": "decimal", "precision": 90},
        pa.string(),
        [(b"\xff" * 39 + b"\xfe", "-2")],
    ),
    "decimal of too many digits": (logical("bytes", "decimal", precision=4301), pa.binary(), [(sized(b"\5"), b"\5")]),
    "decimal whose scale is beyond its precision": (
        logical("bytes", "decimal", precision=5, scale=7),
        pa.binary(),
        [(sized(b"\5"), b"\5")],
    ),
    "uuid in text": (
        logical("string", "uuid"),
        pa.uuid(),
        [(sized(b"0123ABCD-4567-89ab-cdef-0123456789ab"), "0123abcd-4567-89ab-cdef-0123456789ab")],
    ),
    "uuid in fixed": (
        {"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"},
        pa.uuid(),
        [(uuid.UUID(int=5).bytes, str(uuid.UUID(int=5)))],
    ),
    "duration": (
        {"type": "fixed", "name": "Du", "size": 12, "logicalType": "duration"},
        pa.binary(12),
        [(b"\1\0\0\0" * 3, b"\1\0\0\0" * 3)],
    ),
    "unknown logical type": (logical("long", "fortnights"), pa.int64(), [(number(5), 5)]),
    "logical type on the wrong type": (logical("string", "date"), pa.string(), [(sized(b"x"), "x")]),
    "null or date": (["null", logical("int", "date")], pa.date32(), [(b"\0", None), (b"\2\2", dt.date(1970, 1, 2))]),
    "uuid or null": ([logical("string", "uuid"), "null"], pa.uuid(), [(b"\2", None)]),
    "null or decimal": (
        ["null", logical("bytes", "decimal", precision=4, scale=1)],
        pa.decimal128(4, 1),
        [(b"\0", None), (b"\2" + sized(b"\x0f"), Decimal("1.5"))],
    ),
    "a union of one type": (["int"], pa.int32(), [(b"\0\6", 3)]),
    "a union of null alone": (["null"], pa.null(), [(b"\0", None)]),
    "runs of elements, some with their bytes counted": (
        {"type": "array", "items": "string"},
        pa.list_(pa.string()),
        [
            (number(1) + sized(b"a") + number(-2) + number(4) + sized(b"b") + sized(b"c") + number(0), ["a", "b", "c"]),
            (number(0), []),
        ],
    ),
    "an array of nulls": ({"type": "array", "items": "null"}, pa.list_(pa.null()), [(number(3) + b"\0", [None] * 3)]),
    "a map whose keys repeat": (
        {"type": "map", "values": "int"},
        pa.map_(pa.string(), pa.int32()),
        [(number(2) + (sized(b"k") + b"\2") * 2 + b"\0", [["k", 1], ["k", 1]]), (b"\0", {})],
    ),
    "a union of several types": (
        ["int", "null", "string", "float"],
        pa.dense_union(
            [
                pa.field("int", pa.int32()),
                pa.field("null", pa.null()),
                pa.field("string", pa.string()),
                pa.field("float", pa.float32()),
            ]
        ),
        [(b"\0\2", 1), (b"\2", None), (b"\4" + sized(b"s"), "s"), (b"\6" + struct.pack("<f", 1.5), 1.5)],
    ),
}


@pytest.mark.parametrize("name", TYPES)
def test_a_type_comes_as_its_arrow_type_without_loss(name: str) -> None:
    kind, expected, cases = TYPES[name]
    found, values = one_column(kind, [payload for payload, _ in cases])
    assert found == expected
    assert values == [value for _, value in cases]


def test_columns_of_a_record_that_is_null_are_null() -> None:
    inner = {
        "type": "record",
        "name": "In",
        "fields": [
            {"name": "n", "type": "null"},
            {"name": "a", "type": {"type": "array", "items": "int"}},
            {"name": "u", "type": ["int", "string"]},
            {"name": "m", "type": {"type": "map", "values": "int"}},
            {
                "name": "deep",
                "type": ["null", {"type": "record", "name": "Deep", "fields": [{"name": "x", "type": "int"}]}],
            },
        ],
    }
    value = b"\2" + number(1) + number(5) + b"\0" + b"\0\6" + b"\0" + b"\2\4"
    kind, values = one_column(["null", inner], [b"\0", value, b"\0"])
    assert pa.types.is_struct(kind)
    assert values == [None, {"n": None, "a": [5], "u": 3, "m": {}, "deep": {"x": 2}}, None]


def test_a_record_that_holds_itself_is_json_where_it_does() -> None:
    kind, values = one_column(LIST, [b"\2\0", b"\2\2\4\2\6\0"])
    assert kind == pa.struct([pa.field("v", pa.int64()), pa.field("next", pa.json_())])
    assert values == [{"v": 1, "next": None}, {"v": 1, "next": {"v": 2, "next": {"v": 3, "next": None}}}]
    reader, source = opened(written(LIST, [{"v": 1, "next": {"v": 2, "next": None}}]))
    assert source.schema.types == [pa.int64(), pa.json_()]
    assert python_values(next(source.scan(reader, ["next"]))["next"]) == [{"v": 2, "next": None}]


def test_all_types_within_a_recursive_one_are_reported_in_json() -> None:
    fields = [
        ("n", "null", b"", None),
        ("b", "boolean", b"\1", True),
        ("i", "int", b"\1", -1),
        ("f", "float", struct.pack("<f", float("nan")), "NaN"),
        ("inf", "double", struct.pack("<d", float("-inf")), "-Infinity"),
        ("d", "double", struct.pack("<d", 0.5), 0.5),
        ("raw", "bytes", sized(b"\xff\0"), "/wA="),
        ("e", {"type": "enum", "name": "E", "symbols": ["x", "y"]}, b"\2", "y"),
        ("day", logical("int", "date"), number(2932897), "+10000-01-01"),
        ("at", logical("long", "timestamp-millis"), number(1500), "1970-01-01T00:00:01.5Z"),
        ("local", logical("long", "local-timestamp-micros"), number(0), "1970-01-01T00:00:00"),
        ("time", logical("int", "time-millis"), number(1), "00:00:00.001"),
        ("dec", logical("bytes", "decimal", precision=4, scale=2), sized(b"\x7b"), "1.23"),
        ("id", logical("string", "uuid"), sized(str(uuid.UUID(int=1)).encode()), str(uuid.UUID(int=1))),
        ("m", {"type": "map", "values": "int"}, number(1) + sized(b"k") + b"\2\0", {"k": 1}),
        ("l", {"type": "array", "items": "string"}, number(-1) + number(2) + sized(b"s") + b"\0", ["s"]),
        ("u", ["int", "string"], b"\2" + sized(b"t"), "t"),
    ]
    own = [{"name": name, "type": kind} for name, kind, _, _ in fields]
    tree = {"type": "record", "name": "Tree", "fields": [*own, {"name": "kid", "type": ["null", "Tree"]}]}
    one = b"".join(payload for _, _, payload, _ in fields)
    expected = {name: value for name, _, _, value in fields}
    _, (value,) = one_column(tree, [one + b"\2" + one + b"\0"])
    assert value["kid"] == {**expected, "kid": None}


def test_a_value_nested_beyond_the_limit_is_refused_and_does_not_end_the_process() -> None:
    data = container(LIST, [(1, b"\2\2" * 500_000 + b"\2\0")])
    reader, source = opened(data)
    with pytest.raises(UnsupportedFormat, match=r"lake/file at byte \d+: .* nested more than"):
        list(source.scan(reader, ["next"]))
    with pytest.raises(UnsupportedFormat, match="nested more than"):
        list(source.scan(reader, ["v"]))


def test_a_type_may_be_named_again_with_and_without_its_namespace() -> None:
    schema = {
        "type": "record",
        "name": "R",
        "namespace": "a.b",
        "fields": [
            {"name": "one", "type": {"type": "fixed", "name": "F", "size": 1}},
            {"name": "two", "type": "F"},
            {"name": "three", "type": "a.b.F"},
            {"name": "other", "type": {"type": "fixed", "name": "c.F", "size": 2}},
            {"name": "four", "type": "c.F"},
            {"name": "five", "type": {"type": "F"}},
        ],
    }
    reader, source = opened(container(schema, [(1, b"123abcd5")]))
    rows = next(source.scan(reader, source.schema.names)).select(source.schema.names).to_pylist()
    assert rows == [{"one": b"1", "two": b"2", "three": b"3", "other": b"ab", "four": b"cd", "five": b"5"}]


def test_schemas_that_only_lenient_readers_take_are_read() -> None:
    schema = {
        "type": "error",
        "name": "9 x",
        "doc": 7,
        "fields": [
            {"name": "a b.c", "type": {"type": {"type": "string", "avro.java.string": "String"}}, "default": 5},
            {"name": "naïve", "type": {"type": "enum", "name": "e e", "symbols": ["", "-", "-"]}, "aliases": [3]},
        ],
    }
    reader, source = opened(container(schema, [(1, sized(b"x") + b"\2")]))
    assert source.fetch(reader, [(len(header(schema)), 0)], source.schema.names).to_pylist() == [
        {"a b.c": "x", "naïve": "-"}
    ]


def test_lz4_blocks_as_fastavro_writes_them_are_read() -> None:
    payload = records(FLAT, flat_rows(20))
    packed = len(payload).to_bytes(4, "little") + pa.Codec("lz4_raw").compress(payload, asbytes=True)
    reader, source = opened(container(FLAT, [(20, packed)], "lz4"))
    (batch,) = source.scan(reader, source.schema.names)
    assert batch.select(source.schema.names).to_pylist() == flat_rows(20)


def test_a_file_without_a_codec_is_not_compressed() -> None:
    text = json.dumps(FLAT).encode()
    payload = records(FLAT, flat_rows(3))
    data = b"Obj\1" + number(1) + sized(b"avro.schema") + sized(text) + b"\0" + SYNC + block(3, payload)
    reader, source = opened(data)
    assert next(source.scan(reader, ["id"]))["id"].to_pylist() == [row["id"] for row in flat_rows(3)]


def test_an_unknown_codec_and_another_version_are_refused_by_name() -> None:
    with pytest.raises(UnsupportedFormat, match="codec 'zopfli', not one of null, deflate"):
        opened(container(FLAT, [], "zopfli"))
    with pytest.raises(UnsupportedFormat, match="an Avro file of version 0"):
        opened(b"Obj\0" + bytes(100))


def test_files_without_rows_have_columns_and_no_rows() -> None:
    for data in (container(FLAT, []), container(FLAT, [(0, b"")])):
        reader, source = opened(data)
        assert list(source.scan(reader, source.schema.names)) == []
        assert source.fetch(reader, [], ["id"]).schema == pa.schema([("id", pa.int64())])
        assert source.row_bytes >= 1


def test_rows_without_bytes_are_counted() -> None:
    for schema, names in (("null", ["value"]), ({"type": "record", "name": "Empty", "fields": []}, [])):
        reader, source = opened(container(schema, [(70_000, b""), (5, b"")]))
        assert source.schema.names == names
        batches = list(source.scan(reader, names))
        assert sum(batch.num_rows for batch in batches) == 70_005
        pointers = pointers_of(batches)
        assert len(set(pointers)) == 70_005
        assert source.fetch(reader, pointers[-9:], names).num_rows == 9


def test_a_column_may_be_asked_for_twice_and_none_at_all() -> None:
    reader, source = opened(written(FLAT, flat_rows()))
    pointer = pointers_of(source.scan(reader, ["id"]))[7]
    twice = source.fetch(reader, [pointer], ["id", "id"])
    assert [column.to_pylist() for column in twice.columns] == [[flat_rows()[7]["id"]]] * 2
    assert source.fetch(reader, [pointer, pointer], []).num_rows == 2
    assert sum(batch.num_rows for batch in source.scan(reader, [])) == ROWS


def test_columns_not_asked_for_are_not_decoded() -> None:
    """An invalid boolean of 2 is no error if its column is not requested."""
    schema = {"type": "record", "name": "R", "fields": [{"name": "t", "type": "boolean"}, {"name": "i", "type": "int"}]}
    reader, source = opened(container(schema, [(1, b"\2\4")]))
    assert next(source.scan(reader, ["i"]))["i"].to_pylist() == [2]


def test_avro_is_reported_by_its_first_bytes() -> None:
    assert detect(BytesReader(written(FLAT, []), "lake/no-ending")) == "avro"


@pytest.mark.process
def test_a_fetch_imports_no_pandas() -> None:
    """The import takes a third of a second."""
    program = """
import sys
from gnomon.sources import open_source
from tests.sources.avro_files import NESTED, nested_rows, written
from tests.sources.readers import BytesReader
reader = BytesReader(written(NESTED, nested_rows(dict)))
source = open_source(reader, "avro")
batch = next(source.scan(reader, source.schema.names))
source.fetch(reader, [(batch["data_offset"][3].as_py(), 3), (batch["data_offset"][0].as_py(), 0)], source.schema.names)
assert "pandas" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_a_source_is_shared_between_threads() -> None:
    reader, source = opened(written(FLAT, flat_rows()))
    pointers = pointers_of(source.scan(reader, []))

    def fetched(i: int) -> object:
        columns = ["id", "text"] if i % 2 else ["text", "id"]
        return source.fetch(reader, [pointers[i]], columns).select(["id", "text"]).to_pylist()[0]

    with ThreadPoolExecutor(8) as pool:
        rows = list(pool.map(fetched, range(ROWS)))
    assert rows == [{"id": row["id"], "text": row["text"]} for row in flat_rows()]
