"""gnomon demo: all steps, end to end, on a generated web crawl, with what is installed."""

import importlib
import json
import os
import shlex
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
import typer

import gnomon
from gnomon.commands.crawl import page_url, write_crawl, write_increment
from gnomon.commands.engines import EngineName, Engines, is_local
from gnomon.commands.output import Conf, Master, megabytes, say
from gnomon.jobs.build import has_spark
from gnomon.jobs.load import LoadCounters, write_parquet
from gnomon.shadow import FetchStats, ShadowError, StalePointer, UsageError, open_index

app = typer.Typer(pretty_exceptions_enable=False, add_completion=False, rich_markup_mode=None)

ABSENT_PAGE = 2**32 - 1
STARTUP_SECONDS = 30
FETCHES = 20
MARKER = "made-by-gnomon-demo"
PAGES, PAGES_LOCALLY = 200_000, 20_000
SHOWN = "url,status,dt"


@app.command()
def demo(
    folder: Annotated[str, typer.Option(help="Folder of source, index and results; emptied first.")] = ".demo",
    pages: Annotated[
        int | None,
        typer.Option(
            help=f"Pages of the crawl; by default {PAGES:,} with Spark, {PAGES_LOCALLY:,} without.", min=2_000
        ),
    ] = None,
    engine: Annotated[
        EngineName,
        typer.Option(
            "--engine", help="local: in this process, without Java. auto: Spark, where it and Java are found."
        ),
    ] = EngineName.AUTO,
    master: Master = None,
    conf: Conf = None,
) -> None:
    """Make a web crawl, index it, fetch rows, load 1,000 keys, dedup a half-old batch, rewrite a file."""
    if engine is EngineName.AUTO and not (master or conf) and not _has_java():
        engine = EngineName.LOCAL
    runs_locally, has_service = is_local(engine, master, conf), _has_service()
    pages = pages or (PAGES_LOCALLY if runs_locally else PAGES)
    root = Path(folder)
    source, index = str(root / "source"), str(root / "index")
    _say_what_is_missing(runs_locally, has_service)
    _empty(root)
    with Engines("demo", engine, master, conf) as engines:
        engines.started()
        spark = engines.session
        _generate(spark, source, pages)
        _build(spark, source, index)
        (_fetch_over_http if has_service else _fetch)(index, source, pages)
        _load(spark, index, source, root, pages)
        _dedup(spark, index, source, root, pages)
        _rewrite(spark, index, source)
    say(f"\nThe data stays in {folder}. Try")
    for words in [
        ["get", index, page_url(0), "--columns", SHOWN],
        ["get", index, "--prefix", page_url(0)[:20], "--limit", "3", "--columns", "url"],
        ["inspect", index],
        *([["serve", index]] if has_service else []),
    ]:
        say(f"  {_program()} {shlex.join(words)}")


def _has_java() -> bool:
    home = os.environ.get("JAVA_HOME")
    return shutil.which(os.path.join(home, "bin", "java") if home else "java") is not None


def _has_service() -> bool:
    try:
        importlib.import_module("gnomon.commands.serve")
    except ModuleNotFoundError:
        return False
    return True


def _say_what_is_missing(runs_locally: bool, has_service: bool) -> None:
    """A line for each part of the demo that what is installed leaves out."""
    if runs_locally and not has_spark():
        say("Without Spark: this process does the work. pip install 'gnomon-index[spark]' and Java 17 add clusters.")
    elif runs_locally and not _has_java():
        say("Without Spark, which needs Java 17, and no Java was found: this process does the work.")
    if not has_service:
        say("Without the service: rows come to the command. pip install 'gnomon-index[service]' adds HTTP and a page.")


def _program() -> str:
    """The command that runs this program again, quoted for a shell."""
    called = sys.argv[0]
    if Path(called).name != "gnomon":
        return f"{shlex.quote(sys.executable)} -m gnomon"
    found = shutil.which("gnomon")
    return "gnomon" if found and os.path.realpath(found) == os.path.realpath(called) else shlex.quote(called)


def _empty(root: Path) -> None:
    """Make the folder, or empty the folder of an earlier demo. No other folder is emptied."""
    marker = root / MARKER
    if root.exists() and not (marker.exists() or (root.is_dir() and not any(root.iterdir()))):
        raise UsageError("there is something that no demo made; name another --folder", str(root))
    shutil.rmtree(root, ignore_errors=not root.exists())
    root.mkdir(parents=True)
    marker.write_text("made by gnomon demo, which empties this folder when it runs again\n")


def _step(number: int, title: str) -> None:
    say(f"\n{number}. {title}")


def _size(folder: str) -> int:
    return sum(path.stat().st_size for path in Path(folder).rglob("*.parquet"))


def _generate(spark: Any, source: str, pages: int) -> None:
    _step(1, "A source: a web crawl, Parquet in dt= folders as Spark writes it")
    begin = time.perf_counter()
    write_crawl(spark, source, pages)
    files = len(list(Path(source).rglob("*.parquet")))
    say(f"   {pages:,} pages, {megabytes(_size(source))} in {files} files, in {time.perf_counter() - begin:.1f} s")


def _build(spark: Any, source: str, index: str) -> None:
    _step(2, f"gnomon build {source} {index} --key url")
    result = gnomon.build(spark, source, index, ["url"])
    say(
        f"   snapshot {result.snapshot}: {result.rows_indexed:,} rows in {result.seconds:.1f} s; read "
        f"{megabytes(result.source_bytes_read)} of {megabytes(result.source_bytes)}, wrote "
        f"{megabytes(result.index_bytes)} ({result.index_bytes / result.rows_indexed:.1f} bytes a row)"
    )
    again = gnomon.build(spark, source, index, ["url"])
    say(f"   once more: nothing new, nothing done, in {again.seconds * 1000:.0f} ms" if not again.committed else "   ?")


@contextmanager
def _server(index: str) -> Iterator[str]:
    """Run `gnomon serve` on a free port of this machine for a block, and yield its base URL."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "gnomon", "serve", index, "--host", "127.0.0.1", "--port", str(port)]
    command += ["--set", "access_log=false"]
    base = f"http://127.0.0.1:{port}"
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        try:
            _wait_until_ready(base, process)
            yield base
        finally:
            process.terminate()


def _wait_until_ready(base: str, process: "subprocess.Popen[bytes]") -> None:
    end = time.monotonic() + STARTUP_SECONDS
    while time.monotonic() < end:
        if process.poll() is not None:
            said = process.stderr.read().decode(errors="replace").strip() if process.stderr else ""
            raise ShadowError(f"gnomon serve ended with exit code {process.returncode}: {said}")
        try:
            with urllib.request.urlopen(f"{base}/healthz", timeout=1):
                return
        except OSError:
            time.sleep(0.05)
    raise ShadowError(f"gnomon serve did not answer at {base} within {STARTUP_SECONDS} s")


def _get(url: str) -> tuple[int, dict[str, Any], float]:
    """Status, body and milliseconds of a GET."""
    begin = time.perf_counter()
    try:
        with urllib.request.urlopen(url, timeout=30) as response:
            status, body = response.status, response.read()
    except urllib.error.HTTPError as error:
        with error:
            status, body = error.code, error.read()
    return status, json.loads(body), (time.perf_counter() - begin) * 1000


def _fetch_over_http(index: str, source: str, pages: int) -> None:
    _step(3, "gnomon serve, and rows over HTTP: no engine running, no copy of the data")
    with _server(index) as base:
        for number in range(1, FETCHES + 1):  # rows of another file, so that the fetch shown is the first from its file
            _get(f"{base}/rows/{quote(page_url(pages - number), safe='')}")
        for title, url, query in (("present", page_url(0), "?_explain=true"), ("absent", page_url(ABSENT_PAGE), "")):
            path = f"/rows/{quote(url, safe='')}{query}"
            status, body, took = _get(base + path)
            say(f"   GET {path}")
            say(f"   {title}: {status} in {took:.1f} ms; {_answer(body)}")
            if "explain" in body:
                say(f"   read for it: {_cost(body['explain'], _size(source))}")


def _fetch(index: str, source: str, pages: int) -> None:
    _step(3, "gnomon get: rows by their keys, no engine running, no copy of the data")
    opened = open_index(index)
    for number in range(1, FETCHES + 1):  # rows of another file, so that the fetch shown is the first from its file
        opened.fetch(page_url(pages - number))
    for title, url in (("present", page_url(0)), ("absent", page_url(ABSENT_PAGE))):
        begin, stats = time.perf_counter(), FetchStats()
        rows = opened.fetch(url, stats=stats)
        took = (time.perf_counter() - begin) * 1000
        say(f"   gnomon get {shlex.join([index, url])}")
        if rows:
            told = _row({**rows[0], "crawl_ts": rows[0]["crawl_ts"].isoformat()})
            say(f"   {title}: in {took:.1f} ms; {told}")
            say(f"   read for it: {_cost(stats.to_json(), _size(source))}")
        else:
            say(f"   {title}: in {took:.1f} ms; no row has this key in snapshot {opened.snapshot}")


def _answer(body: dict[str, Any]) -> str:
    return _row(body["rows"][0]) if "rows" in body else str(body["detail"])


def _row(row: dict[str, Any]) -> str:
    return f"merchant {row['merchant_id']}, crawled {row['crawl_ts']}, {len(row['html']):,} characters of html"


def _cost(explain: dict[str, Any], source_bytes: int) -> str:
    index, source = explain["index"], explain["source"]
    return (
        f"{megabytes(index['bytes'])} of the index, {megabytes(source['bytes'])} of the source's "
        f"{megabytes(source_bytes)}"
    )


def _load(spark: Any, index: str, source: str, root: Path, pages: int) -> None:
    how = "in this process" if spark is None else "with a Spark join on the index"
    _step(4, f"gnomon load: 1,000 keys {how}")
    urls = [page_url(i * (pages // 1000)) for i in range(1000)]
    begin, counters = time.perf_counter(), LoadCounters()
    if spark is None:
        rows = gnomon.load(None, index, pa.table({"url": urls}), counters=counters)
        count = write_parquet(rows, root / "loaded" / "part-00000.parquet")
    else:
        of_jobs = importlib.import_module("gnomon.indexer.spark").JobCounters()
        keys = spark.createDataFrame([(url,) for url in urls], "url string")
        gnomon.load(spark, index, keys, counters=of_jobs).write.parquet(str(root / "loaded"))
        count, counters = spark.read.parquet(str(root / "loaded")).count(), of_jobs.value
    say(
        f"   {count:,} rows in {time.perf_counter() - begin:.1f} s; read {megabytes(counters.index_bytes)} of "
        f"the index and {megabytes(counters.source_bytes)} of the source's {megabytes(_size(source))}"
    )


def _dedup(spark: Any, index: str, source: str, root: Path, pages: int) -> None:
    _step(5, "gnomon dedup: a batch of which half is in the source already")
    before, batch = _size(source), str(root / "batch")
    made = write_increment(spark, batch, crawl_pages=pages, rows=min(20_000, pages // 10))
    result = gnomon.append_new(spark, index, gnomon.read_batch(spark, batch, index), "demo-batch")
    say(
        f"   {result.rows_read:,} rows in {result.seconds:.1f} s: {result.already_loaded:,} already in the source, "
        f"{result.duplicates_in_batch:,} twice in the batch, {result.appended:,} appended ({made.new:,} expected); "
        f"the source grew by {megabytes(_size(source) - before)}"
    )
    again = gnomon.append_new(spark, index, gnomon.read_batch(spark, batch, index), "demo-batch")
    say(f"   once more: {again.appended} appended, the batch is known (snapshot {again.snapshot})")


def _rewrite(spark: Any, index: str, source: str) -> None:
    _step(6, "A source file is rewritten under the index: refused, never another row")
    path = min(Path(source).rglob("*.parquet"), key=lambda one: one.stat().st_size)
    file = pq.ParquetFile(path)
    table = file.read()
    # The first row is gone, and each other row is one place earlier. Moments keep their type: Spark writes them as
    # INT96, and reads no file with nanoseconds.
    physical = [file.schema.column(place).physical_type for place in range(len(file.schema))]
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)  # Hadoop's checksum of the old bytes
    pq.write_table(table.slice(1), path, use_deprecated_int96_timestamps="INT96" in physical)
    gone, next_ = table["url"][:2].to_pylist()
    opened = open_index(index)
    try:
        opened.fetch(next_)
    except StalePointer as error:
        say(f"   before the next build: {error}")
    result = gnomon.build(spark, source, index, ["url"])
    opened.refresh()
    found = [len(opened.fetch(url)) for url in (gone, next_)]
    say(f"   gnomon build: {result.changed_files} changed file, {result.rows_indexed:,} rows in {result.seconds:.1f} s")
    say(f"   after it: the row that is gone has {found[0]} answers, the next row {found[1]}")
