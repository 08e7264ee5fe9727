"""gnomon demo: all steps, end to end, on a generated web crawl."""

import json
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

import pyarrow.parquet as pq
import typer
from pyspark.sql import SparkSession

from gnomon.commands.crawl import page_url, write_crawl, write_increment
from gnomon.commands.output import Conf, Master, megabytes, say
from gnomon.commands.spark import spark_session
from gnomon.indexer import append_new, build, load
from gnomon.indexer.spark import JobCounters
from gnomon.shadow import ShadowError, StalePointer, UsageError, open_index

app = typer.Typer(pretty_exceptions_enable=False, add_completion=False, rich_markup_mode=None)

ABSENT_PAGE = 2**32 - 1
STARTUP_SECONDS = 30
FETCHES = 20
MARKER = "made-by-gnomon-demo"


@app.command()
def demo(
    folder: Annotated[str, typer.Option(help="Folder of source, index and results; emptied first.")] = ".demo",
    pages: Annotated[int, typer.Option(help="Pages of the crawl.", min=2_000)] = 200_000,
    master: Master = None,
    conf: Conf = None,
) -> None:
    """Make a web crawl, index it, fetch over HTTP, load 1,000 keys, dedup a half-old batch, rewrite a file."""
    root = Path(folder)
    source, index = str(root / "source"), str(root / "index")
    _empty(root)
    with spark_session(master, conf) as spark:
        _generate(spark, source, pages)
        _build(spark, source, index)
        _fetch(index, source, pages)
        _load(spark, index, source, root, pages)
        _dedup(spark, index, source, root, pages)
        _rewrite(spark, index, source)
    say(f"\nThe data stays in {folder}. `make serve` answers http://127.0.0.1:8000/rows/<url>; try")
    say(f"  .venv/bin/gnomon get {index} '{page_url(0)}' --columns url,status,dt")
    say(f"  .venv/bin/gnomon inspect {index}")


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


def _generate(spark: SparkSession, source: str, pages: int) -> None:
    _step(1, "A source: a web crawl, Parquet in dt= folders as Spark writes it")
    begin = time.perf_counter()
    write_crawl(spark, source, pages)
    files = len(list(Path(source).rglob("*.parquet")))
    say(f"   {pages:,} pages, {megabytes(_size(source))} in {files} files, in {time.perf_counter() - begin:.1f} s")


def _build(spark: SparkSession, source: str, index: str) -> None:
    _step(2, f"gnomon build {source} {index} --key url")
    result = build(spark, source, index, ["url"])
    say(
        f"   snapshot {result.snapshot}: {result.rows_indexed:,} rows in {result.seconds:.1f} s; read "
        f"{megabytes(result.source_bytes_read)} of {megabytes(result.source_bytes)}, wrote "
        f"{megabytes(result.index_bytes)} ({result.index_bytes / result.rows_indexed:.1f} bytes a row)"
    )
    again = build(spark, source, index, ["url"])
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


def _fetch(index: str, source: str, pages: int) -> None:
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


def _answer(body: dict[str, Any]) -> str:
    if "rows" not in body:
        return str(body["detail"])
    row = body["rows"][0]
    return f"merchant {row['merchant_id']}, crawled {row['crawl_ts']}, {len(row['html']):,} characters of html"


def _cost(explain: dict[str, Any], source_bytes: int) -> str:
    index, source = explain["index"], explain["source"]
    return (
        f"{megabytes(index['bytes'])} of the index, {megabytes(source['bytes'])} of the source's "
        f"{megabytes(source_bytes)}"
    )


def _load(spark: SparkSession, index: str, source: str, root: Path, pages: int) -> None:
    _step(4, "gnomon load: 1,000 keys with a Spark join on the index")
    keys = spark.createDataFrame([(page_url(i * (pages // 1000)),) for i in range(1000)], "url string")
    begin = time.perf_counter()
    counters = JobCounters()
    load(spark, index, keys, counters=counters).write.parquet(str(root / "loaded"))
    count = spark.read.parquet(str(root / "loaded")).count()
    say(
        f"   {count:,} rows in {time.perf_counter() - begin:.1f} s; read {megabytes(counters.value.index_bytes)} of "
        f"the index and {megabytes(counters.value.source_bytes)} of the source's {megabytes(_size(source))}"
    )


def _dedup(spark: SparkSession, index: str, source: str, root: Path, pages: int) -> None:
    _step(5, "gnomon dedup: a batch of which half is in the source already")
    before = _size(source)
    made = write_increment(spark, str(root / "batch"), crawl_pages=pages, rows=min(20_000, pages // 10))
    result = append_new(spark, index, spark.read.parquet(str(root / "batch")), "demo-batch")
    say(
        f"   {result.rows_read:,} rows in {result.seconds:.1f} s: {result.already_loaded:,} already in the source, "
        f"{result.duplicates_in_batch:,} twice in the batch, {result.appended:,} appended ({made.new:,} expected); "
        f"the source grew by {megabytes(_size(source) - before)}"
    )
    again = append_new(spark, index, spark.read.parquet(str(root / "batch")), "demo-batch")
    say(f"   once more: {again.appended} appended, the batch is known (snapshot {again.snapshot})")


def _rewrite(spark: SparkSession, index: str, source: str) -> None:
    _step(6, "A source file is rewritten under the index: refused, never another row")
    path = min(Path(source).rglob("*.parquet"), key=lambda one: one.stat().st_size)
    table = pq.ParquetFile(path).read()
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)  # Hadoop's checksum of the old bytes
    # The first row is gone, and each other row is one place earlier. Moments stay INT96, as Spark wrote them: it reads
    # no file with nanoseconds.
    pq.write_table(table.slice(1), path, use_deprecated_int96_timestamps=True)
    gone, next_ = table["url"][:2].to_pylist()
    opened = open_index(index)
    try:
        opened.fetch(next_)
    except StalePointer as error:
        say(f"   before the next build: {error}")
    result = build(spark, source, index, ["url"])
    opened.refresh()
    found = [len(opened.fetch(url)) for url in (gone, next_)]
    say(f"   gnomon build: {result.changed_files} changed file, {result.rows_indexed:,} rows in {result.seconds:.1f} s")
    say(f"   after it: the row that is gone has {found[0]} answers, the next row {found[1]}")
