"""The bench of builds, with few rows."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from bench.build import CONTENDERS, GNOMON, WrongCount, measure, profile, table, write_source
from bench.processes import cpu_of

ROWS = 3_000


@pytest.mark.spark
def test_both_write_all_entries_and_the_tasks_are_profiled(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_source(spark, tmp_path / "source", ROWS)
    assert spark.read.parquet(str(tmp_path / "source")).select("url").distinct().count() == ROWS
    before = cpu_of(spark)
    runs = measure(spark, tmp_path, ROWS, "url", rounds=1)
    spent = cpu_of(spark) - before
    assert list(runs) == list(CONTENDERS)
    [ours] = runs[GNOMON]
    assert 0 < ours.cpu.jvm <= spent.jvm
    assert 0 < ours.cpu.python <= spent.python
    assert ours.bytes > ROWS * 5
    assert table({(ROWS, "url"): runs}).count("\n| ") == 5
    assert " s of CPU" in profile(spark, tmp_path, ROWS, "id")
    assert {path.name for path in tmp_path.iterdir()} == {"source"}
    monkeypatch.setitem(CONTENDERS, GNOMON, (CONTENDERS[GNOMON][0], lambda *_: ROWS - 1))
    with pytest.raises(WrongCount, match="2999 entries of 3000 rows"):
        measure(spark, tmp_path, ROWS, "url", rounds=1)
