"""The progress of the tasks of a running job."""

import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark import SparkContext
from pyspark.sql import SparkSession

from gnomon.jobs import TASKS, Progress, Stages, Step

POLL_SECONDS = 0.2
SCAN = "scan"
THREAD = "gnomon-progress"
JOB_GROUP, JOB_DESCRIPTION, JOB_CANCEL = "spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel"


@contextmanager
def spark_stage(
    stages: Stages, spark: SparkSession, name: str, rows: int = 0, is_about: bool = False
) -> Iterator[None]:
    """Run the block as a stage of a job whose tasks Spark runs, and counts."""
    stage = Step(name, rows=rows, is_about=is_about)
    with stages.stage(name, rows=rows, is_about=is_about), watched(spark, stage, stages.progress):
        yield


@contextmanager
def watched(spark: SparkSession, stage: Step, progress: Progress | None) -> Iterator[None]:
    """Call `progress` with the tasks of each Spark stage during the block: stages after the last shuffle as `stage`,
    others as `scan`. The polling thread ends with the block."""
    if progress is None:
        yield
        return
    context, group = spark.sparkContext, f"gnomon-{secrets.token_hex(6)}"
    before = {key: context.getLocalProperty(key) for key in (JOB_GROUP, JOB_DESCRIPTION, JOB_CANCEL)}
    context.setJobGroup(group, f"gnomon {stage.stage}")
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


def _watch(context: SparkContext, group: str, stage: Step, progress: Progress, done: threading.Event) -> None:
    last = None
    while not done.wait(POLL_SECONDS):
        step = tasks_of(context, group, stage)
        if step is not None and step != last:
            progress(step)
            last = step


def tasks_of(context: SparkContext, group: str, stage: Step) -> Step | None:
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
