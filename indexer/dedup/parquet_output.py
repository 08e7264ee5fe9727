"""Rows as Parquet files on a local disk."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from gnomon.shadow.errors import StorageError

# Settings for files that every reader reads the same. INT96 is Spark's default for timestamps. Most readers read it as
# nanoseconds, which only hold the years 1678 to 2262, and return wrong times for others.
AS_WRITTEN = {
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.writeLegacyFormat": "false",
}


def write_parquet(rows: DataFrame, path: str) -> int:
    """Write rows to a new folder on local disks, with any default file system and Parquet settings of Spark. Returns
    the number of rows that tasks wrote."""
    written = Observation()
    with _settings(rows.sparkSession, AS_WRITTEN):
        rows.observe(written, F.count(F.lit(1)).alias("rows")).write.parquet(f"file:{path}")
    return int(written.get["rows"])


@contextmanager
def _settings(spark: SparkSession, wanted: Mapping[str, str]) -> Iterator[None]:
    """Change settings of the session for a block."""
    before = {name: spark.conf.get(name, None) for name in wanted}
    try:
        for name, value in wanted.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, old in before.items():
            if old is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, old)


def check_rows_visible(path: str, written: int, visible: int) -> None:
    """Raise StorageError where tasks wrote to disks of other machines."""
    if written != visible:
        raise StorageError(
            f"tasks wrote {written:,} rows, and {visible:,} are here; expected a disk that executors and this "
            "machine share: docs/operations/cluster.md",
            path,
        )
