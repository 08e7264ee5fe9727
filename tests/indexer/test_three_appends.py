"""Three appends to a table whose rows are delivered more than once: the existing rows, an increment, a new increment.

Spark jobs often keep a HashSet of keys per partition for this case. This method, in plain Python, gives the expected
result: an int partition column, two text keys, nulls equal to nulls. The method assumes that no key is in two
partitions; in scope table a key may be.
"""

from collections import defaultdict
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from gnomon.indexer import DedupResult, append_new, build, filter_new
from gnomon.shadow.storage import storage_at
from gnomon.shadow.verify.snapshot import verify
from tests.opened import open_index

pytestmark = pytest.mark.spark

SCHEMA = "album string, photo string, taken string, day int"
Row = tuple[str | None, str | None, str, int]

EXISTING: list[Row] = [
    *[("sea", f"s{i}", "first", 301) for i in range(6)],
    *[("hills", f"h{i}", "first", 302) for i in range(5)],
    ("hills", None, "first", 302),
    (None, None, "first", 302),
]
INCREMENT: list[Row] = [
    *[("hills", f"h{i}", "second", 302) for i in range(3, 8)],  # two exist
    ("hills", "h7", "second, again", 302),
    ("hills", None, "second", 302),  # exists
    (None, "h1", "second", 302),
    (None, "h1", "second, again", 302),
    *[("wood", f"w{i}", "second", 303) for i in range(4)],
    *[("wood", f"w{i}", "second, again", 303) for i in range(2)],
    (None, None, "second", 303),  # not in this partition
]
NEW_INCREMENT: list[Row] = [
    *[("wood", f"w{i}", "third", 303) for i in range(2, 6)],  # two exist
    *[("lake", f"l{i}", "third", 304) for i in range(3)],
    *[("lake", f"l{i}", "third, again", 304) for i in range(3)],
    ("sea", "s0", "third", 304),  # not in this partition
    ("", "", "third", 304),
]


class HashSets:
    """The method: the keys of each partition, and the rows that pass."""

    def __init__(self, scope: str) -> None:
        self.is_table, self.keys, self.rows = scope == "table", defaultdict(set), list[Row]()

    def append(self, rows: list[Row]) -> int:
        before = len(self.rows)
        for row in rows:
            seen = self.keys[0 if self.is_table else row[3]]
            if row[:2] not in seen:
                seen.add(row[:2])
                self.rows.append(row)
        return len(self.rows) - before


def counts(result: DedupResult) -> tuple[int, int, int, int]:
    return result.rows_read, result.duplicates_in_batch, result.already_loaded, result.appended


@pytest.mark.parametrize("scope", ["partition", "table"])
def test_each_increment_appends_what_the_hash_sets_let_through(spark: SparkSession, tmp_path: Path, scope: str) -> None:
    source, index, expected = str(tmp_path / "source"), str(tmp_path / "index"), HashSets(scope)
    expected.append(EXISTING)
    spark.createDataFrame(EXISTING, SCHEMA).coalesce(1).write.partitionBy("day").parquet(source)
    build(spark, source, index, ["album", "photo"], buckets=3)
    found = {}
    for name, rows in (("increment", INCREMENT), ("new increment", NEW_INCREMENT)):
        batch = spark.createDataFrame(rows, SCHEMA)
        assert filter_new(spark, index, batch, scope).count() == HashSets.append(copy_of(expected), rows)
        found[name] = append_new(spark, index, batch, name, scope, order_by=["taken"])
        assert found[name].appended == expected.append(rows)
        assert append_new(spark, index, batch, f"{name}, delivered again", scope).appended == 0
    there = spark.read.parquet(source).select("album", "photo", "taken", "day").collect()
    assert sorted(map(tuple, there), key=str) == sorted(expected.rows, key=str)
    assert {name: counts(result) for name, result in found.items()} == {
        "partition": {"increment": (16, 4, 3, 9), "new increment": (12, 3, 2, 7)},
        "table": {"increment": (16, 4, 4, 8), "new increment": (12, 3, 3, 6)},
    }[scope]
    opened = open_index(index)
    assert opened.view.snapshot.rows == len(expected.rows)
    assert all(opened.contains(row[:2]) for row in expected.rows)
    assert verify(storage_at(index)).faults == []


def copy_of(sets: HashSets) -> HashSets:
    other = HashSets("table" if sets.is_table else "partition")
    other.append(sets.rows)
    return other


def test_where_no_key_comes_in_two_partitions_both_scopes_let_the_same_through(
    spark: SparkSession, tmp_path: Path
) -> None:
    source, index = str(tmp_path / "source"), str(tmp_path / "index")
    one_day: dict[tuple[str | None, str | None], int] = {}
    for row in (*EXISTING, *INCREMENT, *NEW_INCREMENT):
        one_day.setdefault(row[:2], row[3])
    existing, *increments = [
        [row for row in rows if one_day[row[:2]] == row[3]] for rows in (EXISTING, INCREMENT, NEW_INCREMENT)
    ]
    spark.createDataFrame(existing, SCHEMA).coalesce(1).write.partitionBy("day").parquet(source)
    build(spark, source, index, ["album", "photo"], buckets=3)
    for rows in increments:
        batch = spark.createDataFrame(rows, SCHEMA)
        each = [filter_new(spark, index, batch, scope, ["taken"]).collect() for scope in ("partition", "table")]
        assert sorted(each[0], key=str) == sorted(each[1], key=str)
        assert len(each[0]) == 8
