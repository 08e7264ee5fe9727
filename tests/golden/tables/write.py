"""`deploy/make-tables.sh [NAME ...]` writes the tables of this folder anew, all or those named, by Spark."""

import gzip
import io
import json
import os
import shutil
import sys
import tarfile
import time
from pathlib import Path

from pyspark.sql import SparkSession

from tests.golden.tables import HERE, PLACE
from tests.golden.tables.delta_tables import DELTA
from tests.golden.tables.iceberg_tables import ICEBERG
from tests.golden.tables.recorders import DeltaRecorder, IcebergRecorder, Recorder

JARS = (
    "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0,"
    "io.delta:delta-spark_4.1_2.13:4.4.0,"
    "org.xerial:sqlite-jdbc:3.49.1.0"
)
CATALOG = f"{PLACE}/catalog-{os.getpid()}.db"
CONFIGURATION = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.jars.packages": JARS,
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "1",
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.databricks.delta.retentionDurationCheck.enabled": "false",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension,"
    "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # Spark 4.1.4 with Iceberg 1.12.0 keeps equality deletes in the column type that they were first read in: after the
    # column was widened, rows that they delete come back.
    "spark.sql.iceberg.executor-cache.enabled": "false",
    "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
    "spark.sql.catalog.lake.catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
    "spark.sql.catalog.lake.uri": f"jdbc:sqlite:{CATALOG}",
    "spark.sql.catalog.lake.jdbc.schema-version": "V1",
    "spark.sql.catalog.lake.warehouse": f"{PLACE}/warehouse",
    "spark.sql.catalog.lake.cache-enabled": "false",
}


def pack(recorder: Recorder) -> int:
    """Write NAME.json and NAME.tar.gz beside this file, and give the bytes of the second. Hadoop's checksum files
    (`.NAME.crc`) are left out: no reader needs them."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path in sorted(recorder.folder.rglob("*")):
            if path.is_file() and not (path.name.startswith(".") and path.name.endswith(".crc")):
                member = tarfile.TarInfo(str(path.relative_to(recorder.folder)))
                member.size = path.stat().st_size
                member.mtime = int(path.stat().st_mtime)
                tar.addfile(member, io.BytesIO(path.read_bytes()))
    packed = gzip.compress(archive.getvalue(), mtime=0)
    (HERE / f"{recorder.name}.tar.gz").write_bytes(packed)
    text = json.dumps(recorder.description(), ensure_ascii=False, indent=1) + "\n"
    (HERE / f"{recorder.name}.json").write_text(text, encoding="utf-8")
    return len(packed)


def main(names: list[str]) -> None:
    os.environ["TZ"] = "UTC"
    time.tzset()
    unknown = set(names) - DELTA.keys() - ICEBERG.keys()
    if unknown:
        raise SystemExit(f"no table is named {', '.join(sorted(unknown))}: there are {', '.join([*DELTA, *ICEBERG])}")
    Path(PLACE).mkdir(exist_ok=True)
    Path(CATALOG).unlink(missing_ok=True)
    builder = SparkSession.builder.master("local[2]")
    for name, value in CONFIGURATION.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    spark.sql("CREATE NAMESPACE lake.db")
    for recorder_of, tables in ((DeltaRecorder, DELTA), (IcebergRecorder, ICEBERG)):
        for name, make in tables.items():
            if names and name not in names:
                continue
            recorder = recorder_of(spark, name, " ".join((make.__doc__ or "").split()))
            make(recorder)
            rows = "/".join(str(version["rows"]) for version in recorder.versions)
            print(f"{name}: rows {rows}, {pack(recorder):,} bytes", flush=True)
            shutil.rmtree(recorder.folder)
    spark.stop()
    Path(CATALOG).unlink()


if __name__ == "__main__":
    main(sys.argv[1:])
