"""A load with Spark and a load in this process return the same rows."""

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from gnomon.indexer import load
from tests.indexer.test_formats import CASES, put
from tests.shadow.make_index import index_source
from tests.spark_fixtures import to_arrow

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("how", ["inner", "left"])
def test_both_return_the_same_rows_of_each_format(spark: SparkSession, tmp_path: Path, name: str, how: str) -> None:
    case = CASES[name]
    for part in range(3):
        rows = [((i * 7) % 90, f'é line {i}\nof, "{part}"') for i in range(part, 400, 3)]
        put(tmp_path / "source" / f"dt={part}", "a", rows, name, case)
    index_source(tmp_path / "source", tmp_path / "index", [case.number], format=name)
    numbers = [*range(60, 120), 61, 61]
    keys = pa.table({case.number: [case.kind(number) for number in numbers], "tag": range(len(numbers))})
    here = load(None, str(tmp_path / "index"), keys, how=how).read_all()
    there = to_arrow(load(spark, str(tmp_path / "index"), keys, how=how))
    assert here.column_names == there.column_names
    assert here.num_rows > (len(numbers) if how == "left" else 100)
    order = [(one, "ascending") for one in here.column_names]
    assert here.cast(there.schema).sort_by(order).equals(there.sort_by(order))
