"""Spark with the jars of Delta and Iceberg, for programs that run beside it with another version of pyspark.

`PYTHON -m tests.golden.tables.session FOLDER CATALOGS`, in the environment that `deploy/make-tables.sh` or `python`
makes, reads a statement of SQL from each line of its input, as JSON, and answers with its rows: `{"rows": [{...}]}`, or
`{"error": "..."}`. A statement of the form `{"count": SQL}` is answered with the number of rows alone, and
`{"read": null}` with the bytes that all statements have read. Iceberg's catalog `own` lies in the folder, in
`catalog.db`, where pyiceberg finds it, too; CATALOGS are REST catalogs, as JSON: name to address. `SparkBeside` is the
other end."""

import json
import os
import subprocess
import sys
import venv
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

CATALOG = "own"
PACKAGES = ("pyspark==4.1.4", "pyarrow>=19", "pandas>=2.2,<3")
INSTALL_SECONDS = 900


class SparkBeside:
    """A session in a process of its own."""

    def __init__(self, statements: IO[str], answers: IO[str]) -> None:
        self._statements, self._answers = statements, answers

    def run(self, statement: str) -> list[dict[str, Any]]:
        """The rows of a statement's answer: numbers and texts. RuntimeError where Spark refuses it."""
        return cast(list[dict[str, Any]], self._ask(statement))

    def count(self, statement: str) -> int:
        """The number of rows of a statement's answer."""
        return cast(int, self._ask({"count": statement}))

    def bytes_read(self) -> int:
        """The bytes of files that the statements so far have read."""
        return cast(int, self._ask({"read": None}))

    def _ask(self, asked: object) -> object:
        print(json.dumps(asked), file=self._statements, flush=True)
        answer = json.loads(self._answers.readline() or '{"error": "Spark ended; see spark.log"}')
        if "error" in answer:
            raise RuntimeError(f"{asked}: {answer['error']}")
        return answer["rows"]


def python() -> str:
    """The Python of an environment with this Spark, which the first call on a machine makes."""
    from tests.stores.process import locked  # not in that environment, which has no pytest

    with locked(PACKAGES[0]) as folder:
        found = str(folder / "bin" / "python")
        if not (folder / "complete").exists():
            venv.create(folder, with_pip=True)
            install = [found, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *PACKAGES]
            subprocess.run(install, check=True, timeout=INSTALL_SECONDS)
            (folder / "complete").touch()
        return found


@contextmanager
def spark_beside(python: str, folder: Path, catalogs: Mapping[str, str] | None = None) -> Iterator[SparkBeside]:
    """A session of the environment of `python`, with REST catalogs at these addresses. Its log is `spark.log` in the
    folder."""
    command = [python, "-m", "tests.golden.tables.session", str(folder.absolute()), json.dumps(dict(catalogs or {}))]
    # PYTHONPATH and SPARK_HOME are those of the other pyspark.
    own = {name: value for name, value in os.environ.items() if name not in ("SPARK_HOME", "PYTHONPATH")}
    pipe = subprocess.PIPE
    with (folder / "spark.log").open("w") as log:
        child = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=log, text=True, env=own)
        try:
            yield SparkBeside(cast(IO[str], child.stdin), cast(IO[str], child.stdout))
        finally:
            child.communicate(timeout=60)


def main(folder: str, catalogs: Mapping[str, str]) -> None:
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    from tests.golden.tables.write import CONFIGURATION

    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # Spark writes to standard output, too
    catalog = f"spark.sql.catalog.{CATALOG}"
    own = {
        catalog: "org.apache.iceberg.spark.SparkCatalog",
        f"{catalog}.catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
        f"{catalog}.uri": f"jdbc:sqlite:{folder}/catalog.db",
        f"{catalog}.jdbc.schema-version": "V1",
        f"{catalog}.warehouse": f"file://{folder}/warehouse",
        f"{catalog}.cache-enabled": "false",
    }
    for name, address in catalogs.items():
        of_rest = {"": "org.apache.iceberg.spark.SparkCatalog", ".type": "rest", ".uri": address}
        own |= {f"spark.sql.catalog.{name}{ending}": value for ending, value in of_rest.items()}
        own[f"spark.sql.catalog.{name}.cache-enabled"] = "false"
    builder = SparkSession.builder.master("local[2]").config("spark.driver.memory", "4g")
    known = {name: value for name, value in CONFIGURATION.items() if not name.startswith("spark.sql.catalog.lake")}
    for name, value in (known | own).items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            if isinstance(asked, dict) and "read" in asked:
                answer: object = spark._jsc.sc().statusStore().executorList(True).apply(0).totalInputBytes()
            elif isinstance(asked, dict):
                answer = len(spark.sql(asked["count"]).collect())
            else:
                answer = [row.asDict() for row in spark.sql(asked).collect()]
            print(json.dumps({"rows": answer}, default=str), file=answers, flush=True)
        except (PySparkException, Py4JError) as error:
            print(json.dumps({"error": str(error)[:2000]}), file=answers, flush=True)
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
