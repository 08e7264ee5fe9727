"""gnomon export-dione: writes an index in Dione's format."""

import importlib
from dataclasses import asdict
from typing import Annotated

import typer

from gnomon.commands.engines import EngineName, Engines
from gnomon.commands.options import Conf, IndexFolder, Json, Master
from gnomon.commands.output import counted, print_json, say
from gnomon.jobs.dione import Exported, export_dione
from gnomon.jobs.files import is_table
from gnomon.shadow import UsageError

app = typer.Typer(pretty_exceptions_enable=False, add_completion=False, rich_markup_mode=None)


@app.command()
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
            of_spark = importlib.import_module("gnomon.indexer.tables")  # a folder does not need pyspark
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
