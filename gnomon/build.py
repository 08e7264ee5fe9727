"""gnomon build: source to index."""

from typing import Annotated

import typer

from gnomon.output import megabytes, print_json, say
from gnomon.spark import spark_session
from indexer import build as build_index
from shadow.coverage import source_root

app = typer.Typer(pretty_exceptions_enable=False, add_completion=False, rich_markup_mode=None)


@app.command()
def build(
    source: Annotated[str, typer.Argument(help="The source: the root of its Parquet files, or one file.")],
    index: Annotated[str, typer.Argument(help="The index folder; made by the first build.")],
    key: Annotated[list[str], typer.Option(help="A key column; repeat for a composite key, in order.")],
    include: Annotated[list[str] | None, typer.Option(help="A column to keep in the index, too; repeatable.")] = None,
    format: Annotated[str, typer.Option(help="Format of the source's files: auto or parquet.")] = "auto",
    buckets: Annotated[int | None, typer.Option(help="Hash buckets; by default one for 500,000 rows.")] = None,
    master: Annotated[str | None, typer.Option(help="Spark master URL; by default this machine.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the result as one JSON line.")] = False,
) -> None:
    """Index what the newest snapshot does not cover: new, changed and vanished files. Safe to run again."""
    source_root(source).list()  # a source that is not there is known before Spark starts
    with spark_session(master) as spark:
        result = build_index(spark, source, index, key, include or [], format, buckets)
    if json:
        print_json(result.to_json())
    elif not result.committed:
        say(f"nothing new: snapshot {result.snapshot} covers all {result.rows:,} rows of {source}")
    else:
        files = [(result.new_files, "new"), (result.changed_files, "changed"), (result.vanished_files, "vanished")]
        say(
            f"snapshot {result.snapshot}: {', '.join(f'{n} {what}' for n, what in files if n)} files; "
            f"{result.rows_indexed:,} rows indexed in {result.seconds:.1f} s, {result.rows:,} in all; "
            f"read {megabytes(result.source_bytes_read)} of {megabytes(result.source_bytes)}, "
            f"wrote {megabytes(result.index_bytes)} in {result.index_files} index files"
        )
