"""Appends to Delta and Iceberg tables by a process that is killed at each step, while other programs change the
table: in the end the table has each key once."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from gnomon.indexer import append_new, build
from tests.end_to_end.killable import Kill, Killable
from tests.jobs.dedup.lake_tables import DeltaLake, IcebergLake, Lake, rows
from tests.jobs.dedup.test_append_lake import check

pytestmark = [pytest.mark.spark, pytest.mark.nightly]

STEPS = [
    "staged",
    "committed",
    "between the moves",
    "before the table's commit",
    "after the table's commit",
    "moved",
    "index files written",
    "before the snapshot",
    "after the snapshot",
    "before the batch's record",
    "after the batch's record",
]


@pytest.mark.parametrize("format_name", ["delta", "iceberg"])
def test_each_key_is_there_once_after_kills_and_foreign_commits(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format_name: str
) -> None:
    lake: Lake = DeltaLake(tmp_path) if format_name == "delta" else IcebergLake(tmp_path, monkeypatch)
    index, child = str(tmp_path / "index"), Killable(tmp_path, "child", spark)
    build(spark, lake.name, index, ["id"], buckets=2)
    live = set(range(40)) - {7, 8}
    try:
        for i, step in enumerate(STEPS):
            begin, batch = 40 + 10 * i, str(tmp_path / f"batch {i}.parquet")
            pq.write_table(rows(begin - 5, begin + 10), batch)
            answer = child.ask("append", index, batch, f"batch {i}", "dedup", kill=Kill(step))
            assert answer.killed, f"it was not killed at {step!r}: {answer}"
            if i % 3 == 0:
                lake.append(rows(1000 + i, 1001 + i))
                live.add(1000 + i)
            elif i % 3 == 1:
                lake.delete(10 + i)
                live.remove(10 + i)
            else:
                lake.compact()
            if append_new(spark, index, spark.read.parquet(batch), f"batch {i}").known_batch:
                build(spark, lake.name, index, ["id"])  # a known batch does not bring the index up to date
            live |= set(range(begin - 5, begin + 10))
            check(lake, index, sorted(live))
    finally:
        child.close()
