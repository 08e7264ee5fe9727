"""gnomon compact: many small segments into one."""

from typing import Annotated

import typer

from gnomon.commands.options import IndexFolder, Json
from gnomon.commands.output import counted, megabytes, print_json, say
from gnomon.shadow.maintenance import CompactResult
from gnomon.shadow.maintenance import compact as compact_index
from gnomon.shadow.storage import storage_at

app = typer.Typer(pretty_exceptions_enable=False, add_completion=False, rich_markup_mode=None)


@app.command()
def compact(
    index: IndexFolder,
    partition: Annotated[str | None, typer.Option(help="Only this partition: dt=2026-01-01.")] = None,
    json: Json = False,
) -> None:
    """Merge the segments of many builds into one, without dead entries. Answers stay the same."""
    result = compact_index(storage_at(index), partition)
    if json:
        print_json(result.to_json())
    elif not result.committed:
        having = counted(result.segments, "segment")
        say(f"nothing to compact: snapshot {result.snapshot} has {having}, each partition in one")
    else:
        say(as_text(result))


def as_text(result: CompactResult) -> str:
    """The result on one line."""
    return (
        f"snapshot {result.snapshot}: {counted(result.segments_before, 'segment')} became {result.segments}, of "
        f"{counted(result.buckets, 'bucket')}; wrote {megabytes(result.index_bytes)} in "
        f"{counted(result.index_files, 'index file')}, kept {result.kept:,} as they are, dropped "
        f"{'1 entry' if result.dropped == 1 else f'{result.dropped:,} entries'}, in {result.seconds:.1f} s"
    )
