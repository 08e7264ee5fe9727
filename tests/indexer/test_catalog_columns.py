"""Tables of Spark's catalog as sources: their declared columns, and the columns of their files."""

import json
from collections.abc import Iterable
from pathlib import Path

import fastavro
import pyarrow as pa
import pyarrow.orc
import pytest
from pyspark.sql import SparkSession

from gnomon.indexer import build, load
from gnomon.shadow import UsageError
from gnomon.shadow.errors import SourceNotFound, SpecMismatch, UnsupportedFormat
from tests.indexer.catalog_tables import COLUMNS, plain, rows, same_rows, write
from tests.opened import open_index
from tests.profiles import cases

pytestmark = pytest.mark.spark

EVERY = (
    "url STRING, n INT, w DOUBLE, f FLOAT, big BIGINT, flag BOOLEAN, dec DECIMAL(10,2), d DATE, t TIMESTAMP, "
    "bytes BINARY, m MAP<STRING,INT>, l ARRAY<STRUCT<a:INT,b:STRING>>, short SMALLINT, name VARCHAR(9)"
)
VALUES = """
    SELECT concat('u', id % 20), int(id), id / 3D, float(id), id * 10000000000, id % 2 = 0, decimal(id) / 8,
           date_add(date'2020-01-01', int(id)), timestamp_millis(1577934245000 + id), cast(concat('b', id) AS BINARY),
           map('a', int(id), 'b', NULL), array(named_struct('a', int(id), 'b', 'x'), named_struct('a', NULL, 'b', 'é')),
           smallint(id), if(id % 5 = 0, NULL, concat('n', id))
"""


@pytest.mark.parametrize(
    "stored", cases(["STORED AS PARQUET", "STORED AS ORC", "STORED AS AVRO", "STORED AS SEQUENCEFILE"])
)
def test_hive_tables_of_each_format_are_read_as_spark_reads_them(
    spark: SparkSession, database: str, tmp_path: Path, stored: str
) -> None:
    every = EVERY.replace("short SMALLINT", "short INT") if stored.endswith("AVRO") else EVERY
    values = VALUES.replace("smallint(id)", "int(id)") if stored.endswith("AVRO") else VALUES
    spark.sql(f"CREATE TABLE {database}.plain ({every}) {stored}")
    spark.sql(f"CREATE TABLE {database}.parts ({every}) PARTITIONED BY (`by day` DATE, part STRING) {stored}")
    spark.range(60).createOrReplaceTempView("numbers")
    spark.sql(f"INSERT INTO {database}.plain {values} FROM numbers")
    for day, part, some in (("2020-01-01", "x y/é=%", "id < 30"), ("2020-01-02", "x", "id >= 30")):
        partition = f"PARTITION (`by day`='{day}', part='{part}')"
        spark.sql(f"INSERT INTO {database}.parts {partition} {values} FROM numbers WHERE {some}")
    for name in ("plain", "parts"):
        table, index = f"{database}.{name}", str(tmp_path / name)
        build(spark, f"table:{table}", index, ["url"], include=["t"])
        assert same_rows(spark, table, index) == 60
    assert len(open_index(index).fetch("u7", where={"part": "x y/é=%"})) == 2
    found = load(spark, index, spark.createDataFrame([("u7",)], "url string"))
    wanted = spark.table(table).where("url = 'u7'")
    stamp = {"t": "timestamp_ntz"} if stored.endswith("ORC") else {}
    assert dict(found.dtypes) == dict(wanted.dtypes) | stamp
    assert _rows(found.collect()) == _rows(wanted.collect())


@pytest.mark.parametrize("format", ["parquet", "orc"])
def test_datasource_tables_are_read_as_spark_reads_them(
    spark: SparkSession, database: str, tmp_path: Path, format: str
) -> None:
    table, index = f"{database}.t", str(tmp_path / "index")
    spark.sql(
        f"CREATE TABLE {table} USING {format} PARTITIONED BY (k, big) CLUSTERED BY (Url) INTO 2 BUCKETS AS "
        "SELECT concat('u', id % 20) Url, id n, int(if(id % 3 = 0, NULL, id % 3)) k, "
        "cast(id % 2 / 4 AS DECIMAL(4,2)) big FROM range(60)"
    )
    spark.sql(f"INSERT INTO {table} SELECT 'null', 1, NULL, 0.5")
    build(spark, f"table:{table}", index, ["Url", "k"])
    opened = open_index(index)
    wanted = _rows(spark.table(table).collect())
    keys = {(url, k) for url in [f"u{n}" for n in range(20)] + ["null"] for k in (None, 1, 2)}
    assert sorted(repr(plain(row)) for rows in opened.fetch_many(list(keys)) for row in rows) == wanted
    assert opened.fetch(("null", None), where={"big": "0.50"}) == opened.fetch(("null", None))
    assert opened.fetch(("null", None), where={"big": "0.25"}) == []


def _rows(found: Iterable) -> list[str]:
    return sorted(repr(plain(row.asDict(recursive=True))) for row in found)


def test_columns_are_found_whatever_their_case_and_widened_to_what_is_declared(
    spark: SparkSession, database: str, tmp_path: Path
) -> None:
    root, index = tmp_path / "t", str(tmp_path / "index")
    table = f"{database}.t"
    spark.sql(
        f"CREATE EXTERNAL TABLE {table} (url STRING, n BIGINT, w DOUBLE, more STRING, "
        f"s STRUCT<inner:BIGINT,other:STRING>) STORED AS PARQUET LOCATION '{root}'"
    )
    struct = pa.array([{"Inner": 1}, None], pa.struct([("Inner", pa.int64())]))
    write(root, pa.table({"URL": ["a", "b"], "N": pa.array([1, None], pa.int64()), "w": [0.5, None], "s": struct}))
    new = pa.table({"n": pa.array([2, 3], pa.int32()), "Url": ["a", "c"], "W": pa.array([1.5, 2], pa.float32())})
    build(spark, f"table:{table}", index, ["url", "n"])
    write(root, new.append_column("dropped", [[1, 2]]), "b.parquet")
    build(spark, f"table:{table}", index, ["url", "n"])
    opened = open_index(index)
    empty = {"more": None, "s": None}
    assert opened.view.columns == ("url", "n", "w", "more", "s")
    assert opened.fetch(("a", 1)) == [{"url": "a", "n": 1, "w": 0.5, "more": None, "s": {"inner": 1, "other": None}}]
    assert opened.fetch(("b", None)) == [{"url": "b", "n": None, "w": None, **empty}]
    assert opened.fetch(("c", 3)) == [{"url": "c", "n": 3, "w": 2.0, **empty}]
    loaded = load(spark, index, spark.createDataFrame([("a", 2)], "url string, n int"), ["w", "s"])
    assert [row.asDict() for row in loaded.collect()] == [{"url": "a", "n": 2, "w": 1.5, "s": None}]
    with pytest.raises(SpecMismatch, match=f"source table: {table} in the index, none asked for"):
        build(spark, str(root), index, ["url", "n"])
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        assert build(spark, f"table:{table}", str(tmp_path / "other"), ["url"]).rows == 4
        assert len(open_index(str(tmp_path / "other")).fetch("a")) == 2
    finally:
        spark.conf.unset("spark.sql.caseSensitive")
    spark.sql(f"ALTER TABLE {table} ADD COLUMNS (later INT)")
    changed = build(spark, f"table:{table}", index, ["url", "n"])
    assert (changed.committed, changed.new_files, changed.changed_files) == (True, 0, 0)
    assert open_index(index).fetch(("c", 3))[0]["later"] is None
    assert opened.refresh()
    assert opened.fetch(("c", 3), ["later"]) == [{"later": None}]


def test_files_that_do_not_hold_what_is_declared_are_named(spark: SparkSession, database: str, tmp_path: Path) -> None:
    root, index, table = tmp_path / "t", str(tmp_path / "index"), f"{database}.t"
    spark.sql(f"CREATE EXTERNAL TABLE {table} (url STRING, n INT) STORED AS PARQUET LOCATION '{root}'")
    write(root, pa.table({"url": ["a"], "n": pa.array([1], pa.int64())}))
    build(spark, f"table:{table}", index, ["url"])
    assert open_index(index).fetch("a", ["url"]) == [{"url": "a"}]
    with pytest.raises(UnsupportedFormat, match=r"a.parquet: column n: the file has int64, the table declares int32"):
        open_index(index).fetch("a")
    with pytest.raises(UnsupportedFormat, match=r"column n: the file has int64"):
        build(spark, f"table:{table}", str(tmp_path / "other"), ["n"])
    write(root, pa.table({"Url": ["a"], "url": ["b"]}), "b.parquet")
    with pytest.raises(UnsupportedFormat, match=r"b.parquet: the columns Url, url differ in case only"):
        build(spark, f"table:{table}", index, ["url"])
    (root / "b.parquet").unlink()
    spark.sql(f"DROP TABLE {table}")
    spark.sql(f"CREATE EXTERNAL TABLE {table} (url BINARY, n INT) STORED AS PARQUET LOCATION '{root}'")
    with pytest.raises(SpecMismatch, match=r"column url is binary by now, the index was made with string"):
        build(spark, f"table:{table}", index, ["url"])


def test_orc_columns_without_names_are_those_of_the_table_in_order(
    spark: SparkSession, database: str, tmp_path: Path
) -> None:
    root, index, table = tmp_path / "t", str(tmp_path / "index"), f"{database}.t"
    spark.sql(f"CREATE EXTERNAL TABLE {table} (url STRING, n INT, later STRING) STORED AS ORC LOCATION '{root}'")
    root.mkdir(exist_ok=True)
    pa.orc.write_table(pa.table({"_col0": ["a", "b"], "_col1": pa.array([1, 2], pa.int32())}), root / "000000_0")
    named = pa.table({"later": ["x"], "URL": ["c"], "n": pa.array([3], pa.int16())})
    pa.orc.write_table(named, root / "000001_0")
    build(spark, f"table:{table}", index, ["url"])
    found = open_index(index).fetch_many(["a", "c"])
    assert found == [[{"url": "a", "n": 1, "later": None}], [{"url": "c", "n": 3, "later": "x"}]]


@pytest.mark.parametrize("stored", ["ORC", "SEQUENCEFILE"])
def test_a_key_that_moves_among_columns_by_place_is_refused(
    spark: SparkSession, database: str, tmp_path: Path, stored: str
) -> None:
    table, index = f"{database}.t", str(tmp_path / "index")
    create = f"CREATE EXTERNAL TABLE {table} ({{}}) STORED AS {stored} LOCATION '{tmp_path / 't'}'"
    spark.sql(create.format("_col0 INT, _col1 INT"))
    spark.sql(f"INSERT INTO {table} VALUES (1, 10), (2, 20)")
    for columns in ("a INT, b INT", "b INT, a INT"):
        spark.sql(f"DROP TABLE {table}")
        spark.sql(create.format(columns))
        if columns.startswith("a"):
            build(spark, f"table:{table}", index, ["a"])
            assert open_index(index).fetch(1) == [{"a": 1, "b": 10}]
    with pytest.raises(
        SpecMismatch, match=r"column a is number 2 by now, it was number 1 when .*; run gnomon build INDEX --full"
    ):
        build(spark, f"table:{table}", index, ["a"])
    build(spark, f"table:{table}", index, ["a"], full=True)
    assert same_rows(spark, table, index, "a") == 2
    assert open_index(index).fetch(10) == [{"b": 1, "a": 10}]


def test_a_key_that_moves_among_columns_by_name_stays(spark: SparkSession, database: str, tmp_path: Path) -> None:
    table, index = f"{database}.t", str(tmp_path / "index")
    create = f"CREATE EXTERNAL TABLE {table} ({{}}) STORED AS ORC LOCATION '{tmp_path / 't'}'"
    spark.sql(create.format("a INT, b INT"))
    spark.sql(f"INSERT INTO {table} VALUES (1, 10), (2, 20)")
    build(spark, f"table:{table}", index, ["a"])
    spark.sql(f"DROP TABLE {table}")
    spark.sql(create.format("b INT, a INT"))
    assert build(spark, f"table:{table}", index, ["a"]).committed
    assert same_rows(spark, table, index, "a") == 2


def test_hive_text_in_sequence_files_is_read_by_the_tables_own_delimiters(
    spark: SparkSession, database: str, tmp_path: Path
) -> None:
    table, index = f"{database}.t", str(tmp_path / "index")
    spark.sql(
        f"CREATE TABLE {table} (key STRING, m MAP<STRING,INT>, l ARRAY<STRING>, n INT) ROW FORMAT SERDE "
        "'org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe' WITH SERDEPROPERTIES ('field.delim' = '|', "
        "'colelction.delim' = ';', 'mapkey.delim' = '58', 'serialization.null.format' = 'none', "
        "'escape.delim' = '!') STORED AS SEQUENCEFILE"
    )
    spark.sql(
        f"INSERT INTO {table} VALUES ('a|!b', map('x:y', 1, 'z', 2), array('p;q', 'r!'), 1), ('b', NULL, NULL, NULL), "
        "('none', map(), array(), 3)"
    )
    build(spark, f"table:{table}", index, ["n"])
    opened = open_index(index)
    wanted = [plain(row.asDict(recursive=True)) for row in spark.table(table).collect()]
    found = [plain(row) for rows in opened.fetch_many([None, 1, 3]) for row in rows]
    assert sorted(map(repr, found)) == sorted(map(repr, wanted))
    assert [row["key"] for row in found] == ["b", "a|!b", None]


def test_avro_tables_have_the_columns_of_their_schema(spark: SparkSession, database: str, tmp_path: Path) -> None:
    fields = [{"name": "Url", "type": "string"}, {"name": "n", "type": ["null", "long"], "default": None}]
    schema = {"type": "record", "name": "r", "fields": fields}
    root, index, table = tmp_path / "t", str(tmp_path / "index"), f"{database}.t"
    root.mkdir()
    (tmp_path / "schema.avsc").write_text(json.dumps(schema))
    spark.sql(
        f"CREATE EXTERNAL TABLE {table} STORED AS AVRO LOCATION '{root}' "
        f"TBLPROPERTIES ('avro.schema.url' = 'file://{tmp_path}/schema.avsc')"
    )
    with (root / "a.avro").open("wb") as out:
        fastavro.writer(out, schema, [{"Url": "a", "n": 1}, {"Url": "b", "n": None}])
    with (root / "b.avro").open("wb") as out:
        fastavro.writer(out, {**schema, "fields": fields[:1]}, [{"Url": "c"}])
    build(spark, f"table:{table}", index, ["url"])
    assert same_rows(spark, table, index) == 3
    fields[1] = {"name": "n", "type": "long", "default": 7}
    (tmp_path / "schema.avsc").write_text(json.dumps(schema))
    with pytest.raises(UsageError, match="its Avro schema has 7 for n where a file lacks it"):
        build(spark, f"table:{table}", index, ["url"])


def test_tables_that_are_not_read_are_refused_in_one_line(spark: SparkSession, database: str, tmp_path: Path) -> None:
    def refused(name: str, ddl: str, *, key: str = "url") -> str:
        spark.sql(f"CREATE {ddl.format(f'{database}.{name}')}")
        with pytest.raises(UsageError) as error:
            build(spark, f"table:{database}.{name}", str(tmp_path / "index"), [key])
        assert "\n" not in str(error.value)
        return str(error.value)

    hive = f"TABLE {{}} ({COLUMNS}) STORED AS"
    assert "a view has no files" in refused("v", "VIEW {} AS SELECT 1 url")
    assert "a table of format csv is not read" in refused("c", f"TABLE {{}} ({COLUMNS}) USING csv")
    assert "LazySimpleSerDe over org.apache.hadoop.mapred.TextInputFormat" in refused("x", f"{hive} TEXTFILE")
    by_place = f"{hive} PARQUET TBLPROPERTIES ('parquet.column.index.access' = 'true')"
    assert "its columns are found by place (parquet.column.index.access=true)" in refused("p", by_place)
    nested = refused("r", f"TABLE {{}} ({COLUMNS}) USING parquet OPTIONS (recursiveFileLookup = true)")
    assert "it reads folders below those of its partitions" in nested
    assert "a partition column of type binary (b)" in refused(
        "b", "TABLE {} (url STRING, b BINARY) USING parquet PARTITIONED BY (b)"
    )
    assert "column i of type interval" in refused("i", "TABLE {} (url STRING, i INTERVAL DAY) USING parquet")
    mixed = f"{database}.mixed"
    spark.sql(f"CREATE TABLE {mixed} ({COLUMNS}) PARTITIONED BY (dt STRING) STORED AS PARQUET")
    spark.sql(f"ALTER TABLE {mixed} ADD PARTITION (dt='1') PARTITION (dt='2')")
    spark.sql(f"ALTER TABLE {mixed} PARTITION (dt='2') SET SERDE 'org.apache.hadoop.hive.ql.io.orc.OrcSerde'")
    with pytest.raises(UsageError, match="partition dt=2 is of another format than the table"):
        build(spark, f"table:{mixed}", str(tmp_path / "index"), ["url"])
    spark.sql(f"ALTER TABLE {mixed} DROP PARTITION (dt='2')")
    with pytest.raises(SourceNotFound, match=r"not in the catalog of this Spark session .*; name a table"):
        build(spark, f"table:{database}.nothing", str(tmp_path / "index"), ["url"])
    with pytest.raises(UsageError, match=r"expected table:name or table:database.name"):
        build(spark, "table:a b c", str(tmp_path / "index"), ["url"])
    assert not (tmp_path / "index").exists()
    write(tmp_path / "database/mixed/dt=1/deeper", rows(0, 3))
    with pytest.raises(
        SourceNotFound, match=r"deeper/a.parquet: lies below the folder of a partition .* Spark does not"
    ):
        build(spark, f"table:{mixed}", str(tmp_path / "index"), ["url"])
