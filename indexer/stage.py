"""Appending files to a source: written below a `_` folder, which engines skip, then moved to their partitions."""

import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame

from indexer.keys import column
from shadow.storage import Storage, storage_at
from sources import open_source

TIMESTAMP_CONF = "spark.sql.parquet.outputTimestampType"


@dataclass(frozen=True)
class Staged:
    """A folder of files that no reader of the source sees yet."""

    folder: str
    name: str


def stage(rows: DataFrame, source: str, partitions: Sequence[str], batch_id: str, micros: bool) -> Staged:
    """Write rows as Parquet files, in partition folders like the source's. What an earlier run of the batch left
    there is removed first."""
    name = re.sub(r"[^A-Za-z0-9.-]+", "-", batch_id)[:80]
    staged = Staged(f"_gnomon-{name}", name)
    storage_at(source).delete_folder(staged.folder)
    spark = rows.sparkSession
    if partitions:  # one task for each partition: as few files as can be
        rows = rows.repartition(*[column(name) for name in partitions])
    before = spark.conf.get(TIMESTAMP_CONF)
    spark.conf.set(TIMESTAMP_CONF, "TIMESTAMP_MICROS" if micros else "INT96")
    try:
        rows.write.partitionBy(*partitions).parquet(f"{source}/{staged.folder}")
    finally:
        spark.conf.set(TIMESTAMP_CONF, before or "INT96")
    return staged


def publish_staged(storage: Storage, staged: Staged) -> tuple[int, int]:
    """Move the staged files to their places, each durable and under a fresh name; (files, rows)."""
    token = secrets.token_hex(4)
    files = rows = 0
    for info in list(storage.list(staged.folder)):
        with storage.open(info.path) as reader:
            count = open_source(reader, "parquet").rows
        if count:
            partition = info.path.removeprefix(staged.folder + "/").rpartition("/")[0]
            target = f"part-{files:05d}-{staged.name}-{token}.parquet"
            storage.move_new(info.path, f"{partition}/{target}" if partition else target)
            files, rows = files + 1, rows + count
    storage.delete_folder(staged.folder)
    return files, rows
