"""gnomon import-dione: makes an index from Dione's index."""

from typing import Annotated

import typer

from gnomon.commands.build import Layout, parse_options
from gnomon.commands.engines import EngineName, Engines
from gnomon.commands.options import Conf, Json, Master
from gnomon.commands.output import complain, counted, megabytes, print_json, say
from gnomon.commands.progress import shown_progress
from gnomon.jobs.build import FORMAT_NAMES
from gnomon.jobs.dione import ImportResult, import_dione
from gnomon.jobs.files import is_table
from gnomon.shadow import UsageError

app = typer.Typer(pretty_exceptions_enable=False, add_completion=False, rich_markup_mode=None)

SHOWN = 20  # files that were left out

Dione = Annotated[
    str, typer.Argument(metavar="DIONE", help="Dione's index: table:db.name, or the folder of its .btree.avro files.")
]
IndexPlace = Annotated[str, typer.Argument(metavar="INDEX", help="The index folder, which the first import makes.")]


@app.command()
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
        progress = engines.enter_context(shown_progress())
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
