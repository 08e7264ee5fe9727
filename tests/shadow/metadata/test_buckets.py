"""Buckets that are ranges of keys: each key lies in one, as Python's order of keys says."""

import copy
import math
import random
from bisect import bisect_right
from dataclasses import replace

import pyarrow as pa
import pytest

from gnomon.btree.key_types import Stored
from gnomon.btree.keys import Key, order_key, stored_array, stored_values, type_of_arrow
from gnomon.shadow.errors import DamagedMetadata, NewerFormat
from gnomon.shadow.metadata import Folder, IndexSpec, KeyColumn, cuts_of, spec_differences, with_cuts
from gnomon.shadow.metadata.buckets import LONGEST_CUT, RangeBuckets
from gnomon.shadow.metadata.spec import parse_spec
from tests.shadow.key_values import VALUES


def spec_of(kinds: tuple[str, ...]) -> IndexSpec:
    keys = tuple(KeyColumn(f"k{i}", kind) for i, kind in enumerate(kinds))
    return IndexSpec(Folder("/lake"), "parquet", (), keys, (), 1)


def columns_of(names: list[str], chance: random.Random, rows: int) -> tuple[tuple[str, ...], list[pa.Array]]:
    kinds, columns = [], []
    for name in names:
        arrow, value = VALUES[name]
        columns.append(pa.array([None if chance.random() < 0.1 else value(chance) for _ in range(rows)], arrow))
        kinds.append(type_of_arrow(arrow) or "")
    return tuple(kinds), columns


@pytest.mark.parametrize("names", [[name] for name in VALUES] + [["tinyint", "string"], ["string", "double", "date"]])
def test_a_key_lies_in_the_bucket_between_its_cuts(names: list[str]) -> None:
    chance = random.Random(str(names))
    for _ in range(20):
        kinds, columns = columns_of(names, chance, chance.choice([0, 1, 30]))
        spec = with_cuts(spec_of(kinds), cuts_of(columns, kinds, chance.randrange(1, 12)))
        assert parse_spec(spec.to_json(), "spec") == spec
        assert spec.cuts is not None
        cuts = [order_key(cut) for cut in spec.cuts]
        assert cuts == sorted(set(cuts))
        _, asked = columns_of(names, chance, 50)
        keys: list[Key] = list(zip(*map(stored_values, asked, kinds), strict=True))
        expected = [bisect_right(cuts, order_key(key)) for key in keys]
        assert spec.bucketing.of_columns(asked).tolist() == [spec.bucketing.of(key) for key in keys] == expected
        low, high = sorted(chance.sample(keys, 2), key=order_key)
        within = {spec.bucketing.of(key) for key in keys if order_key(low) <= order_key(key) < order_key(high)}
        assert within <= set(spec.bucketing.between(low, high))
        assert list(spec.bucketing.between(None, None)) == list(range(spec.buckets))


def test_cuts_make_about_equal_buckets_and_fewer_where_one_key_is_more_than_a_share() -> None:
    numbers = pa.array(random.Random(1).sample(range(10**9), 10_000))
    buckets = RangeBuckets(("bigint",), cuts_of([numbers], ("bigint",), 16))
    counts = [buckets.of_columns([numbers]).tolist().count(i) for i in range(16)]
    assert (min(counts), max(counts)) == (625, 625)
    assert cuts_of([pa.array([5] * 900 + [*range(100)])], ("bigint",), 4) == ((5,),)
    assert cuts_of([pa.array([None, None, 1.0, math.nan, math.nan])], ("double",), 5) == ((1.0,),)


def test_a_long_text_cuts_by_its_beginning() -> None:
    texts = pa.array([f"{'x' * 2 * LONGEST_CUT}{i}" for i in range(9)])
    assert cuts_of([texts], ("string",), 3) == (("x" * LONGEST_CUT,),)


def test_the_end_of_a_prefix_may_be_bytes_that_are_no_text() -> None:
    buckets = RangeBuckets(("string",), (("a",), ("é",), ("\U0001f600",)))
    assert list(buckets.between(("é",), (b"\xc3\xaa",))) == [2]
    assert list(buckets.between((b"\xf0",), (b"\xf1",))) == [2, 3]


BROKEN: dict[str, list[list[Stored]]] = {
    "not ascending": [["b"], ["a"], ["c"]],
    "too few": [["a"]],
    "twice": [["a"], ["a"], ["b"]],
    "of two columns": [["a", "b"], ["b", "c"], ["c", "d"]],
}


@pytest.mark.parametrize("name", BROKEN)
def test_damaged_cuts_are_refused(name: str) -> None:
    content = copy.deepcopy(with_cuts(spec_of(("string",)), (("a",), ("b",), ("c",))).to_json())
    content["cuts"] = BROKEN[name]
    with pytest.raises(DamagedMetadata):
        parse_spec(content, "spec")


def test_a_program_that_knows_hashes_alone_refuses_ranges() -> None:
    """It compares the member `hash` with its own."""
    spec = with_cuts(spec_of(("string",)), (("a",),))
    assert spec.to_json()["hash"] != replace(spec, cuts=None).to_json()["hash"]
    del (content := spec.to_json())["cuts"]
    with pytest.raises(NewerFormat):
        parse_spec(content, "spec")


def test_other_cuts_are_another_spec() -> None:
    one, other = (with_cuts(spec_of(("string",)), ((cut,),)) for cut in "ab")
    assert [name for name, _, _ in spec_differences(one, other)] == ["order"]
    assert [name for name, _, _ in spec_differences(one, replace(one, cuts=None))] == ["order"]


def test_a_key_that_is_a_cut_lies_behind_it() -> None:
    chance = random.Random(2)
    values = [chance.choice("abc") for _ in range(40)]
    buckets = RangeBuckets(("string",), (("b",), ("c",)))
    assert buckets.of_columns([stored_array(values, "string")]).tolist() == ["abc".index(value) for value in values]
