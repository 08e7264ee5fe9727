"""A Spark session for a command."""

import logging
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from indexer.session import local_session
from shadow import ShadowError

STDERR = 2
THROWN = re.compile(r"\w(?:Exception|Error): ")
JAVA_TOO_OLD = "UnsupportedClassVersionError"
QUERY_LOG = "DataFrameQueryContextLogger"


class NoSpark(ShadowError):
    """Spark could not be started."""


@contextmanager
def spark_session(master: str | None = None) -> Iterator[SparkSession]:
    """The active session, or a new one that is stopped at the end. What Java prints while it starts is shown only when
    it fails: the JVM inherits the stderr there is when it is started."""
    active = SparkSession.getActiveSession()
    if active is not None:
        yield active
        return
    logging.getLogger(QUERY_LOG).disabled = True  # it prints each failed query as JSON; the exception tells it, too
    with tempfile.TemporaryFile() as chatter:
        sys.stderr.flush()
        saved = os.dup(STDERR)
        os.dup2(chatter.fileno(), STDERR)
        try:
            spark = local_session(master)
        except (PySparkRuntimeError, OSError) as error:
            chatter.seek(0)
            lines = [line for line in chatter.read().decode(errors="replace").splitlines() if line.strip()]
            said = [line for line in lines if THROWN.search(line)]
            reason = (said or lines or [str(error)])[0].strip()
            cure = "" if said and JAVA_TOO_OLD not in reason else "; it needs Java 17, Debian: openjdk-17-jre-headless"
            raise NoSpark(f"Spark did not start ({reason}){cure}") from None
        finally:
            os.dup2(saved, STDERR)
            os.close(saved)
        try:
            yield spark
        finally:
            spark.stop()
