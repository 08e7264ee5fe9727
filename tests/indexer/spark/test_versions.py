"""Functions that differ between versions of Spark give the same results."""

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import LongType

from gnomon.indexer.spark import versions
from gnomon.indexer.spark.versions import with_column_in_arrow

pytestmark = pytest.mark.spark


def sums(batches: Iterator[Sequence[pa.Array]]) -> Iterator[pa.Array]:
    """Running sums, of two batches at a time."""
    total, waiting = 0, list[int]()
    for number, arrays in enumerate(batches):
        for values in zip(*(array.to_pylist() for array in arrays), strict=True):
            total += sum(values)
            waiting.append(total)
        if number % 2:
            yield pa.array(waiting, pa.int64())
            waiting = []
    yield pa.array(waiting, pa.int64())


@pytest.mark.parametrize("has_arrow_udf", [True, False])
@pytest.mark.parametrize("inputs", [["id"], ["id", "twice"]])
def test_a_column_is_made_of_a_tasks_rows_in_their_order(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, has_arrow_udf: bool, inputs: list[str]
) -> None:
    if has_arrow_udf and not versions.HAS_ARROW_UDF:
        pytest.skip("this Spark has no functions between Arrow arrays")
    monkeypatch.setattr(versions, "HAS_ARROW_UDF", has_arrow_udf)
    before = spark.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch")
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "3")
    try:
        frame = spark.range(0, 20, 1, 1).selectExpr("id", "2 * id AS twice", "cast(id AS string) AS `a.b`")
        made = with_column_in_arrow(frame, "sum", LongType(), inputs, sums)
        rows = made.collect()
    finally:
        spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", before or "10000")
    factor = 3 if len(inputs) > 1 else 1
    assert made.columns == ["id", "twice", "a.b", "sum"]
    assert [tuple(row) for row in rows] == [(n, 2 * n, str(n), factor * n * (n + 1) // 2) for n in range(20)]
