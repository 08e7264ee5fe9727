"""Spark sessions of commands, and `gnomon load` with Spark."""

import logging
import os
import re
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from gnomon.commands import config
from gnomon.indexer.join import keys_of_file, load_keyed, write_files
from gnomon.indexer.spark import (
    WAIT_SECONDS,
    JobCounters,
    check_executors,
    is_this_machine,
    local_session,
    ship,
    spark_stage,
)
from gnomon.jobs import Progress, Stages
from gnomon.jobs.load import KeyFile, LoadCounters, LoadRequest
from gnomon.shadow import OpenIndex, ShadowError, UsageError

STDERR = 2
THROWN = re.compile(r"\w(?:Exception|Error): ")
JAVA_TOO_OLD = "UnsupportedClassVersionError"
QUERY_LOGS = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")
SHIPS = "spark.gnomon.ship"  # "false" if the executors have our packages
HIVE = {"spark.sql.catalogImplementation": "hive"}


class NoSpark(ShadowError):
    """Spark could not be started."""


@contextmanager
def spark_session(
    master: str | None = None, conf: Sequence[str] | None = None, hive: bool = False
) -> Iterator[SparkSession]:
    """The active session, or a new one, which is stopped at the end. Its executors have Gnomon. With `hive` it uses the
    catalog of a Hive metastore, like Spark's SQL shell. The output of Java's start is shown only when the start fails:
    the JVM inherits a redirected stderr."""
    settings = {**(HIVE if hive else {}), **parse_conf(conf or ())}
    if master is None and "spark.master" not in settings:
        master = config.master()
    active = SparkSession.getActiveSession()
    if active is not None:
        yield active
        return
    for name in QUERY_LOGS:
        logging.getLogger(name).disabled = True  # they print each failed query as JSON; the exception has the same text
    with tempfile.TemporaryFile() as chatter:
        sys.stderr.flush()
        saved = os.dup(STDERR)
        os.dup2(chatter.fileno(), STDERR)
        try:
            with _told_of_a_wait(master or settings.get("spark.master"), saved):
                spark = local_session(master, settings)
        except (PySparkRuntimeError, OSError) as error:
            chatter.seek(0)
            lines = [line for line in chatter.read().decode(errors="replace").splitlines() if line.strip()]
            said = [line for line in lines if THROWN.search(line)]
            reason = (said or lines or [str(error)])[0].strip()
            needs = "" if said and JAVA_TOO_OLD not in reason else "; it needs Java 17, Debian: openjdk-17-jre-headless"
            cure = f"{needs}; build, load and dedup also run without Java: --engine local"
            raise NoSpark(f"Spark did not start ({reason}){cure}") from None
        finally:
            os.dup2(saved, STDERR)
            os.close(saved)
        try:
            if not is_this_machine(spark.sparkContext.master):
                (check_executors if spark.conf.get(SHIPS, "true") == "false" else ship)(spark)
            yield spark
        finally:
            spark.stop()


@contextmanager
def _told_of_a_wait(master: str | None, stderr: int) -> Iterator[None]:
    """Print a notice when a cluster does not start the session: Spark tries to connect for minutes, and waits in queues
    for ever."""
    if master is None or is_this_machine(master):
        yield
        return
    text = f"{master}: Spark has not started for {WAIT_SECONDS} s; does the cluster answer, and has its queue room?"
    waiting = threading.Timer(WAIT_SECONDS, os.write, [stderr, f"{text} Still waiting\n".encode()])
    waiting.daemon = True
    waiting.start()
    try:
        yield
    finally:
        waiting.cancel()
        waiting.join()


def parse_conf(pairs: Sequence[str]) -> dict[str, str]:
    """Spark settings from spark.name=value texts."""
    split = [pair.partition("=") for pair in pairs]
    for name, equals, _ in split:
        if not equals or not name.startswith("spark."):
            raise UsageError(f"--conf: expected spark.name=value, found {name!r}")
    return {name: value for name, _, value in split}


def write_rows(
    opened: OpenIndex,
    keys: KeyFile,
    request: LoadRequest,
    target: Path,
    session: tuple[str | None, Sequence[str] | None],
    progress: Progress,
) -> tuple[int, LoadCounters]:
    """Write the rows for the keys of a file as Parquet, with Spark. `session` has the master and the settings. Returns
    the number of rows and the counts of the load."""
    with spark_session(*session) as spark:
        counters = JobCounters()
        rows = load_keyed(opened, keys_of_file(spark, keys, opened.spec), request, counters)
        with spark_stage(Stages(progress), spark, "fetch"):
            count = write_files(rows, target)
        return count, counters.value
