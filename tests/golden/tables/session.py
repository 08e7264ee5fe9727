"""Spark with the jars of Delta and Iceberg, for programs that run beside it with another version of pyspark.

`PYTHON -m tests.golden.tables.session FOLDER`, in the environment that `deploy/make-tables.sh` makes, reads a statement
of SQL from each line of its input, as JSON, and answers with its rows: `{"rows": [{...}]}`, or `{"error": "..."}`. A
statement of the form `{"count": SQL}` is answered with the number of rows alone. Iceberg's catalog `own` lies in the
folder, in `catalog.db`, where pyiceberg finds it, too. `SparkBeside` is the other end."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

CATALOG = "own"


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

    def _ask(self, asked: object) -> object:
        print(json.dumps(asked), file=self._statements, flush=True)
        answer = json.loads(self._answers.readline() or '{"error": "Spark ended; see spark.log"}')
        if "error" in answer:
            raise RuntimeError(f"{asked}: {answer['error']}")
        return answer["rows"]


@contextmanager
def spark_beside(python: str, folder: Path) -> Iterator[SparkBeside]:
    """A session of the environment of `python`. Its log is `spark.log` in the folder."""
    command = [python, "-m", "tests.golden.tables.session", str(folder.absolute())]
    # PYTHONPATH and SPARK_HOME are those of the other pyspark.
    own = {name: value for name, value in os.environ.items() if name not in ("SPARK_HOME", "PYTHONPATH")}
    pipe = subprocess.PIPE
    with (folder / "spark.log").open("w") as log:
        child = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=log, text=True, env=own)
        try:
            yield SparkBeside(cast(IO[str], child.stdin), cast(IO[str], child.stdout))
        finally:
            child.communicate(timeout=60)


def main(folder: str) -> None:
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
    builder = SparkSession.builder.master("local[2]").config("spark.driver.memory", "4g")
    known = {name: value for name, value in CONFIGURATION.items() if not name.startswith("spark.sql.catalog.lake")}
    for name, value in (known | own).items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            if isinstance(asked, dict):
                answer: object = len(spark.sql(asked["count"]).collect())
            else:
                answer = [row.asDict() for row in spark.sql(asked).collect()]
            print(json.dumps({"rows": answer}, default=str), file=answers, flush=True)
        except (PySparkException, Py4JError) as error:
            print(json.dumps({"error": str(error)[:2000]}), file=answers, flush=True)
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
