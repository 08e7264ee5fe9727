"""gnomon load: the rows of many keys."""

import importlib
import os
import shutil
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from gnomon.commands.config import cache
from gnomon.commands.engines import EngineName, is_local
from gnomon.commands.exit_codes import MissingExtra
from gnomon.commands.output import Conf, IndexFolder, Json, Master, counted, megabytes, print_json, say
from gnomon.commands.progress import shown_progress
from gnomon.jobs import Progress, Stages, Step, job_span
from gnomon.jobs.build import has_spark
from gnomon.jobs.load import KeyFile, LoadCounters, LoadRequest, key_file, load_locally, write_parquet
from gnomon.shadow import OpenIndex, SourceNotFound, UsageError, open_index
from gnomon.shadow.errors import StorageError
from gnomon.shadow.metadata import check_apart, source_of
from gnomon.shadow.storage import is_local as is_on_disk
from gnomon.shadow.storage import storage_at, writing

app = typer.Typer(pretty_exceptions_enable=False, add_completion=False, rich_markup_mode=None)

KEYS = "Parquet, CSV with a header, or JSON lines with the key columns"
EXPECTED = "the keys as Parquet, CSV or JSON lines"
FETCH, ROWS = "fetch", "rows"
FILE = "part-00000.parquet"
Engine = Annotated[
    EngineName,
    typer.Option("--engine", help="local: in this process, without Java. auto: Spark; without pyspark local."),
]


@app.command()
def load(
    index: IndexFolder,
    keys: Annotated[str, typer.Argument(help=f"{KEYS}.")],
    out: Annotated[str, typer.Argument(help="The folder to write Parquet files to; it must not exist.")],
    columns: Annotated[str | None, typer.Option(help="Columns to load, separated by commas; default all.")] = None,
    how: Annotated[Literal["inner", "left"], typer.Option(help="left: keep keys without a row, with nulls.")] = "inner",
    null_safe: Annotated[bool, typer.Option("--null-safe", help="A null in a key matches nulls.")] = False,
    unreadable: Annotated[
        Literal["fail", "report"],
        typer.Option(help="report: rows that cannot be read are nulls, with the error in data_error."),
    ] = "fail",
    engine: Engine = EngineName.AUTO,
    master: Master = None,
    conf: Conf = None,
    json: Json = False,
) -> None:
    """Write the source's rows for all keys of KEYS to OUT, which appears when all rows are written."""
    runs_locally = is_local(engine, master, conf)
    if not runs_locally and not has_spark():
        raise MissingExtra.of("load", "pyspark", "spark")
    target = storage_at(out).root
    if not is_on_disk(target):
        raise UsageError("rows are written to local disks only; name a folder here", out)
    if os.path.lexists(target):
        raise UsageError("the folder exists; name a new one", out)
    opened = OpenIndex.of(open_index(index, **cache()))
    spec = opened.spec
    check_apart(source_of(spec, opened.view.snapshot.folders), storage_at(out), "output")
    plain = _visible_path(keys)
    request = LoadRequest(columns.split(",") if columns else None, how, null_safe, unreadable)
    opened.check([], request.columns, None)  # before Spark starts
    given = key_file(plain, [key.name for key in spec.keys])
    begin = time.perf_counter()
    with shown_progress(not runs_locally) as progress, job_span("load", index) as span, whole(Path(target)) as staged:
        if runs_locally:
            count, counters = _write_locally(opened, given, request, staged, progress)
        else:
            by_spark = importlib.import_module("gnomon.commands.spark")  # a load in this process needs none
            count, counters = by_spark.write_rows(opened, given, request, staged, (master, conf), progress)
        span.tell(rows=count)
    result = _result(count, time.perf_counter() - begin, counters)
    if json:
        print_json(result)
    else:
        say(_told(result, out))


def _visible_path(path: str) -> str:
    """The path of a local path or file URL. SourceNotFound unless it exists."""
    if not path:
        raise SourceNotFound("no such file", "(empty)", expected=EXPECTED)
    plain = storage_at(path).root
    if not is_on_disk(plain) or not os.path.exists(plain):
        raise SourceNotFound("no such file on this machine", path, expected=EXPECTED)
    return plain


def _write_locally(
    opened: OpenIndex, keys: KeyFile, request: LoadRequest, target: Path, progress: Progress
) -> tuple[int, LoadCounters]:
    """Write the rows in this process, as one file. Returns their number and the counts of the load."""
    counters, stages = LoadCounters(), Stages(progress)
    rows = load_locally(opened, keys.schema, keys.batches(), request, counters)
    with stages.stage(FETCH):
        count = write_parquet(rows, target / FILE, lambda done: stages.tell(Step(FETCH, done, 0, ROWS)))
    return count, counters


@contextmanager
def whole(target: Path) -> Iterator[Path]:
    """A folder to write to. It gets its name when it is complete, and is removed after an error. Errors of the disk
    name the target."""
    staged = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
    try:
        yield staged
        with writing(target):
            os.rename(staged, target)
    except StorageError as error:
        if error.path is not None and Path(error.path).is_relative_to(staged):
            raise error.with_fields(path=str(target / Path(error.path).relative_to(staged))) from error.__cause__
        raise
    finally:
        shutil.rmtree(staged, ignore_errors=True)


def _result(rows: int, seconds: float, counters: LoadCounters) -> dict[str, Any]:
    return {
        "rows": rows,
        "keys": counters.keys,
        "matched": counters.matched,
        "unreadable": counters.unreadable,
        "tasks": counters.tasks,
        "seconds": round(seconds, 3),
        "index_bytes_read": counters.index_bytes + counters.map_bytes,
        "source_bytes_read": counters.source_bytes,
    }


def _told(result: dict[str, Any], out: str) -> str:
    unread = f", {result['unreadable']:,} of them unreadable (data_error says why)" if result["unreadable"] else ""
    return (
        f"{counted(result['rows'], 'row')} in {result['seconds']:.1f} s to {out}{unread}; {result['matched']:,} of "
        f"{result['keys']:,} keys found; read {megabytes(result['index_bytes_read'])} of the index and "
        f"{megabytes(result['source_bytes_read'])} of the source in {counted(result['tasks'], 'task')}"
    )
