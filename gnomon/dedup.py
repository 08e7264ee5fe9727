"""gnomon dedup: append what was never loaded."""

import hashlib
from typing import Annotated, Literal

import typer

from gnomon.inputs import local_path, read_batch
from gnomon.output import counted, print_json, say
from gnomon.progress import shown_progress
from gnomon.spark import Conf, Master, spark_session
from indexer import append_new
from indexer.files import describe
from shadow import open_index
from shadow.coverage import source_root

app = typer.Typer(pretty_exceptions_enable=False, add_completion=False, rich_markup_mode=None)


@app.command()
def dedup(
    index: Annotated[str, typer.Argument(help="The index folder.")],
    batch: Annotated[str, typer.Argument(help="The batch: Parquet files with the source's columns.")],
    scope: Annotated[
        Literal["table", "partition"], typer.Option(help="Keys are unique in the whole table, or within a partition.")
    ] = "table",
    batch_id: Annotated[str | None, typer.Option(help="Names the batch; by default a digest of its files.")] = None,
    master: Master = None,
    conf: Conf = None,
    json: Annotated[bool, typer.Option("--json", help="Print the result as one JSON line.")] = False,
) -> None:
    """Append the rows of BATCH whose key the source does not have, and index them. A batch is loaded once."""
    open_index(index)  # an index that is not there is known before Spark starts
    name = batch_id or digest_of(batch)
    with shown_progress() as progress, spark_session(master, conf) as spark:
        result = append_new(spark, index, read_batch(spark, batch), name, scope, progress)
    if json:
        print_json(result.to_json())
    elif result.known_batch:
        say(f"batch {name} was loaded before, by snapshot {result.snapshot}: nothing to do")
    else:
        say(
            f"snapshot {result.snapshot}: {result.appended:,} of {result.rows_read:,} rows appended in "
            f"{counted(result.files, 'file')}, in {result.seconds:.1f} s; "
            f"{result.already_loaded:,} were loaded before, {result.duplicates_in_batch:,} occur twice in the batch"
        )


def digest_of(batch: str) -> str:
    """A name for a batch from the paths, sizes, modification times and footers of its files."""
    root = source_root(local_path(batch, "a batch of Parquet files"))
    digest = hashlib.blake2b(digest_size=8)
    for one in describe(root, "parquet", {}, False, root.list(), []):
        entry = one.entry
        digest.update(f"{entry.path}\0{entry.size}\0{entry.mtime_ns}\0{entry.digest}\0".encode())
    return digest.hexdigest()
