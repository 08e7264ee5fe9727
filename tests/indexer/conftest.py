"""The tests that a version of Spark can run."""

import pytest
from pyspark.sql import SparkSession

from gnomon.indexer.spark.versions import HAS_PUSHDOWN, has_avro

# Spark 3.5 has no Python sources, and 4.0 pushes no filters to one; these tests import the filter classes.
collect_ignore = [] if HAS_PUSHDOWN else ["datasource/test_pushdown.py", "spark/test_scan_isolation.py"]


@pytest.fixture(scope="session")
def avro_reader(spark: SparkSession) -> None:
    """Skip a test where Spark cannot read an index file by itself."""
    if not has_avro(spark):
        pytest.skip("Spark 3.5 reads Avro with the package spark-avro alone; deploy/try-spark.sh says how to have it")
