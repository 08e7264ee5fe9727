"""The data of the benchmark of appends: tables, batches for them, and the expected results."""

from pathlib import Path
from typing import NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from bench.dedup_tasks import KEY

COPIES = 100  # one in this number of new rows occurs twice
HOSTS = 20_000
HASH_BYTES = 128  # text bytes of one hash
NARROW_BYTES, FILE_BYTES = 100, 64 << 20


class Workload(NamedTuple):
    """Batches of `incoming` rows for tables of `existing` rows; each row has a payload of `payload` bytes."""

    name: str
    payload: int
    incoming: int
    existing: tuple[int, ...]

    def files(self, rows: int) -> int:
        """The number of files for this number of rows."""
        return max(rows * (self.payload + NARROW_BYTES) // FILE_BYTES, 2)


class Truth(NamedTuple):
    """The number of rows, and the sum of the hashes of their keys."""

    rows: int
    checksum: int

    def __add__(self, other: "Truth") -> "Truth":  # type: ignore[override]
        return Truth(self.rows + other.rows, self.checksum + other.checksum)


def rows_of(ids: DataFrame, payload: int) -> DataFrame:
    """The row of each id: a URL of 63 bytes, some small columns, and a payload that hardly compresses. URLs are in
    random order of the ids."""
    host = F.lpad(F.pmod(F.xxhash64("id"), F.lit(HOSTS)).cast("string"), 5, "0")
    page = F.lpad(F.col("id").cast("string"), 12, "0")
    url = F.concat(F.lit("https://www.site"), host, F.lit(".example.org/crawl/"), page, F.lit("/index.html"))
    small = [
        F.when(F.col("id") % 10 == 0, 404).otherwise(200).alias("status"),
        (F.col("id") * 7919 % 100_000).alias("bytes"),
        F.concat(F.lit("page "), F.col("id")).alias("title"),
    ]
    hashes = f"transform(sequence(1, {payload // HASH_BYTES}), i -> sha2(id || '-' || i, 512))"
    wide = [F.expr(f"array_join({hashes}, '')").alias("page")] if payload else []
    return ids.select(url.alias(KEY), *small, *wide)


def write_table(spark: SparkSession, folder: Path, workload: Workload, rows: int) -> Truth:
    """Write a table of this number of rows."""
    rows_of(spark.range(0, rows, 1, workload.files(rows)), workload.payload).write.parquet(str(folder))
    for mark in folder.glob("*_SUCCESS*"):  # an append by Spark writes it again
        mark.unlink()
    return truth_of(spark.read.parquet(str(folder)))


def write_batch(spark: SparkSession, folder: Path, workload: Workload, existing: int, share: float) -> Truth:
    """Write a batch, of which `share` are rows of a table of `existing` rows, spread over it; some of the others occur
    twice. Returns the new rows."""
    incoming = workload.incoming
    old = round(incoming * share)
    fresh = (incoming - old) - (incoming - old) // COPIES
    chosen = f"""CASE WHEN id < {old} THEN id * {existing} DIV {max(old, 1)}
        WHEN id < {old + fresh} THEN id - {old} + {existing} ELSE id - {old + fresh} + {existing} END AS id"""
    ids = spark.range(0, incoming, 1, workload.files(incoming)).selectExpr(chosen)
    rows_of(ids, workload.payload).write.parquet(str(folder))
    return truth_of(rows_of(spark.range(existing, existing + fresh), 0))


def sums() -> list[Column]:
    """The aggregates that make a Truth."""
    checksum = F.sum(F.xxhash64(KEY).cast("decimal(20,0)"))
    return [F.count(F.lit(1)).alias("rows"), F.coalesce(checksum, F.lit(0)).alias("checksum")]


def truth_of(rows: DataFrame) -> Truth:
    found = rows.agg(*sums()).first()
    assert found is not None  # an aggregate without groups has a row
    return Truth(found["rows"], int(found["checksum"]))
