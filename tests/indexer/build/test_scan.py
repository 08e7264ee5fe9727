"""The scan of a build in Spark's tasks returns the rows that Spark reads."""

import datetime as dt
from decimal import Decimal
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from gnomon.indexer.build import write
from gnomon.indexer.build.write import COUNTS, PLACES, scan
from gnomon.indexer.spark import key_spark_type
from gnomon.jobs.build.specs import BuildRequest, new_spec
from gnomon.jobs.files.source_files import describe
from gnomon.shadow.metadata.source_files import source_root
from gnomon.shadow.write import GROUP, Target
from gnomon.shadow.write.index_locally import FILE
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
def test_the_tasks_scan_the_rows_that_spark_reads_and_count_them(
    spark: SparkSession, tmp_path: Path, keys: list[str]
) -> None:
    table = pa.table(COLUMNS)
    lacking = table.slice(0, 7).drop_columns(["raw", "real", "a.b c"])
    files = {"p=1/a b%.parquet": table, "p=2/b.parquet": table.slice(3, 9), "p=2/c.parquet": lacking}
    write_source(tmp_path, files, row_group_size=70)
    root = source_root(str(tmp_path))
    described = describe(root, "parquet", {}, True, root.list(), list(COLUMNS))
    include = [name for name in COLUMNS if name not in keys]
    spec = new_spec(BuildRequest(keys, include, 3), root, "parquet", ("p",), described)

    def rows(frame: DataFrame) -> list[str]:
        return sorted(str(row.asDict()) for row in frame.collect())

    columns = [column.name for column in (*spec.stored_keys, *spec.include)]
    stored = [column.name for column in spec.entry_schema.columns][: len(columns)]
    target = Target.of(spec, "segment", [one.entry for one in described])
    scanned = scan(spark, root.storage.root, target, described, 2).orderBy("place").collect()
    blocks = [row for row in scanned if row.block is not None]
    tables = [pa.ipc.read_record_batch(pa.py_buffer(bytes(row.block)), target.schema) for row in blocks]
    for row, table in zip(blocks, tables, strict=True):
        assert {group % 2 for group in table.column(GROUP).to_pylist()} == {row.task}
        assert row.place // PLACES == table.column(FILE)[0].as_py()  # each file is one range
    whole = pa.Table.from_batches(tables)
    names = [*(str(i) for i in range(len(columns))), FILE, str(len(columns))]
    pq.write_table(whole.select(names).rename_columns([*stored, "file", "row"]), tmp_path / "found.parquet")
    found = spark.read.parquet(str(tmp_path / "found.parquet"))
    files = [f"{tmp_path}/{one.entry.path}" for one in described]
    kinds = StructType([StructField(c.name, key_spark_type(c.type)) for c in (*spec.stored_keys, *spec.include)])
    read = (
        spark.read.schema(kinds)
        .parquet(*files)
        .select(
            *(F.col(f"`{name}`").alias(as_stored) for name, as_stored in zip(columns, stored, strict=True)),
            F.col("_metadata.file_name").alias("name"),
            F.col("_metadata.row_index").alias("row"),
        )
    )
    numbers = spark.createDataFrame(
        [(quote(Path(file).name), i) for i, file in enumerate(files)], "name string, file int"
    )
    by_spark = rows(read.join(numbers, "name").select(*stored, "file", "row"))
    assert rows(found) == by_spark
    assert len(by_spark) == 216
    counts = {(row.task, row.place - COUNTS, row.rows, row.ragged) for row in scanned if row.block is None}
    assert counts == {(2, i, one.entry.rows, 0) for i, one in enumerate(described)}


def test_a_task_gets_few_blocks_at_once_where_spark_counts_rows_alone(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert write.block_bytes(spark) == write.BLOCK_BYTES
    monkeypatch.setattr(write, "BYTES_LIMIT", "spark.sql.execution.arrow.none")
    before = spark.conf.get(write.ROWS_LIMIT)
    for rows in (1, 10_000, 50_000):
        spark.conf.set(write.ROWS_LIMIT, rows)
        assert rows * write.block_bytes(spark) <= write.MOST_AT_ONCE
    spark.conf.set(write.ROWS_LIMIT, before)
