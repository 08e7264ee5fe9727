"""gnomon get: rows by key, without Spark."""

import json
from typing import Annotated

import typer

from gnomon.exit_codes import FOUND, NOT_FOUND
from gnomon.failures import exit_code, one_line
from gnomon.output import complain, say
from shadow import FetchStats, Index, ShadowError, Trace, UsageError, open_index, to_json
from shadow.errors import BTreeError, SourceError

app = typer.Typer(pretty_exceptions_enable=False, add_completion=False, rich_markup_mode=None)


@app.command()
def get(
    index: Annotated[str, typer.Argument(help="The index folder.")],
    key: Annotated[
        list[str],
        typer.Argument(help="Keys; one of several columns as a JSON object. Write -- before one that begins with -."),
    ],
    where: Annotated[
        list[str] | None,
        typer.Option(help="Only this partition: dt=2026-01-01. Repeatable; of several values of a column any counts."),
    ] = None,
    columns: Annotated[str | None, typer.Option(help="Columns to print, with commas between; default all.")] = None,
    snapshot: Annotated[int | None, typer.Option(help="Answer from this snapshot, not the newest.")] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="What each key cost, and each step, as JSON lines on stderr.")
    ] = False,
) -> int:
    """Print each row of the keys as a JSON line. Exit code 1 when a key has no row; the others are printed."""
    opened = open_index(index, snapshot)
    conditions = parse_where(where or [])
    names = columns.split(",") if columns else None
    keys = [parse_key_argument(text, opened) for text in key]
    opened.check(keys, names, conditions)
    code = FOUND
    for text, parsed in zip(key, keys, strict=True):
        stats = FetchStats(trace=Trace() if explain else None)
        try:
            rows = opened.fetch(parsed, names, conditions, stats)
        except (ShadowError, BTreeError, SourceError, OSError) as error:
            complain(one_line(error))
            code = exit_code(error)
            continue
        for row in rows:
            say(to_json(row))
        if not rows:
            view, what = opened.view, ""
            if not view.spec.holds_values:
                what = f" in {view.source_files:,} files of {view.spec.source}"
            covers = f"snapshot {view.snapshot.number} covers {view.snapshot.rows:,} rows{what}"
            if conditions:
                asked = sum(view.snapshot.partitions[name] for name in opened.partitions_asked(parsed, conditions))
                covers += f"; only the {asked:,} rows where {', '.join(where or [])} were asked"
            complain(f"not found: {text} ({covers})")
            code = max(code, NOT_FOUND)
        if explain:
            typer.echo(to_json({"key": text, **stats.to_json()}), err=True)
    return code


def parse_where(conditions: list[str]) -> dict[str, list[str]]:
    """Partition conditions given as column=value: the values of each column."""
    where: dict[str, list[str]] = {}
    for condition in conditions:
        column, equals, value = condition.partition("=")
        if not equals:
            raise UsageError(f"--where: expected column=value, found {column!r}")
        where.setdefault(column, []).append(value)
    return where


def parse_key_argument(text: str, index: Index) -> object:
    """A key as it is typed: the value itself, or a JSON object where the key has several columns."""
    if len(index.spec.keys) == 1:
        return text
    names = ", ".join(column.name for column in index.spec.keys)
    try:
        key = json.loads(text)
    except ValueError:
        key = None
    if not isinstance(key, dict):
        raise UsageError(f"the key has the columns {names}: expected a JSON object, found {text!r}")
    return key
