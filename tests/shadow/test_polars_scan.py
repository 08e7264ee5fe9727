"""An index as a Polars LazyFrame gives the rows that Polars reads from the files."""

import datetime as dt
import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

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
    ):
        found = selection_of(condition, columns)
        assert found.keys is not None or found.ranges is not None, condition
    assert selection_of(pl.col("p") == "a", columns).where == {"p": {"a"}}
    assert selection_of((pl.col(name) == one) | (pl.col("n") == 1), columns) == selection_of(None, columns)


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
