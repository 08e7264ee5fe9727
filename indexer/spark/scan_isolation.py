"""Separate plans for each scan of a Python source; `OwnScans.java` has the details.

Filters may prune only if each scan reads by its own filters. Spark 4.1 to 4.3 do not ensure that, so an optimizer rule
does. The driver compiles it with the compiler that Spark includes for its generated code.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from gnomon.indexer.spark.versions import HAS_PUSHDOWN

RULE = "gnomon.spark.OwnScans"
SOURCE = "OwnScans.java"
SHARING = "org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2"
REMEMBERS = "setReadInfo"  # the method by which scans that share an object overwrite each other's plan

_log = logging.getLogger(__name__)


def keep_scans_apart(spark: SparkSession, name: str) -> bool:
    """Make each scan of this source read by its own filters in this session. Returns whether that was possible."""
    if not HAS_PUSHDOWN:
        return False
    jvm: Any = getattr(spark, "_jvm", None)
    if jvm is None:
        _log.warning("filters will not prune: Spark's driver is out of reach from here")
        return False
    try:
        methods = jvm.java.lang.Class.forName(SHARING).getMethods()
        if not any(method.getName() == REMEMBERS for method in methods):
            return True
        experimental = spark._jsparkSession.experimental()
        rules = experimental.extraOptimizations()
        if f"{RULE}({name})" not in rules.mkString("\n").split("\n"):
            getattr(experimental, "extraOptimizations_$eq")(rules.appended(_rule(spark, name)))
        return True
    except Py4JError as error:
        why = " ".join(str(error).split("\n")[:2])
        _log.warning("filters will not prune: the rule that plans each scan by itself cannot be made (%s)", why)
        return False


@contextmanager
def made_active(spark: SparkSession) -> Iterator[None]:
    """Make a session the active one for a block. Spark refuses a source name that the active session has, even for
    another session."""
    jvm: Any = getattr(spark, "_jvm", None)
    if jvm is None:
        yield
        return
    sessions = jvm.org.apache.spark.sql.classic.SparkSession
    before = sessions.getActiveSession()
    sessions.setActiveSession(spark._jsparkSession)
    try:
        yield
    finally:
        if before.isDefined():
            sessions.setActiveSession(before.get())
        else:
            sessions.clearActiveSession()


def _rule(spark: SparkSession, name: str) -> Any:
    jvm: Any = spark._jvm
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(jvm.java.lang.Thread.currentThread().getContextClassLoader())
    compiler.cook(files("gnomon.indexer.spark").joinpath(SOURCE).read_text("utf-8"))
    arguments = spark.sparkContext._gateway.new_array(jvm.java.lang.Object, 1)
    arguments[0] = name
    return compiler.getClassLoader().loadClass(RULE).getConstructors()[0].newInstance(arguments)
