"""Rows as Parquet files on a local disk, for whoever asked for them."""

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F

from shadow.errors import StorageError


def write_parquet(rows: DataFrame, path: str) -> int:
    """Write rows to a new folder on local disks, whatever file system Spark takes a plain path to be of; how many rows
    tasks wrote."""
    written = Observation()
    rows.observe(written, F.count(F.lit(1)).alias("rows")).write.parquet(f"file:{path}")
    return int(written.get["rows"])


def check_rows_here(path: str, written: int, here: int) -> None:
    """StorageError where tasks wrote to disks of other machines."""
    if written != here:
        raise StorageError(
            f"{path}: tasks wrote {written:,} rows, and {here:,} are here; expected a disk that executors and this "
            "machine share: docs/cluster.md"
        )
