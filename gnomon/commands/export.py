"""gnomon export: the entries of an index in the layout of another format."""

import os
from dataclasses import asdict
from typing import Annotated

import typer

from gnomon.commands.options import IndexFolder, Json
from gnomon.commands.output import counted, print_json, say
from gnomon.shadow import UsageError
from gnomon.shadow.maintenance import DRAFT, export_iceberg_index
from gnomon.shadow.metadata import open_view
from gnomon.shadow.storage import is_local, storage_at

app = typer.Typer(pretty_exceptions_enable=False, add_completion=False, rich_markup_mode=None)


@app.command()
def export(
    index: IndexFolder,
    folder: Annotated[str, typer.Argument(help="The folder to write, which must not exist.")],
    iceberg_index: Annotated[
        bool, typer.Option("--iceberg-index", help="Write the layout of the draft Iceberg index.")
    ] = False,
    buckets: Annotated[int, typer.Option(min=1, max=2**31 - 1, help="N of the ordering by bucket(N, key).")] = 256,
    json: Json = False,
) -> None:
    """Write the live entries of an index of a Delta or Iceberg table for other readers. The layout follows a draft, and
    may change."""
    if not iceberg_index:
        raise UsageError("export: expected --iceberg-index, the only layout")
    storage, out = storage_at(index), storage_at(folder)
    if is_local(out.root) and os.path.lexists(out.root):
        raise UsageError("the folder exists; name a new one", folder)
    exported = export_iceberg_index(storage, open_view(storage), out, buckets)
    if json:
        print_json({**asdict(exported), "draft_commit": DRAFT})
        return
    say(f"{counted(exported.rows, 'row')} in {counted(exported.leafs, 'leaf file')}")
    say(f"{exported.metadata} follows the draft of apache/iceberg pull 16961 at commit {DRAFT[:8]}")
