"""gnomon diff, unique and orphans: the keys of indexes as sets, without a read of their sources."""

from typing import Annotated

import typer

from gnomon.commands.exit_codes import FOUND, NOT_FOUND
from gnomon.commands.output import IndexFolder, Json, say
from gnomon.shadow import to_json
from gnomon.shadow.key_sets import ROWS, SIDE, KeySet
from gnomon.shadow.key_sets import diff as diff_of
from gnomon.shadow.key_sets import orphans as orphans_of
from gnomon.shadow.key_sets import unique as unique_of

app = typer.Typer(pretty_exceptions_enable=False, add_completion=False, rich_markup_mode=None)
Limit = Annotated[int, typer.Option(min=0, help="The most keys to show; all are counted.")]


@app.command("diff")
def diff(first: IndexFolder, second: IndexFolder, limit: Limit = 20, json: Json = False) -> None:
    """Show the keys that one of two indexes has and the other has not. Exit code 1 if there are any."""
    _show(diff_of(first, second), limit, json)


@app.command("unique")
def unique(index: IndexFolder, limit: Limit = 20, json: Json = False) -> None:
    """Show the keys that have several rows. Exit code 1 if there are any. Keys with a null are counted apart."""
    _show(unique_of(index), limit, json)


@app.command("orphans")
def orphans(child: IndexFolder, parent: IndexFolder, limit: Limit = 20, json: Json = False) -> None:
    """Show the keys of an index that another index has not. Exit code 1 if there are any. A key with a null is no
    orphan."""
    _show(orphans_of(child, parent), limit, json)


def _show(found: KeySet, limit: int, json: bool) -> None:
    shown: list[dict[str, object]] = []
    for table in found:
        some = table.slice(0, limit - len(shown))
        keys = zip(found.shown(some), some.column(SIDE).to_pylist(), some.column(ROWS).to_pylist(), strict=True)
        for key, side, rows in keys:
            shown.append({"key": list(key), "side": side, "rows": rows})
    if json:
        say(to_json({"snapshots": found.snapshots, "counts": found.counts, "shown": shown}))
    else:
        for one in shown:
            say(f"{one['side']}\t{one['rows']}\t{to_json(one['key'])}")
        numbers = ", ".join(f"{name} {count:,}" for name, count in found.counts.items())
        say(f"snapshot {' and '.join(map(str, found.snapshots))}: {numbers}")
    is_any = found.counts["first"] or found.counts.get("second", 0)
    raise typer.Exit(NOT_FOUND if is_any else FOUND)
