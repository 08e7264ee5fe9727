"""Fixtures shared by all tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from indexer.session import local_session
from tests.stores.hdfs import hdfs_cluster
from tests.stores.s3 import BUCKET, s3_server


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One local Spark session of two cores for the whole run."""
    session = local_session("local[2]", {"spark.sql.shuffle.partitions": "4"})
    yield session
    session.stop()


@pytest.fixture(scope="session")
def s3_settings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """An S3 server for the whole run: the variables that lead to it."""
    with s3_server(tmp_path_factory.mktemp("s3")) as settings:
        yield settings


@pytest.fixture
def s3_root(s3_settings: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """A place of the test's own on the S3 server, which the environment leads to."""
    for name, value in s3_settings.items():
        monkeypatch.setenv(name, value)
    return f"s3://{BUCKET}/{tmp_path.parent.name}/{tmp_path.name}"


@pytest.fixture(scope="session")
def hdfs_settings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """A namenode and a datanode for the whole run: the variables that lead to them."""
    with hdfs_cluster(tmp_path_factory.mktemp("hdfs")) as settings:
        yield settings


@pytest.fixture
def hdfs_root(hdfs_settings: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """A place of the test's own on HDFS, which the environment leads to."""
    for name, value in hdfs_settings.items():
        monkeypatch.setenv(name, value)
    return f"hdfs://localhost/{tmp_path.parent.name}/{tmp_path.name}"
