"""Fixtures shared by all tests."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from indexer.session import local_session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One local Spark session of two cores for the whole run."""
    session = local_session("local[2]", {"spark.sql.shuffle.partitions": "4"})
    yield session
    session.stop()
