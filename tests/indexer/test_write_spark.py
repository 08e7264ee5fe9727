"""Spark reads the same values from written files as from its own files."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from gnomon.sources import open_source, style_of
from gnomon.sources.types.ddl import parse_ddl, to_ddl
from tests.sources.readers import FileReader
from tests.sources.written import rows_of, written

ROWS = """
SELECT id, cast(id AS int) AS n, cast(id * 7 AS smallint) AS s, id * 0.5D AS d, cast(-id * 0.1 AS float) AS f,
  id % 2 = 0 AS b, CASE id WHEN 0 THEN '' WHEN 1 THEN ' a "b", c'
    WHEN 2 THEN 'ž\\n2' WHEN 3 THEN null ELSE 'x' END AS text,
  date_add(date'2020-02-28', cast(id AS int)) AS day,
  timestamp_micros(1582934400123456 + id * 86400000001) AS at,
  cast(id * 1.01 AS decimal(10, 2)) AS price, cast(id AS decimal(30, 3)) AS big
FROM range(8)
"""
NESTED = """
  , named_struct('x', id, 'y', 'z') AS record, IF(id = 1, null, array(id, null)) AS list,
  map('k', id) AS map, array(named_struct('at', timestamp_micros(id))) AS records, cast(text AS binary) AS bytes,
  timestamp_micros(-1500001 - id) AS before, cast(null AS string) AS nothing
"""


def spark_rows(spark: SparkSession, format: str) -> DataFrame:
    flat = spark.sql(ROWS)
    flat.createOrReplaceTempView("flat_rows")
    more = NESTED if format in ("parquet", "json") else NESTED.replace("timestamp_micros(-1500001 - id)", "at")
    return flat if format == "csv" else spark.sql(f"SELECT * {more} FROM flat_rows")


@pytest.mark.spark
@pytest.mark.parametrize("format", ["parquet", "orc", "csv", "json"])
def test_spark_finds_the_same_rows_in_files_like_its_own(spark: SparkSession, tmp_path: Path, format: str) -> None:
    rows = spark_rows(spark, format)
    folder = tmp_path / "rows"
    text = {"header": "true", "escape": '"', "multiLine": "true"} if format == "csv" else {}
    all_digits = {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"} if format in ("csv", "json") else {}
    rows.coalesce(1).write.options(**text, **all_digits).format(format).save(str(folder))
    (path,) = folder.glob("part-*")
    name = {"json": "jsonl"}.get(format, format)
    options = {"schema": to_ddl(_schema(rows))} if format in ("csv", "json") else {}
    own = FileReader(path)
    table = rows_of(own, name, options)
    assert table.num_rows == 8
    expected = spark.read.schema(rows.schema).options(**text).format(format).load(str(folder)).sort("id").collect()
    assert len(expected) == 8
    for like in (own, None):
        file = written(table, name, options, like=like)
        assert like is None or open_source(file, name, options).schema == open_source(own, name, options).schema
        alone = tmp_path / f"{name}-{like is None}"
        alone.mkdir()
        (alone / f"new{style_of(like, name, options).ending}").write_bytes(file.data)
        read = spark.read.schema(rows.schema).options(**text).format(format).load(str(alone))
        assert read.sort("id").collect() == expected
        if format in ("parquet", "orc") and like is own:
            found = spark.read.format(format).load(str(alone))
            assert found.schema == spark.read.format(format).load(str(folder)).schema
    if format == "parquet":
        metadata = pq.read_metadata(pa.BufferReader(written(table, name, options, like=own).data))
        assert metadata.row_group(0).column(8).physical_type == "INT96"
        assert metadata.row_group(0).column(8).compression == "SNAPPY"


def _schema(rows: DataFrame) -> pa.Schema:
    return parse_ddl(", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in rows.schema))
