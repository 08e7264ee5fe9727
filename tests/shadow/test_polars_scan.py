"""An index as a Polars LazyFrame gives the rows that Polars and DuckDB read from the files."""

import datetime as dt
import math
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from polars.testing import assert_frame_equal

from gnomon import build, scan_polars, write_btree
from gnomon.shadow import IndexNotFound, StalePointer, UsageError
from gnomon.shadow.lookup import entry_columns
from gnomon.shadow.maintenance import rebucket
from gnomon.shadow.polars_scan import selection_of
from gnomon.shadow.storage import storage_at
from gnomon.shadow.storage.local import LocalFile
from tests.opened import open_index
from tests.profiles import examples
from tests.shadow.make_index import index_source, write_source

LAYOUTS: dict[str, tuple[list[str], bool, str]] = {
    "text": (["s"], False, "hash"),
    "numbers, in ranges": (["i"], False, "range"),
    "composite, flat": (["i", "s"], True, "hash"),
    "floats and days, in ranges": (["x", "day"], True, "range"),
    "a partition in the key": (["p", "s"], False, "hash"),
    "moments": (["at"], True, "range"),
}
START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
VALUES: dict[str, list[Any]] = {
    "s": ["", "a", "ab", "é1", "é2", "\uffff"],
    "i": [-(2**63), -5, 0, 1, 7, 2**63 - 1],
    "x": [math.nan, -math.inf, -1.5, -0.0, 0.0, 2.0],
    "day": [dt.date(2026, 1, day) for day in range(1, 7)],
    "at": [START + dt.timedelta(microseconds=n * 999_999) for n in range(6)],
    "n": list(range(6)),
    "p": ["a", "b", "c"],
}


@pytest.fixture(scope="module", params=LAYOUTS)
def lake(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, pl.LazyFrame]:
    """An index of several segments, one of a file that is gone, and all rows."""
    root, chance = tmp_path_factory.mktemp("lake"), random.Random(request.param)
    keys, flat, order = LAYOUTS[request.param]
    for number in range(5):
        rows = {name: [chance.choice([None, *some]) for _ in range(60)] for name, some in VALUES.items() if name != "p"}
        types = {"n": pa.int16(), "at": pa.timestamp("us", "UTC"), "i": pa.int64()}
        table = pa.table({name: pa.array(values, types.get(name)) for name, values in rows.items()})
        write_source(root / "source", {f"p={'abc'[number % 3]}/{number}.parquet": table})
        index_source(root / "source", root / "index", keys, 3, ["n"], flat)
        if number == 1:
            rebucket(storage_at(str(root / "index")), 4, order=order)
    (root / "source/p=a/0.parquet").unlink()
    index_source(root / "source", root / "index", keys, 3, ["n"], flat)
    everything = pl.scan_parquet(root / "source/**/*.parquet", hive_partitioning=True, hive_schema={"p": pl.String})
    return root / "index", everything


def some_condition(chance: random.Random) -> pl.Expr:
    name = chance.choice(list(VALUES))
    some = chance.sample(VALUES[name], 3)
    column, one = pl.col(name), some[0]
    kinds: list[Callable[[], pl.Expr]] = [
        lambda: column == one,
        lambda: column == one,
        lambda: column.is_in(some),
        lambda: one > column,
        lambda: column >= one,
        lambda: column < one,
        lambda: column <= one,
        lambda: column.is_between(*map(pl.lit, sorted(some[:2], key=str)), closed=chance.choice(CLOSED)),
        column.is_null,
        column.is_not_null,
        lambda: column != one,
        lambda: (column == one) | (column == some[1]),
        lambda: column.eq_missing(None),
        lambda: column.is_in([*some, None]),
    ]
    if name in ("s", "p"):
        kinds += [lambda: column.str.starts_with(chance.choice(["", "a", "é"])), lambda: column.str.len_bytes() == 1]
    if name in ("i", "x", "n"):
        kinds += [lambda: column > 0, lambda: column + 1 > 1, lambda: column == 1.5]
    return chance.choice(kinds)()


CLOSED: list[Any] = ["both", "left", "right", "none"]


def same(found: pl.DataFrame, expected: pl.DataFrame) -> None:
    assert_frame_equal(found, expected, check_row_order=False, check_column_order=True)


def test_any_conditions_give_the_rows_that_polars_reads(lake: tuple[Path, pl.LazyFrame]) -> None:
    index, everything = lake
    chance, frame = random.Random(5), scan_polars(index)
    assert frame.collect_schema() == everything.collect_schema()
    rows_there = everything.collect()  # Polars skips row groups by statistics of `i + 1` that overflow
    same(frame.collect(), rows_there)
    opened = open_index(str(index))
    narrowed = rows = 0
    for _ in range(examples(120)):
        condition = some_condition(chance)
        for _ in range(chance.choice([0, 0, 1, 2])):
            condition &= some_condition(chance)
        columns = chance.sample(list(VALUES), chance.randint(1, 7))
        asked = frame.filter(condition).select(columns)
        expected = rows_there.filter(condition).select(columns)
        same(asked.collect(engine=chance.choice(["in-memory", "streaming"])), expected)
        assert asked.select(pl.len()).collect().item() == len(expected)
        selection = selection_of(condition, entry_columns(opened.spec))
        narrowed += selection.keys is not None or selection.ranges is not None or bool(selection.where)
        rows += len(expected)
    assert narrowed > 0
    assert rows > 0


def test_conditions_on_the_key_are_look_ups_and_ranges(lake: tuple[Path, pl.LazyFrame]) -> None:
    spec = open_index(str(lake[0])).spec
    name = spec.stored_keys[0].name
    one, other = VALUES[name][2:4]
    columns = entry_columns(spec)
    for condition in (
        pl.col(name) == one,
        pl.col(name).is_in([one, other]),
        pl.col(name).is_null(),
        pl.col(name) <= one,
        other > pl.col(name),
        (pl.col(name) >= one) & (pl.col("n") != 5),
        pl.col(name).is_between(pl.lit(one), pl.lit(other)),
        (pl.col(name) == one) | pl.col(name).is_in([other]) | pl.col(name).is_null(),
    ):
        found = selection_of(condition, columns)
        assert found.keys is not None or found.ranges is not None, condition
    assert selection_of(pl.col("p") == "a", columns).where == {"p": {"a"}}
    for condition in ((pl.col(name) == one) | (pl.col("n") == 1), (pl.col(name) == one) | (pl.col(name) < other)):
        assert selection_of(condition, columns) == selection_of(None, columns)


def test_the_first_rows_are_rows_of_the_table(lake: tuple[Path, pl.LazyFrame]) -> None:
    index, everything = lake
    frame, whole = scan_polars(index), set(map(str, everything.collect().rows()))
    first = frame.head(7).collect()
    assert len(first) == 7
    assert set(map(str, first.rows())) <= whole
    assert len(frame.filter(pl.col("n") >= 0).head(4).collect()) == 4
    assert frame.head(5).filter(pl.col("n") < 0).collect().is_empty()


def test_columns_that_the_index_has_are_not_read_from_the_source(tmp_path: Path) -> None:
    write_source(tmp_path / "source", {"a.parquet": pa.table({"k": range(90), "n": range(90), "other": range(90)})})
    index_source(tmp_path / "source", tmp_path / "index", ["k"], 2, ["n"])
    frame = scan_polars(tmp_path / "index")
    (tmp_path / "source/a.parquet").unlink()
    assert frame.filter(pl.col("k") < 3).select("k", "n").collect().sort("k").rows() == [(0, 0), (1, 1), (2, 2)]
    assert frame.select(pl.col("n").sum()).collect().item() == sum(range(90))
    with pytest.raises(StalePointer, match=r"a\.parquet: the file is gone"):
        frame.select("other").collect()
    assert "gnomon" in frame.filter(pl.col("k") < 3).explain()


def test_rows_that_a_table_deleted_are_in_no_frame(tmp_path: Path) -> None:
    rows = pa.table({"k": pa.array([i % 30 for i in range(300)], pa.int64()), "n": pa.array(range(300), pa.int64())})
    table = str(tmp_path / "table")
    write_deltalake(table, rows)
    build(None, f"delta:{table}", str(tmp_path / "index"), ["k"])
    DeltaTable(table).delete("n % 7 = 0")
    build(None, f"delta:{table}", str(tmp_path / "index"), ["k"])
    expected = pl.DataFrame(rows).filter(pl.col("n") % 7 != 0)
    frame = scan_polars(tmp_path / "index")
    same(frame.collect(), expected)
    same(frame.filter(pl.col("k") > 20).collect(), expected.filter(pl.col("k") > 20))


def test_a_key_value_folder_is_a_frame(tmp_path: Path) -> None:
    rows = pa.table({"k": ["a", "b", "c", "b"], "v": [1, 2, 3, 4], "x": [0.5, -0.0, 1.0, math.nan]})
    write_btree(rows, str(tmp_path / "folder"), ["k"])
    frame = scan_polars(tmp_path / "folder")
    same(frame.collect(), pl.DataFrame(rows))
    same(frame.filter(pl.col("k") >= "b").select("x", "k").collect(), pl.DataFrame(rows)[1:].select("x", "k"))


def test_a_path_is_read_at_the_snapshot_when_the_frame_was_made(tmp_path: Path) -> None:
    write_source(tmp_path / "source", {"a.parquet": pa.table({"k": [1]})})
    index_source(tmp_path / "source", tmp_path / "index", ["k"])
    frame = scan_polars(tmp_path / "index")
    write_source(tmp_path / "source", {"b.parquet": pa.table({"k": [2]})})
    index_source(tmp_path / "source", tmp_path / "index", ["k"])
    assert frame.collect()["k"].to_list() == [1]
    assert sorted(scan_polars(tmp_path / "index").collect()["k"].to_list()) == [1, 2]
    assert scan_polars(tmp_path / "index", snapshot=1).collect()["k"].to_list() == [1]
    with pytest.raises(IndexNotFound):
        scan_polars(tmp_path / "nowhere")


def test_a_value_beyond_the_type_of_the_newest_files_is_an_error(tmp_path: Path) -> None:
    write_source(tmp_path / "source", {"a.parquet": pa.table({"k": [1], "n": pa.array([2**40], pa.int64())})})
    index_source(tmp_path / "source", tmp_path / "index", ["k"])
    write_source(tmp_path / "source", {"b.parquet": pa.table({"k": [2], "n": pa.array([5], pa.int32())})})
    index_source(tmp_path / "source", tmp_path / "index", ["k"])
    with pytest.raises(UsageError, match="does not hold"):
        scan_polars(tmp_path / "index").collect()


# -- DuckDB ------------------------------------------------------------------------------------------------------------


def in_sql(value: Any) -> str:
    if isinstance(value, bytes | str):
        return "'" + str(value).replace("'", "''") + "'"
    if isinstance(value, float):
        return f"'{value}'::DOUBLE"
    if isinstance(value, dt.datetime):
        return f"'{value.isoformat()}'::TIMESTAMPTZ"
    return f"'{value}'::DATE" if isinstance(value, dt.date) else str(value)


def some_sql(chance: random.Random) -> str:
    name = chance.choice(list(VALUES))
    column, (one, other, third) = f'"{name}"', map(in_sql, chance.sample(VALUES[name], 3))
    kinds = [
        *(f"{column} {operator} {one}" for operator in ("=", "=", "<", "<=", ">", ">=", "<>", "IS NOT DISTINCT FROM")),
        *(f"{column} IN ({one}, {other}, {third})" for _ in range(3)),
        f"{column} NOT IN ({one}, {other})",
        f"{column} IN ({one}, NULL)",
        f"{column} BETWEEN {one} AND {other}",
        f"{column} IS NULL",
        f"{column} IS NOT NULL",
        f"{column} = {one} OR {column} = {other}",
        f"{column} IN ({one}, {other}) OR {column} IS NULL",
        f"NOT ({column} = {one})",
        f"{column} = {one} OR n = 3",
    ]
    if name in ("s", "p"):
        kinds += [f"{column} LIKE 'a%'", f"starts_with({column}, 'é')", f"length({column}) = 1", f"{column} ^@ 'a'"]
    if name in ("x", "n"):
        kinds += [f"{column} > 0", f"{column} = 1.5", f"{column} + 1 > 1"]
    return f"({chance.choice(kinds)})"


def test_any_sql_gives_the_rows_that_duckdb_reads(lake: tuple[Path, pl.LazyFrame]) -> None:
    index, _ = lake
    chance, connection = random.Random(7), duckdb.connect()
    files = f"read_parquet('{index.parent}/source/**/*.parquet', hive_partitioning=true, hive_types={{'p': VARCHAR}})"
    connection.register("by_index", scan_polars(index))
    rows = 0
    for _ in range(examples(100)):
        connection.execute(f"SET TimeZone = '{chance.choice(['UTC', 'Etc/UTC', 'Asia/Kolkata'])}'")
        condition = " AND ".join(some_sql(chance) for _ in range(chance.choice([1, 1, 2, 3])))
        columns = ", ".join(f'"{name}"' for name in chance.sample(list(VALUES), chance.randint(1, 7)))
        found, expected = (
            connection.sql(f"SELECT {columns} FROM {rows} WHERE {condition}").pl() for rows in ("by_index", files)
        )
        same(found, expected)
        rows += len(expected)
    assert rows > 0


Reads = Callable[[], tuple[set[str], int]]


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Reads:
    """A function that gives the names of the files that were read since its last call, and the number of bytes."""
    found: list[tuple[str, int]] = []
    real = LocalFile.read_ranges

    def recorded(self: LocalFile, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        found.append((Path(self.name).name, sum(length for _, length in ranges)))
        return real(self, ranges)

    def since() -> tuple[set[str], int]:
        names, sizes = {name for name, _ in found}, sum(size for _, size in found)
        found.clear()
        return names, sizes

    monkeypatch.setattr(LocalFile, "read_ranges", recorded)
    return since


@pytest.fixture
def pages(tmp_path: Path) -> Path:
    """The index, in ranges of keys, of eight files, of which each has some keys and a long text for each."""
    for i in range(8):
        keys = [f"k{number:04}" for number in range(i * 50, (i + 1) * 50)]
        texts = [random.Random(key).randbytes(500).hex() for key in keys]
        write_source(tmp_path / "source", {f"{i}.parquet": pa.table({"k": keys, "n": range(50), "text": texts})})
    index_source(tmp_path / "source", tmp_path / "index", ["k"], 2)
    rebucket(storage_at(str(tmp_path / "index")), 4, order="range")
    return tmp_path / "index"


BY_KEY = {
    "k = 'k0120'": 1,
    "k IN ('k0101', 'k0149', 'k9999')": 2,
    "k = 'k0101' OR k = 'k0102' OR k = 'k0103'": 3,
    "k >= 'k0110' AND k < 'k0115'": 5,
    "k BETWEEN 'k0110' AND 'k0115' AND n % 2 = 0": 3,
    "k = getvariable('one')": 1,
    "k IN getvariable('several')": 2,
}


@pytest.mark.parametrize("condition", BY_KEY)
def test_duckdbs_conditions_on_the_key_read_its_rows_alone(condition: str, pages: Path, reads: Reads) -> None:
    frame = scan_polars(open_index(str(pages)), full_scan=False)
    connection = duckdb.connect()
    connection.register("pages", frame)
    connection.execute("SET VARIABLE one = 'k0120'; SET VARIABLE several = ['k0120', 'k0121']")
    reads()
    found = connection.sql(f"SELECT text, n FROM pages WHERE {condition}").fetchall()
    files, size = reads()
    assert len(found) == BY_KEY[condition]
    assert {name for name in files if name.endswith(".parquet")} == {"2.parquet"}
    assert size < sum(path.stat().st_size for path in (pages.parent / "source").iterdir()) / 2
    read_by_duckdb = f"SELECT text, n FROM '{pages.parent}/source/*.parquet' WHERE {condition}"
    assert sorted(found) == sorted(connection.sql(read_by_duckdb).fetchall())


def test_columns_that_duckdb_does_not_need_are_not_read(pages: Path, reads: Reads) -> None:
    connection = duckdb.connect()
    connection.register("by_index", scan_polars(open_index(str(pages))))
    reads()
    assert connection.sql("SELECT n FROM by_index WHERE k = 'k0120'").fetchall() == [(20,)]
    _, narrow = reads()
    assert connection.sql("SELECT count(*) FROM by_index WHERE k >= 'k0120'").fetchall() == [(280,)]
    files, _ = reads()
    assert not [name for name in files if name.endswith(".parquet")]
    assert len(connection.sql("SELECT text FROM by_index WHERE k = 'k0120'").fetchall()[0][0]) == 1000
    _, wide = reads()
    assert narrow < wide


def test_keys_from_sql_are_looked_up_and_joined(pages: Path, reads: Reads) -> None:
    connection, index = duckdb.connect(), open_index(str(pages))
    connection.sql("CREATE TABLE wanted AS SELECT * FROM (VALUES ('k0120', 1), ('k0120', 2), ('k0007', 3)) AS t(k, w)")
    reads()
    keys = connection.sql("SELECT DISTINCT k FROM wanted").to_arrow_table()
    rows = index.table_many(keys, columns=["k", "n"])
    found = connection.sql("SELECT k, w, n FROM wanted JOIN rows USING (k) ORDER BY w").fetchall()
    assert found == [("k0120", 1, 20), ("k0120", 2, 20), ("k0007", 3, 7)]
    assert len(rows) == 2
    assert {name for name in reads()[0] if name.endswith(".parquet")} == {"0.parquet", "2.parquet"}


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM frame",
        "SELECT * FROM frame WHERE n = 5",
        "SELECT * FROM frame WHERE k = 'k0001' OR n = 5",
        "SELECT * FROM frame JOIN (VALUES ('k0120'), ('k0121')) AS keys(k) USING (k)",
        "SELECT * FROM frame WHERE k = (SELECT max(k) FROM (VALUES ('k0120'), ('k0121')) AS keys(k))",
    ],
)
def test_without_full_scan_a_query_that_would_read_all_rows_is_refused(query: str, pages: Path, reads: Reads) -> None:
    opened, connection = open_index(str(pages)), duckdb.connect()
    frame = scan_polars(opened, full_scan=False)
    connection.register("frame", frame)
    connection.register("whole", scan_polars(opened))
    reads()
    with pytest.raises(
        duckdb.Error,
        match=r"index: the query has no condition that is a look-up.* all 400 rows; expected .* full_scan=True",
    ):
        connection.sql(query).fetchall()
    assert reads() == (set(), 0)
    assert connection.sql(query.replace("frame", "whole")).fetchall()
    with pytest.raises(UsageError, match="no condition that is a look-up"):
        frame.filter(pl.col("n") == 5).collect()
    assert len(frame.head(3).collect()) == 3


def test_duckdb_says_which_file_changed(pages: Path) -> None:
    connection = duckdb.connect()
    connection.register("frame", scan_polars(open_index(str(pages))))
    (pages.parent / "source/2.parquet").unlink()
    assert connection.sql("SELECT n FROM frame WHERE k = 'k0007'").fetchall() == [(7,)]
    with pytest.raises(duckdb.Error, match=r"StalePointer: .*2\.parquet: the file is gone"):
        connection.sql("SELECT n FROM frame WHERE k IN ('k0007', 'k0120')").fetchall()
