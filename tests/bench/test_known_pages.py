"""The bench of known pages, with few rows."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from bench.known_pages import COLUMNS, STATES, TITLES, compare
from gnomon.base import kernel


@pytest.mark.spark
@pytest.mark.skipif(not kernel.COMPILED, reason="Gnomon was installed without a C compiler")
def test_each_state_of_each_source_is_measured_both_ways(spark: SparkSession, tmp_path: Path) -> None:
    lines = compare(spark, tmp_path, pages=2000, keys=3, rounds=1)[2:]
    assert [line.split(" | ")[:2] for line in lines] == [
        [f"| {title}", state] for title in TITLES.values() for state in STATES
    ]
    assert all(line.count("|") == len(COLUMNS) + 1 for line in lines)
