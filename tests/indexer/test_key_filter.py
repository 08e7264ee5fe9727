"""gnomon.key_filter in a statement of Spark: the rows with these keys, of every type, and no other rows."""

import datetime as dt
from decimal import Decimal

import pytest
from pyspark.sql import SparkSession

import gnomon

pytestmark = pytest.mark.spark
VALUES = {
    "boolean": [True, False],
    "tinyint": [-128, 0, 127],
    "int": [-(2**31), 7],
    "bigint": [-(2**63), 2**63 - 1, 0],
    "float": [0.1, -2.5, float("inf"), float("nan")],
    "double": [0.1, 1e300, float("-inf"), float("nan"), 5e-324],
    "decimal(38,10)": [Decimal("-1.5"), Decimal("9999999999999999999999999999.0000000001")],
    "string": [
        *("", "it's", 'a"b', "back\\slash", "\\'", "new\nline", "é\U0001f600", "%_", "NULL", "\t\0"),
        *("${env:HOME}", "${x}", "$", "\\u0024"),
    ],
    "binary": [b"", b"\0\xff'"],
    "date": [dt.date(1, 1, 1), dt.date(1969, 12, 31), dt.date(9999, 12, 31)],
    "timestamp": [dt.datetime(1900, 1, 1, tzinfo=dt.UTC), dt.datetime(2026, 3, 29, 1, 30, 0, 1, tzinfo=dt.UTC)],
    "timestamp_ntz": [dt.datetime(1, 1, 2), dt.datetime(2026, 3, 29, 2, 30, 0, 999_999)],
}


@pytest.mark.parametrize("kind", VALUES)
def test_the_rows_with_these_keys_and_no_others(spark: SparkSession, kind: str) -> None:
    values = [*VALUES[kind], None]
    rows = spark.createDataFrame(list(enumerate(values)), f"n int, key {kind}")
    for number in range(len(values)):
        for some in ({number}, {number, (number + 1) % len(values), len(values) - 1}):
            keys = rows.where(rows.n.isin(list(some))).select("key")
            found = rows.where(gnomon.key_filter(keys, ["key"])).collect()
            assert {row.n for row in found} == some
    assert rows.where(gnomon.key_filter(rows.limit(0), ["key"])).count() == 0
