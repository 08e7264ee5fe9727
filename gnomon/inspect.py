"""gnomon inspect: what an index holds."""

from collections import Counter
from typing import Annotated, Any

import typer

from gnomon.output import megabytes, print_json, say
from shadow import Index, ShadowError, open_index

app = typer.Typer(pretty_exceptions_enable=False, add_completion=False, rich_markup_mode=None)


@app.command()
def inspect(
    index: Annotated[str, typer.Argument(help="The index folder.")],
    json: Annotated[bool, typer.Option("--json", help="Print as one JSON line.")] = False,
) -> None:
    """Show keys, rows, bytes, buckets, partitions, and what of the source is not covered yet."""
    facts = describe(open_index(index))
    if json:
        print_json(facts)
        return
    for line in as_text(facts):
        say(line)


def describe(index: Index) -> dict[str, Any]:
    """The facts of an index at its newest snapshot."""
    spec, view = index.spec, index.view
    files = [file for segment in view.segments for file in segment.index_files]
    by_bucket: Counter[int] = Counter()
    for file in files:
        by_bucket[file.bucket] += file.entries
    return {
        "index": index.location,
        "snapshot": view.snapshot.number,
        "operation": view.snapshot.operation,
        "committed_at": view.snapshot.committed_at,
        "source": {"location": spec.source, "format": spec.format, "files": view.source_files},
        "keys": [{"name": key.name, "type": key.type} for key in spec.keys],
        "include": [{"name": column.name, "type": column.type} for column in spec.include],
        "rows": view.snapshot.rows,
        "segments": len(view.segments),
        "index_files": len(files),
        "index_bytes": sum(file.size for file in files),
        "buckets": spec.buckets,
        "entries_by_bucket": [by_bucket[bucket] for bucket in range(spec.buckets)],
        "partitions": view.snapshot.partitions,
        "coverage": coverage(index),
    }


def coverage(index: Index) -> dict[str, Any]:
    """What the source has that the snapshot does not cover; or why that cannot be said."""
    try:
        difference = index.coverage()
    except (ShadowError, OSError) as error:
        return {"complete": False, "error": str(error)}
    return {
        "complete": difference.is_empty,
        "new": len(difference.new),
        "changed": len(difference.changed),
        "vanished": len(difference.vanished),
    }


def as_text(facts: dict[str, Any]) -> list[str]:
    """The facts for people."""
    source, buckets, found = facts["source"], facts["entries_by_bucket"], facts["coverage"]
    if "error" in found:
        covered = f"unknown: {found['error']}"
    elif found["complete"]:
        covered = "complete: every file of the source, as it is now"
    else:
        covered = (
            f"{found['new']} new, {found['changed']} changed, {found['vanished']} vanished files: run gnomon build"
        )
    per_entry = facts["index_bytes"] / max(sum(buckets), 1)
    lines = [
        f"index      {facts['index']}",
        f"snapshot   {facts['snapshot']} ({facts['operation']}, {facts['committed_at']})",
        f"source     {source['location']} ({source['format']}, {source['files']:,} files)",
        f"key        {', '.join(key['name'] + ' ' + key['type'] for key in facts['keys'])}",
        f"rows       {facts['rows']:,}",
        f"size       {megabytes(facts['index_bytes'])} in {facts['index_files']:,} index files of {facts['segments']} "
        f"segments, {per_entry:.1f} bytes an entry",
        f"buckets    {facts['buckets']}, of {min(buckets):,} to {max(buckets):,} entries",
        f"coverage   {covered}",
    ]
    if facts["include"]:
        lines.insert(4, f"included   {', '.join(c['name'] + ' ' + c['type'] for c in facts['include'])}")
    lines += [f"partition  {name} {rows:,} rows" for name, rows in facts["partitions"].items() if name]
    return lines
