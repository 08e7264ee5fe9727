"""Statistics of keys, as Python counts them in the rows of the source."""

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from gnomon import write_btree
from gnomon.btree.keys import order_key
from gnomon.jobs.build import build
from gnomon.jobs.dedup import delete
from gnomon.shadow import FetchStats, OpenIndex
from gnomon.shadow.lookup import KeyStatistics
from gnomon.shadow.lookup.ordered import ALL_KEYS, KEYS_AT_ONCE, OrderedEntries
from gnomon.shadow.maintenance import rebucket
from gnomon.shadow.storage import storage_at
from tests.opened import open_index
from tests.profiles import examples
from tests.shadow.key_values import VALUES
from tests.shadow.lookup.test_ordered import make
from tests.shadow.make_index import index_source, write_source

Key = tuple[Any, ...]


@pytest.fixture(params=["small pieces", "large pieces"])
def pieces(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """In small pieces, runs of equal keys go on over many of them."""
    if request.param == "small pieces":
        monkeypatch.setattr("gnomon.shadow.lookup.ordered.MOST_AT_ONCE", 3)
        monkeypatch.setattr("gnomon.shadow.lookup.ordered.KEYS_AT_ONCE", 5)


def expected(columns: list[str], keys: list[Key]) -> KeyStatistics:
    """The statistics of the keys of rows."""
    counts = Counter(keys)
    ranked = sorted(counts.items(), key=lambda one: (-one[1], order_key(one[0])))
    sound = sorted((key for key in counts if None not in key), key=order_key)
    null_rows = sum(None in key for key in keys)
    ends = (sound[0], sound[-1]) if sound else (None, None)
    return KeyStatistics(tuple(columns), len(keys), len(counts), null_rows, *ends, tuple(ranked[:10]))


NAN = float("nan")  # the same object each time, so that a Counter counts it as one key


def keys_of(rows: list[dict[str, Any]], columns: list[str]) -> list[Key]:
    def one(value: Any) -> Any:
        return NAN if value != value else 0.0 if isinstance(value, float) and value == 0 else value

    return [tuple(one(row[name]) for name in columns) for row in rows]


def is_as_counted(index: OpenIndex, columns: list[str], rows: list[dict[str, Any]]) -> bool:
    found, counted = index.statistics(), expected(columns, keys_of(rows, columns))
    assert repr(found) == repr(counted)  # in which NaN equals NaN
    return True


@pytest.mark.parametrize("order", ["hash", "range"])
@pytest.mark.parametrize("kind", VALUES)
@pytest.mark.usefixtures("pieces")
def test_statistics_are_those_of_the_rows(tmp_path: Path, kind: str, order: str) -> None:
    lake = make(tmp_path, [kind], random.Random(kind), order)
    assert is_as_counted(lake.index, lake.keys, lake.rows)


@pytest.mark.parametrize("seed", range(examples(20)))
@pytest.mark.usefixtures("pieces")
def test_keys_of_several_columns_with_partitions_are_counted(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    kinds = [chance.choice(list(VALUES)) for _ in range(chance.randrange(1, 4))]
    lake = make(tmp_path, kinds, chance, chance.choice(["hash", "range"]))
    columns = chance.sample([*lake.keys, "p"], len(kinds) + 1)
    place, source = tmp_path / "other", tmp_path / "lake"
    for _ in range(2):
        index_source(source, place, columns, chance.randrange(1, 6), flat=seed % 2 == 0)
        write_source(source, {"p=2/f.parquet": _again(chance, lake.rows, lake.keys, kinds)})
    index_source(source, place, columns)
    if chance.random() < 0.5:
        rebucket(storage_at(str(place)), chance.randrange(1, 6), order=chance.choice(["hash", "range"]))
    opened = open_index(str(place))
    assert is_as_counted(opened, columns, list(opened.range()))


def _again(chance: random.Random, rows: list[dict[str, Any]], keys: list[str], kinds: list[str]) -> pa.Table:
    """Some of the rows of a lake, in one file."""
    some = chance.choices(rows, k=50)
    columns = {
        name: pa.array([row[name] for row in some], VALUES[kind][0]) for name, kind in zip(keys, kinds, strict=True)
    }
    return pa.table({**columns, "n": pa.array(range(50), pa.int32())})


@pytest.mark.usefixtures("pieces")
def test_a_key_of_most_rows_is_counted_over_all_files(tmp_path: Path) -> None:
    for number in range(4):
        keys = [None] * 700 + [7] * 500 + list(range(number * 100, number * 100 + 100))
        write_source(
            tmp_path / "lake", {f"p={number % 2}/{number}.parquet": pa.table({"k": pa.array(keys, pa.int64())})}
        )
        index_source(tmp_path / "lake", tmp_path / "index", ["k"], 2)
    found = open_index(str(tmp_path / "index")).statistics()
    assert (found.rows, found.distinct_keys, found.null_rows, found.least, found.greatest) == (
        5200,
        401,
        2800,
        (0,),
        (399,),
    )
    assert found.frequent[:3] == (((None,), 2800), ((7,), 2001), ((0,), 1))


@pytest.mark.usefixtures("pieces")
def test_deleted_rows_of_a_lake_table_are_not_counted(tmp_path: Path) -> None:
    from deltalake import write_deltalake

    rows = pa.table({"id": [number % 40 for number in range(200)]})
    write_deltalake(str(tmp_path / "t"), rows, configuration={"delta.enableDeletionVectors": "true"})
    build(None, f"delta:{tmp_path / 't'}", str(tmp_path / "index"), ["id"], buckets=2)
    delete(None, str(tmp_path / "index"), [0, 39, 7])
    opened = open_index(str(tmp_path / "index"))
    live = [row for row in rows.to_pylist() if row["id"] not in (0, 39, 7)]
    assert is_as_counted(opened, ["id"], live)


@pytest.mark.parametrize("keys", [["k"], ["day", "k"], ["k", "day"]])
@pytest.mark.usefixtures("pieces")
def test_a_key_value_folder_is_counted_whose_partitions_have_numbers_of_buckets_of_their_own(
    tmp_path: Path, keys: list[str]
) -> None:
    days = ["2026-01-01"] * 180 + ["2026-01-02"] * 20
    rows = pa.table({"k": [number % 60 for number in range(200)], "day": days, "v": range(200)})
    write_btree(rows, str(tmp_path / "folder"), keys, partitions=["day"], buckets=8)
    opened = open_index(str(tmp_path / "folder"))
    assert is_as_counted(opened, keys, rows.to_pylist())


def test_an_index_without_rows_has_no_keys(tmp_path: Path) -> None:
    write_source(tmp_path / "lake", {"p=0/a.parquet": pa.table({"k": pa.array([], pa.int64())})})
    index_source(tmp_path / "lake", tmp_path / "index", ["k"])
    found, stats = open_index(str(tmp_path / "index")).statistics(), FetchStats()
    assert found == KeyStatistics(("k",), 0, 0, 0, None, None, ())
    assert open_index(str(tmp_path / "index")).statistics(stats).rows == stats.index.reads == 0


def test_statistics_hold_a_part_of_the_entries_in_memory(tmp_path: Path) -> None:
    for number in range(2):
        keys = pa.array(range(number, 400_000, 2), pa.int64())
        write_source(tmp_path / "lake", {f"{number}.parquet": pa.table({"k": keys})})
        build(None, str(tmp_path / "lake"), str(tmp_path / "index"), ["k"], buckets=1)
    opened = open_index(str(tmp_path / "index"))
    assert len(opened.view.segments) == 2
    assert opened.statistics().distinct_keys == 400_000
    entries = OrderedEntries(opened._lookup, opened.view, ALL_KEYS, {}, False, None, of_keys=True)
    assert max(len(table) for table in entries.merged(entries.sources, None)) < KEYS_AT_ONCE + 10_000
