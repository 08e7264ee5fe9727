"""The jobs on a session of Spark Connect give what they give on a session of this process."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.indexer.jobs_of_a_session import results

pytestmark = pytest.mark.spark
pytest.importorskip("grpc", reason="Spark Connect needs grpcio: pip install 'pyspark[connect]'")


def test_each_job_gives_the_same_on_both_kinds_of_session(spark: SparkSession, tmp_path: Path) -> None:
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    command = [sys.executable, "-m", "tests.indexer.jobs_of_a_session", str(tmp_path / "connect")]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    expected = results(spark, tmp_path / "classic")
    assert list(found) == list(expected)
    for name in expected:
        assert found[name] == expected[name], name
    assert all(expected.values())
