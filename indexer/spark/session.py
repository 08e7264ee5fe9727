"""A Spark session for programs that have none, the progress of its jobs, and separate plans for each scan of a Python
source: filters may prune only if each scan reads by its own filters. Spark 4.1 to 4.3 do not ensure that, so an
optimizer rule does, which the driver compiles with the compiler that Spark includes (`OwnScans.java`)."""

import logging
import os
import re
import secrets
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.resources import as_file, files
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession

from gnomon.indexer.spark.tasks import Py4JError, context_of
from gnomon.indexer.spark.versions import HAS_PUSHDOWN
from gnomon.jobs import TASKS, Progress, Stages, Step

if TYPE_CHECKING:
    from pyspark import SparkContext  # which a client of Spark Connect does not have

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
    from pyspark import SparkContext

    known = SparkContext.getOrCreate().getConf()
    builder = SparkSession.builder
    for key, value in {**{key: value for key, value in SETTINGS.items() if not known.contains(key)}, **conf}.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def is_this_machine(master: str) -> bool:
    """Whether tasks run in the driver's own process; `local-cluster` is a cluster."""
    return re.fullmatch(r"local(\[.*\])?", master) is not None


POLL_SECONDS = 0.2
SCAN = "scan"
THREAD = "gnomon-progress"
OURS = "gnomon "  # begins the description of our jobs in Spark's UI
JOB_GROUP, JOB_DESCRIPTION, JOB_CANCEL = "spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel"


@contextmanager
def spark_stage(
    stages: Stages, spark: SparkSession, name: str, rows: int = 0, is_about: bool = False
) -> Iterator[None]:
    """Run the block as a stage of a job whose tasks Spark runs, and counts."""
    stage = Step(name, rows=rows, is_about=is_about)
    with (
        stages.stage(name, rows=rows, is_about=is_about),
        named_jobs(spark, name),
        watched(spark, stage, stages.progress),
    ):
        yield


@contextmanager
def named_jobs(spark: SparkSession, name: str) -> Iterator[None]:
    """Describe Spark's jobs of the block in Spark's UI: by `name`, behind the name of a block of ours around it. A
    server of Spark Connect describes them itself."""
    context = context_of(spark)
    if context is None:
        yield
        return
    around = context.getLocalProperty(JOB_DESCRIPTION)
    ours = around is not None and around.startswith(OURS)
    context.setJobDescription(f"{around}: {name}" if ours else name if name.startswith(OURS) else OURS + name)
    try:
        yield
    finally:
        context.setLocalProperty(JOB_DESCRIPTION, around)


@contextmanager
def watched(spark: SparkSession, stage: Step, progress: Progress | None) -> Iterator[None]:
    """Call `progress` with the tasks of each Spark stage during the block: stages after the last shuffle as `stage`,
    others as `scan`. The polling thread ends with the block."""
    if progress is None:
        yield
        return
    context, group = context_of(spark), f"gnomon-{secrets.token_hex(6)}"
    if context is None:
        with _heard(spark, stage, progress):
            yield
        return
    before = {key: context.getLocalProperty(key) for key in (JOB_GROUP, JOB_DESCRIPTION, JOB_CANCEL)}
    context.setJobGroup(group, before[JOB_DESCRIPTION] or OURS + stage.stage)
    done = threading.Event()
    thread = threading.Thread(target=_watch, args=(context, group, stage, progress, done), name=THREAD)
    thread.daemon = True
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        for key, value in before.items():
            context.setLocalProperty(key, value)


@contextmanager
def _heard(spark: Any, stage: Step, progress: Progress) -> Iterator[None]:
    """Call `progress` with the tasks that a server of Spark Connect tells."""

    def heard(stages: Any, inflight_tasks: int, operation_id: str | None, done: bool) -> None:
        total, completed = (sum(getattr(one, name) for one in stages) for name in ("num_tasks", "num_completed_tasks"))
        if total and not done:
            progress(stage._replace(done=completed, total=total, unit=TASKS))

    spark.registerProgressHandler(heard)
    try:
        yield
    finally:
        spark.removeProgressHandler(heard)


def _watch(context: "SparkContext", group: str, stage: Step, progress: Progress, done: threading.Event) -> None:
    last = None
    while not done.wait(POLL_SECONDS):
        step = tasks_of(context, group, stage)
        if step is not None and step != last:
            progress(step)
            last = step


def tasks_of(context: "SparkContext", group: str, stage: Step) -> Step | None:
    """The running tasks of a job group: after a shuffle as the stage, before it as a scan. None without tasks."""
    tracker = context.statusTracker()
    for job in sorted(tracker.getJobIdsForGroup(group), reverse=True):
        info = tracker.getJobInfo(job)
        stages = sorted(info.stageIds, reverse=True) if info is not None else []
        for place, number in enumerate(stages):
            found = tracker.getStageInfo(number)
            if found is not None and found.numActiveTasks:
                name = stage.stage if place == 0 and len(stages) > 1 else SCAN
                done, total = found.numCompletedTasks, found.numTasks
                return stage._replace(stage=name, done=done, total=total, unit=TASKS)
    return None


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
