"""Spark's scan and the scan of `sources` return the same rows."""

import datetime as dt
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from gnomon.btree.hash_columns import xxhash64_columns
from gnomon.indexer.build import scan as scan_module
from gnomon.indexer.build.scan import scan
from gnomon.jobs.build.specs import BuildRequest, new_spec
from gnomon.jobs.files.source_files import describe
from gnomon.shadow.metadata.source_files import source_root
from tests.shadow.make_index import write_source

pytestmark = pytest.mark.spark

INSTANT = dt.datetime(2026, 1, 1, 12, 30, 15, 123456)
COLUMNS = {
    "text": pa.array(["a", "é日本", "", None] * 50),
    "small": pa.array([1, -(2**15), None, 2**15 - 1] * 50, pa.int16()),
    "a.b c": pa.array([1, -(2**63), None, 2**63 - 1] * 50),
    "real": pa.array([0.0, -0.0, float("nan"), None] * 50),
    "yes": pa.array([True, False, None, True] * 50),
    "day": pa.array([dt.date(1969, 12, 31), None, dt.date(2026, 1, 1), dt.date(1600, 1, 1)] * 50),
    "at": pa.array([INSTANT, None, dt.datetime(1969, 1, 1), INSTANT] * 50, pa.timestamp("us", "UTC")),
    "local": pa.array([INSTANT, None, dt.datetime(1969, 1, 1), INSTANT] * 50, pa.timestamp("us")),
    "ms": pa.array([dt.datetime(2026, 1, 1, 12), None] * 100, pa.timestamp("ms", "UTC")),
    "money": pa.array([Decimal("12.30"), Decimal("-0.01"), None, Decimal("0")] * 50, pa.decimal128(9, 2)),
    "large": pa.array([Decimal(10) ** 30, None, Decimal(-1), Decimal(0)] * 50, pa.decimal128(38, 2)),
    "raw": pa.array([b"\x00\xff", b"", None, b"x"] * 50),
}


@pytest.mark.parametrize("keys", [["text", "a.b c"], ["raw", "large", "p"], ["real", "yes", "day"]])
def test_both_scans_bring_the_same_rows(spark: SparkSession, tmp_path: Path, keys: list[str]) -> None:
    table = pa.table(COLUMNS)
    lacking = table.slice(0, 7).drop_columns(["raw", "real", "a.b c"])
    files = {"p=1/a b%.parquet": table, "p=2/b.parquet": table.slice(3, 9), "p=2/c.parquet": lacking}
    write_source(tmp_path, files, row_group_size=70)
    root = source_root(str(tmp_path))
    described = describe(root, "parquet", {}, True, root.list(), list(COLUMNS))
    include = [name for name in COLUMNS if name not in keys]
    spec = new_spec(BuildRequest(keys, include, 3), root, "parquet", ("p",), described)

    def rows(in_spark: bool) -> list[str]:
        found = scan(spark, root.storage.root, spec, described, in_spark)
        columns = [f"`{name}`" for name in found.columns if name not in (scan_module.SUB, scan_module.SIZE)]
        counts = len({one.entry.partition for one in described}) * spec.buckets  # the first group after those of rows
        return sorted(
            str(row.asDict()) for row in found.select(*columns).where(f"{scan_module.GROUP} < {counts}").collect()
        )

    by_spark = rows(in_spark=True)
    assert rows(in_spark=False) == by_spark
    assert len(by_spark) == 216


def test_files_are_told_apart_by_hashes_that_are_spark_s_and_no_two_alike(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [f"file:/lake/é {i}.parquet" for i in range(5)]
    salt, hashes = scan_module.distinct_hashes(paths)
    frame = spark.createDataFrame([(path,) for path in paths], "path string")
    assert hashes == [row[0] for row in frame.select(F.xxhash64(F.lit(salt), "path")).collect()]

    def unlucky(columns: list[pa.Array]) -> np.ndarray:
        found = xxhash64_columns(columns)
        return found if columns[0][0].as_py() > 2 else found % 2

    monkeypatch.setattr(scan_module, "xxhash64_columns", unlucky)
    salt, hashes = scan_module.distinct_hashes(paths)
    assert salt == 3
    assert hashes == [row[0] for row in frame.select(F.xxhash64(F.lit(salt), "path")).collect()]
