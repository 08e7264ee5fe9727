"""The progress of a running job, and the duration of each stage."""

import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from pyspark import SparkContext
from pyspark.sql import SparkSession

POLL_SECONDS = 0.2
SCAN = "scan"
TASKS = "tasks"  # the unit of steps during a Spark stage
THREAD = "gnomon-progress"
JOB_GROUP, JOB_DESCRIPTION, JOB_CANCEL = "spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel"


class Step(NamedTuple):
    """A stage and its progress: `done` of `total` `unit`s, 0 of 0 where unknown; the rows of the job, where known;
    `is_about` where their number is an estimate."""

    stage: str
    done: int = 0
    total: int = 0
    unit: str = ""
    rows: int = 0
    is_about: bool = False


# Called with each step, maybe from another thread. It should return at once.
Progress = Callable[[Step], None]


class Stages:
    """The stages of a job. `progress` is called when a stage begins; `seconds` has the duration of each."""

    def __init__(self, progress: Progress | None = None) -> None:
        self._progress = progress
        self.seconds: dict[str, float] = {}

    @contextmanager
    def stage(self, name: str, total: int = 0, unit: str = "", rows: int = 0, is_about: bool = False) -> Iterator[None]:
        """Run the block as a stage. A stage with the name of an earlier one adds to its seconds."""
        begin = time.perf_counter()
        if self._progress is not None:
            self._progress(Step(name, 0, total, unit, rows, is_about))
        try:
            yield
        finally:
            self.seconds[name] = round(self.seconds.get(name, 0.0) + time.perf_counter() - begin, 3)

    @contextmanager
    def tasks(self, spark: SparkSession, name: str, rows: int = 0, is_about: bool = False) -> Iterator[None]:
        """Run the block as a stage of Spark, whose tasks are counted."""
        stage = Step(name, rows=rows, is_about=is_about)
        with self.stage(name, rows=rows, is_about=is_about), watched(spark, stage, self._progress):
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
