"""gnomon dedup: append the rows with new keys."""

import importlib
from typing import Annotated, Any, Literal

import typer

from gnomon.commands.build import parse_options
from gnomon.commands.engines import EngineName, EngineOption, Engines
from gnomon.commands.output import Conf, Full, IndexFolder, Json, Master, counted, print_json, say
from gnomon.commands.progress import shown_progress
from gnomon.jobs.build import FORMAT_NAMES, Engine, LocalEngine
from gnomon.jobs.dedup import (
    AppendRequest,
    BatchRows,
    DedupResult,
    Origin,
    Target,
    append_rows,
    batch_digest,
    read_batch_locally,
)
from gnomon.jobs.files import is_table
from gnomon.shadow import OpenIndex, UsageError
from gnomon.shadow.errors import DamagedMetadata

app = typer.Typer(pretty_exceptions_enable=False, add_completion=False, rich_markup_mode=None)
SHOWN_PARTITIONS = 20
NEW_INDEX = "Where there is no index yet"
OrderBy = Annotated[
    list[str] | None,
    typer.Option(help="Keep the first copy of a key by this column: 'col' or 'col desc'; repeatable."),
]
AcceptVanished = Annotated[
    bool,
    typer.Option("--accept-vanished", help="Drop all files that are gone from the source: their keys count as new."),
]
Report = Annotated[
    str | None,
    typer.Option(help="A Parquet file for the rows not appended, with pointers to the first rows of their keys."),
]


@app.command()
def dedup(
    index: IndexFolder,
    batch: Annotated[str, typer.Argument(help="The batch: a file, or a folder of files, with the source's columns.")],
    scope: Annotated[
        Literal["table", "partition"], typer.Option(help="Keys are unique in the whole table, or within a partition.")
    ] = "table",
    batch_id: Annotated[str | None, typer.Option(help="Name of the batch; by default a digest of its files.")] = None,
    order_by: OrderBy = None,
    null_keys: Annotated[
        Literal["dedup", "keep", "reject"],
        typer.Option(help="Rows with a null in their key: compare nulls as equal, append all, or append none."),
    ] = "dedup",
    report: Report = None,
    format: Annotated[str, typer.Option(help=f"Format of the batch's files: {', '.join(FORMAT_NAMES)}.")] = "auto",
    option: Annotated[
        list[str] | None, typer.Option(help="Option of the batch's format: name=value, as in build.")
    ] = None,
    full: Full = False,
    source: Annotated[str | None, typer.Option(help=f"{NEW_INDEX}: the source to index first; may be empty.")] = None,
    key: Annotated[list[str] | None, typer.Option(help=f"{NEW_INDEX}: a key column; repeatable.")] = None,
    include: Annotated[list[str] | None, typer.Option(help=f"{NEW_INDEX}: a column to keep in it; repeatable.")] = None,
    source_format: Annotated[
        str, typer.Option(help=f"{NEW_INDEX}: the format of the source; parquet if it is empty.")
    ] = "auto",
    source_option: Annotated[
        list[str] | None, typer.Option(help=f"{NEW_INDEX}: an option of the source's format.")
    ] = None,
    partition_by: Annotated[
        list[str] | None, typer.Option(help=f"{NEW_INDEX}, of an empty source: a partition column; repeatable.")
    ] = None,
    buckets: Annotated[int | None, typer.Option(help=f"{NEW_INDEX}: its hash buckets.")] = None,
    flat: Annotated[
        bool | None, typer.Option("--flat/--partitioned", help=f"{NEW_INDEX}: its layout, as in build.")
    ] = None,
    accept_vanished: AcceptVanished = False,
    engine: EngineOption = EngineName.AUTO,
    master: Master = None,
    conf: Conf = None,
    json: Json = False,
) -> None:
    """Append the rows of BATCH whose key the source does not have, and index them. A batch is appended once."""
    options = parse_options(option or [], None)  # refuses a wrong one before Spark starts
    origin = None
    if source is not None:
        text, folders = parse_options(source_option or [], None), partition_by or []
        origin = Origin(
            source, key or [], include or [], source_format, buckets, flat, options=text, partition_by=folders
        )
    target = Target(index, origin)
    opened = _opened(target, full)
    is_new = opened is None
    name = _name(batch_id, batch, format)
    request = AppendRequest(name, scope, order_by or [], null_keys, report, accept_vanished=accept_vanished)
    hive = is_table(opened.spec.source.name if opened is not None else source or "")
    with Engines("dedup", engine, master, conf) as engines, shown_progress(not engines.is_local) as progress:
        started = engines.started(hive=hive)
        if is_new or full:
            opened = target.ready(started, full, progress, request.vanished)
        rows = read_rows(started, engines.session, batch, opened, format, options)
        result = append_rows(rows, target, request, progress)
    _show(result, json, report, source if is_new else None)


def read_rows(
    engine: Engine, spark: Any, batch: str, index: OpenIndex | None, format: str, options: dict[str, str] | None
) -> BatchRows:
    """The rows of the batch, for an engine; `spark` is the session of Spark's."""
    if isinstance(engine, LocalEngine):
        return read_batch_locally(batch, index, format, options, engine.memory)
    of_spark = importlib.import_module("gnomon.indexer.dedup")  # an append in this process does not need pyspark
    rows: BatchRows = of_spark.SparkRows(spark, of_spark.read_batch(spark, batch, index, format, options))
    return rows


def _name(given: str | None, batch: str, format: str) -> str:
    """The name of a batch. UsageError for an empty name."""
    if given == "":
        raise UsageError("--batch-id: found an empty name; expected one, or leave the option out")
    return batch_digest(batch, format) if given is None else given


def _opened(target: Target, full: bool) -> OpenIndex | None:
    """Open the index before Spark starts. None if it does not exist, or if it is damaged and `full` replaces it."""
    if target.origin is not None and not target.origin.keys:
        raise UsageError("--key: expected a key column of the source")
    try:
        return target.opened
    except DamagedMetadata:
        if not full:
            raise
        return None


def _show(result: DedupResult, json: bool, report: str | None, made_of: str | None) -> None:
    if json:
        print_json(result.to_json())
        return
    if made_of is not None:
        say(f"made the index of {made_of}")
    if result.known_batch:
        more = "; there is no report of it" if report is not None else ""
        say(f"batch {result.batch_id!r} was appended before, by snapshot {result.snapshot}: nothing to do{more}")
        return
    say(
        f"snapshot {result.snapshot}: {result.appended:,} of {counted(result.rows_read, 'row')} appended in "
        f"{counted(result.files, 'file')}, in {result.seconds:.1f} s; {_told(vars(result))}"
    )
    partitions = {name: counts for name, counts in result.partitions.items() if name}
    for name, counts in list(partitions.items())[:SHOWN_PARTITIONS]:
        say(f"  {name}: {counts['appended']:,} of {counted(counts['rows_read'], 'row')}; {_told(counts)}")
    if len(partitions) > SHOWN_PARTITIONS:
        say(f"  and {len(partitions) - SHOWN_PARTITIONS:,} more partitions (--json has all)")
    if report is not None and result.reported is None:
        say("there is no report: another run began this append, without one")
    elif report is not None:
        say(f"{counted(result.reported or 0, 'row')} not appended, in {report}")


def _told(counts: dict[str, Any]) -> str:
    """The counts of the rows that were not appended."""
    told = f"already in the source {counts['already_loaded']:,}, copies in the batch {counts['duplicates_in_batch']:,}"
    if counts["rejected"]:
        return f"{told}, rejected for a null in their key {counts['rejected']:,}"
    return f"{told}, null in their key {counts['null_keys']:,}" if counts["null_keys"] else told
