"""`sources` scans files that Spark reads differently: days before the calendar changed, and INT96."""

import datetime as dt
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from gnomon.indexer import build
from gnomon.indexer.build.reader_parity import reads_alike
from gnomon.jobs.files.source_files import describe
from gnomon.shadow import open_index
from gnomon.shadow.metadata.source_files import source_root
from tests.shadow.make_index import write_source

pytestmark = pytest.mark.spark

OLD = [(dt.date(1500, 1, 1), dt.datetime(1500, 1, 1, 12)), (dt.date(2026, 1, 1), dt.datetime(2026, 1, 1, 12))]
MODES = ("datetimeRebaseModeInWrite", "int96RebaseModeInWrite", "datetimeRebaseModeInRead", "outputTimestampType")


def all_alike(source: Path, keys: list[str], index: str) -> bool:
    root = source_root(str(source))
    return reads_alike(open_index(index).spec, describe(root, "parquet", {}, False, root.list(), keys))


@pytest.mark.parametrize("writer", ["pyarrow", "TIMESTAMP_MICROS", "INT96"])
@pytest.mark.parametrize("mode", ["LEGACY", "CORRECTED"])
def test_days_before_1582_are_indexed_as_they_are_fetched(
    spark: SparkSession, tmp_path: Path, writer: str, mode: str
) -> None:
    source, index = tmp_path / "source", str(tmp_path / "index")
    before = {name: spark.conf.get(f"spark.sql.parquet.{name}") for name in MODES}
    try:
        for name in MODES:
            spark.conf.set(f"spark.sql.parquet.{name}", mode if name != MODES[-1] else "TIMESTAMP_MICROS")
        if writer == "pyarrow":
            days, moments = zip(*OLD, strict=True)
            table = pa.table({"day": days, "at": pa.array(moments, pa.timestamp("us", "UTC"))})
            write_source(source, {"a.parquet": table})
        else:
            spark.conf.set("spark.sql.parquet.outputTimestampType", writer)
            literals = ", ".join(f"(date'{day}', timestamp'{at}Z')" for day, at in OLD)
            spark.sql(f"select * from values {literals} as t(day, at)").coalesce(1).write.parquet(str(source))
        for keys in (["day"], ["at"], ["day", "at"]):
            build(spark, str(source), f"{index}_{'_'.join(keys)}", keys)
            opened = open_index(f"{index}_{'_'.join(keys)}")
            rows = pq.read_table(source, coerce_int96_timestamp_unit="us").to_pylist()
            assert len(rows) == len(OLD)
            for row in rows:
                [found] = opened.fetch(tuple(row[name] for name in keys))
                assert str(found["day"]) == str(row["day"])
            is_alike = all_alike(source, keys, opened.location)
            assert is_alike == (writer == "pyarrow" or (mode == "CORRECTED" and (writer != "INT96" or keys == ["day"])))
    finally:
        for name, value in before.items():
            spark.conf.set(f"spark.sql.parquet.{name}", value or "CORRECTED")
