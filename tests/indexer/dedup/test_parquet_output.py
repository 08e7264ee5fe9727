"""Every reader reads the same values from the Parquet files of Gnomon, even at the limits of each type."""

import datetime as dt
import math
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from gnomon.indexer import append_new, build, load
from gnomon.indexer.join import write_files

pytestmark = pytest.mark.spark

FIRST, LAST = dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31, 23, 59, 59, 999999)
WIDE = 10**38 - 1
RECORD = pa.struct([("a", pa.timestamp("us", "UTC")), ("b", pa.string())])
EDGES = pa.table(
    {
        "id": pa.array([1, 2, 3]),
        "instant": pa.array([FIRST, LAST, None], pa.timestamp("us", "UTC")),
        "local": pa.array([FIRST, LAST, None], pa.timestamp("us")),
        "day": pa.array([FIRST.date(), LAST.date(), None], pa.date32()),
        "wide": pa.array([Decimal(WIDE), Decimal(-WIDE), None], pa.decimal128(38, 0)),
        "cents": pa.array([Decimal("0.01"), Decimal("-99999999999999.99"), None], pa.decimal128(16, 2)),
        "byte": pa.array([-128, 127, None], pa.int8()),
        "count": pa.array([0, 2**32 - 1, None], pa.uint32()),
        "long": pa.array([-(2**63), 2**63 - 1, None], pa.int64()),
        "double": pa.array([-0.0, math.nan, math.inf]),
        "single": pa.array([-0.0, math.nan, -math.inf], pa.float32()),
        "text": ["", "\U0001f600\u0000\n", None],
        "bytes": pa.array([b"", b"\x00\xff", None], pa.binary()),
        "flag": [True, False, None],
        "list": pa.array([[], [None, 2**63 - 1], None], pa.list_(pa.int64())),
        "record": pa.array([{"a": LAST, "b": ""}, {"a": None, "b": None}, None], RECORD),
    }
)
READERS: dict[str, Callable[[str], pa.Table]] = {
    "pyarrow": lambda files: pa.concat_tables(map(pq.read_table, sorted(Path(files).parent.glob(Path(files).name)))),
    "duckdb": lambda files: duckdb.sql(f"SELECT * FROM read_parquet('{files}')").to_arrow_table(),
    "polars": lambda files: pl.read_parquet(files).to_arrow(),
}


def shown(value: Any) -> Any:
    """A value in a form that shows -0.0 and NaN, and does not depend on the reader's Arrow type."""
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, dt.datetime):
        return value.replace(tzinfo=None)
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, dict):
        return {name: shown(one) for name, one in value.items()}
    return value


def check(files: str, expected: pa.Table) -> None:
    wanted = {row["id"]: {name: shown(value) for name, value in row.items()} for row in expected.to_pylist()}
    for reader, read in READERS.items():
        found = {
            row["id"]: {name: shown(row[name]) for name in expected.column_names} for row in read(files).to_pylist()
        }
        assert found == wanted, reader


@pytest.fixture
def source(spark: SparkSession, tmp_path: Path) -> Path:
    (tmp_path / "source").mkdir()
    pq.write_table(EDGES, tmp_path / "source/a.parquet")
    build(spark, str(tmp_path / "source"), str(tmp_path / "index"), ["id"])
    return tmp_path


def test_loaded_rows_are_read_alike(spark: SparkSession, source: Path) -> None:
    rows = load(spark, str(source / "index"), spark.createDataFrame([(1,), (2,), (3,)], "id bigint"))
    assert write_files(rows, source / "loaded") == 3
    check(str(source / "loaded/*.parquet"), EDGES)


def test_appended_and_reported_rows_are_read_alike(spark: SparkSession, source: Path) -> None:
    more = pa.concat_tables([EDGES, EDGES.set_column(0, "id", pa.array([4, 5, 6]))])
    (source / "batch").mkdir()
    pq.write_table(more, source / "batch/b.parquet")
    reader = spark.read.option("datetimeRebaseMode", "CORRECTED")  # else Spark 3.5 refuses old days
    batch = reader.parquet(str(source / "batch"))
    done = append_new(spark, str(source / "index"), batch, "more", report=str(source / "report.parquet"))
    assert (done.appended, done.already_loaded) == (3, 3)
    check(str(source / "source/part-*.parquet"), EDGES.set_column(0, "id", pa.array([4, 5, 6])))
    check(str(source / "report.parquet"), EDGES)
