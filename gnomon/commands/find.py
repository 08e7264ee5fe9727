"""gnomon find: every row of some keys in all versions of a lake table, and the proof that there is none."""

from collections.abc import Sequence
from typing import Annotated

import typer

from gnomon.commands.config import cache
from gnomon.commands.exit_codes import FAILED, FOUND, NOT_FOUND
from gnomon.commands.failures import one_line
from gnomon.commands.get import key_texts, parse_key_argument
from gnomon.commands.output import IndexFolder, complain, counted, print_json, say
from gnomon.shadow import OpenIndex, UsageError, open_index
from gnomon.shadow.search import AllVersions, VersionedRow, find_all_versions
from gnomon.shadow.search import prove_erased as prove
from gnomon.shadow.tables import MAIN

app = typer.Typer(pretty_exceptions_enable=False, add_completion=False, rich_markup_mode=None)


@app.command()
def find(
    index: IndexFolder,
    keys: Annotated[
        list[str],
        typer.Argument(
            metavar="KEY...",
            help="A key of several columns is a JSON object or list. - reads keys from standard input, one a line.",
        ),
    ],
    all_versions: Annotated[
        bool, typer.Option("--all-versions", help="Search all versions of the Delta or Iceberg table.")
    ] = False,
    orphans: Annotated[
        bool, typer.Option("--orphans", help="Also scan the files below the table that no version lists.")
    ] = False,
    prove_erased: Annotated[
        bool,
        typer.Option("--prove-erased", help="Search all files of the table; exit code 0 only if none holds a key."),
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print each row, or the proof, as a JSON line.")] = False,
) -> int:
    """List the rows of the keys in all versions of a table, also deleted ones whose bytes are still on disk. Exit code
    0 when a row is on disk, 1 when none is, 3 when a file or version could not be read. With --prove-erased exit code 0
    when no file holds a key, 1 when one does, 3 when a file could not be searched."""
    if prove_erased and (all_versions or orphans):
        raise UsageError("find: --prove-erased searches all versions and files; expected no other option of a search")
    if not all_versions and not prove_erased:
        raise UsageError("find: expected --all-versions or --prove-erased; gnomon get prints the rows of one version")
    opened, keys = OpenIndex.of(open_index(index, **cache())), list(key_texts(keys, None))
    if prove_erased:
        return _prove(index, [parse_key_argument(key, opened) for key in keys], keys, json)
    found = find_all_versions(index, [parse_key_argument(key, opened) for key in keys], orphans)
    for row in found.rows:
        if json:
            print_json({**row.to_json(), "key": keys[row.key]})
        else:
            say(as_text(row, keys[row.key]))
    for note in notes(found):
        complain(note)
    for failure in found.failures:
        complain(one_line(failure))
    if found.failures:
        complain("incomplete: what the lines above name was not searched")
        return FAILED
    return FOUND if any(row.on_disk for row in found.rows) else NOT_FOUND


def _prove(index: str, keys: Sequence[object], texts: Sequence[str], json: bool) -> int:
    """Prove that no file holds the keys. The keys of a report are those of `texts`."""
    found = prove(index, keys)
    if json:
        shown = found.to_json()
        print_json({**shown, "holders": [{**one.to_json(), "key": texts[one.key]} for one in found.holders]})
    else:
        for one in found.holders:
            say(f"{texts[one.key]}: row {one.row} of {one.file}: {one.hold}; {one.remedy}")
        searched = f"{counted(found.files_by_index, 'file')} by the index, {found.files_scanned:,} by a scan"
        outcome = "erased" if found.is_proven else "not erased" if found.holders else "not proven"
        say(
            f"{outcome}: {counted(found.keys, 'key')}, {counted(len(found.holders), 'row')} in files; searched "
            f"{counted(len(found.versions), 'version')}, {searched}, in {found.seconds:.1f} s"
        )
    for failure in found.failures:
        complain(failure)
    if found.index_entries:
        complain(f"entries of these keys in the index: {found.index_entries:,}; gnomon compact and vacuum remove them")
    return FOUND if found.is_proven else FAILED if found.failures else NOT_FOUND


def as_text(row: VersionedRow, key: str) -> str:
    """A row on one line."""
    if row.first is None:
        when = row.how
    else:
        branch = "" if row.branch == MAIN else f" of {row.branch}"
        when = f"live from version {row.first} to {row.last}{branch}, "
        when += "the newest" if row.removed_by is None else f"removed by {row.removed_by} ({row.how})"
    return f"{key}: {'on disk' if row.on_disk else 'not on disk'}; {when}; row {row.row} of {row.file}"


def notes(found: AllVersions) -> list[str]:
    """What was searched, and what is gone."""
    lines = [
        f"searched {counted(len(found.versions), 'version')}: {counted(found.indexed, 'file')} by the index, "
        f"{counted(found.scanned, 'file')} by a scan"
    ]
    if found.expired:
        lines.append(f"expired: the table has no metadata of {_listed(found.expired)}")
    lines += [f"not searched: {path}: neither Parquet, ORC nor Avro" for path in found.unsearched]
    return lines + [f"gone: {path}: only older versions list it; its rows are unknown" for path in found.gone]


def _listed(versions: list[str]) -> str:
    return f"{'version' if len(versions) == 1 else 'versions'} {', '.join(versions)}"
