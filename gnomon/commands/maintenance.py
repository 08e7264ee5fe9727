"""gnomon compact, rebucket and vacuum: many small segments into one, another number of buckets or another layout, and
the removal of files that no kept snapshot needs."""

import re
from typing import Annotated

import typer

from gnomon.commands.output import IndexFolder, Json, counted, megabytes, print_json, say
from gnomon.shadow import UsageError
from gnomon.shadow.maintenance import CompactResult
from gnomon.shadow.maintenance import compact as compact_index
from gnomon.shadow.maintenance import rebucket as rebucket_index
from gnomon.shadow.maintenance import vacuum as vacuum_index
from gnomon.shadow.metadata import BucketOrder

app = typer.Typer(pretty_exceptions_enable=False, add_completion=False, rich_markup_mode=None)


@app.command("compact")
def compact(
    index: IndexFolder,
    partition: Annotated[str | None, typer.Option(help="Only this partition: dt=2026-01-01.")] = None,
    json: Json = False,
) -> None:
    """Merge the segments of many builds into one, without dead entries. Answers stay the same."""
    result = compact_index(index, partition)
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


@app.command("rebucket")
def rebucket(
    index: IndexFolder,
    buckets: Annotated[int | None, typer.Option(help="The new number of buckets.")] = None,
    flat: Annotated[
        bool | None,
        typer.Option("--flat/--partitioned", help="One set of buckets over all partitions, or one in each."),
    ] = None,
    order: Annotated[
        BucketOrder | None, typer.Option(help="By the hash of the key, or in ranges of keys, which are cut anew.")
    ] = None,
    json: Json = False,
) -> None:
    """Distribute all entries to another number of buckets or to another layout, without reading the source. Answers
    stay the same."""
    if buckets is None and flat is None and order is None:
        raise UsageError("no change; expected --buckets, --order, --flat or --partitioned")
    result = rebucket_index(index, buckets, flat, order)
    if json:
        print_json(result.to_json())
    elif not result.committed:
        say(f"nothing to do: snapshot {result.snapshot} has {counted(result.buckets, 'bucket')} and this layout")
    else:
        say(as_text(result))


SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


@app.command("vacuum")
def vacuum(
    index: IndexFolder,
    grace: Annotated[
        str, typer.Option(help="Keep snapshots that were superseded less than this ago: 30m, 24h, 7d.")
    ] = "24h",
    keep: Annotated[int, typer.Option(help="Keep this many of the newest snapshots, however old.")] = 1,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list what would be removed.")] = False,
    json: Json = False,
) -> None:
    """Remove old snapshots, the files that only they need, and files that crashed builds left at least a day ago."""
    result = vacuum_index(index, parse_duration(grace), keep, dry_run)
    if json:
        print_json(result.to_json())
        return
    if dry_run:
        for file in result.files:
            say(f"{file.path} ({file.kind}, {megabytes(file.size)})")
    counts = ", ".join(counted(count, kind) for kind, count in result.counts.items())
    kept = f"{counted(len(result.kept), 'snapshot')} kept"
    if not counts:
        say(f"nothing to remove; {kept}")
    else:
        say(f"{'would remove' if dry_run else 'removed'} {counts}: {megabytes(result.bytes)}; {kept}")


def parse_duration(text: str) -> float:
    """The seconds of a duration, a number with its unit."""
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([smhd])", text)
    if not match:
        raise UsageError(f"--grace: expected a number with its unit, like 90s, 30m, 24h or 7d, found {text!r}")
    return float(match[1]) * SECONDS[match[2]]
