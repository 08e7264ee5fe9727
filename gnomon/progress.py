"""Progress of a job on a terminal. Elsewhere nothing is shown: results are on stdout, and errors on stderr."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars

from indexer.progress import Progress, Step

REFRESHES = 4  # a second
STARTING = Step("start Spark")


@contextmanager
def shown_progress() -> Iterator[Progress | None]:
    """What to tell steps to while a job runs; None where stderr is no terminal. The line is gone at the end."""
    if not sys.stderr.isatty():
        yield None
        return
    # A descriptor of our own: that of stderr leads elsewhere while Spark starts.
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
            line = bars.add_task(STARTING.stage, total=None, count="")

            def tell(step: Step) -> None:
                counts = [f"{step.done:,} of {step.total:,} {step.unit}"] if step.total else []
                count = ", ".join(counts + [f"{step.rows:,} rows"] * (step.rows > 0))
                bars.update(line, description=step.stage, completed=step.done, total=step.total or None, count=count)

            yield tell
