"""gnomon diff, unique and orphans: the keys of indexes as sets, without a read of their sources."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import typer

from gnomon.commands.exit_codes import FOUND, NOT_FOUND
from gnomon.commands.get import csv_writer
from gnomon.commands.output import IndexFolder, Json, say
from gnomon.jobs.load import new_file, whole_file, write_parquet
from gnomon.shadow import UsageError, to_json
from gnomon.shadow.key_sets import CHANGED, ROWS, SIDE, KeySet
from gnomon.shadow.key_sets import diff as diff_of
from gnomon.shadow.key_sets import orphans as orphans_of
from gnomon.shadow.key_sets import unique as unique_of

app = typer.Typer(pretty_exceptions_enable=False, add_completion=False, rich_markup_mode=None)
PARQUET, CSV, JSON_LINES = ".parquet", ".csv", ".jsonl"
Limit = Annotated[int, typer.Option(min=0, help="The most keys to show; all are counted.")]
Out = Annotated[
    str | None, typer.Option(help="Write all that was found to a new file: .parquet, .csv or .jsonl by its name.")
]


@app.command("diff")
def diff(
    first: IndexFolder,
    second: IndexFolder,
    included: Annotated[
        bool, typer.Option("--included", help="Also compare the included columns of the keys that both have.")
    ] = False,
    limit: Limit = 20,
    out: Out = None,
    json: Json = False,
) -> int:
    """Show the keys that one of two indexes has and the other has not. Exit code 1 if there are any."""
    return _show(diff_of(first, second, included), limit, out, json)


@app.command("unique")
def unique(index: IndexFolder, limit: Limit = 20, out: Out = None, json: Json = False) -> int:
    """Show the keys that have several rows. Exit code 1 if there are any. Keys with a null are counted apart."""
    return _show(unique_of(index), limit, out, json)


@app.command("orphans")
def orphans(
    child: IndexFolder,
    parent: IndexFolder,
    columns: Annotated[
        str | None,
        typer.Option(help="The child's columns that refer to the parent's key, separated by commas; default its key."),
    ] = None,
    limit: Limit = 20,
    out: Out = None,
    json: Json = False,
) -> int:
    """Show the keys of an index that another index has not. Exit code 1 if there are any. A key with a null is no
    orphan."""
    return _show(orphans_of(child, parent, columns.split(",") if columns is not None else None), limit, out, json)


def _show(found: KeySet, limit: int, out: str | None, json: bool) -> int:
    shown: list[dict[str, Any]] = []

    def tables() -> Iterator[pa.Table]:
        for table in found:
            shown.extend(_rows(found, table.slice(0, limit - len(shown))))
            yield table

    if out is None:
        for _ in tables():
            pass
    else:
        _write(found, tables(), out)
    if json:
        say(
            to_json(
                {"snapshots": found.snapshots, "counts": found.counts, "shown": [_shown(found, row) for row in shown]}
            )
        )
    else:
        for row in shown:
            one = _shown(found, row)
            side = f"{one['side']} changed" if one.get("changed") else one["side"]
            more = [to_json(one["included"])] if "included" in one else []
            say("\t".join([side, str(one["rows"]), to_json(one["key"]), *more]))
        numbers = ", ".join(f"{name} {count:,}" for name, count in found.counts.items())
        say(f"snapshot {' and '.join(map(str, found.snapshots))}: {numbers}")
    return NOT_FOUND if found.found else FOUND


def _rows(found: KeySet, table: pa.Table) -> list[dict[str, Any]]:
    """The rows of a table, with values as rows of the source show them."""
    names = found.schema.names
    own = len(found.keys) + len(found.included or ())
    more = zip(*(table.column(name).to_pylist() for name in names[own:]), strict=True)
    return [dict(zip(names, (*one, *rest), strict=True)) for one, rest in zip(found.shown(table), more, strict=True)]


def _shown(found: KeySet, row: dict[str, Any]) -> dict[str, Any]:
    one = {"key": [row[name] for name in found.keys], "side": row[SIDE], "rows": row[ROWS]}
    if found.included is not None:
        one |= {"included": {name: row[name] for name in found.included}, "changed": row[CHANGED]}
    return one


def _write(found: KeySet, tables: Iterator[pa.Table], out: str) -> None:
    """Write all tables to a file, which appears when it is complete."""
    form = Path(out).suffix
    if form not in (PARQUET, CSV, JSON_LINES):
        raise UsageError("out: expected a name that ends in .parquet, .csv or .jsonl", out)
    target = new_file(out)
    with whole_file(target) as staged:
        if form == PARQUET:
            batches = (batch for table in tables for batch in table.to_batches())
            write_parquet(pa.RecordBatchReader.from_batches(found.schema, batches), staged)
            return
        with staged.open("w", encoding="utf-8", newline="") as file:
            write = csv_writer(found.schema.names, file) if form == CSV else lambda row: file.write(f"{to_json(row)}\n")
            for table in tables:
                for row in _rows(found, table):
                    write(row)
