"""An append, or a change, with Spark and one in this process do the same."""

import datetime as dt
import random
import shutil
from decimal import Decimal
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from gnomon.indexer import append_new, build, read_batch
from gnomon.indexer.dedup import SparkRows, upsert
from gnomon.indexer.spark.versions import TIME_TYPE
from gnomon.jobs import Stages
from gnomon.jobs.dedup import ChangeResult, DedupResult, as_rows, delete
from gnomon.shadow import UsageError, open_index
from gnomon.shadow.storage import storage_at
from gnomon.shadow.verify import verify
from tests.indexer.test_formats import CASES, put
from tests.profiles import cases
from tests.shadow.make_index import index_source, write_source

pytestmark = pytest.mark.spark
COUNTS = ("rows_read", "duplicates_in_batch", "already_loaded", "null_keys", "rejected", "appended", "partitions")


def batch_rows(seed: int, rows: int = 400) -> pa.Table:
    """Rows with repeated and null keys, partitions, and columns of many types."""
    random.seed(seed)
    keys = [random.randrange(300) if random.random() > 0.1 else None for _ in range(rows)]
    return pa.table(
        {
            "k": pa.array(keys, pa.int32()),
            "s": pa.array([None if i % 11 == 0 else f"é{i}" for i in range(rows)]),
            "n": pa.array([random.randrange(9) for _ in range(rows)], pa.int64()),
            "f": pa.array([random.choice([0.5, -0.0, float("nan"), None]) for _ in range(rows)]),
            "d": pa.array([Decimal(random.randrange(10**6)) / 1000 for _ in range(rows)], pa.decimal128(12, 3)),
            "day": pa.array([dt.date(2026, 1, 1 + random.randrange(20)) for _ in range(rows)]),
            "at": pa.array([i * 10**6 + 1 for i in range(rows)], pa.timestamp("us", "UTC")),
            "local": pa.array([i * 10**6 + 1 for i in range(rows)], pa.timestamp("us")),
            "yes": pa.array([i % 3 == 0 for i in range(rows)]),
            "b": pa.array([bytes([i % 256]) * (i % 5) for i in range(rows)]),
            "dt": pa.array([random.choice(["a", "b", "c", None]) for _ in range(rows)]),
        }
    )


class Lake:
    """Two equal sources with an index each, for an engine each."""

    def __init__(self, root: Path, spark: SparkSession, keys: list[str]) -> None:
        self.root, self.spark, self.keys = root, spark, keys

    def make(self, source: dict[str, pa.Table]) -> None:
        write_source(self.root / "there/source", source)
        shutil.copytree(self.root / "there/source", self.root / "here/source")
        for name in ("here", "there"):
            index_source(self.root / name / "source", self.root / name / "index", self.keys, 3)

    def append(self, name: str, batch: Path, batch_id: str, engine: str | None = None, **options: Any) -> DedupResult:
        place = self.root / name / "index"
        spark = self.spark if (engine or name) == "there" else None
        return append_new(spark, place, read_batch(spark, batch, open_index(place)), batch_id, **options)

    def rows(self, name: str) -> list[str]:
        table = pq.read_table(self.root / name / "source", partitioning="hive")
        return sorted(map(repr, table.to_pylist()))


@pytest.fixture
def lake(tmp_path: Path, spark: SparkSession) -> Lake:
    return Lake(tmp_path, spark, ["k"])


@pytest.mark.parametrize(("scope", "null_keys"), cases(product(["partition", "table"], ["dedup", "keep", "reject"])))
def test_both_append_the_same_rows_with_the_same_counts_digests_and_reports(
    lake: Lake, tmp_path: Path, scope: str, null_keys: str
) -> None:
    first = batch_rows(1)
    lake.make({f"dt={name}/a.parquet": first.drop_columns(["dt"]).slice(i * 50, 50) for i, name in enumerate("ab")})
    pq.write_table(batch_rows(2), tmp_path / "batch.parquet", row_group_size=70)
    options = {"scope": scope, "null_keys": null_keys, "order_by": ["n desc", "s"]}
    done = {
        name: lake.append(name, tmp_path / "batch.parquet", "b", report=tmp_path / f"{name}.parquet", **options)
        for name in ("here", "there")
    }
    here, there = (vars(done[name]) for name in ("here", "there"))
    assert {name: here[name] for name in COUNTS} == {name: there[name] for name in COUNTS}
    assert min(here["appended"], here["already_loaded"]) > 0
    assert lake.rows("here") == lake.rows("there")
    told = []
    for name in ("here", "there"):
        report = pq.read_table(tmp_path / f"{name}.parquet").to_pylist()
        for row in report:
            path, offset, _, _ = [row.pop(f"data_{part}") for part in ("filename", "offset", "sub_offset", "size")]
            if path is not None:  # of the row that was there first, with the same key
                assert pq.ParquetFile(tmp_path / name / "source" / path).read()["k"][offset].as_py() == row["k"]
            row["pointed"] = path is not None
        told.append(sorted(map(repr, report)))
    assert told[0] == told[1]
    for name in ("here", "there"):
        assert verify(storage_at(tmp_path / name / "index"), None).is_sound
    # the other engine knows the batch, and another batch of the same name
    for name, engine in (("here", "there"), ("there", "here")):
        assert lake.append(name, tmp_path / "batch.parquet", "b", engine, **options).known_batch
    pq.write_table(batch_rows(3), tmp_path / "batch.parquet")
    for name, engine in (("here", "there"), ("there", "here")):
        with pytest.raises(UsageError, match="was appended by snapshot 2 with other rows"):
            lake.append(name, tmp_path / "batch.parquet", "b", engine, **options)


@pytest.mark.parametrize("name", [name for name in CASES if name != "sequence"])
def test_both_append_batches_of_each_format(lake: Lake, tmp_path: Path, name: str) -> None:
    case = CASES[name]
    lake.keys = [case.number]
    for side in ("here", "there"):
        for part in "ab":
            rows = [(i, f"é {i} {part}") for i in range(50)]
            put(tmp_path / side / "source" / f"dt={part}", "x", rows, name, case)
        index_source(tmp_path / side / "source", tmp_path / side / "index", [case.number], 2, format=name)
    put(tmp_path / "batch" / "dt=b", "y", [(i % 80, f"new {i}") for i in range(20, 120)], name, case)
    counts = []
    for side in ("here", "there"):
        done = vars(lake.append(side, tmp_path / "batch", "b"))
        counts.append({name: done[name] for name in COUNTS})
        opened = open_index(tmp_path / side / "index")
        assert opened.fetch(case.kind(79)) == [{case.number: case.kind(79), case.text: "new 79", "dt": "b"}]
    assert counts[0] == counts[1]
    assert counts[0]["appended"] == 30


MOMENT = dt.datetime(2026, 1, 2, 3, 4, 5, 678901)
RECORD = pa.struct([("a", pa.float32()), ("b", pa.binary())])
VALUES: dict[str, pa.Array] = {
    "int": pa.array([1, None, -(2**31)], pa.int32()),
    "unsigned": pa.array([255, None, 0], pa.uint8()),
    "large": pa.array([2**64 - 1, None, 7], pa.uint64()),
    "half": pa.array([0.5, None, -1.0], pa.float16()),
    "float": pa.array([0.1, None, float("nan")], pa.float32()),
    "zero": pa.array([-0.0, None, 0.0]),
    "flag": pa.array([True, None, False]),
    "bool8": pa.ExtensionArray.from_storage(pa.bool8(), pa.array([1, None, 0], pa.int8())),
    "day": pa.array([dt.date(1, 1, 1), None, dt.date(9999, 12, 31)]),
    "day64": pa.array([dt.date(2026, 1, 1), None, dt.date(1969, 12, 31)], pa.date64()),
    "instant": pa.array([MOMENT, None, MOMENT], pa.timestamp("us", "Asia/Tokyo")),
    "local": pa.array([MOMENT, None, dt.datetime(1, 1, 1)], pa.timestamp("us")),
    "nanoseconds": pa.array([MOMENT, None, MOMENT], pa.timestamp("ns", "UTC")),
    "seconds": pa.array([1, None, -1], pa.timestamp("s")),
    "duration": pa.array([1_500, None, -1], pa.duration("ms")),
    "decimal": pa.array([Decimal("1.50"), None, Decimal("-0.00")], pa.decimal128(9, 2)),
    "tiny": pa.array([Decimal("0.0000000001"), None, Decimal("5")], pa.decimal128(38, 10)),
    "long": pa.array([Decimal("1.5"), None, Decimal(10) ** 45], pa.decimal256(50, 2)),
    "text": pa.array(["a", None, ""], pa.large_string()),
    "words": pa.array(["a", None, "a"]).dictionary_encode(),
    "raw": pa.array([b"\x00\xff", None, b""]),
    "fixed": pa.array([b"ab", None, b"cd"], pa.binary(2)),
    "uuid": pa.ExtensionArray.from_storage(pa.uuid(), pa.array([bytes(16), None, bytes(range(16))], pa.binary(16))),
    "nothing": pa.nulls(3),
    "list": pa.array([[1, None], None, []], pa.list_(pa.uint16())),
    "moments": pa.array([[MOMENT], None, [None]], pa.list_(pa.timestamp("ms", "UTC"))),
    "record": pa.array(
        [{"a": 0.1, "b": b"x"}, None, {"a": None, "b": None}], pa.struct([("a", pa.float32()), ("b", pa.binary())])
    ),
    "map": pa.array([[("b", 1), ("a", None)], None, []], pa.map_(pa.string(), pa.int8())),
}
VALUES |= {"time": pa.array([dt.time(1, 2, 3, 4), None, dt.time()], pa.time64("us"))} if TIME_TYPE is not None else {}


@pytest.mark.parametrize("name", cases(VALUES))
def test_a_batch_has_one_digest_whichever_engine_reads_it(spark: SparkSession, name: str) -> None:
    table = pa.table({"k": [1, 2, 3], name: VALUES[name]})
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        rows = SparkRows(spark, table)
        for partitions in ((), (name,)):
            wanted = as_rows(table).digest(partitions, Stages(None))
            assert rows.digest(partitions, Stages(None)) == wanted
    finally:
        spark.conf.set("spark.sql.session.timeZone", before or "UTC")
    other = table.set_column(1, name, table.column(1).take(pa.array([0, 0, 2])))
    assert (as_rows(other).digest((), Stages(None)) == wanted) == (name == "nothing")


def test_a_digest_shows_nanoseconds_and_does_not_depend_on_the_width_of_numbers() -> None:
    def digest(values: pa.Array) -> str:
        return as_rows(pa.table({"c": values})).digest((), Stages(None))

    nanoseconds = [digest(pa.array([n], pa.timestamp("ns"))) for n in (1_000, 1_001, 2_000)]
    assert len(set(nanoseconds)) == 3
    assert digest(pa.array([1], pa.timestamp("us"))) == nanoseconds[0]
    assert len({digest(pa.array([7], kind)) for kind in (pa.int8(), pa.int64(), pa.uint16())}) == 1
    assert digest(pa.array([0.5], pa.float16())) == digest(pa.array([0.5]))


def test_a_known_batch_with_nested_columns_is_recognised_by_the_other_engine(lake: Lake, tmp_path: Path) -> None:
    lake.make({"a.parquet": pa.table({"k": [1, 2], "list": [[1], [2, 3]]})})
    pq.write_table(pa.table({"k": [3], "list": [[4]]}), tmp_path / "batch.parquet")
    assert lake.append("here", tmp_path / "batch.parquet", "b").appended == 1
    for engine in ("here", "there"):
        assert lake.append("here", tmp_path / "batch.parquet", "b", engine).known_batch
    assert open_index(tmp_path / "here/index").fetch(3) == [{"k": 3, "list": [4]}]


MARKS: dict[str, pa.Array | None] = {
    "op": pa.array(["insert", "D", "update", "delete", "c"] * 80),
    "is_dead": pa.array([True, False, True, False, False] * 80),
    "s": None,  # the column of the table, null in rows that delete
}


@pytest.mark.parametrize(
    ("mark", "null_keys", "update_only"), cases(product(MARKS, ["dedup", "reject", "refuse"], [False, True]))
)
def test_both_upsert_the_same_rows_with_the_same_counts(
    lake: Lake, tmp_path: Path, mark: str, null_keys: str, update_only: bool
) -> None:
    names, batch, done = ("here", "there"), batch_rows(2), dict[str, dict[str, Any]]()
    if null_keys == "refuse":
        batch = batch.set_column(0, "k", pa.array([i % 300 for i in range(400)], pa.int32()))
    marks = MARKS[mark]
    pq.write_table(batch if marks is None else batch.append_column(mark, marks), tmp_path / "batch.parquet")
    options: dict[str, Any] = {"order_by": ["n", "f desc"], "null_keys": null_keys, "update_only": update_only}
    options |= {"delete_where_null": mark} if marks is None else {"delete_where": mark}
    for name in names:
        write_deltalake(tmp_path / name, batch_rows(1), partition_by=["dt"])
        build(None, f"delta:{tmp_path / name}", tmp_path / f"{name} index", ["k"], buckets=3)

    def change(name: str, engine: str) -> ChangeResult:
        index, spark = tmp_path / f"{name} index", lake.spark if engine == "there" else None
        rows = read_batch(spark, tmp_path / "batch.parquet", open_index(index))
        return upsert(spark, index, rows, "b", replace_all=True, **options)

    for name in names:
        done[name] = change(name, name).to_json()
        report = verify(storage_at(tmp_path / f"{name} index"), None)
        assert report.is_sound, report.faults
    shown = ("rows_read", "duplicates_in_batch", "rejected", "absent", "deleting", "written", "updated", "rows_deleted")
    assert {name: done["here"][name] for name in shown} == {name: done["there"][name] for name in shown}
    assert min(done["here"]["deleting"], done["here"]["updated"]) > 0
    found = {name: DeltaTable(tmp_path / name).to_pyarrow_table() for name in names}
    here, there = (sorted(map(repr, found[name].to_pylist())) for name in names)
    assert here == there
    for name, engine in (("here", "there"), ("there", "here")):
        assert change(name, engine).known_batch


def test_a_frame_of_keys_is_deleted(spark: SparkSession, tmp_path: Path) -> None:
    write_deltalake(tmp_path / "t", batch_rows(1).filter(pc.field("k").is_valid()))
    build(None, f"delta:{tmp_path / 't'}", tmp_path / "index", ["k"], buckets=3)
    keys = spark.createDataFrame([(1, "x"), (2, "y"), (7000, "z")], "k int, other string")
    result = delete(spark, tmp_path / "index", keys)
    assert (result.rows_read, result.deleted_keys) == (3, 2)
    assert not {1, 2} & set(DeltaTable(tmp_path / "t").to_pyarrow_table()["k"].to_pylist())
