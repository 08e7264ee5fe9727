"""The stages of a job: their progress, and the duration of each."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

TASKS = "tasks"  # the unit of steps during a stage of Spark


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
        self.progress = progress
        self.seconds: dict[str, float] = {}

    @contextmanager
    def stage(self, name: str, total: int = 0, unit: str = "", rows: int = 0, is_about: bool = False) -> Iterator[None]:
        """Run the block as a stage. A stage with the name of an earlier one adds to its seconds."""
        begin = time.perf_counter()
        self.tell(Step(name, 0, total, unit, rows, is_about))
        try:
            yield
        finally:
            self.seconds[name] = round(self.seconds.get(name, 0.0) + time.perf_counter() - begin, 3)

    def tell(self, step: Step) -> None:
        """Call `progress` with a step of the running stage."""
        if self.progress is not None:
            self.progress(step)
