"""Sets of keys of two indexes, as Python makes them of the rows of the sources."""

import datetime as dt
import json
import random
from collections import Counter
from decimal import Decimal
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import gnomon
from gnomon.__main__ import main
from gnomon.jobs.build import build
from gnomon.jobs.dedup import delete
from gnomon.shadow.key_sets import CHANGED, ROWS, SIDE, KeySet
from gnomon.shadow.maintenance import rebucket, vacuum
from gnomon.shadow.metadata.buckets import HashBuckets, RangeBuckets
from gnomon.shadow.storage import storage_at
from tests.end_to_end.test_ranges_differential import LAKES_OF, Delta, Folder, Iceberg, Rows, Trial
from tests.golden.tables import TABLES, Table
from tests.indexer.build.test_lake_tables import KEYS, bring_to
from tests.indexer.build.test_lake_tables import REFUSED as REFUSED_TABLES
from tests.jobs.dedup.lake_tables import here
from tests.profiles import cases, examples
from tests.shadow.key_values import VALUES
from tests.shadow.lookup.test_key_statistics import keys_of
from tests.shadow.lookup.test_ordered import Lake, make
from tests.shadow.make_index import index_source, write_source


def in_small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hold keys of both indexes back at many places."""
    monkeypatch.setattr("gnomon.shadow.lookup.ordered.MOST_AT_ONCE", 3)
    monkeypatch.setattr("gnomon.shadow.lookup.ordered.KEYS_AT_ONCE", 5)
    monkeypatch.setattr("gnomon.shadow.key_sets.FILES_AT_ONCE", 1)
    monkeypatch.setattr("gnomon.shadow.key_sets.SORTED_ROWS", 50)
    monkeypatch.setattr("gnomon.shadow.key_sets.PIECE_ROWS", 7)


@pytest.fixture(params=["small pieces", "large pieces"])
def pieces(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "small pieces":
        in_small_pieces(monkeypatch)


def found_in(keys: KeySet) -> Counter[tuple[str, str, int]]:
    """Keys as text, in which NaN equals NaN, with the side and the number of rows."""
    found: Counter[tuple[str, str, int]] = Counter()
    for table in keys:
        numbers = table.column(SIDE).to_pylist(), table.column(ROWS).to_pylist()
        found.update(zip(map(repr, keys.shown(table)), *numbers, strict=True))
    return found


def counted(lake: Lake) -> Counter[tuple[Any, ...]]:
    return Counter(keys_of(lake.rows, lake.keys))


def are_as_in_python(first: Lake, second: Lake) -> None:
    one, other = counted(first), counted(second)
    alone = [("first", key, rows) for key, rows in one.items() if key not in other]
    alone += [("second", key, rows) for key, rows in other.items() if key not in one]
    diff = gnomon.diff(first.index, second.index)
    assert found_in(diff) == Counter((repr(key), side, rows) for side, key, rows in alone)
    sides = Counter(side for side, _, _ in alone)
    assert diff.counts == {"first": sides["first"], "second": sides["second"], "both": len(one.keys() & other.keys())}
    orphans = gnomon.orphans(first.index, second.index)
    sound = {key for key in one if None not in key}
    lost = sound - other.keys()
    assert found_in(orphans) == Counter((repr(key), "first", one[key]) for key in lost)
    assert orphans.counts == {"first": len(lost), "both": len(sound & other.keys()), "nulls": len(one) - len(sound)}
    unique = gnomon.unique(first.index)
    again = [key for key in sound if one[key] > 1]
    assert found_in(unique) == Counter((repr(key), "first", one[key]) for key in again)
    assert unique.counts == {"first": len(again), "keys": len(sound), "nulls": len(one) - len(sound)}


@pytest.mark.usefixtures("pieces")
@pytest.mark.parametrize("orders", [("hash", "hash"), ("hash", "range"), ("range", "range")])
@pytest.mark.parametrize("kind", VALUES)
def test_sets_of_keys_are_those_of_python(tmp_path: Path, kind: str, orders: tuple[str, str]) -> None:
    chance = random.Random(kind)
    are_as_in_python(*(make(tmp_path / str(i), [kind], chance, order) for i, order in enumerate(orders)))


@pytest.mark.usefixtures("pieces")
@pytest.mark.parametrize("seed", range(examples(6)))
def test_sets_of_keys_of_several_columns_are_those_of_python(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    kinds = [chance.choice(list(VALUES)) for _ in range(2)]
    are_as_in_python(*(make(tmp_path / name, kinds, chance, chance.choice(["hash", "range"])) for name in "ab"))


def made(root: Path, keys: pa.Array, name: str = "k", buckets: int = 2) -> str:
    write_source(root / "lake", {"p=0/a.parquet": pa.table({name: keys})})
    index_source(root / "lake", root / "index", [name], buckets)
    return str(root / "index")


Wide = tuple[tuple[Any, ...], tuple[Any, ...]]  # a key, and the other columns of a row


def wide(rows: list[dict[str, Any]], keys: list[str], others: list[str]) -> dict[tuple[Any, ...], Counter[Wide]]:
    """The rows of each key, with their numbers."""
    found: dict[tuple[Any, ...], Counter[Wide]] = {}
    for key, other in zip(keys_of(rows, keys), keys_of(rows, others), strict=True):
        found.setdefault(key, Counter())[key, other] += 1
    return found


@pytest.mark.usefixtures("pieces")
@pytest.mark.parametrize("seed", range(examples(12)))
def test_changed_rows_and_references_by_other_columns_are_those_of_python(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    kinds = [chance.choice(["tinyint", "bigint", "string", "double", "date"]) for _ in range(chance.choice([1, 2]))]
    lakes, indexes = [], []
    for name in "ab":
        lake = make(tmp_path / name, kinds, chance)
        numbers = pa.array([chance.choice([None, 0, 1]) for _ in range(40)], pa.int32())
        values = [pa.array([VALUES[kind][1](random.Random(i)) for i in range(40)], VALUES[kind][0]) for kind in kinds]
        write_source(tmp_path / name / "lake", {"p=0/same.parquet": pa.table([*values, numbers], [*lake.keys, "n"])})
        place = tmp_path / name / "wide"
        index_source(tmp_path / name / "lake", place, lake.keys, chance.randrange(1, 5), include=["n"])
        if chance.random() < 0.5:
            rebucket(storage_at(str(place)), chance.randrange(1, 6), order=chance.choice(["hash", "range"]))
        lakes.append(list(gnomon.open_index(str(place)).range()))
        indexes.append(str(place))
    keys = lake.keys
    one, other = (wide(rows, keys, ["n"]) for rows in lakes)
    expected: Counter[tuple[Any, ...]] = Counter()
    for key in one.keys() | other.keys():
        mine, theirs = one.get(key, Counter()), other.get(key, Counter())
        for row in mine.keys() | theirs.keys():
            if mine[row] != theirs[row]:
                for side, rows in (("first", mine[row]), ("second", theirs[row])):
                    if rows:
                        expected[repr((*row[0], *row[1])), side, bool(mine and theirs), rows] += 1
    found: Counter[tuple[Any, ...]] = Counter()
    diff = gnomon.diff(*indexes, included=True)
    for table in diff:
        more = [table.column(name).to_pylist() for name in (SIDE, CHANGED, ROWS)]
        found.update(zip(map(repr, diff.shown(table)), *more, strict=True))
    assert found == expected
    both = one.keys() & other.keys()
    changed = sum(one[key] != other[key] for key in both)
    assert diff.counts == {
        "first": len(one.keys() - both),
        "second": len(other.keys() - both),
        "both": len(both),
        "changed": changed,
    }
    assert gnomon.diff(indexes[0], indexes[0], included=True).found == 0

    parent = made(tmp_path / "parent", pa.array([0, 5, 7, 1000], pa.int64()))
    of_rows = Counter(row["n"] for row in lakes[0])
    nulls = of_rows.pop(None, 0)
    lost = {value: rows for value, rows in of_rows.items() if value not in (0, 5, 7)}
    orphans = gnomon.orphans(indexes[0], parent, ["n"])
    assert found_in(orphans) == Counter((repr((value,)), "first", rows) for value, rows in lost.items())
    assert orphans.counts == {"first": len(lost), "both": len(of_rows) - len(lost), "nulls": int(nulls > 0)}
    by_key, by_columns = gnomon.orphans(*indexes), gnomon.orphans(*indexes, lake.keys)
    assert found_in(by_key) == found_in(by_columns)
    assert by_key.counts == by_columns.counts


@pytest.mark.usefixtures("pieces")
@pytest.mark.parametrize("seed", range(examples(12)))
def test_keys_with_partition_columns_are_compared_where_both_have_the_same_ones(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    kinds = [chance.choice(list(VALUES)) for _ in range(chance.choice([1, 2]))]
    lakes = []
    columns: list[str] = []
    for name in "ab":
        lake = make(tmp_path / name, kinds, chance)
        columns = columns or chance.sample([*lake.keys, "p"], len(kinds) + 1)
        place = tmp_path / name / "with p"
        index_source(tmp_path / name / "lake", place, columns, chance.randrange(1, 6), flat=chance.random() < 0.5)
        lakes.append(Lake(gnomon.open_index(str(place)), lake.rows, columns))  # type: ignore[arg-type]
    are_as_in_python(*lakes)
    moved = sorted(columns, reverse=columns == sorted(columns))
    index_source(tmp_path / "b" / "lake", tmp_path / "moved", moved, 2)
    if columns.index("p") != moved.index("p"):
        with pytest.raises(gnomon.UsageError, match=r"not compared|partition columns"):
            gnomon.diff(lakes[0].index, str(tmp_path / "moved"))


SAME = {
    "int and bigint": (pa.array([1, 2, None], pa.int32()), pa.array([2, 1 << 40, None])),
    "text and a dictionary": (pa.array(["a", "b", None]), pa.array(["b", "c", None]).dictionary_encode()),
    "text and large text": (pa.array(["a", "b", None]), pa.array(["b", "c", None], pa.large_string())),
    "float and double": (pa.array([0.5, 0.25, None], pa.float32()), pa.array([0.25, 0.1, None])),
    "half and double": (pa.array([0.5, 0.25, None], pa.float16()), pa.array([0.25, 0.1, None])),
    "decimals": (
        pa.array([Decimal("1.5"), Decimal("2.50"), None], pa.decimal128(9, 2)),
        pa.array([Decimal("2.500"), Decimal("-7.125"), None], pa.decimal128(12, 3)),
    ),
    "a decimal and bigint": (
        pa.array([Decimal("1.00"), Decimal("2.50"), None], pa.decimal128(9, 2)),
        pa.array([1, 3, None]),
    ),
    "unsigned and signed": (pa.array([1, 2, None], pa.uint32()), pa.array([2, 3, None], pa.int8())),
    "unsigned of 64 bits and int": (
        pa.array([1, (1 << 64) - 1, None], pa.uint64()),
        pa.array([1, 3, None], pa.int32()),
    ),
    "seconds and microseconds": (
        pa.array([1, 2, None], pa.timestamp("s")),
        pa.array([2_000_000, 3, None], pa.timestamp("us")),
    ),
    "nanoseconds": (pa.array([1, 2, None], pa.timestamp("ns")), pa.array([2, 3, None], pa.timestamp("ns"))),
    "binary and fixed": (pa.array([b"ab", b"cd", None]), pa.array([b"cd", b"ef", None], pa.binary(2))),
}


@pytest.mark.parametrize("case", SAME)
def test_types_with_equal_values_are_compared_by_value(tmp_path: Path, case: str) -> None:
    """In DuckDB's words: of two columns, `except` and `intersect`, with a null as a value."""
    first, second = (
        made(tmp_path / name, keys, buckets=2 + i) for i, (name, keys) in enumerate(zip("ab", SAME[case], strict=True))
    )
    db = duckdb.connect()
    for name, keys in zip("ab", SAME[case], strict=True):
        db.register(name, pa.table({"k": keys.cast(pa.float32()) if keys.type == pa.float16() else keys}))
    only, others, both = (
        db.execute(f"select count(*) from ({text})").fetchall()[0][0]
        for text in (
            "select k from a except select k from b",
            "select k from b except select k from a",
            "select k from a intersect select k from b",
        )
    )
    found = gnomon.diff(first, second)
    assert found.counts == {"first": only, "second": others, "both": both} == {"first": 1, "second": 1, "both": 2}
    assert gnomon.diff(second, first).counts == {"first": others, "second": only, "both": both}
    assert gnomon.orphans(first, second).counts == {"first": 1, "both": 1, "nulls": 1}


REFUSED = {
    "text": (pa.array([1]), pa.array(["1"])),
    "units": (pa.array([1], pa.timestamp("ns")), pa.array([1], pa.int64())),
    "units of a time": (pa.array([1], pa.time32("ms")), pa.array([1], pa.time64("us"))),
    "zones": (pa.array([1], pa.timestamp("us")), pa.array([1], pa.timestamp("us", "UTC"))),
    "days": (pa.array([1], pa.date32()), pa.array([1], pa.int32())),
    "bytes": (pa.array(["a"]), pa.array([b"a"])),
    "floats": (pa.array([1.0]), pa.array([1])),
    "digits": (pa.array([Decimal("1")], pa.decimal128(38, 0)), pa.array([Decimal("1")], pa.decimal128(38, 37))),
}


@pytest.mark.parametrize("case", REFUSED)
def test_types_without_equal_values_are_refused_by_name(tmp_path: Path, case: str) -> None:
    first, second = (made(tmp_path / name, keys) for name, keys in zip("ab", REFUSED[case], strict=True))
    for call in (gnomon.diff, gnomon.orphans):
        with pytest.raises(gnomon.UsageError, match=f"{second}: k is .*, which is not compared with k of {first}"):
            call(first, second)


def test_columns_that_cannot_be_compared_are_refused_by_name(tmp_path: Path) -> None:
    one = made(tmp_path / "a", pa.array([1, 2]))
    write_source(tmp_path / "lake", {"p=0/a.parquet": pa.table({"k": [1], "v": [1], "w": [2], "_rows": [3]})})
    for name, keys, include in (("kv", ["k", "v"], []), ("v", ["k"], ["v"]), ("w", ["k"], ["w"]), ("r", ["_rows"], [])):
        index_source(tmp_path / "lake", tmp_path / name, keys, include=include)
    v, w = str(tmp_path / "v"), str(tmp_path / "w")
    for call, says in (
        (lambda: gnomon.diff(one, str(tmp_path / "kv")), "a key of 2 columns; expected 1, as .*/a/index has"),
        (lambda: gnomon.diff(v, one, included=True), f"{one}: the index has no included columns"),
        (lambda: gnomon.diff(v, w, included=True), f"{w}: included columns w; expected v, as {v} has"),
        (lambda: gnomon.orphans(v, one, ["x", "w"]), "the entries have no column x, w; they have k, v, p"),
        (lambda: gnomon.orphans(v, one, ["v", "v"]), "columns: v, v; expected each of them once"),
        (lambda: gnomon.orphans(v, one, []), "columns: expected one or more"),
        (lambda: gnomon.unique(str(tmp_path / "r")), "a column _rows, which the result has, too"),
    ):
        with pytest.raises(gnomon.UsageError, match=says):
            call()


def test_partitions_refer_to_a_parent_and_key_value_folders_are_compared(tmp_path: Path) -> None:
    rows = pa.table({"k": [1, 2, 2, None], "day": ["a", "b", "b", "c"], "v": [1.5, 2.5, 2.5, None]})
    gnomon.write_btree(rows, str(tmp_path / "one"), ["k"], partitions=["day"], buckets=8)
    gnomon.write_btree(rows.slice(1), str(tmp_path / "two"), ["k"], buckets=3)
    one, two, days = str(tmp_path / "one"), str(tmp_path / "two"), made(tmp_path / "days", pa.array(["a", "c"]))
    assert found_in(gnomon.diff(one, two)) == Counter([("(1,)", "first", 1)])
    assert found_in(gnomon.unique(one)) == Counter([("(2,)", "first", 2)])
    assert found_in(gnomon.orphans(one, days, ["day"])) == Counter([("('b',)", "first", 2)])
    with pytest.raises(gnomon.UsageError, match="included columns day, v; expected v"):
        gnomon.diff(one, two, included=True)


def as_in_duckdb(first: str, second: str, rows: list[Rows], snapshots: list[int]) -> None:
    """Compare sets of two snapshots with the answers of SQL on the rows that they cover."""
    one, other = (gnomon.open_index(place, number) for place, number in zip((first, second), snapshots, strict=True))
    keys = rows[0].keys
    db = duckdb.connect()
    for name, some in zip("ab", rows, strict=True):
        db.register(name, some._db.sql(f"select {', '.join(keys)} from live").to_arrow_table())
    names, same = ", ".join(keys), " and ".join(f"a.{key} is not distinct from b.{key}" for key in keys)
    has_null = " or ".join(f"a.{key} is null" for key in keys)

    def counted(sql: str) -> tuple[int, int]:
        """The number of keys, and of their rows."""
        found = db.execute(f"select count(*), coalesce(sum(c), 0) from ({sql})").fetchall()[0]
        return int(found[0]), int(found[1])

    def shown(keys: KeySet, side: str) -> tuple[int, int]:
        some = [table.filter(pc.equal(table.column(SIDE), side)) for table in keys]
        return sum(map(len, some)), sum(sum(table.column(ROWS).to_pylist()) for table in some)

    alone = f"select count(*) as c from a anti join b on {same} group by {names}"
    diff = gnomon.diff(one, other)
    assert shown(diff, "first") == counted(alone)
    assert shown(gnomon.diff(other, one), "second") == counted(alone)
    both = counted(f"select count(*) as c from a semi join b on {same} group by {names}")[0]
    assert diff.counts == {"first": shown(diff, "first")[0], "second": shown(diff, "second")[0], "both": both}
    orphans = gnomon.orphans(one, other)
    lost = (
        f"select count(*) as c from (select * from a where not ({has_null})) a anti join b on {same} group by {names}"
    )
    assert shown(orphans, "first") == counted(lost)
    nulls = counted(f"select count(*) as c from a where {has_null} group by {names}")[0]
    unique, sound = gnomon.unique(one), f"select count(*) as c from a where not ({has_null}) group by {names}"
    assert shown(unique, "first") == counted(f"{sound} having c > 1")
    assert unique.counts == {"first": shown(unique, "first")[0], "keys": counted(sound)[0], "nulls": nulls}
    assert orphans.counts["nulls"] == nulls


@pytest.mark.parametrize("seed", range(examples(2)))
@pytest.mark.parametrize("kind", LAKES_OF)
def test_sets_of_changing_lakes_are_those_of_duckdb(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, seed: int
) -> None:
    """Lakes whose rows are deleted by position and by deletion vectors, whose files are rewritten, and whose indexes
    are compacted and bucketed anew: two snapshots, and an index of the same rows with other buckets."""
    if seed % 2 == 0:
        in_small_pieces(monkeypatch)
    catalog = here(tmp_path, monkeypatch) if kind == "iceberg" else None
    lake_of = (
        partial(Iceberg, catalog, name="t") if catalog else partial(Folder if kind == "folder" else Delta, tmp_path)
    )
    trial = Trial(lake_of, Iceberg.kinds if catalog else tuple(VALUES), tmp_path, seed)
    for _ in range(3):
        before = dict(trial.past)
        trial.step()
        now = max(trial.past)
        for snapshot in [number for number in before if number in trial.past][-2:]:
            as_in_duckdb(trial.index, trial.index, [before[snapshot], trial.past[now]], [snapshot, now])
            as_in_duckdb(trial.index, trial.index, [trial.past[now], before[snapshot]], [now, snapshot])
    build(None, trial.lake.name, str(tmp_path / "again"), trial.keys, buckets=trial.chance.randrange(1, 9))
    assert gnomon.diff(trial.index, str(tmp_path / "again")).found == 0
    rows = trial.past[max(trial.past)]
    as_in_duckdb(str(tmp_path / "again"), trial.index, [rows, rows], [1, max(trial.past)])


DELETED = [table for table in TABLES if "delete" in table.name or "vectors" in table.name]


@pytest.mark.parametrize("table", cases(DELETED), ids=str)
def test_rows_that_a_table_deleted_are_in_no_set(tmp_path: Path, table: Table) -> None:
    """Spark deleted rows of these tables by position deletes, equality deletes and deletion vectors."""
    known: list[tuple[str, Counter[Any]]] = []
    for number, version in enumerate(version for version in table.versions if not version.gone and version.rows()):
        key, index = KEYS.get(table.name, version.key), str(tmp_path / str(number))
        try:
            bring_to(None, version, index, key)
        except gnomon.UsageError as error:
            assert REFUSED_TABLES.get(table.name, "never") in str(error)  # noqa: PT017
            continue
        rows: Counter[Any] = Counter(tuple(repr(row[name]) for name in key) for row in version.rows())
        assert gnomon.unique(index).counts["keys"] == len(rows)
        assert gnomon.unique(index).found == sum(count > 1 for count in rows.values())
        known.append((index, rows))
    assert len(known) > 1
    for (one, first), (other, second) in pairwise(known):
        only, others, both = len(first.keys() - second), len(second.keys() - first), len(first.keys() & second)
        assert gnomon.diff(one, other).counts == {"first": only, "second": others, "both": both}


def test_deleted_rows_are_in_no_set(tmp_path: Path) -> None:
    from deltalake import write_deltalake

    rows = pa.table({"id": [number % 40 for number in range(60)]})
    write_deltalake(str(tmp_path / "t"), rows, configuration={"delta.enableDeletionVectors": "true"})
    build(None, f"delta:{tmp_path / 't'}", str(tmp_path / "new"), ["id"], buckets=2)
    build(None, f"delta:{tmp_path / 't'}", str(tmp_path / "old"), ["id"], buckets=3)
    delete(None, str(tmp_path / "new"), [0, 39, 7])
    found = gnomon.diff(str(tmp_path / "old"), str(tmp_path / "new"))
    assert found_in(found) == Counter({("(0,)", "first", 2): 1, ("(7,)", "first", 2): 1, ("(39,)", "first", 1): 1})
    unique = gnomon.unique(str(tmp_path / "new"))
    assert sum(found_in(unique).values()) == unique.counts["first"] == 18


def asked(first: str, second: str) -> list[KeySet]:
    """Sets that read all files of the second index."""
    return [
        gnomon.diff(first, second),
        gnomon.orphans(second, first),
        gnomon.unique(second),
        gnomon.orphans(second, first, ["k"]),
    ]


def test_no_broken_byte_of_an_index_file_gives_a_set(tmp_path: Path) -> None:
    """The bytes of keys and pointers have no checksum of their own, so that another key could be read there."""
    good, bad = (made(tmp_path / name, pa.array(range(3000), pa.int64()), buckets=1) for name in "ab")
    (file,) = Path(bad).rglob("*.btree.avro")
    sound = file.read_bytes()
    chance = random.Random(1)
    for at in chance.sample(range(len(sound)), examples(20)):
        data = bytearray(sound)
        data[at] ^= 1 << chance.randrange(8)
        file.write_bytes(data)
        for one in asked(good, bad):
            with pytest.raises(gnomon.DamagedIndexFile, match=rf"{file} at byte 0: expected CRC \w+, found \w+"):
                list(one)
            with pytest.raises(gnomon.DamagedIndexFile):
                assert one.counts
    file.write_bytes(sound[:-1])
    for one in asked(good, bad):
        with pytest.raises(gnomon.DamagedIndexFile, match=f"expected {len(sound)} bytes, found {len(sound) - 1}"):
            list(one)
    file.unlink()
    for one in asked(good, bad):
        with pytest.raises(gnomon.GnomonError, match=f"{file}: missing, though the snapshot names it"):
            list(one)


def test_an_index_file_with_keys_of_another_range_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files of ranges are read one after the other. These have sound checksums and sorted keys, but some keys lie
    in the file of a greater range."""
    good, bad = (made(tmp_path / name, pa.array(range(1000), pa.int64()), buckets=2) for name in "ab")

    def wrong(self: RangeBuckets, columns: list[pa.Array], plain: Any = None) -> Any:
        found = right(self, columns, plain)
        return np.where(columns[0].to_numpy() == 760, 1, found)

    right = RangeBuckets.of_columns
    monkeypatch.setattr("gnomon.shadow.lookup.ordered.MOST_AT_ONCE", 50)  # more files are read together, and merged
    with monkeypatch.context() as broken:
        broken.setattr(RangeBuckets, "of_columns", wrong)
        rebucket(storage_at(bad), 4, order="range")
    for one in (gnomon.diff(good, bad), gnomon.orphans(bad, good), gnomon.unique(bad), gnomon.diff(bad, bad)):
        says = r"_00002.btree.avro at byte 0: keys are not in order: expected a key of at least \[760\], found \[\d+\]"
        with pytest.raises(gnomon.DamagedIndexFile, match=says):
            list(one)


def test_an_index_file_with_keys_of_another_bucket_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some buckets of both indexes are compared at a time, so that a key in another one would seem to be missing."""
    monkeypatch.setattr("gnomon.shadow.key_sets.FILES_AT_ONCE", 1)
    good = made(tmp_path / "a", pa.array(range(1000), pa.int64()), buckets=4)
    right = HashBuckets.of

    def wrong(self: HashBuckets, key: tuple[Any, ...]) -> int:
        return 0 if key[0] > 500 and key[0] % 100 == 7 else right(self, key)

    with monkeypatch.context() as broken:
        broken.setattr(HashBuckets, "of", wrong)
        bad = made(tmp_path / "b", pa.array(range(1000), pa.int64()), buckets=4)
    for one in (gnomon.diff(good, bad), gnomon.orphans(bad, good), gnomon.unique(bad)):
        with pytest.raises(gnomon.DamagedIndexFile, match="/b/index at byte 0: holds an entry of another bucket"):
            list(one)


def test_a_vacuumed_snapshot_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = made(tmp_path, pa.array(range(1000), pa.int64()))
    opened = gnomon.open_index(place, cache_bytes=0)
    rebucket(storage_at(place), 3)
    vacuum(storage_at(place), 0, unnamed_seconds=0)
    for one in (gnomon.unique(opened), gnomon.orphans(opened, opened, ["k"])):
        with pytest.raises(gnomon.SnapshotNotFound):
            list(one)


def test_counts_are_of_all_keys_where_an_iteration_was_left(tmp_path: Path) -> None:
    unique = gnomon.unique(made(tmp_path, pa.array([*range(500), *range(500)], pa.int64())))
    assert len(next(iter(unique))) > 0
    assert unique.counts == {"first": 500, "keys": 500, "nulls": 0}


def test_commands_end_with_1_where_they_find_keys(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = made(tmp_path / "a", pa.array([1, 2, 3, 3], pa.int64()))
    second = made(tmp_path / "b", pa.array([1, 2, 3, 4], pa.int64()))
    assert main(["diff", first, first]) == main(["unique", second]) == main(["orphans", first, second]) == 0
    assert main(["unique", first]) == main(["orphans", second, first]) == 1
    capsys.readouterr()
    assert main(["diff", second, first, "--limit", "1", "--json"]) == 1
    assert capsys.readouterr().out == (
        '{"snapshots": [1, 1], "counts": {"first": 1, "second": 0, "both": 3}, '
        '"shown": [{"key": [4], "side": "first", "rows": 1}]}\n'
    )
    assert main(["diff", first, str(tmp_path / "none")]) == 3


def test_commands_compare_included_columns_and_write_all_that_they_find(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    moments = [dt.datetime(2026, 1, day, tzinfo=dt.UTC) for day in (1, 2, 3)]
    tables = {"a": pa.table({"k": moments, "v": ["x", "y", None]}), "b": pa.table({"k": moments[:2], "v": ["x", "z"]})}
    for name, table in tables.items():
        write_source(tmp_path / name / "lake", {"p=0/a.parquet": table})
        index_source(tmp_path / name / "lake", tmp_path / name / "index", ["k"], include=["v"])
    first, second = (str(tmp_path / name / "index") for name in tables)
    rows = [
        {"k": "2026-01-02T00:00:00Z", "v": "y", "_side": "first", "_changed": True, "_rows": 1},
        {"k": "2026-01-02T00:00:00Z", "v": "z", "_side": "second", "_changed": True, "_rows": 1},
        {"k": "2026-01-03T00:00:00Z", "v": None, "_side": "first", "_changed": False, "_rows": 1},
    ]
    for ending in ("jsonl", "csv", "parquet"):
        out = tmp_path / f"found.{ending}"
        assert main(["diff", first, second, "--included", "--limit", "1", "--out", str(out)]) == 1
        shown = capsys.readouterr().out.splitlines()
        assert shown[-1] == "snapshot 1 and 1: first 1, second 0, both 2, changed 1"
        assert len(shown) == 2
        text = out.read_text(encoding="utf-8") if ending != "parquet" else ""
        if ending == "parquet":
            found = [{**row, "k": row["k"].strftime("%Y-%m-%dT%H:%M:%SZ")} for row in pq.read_table(out).to_pylist()]
            assert sorted(map(repr, found)) == sorted(repr(row) for row in rows)
        elif ending == "jsonl":
            assert sorted(text.splitlines()) == sorted(json.dumps(row, separators=(", ", ": ")) for row in rows)
        else:
            assert text.splitlines()[0] == "k,v,_side,_changed,_rows"
            assert sorted(text.splitlines()[1:]) == [
                "2026-01-02T00:00:00Z,y,first,true,1",
                "2026-01-02T00:00:00Z,z,second,true,1",
                "2026-01-03T00:00:00Z,,first,false,1",
            ]
        assert main(["unique", first, "--out", str(out)]) == 2
        assert "the file exists; name a new one" in capsys.readouterr().err
    assert main(["unique", first, "--out", str(tmp_path / "found.txt")]) == 2
    assert main(["unique", first, "--out", str(tmp_path / "none" / "found.csv")]) == 2
    assert main(["orphans", first, second, "--columns", "v,x"]) == 2
    assert "the entries have no column x; they have k, v, p" in capsys.readouterr().err
    assert not list(tmp_path.glob(".*"))


@pytest.mark.store
def test_indexes_on_a_store_are_compared(tmp_path: Path, s3_root: str) -> None:
    places = []
    for name, keys, buckets in (("a", range(2000), 3), ("b", range(10, 2010), 5)):
        write_source(tmp_path / name, {"p=0/a.parquet": pa.table({"k": pa.array(keys, pa.int64()), "v": keys})})
        places.append(f"{s3_root}/{name}")
        index_source(tmp_path / name, storage_at(places[-1]), ["k"], buckets, include=["v"])
    first, second = places
    assert gnomon.diff(first, second, included=True).counts == {"first": 10, "second": 10, "both": 1990, "changed": 0}
    assert gnomon.orphans(first, second, ["v"]).counts == gnomon.orphans(first, second).counts
    storage = storage_at(second)
    path = next(info.path for info in storage.list("") if info.path.endswith(".btree.avro"))
    data = bytearray(storage.read(path))
    data[len(data) // 2] ^= 1
    storage.delete(path)
    storage.put_new(path, [bytes(data)])
    for one in asked(first, second):
        with pytest.raises(gnomon.DamagedIndexFile, match=r"expected CRC \w+, found \w+"):
            list(one)
