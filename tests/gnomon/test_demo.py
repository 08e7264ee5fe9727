"""`gnomon demo` where nothing but the wheel is installed: neither Spark, nor Java, nor the service."""

import json
import shlex
from pathlib import Path

import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from gnomon.__main__ import main
from gnomon.commands.demo import _has_java
from tests.gnomon.test_main import run
from tests.opened import open_index

pytestmark = pytest.mark.process
EXTRAS = ("pyspark", "pandas", "starlette", "uvicorn", "httptools", "prometheus_client", "polars", "duckdb")


def test_the_demo_of_a_bare_wheel_shows_each_step_and_ends_with_commands_that_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "demo"
    words = ["demo", "--folder", str(folder), "--pages", "2000"]
    done = run(*words, missing=EXTRAS, environment={"JAVA_HOME": "/nowhere"})
    assert done.returncode == 0, done.stderr
    for told in [
        "pip install 'gnomon-index[spark]'",
        "pip install 'gnomon-index[service]'",
        "snapshot 1: 2,000 rows",
        "nothing new, nothing done",
        "present: in",
        "absent: in",
        "1,000 rows in",
        "90 appended (90 expected)",
        "once more: 0 appended",
        "the file changed since it was indexed",
        "the row that is gone has 0 answers, the next row 1",
    ]:
        assert told in done.stdout
    assert not {"make", "serve"} & set(done.stdout.split())
    commands = [line.split(" -m gnomon ")[1] for line in done.stdout.splitlines() if line.startswith("  /")]
    assert [command.split()[0] for command in commands] == ["get", "get", "inspect"]
    for command in commands:
        assert main(shlex.split(command)) == 0, command
    out = capsys.readouterr().out
    assert json.loads(out.splitlines()[0])["status"] in (200, 301, 404, 410, 503)


def test_after_the_demo_all_ways_to_the_data_read_all_of_it(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    assert main(["demo", "--folder", str(folder), "--pages", "2000", "--engine", "local"]) == 0
    files = sorted((folder / "source").rglob("*.parquet"))
    assert len({str(pq.read_schema(file).remove_metadata()) for file in files}) == 1
    urls = ds.dataset(folder / "source", partitioning="hive").to_table(["url"])["url"].to_pylist()
    assert len(set(urls)) == len(urls) == 2089
    index = open_index(str(folder / "index"))
    assert index.coverage().is_empty
    assert index.table_many(urls, ["crawl_ts"]).num_rows == 2089
    (tmp_path / "keys.jsonl").write_text("".join(json.dumps({"url": url}) + "\n" for url in urls))
    words = [str(place) for place in (folder / "index", tmp_path / "keys.jsonl", tmp_path / "out")]
    assert main(["load", *words, "--engine", "local"]) == 0
    assert pq.read_table(tmp_path / "out").num_rows == 2089


def test_java_is_found_where_spark_finds_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\n")
    java.chmod(0o755)
    for home, path, expected in [
        (str(tmp_path), "/nowhere", True),
        ("/nowhere", str(java.parent), False),
        (None, str(java.parent), True),
        ("", str(java.parent), True),  # Spark takes an empty JAVA_HOME for none
    ]:
        monkeypatch.setenv("PATH", path)
        monkeypatch.delenv("JAVA_HOME", raising=False)
        if home is not None:
            monkeypatch.setenv("JAVA_HOME", home)
        assert _has_java() == expected, (home, path)
