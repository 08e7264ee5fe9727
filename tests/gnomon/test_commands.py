"""The command as its user meets it: what it prints, where, and its exit code."""

import csv
import errno
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from gnomon.__main__ import main
from gnomon.jobs.build import build as build_locally
from gnomon.shadow import to_json
from gnomon.shadow.metadata import json_files
from gnomon.shadow.storage import LocalStorage, missing, storage_at
from tests.java import VARIABLES
from tests.opened import open_index
from tests.shadow.make_index import index_source, write_source


def table(begin: int, end: int) -> pa.Table:
    numbers = range(begin, end)
    return pa.table({"url": [f"http://é/{i}?a=b" for i in numbers], "n": pa.array(numbers, pa.int64())})


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    write_source(
        tmp_path / "source", {"dt=2026-01-01/a.parquet": table(0, 50), "dt=2026-01-02/a.parquet": table(40, 90)}
    )
    index_source(tmp_path / "source", tmp_path / "index", ["url"])
    index_source(tmp_path / "source", tmp_path / "by_number", ["n", "url"])
    return tmp_path


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code = main([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    return code, out, err


def test_get_prints_each_row_as_a_json_line(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "get", lake / "index", "http://é/45?a=b", "http://é/3?a=b")
    assert (code, err) == (0, "")
    assert [json.loads(line) for line in out.splitlines()] == [
        {"url": "http://é/45?a=b", "n": 45, "dt": "2026-01-01"},
        {"url": "http://é/45?a=b", "n": 45, "dt": "2026-01-02"},
        {"url": "http://é/3?a=b", "n": 3, "dt": "2026-01-01"},
    ]


def test_get_says_what_is_covered_when_a_key_is_absent_and_prints_the_others(
    lake: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run(capsys, "get", lake / "index", "nope", "http://é/1?a=b", "--columns", "n")
    assert (code, out) == (1, '{"n": 1}\n')
    assert err == f"gnomon: not found: nope (snapshot 1 covers 100 rows in 2 files of {lake}/source)\n"


def test_keys_are_given_and_inspected_in_their_type_in_the_source(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = pa.table({"id": pa.array([bytes(16)], pa.uuid()), "at": pa.array([1], pa.timestamp("ns"))})
    write_source(tmp_path / "source", {"a.parquet": rows})
    index_source(tmp_path / "source", tmp_path / "index", ["id"], include=["at"])
    code, out, _ = run(capsys, "get", tmp_path / "index", "00000000-0000-0000-0000-000000000000")
    shown = {"id": "00000000-0000-0000-0000-000000000000", "at": "1970-01-01T00:00:00.000000001"}
    assert (code, json.loads(out)) == (0, shown)
    code, _, err = run(capsys, "get", tmp_path / "index", "00000000-0000-0000-0000-00000000000")
    assert (code, "key column id: expected uuid (36 characters, or bytes)" in err) == (2, True)
    facts = json.loads(run(capsys, "inspect", tmp_path / "index", "--json")[1])
    assert facts["keys"] == [{"name": "id", "type": "binary", "source_type": "uuid"}]
    _, out, _ = run(capsys, "inspect", tmp_path / "index")
    assert "key        id uuid (binary)" in out
    assert "included   at timestamp_ntz(ns) (bigint)" in out


def test_get_narrows_to_a_partition_and_explains(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "get", lake / "index", "http://é/45?a=b", "--where", "dt=2026-01-02", "--explain")
    assert (code, json.loads(out)["dt"]) == (0, "2026-01-02")
    explained = json.loads(err)
    assert explained["source"]["bytes"] > 0
    assert explained["index"]["nodes"] >= 1


def test_get_says_which_partitions_a_key_that_is_not_found_was_looked_for_in(
    lake: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    days = ("--where", "dt=2026-01-02", "--where", "dt=2026-01-01")
    assert run(capsys, "get", lake / "index", "http://é/45?a=b", *days)[0] == 0
    code, out, err = run(capsys, "get", lake / "index", "k", *days[:2])
    assert (code, out) == (1, "")
    assert re.fullmatch(
        r"gnomon: not found: k \(snapshot 1 covers [0-9,]+ rows in \d+ files of .*; only the [0-9,]+ rows where "
        r"dt=2026-01-02 were asked\)\n",
        err,
    )
    code, out, err = run(capsys, "get", lake / "index", "http://é/45?a=b", "--where", "dt=2099-01-01")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "where: no partition has dt=2099-01-01; dt has the values 2026-01-" in err


def test_a_composite_key_is_a_json_object(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    key = json.dumps({"n": 45, "url": "http://é/45?a=b"})
    code, out, _ = run(capsys, "get", lake / "by_number", key)
    assert (code, len(out.splitlines())) == (0, 2)
    for wrong in ("45", '{"n": 45}', '{"n": "x", "url": ""}', "[45]"):
        code, out, err = run(capsys, "get", lake / "by_number", wrong)
        assert (code, out, err.count("\n")) == (2, "", 1), wrong


def test_what_goes_wrong_is_one_line_and_the_right_exit_code(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    newer = lake / "newer"
    spec = json_files.read(storage_at(str(lake / "index")), "_shadow/spec.json") | {"format_version": 99}
    storage_at(str(newer)).put_new("_shadow/spec.json", [json_files.encode(spec)])
    (lake / "plain").mkdir()
    damaged = lake / "damaged"
    index_source(lake / "source", damaged, ["url"])
    snapshot = damaged / "_shadow/snapshots/00000000000000000001.json"
    snapshot.write_bytes(snapshot.read_bytes().replace(b"100", b"101").replace(b"build", b"guild"))
    by_number = lake / "by_number"
    semicolons = lake / "semicolons.csv"
    semicolons.write_text("url;n\nu;1\n")
    separated = "separated by ';', not by commas"
    cases = [
        (("get", lake / "nowhere", "k"), 3, "nowhere: not an index"),
        (("get", lake / "plain", "k"), 3, "plain: not an index"),
        (("get", newer, "k"), 3, "format version 99"),
        (("get", damaged, "k"), 3, "00000000000000000001.json at byte 0"),
        (("get", lake / "index", "k", "--columns", "nope"), 2, "no column nope; it has url, n, dt"),
        (("get", lake / "index", "k", "--where", "month=1"), 2, "month is not a partition column"),
        (("get", lake / "index", "k", "--where", "dt"), 2, "--where: expected column=value"),
        (
            ("get", lake / "index", "k", "--where", "dt=1"),
            2,
            "where: no partition has dt=1; dt has the values 2026-01-",
        ),
        (("get", "s3:/bucket/index", "k"), 2, "expected s3://"),
        (("get", lake / "index", "k", "--snapshot", "7"), 3, "snapshot 7 is not there"),
        (("get", by_number, '{"n": "many", "url": "u"}'), 2, "key column n: expected bigint, found 'many'"),
        (("get", lake / "index"), 2, "expected one key or more"),
        (("get", lake / "index", "k", "--limit", "x"), 2, "'--limit': expected a whole number; see gnomon get"),
        (("get", lake / "index", "k", "--limit", "0"), 2, "'--limit': expected at least 1; see gnomon get"),
        (("get", lake / "index", "k", "--format", "xml"), 2, "'--format': 'xml' is not one of 'jsonl', 'csv'"),
        (("build", semicolons, lake / "x", "--key", "url", "--engine", "local", "--dry-run"), 2, separated),
        (("load", lake / "index", semicolons, lake / "rows", "--engine", "local"), 2, separated),
        (("build", lake / "nowhere", lake / "x", "--key", "url"), 3, "nowhere: no such file or folder"),
        (("build", lake / "source", lake / "x"), 2, "source needs --key"),
        (("build", lake / "nowhere"), 2, "nowhere: no index is there; a first build needs SOURCE, INDEX and --key"),
        (("build", lake / "source", lake / "x", lake / "y"), 2, "expected [SOURCE] INDEX, found 3 places"),
        (("build", lake / "source", lake / "x", "--key", "no", "--dry-run"), 2, "the source has no column no"),
        (("build", lake / "source", lake / "x", "--key", "dt", "--dry-run"), 2, "a key of partition columns alone"),
        (("build", lake / "source", lake / "x", "--key", "url", "--include", "zz", "--dry-run"), 2, "no column zz"),
        (("inspect", lake / "nowhere"), 3, "not an index"),
        (("serve", lake / "nowhere"), 3, "not an index"),
        (("fetch", "x"), 2, "No such command 'fetch'"),
        (("bild", "x"), 2, "No such command 'bild'; did you mean build?"),
    ]
    for arguments, expected, says in cases:
        code, out, err = run(capsys, *arguments)
        assert (code, out) == (expected, ""), (arguments, err)
        assert err.count("\n") == 1, (arguments, err)
        assert says in err, (arguments, err)


def test_wrong_options_of_load_and_dedup_are_refused_before_spark_starts(
    lake: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gnomon.commands.spark.spark_session", None)
    keys = lake / "keys.csv"
    keys.write_text("url\n")
    for arguments, says in (
        (("load", lake / "index", keys, lake / "out", "--how", "outer"), "'outer' is not one of 'inner', 'left'"),
        (("load", lake / "index", keys, lake / "out", "--unreadable", "no"), "'no' is not one of 'fail', 'report'"),
        (("load", lake / "index", keys, lake / "out", "--columns", "n,no"), "the source has no column no; it has url"),
        (("dedup", lake / "index", keys, "--scope", "all"), "'all' is not one of 'table', 'partition'"),
    ):
        code, out, err = run(capsys, *arguments)
        assert (code, out, err.count("\n")) == (2, "", 1), (arguments, err)
        assert says in err


def test_a_stale_file_is_refused_and_the_other_keys_are_answered(
    lake: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pq.write_table(table(40, 95), lake / "source/dt=2026-01-02/a.parquet")
    code, out, err = run(capsys, "get", lake / "index", "http://é/80?a=b", "http://é/1?a=b", "nope", "--columns", "n")
    assert (code, out) == (3, '{"n": 1}\n')
    assert "dt=2026-01-02/a.parquet: the file changed since it was indexed" in err
    assert "not found: nope" in err


def test_a_file_that_cannot_be_read_costs_its_own_keys_only(
    lake: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = LocalStorage.open

    def refuse(self: LocalStorage, path: str, *rest: Any, **named: Any) -> object:
        if path.endswith("dt=2026-01-02/a.parquet"):
            raise PermissionError(errno.EACCES, "Permission denied", f"{self.root}/{path}")
        return opened(self, path, *rest, **named)

    monkeypatch.setattr(LocalStorage, "open", refuse)
    code, out, err = run(capsys, "get", lake / "index", "http://é/80?a=b", "http://é/1?a=b", "--columns", "n")
    assert (code, out) == (3, '{"n": 1}\n')
    assert err == f"gnomon: {lake}/source/dt=2026-01-02/a.parquet: Permission denied\n"


@pytest.mark.process
def test_a_current_folder_that_is_gone_is_said(lake: Path, tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    script = "import os, sys; os.rmdir(os.getcwd()); from gnomon.__main__ import main; main(sys.argv[1:])"
    command = [sys.executable, "-c", script + "; sys.exit(0)", "get", str(lake / "index"), "k"]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(command, cwd=tmp_path / "here", capture_output=True, text=True, check=False, env=environment)
    assert done.stderr == "gnomon: the current folder was removed; change to one that exists\n"


def test_inspect_shows_what_an_index_holds_and_misses(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "inspect", lake / "index", "--json")
    facts = json.loads(out)
    assert code == 0
    assert (facts["rows"], facts["buckets"], sum(facts["entries_by_bucket"])) == (100, 4, 100)
    assert facts["coverage"] == {"complete": True, "new": 0, "changed": 0, "vanished": 0}
    write_source(lake / "source", {"dt=2026-01-03/a.parquet": table(0, 1)})
    (lake / "source/dt=2026-01-01/a.parquet").unlink()
    _, out, _ = run(capsys, "inspect", lake / "index")
    assert "coverage   1 new, 0 changed, 1 vanished files: run gnomon build" in out
    assert "key        url string" in out
    assert "partition  dt=2026-01-02 50 rows" in out


@pytest.mark.process
def test_a_build_with_nothing_to_do_starts_no_spark_session(lake: Path) -> None:
    def build(*arguments: object) -> tuple[int, str, str]:
        command = [sys.executable, "-m", "gnomon", "build", *map(str, arguments)]
        environment = {**os.environ, "JAVA_HOME": "/nowhere", "PATH": "/nowhere"}
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        return done.returncode, done.stdout, done.stderr

    for places in ((lake / "index",), (lake / "source", lake / "index", "--key", "url")):
        assert build(*places) == (0, f"nothing new: snapshot 1 covers all 100 rows of {lake / 'source'}\n", "")
    write_source(lake / "source", {"dt=2026-01-03/a.parquet": table(0, 1)})
    code, _, err = build(lake / "index")
    assert (code, "Spark did not start" in err) == (3, True)


def test_a_full_build_lists_every_file(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "build", lake / "source", lake / "index", "--key", "url", "--full", "--dry-run")
    assert (code, out.count("new  "), out.splitlines()[-1][:8], err) == (0, 2, "2 files ", "")


def test_dedup_takes_a_full_build(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "dedup", lake / "index", lake / "batch", "--full", "--batch-id", "")
    assert (code, err) == (2, "gnomon: --batch-id: found an empty name; expected one, or leave the option out\n")


@pytest.mark.spark
def test_a_first_build_of_many_partitions_is_flat_and_says_so(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_source(tmp_path / "source", {f"dt={day:02d}/a.parquet": table(day, day + 1) for day in range(33)})
    for index, options, flat in (("a", (), True), ("b", ("--partitioned",), False), ("c", ("--key", "dt"), False)):
        code, out, _ = run(capsys, "build", tmp_path / "source", tmp_path / index, "--key", "url", *options)
        assert (code, "laid out flat, since the source has more than 32 partitions" in out) == (0, flat)
        assert open_index(str(tmp_path / index)).spec.flat is flat
    code, _, err = run(capsys, "build", tmp_path / "a", "--partitioned")
    assert (code, f"run gnomon rebucket {tmp_path / 'a'} --partitioned" in err) == (2, True)


@pytest.mark.spark
def test_build_load_and_dedup_from_the_command(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_source(tmp_path / "source", {"dt=2026-01-01/a.parquet": table(0, 500)})
    build = ("build", tmp_path / "source", tmp_path / "index", "--key", "url")
    code, out, err = run(capsys, *build)
    stages = ["list", "describe: 1 file", "write: 500 rows", "verify", "commit"]
    assert (code, err.splitlines()) == (0, [f"gnomon: {stage}" for stage in stages])
    assert out.startswith("snapshot 1: 1 new file; 500 rows indexed")
    assert run(capsys, *build)[1].startswith("nothing new: snapshot 1 covers all 500 rows")
    assert run(capsys, "build", tmp_path / "index")[1].startswith("nothing new: snapshot 1 covers all 500 rows")
    write_source(tmp_path / "source", {"dt=2026-01-01/b.parquet": table(500, 510)})
    assert run(capsys, "build", tmp_path / "index")[1].startswith("snapshot 2: 1 new file; 10 rows indexed")
    (tmp_path / "source/dt=2026-01-01/b.parquet").unlink()
    assert run(capsys, "build", tmp_path / "index")[1].startswith("snapshot 3: 1 vanished file")
    code, out, _ = run(capsys, *build, "--json")
    assert json.loads(out)["committed"] is False
    code, _, err = run(capsys, *build, "--buckets", "9")
    assert (code, f"run gnomon rebucket {tmp_path / 'index'} --buckets 9" in err) == (2, True)

    (tmp_path / "keys.csv").write_text("url\nhttp://é/3?a=b\nnope\n", "utf-8")
    code, out, _ = run(capsys, "load", tmp_path / "index", tmp_path / "keys.csv", tmp_path / "out", "--json")
    assert (code, json.loads(out)["rows"]) == (0, 1)
    assert run(capsys, "load", tmp_path / "index", tmp_path / "keys.csv", tmp_path / "out")[0] == 2
    assert pq.read_table(tmp_path / "out").to_pylist() == [{"url": "http://é/3?a=b", "n": 3, "dt": "2026-01-01"}]
    for odd in ("out[t]", "ou{t,x}", "o?t"):  # which, taken for patterns, name `out`
        code, out, err = run(
            capsys, "load", tmp_path / "index", f"file://{tmp_path}/keys.csv", f"file://{tmp_path}/{odd}", "--json"
        )
        assert (code, err, json.loads(out)["rows"]) == (0, "gnomon: fetch\n", 1)
        assert len(list((tmp_path / odd).glob("*.parquet"))) >= 1

    batch = table(490, 510).append_column("dt", pa.array(["2026-01-02"] * 20))
    pq.write_table(batch, tmp_path / "batch.parquet")
    dedup = ("dedup", tmp_path / "index", tmp_path / "batch.parquet")
    code, out, err = run(capsys, *dedup)
    assert code == 0
    assert err.startswith("gnomon: bring up to date\ngnomon: list\n")
    assert out.startswith("snapshot 4: 10 of 20 rows appended in 1 file,")
    assert "was appended before, by snapshot 4: nothing to do" in run(capsys, *dedup)[1]
    code, out, _ = run(capsys, "get", tmp_path / "index", "http://é/505?a=b")
    assert json.loads(out) == {"url": "http://é/505?a=b", "n": 505, "dt": "2026-01-02"}


def test_a_dry_run_lists_what_a_build_would_do_and_writes_nothing(
    lake: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dry = ("build", lake / "source", lake / "index", "--key", "url", "--dry-run")
    assert run(capsys, *dry)[1] == f"nothing to do: snapshot 1 covers {lake}/source as it is now\n"
    write_source(lake / "source", {"dt=2026-01-01/a.parquet": table(0, 9), "dt=2026-01-03/a.parquet": table(0, 1)})
    (lake / "source/dt=2026-01-02/a.parquet").unlink()
    before = sorted((lake / "index").rglob("*"))
    code, out, err = run(capsys, *dry)
    assert (code, err) == (0, "")
    assert [line.split()[:2] for line in out.splitlines()[:3]] == [
        ["new", "dt=2026-01-03/a.parquet"],
        ["changed", "dt=2026-01-01/a.parquet"],
        ["vanished", "dt=2026-01-02/a.parquet"],
    ]
    assert out.endswith(" would be indexed, 1 dropped; nothing was written\n")
    shown = json.loads(run(capsys, *dry, "--json")[1])
    assert (shown["snapshot"], shown["vanished"]) == (1, ["dt=2026-01-02/a.parquet"])
    assert sorted((lake / "index").rglob("*")) == before
    assert run(capsys, *dry, "--buckets", "9")[0] == 2


@pytest.mark.parametrize(
    ("name", "first", "second", "columns"),
    [
        ("csv", "id,text\n1,x\n", "id,more\n2,y\n", "id, text, more"),
        ("jsonl", '{"id": 1, "text": "x"}\n', '{"id": 2, "more": {"a": 1}}\n', "id, more, text"),
    ],
)
def test_a_dry_run_of_a_first_build_of_text_says_what_the_build_would_say_of_its_columns(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, first: str, second: str, columns: str
) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / f"source/a.{name}").write_text(first)
    (tmp_path / f"source/b.{name}").write_text(second)
    dry = ("build", tmp_path / "source", tmp_path / "index", "--dry-run", "--key")
    assert run(capsys, *dry, "nope") == (2, "", f"gnomon: the source has no column nope; it has {columns}\n")
    assert run(capsys, *dry, "id", "--include", "zz")[0] == 2
    assert run(capsys, *dry, "id")[0] == 0
    code, _, err = run(capsys, *dry, "more")
    assert (code, "cannot be stored in an index" in err) == ((2, True) if name == "jsonl" else (0, False))
    (tmp_path / f"source/b.{name}").write_bytes(b"\xff\n")
    assert run(capsys, *dry, "nope")[0] == 3
    assert not (tmp_path / "index").exists()


@pytest.mark.spark
def test_keys_files_are_read_to_the_last_key_or_refused(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keys = ["plain", 'say "hi"', "two\nlines", "a,b", "", "  spaces ", "é"]
    write_source(tmp_path / "source", {"a.parquet": pa.table({"k": keys, "n": pa.array(range(7), pa.int64())})})
    for key in ("k", "n"):
        run(capsys, "build", tmp_path / "source", tmp_path / key, "--key", key)
    with (tmp_path / "keys.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, quoting=csv.QUOTE_ALL).writerows([["k", "n"], *([key, "from the file"] for key in keys)])
    (tmp_path / "keys.jsonl").write_text("".join(json.dumps({"k": key}) + "\n" for key in keys), "utf-8")
    for name in ("keys.csv", "keys.jsonl"):
        code, out, err = run(capsys, "load", tmp_path / "k", tmp_path / name, tmp_path / f"out {name}")
        assert (code, err) == (0, "gnomon: fetch\n")
        assert sorted(pq.read_table(tmp_path / f"out {name}").column("n").to_pylist()) == list(range(7))
    (tmp_path / "broken.jsonl").write_text('{"n": 3}\n{"n": \n', "utf-8")
    (tmp_path / "text.csv").write_text("n\n3\nabc\n", "utf-8")
    (tmp_path / "other.csv").write_text("m\n3\n", "utf-8")
    cases = [
        ((tmp_path / "n", tmp_path / "broken.jsonl", tmp_path / "o1"), 3, "broken.jsonl at byte 9: "),
        ((tmp_path / "n", tmp_path / "text.csv", tmp_path / "o2"), 2, "key column n: expected bigint, found 'abc'"),
        ((tmp_path / "n", tmp_path / "other.csv", tmp_path / "o3"), 2, "the key column n is missing; it has m"),
        ((tmp_path / "n", tmp_path / "nowhere", tmp_path / "o4"), 3, "no such file on this machine; expected the keys"),
        ((tmp_path / "n", tmp_path / "text.csv", tmp_path / "source/o5"), 2, "the output would lie among the files"),
    ]
    for arguments, expected, says in cases:
        code, out, err = run(capsys, "load", *arguments)
        err = err.removeprefix("gnomon: fetch\n")  # the stage that it failed in
        assert (code, out, err.count("\n")) == (expected, "", 1), (arguments, err)
        assert says in err
        assert " at org.apache" not in err


def test_the_demo_empties_no_folder_but_its_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    code, _, err = run(capsys, "demo", "--folder", tmp_path)
    assert (code, err) == (2, f"gnomon: {tmp_path}: there is something that no demo made; name another --folder\n")
    assert (tmp_path / "thesis.txt").read_text() == "years of work"


@pytest.mark.spark
def test_commands_work_where_the_virtual_environment_is_not_activated(tmp_path: Path) -> None:
    write_source(tmp_path / "source", {"a.parquet": table(0, 20)})
    done = from_a_plain_shell("build", tmp_path / "source", tmp_path / "index", "--key", "n", "--json")
    assert (done.returncode, done.stderr.splitlines()[-1]) == (0, "gnomon: commit")
    assert json.loads(done.stdout)["rows"] == 20
    cut = tmp_path / "source/b.parquet"
    cut.write_bytes((tmp_path / "source/a.parquet").read_bytes()[:-9])
    done = from_a_plain_shell("build", tmp_path / "source", tmp_path / "index", "--key", "n")
    assert done.returncode == 3
    *stages, error = done.stderr.splitlines()
    assert str(cut) in error
    assert stages == ["gnomon: list", "gnomon: describe: 1 file"]


def from_a_plain_shell(*arguments: object) -> "subprocess.CompletedProcess[str]":
    """Run the installed command with a PATH whose python3 has none of our packages."""
    kept = ("JAVA_HOME", "HOME", "PYTHONPATH", *VARIABLES)
    keep = {name: value for name, value in os.environ.items() if name in kept}
    return subprocess.run(
        [Path(sys.executable).with_name("gnomon"), *map(str, arguments)],
        env={**keep, "PATH": "/usr/bin:/bin"},
        check=False,
        capture_output=True,
        text=True,
        timeout=600,
    )


@pytest.mark.slow
def test_a_thousand_random_keys_print_exactly_the_rows_pyarrow_reads(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = pa.table(
        {
            "id": pa.array([i * 7919 % 100_003 for i in range(3000)], pa.int64()),
            "text": [f"é {i}" * (i % 9) for i in range(3000)],
            "list": [[i, None] * (i % 3) for i in range(3000)],
            "score": pa.array([None if i % 5 == 0 else i / 7 for i in range(3000)]),
        }
    )
    write_source(tmp_path / "source", {"a.parquet": rows}, row_group_size=700, data_page_size=2000)
    index_source(tmp_path / "source", tmp_path / "index", ["id"], buckets=5)
    read = pq.read_table(tmp_path / "source").to_pylist()
    wanted = [read[i * 17 % 3000] for i in range(1000)]
    code, out, err = run(capsys, "get", tmp_path / "index", *[row["id"] for row in wanted])
    assert (code, err) == (0, "")
    assert out.splitlines() == [to_json(row) for row in wanted]


@pytest.mark.spark
def test_a_copied_lake_is_adopted_by_the_command(
    spark: SparkSession, lake: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(lake / "source", lake / "copy", copy_function=shutil.copyfile)
    build = ("build", lake / "copy", lake / "index", "--key", "url")
    code, _, err = run(capsys, *build)
    assert code == 2
    assert "source location: " in err
    code, out, _ = run(capsys, *build, "--adopt", "--dry-run")
    assert [line.split()[0] for line in out.splitlines()[:3]] == ["moved", "adopted", "adopted"]
    assert out.endswith("0 files of 0 bytes would be indexed, 0 dropped; nothing was written\n")
    code, out, err = run(capsys, *build, "--adopt")
    assert (code, err) == (0, "gnomon: list\n")
    assert out == (
        f"the index follows {lake}/copy from now on\n"
        f"adopted 2 files, which hold what was indexed\nnothing new: snapshot 2 covers all 100 rows of {lake}/copy\n"
    )
    assert run(capsys, *build, "--json")[0] == 0


@pytest.mark.parametrize("kind", ["folder", "delta", "changed delta"])
def test_adopt_takes_over_a_source_that_moved_or_refuses(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Times of the files may be those of the old place, so that no file differs."""
    rows, form = pa.table({"id": [1, 2]}), "" if kind == "folder" else "delta:"
    old, new, index = tmp_path / "old", tmp_path / "new", tmp_path / "index"
    if kind == "folder":
        old.mkdir()
        pq.write_table(rows, old / "a.parquet")
    else:
        write_deltalake(old, rows.slice(0, 1))
        write_deltalake(old, rows.slice(1), mode="append")
    assert run(capsys, "build", f"{form}{old}", index, "--key", "id", "--engine", "local")[0] == 0
    shutil.copytree(old, new)
    if kind == "changed delta":
        write_deltalake(new, pa.table({"id": [3]}), mode="append")
        DeltaTable(new).delete("id = 1")
    asked = ("build", f"{form}{new}", index, "--key", "id", "--engine", "local")
    assert run(capsys, *asked)[0] == 2
    code, out, said = run(capsys, *asked, "--adopt")
    assert (code, f"the index follows {form}{new} from now on" in out) == (0, True), said
    assert open_index(index).spec.source.location == str(new)
    expected = [[], [{"id": 2}], [{"id": 3}]] if kind == "changed delta" else [[{"id": 1}], [{"id": 2}], []]
    assert open_index(index).fetch_many([1, 2, 3]) == expected
    if form:
        write_deltalake(new, pa.table({"id": [4]}), mode="append")
        write_deltalake(old, pa.table({"id": [5]}), mode="append")
        assert run(capsys, "build", index, "--engine", "local")[0] == 0
        assert open_index(index).fetch_many([4, 5]) == [[{"id": 4}], []]
    shutil.rmtree(new)
    write_deltalake(new, pa.table({"id": [9]})) if form else shutil.copytree(old.parent / "index", new)
    code, _, said = run(capsys, "build", f"{form}{new}", index, "--key", "id", "--engine", "local", "--adopt")
    assert code in (2, 3), said


def test_verify_says_what_the_log_of_a_table_cannot_prove_any_more(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table, index = tmp_path / "table", tmp_path / "index"
    for begin in range(3):
        write_deltalake(table, pa.table({"id": [begin]}), mode="append")
        if begin == 0:
            run(capsys, "build", f"delta:{table}", index, "--key", "id", "--engine", "local")
    DeltaTable(table).create_checkpoint()
    for version in range(2):
        (table / f"_delta_log/{version:020d}.json").unlink()
    code, out, _ = run(capsys, "verify", index)
    assert code == 4
    assert "not checked: " in out
    assert "version 0 is no longer in the table's log" in out
    assert "sound" in out
    assert run(capsys, "build", f"delta:{table}", tmp_path / "other", "--key", "id", "--table-version", "1")[0] == 3
    shutil.rmtree(table / "_delta_log")
    code, out, _ = run(capsys, "verify", index)
    assert (code, "no Delta table there" in out) == (3, True)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["build", "SOURCE", "NEW", "--key", "", "--engine", "local"], "the source has no column ''; it has "),
        (["build", "SOURCE", "NEW", "--key", "ID", "--engine", "local"], "; did you mean id?"),
        (["get", "INDEX", "7", "--columns", "N"], "the source has no column N; it has id, n; did you mean n?"),
        (["build", "--key"], "gnomon build: Option '--key' requires an argument; see gnomon build --help"),
        (["get", "INDEX", "-user"], "; a key that begins with - stands after --; see gnomon get --help"),
        (
            ["get", "INDEX", "7", "--newest"],
            "SOURCE has no versions, as a Delta or Iceberg table has; run gnomon build",
        ),
        (["vacuum", "INDEX", "--keep", "0"], "keep: expected 1 snapshot or more, found 0"),
    ],
)
def test_a_wrong_command_says_in_one_line_what_helps(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    source, index = tmp_path / "source", tmp_path / "index"
    source.mkdir()
    pq.write_table(pa.table({"id": [7], "n": [1]}), source / "a.parquet")
    build_locally(None, source, index, ["id"])
    capsys.readouterr()
    places = {"SOURCE": str(source), "INDEX": str(index), "NEW": str(tmp_path / "new")}
    assert main([places.get(word, word) for word in words]) == 2
    [line] = [line for line in capsys.readouterr().err.splitlines() if line != "gnomon: list"]
    assert message.replace("SOURCE", str(source)) in line


def test_a_package_that_lacks_a_module_is_not_called_missing() -> None:
    assert (
        missing("pyiceberg", ImportError(name="pyiceberg.catalog")) == "the package pyiceberg, which is not installed"
    )
    found = missing("pyiceberg", ImportError(name="requests"))
    assert found == "the package pyiceberg, which needs requests, which is not installed"
