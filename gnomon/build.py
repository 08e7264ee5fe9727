"""gnomon build: source to index."""

from contextlib import ExitStack
from typing import Annotated

import typer

from gnomon.output import counted, megabytes, print_json, say
from gnomon.progress import shown_progress
from gnomon.spark import Conf, Master, spark_session
from indexer import build as build_index
from indexer.catalog import is_table, read_table
from indexer.plan import FORMAT_NAMES, Plan, check_rows, plan
from indexer.specs import Request
from shadow import UsageError

app = typer.Typer(pretty_exceptions_enable=False, add_completion=False, rich_markup_mode=None)


@app.command()
def build(
    source: Annotated[str, typer.Argument(help="The source: the root of its data files, one file, or table:db.name.")],
    index: Annotated[str, typer.Argument(help="The index folder; made by the first build.")],
    key: Annotated[list[str], typer.Option(help="A key column; repeat for a composite key, in order.")],
    include: Annotated[list[str] | None, typer.Option(help="A column to keep in the index, too; repeatable.")] = None,
    format: Annotated[str, typer.Option(help=f"Format of the source's files: {', '.join(FORMAT_NAMES)}.")] = "auto",
    option: Annotated[
        list[str] | None, typer.Option(help="How files are read: name=value, as delimiter=; of CSV; repeatable.")
    ] = None,
    schema: Annotated[str | None, typer.Option(help="Columns of text files or values: 'a bigint, b string'.")] = None,
    buckets: Annotated[int | None, typer.Option(help="Hash buckets; by default one for 500,000 rows.")] = None,
    flat: Annotated[bool | None, typer.Option("--flat", help="One set of buckets over all partitions.")] = None,
    page_maps: Annotated[
        bool,
        typer.Option("--page-maps", help="Record where pages lie, now and in later builds: faster first fetches."),
    ] = False,
    master: Master = None,
    conf: Conf = None,
    adopt: Annotated[bool, typer.Option("--adopt", help="SOURCE is a copy: take over files of equal content.")] = False,
    anew: Annotated[bool, typer.Option("--anew", help="Index all files again: the cure of a damaged index.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List what would be indexed; write nothing.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the result as one JSON line.")] = False,
) -> None:
    """Index what the newest snapshot does not cover: new, changed and vanished files. Safe to run again."""
    options = parse_options(option or [], schema)
    request = Request(key, include or [], buckets, flat, options, page_maps)
    with ExitStack() as session:
        spark = session.enter_context(spark_session(master, conf, hive=True)) if is_table(source) else None
        place = read_table(spark, source) if spark is not None else source
        planned = plan(place, index, request, format, adopt, anew)  # of a path before Spark starts
        if dry_run:
            check_rows(planned, request)
            _show(planned, json)
            return
        progress = session.enter_context(shown_progress())
        spark = spark or session.enter_context(spark_session(master, conf))
        result = build_index(
            *(spark, source, index, key, include or [], format, buckets, None, flat, adopt, anew, options, page_maps),
            progress=progress,
        )
    if json:
        print_json(result.to_json())
        return
    if result.adopted_files:
        say(f"adopted {counted(result.adopted_files, 'file')}, which hold what was indexed")
    if result.mapped_files:
        say(f"recorded the page maps of {counted(result.mapped_files, 'file')}, {megabytes(result.page_map_bytes)}")
    if not result.committed:
        say(f"nothing new: snapshot {result.snapshot} covers all {counted(result.rows, 'row')} of {source}")
    else:
        files = [(result.new_files, "new"), (result.changed_files, "changed"), (result.vanished_files, "vanished")]
        noun = "file" if sum(n for n, _ in files) == 1 else "files"
        say(
            f"snapshot {result.snapshot}: {', '.join(f'{n} {what}' for n, what in files if n)} {noun}; "
            f"{counted(result.rows_indexed, 'row')} indexed in {result.seconds:.1f} s, {result.rows:,} in all; "
            f"read {megabytes(result.source_bytes_read)} of {megabytes(result.source_bytes)}, "
            f"wrote {megabytes(result.index_bytes)} in {counted(result.index_files, 'index file')}"
        )


def parse_options(pairs: list[str], schema: str | None) -> dict[str, str]:
    """Options of a format given as name=value, and the columns, which are one of them."""
    split = [pair.partition("=") for pair in pairs]
    for name, equals, _ in split:
        if not equals:
            raise UsageError(f"--option: expected name=value, found {name!r}")
    return {name: value for name, _, value in split} | ({"schema": schema} if schema is not None else {})


def _show(planned: Plan, json: bool) -> None:
    """What a build would do."""
    if json:
        print_json(planned.to_json())
        return
    found = planned.difference
    moved = planned.view is not None and planned.view.spec.source != planned.root.location
    if planned.view is not None and planned.is_done and not (planned.adopted or planned.unmapped or moved):
        say(f"nothing to do: snapshot {planned.view.snapshot.number} covers {planned.root.name} as it is now")
        return
    for what, files in (("new", found.new), ("changed", found.changed)):
        for info in files:
            print(f"{what:8}  {info.path}  {megabytes(info.size)}")
    for path in found.vanished:
        print(f"vanished  {path}")
    if moved:
        print(f"moved     the source, to {planned.root.location}")
    for path in planned.adopted:
        print(f"adopted   {path}")
    for file in planned.unmapped:
        print(f"unmapped  {file.path}")
    maps = f"page maps of {len(planned.unmapped)} would be recorded; " if planned.unmapped else ""
    size = megabytes(sum(info.size for info in found.to_index))
    say(
        f"{counted(len(found.to_index), 'file')} of {size} would be indexed, {len(found.vanished)} dropped; {maps}"
        "nothing was written"
    )
