"""Files by Dione's rules with keys of every type: each row is found, in Java's order."""

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnomon.btree import Column, DamagedIndexFile, EntrySchema, UnsortedKeys
from gnomon.btree.blocks import LookupStats
from gnomon.btree.dione import DioneWriter
from gnomon.btree.keys import Key
from tests.btree.dione_rules import PACKERS, Field, Row, dione_file, rank
from tests.btree.files import batch, opened
from tests.profiles import examples

DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}
VALUES: list[Field] = [("row", "long")]
FLOATS = [-math.inf, -1.5, -5e-324, -0.0, 0.0, 5e-324, 2.0, math.inf, math.nan]
PARTS: list[tuple[Any, list[Any]]] = [
    ("string", ["", "a", "ab", "b", "\x7f", "é", "\uffff", "\U0001f600"]),
    ("int", [-(2**31), -1, 0, 1, 2**31 - 1]),
    ("long", [-(2**63), -1, 0, 1, 2**63 - 1]),
    ("boolean", [False, True]),
    ("double", FLOATS),
    ("float", [value for value in FLOATS if abs(value) != 5e-324]),
    ("bytes", [b"", b"\x00", b"\x7f", b"\x7f\x80", b"\x80", b"\xff"]),
    (DECIMAL, [-999999, -200, -129, -128, -1, 0, 1, 127, 128, 300, 999999]),
    ({"type": "int", "logicalType": "date"}, [-719162, 0, 2932896]),
    ({"type": "long", "logicalType": "timestamp-micros"}, [-1, 0, 10**15]),
]


@st.composite
def _files(draw: st.DrawFn) -> tuple[list[Row], bytes]:
    keys, pools = [], []
    for i in range(draw(st.integers(1, 3))):
        kind, values = draw(st.sampled_from(PARTS))
        union = draw(st.sampled_from([None, [kind, "null"], ["null", kind]]))
        keys.append((f"k{i}", union or kind))
        pools.append(st.sampled_from(values + [None] * (union is not None)))
    parts = draw(st.lists(st.tuples(*pools), max_size=40))
    parts.sort(key=lambda key: [rank(kind, part) for (_, kind), part in zip(keys, key, strict=True)])
    rows = [dict(zip([*(name for name, _ in keys), "row"], [*key, i], strict=True)) for i, key in enumerate(parts)]
    link = draw(st.sampled_from([("null", "long"), ("long", "null"), ("null", {"type": "long"})]))
    shape = draw(st.integers(1, 7)), draw(st.integers(1, 5)), draw(st.sampled_from(sorted(PACKERS)))
    return rows, dione_file(keys, VALUES, rows, *shape, link)


def _same(a: Key, b: Key) -> bool:
    """Whether keys are equal in Spark: nulls, NaNs and both zeros are."""
    return all(x == y or (x != x and y != y) for x, y in zip(a, b, strict=True))


def _key(row: Row) -> Key:
    return tuple(row[name] for name in row if name != "row")


@settings(max_examples=examples(300))
@given(_files())
def test_each_row_is_found_under_its_key_and_in_its_place(made: tuple[list[Row], bytes]) -> None:
    rows, data = made
    tree = opened(data)
    found = list(tree.scan())
    assert [value for _, value in found] == [(row["row"],) for row in rows]
    assert repr([key for key, _ in found]) == repr([_key(row) for row in rows])
    assert tree.check() == len(rows)
    assert [n for batch in tree.scan_batches(["row"]) for n in batch["row"].to_pylist()] == list(range(len(rows)))
    wanted = [_key(row) for row in rows]
    expected = [[(row["row"],) for row in rows if _same(_key(row), key)] for key in wanted]
    assert [tree.get(key) for key in wanted] == expected
    assert tree.get_many(wanted) == expected
    assert tree.contains_many(wanted) == [True] * len(wanted)


@pytest.mark.parametrize(("kind", "values"), PARTS, ids=lambda part: str(part)[:20])
def test_what_is_not_there_is_not_found(kind: Any, values: list[Any]) -> None:
    there = sorted(values, key=lambda value: rank(kind, value))[::2]
    if 0 in there and isinstance(there[0], float):
        there.remove(0)
    tree = opened(dione_file([("k", kind)], VALUES, [{"k": k, "row": i} for i, k in enumerate(there)], 2, 3))
    absent = [(value,) for value in values if not any(_same((value,), (one,)) for one in there)]
    assert tree.get_many(absent) == [[]] * len(absent)
    assert tree.contains_many(absent) == [False] * len(absent)


@pytest.mark.parametrize("first", [-0.0, 0.0])
def test_either_zero_finds_both_and_bounds_a_range_as_both(first: float) -> None:
    rows = [{"a": a, "b": b, "row": i} for i, (a, b) in enumerate([(-0.0, 3), (-0.0, 5), (0.0, 3), (0.0, 4), (1.0, 0)])]
    tree = opened(dione_file([("a", "double"), ("b", "int")], VALUES, rows, 1, 3))
    assert tree.get((first, 3)) == [(0,), (2,)]
    assert tree.contains_many([(first, 5), (first, 6)]) == [True, False]
    runs = list(tree.runs((first, 4), (1.0, 0), False, LookupStats()))
    assert tree.decoded(runs, ["row"])[0].to_pylist() == [1, 2, 3]


def test_writers_of_ours_put_the_zeros_in_that_order() -> None:
    schema = EntrySchema((Column("a", "double"), Column("b", "int")), (Column("row", "bigint"),))
    entries = [((-0.0, 5), (0,)), ((0.0, 3), (1,))]
    writer = DioneWriter(schema, 3, 2)
    writer.write(batch(schema, entries))
    assert opened(b"".join(writer.finish().chunks)).get((0.0, 3)) == [(1,)]
    with pytest.raises(UnsortedKeys):
        DioneWriter(schema, 3, 2).write(batch(schema, entries[::-1]))


@pytest.mark.parametrize(("kind", "value"), [("int", 2**40), (DECIMAL, 10**6)], ids=["int", "decimal"])
def test_a_value_that_its_type_cannot_hold_is_refused_whoever_asks(kind: Any, value: int) -> None:
    tree = opened(dione_file([("k", "string")], [("v", kind)], [{"k": "a", "v": value}], 3, 2))
    for ask in (tree.check, lambda: tree.get(("a",)), lambda: list(tree.scan()), lambda: list(tree.scan_batches())):
        with pytest.raises(DamagedIndexFile):
            ask()
