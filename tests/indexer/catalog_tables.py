"""Catalog tables for tests: files written by pyarrow and declared by DDL; and the rows that Spark reads from them."""

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from tests.opened import open_index


def rows(begin: int, end: int) -> pa.Table:
    """Rows with a unique `url`, except every tenth."""
    numbers = range(begin, end)
    columns = {"url": [f"u{n // 10 * 10 if n % 10 == 1 else n}" for n in numbers], "n": pa.array(numbers, pa.int64())}
    return pa.table({**columns, "html": [f"<p>{n}</p>" for n in numbers]})


COLUMNS = "url string, n bigint, html string"


def write(folder: Path, table: pa.Table, name: str = "a.parquet") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, folder / name)


def same_rows(spark: SparkSession, table: str, index: str, key: str = "url") -> int:
    """Check that a fetch by key finds exactly the rows that Spark reads from the table. Returns their number."""
    read = spark.table(table)
    wanted = [plain(row.asDict(recursive=True)) for row in read.collect()]
    keys = sorted({row[key] for row in wanted if row[key] is not None})
    opened = open_index(index)
    found = [row for answer in opened.fetch_many(keys) for row in answer]
    assert list(found[0]) == read.columns
    assert sorted(repr(plain(row)) for row in found) == sorted(map(repr, wanted))
    assert opened.view.snapshot.rows == len(wanted)
    return len(wanted)


def plain(value: Any) -> Any:
    """A value in which moments have no zone (the tests' session has UTC), bytes are bytes, and names are in order."""
    if isinstance(value, dict):  # a map has no order
        return {name: plain(value[name]) for name in sorted(value)}
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, dt.datetime):
        return value.replace(tzinfo=None)
    return bytes(value) if isinstance(value, bytearray) else value
