"""gnomon build: source to index."""

from enum import StrEnum
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from gnomon.commands.config import place_of, place_of_new
from gnomon.commands.engines import EngineName, EngineOption, Engines
from gnomon.commands.output import Conf, Full, Json, Master, counted, megabytes, print_json, say
from gnomon.commands.progress import shown_progress
from gnomon.jobs.build import (
    FORMAT_NAMES,
    BuildRequest,
    BuildResult,
    Plan,
    Vanished,
    build_index,
    build_metadata,
    check_rows,
    nothing_to_do,
    plan,
)
from gnomon.shadow import IndexNotFound, UsageError
from gnomon.shadow.commit import spec_on_record
from gnomon.shadow.metadata import DEEP, MOST_FOLDERS, BucketOrder
from gnomon.shadow.storage import storage_at

app = typer.Typer(pretty_exceptions_enable=False, add_completion=False, rich_markup_mode=None)

Places = Annotated[
    list[str],
    typer.Argument(
        metavar="[SOURCE] INDEX",
        help="The source (the root of its data files, one file, table:db.name, delta:PATH or iceberg:NAME), and the "
        "index folder, which the first build makes, or its name in gnomon.toml. INDEX alone brings an index up to date "
        "with its recorded source.",
    ),
]
Layout = Annotated[
    bool | None,
    typer.Option(
        "--flat/--partitioned",
        help="One set of buckets over all partitions, or one in each; by default a first build is flat where there "
        f"are more than {MOST_FOLDERS} partitions and the key has no partition column.",
    ),
]
PAGE_MAPS = "--page-maps"


class MapsRecorded(StrEnum):
    """The values of --page-maps: where pages lie, or where their values lie, too."""

    PLACES = "places"
    DEEP = DEEP


class BuildCommand(TyperCommand):
    """The command, whose option --page-maps may stand without a value."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, _with_values(args))


PageMaps = Annotated[
    MapsRecorded | None,
    typer.Option(
        PAGE_MAPS,
        help="Record where pages lie, now and in later builds: faster first fetches. The value may be left out; "
        f"{DEEP}: also where their values lie, which reads the whole source.",
    ),
]
AcceptVanished = Annotated[
    bool, typer.Option("--accept-vanished", help="Drop all files that are gone from the source: they were deleted.")
]
AsFiles = Annotated[
    bool, typer.Option("--as-files", help="Index the files of a Delta, Iceberg or other table, live rows or not.")
]

TableVersion = Annotated[
    str | None, typer.Option(help="Index this version of the Delta table, or snapshot of the Iceberg table.")
]

Order = Annotated[
    BucketOrder | None,
    typer.Option(help="Buckets by the hash of the key, or in ranges of keys: quick answers in key order."),
]


@app.command(cls=BuildCommand)
def build(
    places: Places,
    key: Annotated[
        list[str] | None, typer.Option(help="A key column, for the first build; repeat for a composite key, in order.")
    ] = None,
    include: Annotated[list[str] | None, typer.Option(help="A column to keep in the index, too; repeatable.")] = None,
    format: Annotated[str, typer.Option(help=f"Format of the source's files: {', '.join(FORMAT_NAMES)}.")] = "auto",
    option: Annotated[
        list[str] | None, typer.Option(help="How files are read: name=value, as delimiter=; of CSV; repeatable.")
    ] = None,
    schema: Annotated[str | None, typer.Option(help="Columns of text files or values: 'a bigint, b string'.")] = None,
    buckets: Annotated[int | None, typer.Option(help="Buckets; by default one for 500,000 rows.")] = None,
    order: Order = None,
    flat: Layout = None,
    page_maps: PageMaps = None,
    master: Master = None,
    conf: Conf = None,
    adopt: Annotated[bool, typer.Option("--adopt", help="SOURCE is a copy: take over files of equal content.")] = False,
    full: Full = False,
    accept_vanished: AcceptVanished = False,
    as_files: AsFiles = False,
    table_version: TableVersion = None,
    engine: EngineOption = EngineName.AUTO,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List what would be indexed; write nothing.")] = False,
    json: Json = False,
) -> None:
    """Bring an index up to date: index new and changed files, drop vanished ones. Safe to run again."""
    source, index, key, include = _asked(places, key, include)
    vanished = Vanished.DROP_ALL if accept_vanished else Vanished.DROP_SOME
    request = BuildRequest(
        key,
        include,
        buckets,
        format=format,
        flat=flat,
        options=parse_options(option or [], schema),
        page_maps=DEEP if page_maps == MapsRecorded.DEEP else page_maps is not None,
        vanished=vanished,
        as_files=as_files,
        adopt=adopt,
        full=full,
        table_version=table_version,
        order=order,
    )
    with Engines("build", engine, master, conf) as engines:
        planned = plan(source, index, request, engines.read_table)  # a path is planned before Spark starts
        if planned.newest is not None and not full and not json:
            say("the table has fewer partition columns than the index, so all files are indexed again")
        if dry_run:
            check_rows(planned, request)
            _show(planned, json)
            return
        result = nothing_to_do(planned, request) or build_metadata(planned, request)
        if result is None:
            progress = engines.enter_context(shown_progress(not engines.is_local))
            result = build_index(engines.started(), source, index, request, progress)
    _show_result(result, source, json)
    if flat is None and result.flat and not json:
        _say_flat(planned, index)


def _with_values(words: list[str]) -> list[str]:
    """The words of the command, with the value of --page-maps where it was left out."""
    end = words.index("--") if "--" in words else len(words)
    found = []
    for word, after in zip(words[:end], [*words[1:end], ""], strict=False):
        is_bare = word == PAGE_MAPS and after not in tuple(MapsRecorded)
        found.append(f"{PAGE_MAPS}={MapsRecorded.PLACES}" if is_bare else word)
    return found + words[end:]


def _say_flat(planned: Plan, index: str) -> None:
    """Say why a new index of a partitioned source was laid out flat, and how to change that."""
    if planned.spec is not None or not planned.partitions:
        return
    is_lake_table = planned.root.source.versions is not None
    many = f"the source has more than {MOST_FOLDERS} partitions"
    why = "no column of the key is a partition column of the table" if is_lake_table else many
    say(f"laid out flat, since {why} (gnomon rebucket {index} --partitioned gives each its own folder)")


def _show_result(result: BuildResult, source: str, json: bool) -> None:
    """Print the result of a build."""
    if json:
        print_json(result.to_json())
        return
    if result.moved_to:
        say(f"the index follows {result.moved_to} from now on")
    if result.adopted_files:
        say(f"adopted {counted(result.adopted_files, 'file')}, which hold what was indexed")
    if result.mapped_files:
        say(f"recorded the page maps of {counted(result.mapped_files, 'file')}, {megabytes(result.page_map_bytes)}")
    if not result.committed:
        say(f"nothing new: snapshot {result.snapshot} covers all {counted(result.rows, 'row')} of {source}")
    else:
        files = [(result.new_files, "new"), (result.changed_files, "changed"), (result.vanished_files, "vanished")]
        changes = ", ".join(counted(n, f"{what} file") for n, what in files if n) or "no file"
        say(
            f"snapshot {result.snapshot}: {changes}; "
            f"{counted(result.rows_indexed, 'row')} indexed in {result.seconds:.1f} s, {result.rows:,} in all; "
            f"read {megabytes(result.source_bytes_read)} of {megabytes(result.source_bytes)}, "
            f"wrote {megabytes(result.index_bytes)} in {counted(result.index_files, 'index file')}"
        )
    if result.ragged_rows:
        say(f"{counted(result.ragged_rows, 'row')} of these have fewer or more fields than the header of their file")


def _asked(
    places: list[str], key: list[str] | None, include: list[str] | None
) -> tuple[str, str, list[str], list[str]]:
    """Source, index, key columns and included columns: from the arguments, or from the index."""
    if len(places) > 2:
        raise UsageError(f"expected [SOURCE] INDEX, found {len(places)} places: {', '.join(places)}")
    index = place_of(places[0]) if len(places) == 1 else place_of_new(places[1])
    if len(places) == 2 and key:
        return places[0], index, key, include or []
    try:
        spec = spec_on_record(storage_at(index))
    except IndexNotFound:
        needs = (
            f"a first build of {places[0]} needs --key"
            if len(places) == 2
            else "a first build needs SOURCE, INDEX and --key"
        )
        raise UsageError(f"{index}: no index is there; {needs}") from None
    if spec is None:
        raise UsageError(f"{index}: its metadata cannot be read; name SOURCE and --key, with --full")
    spec.entries.check_source(f"{index}: a key-value folder, which has no source; expected the index of a source")
    source = places[0] if len(places) == 2 else spec.source.name
    known = [column.name for column in spec.keys], [column.name for column in spec.include]
    return source, index, key or known[0], known[1] if include is None else include


def parse_options(pairs: list[str], schema: str | None) -> dict[str, str]:
    """Options of a format from name=value texts, with the schema as one of them."""
    split = [pair.partition("=") for pair in pairs]
    for name, equals, _ in split:
        if not equals:
            raise UsageError(f"--option: expected name=value, found {name!r}")
    return {name: value for name, _, value in split} | ({"schema": schema} if schema is not None else {})


def _show(planned: Plan, json: bool) -> None:
    """Print the plan of a build."""
    if json:
        print_json(planned.to_json())
        return
    found = planned.difference
    moved = planned.view is not None and planned.view.spec.source.location != planned.root.location
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
