"""An index in Spark SQL: the rows of every query compared with a filter over all rows, and the bytes read."""

import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from gnomon import shadow
from gnomon.commands.failures import one_line
from gnomon.indexer import build, read_index
from gnomon.indexer import register as register_source
from gnomon.indexer.datasource import source
from gnomon.indexer.spark import versions
from gnomon.indexer.spark.versions import HAS_PUSHDOWN, HAS_SOURCES
from tests.indexer.lakes import comparable, crawl, every_type, explained, plain, predicates_of_every_type
from tests.shadow.make_index import index_source, write_source

pytestmark = pytest.mark.spark
sources = pytest.mark.skipif(not HAS_SOURCES, reason="Spark 3.5 has no data sources in Python")
pushing = pytest.mark.skipif(not HAS_PUSHDOWN, reason="Spark 4.0 hands a Python source no filters, 3.5 has none")

LAYOUTS = {"by folder": (["url"], False), "composite": (["url", "x"], False)}


@pytest.fixture(scope="module")
def lakes(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    register(spark)
    roots = {name: tmp_path_factory.mktemp("lake") for name in LAYOUTS}
    for name, (keys, flat) in LAYOUTS.items():
        crawl(roots[name], keys, flat)
    return roots


def register(spark: SparkSession) -> None:
    if HAS_SOURCES:
        register_source(spark)


def gnomon(spark: SparkSession, root: Path) -> DataFrame:
    if not HAS_SOURCES:
        return read_index(spark, root / "index")
    return spark.read.format("gnomon").load(str(root / "index"))


def pushed(frame: DataFrame) -> str:
    """The filters that the source accepted, from EXPLAIN FORMATTED."""
    lines = [line for line in explained(frame).splitlines() if line.startswith("PushedFilters")]
    return lines[0].removeprefix("PushedFilters: ") if lines else "none"


PREDICATES = [
    "url = 'https://é/7'",
    "url in ('https://é/7', 'https://é/8', 'nowhere', null)",
    "url is null",
    "url <=> 'https://é/3' and dt = '2026-01-02'",
    "url = 'https://é/3' and dt is null",
    "dt in ('2026-01-01', 'x y')",
    "url = 'https://é/3' or url = 'https://é/4'",
    "url = 'https://é/3' or n < 5",
    "not url = 'https://é/3'",
    "url not in ('https://é/3', 'https://é/4') and dt <> '2026-01-01'",
    "cast(url as binary) = cast('https://é/3' as binary)",
    "upper(url) = 'HTTPS://É/3'",
    "url = 'https://é/3' and url in ('https://é/3', 'https://é/4') and n > 1000",
    "url = 'https://é/3' and x = 'NaN'",
    "url in ('https://é/3', 'https://é/4') and (x in (0.0, 1.5) or x is null)",
    "url = 'https://é/7' and x in (0.0D, double('NaN'), -2.0D)",
    "url is null and x is null",
    "x = -0.0D",
    "url >= 'https://é/3' and url like 'https://é/1%'",
    "n = 7000 and url is not null",
    "dt = '2026-01-03'",
    "true",
]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_rows_are_those_of_a_filter_over_everything(spark: SparkSession, lakes: dict[str, Path], layout: str) -> None:
    """All filters are in one query, to show that its scans do not mix."""
    ours, columns = gnomon(spark, lakes[layout]), ["url", "n", "data_offset", "dt"]
    predicates = [one for one in PREDICATES if re.search(r"\bx\b(?! y)", one) is None]
    if layout == "composite":
        columns.insert(1, "x")
        predicates = [one for one in PREDICATES if one not in predicates]
    everything = plain(spark, lakes[layout]).select(*columns)

    def of_all(frame: DataFrame) -> DataFrame:
        parts = [frame.where(one).select(F.lit(i), *columns) for i, one in enumerate(predicates)]
        joined = parts[0]
        for part in parts[1:]:
            joined = joined.union(part)
        return joined

    found, expected = comparable(of_all(ours).collect()), comparable(of_all(everything).collect())
    assert found == expected
    assert len(expected) > 60


def test_values_of_every_key_type_are_looked_up_as_spark_compares_them(spark: SparkSession, tmp_path: Path) -> None:
    """A key of one column of each type, in a session with a time zone other than UTC."""
    register(spark)
    every_type(tmp_path)
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        results = []
        for frame in (gnomon(spark, tmp_path), plain(spark, tmp_path)):
            parts = [frame.where(predicate) for predicate in predicates_of_every_type()]
            tagged = [part.select(F.lit(i), "n", "data_offset") for i, part in enumerate(parts)]
            results.append(comparable(tagged[0].union(tagged[1]).union(tagged[2]).union(tagged[3]).collect()))
            if HAS_PUSHDOWN and frame.columns[-1] != "data_offset":
                taken = [pushed(part) for part in parts]
                assert [line.count("EqualTo(") for line in taken[:3]] == [12, 12, 9]
                assert [line.count("IsNull(") for line in taken[:3]] == [0, 0, 3]
                assert taken[3].count("In(") == 12
        assert results[0] == results[1]
        assert len(results[0]) > 10
    finally:
        spark.conf.set("spark.sql.session.timeZone", before or "UTC")


@pushing
def test_filters_on_the_key_are_look_ups_and_those_on_partitions_leave_folders_out(
    spark: SparkSession, lakes: dict[str, Path]
) -> None:
    table = gnomon(spark, lakes["by folder"])
    one = table.where("url = 'https://é/7'")
    assert pushed(one) == "[EqualTo(url,https://é/7)]"
    assert "(url" not in explained(one).partition("Condition : ")[2].replace("isnotnull(url", "")
    assert pushed(table.where("url in ('a', 'b') and dt = 'x y'")) == "[In(url, [a,b]), EqualTo(dt,x y)]"
    assert pushed(table.where("url is null")) == "[IsNull(url)]"
    assert pushed(table.where("url <=> 'a'")) == "[EqualNullSafe(url,a)]"
    assert pushed(table.where("url = 'a' and n = 3")) == "[EqualTo(url,a)]"
    assert pushed(table.where("dt in ('2026-01-01', 'x y')")) == "[In(dt, [2026-01-01,x y])]"


@pytest.mark.parametrize(
    "predicate",
    [
        "url is not null",
        pytest.param("url collate UNICODE_CI = 'a'", marks=sources),  # Spark 3.5 has no collations either
        "cast(dt as date) = date'2026-01-01'",
        "dt <> 'x y'",
        "url = dt",
    ],
)
def test_filters_of_other_kinds_prune_nothing(spark: SparkSession, lakes: dict[str, Path], predicate: str) -> None:
    assert pushed(gnomon(spark, lakes["by folder"]).where(predicate)) == "none"


@pushing
def test_a_composite_key_is_looked_up_where_its_first_columns_are_named(
    spark: SparkSession, lakes: dict[str, Path]
) -> None:
    table = gnomon(spark, lakes["composite"])
    both = table.where("url in ('a', 'b') and x in (1.5D, 2D) and x is not null")
    assert pushed(both) == "[In(url, [a,b]), In(x, [1.5,2.0])]"
    assert pushed(table.where("url = 'a'")) == "[EqualTo(url,a)]"
    assert pushed(table.where("x = 1.5D and dt = 'x y'")) == "[EqualTo(dt,x y)]"


def test_each_use_of_one_dataframe_reads_by_its_own_filters(spark: SparkSession, lakes: dict[str, Path]) -> None:
    """Spark 4.1 to 4.3 share one plan between all uses."""
    table = gnomon(spark, lakes["by folder"])
    total = table.count()
    counts = {number: table.where(f"url = 'https://é/{number}'").count() for number in (3, 4)}
    assert all(0 < count < total for count in counts.values())
    assert table.count() == total
    either = table.where("url = 'https://é/3' or url = 'https://é/4'")
    assert either.count() == sum(counts.values())
    first, second = (table.where(f"url = 'https://é/{number}'") for number in (3, 4))
    assert first.union(second).count() == sum(counts.values())
    assert first.union(table).count() == counts[3] + total
    table.createOrReplaceTempView("shared")
    row = spark.sql(
        "WITH a AS (SELECT * FROM shared) SELECT (SELECT count(*) FROM a WHERE url = 'https://é/3'), "
        "(SELECT count(*) FROM a), (SELECT count(*) FROM a WHERE url = 'https://é/4')"
    ).collect()[0]
    assert tuple(row) == (counts[3], total, counts[4])
    joined = spark.sql(
        "SELECT * FROM shared x JOIN shared y ON x.n = y.n AND x.dt <=> y.dt WHERE x.url = 'https://é/3'"
    )
    assert joined.count() == counts[3]
    spark.sql("DROP VIEW shared")
    cached = first.cache()
    assert (cached.count(), table.count()) == (counts[3], total)
    cached.unpersist()


@sources
def test_a_dataframe_and_a_view_stay_at_the_snapshot_that_was_the_newest(spark: SparkSession, tmp_path: Path) -> None:
    register(spark)
    crawl(tmp_path, ["url"], flat=False)
    location, frame = str(tmp_path / "index"), gnomon(spark, tmp_path)
    spark.sql(f"CREATE TEMPORARY VIEW pinned USING gnomon OPTIONS (path '{location}')")
    before = frame.count()
    new = pq.read_table(tmp_path / "source/dt=x y/p2.parquet")
    write_source(tmp_path / "source", {"dt=2026-01-01/new.parquet": new})
    index_source(tmp_path / "source", tmp_path / "index", ["url"], include=["n"])
    assert gnomon(spark, tmp_path).count() == before + 60
    assert [frame.count(), spark.table("pinned").count()] == [before, before]
    assert frame.where("url is not null and dt = '2026-01-01'").count() < before
    number = shadow.OpenIndex.of(location).view.snapshot.number
    assert read_index(spark, location, snapshot=number - 1).count() == before
    spark.sql("DROP VIEW pinned")


@pytest.mark.parametrize("layout", ["by folder", "composite"])
def test_payload_brings_columns_of_the_source(spark: SparkSession, lakes: dict[str, Path], layout: str) -> None:
    everything = plain(spark, lakes[layout]).select("url", "x", "n", "`L x.y`", "data_offset", "dt")
    location = str(lakes[layout] / "index")
    rows = read_index(spark, location, payload=True)
    assert set(rows.columns) >= {"L x.y", "x"}
    names = ["url", "x", "n", "`L x.y`", "data_offset", "dt"]
    assert comparable(rows.select(*names).collect()) == comparable(everything.collect())
    one = rows.where("url = 'https://é/7' and x = 1.5D").select(*names)
    assert comparable(one.collect()) == comparable(everything.where("url = 'https://é/7' and x = 1.5D").collect())
    some = read_index(spark, location, payload=["L x.y"], columns=["L x.y", "dt"])
    assert some.columns == ["dt", "L x.y"]
    assert comparable(some.where("dt = 'x y'").collect()) == comparable(
        everything.where("dt = 'x y'").select("dt", "`L x.y`").collect()
    )


def test_columns_are_named_as_the_source_names_them_and_never_twice(spark: SparkSession, tmp_path: Path) -> None:
    register(spark)
    names = {"data_offset": "data_offset_", "Key": "Key", "key": "key_", "L x.y": "L x.y"}
    table = pa.table({name: pa.array([i, i + 1, i + 1]) for i, name in enumerate(names)})
    write_source(tmp_path / "source", {"p.parquet": table})
    index_source(tmp_path / "source", tmp_path / "index", ["L x.y", "key"], include=["data_offset", "Key"])
    frame = gnomon(spark, tmp_path)
    assert frame.columns[:4] == ["L x.y", "key", "data_offset_", "Key_"]
    assert frame.columns[4:] == ["data_filename", "data_offset", "data_sub_offset", "data_size"]
    found = frame.where("`L x.y` = 4 and key = 3 and data_offset_ = 1").select("data_offset", "Key_")
    assert pushed(found) == ("[EqualTo(`L x.y`,4), EqualTo(key,3)]" if HAS_PUSHDOWN else "none")
    assert [tuple(row) for row in found.collect()] == [(1, 2), (2, 2)]


@sources
def test_errors_are_one_line_with_what_to_do(classic: SparkSession, tmp_path: Path) -> None:
    spark = classic
    register(spark)
    crawl(tmp_path, ["url"], flat=False)
    location = str(tmp_path / "index")
    wrong = {
        "snapshot": ("last", "option snapshot: expected a number, found 'last'"),
        "Snapshots": ("1", "option snapshots: not known; gnomon has path, snapshot, columns, payload, pruning"),
        "payload": ("nope", "payload: the source has no column nope; it has url, x, n, L x.y, dt"),
        "columns": ("url,nope", "columns: the index has no column nope; it has url, n, data_filename"),
        "pruning": ("maybe", "option pruning: expected true or false, found 'maybe'"),
    }
    for option, (value, text) in wrong.items():
        with pytest.raises(AnalysisException) as caught:
            spark.read.format("gnomon").option(option, value).load(location)
        assert text in str(caught.value)
        assert "Traceback" not in str(caught.value)
    with pytest.raises(AnalysisException) as caught:
        spark.read.format("gnomon").load(str(tmp_path / "nowhere"))
    line, note, state = str(caught.value).splitlines()
    assert line.endswith(
        f"{tmp_path}/nowhere: not an index (_shadow/spec.json is not there); run gnomon build SOURCE INDEX --key KEY"
    )
    assert note.startswith("<gnomon-error>")
    assert state.startswith(" SQLSTATE")
    assert one_line(caught.value).startswith(f"{tmp_path}/nowhere: not an index")
    with pytest.raises(AnalysisException, match="no path; say format"):
        spark.read.format("gnomon").load()
    with pytest.raises(AnalysisException, match="format gnomon only reads; gnomon build makes an index"):
        spark.range(1).write.format("gnomon").mode("append").save(location)
    with pytest.raises(AnalysisException, match="Spark's catalog does not tell a Python source the path of a table"):
        spark.sql(f"CREATE TABLE refused USING gnomon OPTIONS (path '{location}')")
    with pytest.raises(PySparkException, match="declared with the columns url int; the index has url string, n int"):
        spark.read.schema("url int").format("gnomon").load(location).count()
    with pytest.raises(shadow.IndexNotFound, match="nowhere: not an index"):
        read_index(spark, str(tmp_path / "nowhere"))
    with pytest.raises(shadow.UsageError, match="columns: the index has no column nope"):
        read_index(spark, location, columns=["nope"])
    with pytest.raises(shadow.SnapshotNotFound):
        read_index(spark, location, snapshot=99)
    frame = gnomon(spark, tmp_path)
    victim = sorted((tmp_path / "index").rglob("*.btree.avro"))[0]
    victim.write_bytes(victim.read_bytes()[:-1])
    with pytest.raises(PySparkException) as failed:
        frame.collect()
    line = one_line(failed.value)
    assert line.startswith(f"{victim} at byte ")
    assert "Traceback" not in line
    victim.unlink()
    with pytest.raises(PySparkException, match="missing, though the snapshot names it"):
        frame.collect()


@pushing
def test_a_session_that_is_not_the_active_one_is_registered(spark: SparkSession, lakes: dict[str, Path]) -> None:
    register(spark)
    active, other = SparkSession.active(), spark.newSession()
    for _ in range(2):
        register(other)
        one = gnomon(other, lakes["by folder"]).where("url = 'https://é/7'")
        assert 0 < one.count() < gnomon(spark, lakes["by folder"]).count()
        assert "EqualTo" in pushed(one)
    assert SparkSession.active() is active


@sources
def test_without_pruning_the_rows_are_the_same(spark: SparkSession, lakes: dict[str, Path]) -> None:
    whole = spark.read.format("gnomon").option("pruning", "false").load(f"{lakes['by folder']}/index")
    one = whole.where("url = 'https://é/7'")
    assert pushed(one) == "none"
    assert comparable(one.collect()) == comparable(
        gnomon(spark, lakes["by folder"]).where("url = 'https://é/7'").collect()
    )
    assert one.count() > 0


@pushing
def test_a_date_that_python_does_not_hold_is_compared_by_spark(classic: SparkSession, tmp_path: Path) -> None:
    """Spark cannot plan a scan with this filter and raises an error; another form of the query works."""
    spark = classic
    register(spark)
    dates = pa.array([-800_000, 0, None], pa.int32()).cast(pa.date32())
    write_source(tmp_path / "source", {"p.parquet": pa.table({"d": dates})})
    index_source(tmp_path / "source", tmp_path / "index", ["d"])
    far = "d = date_add(date'1970-01-01', -800000)"
    with pytest.raises(AnalysisException, match="deserializeFilter"):
        gnomon(spark, tmp_path).where(far).count()
    setting = "spark.sql.python.filterPushdown.enabled"
    spark.conf.set(setting, "false")
    try:
        assert spark.read.format("gnomon").option("pruning", "false").load(f"{tmp_path}/index").where(far).count() == 1
    finally:
        spark.conf.set(setting, "true")


def test_partition_columns_of_a_catalog_table_come_and_are_compared_in_its_types(
    spark: SparkSession, database: str, tmp_path: Path
) -> None:
    register(spark)
    table = f"{database}.visits"
    spark.sql(f"CREATE TABLE {table} (url STRING, day DATE, part INT) USING parquet PARTITIONED BY (day, part)")
    spark.sql(
        f"INSERT INTO {table} SELECT concat('u', id % 7), "
        "if(id % 5 = 0, null, date_add(date'2026-03-01', int(id % 3))), int(id % 2) FROM range(100)"
    )
    elsewhere = tmp_path / "far away"
    spark.sql(f"ALTER TABLE {table} ADD PARTITION (day = '2025-12-31', part = 7) LOCATION '{elsewhere}'")
    spark.sql(f"INSERT INTO {table} PARTITION (day = '2025-12-31', part = 7) VALUES ('u1'), ('u9')")
    for flat in (False, True):
        location = str(tmp_path / f"index{flat}")
        build(spark, f"table:{table}", location, ["url"], buckets=2, flat=flat)
        ours, theirs = read_index(spark, location), spark.table(table)
        assert dict(ours.dtypes) | {"day": "date", "part": "int"} == dict(ours.dtypes)
        for predicate, taken in {
            "day = date'2026-03-02'": "[EqualTo(day,2026-03-02)]",
            "url = 'u1' and part in (1, 7)": "[In(part, [1,7]), EqualTo(url,u1)]",
            "day is null and url in ('u1', 'u5')": "[IsNull(day), In(url, [u1,u5])]",
            "day > date'2026-01-01' and part <> 0": "none",
        }.items():
            found = ours.where(predicate)
            taken = taken if HAS_PUSHDOWN else "none"
            assert sorted(pushed(found).strip("[]").split(", ")) == sorted(taken.strip("[]").split(", "))
            rows = found.select("url", "day", "part").collect()
            expected = theirs.where(predicate).select("url", "day", "part").collect()
            assert comparable(rows) == comparable(expected)
            assert expected


def test_without_sources_in_python_the_rows_are_the_same(
    spark: SparkSession, lakes: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in Spark 3.5, in each version."""
    monkeypatch.setattr(source, "HAS_SOURCES", False)
    monkeypatch.setattr(versions, "HAS_SOURCES", False)
    for root in lakes.values():
        everything, rows = plain(spark, root), read_index(spark, root / "index", payload=True)
        assert pushed(rows.where("url = 'https://é/7'")) == "none"
        for predicate in ("true", "url = 'https://é/7' and dt = '2026-01-01'", "dt = 'nowhere'"):
            found, expected = (
                frame.where(predicate).select("url", "x", "n", "`L x.y`", "data_offset", "dt")
                for frame in (rows, everything)
            )
            assert comparable(found.collect()) == comparable(expected.collect())
    index = str(tmp_path / "index")
    with pytest.raises(shadow.IndexNotFound, match="index: not an index"):
        read_index(spark, index)
    crawl(tmp_path, ["url"], flat=False)
    pinned = read_index(spark, index, columns=["url", "dt"])
    assert pinned.columns == ["url", "dt"]
    with pytest.raises(shadow.UsageError, match="columns: the index has no column nope"):
        read_index(spark, index, columns=["nope"])
    with pytest.raises(shadow.SnapshotNotFound):
        read_index(spark, index, snapshot=99)
    before = pinned.count()
    new = pq.read_table(tmp_path / "source/dt=x y/p2.parquet")
    write_source(tmp_path / "source", {"dt=2026-01-01/new.parquet": new})
    index_source(tmp_path / "source", tmp_path / "index", ["url"], include=["n"])
    assert (pinned.count(), read_index(spark, index).count()) == (before, before + 60)
    with pytest.raises(shadow.UsageError, match=r"^format gnomon: expected Spark 4.0 or later, .* found \d"):
        register_source(spark)
