"""The bench of partitions, with few rows."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from bench.partitions import COLUMNS, LAYOUTS, measure


@pytest.mark.spark
def test_both_layouts_are_measured_and_leave_nothing(spark: SparkSession, tmp_path: Path) -> None:
    lines = measure(spark, tmp_path / "bench", rows=1000, partitions=3)
    assert [line.split(" | ")[0] for line in lines] == [f"| {layout}" for layout in LAYOUTS]
    assert all(line.count("|") == len(COLUMNS) + 1 for line in lines)
    assert not (tmp_path / "bench").exists()
