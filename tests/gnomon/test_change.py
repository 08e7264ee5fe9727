"""`gnomon delete`, `upsert` and `get --pointers-only` as their user has them: keys in each form, one line for each
error, and nothing written after a refusal."""

import io
import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

from gnomon.__main__ import main
from gnomon.jobs.build import build
from gnomon.shadow import open_index
from tests.golden.tables import TABLES
from tests.jobs.dedup.lake_tables import DeltaLake, IcebergLake, here, row, rows
from tests.jobs.dedup.test_change import FIRST, LOCAL_KINDS, after, changed, check, commits, made
from tests.shadow.make_index import index_source, write_source

AnyLake = DeltaLake | IcebergLake
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(params=LOCAL_KINDS)
def lake(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AnyLake:
    lake = made(request.param, tmp_path, monkeypatch)
    assert isinstance(lake, DeltaLake | IcebergLake)
    return lake


@pytest.fixture
def index(lake: AnyLake, tmp_path: Path) -> str:
    build(None, lake.name, str(tmp_path / "index"), ["id"], buckets=2)
    return str(tmp_path / "index")


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """A function that runs a command. Returns its exit code, stdout, and stderr without the lines of stages."""

    def call(*words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main([*words])
        out, err = capsys.readouterr()
        return code, out, err

    return call


def files_of(*folders: str | Path) -> set[str]:
    return {str(path) for folder in folders for path in Path(folder).rglob("*") if path.is_file()}


# -- deletes -----------------------------------------------------------------------------------------------------------


def write_keys(place: Path) -> dict[str, Path]:
    """The keys 3, 4 and 1000 in each form of a file."""
    texts = {"keys": "3\n\n4\r\n1000\n", "keys.csv": 'why,id\nx,3\n"a,b","4"\n,1000\n', "keys.tsv": "id\n3\n4\n1000\n"}
    texts["KEYS.CSV"] = texts["keys.csv"]
    texts["keys.jsonl"] = '{"id": 3, "x": 1}\n{"id": "4"}\n{"id": 1000}\n'
    for name, text in texts.items():
        (place / name).write_text(text)
    pq.write_table(pa.table({"x": ["a"] * 4, "id": pa.array([3.0, 4.0, 1000.0, 5.5])}), place / "keys.parquet")
    return {name: place / name for name in [*texts, "keys.parquet"]}


def test_keys_come_from_arguments_from_standard_input_and_from_files(
    lake: AnyLake, index: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = commits(lake)
    for name, path in write_keys(tmp_path).items():
        code, out, _ = run("delete", index, "--keys", str(path), "--dry-run", "--json")
        result = json.loads(out)
        assert (code, result["rows_deleted"], result["files_changed"], result["dry_run"]) == (0, 2, 1, True), name
    monkeypatch.setattr("sys.stdin", io.StringIO("3\n4\n"))
    assert run("delete", index, "-", "--dry-run")[1].startswith("would delete 2 rows in 1 file of ")
    assert commits(lake) == before
    code, out, _ = run("delete", index, "3", "1000", "--json")
    assert (code, json.loads(out)["rows_deleted"], json.loads(out)["deleted_keys"]) == (0, 1, 1)
    code, out, _ = run("delete", index, "--keys", str(tmp_path / "keys.parquet"))
    assert (code, "1 row deleted in 1 file by " in out) == (0, True)
    assert commits(lake) == before + 2
    check(lake, index, after(without=(3, 4)))


def test_a_delete_of_nothing_commits_nothing_and_exits_with_one(
    lake: AnyLake, index: str, run: Run, tmp_path: Path
) -> None:
    (tmp_path / "empty").touch()
    before = commits(lake), files_of(lake.root)
    for words in (["1000"], ["--keys", str(tmp_path / "empty")], ["7"]):
        code, out, _ = run("delete", index, *words)
        assert (code, out.endswith("; no row was changed\n")) == (1, True)
        assert run("delete", index, *words, "--dry-run")[0] == 1
    assert (commits(lake), files_of(lake.root)) == before


def test_a_delete_with_a_name_is_done_once_and_a_dry_run_says_so(lake: AnyLake, index: str, run: Run) -> None:
    assert run("delete", index, "3", "--batch-id", "gdpr-17")[0] == 0
    lake.append(rows(3, 4))
    for words in ([], ["--dry-run"]):
        code, out, _ = run("delete", index, "3", "--batch-id", "gdpr-17", *words)
        assert (code, out.startswith("batch 'gdpr-17' was committed before, by snapshot ")) == (0, True)
    code, _, err = run("delete", index, "4", "--batch-id", "gdpr-17")
    assert (code, "with other rows: expected 1 of digest" in err.splitlines()[-1]) == (2, True)
    build(None, lake.name, index, ["id"])
    check(lake, index, FIRST)


def refused(tmp_path: Path) -> dict[str, tuple[list[str], int, str]]:
    """Wrong words of `gnomon delete INDEX`, the exit code, and what the line says."""
    texts = {"bytes": b"3\n\xff\xfe\n", "bad.csv": b"id\nfive\n", "other.csv": b"key\n3\n", "none.csv": b""}
    texts |= {"null.jsonl": b'{"id": 3}\n{"id": null}\n', "bad.jsonl": b'{"id": 3\n', "bad.parquet": b"nonsense"}
    for name, content in texts.items():
        (tmp_path / name).write_bytes(content)
    pq.write_table(pa.table({"id": pa.array([3, None], pa.int32())}), tmp_path / "null.parquet")
    pq.write_table(pa.table({"id": [b"3"]}), tmp_path / "binary.parquet")

    def keys(name: str) -> list[str]:
        return ["--keys", str(tmp_path / name)]

    return {
        "no key": ([], 2, "delete: expected one key or more, - for those of standard input, or --keys FILE"),
        "text": (["five"], 2, "keys: key column id: expected bigint, found 'five'"),
        "one of two": (["3", "x"], 2, "keys: key column id: expected bigint, found 'x'"),
        "too large": ([str(2**63)], 2, f"expected bigint, found '{2**63}'"),
        "a fraction": (["1.5"], 2, "expected bigint, found '1.5'"),
        "no text": (["3", ""], 2, "expected bigint, found ''"),
        "no UTF-8": (["\udcff"], 2, "a key: not UTF-8"),
        "an option after --": (["--", "3", "--dry-run"], 2, "--dry-run stands after -- and would be a key"),
        "a value after --": (["--", "3", "--batch-id=x"], 2, "--batch-id=x stands after -- and would be a key"),
        "no file": (keys("none"), 2, "none: no such file on this machine; expected one key a line"),
        "no Parquet file": (keys("none.parquet"), 2, "none.parquet: no such file or folder; expected keys there"),
        "not UTF-8": (keys("bytes"), 2, "bytes: line 2: not UTF-8; expected one key a line"),
        "text in CSV": (keys("bad.csv"), 2, "expected bigint, found 'five'"),
        "other columns": (keys("other.csv"), 2, "other.csv: the key column id is missing; it has key"),
        "empty CSV": (keys("none.csv"), 2, "none.csv: the key column id is missing; it has no columns"),
        "null in JSON": (keys("null.jsonl"), 2, "keys: 1 nulls in id; leave these keys out"),
        "null in Parquet": (keys("null.parquet"), 2, "keys: 1 nulls in id; leave these keys out"),
        "binary": (keys("binary.parquet"), 2, "the key column id is binary, the index's is bigint; cast it"),
        "damaged JSON": (keys("bad.jsonl"), 3, "bad.jsonl at byte 0: a line that is not one JSON value"),
        "damaged Parquet": (keys("bad.parquet"), 3, "bad.parquet at byte 0: 8 bytes are too few for a Parquet file"),
        "both": (["3", *keys("bad.csv")], 2, "delete: expected keys as arguments or --keys, not both"),
        "empty name": (["3", "--batch-id", ""], 2, "batch id: expected a text that is not empty, found ''"),
    }


def test_wrong_keys_are_one_line_and_nothing_is_written(lake: AnyLake, index: str, run: Run, tmp_path: Path) -> None:
    run("delete", index, "1000")  # the first change of an index leaves a file there that names its source
    before = commits(lake), files_of(lake.root, index)
    for what, (words, code, says) in refused(tmp_path).items():
        found, out, err = run("delete", index, *words)
        assert (found, out) == (code, ""), what
        lines = [line for line in err.splitlines() if line.startswith("gnomon") and ": " in line[:60]]
        assert says in lines[-1], (what, err)
        assert "Traceback" not in err
        assert sum(says in line for line in err.splitlines()) == 1
        assert commits(lake) == before[0]
        assert files_of(lake.root, index) - before[1] == set(), what
    check(lake, index, FIRST)


def test_what_is_no_lake_table_or_not_there_is_one_line(tmp_path: Path, run: Run) -> None:
    write_source(tmp_path / "source", {"a.parquet": rows(0, 3)})
    index_source(tmp_path / "source", tmp_path / "plain", ["id"])
    lake, batch = DeltaLake(tmp_path), str(tmp_path / "batch.parquet")
    build(None, lake.name, str(tmp_path / "lost"), ["id"])
    Path(lake.root).rename(tmp_path / "moved")
    pq.write_table(changed([1]), batch)
    before = files_of(tmp_path)
    says = {
        "none": (3, "none: no index there"),
        "plain": (2, "its rows are not changed: others own these files"),
        "lost": (3, "no Delta table there"),
    }
    for name, (code, words) in says.items():
        for command in (["delete", "1"], ["delete", "1", "--dry-run"], ["upsert", batch, "--engine", "local"]):
            found, out, err = run(command[0], str(tmp_path / name), *command[1:])
            assert (found, out, words in err.splitlines()[-1]) == (code, "", True), (name, command, err)
    for name, code, words in (("plain", 2, "only Iceberg tables have"), ("lost", 2, "only Iceberg tables have")):
        found, out, err = run("convert-deletes", str(tmp_path / name))
        assert (found, out, words in err) == (code, "", True)
    assert run("convert-deletes", str(tmp_path / "none"))[0] == 3
    assert run("find", str(tmp_path / "plain"), "1", "--prove-erased")[0] == 2
    assert run("find", str(tmp_path / "lost"), "1", "--prove-erased")[:2] == (3, "")
    assert files_of(tmp_path) == before


TYPED: dict[str, tuple[pa.Array, list[str], list[str]]] = {  # values, keys of the first two, and wrong keys
    "day": (pa.array([1, 2, 3], pa.date32()), ["1970-01-02", "1970-01-03"], ["1970-1-2", "x"]),
    "price": (
        pa.array([Decimal("1.10"), Decimal("-2.20"), Decimal(4)], pa.decimal128(10, 2)),
        ["1.1", "-2.20"],
        ["1.105", "99999999999"],
    ),
    "at": (
        pa.array([3_600_000_000, 7_200_000_000, 1], pa.timestamp("us", "UTC")),
        ["1970-01-01T01:00:00Z", "1970-01-01 03:00:00+01:00"],
        ["1970-01-01T01:00:00.1234567Z"],
    ),
    "clock": (pa.array([3_600_000_000, 1, 2], pa.timestamp("us")), ["1970-01-01T01:00:00"], ["1970-01-01T01:00:00Z"]),
    "raw": (pa.array([b"\x00\xff", b"", b"abc"]), ["AP8=", ""], ["0x00ff"]),
    "text": (pa.array(["é", "-x", "5"]), ["é", "-x"], []),
    "f": (pa.array([float("nan"), 1.5, -2.0]), ["NaN", "15e-1"], ["x"]),
    "flag": (pa.array([True, True, False]), ["true"], ["maybe"]),
    "big": (pa.array([2**63 - 1, -(2**63), 0]), [str(2**63 - 1), str(-(2**63))], [str(2**63)]),
}


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_keys_of_every_type_delete_their_rows(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    table = pa.table({name: values for name, (values, _, _) in TYPED.items()})
    names = [f"delta:{tmp_path}/t", "iceberg:here.db.t"]
    if kind == "delta":
        from deltalake import write_deltalake

        write_deltalake(str(tmp_path / "t"), table)
    else:
        catalog = here(tmp_path, monkeypatch)
        catalog.create_namespace("db")
        catalog.create_table("db.t", table.schema).append(table)
    for name, (values, texts, wrong) in TYPED.items():
        index = str(tmp_path / name)
        build(None, names[kind == "iceberg"], index, [name])
        read = ["--dry-run", "--json"]
        count = 2 if name in ("flag",) else len(texts)
        assert json.loads(run("delete", index, *read, "--", *texts)[1])["rows_deleted"] == count, name
        pq.write_table(pa.table({name: values[:2]}), tmp_path / "keys.parquet")
        code, out, _ = run("delete", index, *read, "--keys", str(tmp_path / "keys.parquet"))
        assert (code, json.loads(out)["rows_deleted"]) == (0, 2), name
        for text in wrong:
            code, out, err = run("delete", index, text, "--dry-run")
            assert (code, out, f"found {text!r}" in err) == (2, "", True), (name, text)
    index = str(tmp_path / "several")
    build(None, names[kind == "iceberg"], index, ["text", "day"])
    for text in ('["é", "1970-01-02"]', '{"day": "1970-01-02", "text": "é"}'):
        assert json.loads(run("delete", index, text, *read)[1])["rows_deleted"] == 1
    for text, says in {
        "é": "the key has the columns text, day: expected a JSON object or list, found 'é'",
        '["é"]': "the key has 2 columns (text, day); found 1 values",
        '{"text": "é"}': "the key needs the columns text, day; found text",
        '["é", null]': "keys: 1 nulls in day; leave these keys out",
    }.items():
        code, out, err = run("delete", index, text)
        assert (code, out, says in err.splitlines()[-1]) == (2, "", True), err
    assert (
        json.loads(run("delete", index, '["é", "1970-01-02"]', '["é", "1970-01-03"]', "--json")[1])["rows_deleted"] == 1
    )


# -- upserts -----------------------------------------------------------------------------------------------------------


def test_an_upsert_of_files_is_committed_once(lake: AnyLake, index: str, run: Run, tmp_path: Path) -> None:
    batch = str(tmp_path / "batch.parquet")
    pq.write_table(changed(range(35, 45)), batch)
    code, out, _ = run("upsert", index, batch, "--engine", "local")
    assert (code, "10 rows written in 1 file, 5 of them in place of others; 5 rows deleted in 1 file by " in out) == (
        0,
        True,
    )
    code, out, _ = run("upsert", index, batch, "--engine", "local", "--json")
    assert (code, json.loads(out)["known_batch"]) == (0, True)
    check(lake, index, after(changed(range(35, 45))))
    pq.write_table(changed([1, 50]), batch)
    code, out, _ = run("upsert", index, batch, "--engine", "local", "--update-only", "--json")
    assert {name: json.loads(out)[name] for name in ("written", "absent")} == {"written": 1, "absent": 1}
    pq.write_table(changed([1, 61]), batch)
    code, out, _ = run("upsert", index, batch, "--engine", "local", "--insert-only", "--json")
    assert (code, json.loads(out)["appended"], json.loads(out)["already_loaded"]) == (0, 1, 1)
    pq.write_table(changed([]), batch)
    assert "there are no keys; no row was changed" in run("upsert", index, batch, "--engine", "local")[1]


MARKS: dict[str, tuple[list[Any] | pa.Array, int | str]] = {
    "words": (["d", "DELETE", "u", "c"], 2),
    "large words": (pa.array(["u", "d", "D", "r"], pa.large_string()), 2),
    "a dictionary of words": (pa.array(["i", "d", "d", "d"]).dictionary_encode(), 3),
    "flags": ([True, False, True, False], 2),
    "words of flags": (["true", "false", "FALSE", "insert"], 1),
    "an unknown word": (["x", "d", "d", "d"], "batch: column op: expected true, false, or one of d, delete"),
    "no word": ([None, "d", "d", "d"], "found None"),
    "an empty word": (["", "d", "d", "d"], "found ''"),
    "numbers": ([1, 0, 1, 0], "batch: column op: int64 marks no deletes; expected boolean or string"),
}


def test_only_known_marks_delete(lake: AnyLake, index: str, run: Run, tmp_path: Path) -> None:
    batch, local = str(tmp_path / "batch.parquet"), ["--engine", "local", "--json"]
    model = FIRST
    for what, (marks, expected) in MARKS.items():
        feed = changed(range(30, 34), what)
        pq.write_table(feed.append_column("op", pa.array(marks)), batch)
        before = commits(lake), files_of(lake.root, index)
        code, out, err = run("upsert", index, batch, "--delete-where", "op", *local)
        if isinstance(expected, str):
            assert (code, out, expected in err.splitlines()[-1]) == (2, "", True), (what, err)
            assert (commits(lake), files_of(lake.root, index)) == before
            continue
        assert (code, json.loads(out)["deleting"]) == (0, expected), what
        words = [str(mark).lower() for mark in pa.array(marks).to_pylist()]
        gone = [n for n, word in zip(range(30, 34), words, strict=True) if word in ("d", "delete", "true")]
        model = after(changed([n for n in range(30, 34) if n not in gone], what), without=gone, of=model)
    check(lake, index, model)


def test_wrong_batches_and_options_are_one_line_and_nothing_is_written(
    lake: AnyLake, index: str, run: Run, tmp_path: Path
) -> None:
    good = changed([1, 50])
    batches = {
        "good": good,
        "less": good.drop_columns("part"),
        "more": good.append_column("extra", pa.array([1, 2])),
        "no key": good.drop_columns("id"),
        "twice": pa.concat_tables([good, good]),
        "several": changed([3]),
        "null": pa.concat_tables([good, good.set_column(0, "id", pa.array([None, None], pa.int64()))]),
    }
    for name, table in batches.items():
        pq.write_table(table, tmp_path / f"{name}.parquet")
    lake.append(rows(3, 4))
    run("delete", index, "1000")
    before = commits(lake), files_of(lake.root, index)
    insert = "--insert-only: expected no other option of changes"
    for words, code, says in (
        (["less"], 2, "its columns are not the source's: part is missing; nothing was written"),
        (["more"], 2, "its columns are not the source's: extra is not a column of the source; nothing was written"),
        (["no key"], 2, "its columns are not the source's: id is missing"),
        (["twice"], 2, "and nothing says which is the last; name the column that orders them with --order-by"),
        (["several"], 2, "1 keys of the batch have several rows, such as id 3 with 2; --all"),
        (["null"], 2, "a row has a null in its key"),
        (["nowhere"], 3, "nowhere.parquet: no such file or folder; expected a batch"),
        (["good", "--order-by", "nothing"], 2, "order_by: the batch has no column nothing"),
        (["good", "--delete-where", "gone"], 2, "no column gone, which marks deletes; it has id, day, part, info"),
        (["more", "--delete-where-null", "extra"], 2, "extra is not a column of the source"),
        (["good", "--delete-where", "op", "--delete-where-null", "day"], 2, "expected one of delete_where and"),
        (["good", "--insert-only", "--update-only"], 2, insert),
        (["good", "--insert-only", "--all"], 2, insert),
        (["good", "--insert-only", "--delete-where", "op"], 2, insert),
        (["good", "--insert-only", "--null-keys", "refuse"], 2, insert),
        (["good", "--format", "x"], 2, "format: expected one of auto, parquet,"),
        (["good", "--dry-run"], 2, "No such option: --dry-run"),
    ):
        found, out, err = run("upsert", index, str(tmp_path / f"{words[0]}.parquet"), "--engine", "local", *words[1:])
        assert (found, out, says in err.splitlines()[-1]) == (code, "", True), (words, err)
        assert commits(lake) == before[0]
        assert files_of(lake.root, index) - before[1] == set(), words


# -- pointers ----------------------------------------------------------------------------------------------------------


def test_pointers_are_the_files_and_positions_that_other_readers_see(
    lake: AnyLake, index: str, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    """DuckDB numbers the rows of the live files."""
    lake.append(rows(50, 60))
    lake.append(rows(3, 4))
    assert main(["delete", index, "5", "51"]) == 0
    build(None, lake.name, index, ["id"])
    live = [path.removeprefix("file://") for path in lake.files()]
    query = (
        "select filename, file_row_number from read_parquet(?, file_row_number=true, filename=true) where id in (3, 52)"
    )
    expected = sorted(duckdb.execute(query, [live]).fetchall())
    assert len(expected) == 3
    keys = ["52", "3"]
    capfdbinary.readouterr()
    assert main(["get", index, *keys, "--pointers-only"]) == 0
    found = [json.loads(line) for line in capfdbinary.readouterr().out.splitlines()]
    assert found == [{"file_path": path, "pos": number} for path, number in expected]
    assert main(["get", index, *keys, "--pointers-only", "--format", "csv"]) == 0
    lines = capfdbinary.readouterr().out.decode().splitlines()
    assert lines == ["file_path,pos", *(f"{path},{number}" for path, number in expected)]
    assert main(["get", index, *keys, "5", "51", "--pointers-only", "--format", "arrow"]) == 1
    out, err = capfdbinary.readouterr()
    table = pa.ipc.open_stream(out).read_all()
    assert table.schema == pa.schema([("file_path", pa.string()), ("pos", pa.int64())])
    assert [tuple(one.values()) for one in table.to_pylist()] == expected
    assert [line.split()[3] for line in err.decode().splitlines()] == ["5", "51"]
    assert main(["get", index, "5", "--pointers-only", "--format", "arrow"]) == 1
    assert pa.ipc.open_stream(capfdbinary.readouterr().out).read_all().num_rows == 0


def test_pointers_of_plain_files_are_positions_and_of_text_are_refused(tmp_path: Path, run: Run) -> None:
    write_source(tmp_path / "source", {"a.parquet": rows(0, 3), "b.parquet": rows(2, 5)})
    index_source(tmp_path / "source", tmp_path / "index", ["id"])
    code, out, _ = run("get", str(tmp_path / "index"), "2", "--pointers-only", "--format", "csv")
    source = tmp_path / "source"
    assert (code, out) == (0, f"file_path,pos\n{source}/a.parquet,2\n{source}/b.parquet,0\n")
    for words in (["--limit", "1"], ["--columns", "id"], ["--explain"]):
        code, out, err = run("get", str(tmp_path / "index"), "2", "--pointers-only", *words)
        assert (code, out, "--pointers-only reads no rows" in err) == (2, "", True)
    (tmp_path / "text").mkdir()
    (tmp_path / "text/a.csv").write_text("id,v\n1,a\n")
    build(None, str(tmp_path / "text"), str(tmp_path / "of text"), ["id"], options={"header": "true"})
    code, out, err = run("get", str(tmp_path / "of text"), "1", "--pointers-only")
    assert (code, out, "rows of csv files have no numbers; expected Parquet or ORC" in err) == (2, "", True)
    golden = next(table for table in TABLES if table.name == "iceberg_formats")
    build(None, f"iceberg:{golden.versions[-1].metadata}", str(tmp_path / "formats"), ["id"])
    said = []
    for one in golden.versions[-1].rows():
        code, out, err = run("get", str(tmp_path / "formats"), str(one["id"]), "--pointers-only", "--format", "csv")
        place = out.partition("\n")[2]
        said.append((code, place.partition(",")[0].rpartition(".")[2], "rows of avro files have no numbers" in err))
        if code == 0:
            path, _, number = place.rpartition(",")
            read = orc.read_table(path) if path.endswith(".orc") else pq.ParquetFile(path).read()
            assert read["id"][int(number)].as_py() == one["id"]
    assert set(said) == {(0, "parquet", False), (0, "orc", False), (2, "", True)}
    assert open_index(tmp_path / "index").fetch(2) == [row(2), row(2)]
