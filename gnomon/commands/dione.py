"""gnomon import-dione and export-dione: an index of Dione as an index of Gnomon, and the other way."""

import importlib
from dataclasses import asdict
from typing import Annotated

import typer

from gnomon.commands.build import Layout, parse_options
from gnomon.commands.config import place_of_new
from gnomon.commands.engines import EngineName, Engines
from gnomon.commands.output import Conf, IndexFolder, Json, Master, complain, counted, megabytes, print_json, say
from gnomon.commands.progress import shown_progress
from gnomon.jobs.build import FORMAT_NAMES
from gnomon.jobs.dione import Exported, ImportResult, export_dione, import_dione
from gnomon.jobs.files import is_table
from gnomon.shadow import UsageError

app = typer.Typer(pretty_exceptions_enable=False, add_completion=False, rich_markup_mode=None)

SHOWN = 20  # files that were left out

Dione = Annotated[
    str, typer.Argument(metavar="DIONE", help="Dione's index: table:db.name, or the folder of its .btree.avro files.")
]
IndexPlace = Annotated[
    str,
    typer.Argument(
        metavar="INDEX",
        help="The index folder, which the first import makes, or its name in gnomon.toml.",
        callback=place_of_new,
    ),
]


@app.command("import-dione")
def import_index(
    dione: Dione,
    index: IndexPlace,
    source: Annotated[
        str | None,
        typer.Option(help="The data: a path or table:db.name. A table of Dione's names its own; a folder needs it."),
    ] = None,
    include: Annotated[
        list[str] | None, typer.Option(help="A more field of Dione's to keep; repeatable. By default all.")
    ] = None,
    format: Annotated[str, typer.Option(help=f"Format of the data files: {', '.join(FORMAT_NAMES)}.")] = "auto",
    option: Annotated[list[str] | None, typer.Option(help="How data files are read: name=value; repeatable.")] = None,
    schema: Annotated[str | None, typer.Option(help="Columns of the values of SequenceFiles: 'a bigint'.")] = None,
    buckets: Annotated[int | None, typer.Option(help="Hash buckets; by default one for 500,000 rows.")] = None,
    flat: Layout = None,
    compare_all: Annotated[
        bool, typer.Option("--compare-all", help="Compare every entry with its row, which scans the key columns.")
    ] = False,
    moved: Annotated[
        list[str] | None,
        typer.Option(
            metavar="OLD=NEW",
            help="The data was moved: a folder that Dione's entries name, and where its files lie now; repeatable.",
        ),
    ] = None,
    master: Master = None,
    conf: Conf = None,
    json: Json = False,
) -> None:
    """Take over an index that Dione made, without a scan of the data. Run it again after Dione's next append.

    Each data file must have exactly one entry for each of its rows, and sampled rows must have their keys. Files that
    were written after Dione's index are compared row by row. A file that fails is left out: gnomon build INDEX indexes
    it."""
    needs_catalog = is_table(dione) or (source is not None and is_table(source))
    with Engines("import-dione", EngineName.AUTO if needs_catalog else EngineName.LOCAL, master, conf) as engines:
        engine = engines.started(hive=True) if needs_catalog else None
        progress = engines.enter_context(shown_progress(needs_catalog))
        result = import_dione(
            engine,
            dione,
            index,
            source,
            include,
            format=format,
            options=parse_options(option or [], schema),
            buckets=buckets,
            flat=flat,
            compare_all=compare_all,
            moved=_parse_moved(moved or []),
            progress=progress,
        )
    if json:
        print_json(result.to_json())
    else:
        _show(result, index)


def _parse_moved(texts: list[str]) -> dict[str, str]:
    """Old and new folders from OLD=NEW texts."""
    split = [text.split("=") for text in texts]
    for text, folders in zip(texts, split, strict=True):
        if len(folders) != 2 or not all(folders):
            raise UsageError(f"--moved: expected OLD=NEW with one equals sign, found {text!r}")
    return dict(split)


def _show(result: ImportResult, index: str) -> None:
    built = result.build
    if built.committed:
        say(
            f"snapshot {built.snapshot}: {counted(built.new_files + built.changed_files, 'file')} and "
            f"{counted(built.rows_indexed, 'row')} taken over in {built.seconds:.1f} s, {built.rows:,} rows in all; "
            f"wrote {megabytes(built.index_bytes)} in {counted(built.index_files, 'index file')}"
        )
    else:
        say(f"nothing to take over: snapshot {built.snapshot} stays as it is")
    for one in result.left_out[:SHOWN]:
        complain(f"left out {one.path}: {one.reason}")
    if len(result.left_out) > SHOWN:
        complain(f"left out {len(result.left_out) - SHOWN:,} more (--json lists them)")
    if result.left_out:
        say(f"{counted(len(result.left_out), 'file')} left out; gnomon build {index} indexes them")


@app.command("export-dione")
def export_index(
    index: IndexFolder,
    dione: Annotated[str, typer.Argument(metavar="DIONE", help="The index to write: table:db.name, or a folder.")],
    data_table: Annotated[
        str, typer.Option(help="The name of the data table in Dione's catalog. The index of a table knows it.")
    ] = "",
    table: Annotated[str, typer.Option(help="The name of the index table in the statement for a folder.")] = "NAME",
    location: Annotated[str | None, typer.Option(help="The folder of the table; by default the catalog's.")] = None,
    master: Master = None,
    conf: Conf = None,
    json: Json = False,
) -> None:
    """Write the newest snapshot for Dione's readers. Run it again after a build: it writes the partitions that have
    changed. Dione's own job must not append to it."""
    if is_table(dione):
        with Engines("export-dione", EngineName.SPARK, master, conf) as engines:
            engines.started(hive=True)
            of_spark = importlib.import_module("gnomon.indexer.dione")  # a folder does not need pyspark
            exported: Exported = of_spark.export_dione(engines.session, index, dione, location, data_table)
    elif location is not None:
        raise UsageError(f"--location: {dione} is one already; name a table")
    else:
        exported = export_dione(index, dione, table, data_table)
    if json:
        print_json(asdict(exported))
        return
    changed = f"{counted(len(exported.written), 'partition')} in {counted(exported.files, 'file')}"
    say(
        f"wrote {changed}, removed {len(exported.removed)}; {counted(exported.rows, 'row')} in "
        f"{counted(exported.partitions, 'partition')}"
    )
    if not is_table(dione):
        say(f"to declare the table:\n{exported.statement};\nMSCK REPAIR TABLE {table} SYNC PARTITIONS;")
