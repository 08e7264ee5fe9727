"""Scans with filters: they return exactly the rows of the filter, and read fewer bytes."""

import datetime as dt
import math
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from gnomon.indexer.datasource.pushdown import select
from gnomon.indexer.datasource.source import IndexFiles, IndexReader, Lookups, PruningSource
from gnomon.indexer.spark.tasks import open_in_worker
from gnomon.shadow.lookup.conditions import MOST_KEYS, chosen
from gnomon.shadow.lookup.entries import INCLUDED, KEY, PARTITION, EntryColumn
from gnomon.shadow.maintenance.compaction import compact, rebucket
from gnomon.shadow.storage import storage_at
from gnomon.shadow.tables import stored_partition
from tests.indexer.lakes import crawl
from tests.opened import open_index
from tests.shadow.make_index import index_source, write_source

LAYOUTS = {
    "by folder": (["url"], False),
    "flat": (["url"], True),
    "composite": (["url", "x"], False),
    "composite, flat": (["x", "url"], True),
    "folders in the key": (["dt", "url"], False),
    "ranges": (["url"], False),
    "composite, flat, ranges": (["x", "url"], True),
}
COLUMNS = {
    "url": EntryColumn("url", "url", "string", KEY),
    "x": EntryColumn("x", "x", "double", KEY),
    "n": EntryColumn("n", "n", "int", INCLUDED),
    "dt": EntryColumn("dt", "dt", "string", PARTITION),
}


@pytest.fixture(scope="module")
def lakes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    roots = {name: tmp_path_factory.mktemp("lake") for name in LAYOUTS}
    for name, (keys, flat) in LAYOUTS.items():
        crawl(roots[name], keys, flat)
        if "ranges" in name:
            rebucket(storage_at(str(roots[name] / "index")), 5, order="range")
    return roots


def reader_of(root: Path, filters: Sequence[Filter]) -> tuple[IndexReader, list[Filter]]:
    source = PruningSource({"path": str(root / "index")})
    reader = source.reader(source.schema())
    assert isinstance(reader, IndexReader)
    return reader, list(reader.pushFilters(list(filters)))


def read(reader: IndexReader) -> list[dict[str, Any]]:
    """All rows of a scan, run like Spark: a scan without tasks has one empty task."""
    tasks = list(reader.partitions()) or [InputPartition(None)]
    return [row for task in tasks for batch in reader.read(task) for row in batch.to_pylist()]


def passes(one: Filter, row: dict[str, Any]) -> bool | None:
    """The result of a filter in SQL: None is unknown. NaN equals itself and is greatest."""
    if isinstance(one, Not):
        found = passes(one.child, row)
        return None if found is None else not found
    value = row[one.attribute[0]]  # type: ignore[attr-defined]
    if isinstance(one, IsNull | IsNotNull):
        return (value is None) == isinstance(one, IsNull)
    if isinstance(one, EqualNullSafe):
        return _same(value, one.value)
    if value is None:
        return None
    if isinstance(one, EqualTo):
        return _same(value, one.value)
    if isinstance(one, In):
        return any(_same(value, other) for other in one.value if other is not None) or (
            None if None in one.value else False
        )
    if isinstance(one, GreaterThan | GreaterThanOrEqual | LessThan | LessThanOrEqual):
        is_same, is_more = _same(value, one.value), value != value or value > one.value
        if isinstance(one, GreaterThan | LessThanOrEqual):
            return (is_more and not is_same) == isinstance(one, GreaterThan)
        return (is_more or is_same) == isinstance(one, GreaterThanOrEqual)
    assert isinstance(one, StringStartsWith)
    return bool(value.startswith(one.value))


def _same(one: Any, other: Any) -> bool:
    return bool(one == other) or (one != one and other != other)


def some_filters(chance: random.Random, names: Sequence[str]) -> list[Filter]:
    values: dict[str, list[Any]] = {
        "url": [f"https://é/{i}" for i in range(0, 24, 3)] + ["nowhere", ""],
        "x": [math.nan, 0.0, -0.0, 1.5, -2.0, 3.25],
        "n": [1, 1003, 9005],
        "dt": ["2026-01-01", "2026-01-02", "x y", "2026-01-03"],
    }
    filters: list[Filter] = []
    for name in chance.sample(names, chance.randint(1, len(names))):
        path, given = (name,), values[name]
        some = chance.sample(given, chance.randint(1, 3))
        kinds: list[Filter] = [
            EqualTo(path, some[0]),
            EqualTo(path, some[0]),
            In(path, tuple(some)),
            In(path, (*some, None)),
            IsNull(path),
            EqualNullSafe(path, some[0]),
            Not(EqualTo(path, some[0])),
            Not(In(path, tuple(some))),
            IsNotNull(path),
            GreaterThan(path, some[0]),
            GreaterThanOrEqual(path, some[0]),
            LessThan(path, some[0]),
            LessThanOrEqual(path, some[-1]),
        ]
        if name in ("url", "dt"):
            kinds.append(StringStartsWith(path, chance.choice(["", "https://é/1", "https", "x", "2026-01", "\uffff"])))
        filters += chance.sample(kinds, chance.choice([1, 1, 1, 2, 3]))
    return filters


def _sorted(rows: Sequence[dict[str, Any]]) -> list[str]:
    return sorted(str(sorted(row.items())) for row in rows)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.slow
def test_any_filters_give_the_rows_that_pass_them(lakes: dict[str, Path], layout: str) -> None:
    chance = random.Random(layout)
    whole, _ = reader_of(lakes[layout], [])
    everything = read(whole)
    names = ["url", "n", "dt", *(["x"] if "composite" in layout else [])]
    assert len(everything) == 60 * 4 + 40
    looked_up = in_ranges = found = 0
    for _ in range(90):
        filters = some_filters(chance, names)
        reader, left = reader_of(lakes[layout], filters)
        rows = [row for row in read(reader) if all(passes(one, row) for one in left)]
        assert _sorted(rows) == _sorted([row for row in everything if all(passes(one, row) for one in filters)]), (
            filters
        )
        again, left_again = reader_of(lakes[layout], [one for one in filters if one not in left])
        assert left_again == []  # Spark pushes the accepted filters again
        assert again.selection == reader.selection
        looked_up += reader.selection.keys is not None
        in_ranges += reader.selection.ranges is not None
        found += len(rows)
    assert looked_up > 5
    assert in_ranges > 5
    assert found > 50


def test_a_key_reads_a_few_nodes_and_a_partition_its_own_files(tmp_path: Path) -> None:
    crawl(tmp_path, ["url"], flat=False, buckets=8)
    compact(storage_at(str(tmp_path / "index")))
    files = len(open_index(str(tmp_path / "index")).view.segments[0].index_files)
    costs = {}
    for name, filters in {
        "all": [],
        "partition": [EqualTo(("dt",), "x y")],
        "key": [EqualTo(("url",), "https://é/7")],
        "both": [EqualTo(("url",), "https://é/7"), EqualTo(("dt",), "x y")],
        "nothing": [EqualTo(("url",), "https://é/7"), EqualTo(("url",), "https://é/8")],
        "nowhere": [EqualTo(("dt",), "2030-01-01")],
    }.items():
        open_in_worker.cache_clear()
        reader, left = reader_of(tmp_path, filters)
        assert left == []
        read(reader)
        costs[name] = reader.stats.bytes
    assert costs["all"] > 3 * costs["partition"] > 0
    assert costs["partition"] > 3 * costs["both"] > 0
    assert costs["key"] < costs["all"] / 4
    assert costs["nothing"] == costs["nowhere"] == 0
    assert files >= 20


@pytest.mark.parametrize("order", ["hash", "range"])
def test_a_range_reads_its_leaves_alone_and_in_an_index_in_ranges_its_buckets(tmp_path: Path, order: str) -> None:
    write_source(tmp_path / "source", {"p.parquet": pa.table({"url": [f"https://a/{i:06d}" for i in range(50_000)]})})
    index_source(tmp_path / "source", tmp_path / "index", ["url"], 4)
    rebucket(storage_at(str(tmp_path / "index")), 8, order=order)
    between = [GreaterThanOrEqual(("url",), "https://a/010000"), LessThan(("url",), "https://a/010020")]
    costs = []
    for filters in ([], between, [StringStartsWith(("url",), "https://a/01000")], [GreaterThan(("url",), "https://b")]):
        open_in_worker.cache_clear()
        reader, left = reader_of(tmp_path, filters)
        assert left == []
        found = read(reader)
        files = [place for task in reader.partitions() for place in task.places]  # type: ignore[attr-defined]
        costs.append((len(found), len(files), reader.stats.bytes))
    assert [rows for rows, _, _ in costs] == [50_000, 20, 10, 0]
    assert [files for _, files, _ in costs] == ([8] * 4 if order == "hash" else [8, 1, 1, 1])
    assert max(size for _, _, size in costs[1:]) < costs[0][2] / (3 if order == "range" else 1)


def test_tasks_are_index_files_together_up_to_a_size_and_keys_by_bucket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    crawl(tmp_path, ["url"], flat=False)
    (task,) = reader_of(tmp_path, [])[0].partitions()
    assert isinstance(task, IndexFiles)
    sizes = [file.size for segment in open_index(str(tmp_path / "index")).view.segments for file in segment.index_files]
    monkeypatch.setattr("gnomon.indexer.datasource.source.TASK_BYTES", max(sizes) * 3)
    reader, _ = reader_of(tmp_path, [])
    tasks = reader.partitions()
    assert 3 <= len(tasks) < len(sizes)
    assert [place for one in tasks for place in one.places] == list(task.places)  # type: ignore[attr-defined]
    monkeypatch.setattr("gnomon.indexer.datasource.source.TASK_KEYS", 4)
    keys = [f"https://é/{i}" for i in range(25)]
    reader, _ = reader_of(tmp_path, [In(("url",), tuple(keys))])
    lookups = reader.partitions()
    assert all(isinstance(one, Lookups) and len(one.keys) <= 4 for one in lookups)
    assert len(read(reader)) == len([row for row in read(reader_of(tmp_path, [])[0]) if row["url"] in keys])


def test_values_of_another_type_or_too_many_keys_are_left_to_spark() -> None:
    from_others = [EqualTo(("url",), 5), EqualTo(("x",), 1), EqualTo(("url", "a"), "x"), EqualTo(("url",), None)]
    assert select(from_others, COLUMNS)[1] == from_others
    most = In(("url",), tuple(map(str, range(MOST_KEYS))))
    one, two = EqualTo(("x",), 1.0), In(("x",), (1.0, 2.0))
    keys = select([most, one], COLUMNS)[0].keys
    assert keys is not None
    assert len(keys) == MOST_KEYS
    selection, left = select([most, two, EqualTo(("dt",), "a")], COLUMNS)
    assert (selection.keys, left) == (None, [most, two])
    assert selection.where == {"dt": {"a"}}


def test_partitions_are_compared_in_the_type_of_their_column() -> None:
    day = EntryColumn("day", "day", "date", PARTITION)
    selection, left = select([In(("day",), (dt.date(2026, 1, 2), dt.date(2026, 1, 3)))], {"day": day})
    assert left == []
    partitions = {text: stored_partition(f"day={text}", {"day": "date"}) for text in ("2026-01-01", "2026-01-02")}
    assert chosen(partitions | {"none": {"day": None}}, selection) == ["2026-01-02"]
    assert chosen(partitions | {"none": {"day": None}}, select([IsNull(("day",))], {"day": day})[0]) == ["none"]
    assert select([EqualTo(("day",), "2026-01-02")], {"day": day})[1] == [EqualTo(("day",), "2026-01-02")]


def test_a_partition_whose_folders_are_spelt_in_two_ways_gives_each_row_once(tmp_path: Path) -> None:
    rows = pa.table({"url": ["a", "a", "b"]})
    write_source(tmp_path / "source", {"dt=x y/p.parquet": rows, "dt=x%20y/p.parquet": rows, "dt=z/p.parquet": rows})
    index_source(tmp_path / "source", tmp_path / "index", ["url"], buckets=2)
    reader, left = reader_of(tmp_path, [EqualTo(("url",), "a"), EqualTo(("dt",), "x y")])
    assert left == []
    assert [(row["url"], row["dt"]) for row in read(reader)] == [("a", "x y")] * 4


def test_a_float_is_looked_up_only_as_the_value_that_it_holds() -> None:
    single = {"x": EntryColumn("x", "x", "float", KEY)}
    half, tenth = EqualTo(("x",), 0.5), EqualTo(("x",), 0.1)
    assert select([half], single)[0].keys == ((0.5,),)
    assert select([tenth], single) == (select([], single)[0], [tenth])
    zero, nan = (select([EqualTo(("x",), value)], single)[0].keys for value in (-0.0, math.nan))
    assert str(zero) == "((0.0,),)"
    assert str(nan) == "((nan,),)"


def test_false_arrives_as_not_true_and_no_other_negation_prunes() -> None:
    columns = {"b": EntryColumn("b", "b", "boolean", KEY), "dt": COLUMNS["dt"]}
    is_true, is_dt = EqualTo(("b",), True), EqualTo(("dt",), "a")
    assert select([Not(is_true)], columns)[0].keys == ((False,),)
    for other in (Not(is_dt), Not(IsNull(("b",))), Not(In(("b",), (True,))), Not(EqualNullSafe(("b",), True))):
        assert select([other], columns)[1] == [other]
