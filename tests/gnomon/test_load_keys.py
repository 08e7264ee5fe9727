"""KEYS of gnomon load, in each type and each format: they are the same with Spark and without."""

import csv
import datetime as dt
import json
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gnomon.__main__ import main
from tests.shadow.make_index import index_source, write_source

NS = 1767270600_123456789
NOON = dt.datetime(2026, 1, 1, 12)
UUID_TEXT = "00010203-0405-0607-0809-0a0b0c0d0e0f"
# Name: Arrow type, the key's value, its text.
KEYS: dict[str, tuple[pa.DataType, Any, str]] = {
    "id": (pa.uuid(), bytes(range(16)), UUID_TEXT),
    "ms": (pa.time32("ms"), 45_000_005, "12:30:00.005"),
    "ns": (pa.time64("ns"), 45_000_000_000_005, "12:30:00.000000005"),
    "at": (pa.timestamp("ns", "UTC"), NS, "2026-01-01T12:30:00.123456789Z"),
    "n": (pa.uint64(), 2**64 - 1, str(2**64 - 1)),
    "half": (pa.float16(), np.float16(0.1), "0.1"),
    "fixed": (pa.binary(2), b"\xff\0", "/wA="),
    "day": (pa.date32(), dt.date(2026, 1, 1), "2026-01-01"),
    "moment": (pa.timestamp("us", "UTC"), NOON.replace(tzinfo=dt.UTC), "2026-01-01 14:00+02:00"),
    "in_utc": (pa.timestamp("us", "UTC"), NOON.replace(tzinfo=dt.UTC), "2026-01-01 12:00"),
    "on_clocks": (pa.timestamp("us"), NOON, "2026-01-01T12:00:00"),
    "price": (pa.decimal128(9, 2), Decimal("1.50"), "15e-1"),
    "flag": (pa.bool_(), True, "true"),
    "text": (pa.string(), 'say "hi",\n or not ', 'say "hi",\n or not '),
}


@pytest.fixture(params=["local", pytest.param("spark", marks=pytest.mark.spark)])
def engine(request: pytest.FixtureRequest) -> str:
    """The options of an engine."""
    if request.param == "spark":
        request.getfixturevalue("spark")
    return f"--engine={request.param}"


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("keys")
    columns = {name: pa.array([value, None], kind) for name, (kind, value, _) in KEYS.items()}
    write_source(folder / "source", {"a.parquet": pa.table({**columns, "t": pa.array([1, 2], pa.time64("ns"))})})
    index_source(folder / "source", folder / "index", list(KEYS))
    return folder


def as_parquet(path: Path) -> None:
    """In a folder, with a column that is no key and that Spark does not read."""
    path.mkdir()
    table = pa.table({name: pa.array([value], kind) for name, (kind, value, _) in KEYS.items()})
    pq.write_table(table.append_column("seen", pa.array([NS], pa.timestamp("ns"))), path / "part.parquet")
    (path / "_SUCCESS").touch()


def as_csv(path: Path) -> None:
    with path.open("w", newline="", encoding="utf-8-sig") as file:  # with a byte order mark
        csv.writer(file).writerows([KEYS, [text for _, _, text in KEYS.values()], [None] * len(KEYS)])


def as_jsonl(path: Path) -> None:
    rows = [{name: text for name, (_, _, text) in KEYS.items()}, dict.fromkeys(KEYS)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.mark.parametrize(("name", "write"), [("keys", as_parquet), ("keys.csv", as_csv), ("keys.jsonl", as_jsonl)])
def test_keys_of_every_type_are_taken_in_each_format(
    lake: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], engine: str, name: str, write: Any
) -> None:
    write(tmp_path / name)
    assert main(["load", str(lake / "index"), str(tmp_path / name), str(tmp_path / "out"), "--json", engine]) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == 1
    table = pq.read_table(tmp_path / "out")
    assert table["t"].cast(pa.int64()).to_pylist() == [1]
    of_text = {"id": pa.binary(), "n": pa.decimal128(20, 0), "half": pa.float32(), "fixed": pa.binary()}
    expected = {key: value for key, (kind, value, _) in KEYS.items() if key not in ("ms", "ns", "at", "half")}
    assert [str(table.schema.field(key).type.unit) for key in ("moment", "in_utc", "on_clocks")] == ["us"] * 3
    if engine == "--engine=local" and name == "keys":  # whose columns keep their types
        expected["id"] = uuid.UUID(bytes=bytes(range(16)))
    assert {key: table[key].to_pylist() for key in expected} == {key: [value] for key, value in expected.items()}
    if name != "keys":
        assert {key: table.schema.field(key).type for key in of_text} == of_text


def test_options_keep_what_has_no_row_find_nulls_and_tell_of_what_cannot_be_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], engine: str
) -> None:
    write_source(tmp_path / "source", {"a.parquet": pa.table({"k": [1, 2, None, 2], "v": ["a", "b", "c", "d"]})})
    write_source(tmp_path / "source", {"b.parquet": pa.table({"k": [2, 9], "v": ["e", "f"]})})
    index_source(tmp_path / "source", tmp_path / "index", ["k"])
    (tmp_path / "source/b.parquet").unlink()
    (tmp_path / "keys.jsonl").write_text('{"k": 2}\n{"k": "7"}\n{"k": null}\n{"k": 1}\n')
    load = ("load", engine, str(tmp_path / "index"), str(tmp_path / "keys.jsonl"))
    assert main([*load, str(tmp_path / "failed")]) == 3
    assert "b.parquet: the file is gone since it was indexed" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir() if "failed" in path.name] == []  # nothing that looks like rows
    options = ("--how", "left", "--null-safe", "--unreadable", "report")
    assert main([*load, str(tmp_path / "out"), *options, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert {name: told[name] for name in ("rows", "keys", "matched", "unreadable")} == {
        "rows": 6, "keys": 4, "matched": 3, "unreadable": 1,
    }  # fmt: skip
    assert min(told["tasks"], told["index_bytes_read"], told["source_bytes_read"]) > 0
    table = pq.read_table(tmp_path / "out")
    assert table.schema.field("k").type == pa.int64()
    rows = [(row["k"], row["v"], row["data_error"] is None) for row in table.to_pylist()]
    assert sorted(rows, key=repr) == sorted(
        [(2, "b", True), (2, "d", True), (2, None, False), (7, None, True), (None, "c", True), (1, "a", True)], key=repr
    )
    assert main([*load, str(tmp_path / "out 2"), *options]) == 0
    assert "6 rows in" in (line := capsys.readouterr().out)
    assert "1 of them unreadable (data_error says why); 3 of 4 keys found" in line
    assert main([*load, str(tmp_path / "out 3"), "--how", "outer"]) == 2


def test_integers_with_nulls_beside_a_column_that_spark_does_not_read_stay_numbers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], engine: str
) -> None:
    """As pandas writes them: as floats."""
    write_source(tmp_path / "source", {"a.parquet": pa.table({"k": [4, 5], "v": ["x", "y"]})})
    index_source(tmp_path / "source", tmp_path / "index", ["k"])
    pq.write_table(pa.table({"k": [5.0, None], "seen": pa.array([NS, NS], pa.timestamp("ns"))}), tmp_path / "keys")
    assert main(["load", str(tmp_path / "index"), str(tmp_path / "keys"), str(tmp_path / "out"), engine]) == 0
    assert pq.read_table(tmp_path / "out").to_pylist() == [{"k": 5.0, "v": "y"}]


def test_a_damaged_file_of_keys_is_one_short_line_that_begins_with_its_path(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], engine: str
) -> None:
    write_source(tmp_path / "source", {"a.parquet": pa.table({"k": ["key 1", "key 2"]})})
    index_source(tmp_path / "source", tmp_path / "index", ["k"])
    keys = tmp_path / "keys.parquet"
    pq.write_table(pa.table({"k": ["key 1"]}), keys, use_dictionary=False, compression="none")
    sound = keys.read_bytes()
    load = ("load", engine, str(tmp_path / "index"), str(keys), str(tmp_path / "out"))
    for damaged in (sound[:-30], b"text, and not a table", sound[:4] + b"\xff" * 20 + sound[24:]):
        keys.write_bytes(damaged)
        assert main([*load]) == 3
        err = capsys.readouterr().err.splitlines()[-1]
        assert err.startswith(f"gnomon: {keys}")
        assert len(err) < len(str(keys)) + 150
    keys.write_bytes(sound)
    assert main([*load]) == 0
    told = capsys.readouterr().out
    assert told.startswith("1 row in ")
    assert told.endswith(" of the source in 1 task\n")
