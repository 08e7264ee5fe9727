"""The jobs on a session of Spark Connect give what they give on a session of this process."""

import json
import os
import subprocess
import sys
from importlib.metadata import requires
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from gnomon import build
from gnomon.indexer import join_with_index
from gnomon.indexer.spark import JobCounters
from gnomon.jobs.load import LoadCounters
from tests.indexer.jobs_of_a_session import results, written
from tests.spark_fixtures import connect_server

pytestmark = pytest.mark.spark
pytest.importorskip("grpc", reason="Spark Connect needs grpcio: pip install 'pyspark[connect]'")


def test_each_job_gives_the_same_on_both_kinds_of_session(spark: SparkSession, tmp_path: Path) -> None:
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    with connect_server() as place:
        command = [sys.executable, "-m", "tests.indexer.jobs_of_a_session", place, str(tmp_path / "connect")]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    expected = results(spark, tmp_path / "classic")
    assert list(found) == list(expected)
    for name in expected:
        assert found[name] == expected[name], name
    assert all(expected.values())


def test_counts_come_with_the_first_action(spark: SparkSession, tmp_path: Path) -> None:
    counters = JobCounters()
    index = str(tmp_path / "index")
    build(None, str(written(tmp_path)), index, ["k"])
    rows = join_with_index(spark, index, spark.createDataFrame([("k1é",)], "k string"), counters=counters)
    assert counters.value == LoadCounters()
    assert (rows.count(), counters.value.keys, counters.value.matched) == (2, 1, 1)


CLIENT = """
import json, sys
from pathlib import Path
from pyspark.sql import SparkSession
from tests.indexer.jobs_of_a_session import results
session = SparkSession.builder.remote(sys.argv[1]).getOrCreate()
print(json.dumps(results(session, Path(sys.argv[2]))))
"""
OF_CLIENTS = (
    *("pyspark-client>=4.0", "pandas>=2.2.2,<3", "grpcio", "grpcio-status"),
    *("googleapis-common-protos", "zstandard"),
)


@pytest.mark.nightly
def test_a_client_without_java_gives_the_same(spark: SparkSession, tmp_path: Path) -> None:
    """It has the package for clients of Spark Connect alone, without py4j, and no Java."""
    python = tmp_path / "venv" / "bin" / "python"
    needs = [one for one in requires("gnomon-index") or () if "extra ==" not in one]
    uv = [sys.executable, "-m", "uv"]
    subprocess.run([*uv, "venv", "-q", "--python", sys.executable, str(tmp_path / "venv")], check=True)
    subprocess.run([*uv, "pip", "install", "-q", "--python", str(python), *needs, *OF_CLIENTS], check=True)
    (tmp_path / "client.py").write_text(CLIENT)
    there = {"PATH": str(tmp_path), "PYTHONPATH": os.getcwd(), "HOME": str(tmp_path)}
    with connect_server() as place:
        asked = [str(python), str(tmp_path / "client.py"), place, str(tmp_path / "client")]
        done = subprocess.run(asked, capture_output=True, text=True, env=there, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout.splitlines()[-1]) == results(spark, tmp_path / "classic")
