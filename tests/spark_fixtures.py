"""A Spark session for the tests that ask for one. Nothing of Spark is imported before."""

import json
import os
import subprocess
import sys
import traceback
import uuid
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.java import start_quickly, train
from tests.stores.process import free_port

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

start_quickly()
ROOT = str(Path(__file__).parents[1])
CONNECT = "GNOMON_TEST_CONNECT"  # environment variable: the tests' session is one of Spark Connect
SETTINGS_OF_CONNECT = {
    "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
    "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.timeType.enabled": "true",
    "spark.sql.redaction.options.regex": "(?i)password",
    "spark.ui.enabled": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",
}


def to_arrow(frame: "DataFrame") -> "pa.Table":
    """The rows as an Arrow table: `toArrow`, which Spark 3.5 lacks."""
    import pyarrow as pa

    return frame.toArrow() if hasattr(frame, "toArrow") else pa.Table.from_batches(frame._collect_as_arrow())


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator["SparkSession"]:
    """One local Spark session of two cores for the whole run, with Hive support: its metastore lies in memory, and
    starts (3 s) when a catalog table is first named."""
    from gnomon.indexer.spark.session import local_session

    train()
    home = tmp_path_factory.mktemp("spark")
    conf = {
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.catalogImplementation": "hive",
        "spark.sql.warehouse.dir": str(home / "warehouse"),
        "spark.hadoop.javax.jdo.option.ConnectionURL": "jdbc:derby:memory:metastore;create=true",
    }
    if os.environ.get(CONNECT):
        yield from connect_session(conf)
        return
    session = local_session("local[2]", conf)
    session.sparkContext._jvm.System.setProperty("derby.stream.error.file", str(home / "derby.log"))
    yield session
    session.stop()


SERVER = """
import json, sys
from pyspark.sql import SparkSession
builder = SparkSession.builder.master("local[2]")
for name, value in json.loads(sys.argv[1]).items():
    builder = builder.config(name, value)
builder.getOrCreate()
print("up", flush=True)
sys.stdin.read()
"""


@contextmanager
def connect_server(conf: Mapping[str, str] | None = None) -> Iterator[str]:
    """A server of Spark Connect, in another process of this machine, on a port of its own: its URL."""
    port = str(free_port())
    settings = {**SETTINGS_OF_CONNECT, "spark.connect.grpc.binding.port": port, **(conf or {})}
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    command = [sys.executable, "-c", SERVER, json.dumps(settings)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment) as server:
        assert server.stdout is not None
        try:
            assert any(line == "up\n" for line in server.stdout)
            yield f"sc://127.0.0.1:{port}"
        finally:
            server.terminate()


def connect_session(conf: dict[str, str]) -> Iterator["SparkSession"]:
    """A session of Spark Connect, whose server runs in another process of this machine."""
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    with connect_server(conf) as place:
        session = SparkSession.builder.remote(place).getOrCreate()
        yield session
        session.stop()


@contextmanager
def in_workers(spark: "SparkSession", variables: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """The environment of Spark's Python workers, with these variables for a block: they lead to a store."""
    environment: dict[str, str] = spark.sparkContext.environment
    before = dict(environment)
    environment.update(variables)
    try:
        yield environment
    finally:
        environment.clear()
        environment.update(before)


@pytest.fixture
def classic(spark: "SparkSession") -> "SparkSession":
    """The session, where it is one of this process: it analyses frames at once, and knows the id of a query."""
    if os.environ.get(CONNECT):
        pytest.skip("the tests' session is one of Spark Connect")
    return spark


@pytest.fixture
def database(spark: "SparkSession", tmp_path: Path) -> Iterator[str]:
    """A database of the catalog for one test, its managed tables below `tmp_path / "database"`."""
    name = f"d_{uuid.uuid4().hex[:12]}"
    spark.sql(f"CREATE DATABASE {name} LOCATION '{tmp_path / 'database'}'")
    yield name
    spark.sql(f"DROP DATABASE {name} CASCADE")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup() -> Generator[None, None, None]:
    """As `pytest_runtest_call`, of the fixtures."""
    yield from pytest_runtest_call()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, None, None]:
    """On a session of Spark Connect, skip a test that asks the session's JVM itself, as for a plan. Where Gnomon asks
    it, the test fails."""
    try:
        return (yield)
    except AttributeError as error:
        frames = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
        ours = [name for name in frames if name.startswith(ROOT) and "/.venv/" not in name]
        if os.environ.get(CONNECT) and "JVM_ATTRIBUTE_NOT_SUPPORTED" in str(error) and "/tests/" in ours[-1]:
            pytest.skip("Spark Connect has no JVM here, and the test asks it")
        raise
