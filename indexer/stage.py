"""Appending files to a source: written below a `_` folder, which engines skip, then moved to their partitions."""

import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F

from indexer.keys import column
from shadow.errors import StorageError
from shadow.storage import Storage, storage_at
from sources import open_source

TIMESTAMP_CONF = "spark.sql.parquet.outputTimestampType"


@dataclass(frozen=True)
class Staged:
    """A folder of files that no reader of the source sees yet, and how many rows tasks wrote to it."""

    folder: str
    name: str
    rows: int


def stage(rows: DataFrame, source: str, partitions: Sequence[str], batch_id: str, micros: bool) -> Staged:
    """Write rows as Parquet files, in partition folders like the source's. What an earlier run of the batch left
    there is removed first."""
    name = re.sub(r"[^A-Za-z0-9.-]+", "-", batch_id)[:80]
    folder = f"_gnomon-{name}"
    storage_at(source).delete_folder(folder)
    spark = rows.sparkSession
    if partitions:  # one task for each partition: as few files as can be
        rows = rows.repartition(*[column(name) for name in partitions])
    before = spark.conf.get(TIMESTAMP_CONF)
    spark.conf.set(TIMESTAMP_CONF, "TIMESTAMP_MICROS" if micros else "INT96")
    try:
        return Staged(folder, name, write_parquet(rows, f"{source}/{folder}", partitions))
    finally:
        spark.conf.set(TIMESTAMP_CONF, before or "INT96")


def write_parquet(rows: DataFrame, path: str, partitions: Sequence[str] = ()) -> int:
    """Write rows to a new folder on local disks, whatever file system Spark takes a plain path to be of; how many rows
    tasks wrote."""
    written = Observation()
    counted = rows.observe(written, F.count(F.lit(1)).alias("rows"))
    counted.write.partitionBy(*partitions).parquet(f"file:{path}")
    return int(written.get["rows"])


def check_rows_here(path: str, written: int, here: int) -> None:
    """StorageError where tasks wrote to disks of other machines."""
    if written != here:
        raise StorageError(
            f"{path}: tasks wrote {written:,} rows, and {here:,} are here; expected a disk that executors and this "
            "machine share: docs/cluster.md"
        )


def publish_staged(storage: Storage, staged: Staged) -> tuple[int, int]:
    """Move the staged files to their places, each durable and under a fresh name; (files, rows). StorageError, before
    any is moved, where not all rows are there."""
    counts: dict[str, int] = {}
    for info in storage.list(staged.folder):
        with storage.open(info.path) as reader:
            counts[info.path] = open_source(reader, "parquet").rows or 0
    check_rows_here(f"{storage.root}/{staged.folder}", staged.rows, sum(counts.values()))
    token = secrets.token_hex(4)
    files = 0
    for path, rows in counts.items():
        if rows:
            partition = path.removeprefix(staged.folder + "/").rpartition("/")[0]
            target = f"part-{files:05d}-{staged.name}-{token}.parquet"
            storage.move_new(path, f"{partition}/{target}" if partition else target)
            files += 1
    storage.delete_folder(staged.folder)
    return files, sum(counts.values())
