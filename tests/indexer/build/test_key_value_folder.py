"""Rows in a key-value folder, compared with a dict of the same rows."""

import datetime as dt
import decimal
import importlib
import json
import random
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType

from gnomon.__main__ import main
from gnomon.btree import BTreeReader
from gnomon.btree.__main__ import run
from gnomon.indexer import build, filter_new, join_with_index, load, read_index, write_btree
from gnomon.indexer.dedup.append import append_new
from gnomon.shadow import DamagedMetadata, NewerFormat, SpecMismatch, UsageError, open_index
from gnomon.shadow.errors import ConcurrentCommit
from gnomon.shadow.maintenance.compaction import compact, rebucket
from gnomon.shadow.maintenance.snapshot_history import history
from gnomon.shadow.maintenance.vacuuming import vacuum
from gnomon.shadow.metadata.spec import parse_spec
from gnomon.shadow.storage import storage_at
from gnomon.shadow.verify.snapshot import verify

pytestmark = pytest.mark.spark
HAS_COLLATIONS = hasattr(StringType(), "collation")  # of Spark
module = importlib.import_module(
    "gnomon.indexer.build.key_value_folder"
)  # `gnomon.indexer.build.key_value_folder` is the function

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


def rows_of(location: str, keys: list[Any]) -> list[list[dict[str, Any]]]:
    return open_index(location).fetch_many(keys)


def files(location: str) -> list[Path]:
    return sorted(Path(location).glob("*.btree.avro"))


@pytest.fixture
def location(tmp_path: Path) -> str:
    return str(tmp_path / "values")


def test_every_type_comes_back_as_it_was_and_null_as_null(spark: SparkSession, location: str) -> None:
    schema = ", ".join(["k int", *(f"{name} {kind}" for name, kind in TYPES.items())])
    odd = {**FULL, "f4": -0.0, "f8": float("nan"), "s": "", "bin": b""}
    rows = [(1, *FULL.values()), (2, *[None] * len(TYPES)), (4, *odd.values())]
    result = write_btree(spark.createDataFrame(rows, schema), location, ["k"])
    assert (result.snapshot, result.rows, result.total_rows, result.index_files) == (1, 3, 3, 1)
    index = open_index(location)
    assert index.get(1) == [{"k": 1, **FULL}]
    assert index.get(2) == [{"k": 2, **dict.fromkeys(TYPES)}]
    assert index.get(3) == []
    assert repr(index.get(4)) == repr([{"k": 4, **odd}])
    assert index.get(1, ["f8", "k"]) == [{"f8": FULL["f8"], "k": 1}]
    assert index.fetch(1) == index.get(1)


def test_every_type_is_a_key_too(spark: SparkSession, location: str) -> None:
    schema = ", ".join([*(f"{name} {kind}" for name, kind in TYPES.items()), "v int"])
    frame = spark.createDataFrame([(*FULL.values(), 1), (*[None] * len(TYPES), 2)], schema)
    write_btree(frame, location, list(TYPES), buckets=3)
    index = open_index(location)
    assert index.get(FULL) == [{**FULL, "v": 1}]
    assert index.get(dict.fromkeys(TYPES)) == [{**dict.fromkeys(TYPES), "v": 2}]


@pytest.mark.parametrize("seed", range(3))
def test_the_folder_is_a_dict_of_lists(spark: SparkSession, location: str, seed: int) -> None:
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
    frame = spark.createDataFrame(rows, "first string, n bigint, `b.c` string, i int, data_offset string")
    result = write_btree(frame, location, ["n", "data_offset"], buckets=chance.choice([1, 4, None]))
    assert result.rows == len(rows) == sum(entries_of(path) for path in files(location))
    index = open_index(location)
    asked = [(n, word) for n in [*keys, -1] for word in [*words, "absent"]]
    for key, found in zip(asked, index.fetch_many(asked), strict=True):
        assert sorted(map(str, map(tuple, map(dict.values, found)))) == sorted(map(str, expected[key]))
        assert index.contains(key) == (key in expected and bool(expected[key]))
        assert all(list(row) == frame.columns for row in found)


def entries_of(path: Path) -> int:
    with storage_at(str(path.parent)).open(path.name) as reader:
        return BTreeReader(reader).check()


def test_the_commands_answer(
    spark: SparkSession, location: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    frame = spark.createDataFrame(
        [(f"v{i}", i % 9, dt.date(2026, 1, 1 + i % 9)) for i in range(18)], "v string, k int, d date"
    )
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


def test_writing_again_is_refused_unless_asked_for(spark: SparkSession, location: str) -> None:
    one = spark.createDataFrame([(1, "a"), (2, "b")], "k int, v string")
    write_btree(one, location, ["k"])
    with pytest.raises(UsageError, match=r"2 rows were written there before; say mode='overwrite'"):
        write_btree(one, location, ["k"])
    reader = open_index(location)
    old = open_index(location, snapshot=1)
    other = spark.createDataFrame([("x", 2.5, 1)], "k string, w double, v int")
    result = write_btree(other, location, ["k"], mode="overwrite")
    assert (result.snapshot, result.rows, result.total_rows) == (2, 1, 1)
    assert reader.get(1) == [{"k": 1, "v": "a"}]  # the snapshot that was opened
    assert reader.refresh()
    assert reader.get("x") == open_index(location).get("x") == [{"k": "x", "w": 2.5, "v": 1}]
    assert old.get(2) == [{"k": 2, "v": "b"}]
    vacuum(storage_at(location), keep=1, grace_seconds=0)
    assert len(files(location)) == 1
    assert verify(storage_at(location)).is_sound


def test_files_of_others_are_not_written_among(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.createDataFrame([(1, "a")], "k int, v string")
    frame.write.parquet(str(tmp_path / "table"))
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


def test_rows_are_added_and_merged(spark: SparkSession, location: str) -> None:
    def frame(begin: int, end: int) -> Any:
        return spark.range(begin, end).select(F.col("id").alias("k"), (F.col("id") * 2).cast("string").alias("v"))

    write_btree(frame(0, 100), location, ["k"], buckets=3)
    added = write_btree(frame(50, 150), location, ["k"], mode="append")
    assert (added.snapshot, added.rows, added.total_rows, added.buckets) == (2, 100, 200, 3)
    assert write_btree(frame(0, 0), location, ["k"], mode="append").snapshot == 2
    with pytest.raises(SpecMismatch, match="include"):
        write_btree(frame(0, 1).withColumn("more", F.lit(1)), location, ["k"], mode="append")

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
    spark: SparkSession, location: str, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = (spark.createDataFrame([(k, who)], "k int, v string") for k, who in ((1, "ours"), (2, "theirs")))
    if mode != "error":
        write_btree(spark.createDataFrame([(3, "before")], "k int, v string"), location, ["k"])
    real = module.write_values

    def late(*given: Any) -> Any:
        monkeypatch.undo()
        write_btree(theirs, location, ["k"], mode=mode)
        return real(*given)

    monkeypatch.setattr(module, "write_values", late)
    if mode == "append":
        assert write_btree(ours, location, ["k"], mode=mode).total_rows == 3
    else:
        with pytest.raises(ConcurrentCommit):
            write_btree(ours, location, ["k"], mode=mode)
    found = [row["v"] for rows in rows_of(location, [1, 2, 3]) for row in rows]
    assert found == (["ours", "theirs", "before"] if mode == "append" else ["theirs"])
    assert verify(storage_at(location)).is_sound


def test_damage_is_found(spark: SparkSession, location: str) -> None:
    write_btree(spark.range(1000).select("id", F.lit("x").alias("v")), location, ["id"])
    [path] = files(location)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    report = verify(storage_at(location))
    assert [fault.path for fault in report.faults] == [str(path)]


def test_rows_without_source_columns_are_refused_where_a_source_is_needed(
    spark: SparkSession, location: str, tmp_path: Path
) -> None:
    frame = spark.createDataFrame([(1, "a")], "k int, v string")
    frame.write.parquet(str(tmp_path / "source"))
    write_btree(frame, location, ["k"])
    for refused in (
        lambda: build(spark, str(tmp_path / "source"), location, ["k"]),
        lambda: build(spark, str(tmp_path / "source"), location, ["k"], full=True),
        lambda: build(spark, location, str(tmp_path / "of values"), ["k"]),
        lambda: load(spark, location, frame.select("k")),
        lambda: append_new(spark, location, frame, "batch"),
        lambda: read_index(spark, location),
        lambda: open_index(location).lookup(1),
    ):
        with pytest.raises(UsageError, match=r"a key-value folder|an index lies there"):
            refused()
    assert not (tmp_path / "of values").exists()
    assert open_index(location).coverage().is_empty
    others = spark.createDataFrame([(1,), (2,), (None,)], "k int")
    assert {row.k for row in filter_new(spark, location, others).collect()} == {2, None}
    build(spark, str(tmp_path / "source"), str(tmp_path / "index"), ["k"])
    with pytest.raises(UsageError, match="the index of a source lies there"):
        write_btree(frame, str(tmp_path / "index"), ["k"], mode="overwrite")


def test_get_of_an_index_gives_its_entries(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.createDataFrame([(1, "a", dt.date(2026, 1, 1), "p")], "k int, v string, d date, part string")
    frame.write.partitionBy("part").parquet(str(tmp_path / "source"))
    build(spark, str(tmp_path / "source"), str(tmp_path / "index"), ["k"], include=["d"])
    [entry] = open_index(str(tmp_path / "index")).get(1)
    [pointer] = open_index(str(tmp_path / "index")).lookup(1)
    assert entry == {"k": 1, "d": dt.date(2026, 1, 1), "part": "p", **pointer._asdict()}


def test_a_program_that_does_not_know_values_refuses_them(spark: SparkSession, location: str) -> None:
    """The older program compared only the layout, and does not know this one."""
    write_btree(spark.createDataFrame([(1, "a")], "k int, v string"), location, ["k"])
    spec = open_index(location).spec.to_json()
    assert spec["layout"] not in ("partitioned", "flat")
    assert {"location", "single_file", "format"} <= set(spec["source"])  # members that it reads first
    for wrong in ({**spec, "layout": "partitioned"}, {**spec, "source": {**spec["source"], "format": "parquet"}}):
        with pytest.raises(NewerFormat):
            parse_spec(wrong, "here")


@pytest.mark.parametrize(
    ("columns", "keys", "what"),
    [
        ("k int, v array<int>", ["k"], r"column v of type array<int> cannot be stored; write it as text, with to_json"),
        ("k map<string,int>, v int", ["k"], r"column k of type map<string,int>"),
        pytest.param(
            "k int, v string collate utf8_lcase",
            ["k"],
            r"column v of type string collate UTF8_LCASE",
            marks=pytest.mark.skipif(not HAS_COLLATIONS, reason="Spark has collations since 4.0"),
        ),
        ("k int, v interval day", ["k"], r"column v of type interval day"),
        ("k int", ["k"], "needs a column beside the key"),
        ("k int, v int", ["k", "k"], "named twice"),
        ("k int, v int", [], "expected a list of column names"),
        ("k int, v int", "kv", "expected a list of column names"),
        ("k int, v int", [1], r"^keys: expected a list of column names, found \[1\]$"),
        ("k int, v int", ["x"], "there is no column x; there are k, v"),
        ("k int, v int, v int", ["k"], "column v: there are several"),
        ("k int, __gnomon_group int", ["k"], "Spark or Gnomon uses this name"),
    ],
)
def test_columns_that_cannot_be_stored_are_named(
    spark: SparkSession, location: str, columns: str, keys: list[str], what: str
) -> None:
    with pytest.raises(UsageError, match=what):
        write_btree(spark.createDataFrame([], columns), location, keys)
    assert not Path(location).exists()


@pytest.mark.parametrize("buckets", [0, 2**16 + 1, 2.5, "4"])
def test_a_number_of_buckets_that_is_none_is_refused(spark: SparkSession, tmp_path: Path, buckets: Any) -> None:
    location = str(tmp_path / "values")
    frame = spark.createDataFrame([(1, "a")], "k int, v string")
    refused = pytest.raises(UsageError, match=f"^buckets: expected 1 to 65536, found {buckets!r}$")
    with refused:
        write_btree(frame, location, ["k"], buckets=buckets)
    assert not Path(location).exists()
    write_btree(frame, location, ["k"])
    with refused:
        rebucket(storage_at(location), buckets)
    with refused:
        build(spark, str(tmp_path / "source"), str(tmp_path / "index"), ["k"], buckets=buckets)


def test_an_expensive_frame_is_evaluated_once(spark: SparkSession, location: str) -> None:
    calls = spark.sparkContext.accumulator(0)

    def counted(rows: Any) -> Any:
        for row in rows:
            calls.add(1)
            yield row

    frame = spark.createDataFrame(
        spark.sparkContext.range(100, numSlices=3).map(lambda i: Row(i, str(i))).mapPartitions(counted),
        "k int, v string",
    )
    write_btree(frame, location, ["k"], buckets=2)
    assert calls.value == 100
    assert not frame.is_cached


def test_a_join_returns_the_rows_of_a_folder_without_shuffling_them(spark: SparkSession, tmp_path: Path) -> None:
    folder = str(tmp_path / "folder")
    columns = "cast(id % 300 as int) k", "if(id % 7 = 0, null, concat('v', id)) text", "id * 1.5 number"
    first, second = (spark.range(*ids).selectExpr(*columns) for ids in ((0, 500), (500, 900)))
    write_btree(first, folder, ["k"], buckets=3)
    write_btree(second, folder, ["k"], mode="append")
    sample = spark.createDataFrame([(7, "a"), (7, "b"), (150, "c"), (999, "d"), (None, "e")], "k int, tag string")
    joined = join_with_index(spark, folder, sample)
    assert joined.columns == ["k", "tag", "text", "number"]
    plan = joined._jdf.queryExecution().executedPlan().toString()  # before it runs: later it shows two plans
    assert (plan.count("Exchange"), plan.count("Scan ExistingRDD")) == (1, 1)
    rows = first.union(second)
    expected = sample.join(rows, "k").select(joined.columns)
    assert sorted(map(repr, joined.collect())) == sorted(map(repr, expected.collect()))
    left = join_with_index(spark, folder, sample, how="left").where("text is null and number is null")
    assert sorted(row.tag for row in left.collect()) == ["d", "e"]


def test_a_join_of_values_that_repeat_without_end_stays_small(spark: SparkSession, tmp_path: Path) -> None:
    """A key with many rows: each row of the sample gets all of them."""
    folder = str(tmp_path / "folder")
    write_btree(spark.range(50_000).selectExpr("1 k", "id"), folder, ["k"], buckets=1)
    sample = spark.createDataFrame([(1,), (1,)], "k int")
    assert join_with_index(spark, folder, sample).groupBy("id").count().where("count = 2").count() == 50_000


# -- partitions --------------------------------------------------------------------------------------------------------


def _days(spark: SparkSession, counts: dict[dt.date | None, int], begin: int = 0) -> Any:
    """For each day as many rows as given; the numbers go on from day to day."""
    rows = [(n, day, f"v{n}") for day, count in counts.items() for n in range(begin, begin + count)]
    return spark.createDataFrame(rows, "n bigint, day date, v string")


DAYS = [dt.date(2026, 1, day) for day in (1, 2, 3)]


@pytest.fixture
def small_buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ENTRIES_PER_BUCKET", 10)


@pytest.mark.usefixtures("small_buckets")
def test_each_partition_has_its_own_number_of_buckets(spark: SparkSession, location: str) -> None:
    counts = {DAYS[0]: 75, DAYS[1]: 25, DAYS[2]: 3, None: 1}
    result = write_btree(_days(spark, counts), location, ["n"], partitions=["day"])
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
    assert {row.n for row in filter_new(spark, location, spark.range(80).withColumnRenamed("id", "n")).collect()} == {
        *range(75, 80)
    }
    report = verify(storage_at(location), sample=None)
    assert (report.is_sound, report.entries) == (True, 104)


@pytest.mark.usefixtures("small_buckets")
def test_rows_are_added_to_partitions_old_and_new_and_merged(spark: SparkSession, location: str) -> None:
    write_btree(_days(spark, {DAYS[0]: 75, DAYS[1]: 3}), location, ["n"], partitions=["day"])
    added = write_btree(
        _days(spark, {DAYS[1]: 75, DAYS[2]: 15}, begin=1000), location, ["n"], mode="append", partitions=["day"]
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
    write_btree(_days(spark, {DAYS[0]: 5}), location, ["n"], mode="append", partitions=["day"])
    before = [
        [*rows, *([{"n": n, "v": f"v{n}", "day": DAYS[0]}] if n < 5 else [])]
        for n, rows in zip(keys, before, strict=True)
    ]
    assert open_index(location).spec.folder_buckets["day=2026-01-01"] == 8
    assert same()
    with pytest.raises(SpecMismatch, match="partitions"):
        write_btree(_days(spark, {DAYS[0]: 1}), location, ["n"], mode="append")
    replaced = write_btree(_days(spark, {DAYS[2]: 1}), location, ["n"], mode="overwrite", partitions=["day"])
    assert (replaced.total_rows, replaced.buckets) == (1, 1)


@pytest.mark.parametrize("kind", ["string", "boolean", "int", "bigint", "date", "decimal(7,2)"])
def test_partition_values_come_back_in_their_type(spark: SparkSession, location: str, kind: str) -> None:
    values: dict[str, list[Any]] = {
        "string": ["a", "", "é/=%", "ab:c", None],
        "boolean": [True, False, None],
        "int": [-7, 0, None],
        "bigint": [2**62, None],
        "date": [dt.date(1, 1, 1), dt.date(9999, 12, 31), None],
        "decimal(7,2)": [decimal.Decimal("-1.50"), decimal.Decimal("0.00"), None],
    }
    rows = [(f"k{i}", value, i) for i, value in enumerate(values[kind])]
    write_btree(spark.createDataFrame(rows, f"k string, p {kind}, i int"), location, ["k"], partitions=["p"])
    index = open_index(location)
    for k, value, i in rows:
        assert index.get(k) == index.fetch(k) == [{"k": k, "i": i, "p": value}]
    sample = spark.createDataFrame([(k,) for k, *_ in rows], "k string")
    joined = join_with_index(spark, location, sample)
    assert joined.schema["p"].dataType.simpleString() == kind
    assert sorted(map(str, joined.select("k", "p", "i").collect())) == sorted(
        map(str, (Row(k=k, p=p, i=i) for k, p, i in rows))
    )


@pytest.mark.usefixtures("small_buckets")
def test_an_append_that_a_rebucket_overtakes_is_refused(
    spark: SparkSession, location: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_btree(_days(spark, {DAYS[0]: 75, DAYS[1]: 3}), location, ["n"], partitions=["day"])
    real = module.write_values

    def late(*given: Any) -> Any:
        rebucket(storage_at(location), 8)
        return real(*given)

    monkeypatch.setattr(module, "write_values", late)
    with pytest.raises(ConcurrentCommit, match="with 8 buckets in day=2026-01-02, where 1 were written"):
        write_btree(_days(spark, {DAYS[1]: 5}, 100), location, ["n"], mode="append", partitions=["day"])
    assert verify(storage_at(location), sample=None).is_sound


def test_names_with_dots_and_backticks_are_columns(spark: SparkSession, location: str) -> None:
    frame = spark.createDataFrame([(1, "x", 2)], "`k.1` int, `p``2` string, `v.3` int")
    write_btree(frame, location, ["k.1"], partitions=["p`2"])
    assert open_index(location).get(1) == [{"k.1": 1, "v.3": 2, "p`2": "x"}]


def test_a_join_within_partitions_gives_their_rows(spark: SparkSession, location: str) -> None:
    write_btree(_days(spark, {DAYS[0]: 30, DAYS[1]: 3, None: 2}), location, ["n"], partitions=["day"])
    sample = spark.createDataFrame([(1, DAYS[0]), (1, DAYS[1]), (20, DAYS[1]), (2, DAYS[2])], "n bigint, day date")
    joined = join_with_index(spark, location, sample, within=["day"])
    assert sorted(map(tuple, joined.select("n", "day", "v").collect())) == [(1, DAYS[0], "v1"), (1, DAYS[1], "v1")]
    fresh = filter_new(spark, location, sample, scope="partition")
    assert sorted(map(tuple, fresh.collect())) == [(2, DAYS[2]), (20, DAYS[1])]


def test_a_key_may_contain_a_partition_column(spark: SparkSession, location: str) -> None:
    frame = spark.createDataFrame([("a", "x", 1), ("b", "x", 2), ("a", "y", 3)], "p string, k string, v int")
    write_btree(frame, location, ["p", "k"], partitions=["p"])
    index = open_index(location)
    assert index.get({"p": "a", "k": "x"}) == [{"k": "x", "v": 1, "p": "a"}]
    assert [len(rows) for rows in index.fetch_many([("a", "x"), ("b", "x"), ("b", "y"), ("a", "y")])] == [1, 1, 0, 1]


@pytest.mark.usefixtures("small_buckets")
def test_the_commands_answer_for_partitions(
    spark: SparkSession, location: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write_btree(_days(spark, {DAYS[0]: 30, DAYS[1]: 3}), location, ["n"], partitions=["day"])
    assert main(["get", location, "1"]) == 0
    assert sorted(capsys.readouterr().out.splitlines()) == [
        f'{{"n": 1, "v": "v1", "day": "{day}"}}' for day in DAYS[:2]
    ]
    assert main(["verify", location, "--all"]) == 0
    assert "looked up 35 keys of 2 of 2 partitions" in capsys.readouterr().out
    assert main(["inspect", location]) == 0
    assert "values by partition" in capsys.readouterr().out
    assert main(["vacuum", location, "--keep", "1"]) == 0


def test_an_older_program_refuses_a_folder_with_partitions(spark: SparkSession, location: str) -> None:
    """It compares the layout, and does not know this one."""
    write_btree(_days(spark, {DAYS[0]: 1}), location, ["n"], partitions=["day"])
    content = open_index(location).spec.to_json()
    assert content["layout"] not in ("partitioned", "flat", "values")
    with pytest.raises(NewerFormat):
        parse_spec({**content, "layout": "values"}, "here")
    with pytest.raises(DamagedMetadata, match="expected a number of buckets that divides 1, found 3"):
        parse_spec({**content, "folder_buckets": {"day=2026-01-01": 3}}, "here")


@pytest.mark.usefixtures("small_buckets")
@pytest.mark.parametrize("theirs", [1, 25])
def test_of_appends_at_once_to_a_new_partition_all_rows_count_or_one_fails(
    spark: SparkSession, location: str, theirs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_btree(_days(spark, {DAYS[0]: 75}), location, ["n"], partitions=["day"])
    real = module.write_values

    def late(*given: Any) -> Any:
        monkeypatch.setattr(module, "write_values", real)
        write_btree(_days(spark, {DAYS[1]: theirs}, 5000), location, ["n"], mode="append", partitions=["day"])
        return real(*given)

    monkeypatch.setattr(module, "write_values", late)
    ours = _days(spark, {DAYS[1]: 5, DAYS[2]: 5})
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
def test_partition_columns_that_cannot_be_folders_are_named(
    spark: SparkSession, location: str, partitions: Any, what: str
) -> None:
    row = (1, "__HIVE_DEFAULT_PARTITION__", 2.5, 3, 4, "a\0")
    frame = spark.createDataFrame([row], "k int, s string, f8 double, v int, w int, z string")
    with pytest.raises(UsageError, match=what):
        write_btree(frame, location, ["k"], partitions=partitions)


def test_too_many_partitions_are_refused(spark: SparkSession, location: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_PARTITIONS", 2)
    frame = spark.range(3).select("id", F.col("id").alias("p"), F.lit(1).alias("v"))
    with pytest.raises(UsageError, match="expected at most 2 of them, found more"):
        write_btree(frame, location, ["id"], partitions=["p"])


@pytest.mark.usefixtures("small_buckets")
def test_no_rows_with_partitions_make_an_empty_folder(spark: SparkSession, location: str) -> None:
    write_btree(_days(spark, {}), location, ["n"], partitions=["day"])
    assert open_index(location).get(1) == []
    added = write_btree(_days(spark, {DAYS[0]: 30}), location, ["n"], mode="append", partitions=["day"])
    assert (added.total_rows, added.buckets) == (30, 1)
    assert len(open_index(location).get(1)) == 1
