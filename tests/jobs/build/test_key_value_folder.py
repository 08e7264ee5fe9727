"""jobs/build/key_value_folder.py: rows in a key-value folder, compared with a dict of the same rows."""

import datetime as dt
import decimal
import importlib
import json
import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gnomon.__main__ import main
from gnomon.btree import BTreeReader
from gnomon.btree.__main__ import run
from gnomon.jobs.build import LocalValues, build, write_btree, write_rows
from gnomon.jobs.dedup import append_new
from gnomon.jobs.load import load
from gnomon.shadow import BTreeError, DamagedMetadata, NewerFormat, SpecMismatch, UsageError
from gnomon.shadow.errors import ConcurrentCommit
from gnomon.shadow.maintenance.compaction import compact, rebucket
from gnomon.shadow.maintenance.vacuuming import vacuum
from gnomon.shadow.metadata import history
from gnomon.shadow.metadata.spec import parse_spec
from gnomon.shadow.storage import storage_at
from gnomon.shadow.verify.snapshot import verify
from gnomon.sources.types import parse_ddl
from tests.opened import open_index

# In the package, `build` and `key_value_folder` are not the modules that tests change.
module = importlib.import_module("gnomon.jobs.build.key_value_folder")

TYPES = {
    "s": "string",
    "b": "boolean",
    "i1": "tinyint",
    "i2": "smallint",
    "i4": "int",
    "i8": "bigint",
    "f4": "float",
    "f8": "double",
    "d": "date",
    "t": "timestamp",
    "n": "timestamp_ntz",
    "dec": "decimal(38,3)",
    "bin": "binary",
}
MOMENT = dt.datetime(2026, 1, 2, 3, 4, 5, 678901)
FULL = {
    "s": "é\x00😀",
    "b": True,
    "i1": -128,
    "i2": 32767,
    "i4": -(2**31),
    "i8": 2**63 - 1,
    "f4": 0.5,
    "f8": -1e300,
    "d": dt.date(1, 1, 1),
    "t": MOMENT.replace(tzinfo=dt.UTC),
    "n": MOMENT,
    "dec": decimal.Decimal("-12345678901234567890123456789012345.678"),
    "bin": b"\xff\x00",
}


def table(rows: Sequence[Sequence[Any]], columns: str) -> pa.Table:
    """Rows as an Arrow table, with columns as Spark declares them."""
    schema = parse_ddl(columns)
    return pa.table([pa.array([row[i] for row in rows], one.type) for i, one in enumerate(schema)], schema=schema)


def rows_of(location: str, keys: list[Any]) -> list[list[dict[str, Any]]]:
    return open_index(location).fetch_many(keys)


def files(location: str) -> list[Path]:
    return sorted(Path(location).glob("*.btree.avro"))


@pytest.fixture
def location(tmp_path: Path) -> str:
    return str(tmp_path / "values")


def test_every_type_comes_back_as_it_was_and_null_as_null(location: str) -> None:
    schema = ", ".join(["k int", *(f"{name} {kind}" for name, kind in TYPES.items())])
    odd = {**FULL, "f4": -0.0, "f8": float("nan"), "s": "", "bin": b""}
    rows = [(1, *FULL.values()), (2, *[None] * len(TYPES)), (4, *odd.values())]
    result = write_btree(table(rows, schema), location, ["k"])
    assert (result.snapshot, result.rows, result.total_rows, result.index_files) == (1, 3, 3, 1)
    index = open_index(location)
    assert index.get(1) == [{"k": 1, **FULL}]
    assert index.get(2) == [{"k": 2, **dict.fromkeys(TYPES)}]
    assert index.get(3) == []
    assert repr(index.get(4)) == repr([{"k": 4, **odd}])
    assert index.get(1, ["f8", "k"]) == [{"f8": FULL["f8"], "k": 1}]
    assert index.fetch(1) == index.get(1)


def test_every_type_is_a_key_too(location: str) -> None:
    schema = ", ".join([*(f"{name} {kind}" for name, kind in TYPES.items()), "v int"])
    frame = table([(*FULL.values(), 1), (*[None] * len(TYPES), 2)], schema)
    write_btree(frame, location, list(TYPES), buckets=3)
    index = open_index(location)
    assert index.get(FULL) == [{**FULL, "v": 1}]
    assert index.get(dict.fromkeys(TYPES)) == [{**dict.fromkeys(TYPES), "v": 2}]


@pytest.mark.parametrize("seed", range(3))
def test_the_folder_is_a_dict_of_lists(location: str, seed: int) -> None:
    chance = random.Random(seed)
    keys = [*range(40), None]
    words = [None, "", "a", "ü", "long " * 300]
    rows = [
        (chance.choice(words), chance.choice(keys), chance.choice(words), i, chance.choice(words))
        for i in range(chance.choice([0, 1, 700]))
    ]
    expected = defaultdict(list)
    for row in rows:
        expected[row[1], row[4]].append(row)
    frame = table(rows, "first string, n bigint, `b.c` string, i int, data_offset string")
    result = write_btree(frame, location, ["n", "data_offset"], buckets=chance.choice([1, 4, None]))
    assert result.rows == len(rows) == sum(entries_of(path) for path in files(location))
    index = open_index(location)
    asked = [(n, word) for n in [*keys, -1] for word in [*words, "absent"]]
    for key, found in zip(asked, index.fetch_many(asked), strict=True):
        assert sorted(map(str, map(tuple, map(dict.values, found)))) == sorted(map(str, expected[key]))
        assert index.contains(key) == (key in expected and bool(expected[key]))
        assert all(list(row) == frame.column_names for row in found)


def entries_of(path: Path) -> int:
    with storage_at(str(path.parent)).open(path.name) as reader:
        return BTreeReader(reader).check()


def test_the_commands_answer(location: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    frame = table([(f"v{i}", i % 9, dt.date(2026, 1, 1 + i % 9)) for i in range(18)], "v string, k int, d date")
    write_btree(frame, location, ["k"], buckets=2)
    assert main(["get", location, "3", "10"]) == 1
    said = capsys.readouterr()
    assert sorted(said.out.splitlines()) == [f'{{"v": "{v}", "k": 3, "d": "2026-01-04"}}' for v in ("v12", "v3")]
    assert said.err == "gnomon: not found: 10 (snapshot 1 covers 18 rows)\n"
    assert main(["inspect", location]) == 0
    assert "source     none: the entries hold the values" in capsys.readouterr().out
    assert main(["verify", location, "--all"]) == 0
    assert "sound; read 2 index files" in capsys.readouterr().out
    assert main(["history", location]) == 0
    assert "18 rows written" in capsys.readouterr().out
    for name in files(location):
        assert run(["dump", str(name)]) == 0
    dumped = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert sorted(one["value"]["v"] for one in dumped) == sorted(f"v{i}" for i in range(18))


def test_writing_again_is_refused_unless_asked_for(location: str) -> None:
    one = table([(1, "a"), (2, "b")], "k int, v string")
    write_btree(one, location, ["k"])
    with pytest.raises(UsageError, match=r"2 rows were written there before; say mode='overwrite'"):
        write_btree(one, location, ["k"])
    reader = open_index(location)
    old = open_index(location, snapshot=1)
    other = table([("x", 2.5, 1)], "k string, w double, v int")
    result = write_btree(other, location, ["k"], mode="overwrite")
    assert (result.snapshot, result.rows, result.total_rows) == (2, 1, 1)
    assert reader.get(1) == [{"k": 1, "v": "a"}]  # the snapshot that was opened
    assert reader.refresh()
    assert reader.get("x") == open_index(location).get("x") == [{"k": "x", "w": 2.5, "v": 1}]
    assert old.get(2) == [{"k": 2, "v": "b"}]
    vacuum(storage_at(location), keep=1, grace_seconds=0)
    assert len(files(location)) == 1
    assert verify(storage_at(location)).is_sound


def test_files_of_others_are_not_written_among(tmp_path: Path) -> None:
    frame = table([(1, "a")], "k int, v string")
    (tmp_path / "table").mkdir()
    pq.write_table(frame, tmp_path / "table/part-0.parquet")
    before = sorted(path.name for path in (tmp_path / "table").iterdir())
    for mode in ("error", "append", "overwrite"):
        with pytest.raises(UsageError, match=r"other files are there \(part-.*parquet\); expected an empty folder"):
            write_btree(frame, str(tmp_path / "table"), ["k"], mode=mode)
    assert sorted(path.name for path in (tmp_path / "table").iterdir()) == before
    killed = tmp_path / "values/20260101T000000-000000000000_00000.btree.avro"  # a first write that did not commit
    killed.parent.mkdir()
    killed.write_bytes(b"Obj")
    write_btree(frame, str(tmp_path / "values"), ["k"])
    assert open_index(str(tmp_path / "values")).get(1) == [{"k": 1, "v": "a"}]


def test_rows_are_added_and_merged(location: str) -> None:
    def frame(begin: int, end: int) -> Any:
        return table([(k, str(2 * k)) for k in range(begin, end)], "k bigint, v string")

    write_btree(frame(0, 100), location, ["k"], buckets=3)
    added = write_btree(frame(50, 150), location, ["k"], mode="append")
    assert (added.snapshot, added.rows, added.total_rows, added.buckets) == (2, 100, 200, 3)
    assert write_btree(frame(0, 0), location, ["k"], mode="append").snapshot == 2
    with pytest.raises(SpecMismatch, match="include"):
        write_btree(frame(0, 1).append_column("more", pa.array([1])), location, ["k"], mode="append")

    def answers() -> list[int]:
        found = rows_of(location, list(range(151)))
        assert all(row == {"k": k, "v": str(2 * k)} for k, rows in enumerate(found) for row in rows)
        return [len(rows) for rows in found]

    expected = [1] * 50 + [2] * 50 + [1] * 50 + [0]
    assert answers() == expected
    assert compact(storage_at(location)).segments == 1
    assert answers() == expected
    assert rebucket(storage_at(location), 7).buckets == 7
    assert answers() == expected
    report = verify(storage_at(location))
    assert (report.is_sound, report.entries) == (True, 200)
    assert [one.operation for one in history(storage_at(location))] == ["write", "write", "compact", "rebucket"]


@pytest.mark.parametrize("mode", ["error", "overwrite", "append"])
def test_of_writes_at_once_one_counts_or_all_rows_of_both(
    location: str, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = (table([(k, who)], "k int, v string") for k, who in ((1, "ours"), (2, "theirs")))
    if mode != "error":
        write_btree(table([(3, "before")], "k int, v string"), location, ["k"])
    real = module.index_rows

    def late(*given: Any) -> Any:
        monkeypatch.undo()
        write_btree(theirs, location, ["k"], mode=mode)
        return real(*given)

    monkeypatch.setattr(module, "index_rows", late)
    if mode == "append":
        assert write_btree(ours, location, ["k"], mode=mode).total_rows == 3
    else:
        with pytest.raises(ConcurrentCommit):
            write_btree(ours, location, ["k"], mode=mode)
    found = [row["v"] for rows in rows_of(location, [1, 2, 3]) for row in rows]
    assert found == (["ours", "theirs", "before"] if mode == "append" else ["theirs"])
    assert verify(storage_at(location)).is_sound


def test_damage_is_found(location: str) -> None:
    write_btree(table([(i, "x") for i in range(1000)], "id bigint, v string"), location, ["id"])
    [path] = files(location)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    report = verify(storage_at(location))
    assert [fault.path for fault in report.faults] == [str(path)]


def test_rows_without_source_columns_are_refused_where_a_source_is_needed(location: str, tmp_path: Path) -> None:
    frame = table([(1, "a")], "k int, v string")
    (tmp_path / "source").mkdir()
    pq.write_table(frame, tmp_path / "source/a.parquet")
    write_btree(frame, location, ["k"])
    for refused in (
        lambda: build(None, str(tmp_path / "source"), location, ["k"]),
        lambda: build(None, str(tmp_path / "source"), location, ["k"], full=True),
        lambda: build(None, location, str(tmp_path / "of values"), ["k"]),
        lambda: load(None, location, frame.select(["k"])),
        lambda: append_new(None, location, frame, "batch"),
        lambda: open_index(location).lookup(1),
    ):
        with pytest.raises(UsageError, match=r"a key-value folder|an index lies there"):
            refused()
    assert not (tmp_path / "of values").exists()
    assert open_index(location).coverage().is_empty
    build(None, str(tmp_path / "source"), str(tmp_path / "index"), ["k"])
    with pytest.raises(UsageError, match="the index of a source lies there"):
        write_btree(frame, str(tmp_path / "index"), ["k"], mode="overwrite")


def test_get_of_an_index_gives_its_entries(tmp_path: Path) -> None:
    frame = table([(1, "a", dt.date(2026, 1, 1), "p")], "k int, v string, d date, part string")
    (tmp_path / "source/part=p").mkdir(parents=True)
    pq.write_table(frame.drop_columns(["part"]), tmp_path / "source/part=p/a.parquet")
    build(None, str(tmp_path / "source"), str(tmp_path / "index"), ["k"], include=["d"])
    [entry] = open_index(str(tmp_path / "index")).get(1)
    [pointer] = open_index(str(tmp_path / "index")).lookup(1)
    assert entry == {"k": 1, "d": dt.date(2026, 1, 1), "part": "p", **pointer._asdict()}


def test_a_program_that_does_not_know_values_refuses_them(location: str) -> None:
    """The older program compared only the layout, and does not know this one."""
    write_btree(table([(1, "a")], "k int, v string"), location, ["k"])
    spec = open_index(location).spec.to_json()
    assert spec["layout"] not in ("partitioned", "flat")
    assert {"location", "single_file", "format"} <= set(spec["source"])  # members that it reads first
    for wrong in ({**spec, "layout": "partitioned"}, {**spec, "source": {**spec["source"], "format": "parquet"}}):
        with pytest.raises(NewerFormat):
            parse_spec(wrong, "here")


INT = pa.int32()


@pytest.mark.parametrize(
    ("columns", "keys", "what"),
    [
        (
            {"k": INT, "v": pa.list_(INT)},
            ["k"],
            r"column v of type list<.*> cannot be stored; write it as text, with to_j",
        ),
        ({"k": pa.map_(pa.string(), INT), "v": INT}, ["k"], r"column k of type map<.*; write it as text"),
        ({"k": INT, "v": pa.struct([("a", INT)])}, ["k"], r"column v of type struct<.*; write it as text"),
        ({"k": INT, "v": pa.month_day_nano_interval()}, ["k"], r"column v of type month_day_nano_interval .*; cast it"),
        ({"k": INT, "v": pa.uint32()}, ["k"], r"column v of type uint32 cannot be stored; cast it to another type"),
        ({"k": pa.timestamp("ns"), "v": INT}, ["k"], r"column k of type timestamp\[ns\] cannot be stored; cast it"),
        ({"k": INT, "v": pa.time64("us")}, ["k"], r"column v of type time64\[us\] cannot be stored"),
        ({"k": INT, "v": pa.uuid()}, ["k"], r"column v of type extension<arrow.uuid> cannot be stored"),
        ({"k": INT, "v": pa.decimal256(50, 2)}, ["k"], r"column v of type decimal256\(50, 2\) cannot be stored"),
        ({"k": INT, "v": pa.null()}, ["k"], r"column v of type null cannot be stored"),
        ({"k": INT}, ["k"], "needs a column beside the key"),
        ({"k": INT, "v": INT}, ["k", "k"], "named twice"),
        ({"k": INT, "v": INT}, [], "expected a list of column names"),
        ({"k": INT, "v": INT}, "kv", "expected a list of column names"),
        ({"k": INT, "v": INT}, [1], r"^keys: expected a list of column names, found \[1\]$"),
        ({"k": INT, "v": INT}, ["x"], "there is no column x; there are k, v"),
        ([("k", INT), ("v", INT), ("v", INT)], ["k"], "column v: there are several"),
        ({"k": INT, "__gnomon_group": INT}, ["k"], "Spark or Gnomon uses this name"),
    ],
)
def test_columns_that_cannot_be_stored_are_named(location: str, columns: Any, keys: list[str], what: str) -> None:
    with pytest.raises(UsageError, match=what):
        write_btree(pa.schema(columns).empty_table(), location, keys)
    assert not Path(location).exists()


ALIKE = {
    "large_string": (pa.large_string(), ["a", None, "é"], "string"),
    "string_view": (pa.string_view(), ["a", None, "é"], "string"),
    "dictionary": (pa.dictionary(pa.int8(), pa.string()), ["a", None, "é"], "string"),
    "large_binary": (pa.large_binary(), [b"a", None, b""], "binary"),
    "timestamp[s]": (pa.timestamp("s"), [MOMENT.replace(microsecond=0), None], "timestamp_ntz"),
    "timestamp[ms, +02:00]": (
        pa.timestamp("ms", "+02:00"),
        [dt.datetime(2026, 1, 2, tzinfo=dt.UTC), None],
        "timestamp",
    ),
    "date64": (pa.date64(), [dt.date(2026, 1, 2), None], "date"),
    "decimal32": (pa.decimal32(7, 2), [decimal.Decimal("-1.50"), None], "decimal(7,2)"),
    "decimal256": (pa.decimal256(38, 2), [decimal.Decimal("-1.50"), None], "decimal(38,2)"),
}


PLACES = [
    (name, place)
    for name, (_, _, stored) in ALIKE.items()
    for place in ("key", "value", "partition")
    if place != "partition" or stored in module.FOLDER_TYPES or stored.startswith("decimal")
]


@pytest.mark.parametrize(("name", "place"), PLACES)
def test_other_arrow_types_are_stored_in_the_types_of_spark(location: str, name: str, place: str) -> None:
    arrow, values, stored = ALIKE[name]
    rows = pa.table({"x": pa.array(values, arrow), "i": range(len(values)), "v": range(len(values))})
    given = {"keys": ["x"] if place == "key" else ["i"], "partitions": ["x"] if place == "partition" else []}
    write_btree(rows, location, **given)
    index = open_index(location)
    spec = index.spec
    known = {one.name: one.type for one in (*spec.keys, *spec.include)} | dict(spec.partition_types)
    assert known["x"] == stored
    assert [one.source_type for one in (*spec.keys, *spec.include)] == [None] * len((*spec.keys, *spec.include))
    found = sorted(
        (row["i"], row["x"]) for key in (values if place == "key" else rows["i"].to_pylist()) for row in index.get(key)
    )
    assert found == list(enumerate(values))
    assert verify(storage_at(location), sample=None).is_sound


def test_rows_that_exceed_their_type_are_refused_and_nothing_is_committed(location: str) -> None:
    for column, wanted in (
        (pa.array([86_400_001], pa.date64()), "date"),
        (pa.array([b"\xff"]).view(pa.string()), "string"),
        (pa.array(["x" * (5 << 20)]), "limit"),
    ):
        rows = pa.table({"k": [1], "v": column})
        with pytest.raises(BTreeError, match=wanted):
            write_btree(rows, location, ["k"])
    assert not list(Path(location).rglob("*.json"))
    with pytest.raises(UsageError, match="rows: expected an Arrow table, or a reader of batches, found list"):
        write_btree([1], location, ["k"])  # type: ignore[arg-type]


def test_rows_of_a_reader_are_read_once_and_beyond_the_memory(location: str, tmp_path: Path) -> None:
    rows = table([(i % 500, f"value {i % 7}", i) for i in range(60_000)], "k int, v string, n bigint")
    read = []

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in rows.to_batches(max_chunksize=1000):
            read.append(batch.num_rows)
            yield batch

    reader = pa.RecordBatchReader.from_batches(rows.schema, batches())
    spilled = write_rows(LocalValues(reader, memory=1 << 20), location, ["k"], buckets=16, partitions=["v"])
    assert (sum(read), spilled.rows) == (60_000, 60_000)
    whole = write_btree(rows, tmp_path / "whole", ["k"], buckets=16, partitions=["v"])
    assert (whole.index_files, whole.index_bytes) == (spilled.index_files, spilled.index_bytes)
    for key in (0, 499):
        assert open_index(location).get(key) == open_index(tmp_path / "whole").get(key)
        assert sorted(row["n"] for row in open_index(location).get(key)) == list(range(key, 60_000, 500))
    assert verify(storage_at(location), sample=None).is_sound


def test_rows_of_one_key_are_sorted_by_their_values(location: str) -> None:
    """So a write of the same rows in another order makes the same entries."""
    rows = [(1, None, 2.5), (1, "b", None), (1, "b", float("nan")), (1, "a", 1.0), (None, "a", 0.0)]
    for chance in range(3):
        given = random.Random(chance).sample(rows, len(rows))
        write_btree(table(given, "k int, v string, w double"), location, ["k"], mode="overwrite")
        found = [(row["v"], str(row["w"])) for row in open_index(location).get(1)]
        assert found == [(None, "2.5"), ("a", "1.0"), ("b", "None"), ("b", "nan")]


@pytest.mark.parametrize("buckets", [0, 2**16 + 1, 2.5, "4"])
def test_a_number_of_buckets_that_is_none_is_refused(tmp_path: Path, buckets: Any) -> None:
    location = str(tmp_path / "values")
    frame = table([(1, "a")], "k int, v string")
    refused = pytest.raises(UsageError, match=f"^buckets: expected 1 to 65536, found {buckets!r}$")
    with refused:
        write_btree(frame, location, ["k"], buckets=buckets)
    assert not Path(location).exists()
    write_btree(frame, location, ["k"])
    with refused:
        rebucket(storage_at(location), buckets)
    with refused:
        build(None, str(tmp_path / "source"), str(tmp_path / "index"), ["k"], buckets=buckets)


# -- partitions --------------------------------------------------------------------------------------------------------


def days(counts: dict[dt.date | None, int], begin: int = 0) -> Any:
    """For each day as many rows as given; the numbers go on from day to day."""
    rows = [(n, day, f"v{n}") for day, count in counts.items() for n in range(begin, begin + count)]
    return table(rows, "n bigint, day date, v string")


DAYS = [dt.date(2026, 1, day) for day in (1, 2, 3)]


@pytest.fixture
def small_buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ENTRIES_PER_BUCKET", 10)


@pytest.mark.usefixtures("small_buckets")
def test_each_partition_has_its_own_number_of_buckets(location: str) -> None:
    counts = {DAYS[0]: 75, DAYS[1]: 25, DAYS[2]: 3, None: 1}
    result = write_btree(days(counts), location, ["n"], partitions=["day"])
    assert (result.rows, result.buckets) == (104, 8)
    index = open_index(location)
    assert index.spec.folder_buckets == {
        "day=2026-01-01": 8,
        "day=2026-01-02": 4,
        "day=2026-01-03": 1,
        "day=__HIVE_DEFAULT_PARTITION__": 1,
    }
    for folder, number in index.spec.folder_buckets.items():
        names = {int(path.name.split("_")[1][:5]) for path in Path(location, folder).glob("*.btree.avro")}
        assert names <= set(range(number))
    keys = list(range(80))
    expected = [[{"n": n, "v": f"v{n}", "day": day} for day, count in counts.items() if n < count] for n in keys]
    found = index.fetch_many(keys)
    assert [sorted(rows, key=str) for rows in found] == [sorted(rows, key=str) for rows in expected]
    for n in (0, 2, 24, 74, 75):
        assert sorted(index.get(n), key=str) == sorted(expected[n], key=str)
        for day in (*DAYS, None):
            of_day = [row for row in expected[n] if row["day"] == day]
            assert index.get(n, where={"day": day}) == of_day
        assert index.contains(n) == bool(expected[n])
    report = verify(storage_at(location), sample=None)
    assert (report.is_sound, report.entries) == (True, 104)


@pytest.mark.usefixtures("small_buckets")
def test_rows_are_added_to_partitions_old_and_new_and_merged(location: str) -> None:
    write_btree(days({DAYS[0]: 75, DAYS[1]: 3}), location, ["n"], partitions=["day"])
    added = write_btree(
        days({DAYS[1]: 75, DAYS[2]: 15}, begin=1000), location, ["n"], mode="append", partitions=["day"]
    )
    assert (added.total_rows, added.buckets) == (168, 8)
    numbers = {"day=2026-01-01": 8, "day=2026-01-02": 1, "day=2026-01-03": 2}
    keys = [*range(80), *range(1000, 1080)]
    before = open_index(location).fetch_many(keys)
    assert [len(rows) for rows in before] == [2] * 3 + [1] * 72 + [0] * 5 + [2] * 15 + [1] * 60 + [0] * 5

    def same() -> bool:
        index = open_index(location)
        assert verify(storage_at(location), sample=None).is_sound
        return [sorted(rows, key=str) for rows in index.fetch_many(keys)] == [sorted(rows, key=str) for rows in before]

    assert open_index(location).spec.folder_buckets == numbers
    assert compact(storage_at(location)).segments == 1
    assert open_index(location).spec.folder_buckets == numbers
    assert same()
    assert rebucket(storage_at(location), 8).buckets == 8
    assert open_index(location).spec.folder_buckets == {}
    assert same()
    with pytest.raises(UsageError, match="a key-value folder keeps its partition folders"):
        rebucket(storage_at(location), flat=True)
    write_btree(days({DAYS[0]: 5}), location, ["n"], mode="append", partitions=["day"])
    before = [
        [*rows, *([{"n": n, "v": f"v{n}", "day": DAYS[0]}] if n < 5 else [])]
        for n, rows in zip(keys, before, strict=True)
    ]
    assert open_index(location).spec.folder_buckets["day=2026-01-01"] == 8
    assert same()
    with pytest.raises(SpecMismatch, match="partitions"):
        write_btree(days({DAYS[0]: 1}), location, ["n"], mode="append")
    replaced = write_btree(days({DAYS[2]: 1}), location, ["n"], mode="overwrite", partitions=["day"])
    assert (replaced.total_rows, replaced.buckets) == (1, 1)


PARTITION_VALUES: dict[str, list[Any]] = {
    "string": ["a", "", "é/=%", "ab:c", None],
    "boolean": [True, False, None],
    "int": [-7, 0, None],
    "bigint": [2**62, None],
    "date": [dt.date(1, 1, 1), dt.date(9999, 12, 31), None],
    "decimal(7,2)": [decimal.Decimal("-1.50"), decimal.Decimal("0.00"), None],
}


@pytest.mark.parametrize("kind", PARTITION_VALUES)
def test_partition_values_come_back_in_their_type(location: str, kind: str) -> None:
    rows = [(f"k{i}", value, i) for i, value in enumerate(PARTITION_VALUES[kind])]
    write_btree(table(rows, f"k string, p {kind}, i int"), location, ["k"], partitions=["p"])
    index = open_index(location)
    for k, value, i in rows:
        assert index.get(k) == index.fetch(k) == [{"k": k, "i": i, "p": value}]


@pytest.mark.usefixtures("small_buckets")
def test_an_append_that_a_rebucket_overtakes_is_refused(location: str, monkeypatch: pytest.MonkeyPatch) -> None:
    write_btree(days({DAYS[0]: 75, DAYS[1]: 3}), location, ["n"], partitions=["day"])
    real = module.index_rows

    def late(*given: Any) -> Any:
        rebucket(storage_at(location), 8)
        return real(*given)

    monkeypatch.setattr(module, "index_rows", late)
    with pytest.raises(ConcurrentCommit, match="with 8 buckets in day=2026-01-02, where 1 were written"):
        write_btree(days({DAYS[1]: 5}, 100), location, ["n"], mode="append", partitions=["day"])
    assert verify(storage_at(location), sample=None).is_sound


def test_names_with_dots_and_backticks_are_columns(location: str) -> None:
    frame = table([(1, "x", 2)], "`k.1` int, `p``2` string, `v.3` int")
    write_btree(frame, location, ["k.1"], partitions=["p`2"])
    assert open_index(location).get(1) == [{"k.1": 1, "v.3": 2, "p`2": "x"}]


def test_a_key_may_contain_a_partition_column(location: str) -> None:
    frame = table([("a", "x", 1), ("b", "x", 2), ("a", "y", 3)], "p string, k string, v int")
    write_btree(frame, location, ["p", "k"], partitions=["p"])
    index = open_index(location)
    assert index.get({"p": "a", "k": "x"}) == [{"k": "x", "v": 1, "p": "a"}]
    assert [len(rows) for rows in index.fetch_many([("a", "x"), ("b", "x"), ("b", "y"), ("a", "y")])] == [1, 1, 0, 1]


@pytest.mark.usefixtures("small_buckets")
def test_the_commands_answer_for_partitions(location: str, capsys: pytest.CaptureFixture[str]) -> None:
    write_btree(days({DAYS[0]: 30, DAYS[1]: 3}), location, ["n"], partitions=["day"])
    assert main(["get", location, "1"]) == 0
    assert sorted(capsys.readouterr().out.splitlines()) == [
        f'{{"n": 1, "v": "v1", "day": "{day}"}}' for day in DAYS[:2]
    ]
    assert main(["verify", location, "--all"]) == 0
    assert "looked up 35 keys of 2 of 2 partitions" in capsys.readouterr().out
    assert main(["inspect", location]) == 0
    assert "values by partition" in capsys.readouterr().out
    assert main(["vacuum", location, "--keep", "1"]) == 0


def test_an_older_program_refuses_a_folder_with_partitions(location: str) -> None:
    """It compares the layout, and does not know this one."""
    write_btree(days({DAYS[0]: 1}), location, ["n"], partitions=["day"])
    content = open_index(location).spec.to_json()
    assert content["layout"] not in ("partitioned", "flat", "values")
    with pytest.raises(NewerFormat):
        parse_spec({**content, "layout": "values"}, "here")
    with pytest.raises(DamagedMetadata, match="expected a number of buckets that divides 1, found 3"):
        parse_spec({**content, "folder_buckets": {"day=2026-01-01": 3}}, "here")


@pytest.mark.usefixtures("small_buckets")
@pytest.mark.parametrize("theirs", [1, 25])
def test_of_appends_at_once_to_a_new_partition_all_rows_count_or_one_fails(
    location: str, theirs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_btree(days({DAYS[0]: 75}), location, ["n"], partitions=["day"])
    real = module.index_rows

    def late(*given: Any) -> Any:
        monkeypatch.setattr(module, "index_rows", real)
        write_btree(days({DAYS[1]: theirs}, 5000), location, ["n"], mode="append", partitions=["day"])
        return real(*given)

    monkeypatch.setattr(module, "index_rows", late)
    ours = days({DAYS[1]: 5, DAYS[2]: 5})
    if theirs == 1:
        assert write_btree(ours, location, ["n"], mode="append", partitions=["day"]).total_rows == 86
    else:
        with pytest.raises(ConcurrentCommit, match="with 4 buckets in day=2026-01-02, where 1 were written"):
            write_btree(ours, location, ["n"], mode="append", partitions=["day"])
    assert verify(storage_at(location), sample=None).is_sound
    found = rows_of(location, [0, 5000])
    assert [len(rows) for rows in found] == ([3, 1] if theirs == 1 else [1, 1])


@pytest.mark.parametrize(
    ("partitions", "what"),
    [
        (["f8"], "expected columns of type .* or decimal, found f8 double"),
        (["x"], "there is no column x"),
        (["s", "s"], "s is named twice"),
        ("s", "expected a list of column names"),
        (["k"], "name a column of the files, too"),
        (["s", "v", "f8"], "expected columns of type"),
        (["s", "v"], "__HIVE_DEFAULT_PARTITION__ is the name of the folder of nulls"),
        (["z"], r"a text has the character U\+0000"),
    ],
)
def test_partition_columns_that_cannot_be_folders_are_named(location: str, partitions: Any, what: str) -> None:
    row = (1, "__HIVE_DEFAULT_PARTITION__", 2.5, 3, 4, "a\0")
    frame = table([row], "k int, s string, f8 double, v int, w int, z string")
    with pytest.raises(UsageError, match=what):
        write_btree(frame, location, ["k"], partitions=partitions)


def test_too_many_partitions_are_refused(location: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_PARTITIONS", 2)
    frame = table([(i, i, 1) for i in range(3)], "id bigint, p bigint, v int")
    with pytest.raises(UsageError, match="expected at most 2 of them, found more"):
        write_btree(frame, location, ["id"], partitions=["p"])


@pytest.mark.usefixtures("small_buckets")
def test_no_rows_with_partitions_make_an_empty_folder(location: str) -> None:
    write_btree(days({}), location, ["n"], partitions=["day"])
    assert open_index(location).get(1) == []
    added = write_btree(days({DAYS[0]: 30}), location, ["n"], mode="append", partitions=["day"])
    assert (added.total_rows, added.buckets) == (30, 1)
    assert len(open_index(location).get(1)) == 1
