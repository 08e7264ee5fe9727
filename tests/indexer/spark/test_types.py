"""Columns in Spark's types, and values that these cannot hold."""

from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import DataType, DoubleType, LongType, StructField, StructType, TimestampNTZType, TimestampType

from gnomon.indexer.spark.types import NoSparkType, arrow_of, as_spark, spark_type
from gnomon.shadow.errors import UnsupportedFormat

NS = 1767270600_123456789


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
        (pa.timestamp("us"), TimestampType()),
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
    with pytest.raises(NoSparkType):
        spark_type(arrow)
