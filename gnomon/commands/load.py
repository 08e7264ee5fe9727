"""gnomon load: the rows of many keys, with Spark."""

import os
import shutil
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from gnomon.commands.inputs import local_path, read_keys
from gnomon.commands.options import Conf, IndexFolder, Json, Master
from gnomon.commands.output import counted, megabytes, print_json, say
from gnomon.commands.progress import shown_progress
from gnomon.commands.spark import spark_session
from gnomon.indexer import load as load_rows
from gnomon.indexer.dedup import check_rows_here, write_parquet
from gnomon.indexer.join import LoadCounters, load_counters
from gnomon.indexer.keys import typed_keys
from gnomon.indexer.spark import spark_stage
from gnomon.indexer.tables import read_parquet
from gnomon.jobs import Stages
from gnomon.shadow import UsageError, open_index
from gnomon.shadow.metadata import check_apart, source_of
from gnomon.shadow.storage import is_local, storage_at

app = typer.Typer(pretty_exceptions_enable=False, add_completion=False, rich_markup_mode=None)


@app.command()
def load(
    index: IndexFolder,
    keys: Annotated[str, typer.Argument(help="Parquet, CSV with a header, or JSON lines with the key columns.")],
    out: Annotated[str, typer.Argument(help="The folder to write Parquet files to; it must not exist.")],
    columns: Annotated[str | None, typer.Option(help="Columns to load, separated by commas; default all.")] = None,
    how: Annotated[Literal["inner", "left"], typer.Option(help="left: keep keys without a row, with nulls.")] = "inner",
    null_safe: Annotated[bool, typer.Option("--null-safe", help="A null in a key matches nulls.")] = False,
    unreadable: Annotated[
        Literal["fail", "report"],
        typer.Option(help="report: rows that cannot be read are nulls, with the error in data_error."),
    ] = "fail",
    master: Master = None,
    conf: Conf = None,
    json: Json = False,
) -> None:
    """Write the source's rows for all keys of KEYS to OUT, which appears when all rows are written."""
    target = storage_at(out).root
    if not is_local(target):
        raise UsageError("rows are written to local disks only; name a folder here", out)
    if Path(target).exists():
        raise UsageError("the folder exists; name a new one", out)
    opened = open_index(index)
    spec = opened.spec
    check_apart(source_of(spec, opened.view.snapshot.folders), storage_at(out), "output")
    local_path(keys, "the keys as Parquet, CSV or JSON lines")
    names = columns.split(",") if columns else None
    opened.check([], names, None)  # before Spark starts
    begin = time.perf_counter()
    with shown_progress() as progress, spark_session(master, conf) as spark:
        counters = load_counters(spark)
        sample = typed_keys(read_keys(spark, keys, [key.name for key in spec.keys]), spec, "keys")
        rows = load_rows(spark, index, sample, names, how, counters, null_safe, unreadable)
        with whole(Path(target)) as staged:
            with spark_stage(Stages(progress), spark, "fetch"):
                written = write_parquet(rows, str(staged))
            count = read_parquet(spark, [str(staged)], rows.schema).count()
            check_rows_here(str(staged), written, count)
    result = _result(count, time.perf_counter() - begin, counters)
    if json:
        print_json(result)
    else:
        say(_told(result, out))


@contextmanager
def whole(target: Path) -> Iterator[Path]:
    """A folder to write to. It gets its name when it is complete, and is removed after an error."""
    staged = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
    try:
        yield staged
        os.rename(staged, target)
    finally:
        shutil.rmtree(staged, ignore_errors=True)


def _result(rows: int, seconds: float, counters: LoadCounters) -> dict[str, Any]:
    return {
        "rows": rows,
        "keys": counters.keys.value,
        "matched": counters.matched.value,
        "unreadable": counters.unreadable.value,
        "tasks": counters.tasks.value,
        "seconds": round(seconds, 3),
        "index_bytes_read": counters.index_bytes.value + counters.map_bytes.value,
        "source_bytes_read": counters.source_bytes.value,
    }


def _told(result: dict[str, Any], out: str) -> str:
    unread = f", {result['unreadable']:,} of them unreadable (data_error says why)" if result["unreadable"] else ""
    return (
        f"{counted(result['rows'], 'row')} in {result['seconds']:.1f} s to {out}{unread}; {result['matched']:,} of "
        f"{result['keys']:,} keys found; read {megabytes(result['index_bytes_read'])} of the index and "
        f"{megabytes(result['source_bytes_read'])} of the source in {counted(result['tasks'], 'task')}"
    )
