"""A look-up of a batch finds the entries that `get_many` finds for each key, and checks the nodes that it reads."""

import tracemalloc
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnomon.base import kernel
from gnomon.btree import BTreeReader, Column, DamagedIndexFile, EntrySchema
from gnomon.btree import batch as batch_module
from gnomon.btree import columns as columns_module
from gnomon.btree.batch import Found
from gnomon.btree.blocks import LookupStats
from gnomon.btree.dione import DioneWriter
from gnomon.btree.errors import TooMany
from gnomon.btree.key_types import key_type
from gnomon.btree.keys import Key, KeyBatch, order_key, stored_values
from tests.btree.files import SYNC, URL_SCHEMA, Bytes, Entry, arrow_column, batch, opened, url_entries, write
from tests.btree.small_files import SHAPES
from tests.btree.test_damage import BROKEN, _chain, _lattice
from tests.btree.test_reader import PARTS, Kept, files
from tests.btree.vectors import SOUND, open_vector
from tests.profiles import examples, positions


def key_batch(keys: Sequence[Key], types: Sequence[str]) -> KeyBatch:
    return KeyBatch([arrow_column([key[i] for key in keys], name) for i, name in enumerate(types)], types)


def joined(pieces: Iterable[Found]) -> Found:
    """The pieces of an answer as one."""
    some = list(pieces)
    columns = [pa.concat_arrays(arrays) for arrays in zip(*(one.columns for one in some), strict=True)]
    keys = np.concatenate([np.empty(0, np.int64), *(one.keys for one in some)])
    return Found(keys, columns, max((one.leaves for one in some), default=0), sum(one.leaves_read for one in some))


def matched(tree: BTreeReader, keys: Sequence[Key], walk: bool = False) -> list[list[Key]]:
    """The result of a batch look-up for each key, in stored form, after a check that the look-up without values
    agrees."""
    types, values = tree.schema.key_types, tree.schema.values
    wanted = key_batch(keys, types)

    def ask(columns: Sequence[str]) -> Found:
        return tree.match_each(wanted.keys, columns) if walk else joined(tree.match(wanted.keys, columns))

    found = ask([column.name for column in values])
    assert (np.diff(found.keys) >= 0).all()
    if not len(found.keys):
        return [[] for _ in keys]
    assert [column.type for column in found.columns] == [key_type(column.type).arrow for column in values]
    (one,) = wanted.spread(found.keys)
    some = list(wanted.spread(found.keys, most=3))
    rows, places = (np.concatenate(parts) for parts in zip(*some, strict=True))
    assert [part.tolist() for part in one] == [rows.tolist(), places.tolist()]
    entries = list(zip(*(stored_values(c, v.type) for c, v in zip(found.columns, values, strict=True)), strict=True))
    answers: list[list[Key]] = [[] for _ in keys]
    for row, place in zip(rows.tolist(), places.tolist(), strict=True):
        answers[row].append(entries[place])
    there = np.zeros(len(wanted.keys), bool)
    there[ask([]).keys] = True
    assert wanted.by_row(there).tolist() == [bool(answer) for answer in answers]
    return answers


@contextmanager
def without_walk() -> Iterator[None]:
    """Fail if the walk is used, which no tree of ours needs."""
    with patch.object(BTreeReader, "match_each", side_effect=AssertionError):
        yield


@contextmanager
def chunks_of(leaves: int, size: int, long: int = 1 << 14) -> Iterator[None]:
    """`long` is the most records of a node that is not divided."""
    cut = {"LONG_BLOCK": long, "CUT_RECORDS": max(long - 1, 1)}
    with (
        patch.multiple(batch_module, LEAVES_AT_ONCE=leaves, CHUNK_BYTES=size, **cut),
        patch.multiple(columns_module, **cut),
    ):
        yield


@settings(max_examples=examples(150))
@given(files(), st.data(), st.integers(1, 5), st.sampled_from([1, 400, 1 << 26]), st.sampled_from([1, 3, 1 << 14]))
def test_a_batch_finds_what_each_key_finds(
    file: tuple[EntrySchema, list[Entry], bytes], data: st.DataObject, leaves: int, size: int, long: int
) -> None:
    schema, entries, written = file
    probes = st.tuples(*[st.sampled_from(PARTS[kind]) for kind in schema.key_types])
    asked: list[Key] = data.draw(st.lists(probes, max_size=12)) + [key for key, _ in entries[::5]]
    asked += asked[: data.draw(st.integers(0, 5))]
    tree = opened(written)
    expected = tree.get_many(asked)
    with chunks_of(leaves, size, long):
        assert matched(tree, asked) == expected
    assert matched(tree, asked, walk=True) == expected


@contextmanager
def by_arrow() -> Iterator[None]:
    """Without the compiled loop in the bytes of leaves, as in Dione files."""
    with patch.object(batch_module, "_fences", return_value=None):
        yield


def outcome(tree: BTreeReader, keys: Sequence[Key]) -> object:
    try:
        with np.errstate(invalid="ignore"):  # a flip may make a signalling NaN
            return matched(tree, keys)
    except DamagedIndexFile as error:
        return str(error)


@settings(max_examples=examples(60))
@given(files(), st.data())
def test_arrow_and_the_compiled_loop_give_one_answer_and_one_error_for_damaged_leaves(
    file: tuple[EntrySchema, list[Entry], bytes], data: st.DataObject
) -> None:
    schema, entries, written = file
    probes = st.tuples(*[st.sampled_from(PARTS[kind]) for kind in schema.key_types])
    asked: list[Key] = data.draw(st.lists(probes, max_size=6)) + [key for key, _ in entries[::5]]
    flips = data.draw(st.lists(st.tuples(st.integers(0, len(written) - 1), st.integers(1, 255)), max_size=6))
    for at, bits in [(0, 0), *flips]:
        damaged = bytearray(written)
        damaged[at] ^= bits
        leaves = Kept()
        try:
            tree = BTreeReader(Bytes(bytes(damaged)), leaves=leaves)
        except DamagedIndexFile:
            continue
        found = outcome(tree, asked)
        assert outcome(tree, asked) == found  # with the leaves that are cached now
        with by_arrow():
            assert outcome(opened(bytes(damaged)), asked) == found


@pytest.mark.parametrize("kind", PARTS)
def test_a_flip_in_a_leaf_without_checksum_has_one_outcome_by_arrow_by_the_compiled_loop_and_from_the_cache(
    kind: str,
) -> None:
    values = sorted(((value,) for value in PARTS[kind]), key=order_key)
    schema = EntrySchema((Column("k", kind),), (Column("row", "bigint", False), Column("yes", "boolean")))
    entries: list[Entry] = [(key, (i, True)) for i, key in enumerate(values)]
    data = write(schema, entries, node_bytes=30, codec="null")
    outcomes = set()
    for at in positions(range(opened(data).header_bytes, len(data))):
        for bits in (1, 0x80, 0xFF):
            damaged = bytearray(data)
            damaged[at] ^= bits
            try:
                tree = BTreeReader(Bytes(bytes(damaged)), leaves=Kept())
            except DamagedIndexFile:
                continue
            found = outcome(tree, values[1::2])
            assert outcome(tree, values[1::2]) == found
            with by_arrow():
                assert outcome(opened(bytes(damaged)), values[1::2]) == found
            outcomes.add(str(found))
    assert len(outcomes) > 1


@pytest.mark.skipif(not kernel.COMPILED, reason="only compiled nodes are matched in the cache")
def test_a_batch_adds_leaves_where_there_is_room_and_reads_none_that_is_kept() -> None:
    entries = url_entries(20_000)
    data = write(URL_SCHEMA, entries, node_bytes=4096)
    keys = [key for key, _ in entries[::100]]
    leaves = Kept()
    tree = BTreeReader(Bytes(data), head_bytes=len(data) // 10, leaves=leaves)
    first, second = LookupStats(), LookupStats()
    answers = [joined(tree.match(key_batch(keys, ["string"]).keys, ["row"], stats)) for stats in (first, second)]
    assert answers[0].columns[0].to_pylist() == answers[1].columns[0].to_pylist() == list(range(0, 20_000, 100))
    assert len(leaves) >= answers[0].leaves_read == answers[1].leaves_read
    assert first.reads > second.reads == 0
    few = Kept()
    few.limit = 4 * leaves.popitem()[1].cache_bytes
    tree = BTreeReader(Bytes(data), head_bytes=len(data) // 10, leaves=few)
    for _ in range(2):
        found = joined(tree.match(key_batch(keys, ["string"]).keys, ["row"]))
        assert found.columns[0].to_pylist() == list(range(0, 20_000, 100))
    assert 1 < len(few) < 5


@pytest.mark.parametrize("kind", PARTS)
def test_a_tree_of_ours_is_never_walked_node_by_node(kind: str) -> None:
    values = sorted(((value,) for value in PARTS[kind]), key=order_key)
    schema = EntrySchema((Column("k", kind),), (Column("row", "bigint", False),))
    entries: list[Entry] = [(key, (i,)) for i, key in enumerate(key for key in values for _ in range(9))]
    tree = opened(write(schema, entries, node_bytes=20))
    with without_walk(), chunks_of(2, 1 << 26):
        assert matched(tree, values) == [[v for other, v in entries if other == k] for k in values]
        assert matched(tree, values[1::2]) == [[v for other, v in entries if other == k] for k in values[1::2]]


def test_key_by_key_no_more_entries_are_held_than_asked_for() -> None:
    schema = EntrySchema((Column("k", "int"),), (Column("row", "bigint", False),))
    entries: list[Entry] = [((min(i, 10),), (i,)) for i in range(10_000)]
    tree = opened(write(schema, entries, node_bytes=200, node_limit=2000))
    wanted = key_batch([(1,), (10,)], ["int"]).keys
    every, some = LookupStats(), LookupStats()
    assert tree.match_each(wanted, ["row"], every, 10_000).columns[0].to_pylist() == [1, *range(10, 10_000)]
    with pytest.raises(TooMany):
        tree.match_each(wanted, ["row"], some, 1000)
    assert some.nodes < every.nodes / 4


def test_a_leaf_of_very_many_entries_of_one_key_is_given_in_small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = EntrySchema((Column("k", "int"),), (Column("row", "bigint", False),))
    entries: list[Entry] = [((min(i, 10),), (i,)) for i in range(40_000)]
    tree = opened(write(schema, entries, node_bytes=200))
    wanted = key_batch([(1,), (10,)], ["int"]).keys
    with pytest.raises(TooMany):
        tree.match_each(wanted, ["row"], None, 20_000)
    monkeypatch.setattr(batch_module, "CHUNK_BYTES", 30_000)
    pieces = list(tree.match(wanted, ["row"]))
    assert max(len(piece.keys) for piece in pieces) < 2000
    found = joined(pieces)
    assert found.columns[0].to_pylist() == [1, *range(10, 40_000)]
    assert found.leaves_read == found.leaves < 5


def test_few_leaves_of_long_runs_are_held_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of the 32 leaves has a run of 8,000 entries in 200 KB."""
    monkeypatch.setattr(batch_module, "CHUNK_BYTES", 1 << 18)
    monkeypatch.setattr(batch_module, "TOGETHER_BYTES", 1 << 18)
    tree = opened(write(URL_SCHEMA, url_entries(32, copies=8000)))
    wanted = key_batch([key for key, _ in url_entries(32)], ["string"]).keys
    tracemalloc.start()
    try:
        found = [(len(piece.keys), piece.leaves) for piece in tree.match(wanted, ["row"])]
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert sum(count for count, _ in found) == 32 * 8000
    assert found[0][1] >= 24
    assert peak < 8 << 20


def test_both_zeros_and_all_nans_are_one_key_each() -> None:
    schema = EntrySchema((Column("k", "double"),), (Column("row", "int"),))
    tree = opened(write(schema, [((-1.0,), (0,)), ((0.0,), (1,)), ((float("nan"),), (2,))]))
    other_nan = np.array([0xFFF8_0000_0000_0001], np.uint64).view(np.float64)[0]
    keys = pa.array([-0.0, 0.0, other_nan, float("nan"), None])
    wanted = KeyBatch([keys], ["double"])
    assert len(wanted.keys) == 3
    found = joined(tree.match(wanted.keys, ["row"]))
    ((rows, places),) = wanted.spread(found.keys)
    assert list(zip(rows.tolist(), found.columns[0].take(pa.array(places)).to_pylist(), strict=True)) == [
        (0, 1), (1, 1), (2, 2), (3, 2),
    ]  # fmt: skip


def test_only_leaves_that_may_hold_a_key_are_read_each_once_in_long_ranges() -> None:
    entries = url_entries(20_000)
    file = Bytes(write(URL_SCHEMA, entries, node_bytes=1000))
    tree = BTreeReader(file, head_bytes=len(file.data) // 10)
    few = [key for key, _ in entries[5000:5400:7]]
    list(tree.match(key_batch(few[:1], ["string"]).keys, ["row"]))  # keeps the upper levels in memory
    stats = LookupStats()
    with without_walk():
        found = joined(tree.match(key_batch(few, ["string"]).keys, ["row"], stats))
    assert found.columns[0].to_pylist() == list(range(5000, 5400, 7))
    assert stats.nodes == found.leaves_read < found.leaves / 20
    assert stats.reads == 1
    assert stats.bytes < len(file.data) / 10
    stats = LookupStats()
    found = joined(tree.match(key_batch([key for key, _ in entries], ["string"]).keys, [], stats))
    assert (found.leaves_read, len(set(found.keys.tolist()))) == (found.leaves, 20_000)
    assert stats.bytes <= 1.2 * len(file.data)


def test_without_values_a_key_above_the_leaves_costs_no_leaf() -> None:
    tree = opened(write(URL_SCHEMA, url_entries(2000), node_bytes=1000))
    (key, _), *_ = tree.sample(1)
    stats = LookupStats()
    list(tree.match(key_batch([key], ["string"]).keys, [], stats))
    found = joined(tree.match(key_batch([key], ["string"]).keys, [], stats))
    assert (found.keys.tolist(), found.leaves_read) == ([0], 0)


def test_trees_in_javas_order_and_with_nulls_last_give_the_same_answers() -> None:
    values: dict[str, list[Any]] = {"string": ["a", "b", "é"], "double": [-2.5, 0.0, 2.5], "bigint": [-9, 0, 9]}
    for kind, some in values.items():
        schema = EntrySchema((Column("k", kind),), (Column("row", "int"),))
        keys: list[Key] = [(value,) for value in some]
        writer = DioneWriter(schema, interval=2, height=2, codec="null", sync=SYNC)
        writer.write(batch(schema, [(key, (i,)) for i, key in enumerate([*keys, (None,)])]))
        tree = opened(b"".join(writer.finish().chunks))
        asked: list[Key] = [*keys, (None,)]
        assert matched(tree, asked) == tree.get_many(asked)
        assert [len(found) for found in tree.get_many(asked)] == [1, 1, 1, 1]


@pytest.mark.parametrize("name", SOUND)
def test_files_that_dione_wrote_give_the_same_answers(name: str) -> None:
    tree = open_vector(name)
    keys = list({order_key(key): key for key, _ in tree.scan()}.values())[::7]
    assert matched(tree, keys) == tree.get_many(keys)


def test_a_tree_as_deep_as_it_is_long_is_refused() -> None:
    with pytest.raises(DamagedIndexFile, match="a tree of more than 8 levels"):
        list(opened(_chain()).match(key_batch([("a",)], ["string"]).keys, ["row"]))


def test_a_file_of_diones_as_deep_as_it_is_long_is_answered() -> None:
    tree = opened(_chain(is_gnomon_file=False))
    assert len(joined(tree.match(key_batch([("a",)], ["string"]).keys, ["row"])).keys) == tree.check()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("codec", ["deflate", "zstandard"])
def test_a_flip_of_any_byte_is_refused_or_changes_no_answer(shape: str, codec: str) -> None:
    schema, entries, options = SHAPES[shape]
    data = write(schema, entries, codec=codec, **options)
    keys = list(dict.fromkeys(key for key, _ in entries))
    expected = [[value for other, value in entries if other == key] for key in keys]
    assert matched(opened(data), keys) == expected
    for at in positions(range(len(data))):
        damaged = bytearray(data)
        damaged[at] ^= 1 << at % 8
        with suppress(DamagedIndexFile):
            tree = opened(bytes(damaged))
            assert (matched(tree, keys), tree.schema) == (expected, schema)


@pytest.mark.parametrize("shape", ["two levels, duplicates", "three levels", "a run that spills"])
def test_a_cut_after_the_file_was_opened_is_refused(shape: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gnomon.btree.blocks.FIRST_READ_BYTES", 64)
    schema, entries, options = SHAPES[shape]
    data = write(schema, entries, **options)
    keys = list(dict.fromkeys(key for key, _ in entries))
    tree = BTreeReader(Bytes(data), head_bytes=1)
    for length in positions(range(tree.header_bytes + tree.upper_bytes, len(data), 3)):
        file = Bytes(data)
        tree = BTreeReader(file, head_bytes=1)
        file.data = data[:length]
        with pytest.raises(DamagedIndexFile):
            matched(tree, keys)


def test_a_long_leaf_whose_pieces_are_not_in_order_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gnomon.btree.traversal.LONG_BLOCK", 1)
    data, message = BROKEN["an unsorted node"]
    for size in (1, 1 << 26):
        with chunks_of(1000, size, long=1), pytest.raises(DamagedIndexFile, match=message):
            matched(opened(data), [("a",), ("b",)])


WHOLE_SCAN = {
    "a block no link reaches",
    "other bytes between blocks",
    "another number of entries",
}  # only it finds these


@pytest.mark.parametrize("long", [1, 1 << 14])
@pytest.mark.parametrize("name", sorted(set(BROKEN) - WHOLE_SCAN))
def test_a_batch_refuses(name: str, long: int) -> None:
    data, message = BROKEN[name]
    with chunks_of(1, 1 << 26, long), pytest.raises(DamagedIndexFile, match=message) as error:
        matched(opened(data), [(text,) for text in "Aabcd"])
    assert 0 <= error.value.offset <= len(data)


def test_a_block_with_two_parents_is_refused() -> None:
    with pytest.raises(DamagedIndexFile, match="two links lead to one block"):
        matched(opened(_lattice(levels=3)), [("a",)])
