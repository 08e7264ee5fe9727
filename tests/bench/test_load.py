"""The bench of loads, with few rows."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from bench.load import COLUMNS, check, goals, measure, table
from bench.load_contenders import CONTENDERS, Gnomon, Run, spark_settings
from bench.rounds import WrongRows


@pytest.mark.spark
def test_all_contenders_are_measured_and_leave_nothing(spark: SparkSession, tmp_path: Path) -> None:
    tables = spark.catalog.listTables()  # other tests may have left views
    with spark_settings(spark):
        lines, costs, size = measure(spark, tmp_path / "bench", "5 KB", 400, [0.01], 1)
    assert [line.contender for line in lines] == list(CONTENDERS)
    assert {line.run.rows for line in lines} == {4}
    assert all(line.run.read > 0.9 * size for line in lines[1:])
    gnomon, merge, _, copy = [line.run for line in lines]
    assert gnomon.read > 4 * 5000
    assert max(gnomon.shuffled, copy.shuffled) < 4 * 5000 < size / 2 < merge.shuffled
    assert set(costs) == {"Gnomon load", "bucketed copy"}
    assert costs["bucketed copy"].bytes > size / 2 > costs["Gnomon load"].bytes
    assert all(cells.count("|") == len(COLUMNS) + 1 for cells in table(lines))
    assert len(goals(lines)) == 3
    assert not (tmp_path / "bench").exists()
    assert spark.catalog.listTables() == tables


def test_other_rows_are_not_compared_with_by_time() -> None:
    with pytest.raises(WrongRows, match=r"b gave 2 rows \(7\), a 2 \(8\)"):
        check([("a", Run(1, 0, 0, 2, 8)), ("b", Run(1, 0, 0, 2, 7))])
    assert Gnomon in CONTENDERS
