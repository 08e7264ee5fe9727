"""Typed values from text: Arrow's conversion and ours agree, and nothing is lost."""

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest

from gnomon.sources.literals.text_values import RefusedValue, from_text

INSTANT, LOCAL, DECIMAL = pa.timestamp("us", "UTC"), pa.timestamp("us"), pa.decimal128(10, 2)


def texts_of(array: pa.Array) -> list[str | None]:
    texts: list[str | None] = array.cast(pa.string()).to_pylist()
    return texts


@pytest.mark.parametrize(
    ("kind", "given", "read"),
    [
        (pa.int64(), ["1", None, "-9223372036854775808"], ["1", None, "-9223372036854775808"]),
        (pa.int64(), ["+5", "-0"], ["5", "0"]),
        (pa.float64(), ["1.5", "1e3", "1e400", None], ["1.5", "1000", "inf", None]),
        (pa.float64(), ["NaN", "-Inf", "Infinity", " 1.", "-0"], ["nan", "-inf", "inf", "1", "0"]),
        (pa.float32(), ["0.1", " 0.1"], ["0.1", "0.1"]),
        (pa.bool_(), ["TRUE", "false"], ["true", "false"]),
        (DECIMAL, ["1.50000", "-12345678.9"], ["1.50", "-12345678.90"]),
        (DECIMAL, ["1e3", "15E-1", "0e-999999999"], ["1000.00", "1.50", "0.00"]),
        (pa.date32(), ["2020-01-31", "0001-01-01"], ["2020-01-31", "0001-01-01"]),
        (pa.date32(), ["2020-1-3", "2020", "2020-2"], ["2020-01-03", "2020-01-01", "2020-02-01"]),
        (pa.date32(), ["10000-01-01", "-0044-03-15"], ["10000-01-01", "-0044-03-15"]),
        (INSTANT, ["2020-01-02 03:04:05"], ["2020-01-02 03:04:05.000000Z"]),
        (INSTANT, ["2020-01-02 03:04+01:00"], ["2020-01-02 02:04:00.000000Z"]),
        (INSTANT, ["2020-01-02"], ["2020-01-02 00:00:00.000000Z"]),
        (INSTANT, ["2020-01-02 03:04:05.1234567 UTC"], ["2020-01-02 03:04:05.123456Z"]),
        (LOCAL, ["1500-01-02T03:04:05.5"], ["1500-01-02 03:04:05.500000"]),
        (pa.time64("us"), ["01:02", "23:59:59.5"], ["01:02:00.000000", "23:59:59.500000"]),
        (pa.string(), ["", "x", None], ["", "x", None]),
        (pa.null(), [None], [None]),
    ],
)  # fmt: skip
def test_text_is_read_as_spark_reads_it(kind: pa.DataType, given: list[str | None], read: list[str | None]) -> None:
    array = from_text(pa.array(given, pa.string()), kind)
    assert array.type == kind
    assert texts_of(array) == read


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (pa.int64(), "0x1F"),
        (pa.int64(), " 5"),
        (pa.int64(), "9223372036854775808"),
        (pa.int8(), "200"),
        (pa.int32(), "1.0"),
        (pa.float64(), "nan"),
        (pa.float64(), "1d"),
        (pa.bool_(), "1"),
        (DECIMAL, "1.505"),
        (DECIMAL, "123456789"),
        (DECIMAL, "1e-77"),
        (DECIMAL, "1e-99999999"),
        (DECIMAL, "1E+999999999"),
        (DECIMAL, "NaN"),
        (pa.date32(), "2020-02-30"),
        (pa.date32(), "9999999-01-01"),
        (INSTANT, "2020-01-02 24:00:00"),
        (INSTANT, "2020-01-02 00:00:00+19:00"),
        (INSTANT, "999999-01-01"),
        (LOCAL, "2020-01-02T03:04:05Z"),
        (pa.time64("us"), "24:00"),
        (pa.null(), "x"),
    ],
)
def test_what_is_not_of_the_type_is_refused_with_its_place(kind: pa.DataType, text: str) -> None:
    with pytest.raises(RefusedValue, match="expected") as caught:
        from_text(pa.array([None, text], pa.string()), kind)
    assert caught.value.index == 1


@pytest.mark.parametrize(
    ("kind", "text", "odd"),
    [
        (pa.int64(), "12", "+1"),
        (pa.float64(), "0.1", "NaN"),
        (pa.float32(), "0.10000000149011612", "NaN"),
        (pa.float64(), "-0", "NaN"),
        (DECIMAL, "1.5", "1e0"),
        (pa.date32(), "1500-03-01", "2020"),
        (INSTANT, "1500-03-01 00:00:00.000001", "2020"),
        (INSTANT, "1500-03-01 00:00:00+01:00", "2020"),
        (LOCAL, "0001-01-01 23:59", "2020"),
        (pa.bool_(), "True", "TRUE"),
    ],
)
def test_a_value_is_the_same_whatever_stands_beside_it(kind: pa.DataType, text: str, odd: str) -> None:
    """A scan reads it with others, a fetch alone."""
    alone = from_text(pa.array([text]), kind)
    assert from_text(pa.array([text, odd]), kind)[:1].equals(alone)


def test_values_are_of_python_types_one_expects() -> None:
    assert from_text(pa.array(["2020-01-31"]), pa.date32()).to_pylist() == [dt.date(2020, 1, 31)]
    assert from_text(pa.array(["1.5"]), DECIMAL).to_pylist() == [Decimal("1.50")]
    assert from_text(pa.array(["ab"]), pa.binary()).to_pylist() == [b"ab"]
