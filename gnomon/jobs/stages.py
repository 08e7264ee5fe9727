"""The stages of a job: their progress, the duration of each, and their spans of OpenTelemetry."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

TASKS = "tasks"  # the unit of steps during a stage of Spark
_API = "opentelemetry.trace"


class Step(NamedTuple):
    """A stage and its progress: `done` of `total`, counted in `unit`; both are 0 if unknown. `rows` is the number of
    rows of the job, 0 if unknown; `is_about` says that this number is an estimate."""

    stage: str
    done: int = 0
    total: int = 0
    unit: str = ""
    rows: int = 0
    is_about: bool = False


# Called with each step, maybe from another thread. It should return at once.
Progress = Callable[[Step], None]


class Span:
    """A span of a job or of a stage. It does nothing if the program does not trace."""

    def __init__(self, span: Any) -> None:
        self._span = span

    def tell(self, **counts: int) -> None:
        """Set the counts as attributes."""
        if self._span is not None:
            self._span.set_attributes({f"gnomon.{name}": count for name, count in counts.items()})


@contextmanager
def job_span(job: str, index: str) -> Iterator[Span]:
    """Run the block as a job, with a span that has the last part of the index's path: `gnomon build`."""
    with _spanned(f"gnomon {job}", {"gnomon.index": index.rstrip("/").rpartition("/")[2]}) as span:
        yield span


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
        counts = {unit: total, "rows": 0 if is_about else rows}
        try:
            with _spanned(name, {f"gnomon.{what}": count for what, count in counts.items() if count}):
                yield
        finally:
            self.seconds[name] = round(self.seconds.get(name, 0.0) + time.perf_counter() - begin, 3)

    def tell(self, step: Step) -> None:
        """Call `progress` with a step of the running stage."""
        if self.progress is not None:
            self.progress(step)


@contextmanager
def _spanned(name: str, attributes: dict[str, Any]) -> Iterator[Span]:
    """Run the block in a span. Only the class of an error is recorded, since its text may have a key.

    A program that traces has loaded the API of OpenTelemetry. Other programs do not need it."""
    trace: Any = sys.modules.get(_API)
    if trace is None:
        yield Span(None)
        return
    with trace.get_tracer("gnomon.jobs").start_as_current_span(
        name, attributes=attributes, record_exception=False, set_status_on_exception=False
    ) as span:
        try:
            yield Span(span)
        except BaseException as error:
            span.set_attribute("error.type", type(error).__name__)
            span.set_status(trace.StatusCode.ERROR)
            raise
