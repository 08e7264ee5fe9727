"""A value of each type of a format, in every output of an index: Python, HTTP, the command line, load.

Each column has one value, and a null in a second row. Each format has one file of a real writer, and one build."""

import datetime as dt
import io
import json
from collections.abc import Callable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pyorc
import pytest
from pyspark.sql import SparkSession

from gnomon.__main__ import main
from gnomon.commands.failures import one_line
from gnomon.indexer import build, load
from gnomon.service.settings.table import Settings
from gnomon.shadow import open_index
from gnomon.shadow.values.row_values import python_values
from tests.service.lake import Client, rows
from tests.sources.sequence_files import written as sequence_file
from tests.spark_fixtures import to_arrow

pytestmark = pytest.mark.spark

BIG = "1234567890123456789012345678901234567890123456789012345678901234.0123456789"
NS, UTC = 1767270600_123456789, dt.UTC
FIRST, BEYOND = -62135596800_000000, 253402300800_000000  # 0001-01-01 and 10000-01-01, in microseconds
SAME: Any = object()
UUID_BYTES, UUID_TEXT = bytes(range(16)), "00010203-0405-0607-0809-0a0b0c0d0e0f"
MOMENT = dt.datetime(2026, 1, 1, 12, 30, 0, 123456)


class Column(NamedTuple):
    """A column: the written value (`kind` is the type for the format's writer), its form in Python and in JSON, and the
    result of `load`: the type in Spark's DDL and the value, or the text of an error."""

    kind: Any
    given: Any
    python: Any
    json: Any = SAME
    spark: str = ""
    loaded: Any = SAME


def refused(spark: str, text: str) -> Column:
    """A column that is the same in Python and JSON, and that Spark's type does not hold."""
    return Column(None, None, text, SAME, spark, f'Spark\'s {spark} does not hold "{text}"')


PARQUET = {
    "dec38": Column(pa.decimal128(38, 2), Decimal("9" * 36 + ".25"), Decimal("9" * 36 + ".25"), "9" * 36 + ".25"),
    "dec76": Column(pa.decimal256(76, 10), Decimal(BIG), Decimal(BIG), BIG, "string", BIG),
    "dec9": Column(pa.decimal32(9, 2), Decimal("1.2"), Decimal("1.20"), "1.20", "decimal(9,2)"),
    "ns": refused("timestamp", "2026-01-01T12:30:00.123456789Z")._replace(kind=pa.timestamp("ns", "UTC"), given=NS),
    "ns_local": refused("timestamp_ntz", "2026-01-01T12:30:00.123456789")._replace(kind=pa.timestamp("ns"), given=NS),
    "ns_whole": Column(pa.timestamp("ns"), NS // 1000 * 1000, MOMENT, "2026-01-01T12:30:00.123456", "timestamp_ntz"),
    "first": Column(
        pa.timestamp("us", "Asia/Tokyo"), FIRST, dt.datetime(1, 1, 1, tzinfo=UTC), "0001-01-01T00:00:00Z", "timestamp"
    ),
    "beyond": Column(pa.timestamp("us"), BEYOND, "+10000-01-01T00:00:00", SAME, "timestamp_ntz"),
    "ms": Column(pa.timestamp("ms"), -1, dt.datetime(1969, 12, 31, 23, 59, 59, 999000), "1969-12-31T23:59:59.999"),
    "day": Column(pa.date32(), -141428, dt.date(1582, 10, 14), "1582-10-14", "date"),
    "day_0": Column(pa.date32(), -719163, "0000-12-31", SAME, "date"),
    "day_64": Column(pa.date64(), -62135596800_000, dt.date(1, 1, 1), "0001-01-01", "date"),
    "time_ms": Column(pa.time32("ms"), 45_000_005, "12:30:00.005", SAME, "time(6)"),
    "time_us": Column(pa.time64("us"), 86_399_999_999, "23:59:59.999999", SAME, "time(6)"),
    "time_ns": Column(pa.time64("ns"), 1, "00:00:00.000000001", SAME, "time(9)"),
    "binary": Column(pa.binary(), b"\xff\0", b"\xff\0", "/wA=", "binary"),
    "fixed": Column(pa.binary(2), b"ab", b"ab", "YWI=", "binary"),
    "id": Column(pa.uuid(), UUID_BYTES, UUID_TEXT, SAME, "binary", UUID_BYTES),
    "half": Column(pa.float16(), np.float16(0.1), 0.0999755859375, SAME, "float"),
    "inf": Column(pa.float32(), float("-inf"), float("-inf"), "-Infinity", "float"),
    "nan": Column(pa.float64(), float("nan"), float("nan"), "NaN", "double"),
    "zero": Column(pa.float64(), -0.0, -0.0, SAME, "double"),
    "u8": Column(pa.uint8(), 255, 255, SAME, "smallint"),
    "u32": Column(pa.uint32(), 2**32 - 1, 2**32 - 1, SAME, "bigint"),
    "u64": Column(pa.uint64(), 2**64 - 1, 2**64 - 1, SAME, "decimal(20,0)", Decimal(2**64 - 1)),
    "long": Column(pa.int64(), -(2**63), -(2**63), SAME, "bigint"),
    "span": Column(pa.duration("ms"), 1, dt.timedelta(milliseconds=1), "1000us", "interval day to second"),
    "span_ns": refused("interval day to second", "1ns")._replace(kind=pa.duration("ns"), given=1),
    "nothing": Column(pa.null(), None, None, SAME, "string"),
    "json": Column(pa.json_(), '{"a": [1, 1e400]}', {"a": [1, float("inf")]}, {"a": [1, "Infinity"]}, "string"),
    "ids": Column(pa.map_(pa.uint8(), pa.list_(pa.uuid())), [(1, [UUID_BYTES, None])], {1: [UUID_TEXT, None]}),
    "moments": Column(
        pa.list_(pa.struct([("at", pa.timestamp("us", "UTC")), ("t", pa.time64("us")), ("n", pa.uint64())])),
        [{"at": FIRST, "t": 1, "n": 2**64 - 1}, None],
        [{"at": dt.datetime(1, 1, 1, tzinfo=UTC), "t": "00:00:00.000001", "n": 2**64 - 1}, None],
        [{"at": "0001-01-01T00:00:00Z", "t": "00:00:00.000001", "n": 2**64 - 1}, None],
        "array<struct<at:timestamp,t:time(6),n:decimal(20,0)>>",
        [{"at": dt.datetime(1, 1, 1, tzinfo=UTC), "t": "00:00:00.000001", "n": Decimal(2**64 - 1)}, None],
    ),
    "ns_list": Column(
        pa.list_(pa.timestamp("ns")),
        [NS],
        ["2026-01-01T12:30:00.123456789"],
        SAME,
        "array<timestamp_ntz>",
        'Spark\'s array<timestamp_ntz> does not hold ["2026-01-01T12:30:00.123456789"]',
    ),
}
PARQUET["json"] = PARQUET["json"]._replace(loaded=PARQUET["json"].given)
PARQUET["ids"] = PARQUET["ids"]._replace(
    json=[[1, [UUID_TEXT, None]]], spark="map<smallint,array<binary>>", loaded={1: [UUID_BYTES, None]}
)


def arrow_array(kind: pa.DataType, values: list[Any]) -> pa.Array:
    if isinstance(kind, pa.JsonType):
        return pa.ExtensionArray.from_storage(kind, pa.array(values, kind.storage_type))
    if pa.types.is_map(kind):  # pyarrow cannot make lists of an extension type from Python values
        plain = pa.array(values, pa.map_(pa.uint8(), pa.list_(pa.binary(16))))
        return plain.cast(kind)
    return pa.array(values, kind)


def as_parquet(columns: dict[str, Column]) -> bytes:
    out = io.BytesIO()
    arrays = {name: arrow_array(one.kind, [one.given, None]) for name, one in columns.items()}
    pq.write_table(pa.table({"k": ["a", "b"], **arrays}), out)
    return out.getvalue()


def logical(logical_type: str, plain: str, **more: Any) -> dict[str, Any]:
    return {"type": plain, "logicalType": logical_type, **more}


AVRO = {
    "dec38": Column(
        logical("decimal", "bytes", precision=38, scale=2),
        Decimal("9" * 36 + ".25"),
        Decimal("9" * 36 + ".25"),
        "9" * 36 + ".25",
    ),
    "dec76": Column(
        logical("decimal", "bytes", precision=76, scale=10), Decimal(BIG), Decimal(BIG), BIG, "string", BIG
    ),
    "day": Column(logical("date", "int"), -141428, dt.date(1582, 10, 14), "1582-10-14", "date"),
    "day_far": Column(logical("date", "int"), 2932897, "+10000-01-01", SAME, "date"),
    "time_ms": Column(logical("time-millis", "int"), 45_000_005, "12:30:00.005", SAME, "time(6)"),
    "time_us": Column(logical("time-micros", "long"), 86_399_999_999, "23:59:59.999999", SAME, "time(6)"),
    "first": Column(
        logical("timestamp-micros", "long"), FIRST, dt.datetime(1, 1, 1, tzinfo=UTC), "0001-01-01T00:00:00Z"
    ),
    "beyond": Column(logical("local-timestamp-micros", "long"), BEYOND, "+10000-01-01T00:00:00", SAME, "timestamp_ntz"),
    "ns": refused("timestamp", "2026-01-01T12:30:00.123456789Z")._replace(
        kind=logical("timestamp-nanos", "long"), given=NS
    ),
    "text_id": Column(logical("uuid", "string"), UUID_TEXT, UUID_TEXT, SAME, "binary", UUID_BYTES),
    "enum": Column({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B", "B", SAME, "string"),
    "fixed": Column({"type": "fixed", "name": "F", "size": 2}, b"\xff\0", b"\xff\0", "/wA=", "binary"),
    "duration": Column(logical("duration", "fixed", name="D", size=12), bytes(12), bytes(12), "A" * 16, "binary"),
    "nan": Column("float", float("nan"), float("nan"), "NaN", "float"),
    "zero": Column("double", -0.0, -0.0, SAME, "double"),
    "nothing": Column("null", None, None, SAME, "string"),
    "list": Column(
        {"type": "array", "items": ["null", logical("timestamp-micros", "long")]},
        [FIRST, None],
        [dt.datetime(1, 1, 1, tzinfo=UTC), None],
        ["0001-01-01T00:00:00Z", None],
        "array<timestamp>",
    ),
    "map": Column(
        {"type": "map", "values": "bytes"}, {"é": b"\xff"}, {"é": b"\xff"}, {"é": "/w=="}, "map<string,binary>"
    ),
    "union": Column(["null", "string", "long"], 2**63 - 1, 2**63 - 1, SAME, "", "column union of type dense_union"),
}


def as_avro(columns: dict[str, Column]) -> bytes:
    fields = [
        {"name": name, "type": one.kind if one.kind == "null" or isinstance(one.kind, list) else ["null", one.kind]}
        for name, one in columns.items()
    ]
    schema = {"type": "record", "name": "Row", "fields": [{"name": "k", "type": "string"}, *fields]}
    out = io.BytesIO()
    given = {name: one.given for name, one in columns.items()}
    fastavro.writer(out, schema, [{"k": "a", **given}, {"k": "b", **dict.fromkeys(columns)}])
    return out.getvalue()


ORC = {
    "dec38": Column("decimal(38,2)", Decimal("9" * 36 + ".25"), Decimal("9" * 36 + ".25"), "9" * 36 + ".25"),
    "day": Column("date", dt.date(1, 1, 1), dt.date(1, 1, 1), "0001-01-01", "date"),
    "at": Column(
        "timestamp with local time zone",
        MOMENT.replace(tzinfo=UTC),
        MOMENT.replace(tzinfo=UTC),
        "2026-01-01T12:30:00.123456Z",
        "timestamp",
    ),
    "local": Column("timestamp", MOMENT, MOMENT, "2026-01-01T12:30:00.123456", "timestamp_ntz"),
    "binary": Column("binary", b"\xff\0", b"\xff\0", "/wA=", "binary"),
    "char": Column("char(3)", "é", "é  ", SAME, "string"),
    "tiny": Column("tinyint", -128, -128, SAME, "tinyint"),
    "long": Column("bigint", -(2**63), -(2**63), SAME, "bigint"),
    "inf": Column("float", float("-inf"), float("-inf"), "-Infinity", "float"),
    "nan": Column("double", float("nan"), float("nan"), "NaN", "double"),
    "zero": Column("double", -0.0, -0.0, SAME, "double"),
    "map": Column("map<int,array<date>>", {7: [dt.date(9999, 12, 31)]}, {7: [dt.date(9999, 12, 31)]}),
    "struct": Column("struct<d:decimal(5,2)>", (Decimal("1.5"),), {"d": Decimal("1.50")}, {"d": "1.50"}),
    "union": Column("uniontype<int,string>", "x", "x", SAME, "", "column union of type dense_union"),
}
ORC["map"] = ORC["map"]._replace(json=[[7, ["9999-12-31"]]], spark="map<int,array<date>>")


def as_orc(columns: dict[str, Column]) -> bytes:
    out = io.BytesIO()
    kinds = ",".join(f"{name}:{one.kind}" for name, one in columns.items())
    with pyorc.Writer(out, f"struct<k:string,{kinds}>", timezone=ZoneInfo("UTC")) as writer:
        writer.write(("a", *(one.given for one in columns.values())))
        writer.write(("b", *(None for _ in columns)))
    return out.getvalue()


# For text formats: the type in Spark's DDL, and the text of the value.
TEXT = {
    "dec38": Column("decimal(38,2)", "9" * 36 + ".25", Decimal("9" * 36 + ".25"), "9" * 36 + ".25"),
    "day": Column("date", "1582-10-14", dt.date(1582, 10, 14), "1582-10-14", "date"),
    "day_far": Column("date", "+10000-01-01", "+10000-01-01", SAME, "date"),
    "first": Column("timestamp", "0001-01-01T00:00:00Z", dt.datetime(1, 1, 1, tzinfo=UTC), "0001-01-01T00:00:00Z"),
    "local": Column("timestamp_ntz", "2026-01-01 12:30:00.123456", MOMENT, "2026-01-01T12:30:00.123456"),
    "time": Column("time", "23:59:59.999999", "23:59:59.999999", SAME, "time(6)"),
    "long": Column("bigint", str(-(2**63)), -(2**63), SAME, "bigint"),
    "nan": Column("double", "NaN", float("nan"), "NaN", "double"),
    "inf": Column("float", "-Infinity", float("-inf"), "-Infinity", "float"),
    "zero": Column("double", "-0.0", -0.0, SAME, "double"),
    "bool": Column("boolean", "true", True, SAME, "boolean"),
}
NUMBERS = {"dec38", "long", "zero", "bool"}
JSON = {
    **TEXT,
    "binary": Column("binary", "/wA=", b"\xff\0", "/wA=", "binary"),
    "map": Column("map<string,array<decimal(3,1)>>", {"é": [1.5]}, {"é": [Decimal("1.5")]}, {"é": ["1.5"]}),
    "struct": Column("struct<day:date>", {"day": "2026-1-1"}, {"day": dt.date(2026, 1, 1)}, {"day": "2026-01-01"}),
}


def as_csv(columns: dict[str, Column]) -> bytes:
    lines = [("k", *columns), ("a", *(one.given for one in columns.values())), ("b", *("" for _ in columns))]
    return "".join(",".join(line) + "\n" for line in lines).encode()


def object_of(columns: dict[str, Column]) -> str:
    pairs = ((name, one.given if name in NUMBERS else json.dumps(one.given)) for name, one in columns.items())
    return ", ".join(f'"{name}": {text}' for name, text in pairs)


def as_jsonl(columns: dict[str, Column]) -> bytes:
    return f'{{"k": "a", {object_of(columns)}}}\n{{"k": "b"}}\n'.encode()


def as_sequence(columns: dict[str, Column]) -> bytes:
    return sequence_file([("a", f"{{{object_of(columns)}}}"), ("b", "{}")], "Text", "Text", "DefaultCodec")


def ddl(columns: dict[str, Column]) -> str:
    return ", ".join(f"{name} {one.kind}" for name, one in columns.items())


class Case(NamedTuple):
    write: Callable[[dict[str, Column]], bytes]
    columns: dict[str, Column]
    key: str = "k"
    options: Mapping[str, str] = {}


CASES = {
    "parquet": Case(as_parquet, PARQUET),
    "avro": Case(as_avro, AVRO),
    "orc": Case(as_orc, ORC),
    "csv": Case(as_csv, TEXT, options={"schema": f"k string, {ddl(TEXT)}"}),
    "jsonl": Case(as_jsonl, JSON, options={"schema": f"k string, {ddl(JSON)}"}),
    "sequence": Case(as_sequence, JSON, "key", {"value_format": "json", "schema": ddl(JSON)}),
}


@pytest.mark.parametrize("name", CASES)
def test_each_value_comes_out_of_every_door_as_it_went_in(
    spark: SparkSession, tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    case, source, place = CASES[name], tmp_path / "source", str(tmp_path / "index")
    source.mkdir()
    (source / f"a.{name}").write_bytes(case.write(case.columns))
    build(spark, str(source), place, [case.key], format=name, options=case.options)
    [row], [nulls] = open_index(place).fetch_many(["a", "b"])
    expected = {case.key: "a", **{name: one.python for name, one in case.columns.items()}}
    assert {name: repr(value) for name, value in row.items()} == {n: repr(value) for n, value in expected.items()}
    assert nulls == {case.key: "b", **dict.fromkeys(case.columns)}

    in_json = {n: one.python if one.json is SAME else one.json for n, one in case.columns.items()}
    line = json.dumps({case.key: "a", **in_json}, ensure_ascii=False)
    assert main(["get", place, "a"]) == 0
    assert json.dumps(json.loads(capsys.readouterr().out), ensure_ascii=False) == line
    [over_http] = rows(Client(Settings(indexes=[place])).get("/rows/a"))
    assert json.dumps(over_http, ensure_ascii=False) == line

    keys = spark.createDataFrame([("a",), ("b",)], f"{case.key} string")
    held = [n for n, one in case.columns.items() if not isinstance(one.loaded, str) or one.spark == "string"]
    loaded = load(spark, place, keys, held)
    types = {field.name: field.dataType.simpleString() for field in loaded.schema}
    table = to_arrow(loaded).sort_by(case.key)
    for column in held:
        one = case.columns[column]
        value = one.python if one.loaded is SAME else one.loaded
        assert repr(python_values(table.column(column))) == repr([value, None]), column
        assert types[column] == (one.spark or types[column]), column
    others = [n for n in case.columns if n not in held]
    values = [n for n in others if "does not hold" in case.columns[n].loaded]
    for column in [n for n in others if n not in values] + values[:1]:  # tasks that fail take long
        with pytest.raises(Exception, match=r"Traceback|no Spark type") as caught:
            load(spark, place, keys, [column]).collect()
        assert case.columns[column].loaded in one_line(caught.value)
