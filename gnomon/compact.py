"""gnomon compact: many small segments into one."""

from typing import Annotated

import typer

from gnomon.output import megabytes, print_json, say
from shadow.compact import CompactResult
from shadow.compact import compact as compact_index
from shadow.storage import storage_at

app = typer.Typer(pretty_exceptions_enable=False, add_completion=False, rich_markup_mode=None)


@app.command()
def compact(
    index: Annotated[str, typer.Argument(help="The index folder.")],
    partition: Annotated[str | None, typer.Option(help="Only this partition: dt=2026-01-01.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the result as one JSON line.")] = False,
) -> None:
    """Merge what many builds wrote into one segment, without entries that no longer count. Answers stay the same."""
    result = compact_index(storage_at(index), partition)
    if json:
        print_json(result.to_json())
    elif not result.committed:
        say(f"nothing to compact: snapshot {result.snapshot} has {result.segments} segments, each partition in one")
    else:
        say(as_text(result))


def as_text(result: CompactResult) -> str:
    """What was done, on one line."""
    return (
        f"snapshot {result.snapshot}: {result.segments_before} segments became {result.segments}, of {result.buckets} "
        f"buckets; wrote {megabytes(result.index_bytes)} in {result.index_files:,} index files, kept {result.kept:,} "
        f"as they are, dropped {result.dropped:,} entries, in {result.seconds:.1f} s"
    )
