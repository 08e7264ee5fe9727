"""gnomon load: the rows of many keys, with Spark."""

import time
from pathlib import Path
from typing import Annotated

import typer

from gnomon.inputs import local_path, read_keys
from gnomon.output import megabytes, print_json, say
from gnomon.spark import Conf, Master, spark_session
from indexer import load as load_rows
from indexer.load import load_counters
from indexer.stage import check_rows_here, write_parquet
from indexer.tables import read_parquet
from shadow import UsageError, open_index
from shadow.coverage import check_apart, source_of
from shadow.storage import is_local, storage_at

app = typer.Typer(pretty_exceptions_enable=False, add_completion=False, rich_markup_mode=None)


@app.command()
def load(
    index: Annotated[str, typer.Argument(help="The index folder.")],
    keys: Annotated[str, typer.Argument(help="Parquet, CSV with a header, or JSON lines with the key columns.")],
    out: Annotated[str, typer.Argument(help="The folder to write Parquet files to; it must not exist.")],
    columns: Annotated[str | None, typer.Option(help="Columns to load, with commas between; default all.")] = None,
    master: Master = None,
    conf: Conf = None,
    json: Annotated[bool, typer.Option("--json", help="Print the result as one JSON line.")] = False,
) -> None:
    """Write the source's rows for all keys of KEYS to OUT."""
    target = storage_at(out).root
    if not is_local(target):
        raise UsageError(f"{out}: rows are written to local disks only; name a folder here")
    if Path(target).exists():
        raise UsageError(f"{out}: it is there already; name a folder that is not")
    spec = open_index(index).spec
    check_apart(source_of(spec), storage_at(out), "output")
    local_path(keys, "the keys as Parquet, CSV or JSON lines")
    begin = time.perf_counter()
    with spark_session(master, conf) as spark:
        counters = load_counters(spark)
        names = columns.split(",") if columns else None
        rows = load_rows(
            spark, index, read_keys(spark, keys, [key.name for key in spec.keys]), names, counters=counters
        )
        written = write_parquet(rows, target)
        count = read_parquet(spark, [target], rows.schema).count()
        check_rows_here(target, written, count)
    result = {
        "rows": count,
        "seconds": round(time.perf_counter() - begin, 3),
        "index_bytes_read": counters.index_bytes.value,
        "source_bytes_read": counters.source_bytes.value,
    }
    if json:
        print_json(result)
    else:
        say(
            f"{count:,} rows in {result['seconds']:.1f} s to {out}; read {megabytes(counters.index_bytes.value)} of "
            f"the index and {megabytes(counters.source_bytes.value)} of the source"
        )
