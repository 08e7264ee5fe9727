"""A Spark session for programs that have none."""

import os
import re
import sys
from collections.abc import Mapping
from importlib.resources import as_file, files

from pyspark import SparkContext
from pyspark.sql import SparkSession

SETTINGS = {"spark.sql.session.timeZone": "UTC", "spark.sql.timeType.enabled": "true"}
DEFAULTS = {
    **SETTINGS,
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "2g",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",
}
PYTHON = "spark.pyspark.python"
UNDER_SPARK_SUBMIT = "PYSPARK_GATEWAY_PORT"  # set where spark-submit started Java, and then this program


def local_session(master: str | None = None, conf: Mapping[str, str] | None = None) -> SparkSession:
    """The active session, or a new one: on this machine, on the cluster `master`, or from spark-submit.

    Its Python workers run PYSPARK_PYTHON, by default this interpreter, not the one on PATH. On a cluster, `ship` sends
    Gnomon to the executors. Settings of spark-submit are not changed."""
    given = dict(conf or {})
    if PYTHON in given:
        os.environ["PYSPARK_PYTHON"] = given[PYTHON]
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if UNDER_SPARK_SUBMIT in os.environ:
        return _submitted(given)
    master = master or given.get("spark.master") or "local[*]"
    if is_this_machine(master):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    with as_file(
        files("gnomon.indexer.spark") / "log4j2.properties"
    ) as log:  # extracted to a file where we run from an archive
        java = f"-Dlog4j2.configurationFile={log.as_uri()}"
        builder = SparkSession.builder.appName("gnomon").master(master)
        for key, value in {**DEFAULTS, "spark.driver.extraJavaOptions": java, **given}.items():
            builder = builder.config(key, value)
        return builder.getOrCreate()


def _submitted(conf: Mapping[str, str]) -> SparkSession:
    """The session of a program that spark-submit started."""
    known = SparkContext.getOrCreate().getConf()
    builder = SparkSession.builder
    for key, value in {**{key: value for key, value in SETTINGS.items() if not known.contains(key)}, **conf}.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def is_this_machine(master: str) -> bool:
    """Whether tasks run in the driver's own process; `local-cluster` is a cluster."""
    return re.fullmatch(r"local(\[.*\])?", master) is not None
