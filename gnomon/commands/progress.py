"""Progress of a job on stderr: on a terminal one line that is updated, elsewhere a line for each stage that begins."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars

from gnomon.commands.output import complain, counted
from gnomon.jobs import TASKS, Progress, Step

REFRESHES = 4  # per second
STARTING, STARTING_SPARK = "start", "start Spark"  # before the first stage of a job


@contextmanager
def shown_progress(starts_spark: bool = False) -> Iterator[Progress]:
    """Yield the function that shows the steps of a job. `starts_spark`: Spark starts before the first one. The line on
    a terminal is removed at the end."""
    if not sys.stderr.isatty():
        yield _plain_lines()
        return
    # A duplicate descriptor, since stderr is redirected while Spark starts.
    with os.fdopen(os.dup(sys.stderr.fileno()), "w") as terminal:
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[count]}"),
            TimeElapsedColumn(),
        )
        console = Console(file=terminal, stderr=True)
        with Bars(
            *columns,
            console=console,
            transient=True,
            refresh_per_second=REFRESHES,
            redirect_stdout=False,
            redirect_stderr=False,
        ) as bars:
            line = bars.add_task(STARTING_SPARK if starts_spark else STARTING, total=None, count="")

            def tell(step: Step) -> None:
                counts = [f"{step.done:,} of {step.total:,} {step.unit}"] if step.total else []
                count = ", ".join(counts + _rows(step))
                bars.update(line, description=step.stage, completed=step.done, total=step.total or None, count=count)

            yield tell


def _plain_lines() -> Progress:
    """Print one line when a stage begins, without the progress of its tasks."""
    begun: set[str] = set()

    def tell(step: Step) -> None:
        if step.unit == TASKS or step.stage in begun:
            return
        begun.add(step.stage)
        counts = [counted(step.total, step.unit.removesuffix("s"))] if step.total else []
        with suppress(OSError):  # a job must not fail because its stderr is closed
            complain(": ".join([step.stage, *filter(None, [", ".join(counts + _rows(step))])]))

    return tell


def _rows(step: Step) -> list[str]:
    return [("about " if step.is_about else "") + counted(step.rows, "row")] if step.rows else []
