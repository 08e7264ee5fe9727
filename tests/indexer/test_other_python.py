"""A session whose workers run a Python without Gnomon fails with one line."""

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.orc as orc
import pytest

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[2]
BUILD = """
import sys
sys.path.insert(0, sys.argv[1])
from pyspark.sql import SparkSession
from gnomon.indexer import build
from gnomon.indexer.spark.tasks import ExecutorsUnfit
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
try:
    build(spark, sys.argv[2], sys.argv[3], ["id"])
except ExecutorsUnfit as error:
    print("unfit:", error)
"""


def test_workers_of_another_python_are_told_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    orc.write_table(pa.table({"id": [1, 2]}), str(tmp_path / "source/a.orc"))  # a format that our own tasks read
    other = Path(sys.base_prefix, "bin/python3")  # has no packages
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= {"PYSPARK_PYTHON": str(other), "PYSPARK_DRIVER_PYTHON": sys.executable}
    command = [sys.executable, "-c", BUILD, str(ROOT), str(tmp_path / "source"), str(tmp_path / "index")]
    done = subprocess.run(
        command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
    )
    [line] = done.stdout.splitlines()
    assert line.startswith("unfit: the Python of Spark's workers cannot run our tasks: No module named '")
    assert f"set PYSPARK_PYTHON to {sys.executable}" in line
