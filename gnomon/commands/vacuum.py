"""gnomon vacuum: remove files that no kept snapshot needs."""

import re
from typing import Annotated

import typer

from gnomon.commands.options import IndexFolder, Json
from gnomon.commands.output import counted, megabytes, print_json, say
from gnomon.shadow import UsageError
from gnomon.shadow.maintenance import vacuum as vacuum_index
from gnomon.shadow.storage import storage_at

app = typer.Typer(pretty_exceptions_enable=False, add_completion=False, rich_markup_mode=None)

SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


@app.command()
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
    result = vacuum_index(storage_at(index), parse_duration(grace), keep, dry_run)
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
