"""Results of workloads: figures as Markdown, the description of a run, and its tables in bench/results.

`bench/results/NAME.json` has the runs of the workload `bench.NAME`, the newest first. `report` makes the page of them.
"""

import json
import os
import platform
import re
import sqlite3
import subprocess
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from gnomon.commands.output import megabytes, say

RESULTS = Path(__file__).parent / "results"
TITLE = re.compile(r"\*\*([^*]+)\*\*")  # a line, or the only cell of a row
PYTHON = ".venv/bin/python"

RecordOption = Annotated[bool, typer.Option("--record", help="Add the result to bench/results.")]


class Table(NamedTuple):
    """A table of a result. Each row has one text for each column; the title says which part of the result it is."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


class Report:
    """A run of a workload: its command, the machine, and what it measured so far. It is made before the measurement,
    so that the load of the machine is that of other programs."""

    def __init__(
        self, bench: str, libraries: Sequence[str], parameters: Mapping[str, Any], command: str | None = None
    ) -> None:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        self.workload = bench.removeprefix("bench.")
        self.parameters = dict(parameters)
        self.command = command or " ".join([PYTHON, "-m", bench, *_options(parameters)])
        self.date = f"{datetime.now(UTC):%Y-%m-%d}"
        self.machine = f"{os.cpu_count()} cores, {megabytes(memory)} of memory, local disk, "
        self.machine += f"{platform.system()} {platform.machine()}"
        self.load = round(os.getloadavg()[0], 1)
        self.versions = {"Python": platform.python_version(), "SQLite": sqlite3.sqlite_version}
        self.versions |= {name: version(name) for name in libraries}
        self.results: list[str] = []
        versions = ", ".join(f"{name} {number}" for name, number in self.versions.items())
        say(f"{self.command}\n{self.date}; {self.machine}; load when measuring began: {self.load}.\n{versions}.\n")

    def say(self, result: str) -> None:
        """Print lines of the result."""
        say(result)
        self.results.append(result)

    def record(self, wanted: bool = True, folder: Path = RESULTS) -> None:
        """Put this run before the earlier ones of its workload, if that is wanted."""
        if not wanted:
            return
        head = ["git", "-C", str(RESULTS.parent), "rev-parse", "--short", "HEAD"]
        commit = subprocess.run(head, capture_output=True, text=True, check=True).stdout.strip()
        facts = {name: getattr(self, name) for name in ("date", "machine", "load", "versions", "command", "parameters")}
        tables = [table._asdict() for table in tables_of("\n".join(self.results))]
        path = folder / f"{self.workload}.json"
        earlier = json.loads(path.read_text())["runs"] if path.exists() else []
        write_runs(path, [{"commit": commit, **facts, "tables": tables}, *earlier])
        say(f"added to {path}; `make bench-report` writes the page")


def _options(parameters: Mapping[str, Any]) -> list[str]:
    """The options of a command line. A list is an option for each value; False, None and "" are none."""
    options = []
    for name, value in parameters.items():
        flag = f"--{name.replace('_', '-')}"
        values = value if isinstance(value, list | tuple) else [value]
        options += [flag if one is True else f"{flag} {one}" for one in values if one not in (None, False, "")]
    return options


def write_runs(path: Path, runs: Sequence[Mapping[str, Any]]) -> None:
    """Write the runs of a workload, the newest first, with a line for each row of a table."""
    path.write_text(f"{_json({'workload': path.stem, 'runs': runs})}\n")


def _json(value: Any, margin: str = "") -> str:
    inner = f"{margin} "
    if isinstance(value, Mapping) and value:
        lines = [f"{json.dumps(key, ensure_ascii=False)}: {_json(one, inner)}" for key, one in value.items()]
        return "{\n" + ",\n".join(inner + line for line in lines) + f"\n{margin}}}"
    if isinstance(value, list) and any(isinstance(one, list | Mapping) for one in value):
        return "[\n" + ",\n".join(inner + _json(one, inner) for one in value) + f"\n{margin}]"
    return json.dumps(value, ensure_ascii=False)


def tables_of(result: str) -> list[Table]:
    """The tables of a result in Markdown. A line in bold, a line that ends with a colon, and a row whose only cell is
    in bold are titles of what follows. An empty first cell repeats that of the row above."""
    tables: list[Table] = []
    section = caption = ""
    columns: list[str] = []
    for line in result.splitlines():
        if not line.startswith("|"):
            caption = line.removesuffix(":") if line.endswith(":") else "" if columns else caption
            section, columns = (bold[1] if (bold := TITLE.fullmatch(line.strip())) else section), []
            continue
        cells = [cell.strip() for cell in line.strip().removeprefix("|").removesuffix("|").split("|")]
        group = TITLE.fullmatch(cells[0]) if not any(cells[1:]) else None
        if not columns:
            columns = cells
        elif group or (cells[0] and set(cells[0]) <= {"-", ":"}):
            titles = [section, caption, group[1] if group else ""]
            tables.append(Table(": ".join(filter(None, titles)), columns, []))
        else:
            rows = tables[-1].rows
            cells[0] = cells[0].strip("*") or rows[-1][0]
            rows.append([cells[0], *(cell.strip("*") for cell in cells[1:])])  # type: ignore[attr-defined]
    return [table for table in tables if table.rows]


def row(cells: Sequence[str]) -> str:
    """A line of a table."""
    return f"| {' | '.join(cells)} |"


def head(cells: Sequence[str]) -> list[str]:
    """The first lines of a table whose first column is text and all others are figures."""
    return [row(cells), row(["---", *["---:"] * (len(cells) - 1)])]


def digits(number: float) -> str:
    """Three digits, or all before the point."""
    return f"{number:,.{2 if number < 10 else 1 if number < 100 else 0}f}"
