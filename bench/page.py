"""Results as Markdown: the common format of figures, the description of the machine, and the insertion into
docs/benchmarks.md."""

import os
import platform
import sqlite3
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from gnomon.commands.output import megabytes

DOCS = Path(__file__).parent.parent / "docs" / "benchmarks.md"


def markers(bench: str) -> tuple[str, str]:
    """The lines before and after the result of a benchmark."""
    return f"<!-- {bench}: begin -->", f"<!-- {bench}: end -->"


def about(command: str, libraries: Sequence[str]) -> str:
    """The run in words: command, date, machine, versions."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    versions = [f"Python {platform.python_version()}", f"SQLite {sqlite3.sqlite_version}"]
    versions += [f"{name} {version(name)}" for name in libraries]
    lines = [
        f"    {command}",
        "",
        f"{datetime.now(UTC):%Y-%m-%d}; {os.cpu_count()} cores, {megabytes(memory)} of memory, local disk, "
        f"{platform.system()} {platform.machine()}; load when measuring began: {os.getloadavg()[0]:.1f}.",
        f"{', '.join(versions)}.",
        "",
    ]
    return "\n".join(lines)


def row(cells: Sequence[str]) -> str:
    """A line of a table."""
    return f"| {' | '.join(cells)} |"


def head(cells: Sequence[str]) -> list[str]:
    """The first lines of a table whose first column is text and all others are figures."""
    return [row(cells), row(["---", *["---:"] * (len(cells) - 1)])]


def digits(number: float) -> str:
    """Three digits, or all before the point."""
    return f"{number:,.{2 if number < 10 else 1 if number < 100 else 0}f}"


def insert(bench: str, result: str, page: str) -> str:
    """The page with the result of a benchmark between its markers."""
    first, last = markers(bench)
    before, begin, rest = page.partition(first)
    _, end, after = rest.partition(last)
    if not begin or not end:
        raise ValueError(f"the page has no {first} with {last} after it")
    return f"{before}{begin}\n\n{result}\n{end}{after}"
