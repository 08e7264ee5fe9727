"""An index follows Delta and Iceberg tables under random operations of Spark."""

import os
import random
import time
from collections import Counter
from pathlib import Path

import pytest
from pyiceberg.utils.config import Config

from tests.golden.tables.session import CATALOG, spark_beside
from tests.indexer.build.test_random_lake import follow
from tests.soak.spark_tables import DeltaOfSpark, IcebergOfSpark, SparkTable

PYTHON = Path(os.environ.get("GNOMON_SPARK_TABLES", "build/spark-tables")) / "bin/python"


@pytest.mark.soak
@pytest.mark.skipif(not PYTHON.exists(), reason="deploy/make-tables.sh makes the environment of Spark with its jars")
@pytest.mark.parametrize("kind", ["delta", "iceberg v2", "iceberg v3"])
def test_random_operations_of_spark_are_followed_for_as_long_as_asked(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`GNOMON_SOAK_MINUTES` says how long, `GNOMON_SOAK_SEED` where it begins. Prints what was done."""
    end = time.monotonic() + 60 * float(os.environ.get("GNOMON_SOAK_MINUTES", "10"))
    seed, tally = int(os.environ.get("GNOMON_SOAK_SEED", "1")), Counter[str]()
    while time.monotonic() < end:
        folder = tmp_path / str(seed)
        folder.mkdir()
        with spark_beside(str(PYTHON), folder) as spark:
            table: SparkTable
            if kind == "delta":
                table = DeltaOfSpark(spark, folder)
            else:
                table = IcebergOfSpark(spark, folder, int(kind[-1]))
                for name, value in {"type": "sql", **table.settings}.items():
                    monkeypatch.setenv(f"PYICEBERG_CATALOG__{CATALOG.upper()}__{name.upper()}", value)
                monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())  # it is read when pyiceberg is imported
            tally += follow(table, str(folder / "index"), random.Random(seed), 50)
        seed += 1
        print(f"{kind}, until seed {seed}: {dict(tally)}", flush=True)
