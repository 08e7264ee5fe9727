"""Keys of types that Spark does not know: built, fetched and loaded."""

import datetime as dt
import decimal
import re
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from gnomon import shadow
from gnomon.btree.key_types import KeyType, key_type, key_types
from gnomon.btree.keys import type_of_arrow
from gnomon.btree.schema import type_of_avro
from gnomon.commands.failures import exit_code, one_line
from gnomon.indexer import append_new, build, filter_new, load, read_batch
from gnomon.indexer.spark.types import arrow_of, key_spark_type
from gnomon.indexer.spark.versions import TIME_TYPE
from gnomon.indexer.tables.catalog import UNREAD
from gnomon.shadow.lookup.conditions import VALUE_TYPES
from gnomon.shadow.storage import storage_at
from gnomon.shadow.verify.snapshot import verify
from gnomon.sources.types import parse_ddl, to_ddl
from tests.opened import open_index
from tests.shadow.make_index import write_source

ROOT = Path(__file__).parent.parent.parent
IDS = [uuid.UUID("00112233-4455-6677-8899-aabbccddeeff"), uuid.UUID(int=1)]
NS = 1767270600_123456789
HALF = 0.0999755859375
# Name: Arrow type, two values, and the forms of the first one: text, another text or value, stored form.
TYPES: dict[str, tuple[pa.DataType, list[Any], tuple[Any, ...]]] = {
    "u8": (pa.uint8(), [255, 0], ("255", 255)),
    "u16": (pa.uint16(), [2**16 - 1, 0], ("65535", 2**16 - 1)),
    "u32": (pa.uint32(), [2**32 - 1, 0], ("4294967295", 2**32 - 1)),
    "u64": (pa.uint64(), [2**64 - 1, 0], (str(2**64 - 1), 2**64 - 1, decimal.Decimal(2**64 - 1))),
    "half": (pa.float16(), [np.float16(0.1), np.float16(2)], ("0.1", HALF)),
    "fixed": (pa.binary(2), [b"\xff\x00", b"ab"], ("/wA=", b"\xff\x00")),
    "id": (pa.uuid(), [one.bytes for one in IDS], (str(IDS[0]), IDS[0], IDS[0].bytes)),
    "ms": (pa.time32("ms"), [45_000_005, 0], ("12:30:00.005", dt.time(12, 30, 0, 5000), 45_000_005)),
    "us": (pa.time64("us"), [45_000_000_005, 0], ("12:30:00.000005", dt.time(12, 30, 0, 5), 45_000_000_005)),
    "ns": (pa.time64("ns"), [45_000_000_000_005, 0], ("12:30:00.000000005", 45_000_000_000_005)),
    "at": (pa.timestamp("ns", "Asia/Tokyo"), [NS, 0], ("2026-01-01T12:30:00.123456789Z", NS)),
    "local": (
        pa.timestamp("ns"),
        [NS // 1000 * 1000, 0],
        ("2026-01-01 12:30:00.123456", dt.datetime(2026, 1, 1, 12, 30, 0, 123456), NS // 1000 * 1000),
    ),
    "large": (pa.decimal256(38, 2), [decimal.Decimal("1.50"), decimal.Decimal(0)], ("1.5", decimal.Decimal("1.500"))),
}
STORED = (
    "u8 smallint, u16 int, u32 bigint, u64 decimal(20,0), half float, fixed binary, id binary, "
    "ms bigint, us bigint, ns bigint, at bigint, local bigint, large decimal(38,2)"
)


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two rows and one of nulls, keyed by columns of all types, in two files of which one lacks every value."""
    folder = tmp_path_factory.mktemp("types")
    columns = {name: pa.array([*values, None], kind) for name, (kind, values, _) in TYPES.items()}
    empty = {name: pa.nulls(1) for name in TYPES}
    tables = {"b.parquet": {**columns, "n": range(3)}, "a.parquet": {**empty, "n": [3]}}
    write_source(folder / "source", {path: pa.table(table) for path, table in tables.items()})
    build(spark, str(folder / "source"), str(folder / "index"), list(TYPES), buckets=3)
    return folder


def test_each_row_is_found_by_its_key_in_every_form(lake: Path) -> None:
    index = open_index(str(lake / "index"))
    key = {name: forms[0] for name, (_, _, forms) in TYPES.items()}
    [[row]] = index.fetch_many([key])
    assert row["n"] == 0
    assert index.fetch({name: row[name] for name in TYPES}, ["n"]) == [{"n": 0}]  # in the form of the row
    for name, (_, values, forms) in TYPES.items():
        for form in forms:
            assert index.fetch({**key, name: form}, ["n"]) == [{"n": 0}], (name, form)
        assert index.fetch({**key, name: None}) == []
        assert index.fetch({**key, name: values[1]}) == []
    assert [row["n"] for row in index.fetch(dict.fromkeys(TYPES))] == [3, 2]
    assert verify(storage_at(str(lake / "index")), sample=None).is_sound


def test_the_spec_says_what_each_key_is_in_the_source_and_in_the_index(lake: Path) -> None:
    keys = {key.name: (key.source_type, key.type) for key in open_index(str(lake / "index")).spec.keys}
    assert ", ".join(f"{name} {stored}" for name, (_, stored) in keys.items()) == STORED
    assert [keys[name][0] for name in ("u64", "half", "fixed", "id", "ms", "at", "local", "large")] == [
        *("uint64", "half", "fixed", "uuid", "time(ms)", "timestamp(ns)", "timestamp_ntz(ns)"),
        None,
    ]


def texts(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame([tuple(forms[0] for _, _, forms in TYPES.values())], list(TYPES))


@pytest.fixture
def far_zone_with_times(spark: SparkSession) -> Iterator[None]:
    """A session in another time zone, with the type for times of day."""
    if TIME_TYPE is None:
        pytest.skip("Spark has times of day since 4.1")
    settings = {"spark.sql.session.timeZone": "America/New_York", "spark.sql.timeType.enabled": "true"}
    before = {name: spark.conf.get(name) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    yield
    for name, old in before.items():
        spark.conf.set(name, old or "")


@pytest.mark.usefixtures("far_zone_with_times")
def test_keys_of_a_frame_may_be_text_what_spark_reads_or_what_is_stored(spark: SparkSession, lake: Path) -> None:
    stored = [forms[-1] for _, _, forms in TYPES.values()]
    as_stored = spark.createDataFrame([tuple(stored)], STORED)
    times = "select time'12:30:00.005' ms, time'12:30:00.000005' us"
    of_spark = texts(spark).drop("ms", "us", "local").join(spark.sql(times))
    local = of_spark.join(spark.sql("select timestamp_ntz'2026-01-01 12:30:00.123456' local"))
    instant = of_spark.join(spark.sql("select timestamp'2026-01-01 12:30:00.123456Z' local"))
    for keys in (texts(spark), as_stored, local, instant):
        found = load(spark, str(lake / "index"), keys, ["n"]).select("n").collect()
        assert [row.n for row in found] == [0], keys.schema.simpleString()
    assert filter_new(spark, str(lake / "index"), local).count() == 0


def test_keys_of_a_frame_that_are_not_of_the_type_are_refused(spark: SparkSession, lake: Path) -> None:
    index = str(lake / "index")
    for name, sql, message in (
        ("id", "1", "the key column id is int, the index's is uuid, stored as binary; cast it"),
        ("ms", "timestamp'2026-01-01 00:00:00'", r"the key column ms is timestamp, the index's is time\(ms\), stored"),
        ("at", "timestamp_ntz'2026-01-01 00:00:00'", r"the key column at is timestamp_ntz, the index's is timestamp"),
        ("at", "date'2026-01-01'", r"the key column at is date, the index's is timestamp\(ns\), stored as bigint"),
    ):
        with pytest.raises(shadow.UsageError, match=message):
            load(spark, index, texts(spark).withColumn(name, F.expr(sql)))
    wrong = load(spark, index, texts(spark).withColumn("ms", F.lit("12:30:00.0005")), ["n"])
    with pytest.raises(Exception, match="expected time") as caught:
        wrong.collect()
    assert one_line(caught.value) == "keys: key column ms: expected time(ms), found '12:30:00.0005'"
    assert exit_code(caught.value) == 2


@pytest.mark.usefixtures("far_zone_with_times")
def test_a_time_finer_than_the_columns_unit_matches_no_row(spark: SparkSession, lake: Path) -> None:
    finer = texts(spark).withColumn("ms", F.expr("time'12:30:00.000005'"))
    assert load(spark, str(lake / "index"), finer, ["n"]).count() == 0


def test_decimals_in_text_are_not_rounded_to_another_key(spark: SparkSession, lake: Path) -> None:
    keys = texts(spark).withColumn("large", F.lit("1.504"))
    with pytest.raises(Exception, match="expected decimal") as caught:
        load(spark, str(lake / "index"), keys, ["n"]).collect()
    assert one_line(caught.value) == "keys: key column large: expected decimal(38,2), found '1.504'"


def test_columns_of_these_types_are_loaded_as_they_would_be_stored(spark: SparkSession, tmp_path: Path) -> None:
    names = ("u8", "u16", "u32", "u64", "half", "fixed", "id")
    columns = {name: pa.array(values, kind) for name, (kind, values, _) in TYPES.items() if name in names}
    write_source(tmp_path / "source", {"a.parquet": pa.table({"k": ["x", "y"], **columns})})
    build(spark, str(tmp_path / "source"), str(tmp_path / "index"), ["k"])
    rows = load(spark, str(tmp_path / "index"), spark.createDataFrame([("x",)], "k string"))
    assert STORED.startswith(", ".join(f"{f.name} {f.dataType.simpleString()}" for f in rows.schema if f.name in names))
    assert [tuple(row) for row in rows.collect()] == [("x", *(TYPES[name][2][-1] for name in names))]


@pytest.mark.skipif(TIME_TYPE is None, reason="Spark has times of day since 4.1")
def test_a_batch_of_types_that_spark_does_not_have_is_appended_as_the_source_stores_them(tmp_path: Path) -> None:
    columns = {name: pa.array(values, kind) for name, (kind, values, _) in TYPES.items()}
    columns["at"] = pa.array([NS // 1000 * 1000, 0], TYPES["at"][0])  # Spark's timestamps have no more digits
    for place, key in (("source", "old"), ("batch", "new")):
        write_source(tmp_path / place, {"a.parquet": pa.table({"k": [key] * len(columns["u8"]), **columns})})
    build(None, str(tmp_path / "source"), str(tmp_path / "index"), ["k"])
    index = open_index(str(tmp_path / "index"))
    frame = read_batch(None, str(tmp_path / "batch"), index)
    assert append_new(None, str(tmp_path / "index"), frame, "batch").appended == 1
    new = next((tmp_path / "source").glob("part-*"))
    assert pq.read_schema(new).equals(pq.read_schema(tmp_path / "source/a.parquet"))
    found, wanted = open_index(str(tmp_path / "index")).fetch("new")[0], index.fetch("old")
    assert {**found, "k": "old"} in wanted


def test_new_files_may_differ_where_the_values_mean_the_same(tmp_path: Path) -> None:
    source, index = tmp_path / "source", str(tmp_path / "index")
    write_source(
        source, {"a.parquet": pa.table({"k": pa.array([1], pa.uint32()), "t": pa.array([1], pa.time32("ms"))})}
    )
    build(None, str(source), index, ["k"], include=["t"])
    more = {"k": pa.array([-1, 1]), "t": pa.array([1, 2], pa.time32("ms"))}
    write_source(source, {"b.parquet": pa.table(more)})
    build(None, str(source), index, ["k"], include=["t"])
    assert [len(open_index(index).fetch(key)) for key in (1, -1)] == [2, 1]
    write_source(source, {"c.parquet": pa.table({**more, "t": pa.array([1, 2], pa.time64("us"))})})
    with pytest.raises(
        shadow.UsageError, match=r"c.parquet: column t is time64\[us\], elsewhere in the source it is time\(ms\)"
    ):
        build(None, str(source), index, ["k"], include=["t"])


def test_a_column_that_has_no_value_in_any_file_is_no_key(tmp_path: Path) -> None:
    write_source(tmp_path / "source", {"a.parquet": pa.table({"k": pa.nulls(1)})})
    with pytest.raises(
        shadow.UsageError, match="column k has no type in any file: no values, or none that can be read"
    ):
        build(None, str(tmp_path / "source"), str(tmp_path / "index"), ["k"])


@pytest.mark.parametrize("kind", [*key_types(), key_type("decimal(9,2)")], ids=lambda kind: kind.name)
def test_each_place_that_names_key_types_names_this_one(kind: KeyType) -> None:
    is_small = kind.name in ("tinyint", "smallint")  # an index file holds them as int
    assert type_of_avro(kind.avro) == ("int" if is_small else kind.name)
    assert type_of_arrow(kind.arrow) == kind.name
    assert parse_ddl(f"c {kind.name}").field("c").type == kind.arrow
    assert to_ddl(pa.schema([("c", kind.arrow)])) == f"c {kind.name}"
    assert arrow_of(key_spark_type(kind.name)) == kind.arrow
    assert not isinstance(key_spark_type(kind.name), UNREAD)
    named = kind.name.partition("(")[0]
    assert named in VALUE_TYPES or kind.decimal
    assert re.search(rf"^  {named}: |\^{named}\\\(", (ROOT / "service/page/kinds.js").read_text(), re.MULTILINE)
    assert re.search(rf"^\|[^|]*\b{named}\b", (ROOT / "docs/internals/btree-format.md").read_text(), re.MULTILINE)
