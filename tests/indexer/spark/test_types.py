"""Columns in Spark's types, and values that these cannot hold."""

import datetime as dt
from decimal import Decimal
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import DataType, DoubleType, LongType, StructField, StructType, TimestampNTZType, TimestampType

from gnomon.indexer.spark.types import arrow_of, as_frame, as_spark, spark_type
from gnomon.jobs.load import NoType
from gnomon.shadow.errors import UnsupportedFormat, UsageError
from tests.spark_fixtures import to_arrow

NS = 1767270600_123456789
MOMENT = dt.datetime(2026, 1, 1, 12, 30, 0, 123456, dt.UTC)


def given_as(array: pa.Array, kind: DataType | None = None) -> pa.Array:
    kind = kind or spark_type(array.type)
    return as_spark(array, kind, arrow_of(kind), "c", pa.array(range(40, 40 + len(array))), "/lake/a")


@pytest.mark.parametrize(
    ("arrow", "good", "bad", "message"),
    [
        (pa.timestamp("ns", "UTC"), NS // 1000 * 1000, NS, 'timestamp does not hold "2026-01-01T12:30:00.123456789Z"'),
        (pa.timestamp("ns"), 0, NS, 'timestamp_ntz does not hold "2026-01-01T12:30:00.123456789"'),
        (pa.timestamp("s"), 0, 2**53, "timestamp_ntz does not hold "),
        (pa.duration("ns"), 1000, 1, 'interval day to second does not hold "1ns"'),
        (pa.duration("s"), 1, 2**62, f'interval day to second does not hold "{2**62}s"'),
        (
            pa.map_(pa.int8(), pa.list_(pa.timestamp("ns"))),
            [(1, [0])],
            [(1, [0, NS])],
            'map<tinyint,array<timestamp_ntz>> does not hold [[1, ["1970-01-01T00:00:00", "2026-01-01T12:30:00.1',
        ),
    ],
)
def test_a_value_that_sparks_type_does_not_hold_is_named_with_its_row(
    arrow: pa.DataType, good: Any, bad: Any, message: str
) -> None:
    assert len(given_as(pa.array([good, None], arrow))) == 2
    with pytest.raises(UnsupportedFormat) as caught:
        given_as(pa.array([good, None, bad, good], arrow))
    assert str(caught.value).startswith(f"/lake/a: column c, row 42: Spark's {message}")
    assert str(caught.value).endswith("; load other columns")


@pytest.mark.parametrize(
    ("arrow", "kind"),
    [
        (pa.timestamp("us", "UTC"), TimestampNTZType()),
        (pa.float64(), LongType()),
        (pa.string(), LongType()),
        (pa.int64(), TimestampType()),
        (pa.decimal128(5, 2), DoubleType()),
        (pa.list_(pa.int64()), LongType()),
        (pa.struct([("a", pa.int64()), ("b", pa.int64())]), StructType([StructField("a", LongType())])),
    ],
)
def test_a_file_whose_column_is_of_another_kind_is_refused_and_not_converted(
    arrow: pa.DataType, kind: DataType
) -> None:
    with pytest.raises(
        UnsupportedFormat, match=r"/lake/a: column c is .* here and .* in newer files, which cannot be one"
    ):
        given_as(pa.nulls(2, arrow), kind)


def test_files_may_differ_where_no_value_is_lost() -> None:
    assert given_as(pa.array([1, None], pa.uint8()), LongType()).to_pylist() == [1, None]
    assert given_as(pa.array([2**53]), DoubleType()).to_pylist() == [2.0**53]
    with pytest.raises(UnsupportedFormat, match="double does not hold 9007199254740993"):
        given_as(pa.array([2**53 + 1]), DoubleType())
    wider = StructType([StructField("b", LongType()), StructField("a", LongType())])
    assert given_as(pa.array([{"a": 1}], pa.struct([("a", pa.int32())])), wider).to_pylist() == [{"b": None, "a": 1}]
    assert given_as(pa.nulls(1), wider).to_pylist() == [None]


@pytest.mark.parametrize(
    "arrow",
    [pa.dense_union([pa.field("a", pa.int8())]), pa.month_day_nano_interval(), pa.list_(pa.month_day_nano_interval())],
)
def test_what_spark_has_no_type_for_is_said(arrow: pa.DataType) -> None:
    with pytest.raises(NoType):
        spark_type(arrow)


COLUMNS: dict[str, tuple[pa.DataType, list[Any], list[Any] | None]] = {  # type, values, and in Spark where they differ
    "dictionary": (pa.dictionary(pa.int8(), pa.string()), ["a", None, "é"], None),
    "large": (pa.large_string(), ["a", "", None], None),
    "view": (pa.string_view(), ["a", "longer than twelve bytes", None], None),
    "bytes": (pa.binary_view(), [b"a", b"\0", None], None),
    "fixed": (pa.binary(2), [b"ab", None, b"cd"], None),
    "uuid": (pa.uuid(), [bytes(16), None, bytes(range(16))], [bytes(16), None, bytes(range(16))]),
    "uint64": (pa.uint64(), [2**64 - 1, 0, None], None),
    "half": (pa.float16(), [0.5, None, float("inf")], None),
    "day": (pa.date64(), [dt.date(1, 1, 1), dt.date(9999, 12, 31), None], None),
    "ns": (pa.timestamp("ns", "Asia/Tokyo"), [MOMENT, None, MOMENT], None),
    "plain": (pa.timestamp("ms"), [dt.datetime(2024, 3, 10, 2, 30), None, dt.datetime(1, 1, 1)], None),
    "void": (pa.null(), [None] * 3, None),
    "decimal": (pa.decimal32(4, 1), [Decimal("1.5"), None, Decimal("-999.9")], None),
    "long decimal": (pa.decimal256(50, 2), [Decimal("1.50")] * 3, ["1.50"] * 3),
    "list": (pa.large_list(pa.uint8()), [[255, None], [], None], None),
    "struct": (pa.struct([("a.b", pa.timestamp("s"))]), [{"a.b": dt.datetime(2024, 1, 1)}, None, {"a.b": None}], None),
    "map": (pa.map_(pa.string(), pa.int32()), [[("a", 1)], [], None], None),
}


@pytest.mark.spark
def test_each_arrow_column_gives_spark_the_same_values_in_every_zone_and_behind_empty_chunks(
    spark: SparkSession,
) -> None:
    table = pa.table({name: pa.array(values, kind) for name, (kind, values, _) in COLUMNS.items()})
    chunks = pa.concat_tables([table.slice(0, 0), table.slice(0, 1), table.slice(0, 0), table.slice(1)])
    wanted = {name: values if other is None else other for name, (_, values, other) in COLUMNS.items()}
    before = spark.conf.get("spark.sql.session.timeZone")
    try:
        for zone, given in (("America/New_York", chunks), ("UTC", chunks.to_reader())):
            spark.conf.set("spark.sql.session.timeZone", zone)
            found = to_arrow(as_frame(spark, given, "keys"))
            assert {name: found[name].to_pylist() for name in wanted} == wanted
        assert as_frame(spark, table.slice(0, 0), "keys").count() == 0
        frame = pd.DataFrame({"k": [1, 2, 3]})[1:]  # its index is no column
        assert as_frame(spark, frame, "keys").collect() == [(2,), (3,)]
    finally:
        spark.conf.set("spark.sql.session.timeZone", before or "UTC")


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (
            [("at", pa.array([None, NS], pa.timestamp("ns")))],
            r"column at, row 1: Spark's timestamp\[us\] does not hold",
        ),
        ([("u", pa.array([None], pa.month_day_nano_interval()))], "column u of type .* has no Spark type; cast it"),
        ([("v", pa.array([[1]], pa.list_view(pa.int8())))], "column v of type list_view.* has no Spark type; cast it"),
        ([("k", pa.array([1])), ("k", pa.array([2]))], "it has more than one column k; rename one"),
    ],
)
def test_an_arrow_column_that_spark_cannot_hold_is_one_line(columns: list[tuple[str, pa.Array]], message: str) -> None:
    table = pa.table([array for _, array in columns], [name for name, _ in columns])
    with pytest.raises(UsageError, match=f"^keys: {message}"):
        as_frame(None, table, "keys")  # type: ignore[arg-type]  # no session is asked
