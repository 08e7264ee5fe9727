"""gnomon rebucket: another number of buckets, or another layout."""

from typing import Annotated

import typer

from gnomon.commands.compact import as_text
from gnomon.commands.options import IndexFolder, Json
from gnomon.commands.output import counted, print_json, say
from gnomon.shadow import UsageError
from gnomon.shadow.maintenance import rebucket as rebucket_index
from gnomon.shadow.storage import storage_at

app = typer.Typer(pretty_exceptions_enable=False, add_completion=False, rich_markup_mode=None)


@app.command()
def rebucket(
    index: IndexFolder,
    buckets: Annotated[int | None, typer.Option(help="The new number of hash buckets.")] = None,
    flat: Annotated[
        bool | None,
        typer.Option("--flat/--partitioned", help="One set of buckets over all partitions, or one in each."),
    ] = None,
    json: Json = False,
) -> None:
    """Distribute all entries to another number of buckets or to another layout, without reading the source. Answers
    stay the same."""
    if buckets is None and flat is None:
        raise UsageError("no change; expected --buckets, --flat or --partitioned")
    result = rebucket_index(storage_at(index), buckets, flat)
    if json:
        print_json(result.to_json())
    elif not result.committed:
        say(f"nothing to do: snapshot {result.snapshot} has {counted(result.buckets, 'bucket')} and this layout")
    else:
        say(as_text(result))
