"""Ranges of keys: the rows of a random lake in key order, as Python sorts them."""

import base64
import random
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

from gnomon.btree.errors import KeyTypeError
from gnomon.btree.key_types import key_type
from gnomon.btree.keys import order_key
from gnomon.jobs.build import build
from gnomon.shadow import OpenIndex, SnapshotNotFound, UsageError
from gnomon.shadow.lookup import RangeQuery
from gnomon.shadow.maintenance import rebucket, vacuum
from gnomon.shadow.storage import storage_at
from tests.opened import open_index
from tests.profiles import examples
from tests.shadow.key_values import VALUES
from tests.shadow.make_index import index_source, write_source
from tests.shadow.random_lake import RandomLake

Row = dict[str, Any]


class Lake(NamedTuple):
    """An open index, and the rows of its source in key order: of equal keys by file and place."""

    index: OpenIndex
    rows: list[Row]
    keys: list[str]

    def order(self, row: Row) -> Any:
        values = [row[name] for name in self.keys]
        return order_key(tuple(0.0 if value == 0 and isinstance(value, float) else value for value in values))


def make(root: Path, kinds: list[str], chance: random.Random, order: str = "hash") -> Lake:
    """A lake with null and equal keys, in segments, with a file that is gone. The ranges of `order` "range" are cut
    from the first files."""
    keys = [f"k{i}" for i in range(len(kinds))]
    files: dict[str, pa.Table] = {}
    for number in range(4):
        count = chance.choice([0, 1, 40, 300])
        columns: dict[str, pa.Array] = {}
        for name, kind in zip(keys, kinds, strict=True):
            arrow, value = VALUES[kind]
            columns[name] = pa.array([None if chance.random() < 0.05 else value(chance) for _ in range(count)], arrow)
        files[f"p={number % 2}/f{number}.parquet"] = pa.table({**columns, "n": pa.array(range(count), pa.int32())})
        write_source(root / "lake", files)
        index_source(root / "lake", root / "index", keys, chance.randrange(1, 5))
        if order == "range" and number == 2:
            rebucket(storage_at(str(root / "index")), chance.randrange(2, 9), order=order)
    del files["p=0/f0.parquet"]
    (root / "lake/p=0/f0.parquet").unlink()
    index_source(root / "lake", root / "index", keys)
    rows = [{**row, "p": path[2]} for path in sorted(files) for row in files[path].to_pylist()]
    lake = Lake(open_index(str(root / "index")), rows, keys)
    return lake._replace(rows=sorted(rows, key=lake.order))


def shown(rows: list[Row]) -> list[str]:
    """Rows as text, in which NaN equals NaN."""
    return list(map(repr, rows))


@pytest.mark.parametrize("order", ["hash", "range"])
@pytest.mark.parametrize("kind", VALUES)
def test_a_range_has_the_rows_that_python_sorts_between_its_ends(tmp_path: Path, kind: str, order: str) -> None:
    chance = random.Random(kind)
    lake = make(tmp_path, [kind], chance, order)

    def key(value: object) -> Any:
        return lake.order({"k0": value})

    for _ in range(examples(100)):
        low, high = (None if chance.random() < 0.2 else VALUES[kind][1](chance) for _ in "12")
        inclusive, reverse, limit = chance.random() < 0.5, chance.random() < 0.5, chance.choice([None, 0, 1, 7, 100])
        where = chance.choice([None, {"p": str(chance.randrange(2))}])
        expected = [
            row
            for row in lake.rows
            if (low is None or key(row["k0"]) >= key(low))
            and (high is None or key(row["k0"]) < key(high) or (inclusive and key(row["k0"]) == key(high)))
            and (where is None or row["p"] == where["p"])
        ]
        assert lake.index.count(low, high, inclusive=inclusive, where=where) == len(expected)
        expected = expected[::-1] if reverse else expected
        found = lake.index.range(low, high, inclusive=inclusive, reverse=reverse, limit=limit, where=where)
        assert shown(list(found)) == shown(expected[:limit])


@pytest.mark.parametrize("order", ["hash", "range"])
def test_a_range_of_a_key_of_several_columns_is_between_the_first_values_of_keys(tmp_path: Path, order: str) -> None:
    chance = random.Random(7)
    lake = make(tmp_path, ["tinyint", "string", "date"], chance, order)
    for _ in range(examples(100)):
        kinds = ("tinyint", "string", "date")
        low, high = (tuple(VALUES[kind][1](chance) for kind in kinds[: chance.randrange(1, 4)]) for _ in "12")
        inclusive = chance.random() < 0.5

        def begins(row: Row, key: tuple[Any, ...]) -> Any:
            return order_key(tuple(row[f"k{i}"] for i in range(len(key))))

        expected = [
            row
            for row in lake.rows
            if begins(row, low) >= order_key(low)
            and (begins(row, high) < order_key(high) or (inclusive and begins(row, high) == order_key(high)))
        ]
        assert list(lake.index.range(low, high, inclusive=inclusive)) == expected
        assert lake.index.count(low, high, inclusive=inclusive) == len(expected)
        within = [row for row in lake.rows if row["k0"] == low[0] and (row["k1"] or "").startswith("a")]
        assert list(lake.index.range(prefix=(low[0], "a"))) == within


@pytest.mark.parametrize("prefix", ["", "a", "ab1", "é", "\U0001f600", "\uffff", "a\0", "zz"])
def test_a_prefix_has_the_keys_that_begin_with_it(tmp_path: Path, prefix: str) -> None:
    lake = make(tmp_path, ["string"], random.Random(3), "range" if len(prefix) % 2 else "hash")
    expected = [row for row in lake.rows if row["k0"] is not None and row["k0"].startswith(prefix)]
    assert list(lake.index.range(prefix=prefix)) == expected
    assert list(lake.index.range(prefix=prefix, reverse=True, limit=5)) == expected[::-1][:5]
    assert lake.index.count(prefix=prefix) == len(expected)


@pytest.mark.parametrize("reverse", [False, True])
def test_pages_that_follow_their_cursors_have_each_row_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reverse: bool
) -> None:
    """Also where equal keys lie on both sides of a cursor."""
    lake = make(tmp_path, ["tinyint"], random.Random(5))
    expected = lake.rows[::-1] if reverse else lake.rows
    for size in (1, 3, 50):
        found: list[Row] = []
        after = None
        while page := next(lake.index.range_pages(RangeQuery(reverse=reverse, limit=size, after=after)), None):
            found += page.rows
            after = page.cursor
        assert found == expected
    monkeypatch.setattr("gnomon.shadow.index.PAGE_ROWS", 7)
    assert list(lake.index.range(reverse=reverse, limit=40)) == expected[:40]


def test_a_cursor_goes_on_in_a_later_snapshot(tmp_path: Path) -> None:
    lake = make(tmp_path, ["bigint"], random.Random(6))
    first = next(lake.index.range_pages(RangeQuery(limit=20)))
    new = pa.table({"k0": pa.array([-(2**63), 2**63 - 1]), "n": pa.array([1, 2], pa.int32())})
    write_source(tmp_path / "lake", {"p=0/a.parquet": new})
    index_source(tmp_path / "lake", tmp_path / "index", ["k0"])
    rest = list(open_index(str(tmp_path / "index")).range(after=first.cursor))
    new_last = {"k0": 2**63 - 1, "n": 2, "p": "0"}
    assert [row for row in rest if row != new_last] == lake.rows[20:]
    assert rest.count(new_last) == 1
    assert [row["k0"] for row in rest] == sorted(row["k0"] for row in rest)


@pytest.mark.parametrize("reverse", [False, True])
def test_a_cursor_of_another_range_gives_no_row_outside_of_this_one(tmp_path: Path, reverse: bool) -> None:
    lake = make(tmp_path, ["string"], random.Random(10))
    expected = [row for row in lake.rows if (row["k0"] or "").startswith("ab")]
    before = next(lake.index.range_pages(RangeQuery(prefix="é" if reverse else "0", limit=1))).cursor
    past = next(lake.index.range_pages(RangeQuery(prefix="0" if reverse else "é", limit=1))).cursor
    found = list(lake.index.range(prefix="ab", after=before, reverse=reverse))
    assert found == (expected[::-1] if reverse else expected)
    assert list(lake.index.range(prefix="ab", after=past, reverse=reverse)) == []


def test_a_range_begins_in_a_newer_snapshot_where_a_vacuum_removed_the_files_of_its_own(tmp_path: Path) -> None:
    lake = make(tmp_path, ["bigint"], random.Random(11))
    storage = storage_at(str(tmp_path / "index"))
    asks = [
        lambda index: list(index.range()) == lake.rows,
        lambda index: index.count() == len(lake.rows),
        lambda index: sum(map(len, index.range_tables(RangeQuery()))) == len(lake.rows),
        lambda index: sum(map(len, index.entry_tables(RangeQuery()))) == len(lake.rows),
        lambda index: len(next(index.range_pages(RangeQuery(limit=3))).rows) == 3,
    ]
    for buckets, ask in enumerate(asks, 2):
        opened = open_index(str(tmp_path / "index"))
        rebucket(storage, buckets)
        vacuum(storage, 0, unnamed_seconds=0)
        assert ask(opened)


def test_a_range_ends_with_an_error_where_a_vacuum_removes_its_snapshot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gnomon.shadow.index.PAGE_ROWS", 3)
    monkeypatch.setattr("gnomon.shadow.lookup.ordered.MOST_AT_ONCE", 3)
    make(tmp_path, ["bigint"], random.Random(6), "range")
    index, storage = str(tmp_path / "index"), storage_at(str(tmp_path / "index"))
    for cache_bytes in (1 << 26, 0):
        rebucket(storage, 9)
        rows = open_index(index, cache_bytes=cache_bytes).range()
        next(rows)
        rebucket(storage, 2)
        vacuum(storage, 0, unnamed_seconds=0)
        with pytest.raises(SnapshotNotFound, match=r"index: snapshot \d+ is not there"):
            list(rows)


def test_rows_of_a_cursor_whose_file_is_rewritten_come_again_and_none_is_missing(tmp_path: Path) -> None:
    rows = pa.table({"k0": pa.array([1, 1, 1, 2]), "n": pa.array(range(4), pa.int32())})
    write_source(tmp_path / "lake", {"p=0/b.parquet": rows})
    index_source(tmp_path / "lake", tmp_path / "index", ["k0"])
    page = next(open_index(str(tmp_path / "index")).range_pages(RangeQuery(limit=2)))
    (tmp_path / "lake/p=0/b.parquet").unlink()
    write_source(tmp_path / "lake", {"p=0/a.parquet": rows})
    index_source(tmp_path / "lake", tmp_path / "index", ["k0"])
    assert [row["n"] for row in open_index(str(tmp_path / "index")).range(after=page.cursor)] == [0, 1, 2, 3]


@pytest.mark.parametrize("in_ranges", [False, True])
@pytest.mark.parametrize("flat", [False, True])
def test_ranges_are_those_of_a_lake_that_changes(tmp_path: Path, flat: bool, in_ranges: bool) -> None:
    lake = RandomLake(tmp_path, 4, flat=flat, in_ranges=in_ranges)
    for _ in range(examples(12)):
        lake.step()
        opened = open_index(str(lake.index))
        pointers = [pointer for key in [None, *range(25)] for pointer in sorted(opened.lookup((key,)))]
        entries = RangeQuery().entries(opened._lookup, opened.view)
        found = [hit.pointer for table in entries.batches(None) for hits in entries.hits(table)[1] for hit in hits]
        assert found == pointers
        assert opened.count() == opened.view.snapshot.rows


def test_arrow_tables_of_a_range_have_its_rows(tmp_path: Path) -> None:
    lake = make(tmp_path, ["string"], random.Random(8))
    tables = list(lake.index.range_tables(RangeQuery(prefix="a"), ["n", "k0"]))
    expected = [{"n": row["n"], "k0": row["k0"]} for row in lake.rows if (row["k0"] or "").startswith("a")]
    assert [row for table in tables for row in table.to_pylist()] == expected


def test_a_key_value_folder_has_ranges(tmp_path: Path) -> None:
    from gnomon import write_btree

    rows = pa.table({"k": pa.array(range(100)), "v": pa.array([f"v{i}" for i in range(100)])})
    write_btree(rows, str(tmp_path / "folder"), ["k"])
    opened = open_index(str(tmp_path / "folder"))
    assert list(opened.range(10, 20)) == rows.slice(10, 10).to_pylist()
    assert opened.count(90) == 10


def test_deleted_rows_of_a_lake_table_are_in_no_range(tmp_path: Path) -> None:
    from deltalake import write_deltalake

    from gnomon.jobs.dedup import delete

    properties = {"delta.enableDeletionVectors": "true"}
    write_deltalake(str(tmp_path / "t"), pa.table({"id": pa.array(range(100))}), configuration=properties)
    build(None, f"delta:{tmp_path / 't'}", str(tmp_path / "index"), ["id"], buckets=2)
    delete(None, str(tmp_path / "index"), list(range(0, 100, 3)))
    opened = open_index(str(tmp_path / "index"))
    live = [number for number in range(100) if number % 3]
    assert [row["id"] for row in opened.range(10, 60)] == [number for number in live if 10 <= number < 60]
    assert opened.count(10, 60) == len([number for number in live if 10 <= number < 60])


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"prefix": "a", "low": "b"}, "a prefix, or a lowest and a highest key, not both"),
        ({"low": ("a", "b")}, "low: the key has 1 columns; found 2 values"),
        ({"after": "nonsense"}, "the cursor that a page ended with"),
        ({"after": base64.urlsafe_b64encode(b"[" * 30_000).decode()}, "the cursor that a page ended with"),
        ({"after": base64.urlsafe_b64encode(b'[["a"], "f", 1e999, 0]').decode()}, "the cursor that a page ended with"),
        ({"after": base64.urlsafe_b64encode(b'[[{}], "f", 0, 0]').decode()}, "the cursor that a page ended with"),
        ({"low": 5}, "k0"),
        ({"limit": -1}, "limit"),
        ({"low": "zzz", "columns": ["z"]}, "no column z"),
    ],
)
def test_wrong_ends_are_refused(tmp_path: Path, options: dict[str, Any], what: str) -> None:
    lake = make(tmp_path, ["string"], random.Random(9))
    with pytest.raises((UsageError, KeyTypeError), match=what):
        list(lake.index.range(**options))


@pytest.mark.parametrize("kind", VALUES)
def test_the_least_value_after_another_is_the_next_one_in_order(kind: str) -> None:
    value = VALUES[kind][1]
    name = {"decimal": "decimal(9,2)", "timestamp": "timestamp_ntz"}.get(kind, kind)
    one = key_type(name)
    chance = random.Random(kind)
    for _ in range(50):
        stored = one.to_stored(value(chance), "k")
        for after in one.after(stored):
            assert order_key((after,)) > order_key((stored,))
            below = one.to_stored(value(chance), "k")
            assert order_key((below,)) <= order_key((stored,)) or order_key((below,)) >= order_key((after,))
    assert one.after(None) == (one.least,)
    assert all(order_key((one.least,)) <= order_key((one.to_stored(value(chance), "k"),)) for _ in range(50))
