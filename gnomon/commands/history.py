"""gnomon history: the snapshots of an index."""

from typing import Annotated

import typer

from gnomon.commands.exit_codes import FAILED, FOUND
from gnomon.commands.output import IndexFolder, complain, print_json, say
from gnomon.shadow.maintenance import Record
from gnomon.shadow.maintenance import history as read_history
from gnomon.shadow.storage import storage_at

PLURALS = ("segments", "rows", "files")  # in the names of counts
app = typer.Typer(pretty_exceptions_enable=False, add_completion=False, rich_markup_mode=None)


@app.command()
def history(
    index: IndexFolder,
    json: Annotated[bool, typer.Option("--json", help="Print each snapshot as a JSON line.")] = False,
) -> int:
    """Show the kept snapshots, the newest last; gnomon get --snapshot reads one of them."""
    records = read_history(storage_at(index))
    if not json:
        say("snapshot  committed                    operation        rows  segments  buckets  what")
    for record in records:
        if json:
            print_json(record.to_json())
        elif record.error:
            complain(record.error)
        else:
            say(as_text(record))
    return FAILED if any(record.error for record in records) else FOUND


def as_text(record: Record) -> str:
    """A snapshot on one line."""
    counts = [f"{count:,} {_words(name, count)}" for name, count in record.counts.items() if count]
    version = [f"table version {record.table_version}"] if record.table_version is not None else []
    what = ", ".join([f"batch {record.batch}"] * (record.batch is not None) + version + counts)
    line = (
        f"{record.snapshot:>8}  {record.committed_at:<27}  {record.operation:<9}  {record.rows:>10,}  "
        f"{record.segments:>8}  {record.buckets:>7}  {what}"
    )
    return line.rstrip()


def _words(name: str, count: int) -> str:
    """Return the words for a count: "1 segment replaced", "2 segments replaced"."""
    words = name.split("_")
    return " ".join(word[:-1] if count == 1 and word in PLURALS else word for word in words)
