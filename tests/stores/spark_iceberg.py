"""Spark with Iceberg in an environment of its own, since Iceberg's runtime is made for one version of Spark: a process
that answers SQL statements as lines of JSON. Run as a program, this file is that process."""

import json
import subprocess
import sys
import threading
import venv
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

SPARK, PYARROW, PANDAS = "pyspark==4.1.4", "pyarrow>=19", "pandas>=2.2,<3"
JAR = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"
INSTALL_SECONDS = 900
MARK = "answer "  # before a line of JSON; all other lines are of Spark


class SparkSql:
    """A session of Spark, by its process. Safe to share between threads."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process, self._lock = process, threading.Lock()

    def __call__(self, statement: str) -> list[str]:
        """The rows of a statement as text, sorted. RuntimeError for one that fails."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._lock:
            self._process.stdin.write(json.dumps(statement) + "\n")
            self._process.stdin.flush()
            for line in self._process.stdout:
                if line.startswith(MARK):
                    answer: dict[str, Any] = json.loads(line.removeprefix(MARK))
                    break
            else:
                raise RuntimeError("Spark has ended")
        if "error" in answer:
            raise RuntimeError(f"{statement}: {answer['error']}")
        return list(answer["rows"])


def _python() -> Path:
    """The Python of the environment, which the first call makes."""
    from tests.stores.process import locked

    with locked(f"spark-{SPARK.partition('==')[2]}") as folder:
        python = folder / "bin" / "python"
        if not (folder / "complete").exists():
            venv.create(folder, with_pip=True, clear=False)
            install = [str(python), "-m", "pip", "install", "--quiet", SPARK, PYARROW, PANDAS]
            subprocess.run(install, check=True, timeout=INSTALL_SECONDS)
            (folder / "complete").touch()
        return python


@contextmanager
def spark_sql(catalogs: Mapping[str, str], log: Path) -> Iterator[SparkSql]:
    """A session whose catalogs are REST catalogs at these addresses. It ends with the block."""
    command = [str(_python()), __file__, json.dumps(dict(catalogs))]
    with log.open("w") as errors:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, encoding="utf-8"
        )
        try:
            yield SparkSql(process)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(60)


def main(catalogs: Mapping[str, str]) -> None:
    from pyspark.sql import SparkSession  # of the environment

    builder = SparkSession.builder.master("local[2]")
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.jars.packages": JAR,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.iceberg.executor-cache.enabled": "false",
    }
    for name, address in catalogs.items():
        settings |= {
            f"spark.sql.catalog.{name}": "org.apache.iceberg.spark.SparkCatalog",
            f"spark.sql.catalog.{name}.type": "rest",
            f"spark.sql.catalog.{name}.uri": address,
            f"spark.sql.catalog.{name}.cache-enabled": "false",
        }
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    for line in sys.stdin:
        try:
            answer: dict[str, Any] = {"rows": sorted(map(str, spark.sql(json.loads(line)).collect()))}
        except Exception as error:  # noqa: BLE001 the caller raises it
            answer = {"error": str(error)[:2000]}
        print(f"{MARK}{json.dumps(answer)}", flush=True)
    spark.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
