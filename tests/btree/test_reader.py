"""Look-ups equal a plain list of entries, for every kind of key, shape of tree and cut of batches."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnomon.btree import BTreeError, BTreeReader, Column, EntrySchema
from gnomon.btree.blocks import FIRST_READ_BYTES, Block, LookupStats
from gnomon.btree.keys import Key, order_key, stored_values
from tests.btree.files import URL_SCHEMA, Bytes, Entry, opened, url_entries, write
from tests.profiles import examples

PARTS: dict[str, list[Any]] = {
    "string": [None, "", "a", "aa", "b", "é", "\uffff", "😀"],
    "boolean": [None, False, True],
    "tinyint": [None, -1, 0, 1],
    "bigint": [None, -(2**63), -1, 0, 1, 2, 3, 2**63 - 1],
    "double": [None, float("-inf"), -1.5, 0.0, 1.0, float("inf"), float("nan")],
    "date": [None, -1, 0, 20454],
    "timestamp": [None, -1, 0, 10**15],
    "decimal(9,2)": [None, -129, -128, -1, 0, 127, 128, 255, 256],
    "decimal(38,10)": [None, 1 - 10**38, 0, 2**64, 10**38 - 1],
    "binary": [None, b"", b"\x00", b"\x7f", b"\x80", b"\xff\x00"],
}


@st.composite
def files(draw: st.DrawFn) -> tuple[EntrySchema, list[Entry], bytes]:
    """A schema of 1-3 key columns, sorted entries with duplicates, and a file of them of any shape."""
    types = draw(st.lists(st.sampled_from(sorted(PARTS)), min_size=1, max_size=3))
    nullable = [draw(st.booleans()) for _ in types]
    parts = [st.sampled_from(PARTS[kind][not null :]) for kind, null in zip(types, nullable, strict=True)]
    keys = sorted(draw(st.lists(st.tuples(*parts), max_size=80)), key=order_key)
    schema = EntrySchema(
        tuple(Column(f"k{i}", kind, null) for i, (kind, null) in enumerate(zip(types, nullable, strict=True))),
        (Column("row", "bigint", False), Column("text", "string")),
    )
    entries: list[Entry] = [(key, (i, None if i % 3 else f"v{i}")) for i, key in enumerate(keys)]
    data = write(
        schema,
        entries,
        draw(st.lists(st.integers(0, len(entries)), max_size=4)),
        codec=draw(st.sampled_from(["null", "deflate"])),
        node_bytes=draw(st.integers(1, 150)),
        node_limit=draw(st.sampled_from([30, 90, 10**9])),
    )
    return schema, entries, data


@settings(max_examples=examples(120))
@given(files(), st.data())
def test_every_look_up_equals_a_plain_list(file: tuple[EntrySchema, list[Entry], bytes], data: st.DataObject) -> None:
    schema, entries, written = file
    tree = opened(written)
    assert repr(list(tree.scan())) == repr(entries)
    assert tree.check() == tree.entries == len(entries)
    probes = st.tuples(*[st.sampled_from(PARTS[kind]) for kind in schema.key_types])
    asked: list[Key] = data.draw(st.lists(probes, max_size=12)) + [key for key, _ in entries[::5]]
    by_key: dict[Any, list[Key]] = {}
    for key, value in entries:
        by_key.setdefault(order_key(key), []).append(value)
    expected = [by_key.get(order_key(key), []) for key in asked]
    assert tree.get_many(asked) == expected
    assert [tree.get(key) for key in asked] == expected
    assert tree.contains_many(asked) == [bool(values) for values in expected]
    assert [tree.contains_many([key])[0] for key in asked] == tree.contains_many(asked)


@settings(max_examples=examples(120))
@given(files(), st.data())
def test_a_range_holds_both_its_ends_and_what_is_between(
    file: tuple[EntrySchema, list[Entry], bytes], data: st.DataObject
) -> None:
    schema, entries, written = file
    key = st.tuples(*[st.sampled_from(PARTS[kind]) for kind in schema.key_types])
    first, last = data.draw(st.none() | key), data.draw(st.none() | key)
    expected = [
        entry
        for entry in entries
        if (first is None or order_key(entry[0]) >= order_key(first))
        and (last is None or order_key(entry[0]) < order_key(last))
    ]
    for reverse in (False, True):
        assert repr(entries_in(opened(written), first, last, reverse)) == repr(expected)
        remote, wanted = BTreeReader(RemoteBytes(written)), data.draw(st.integers(0, 100))
        assert repr(entries_in(remote, first, last, reverse, expected=wanted)) == repr(expected)


def test_a_range_reads_the_nodes_it_needs_and_no_others() -> None:
    entries = url_entries(60_000)
    file = Bytes(write(URL_SCHEMA, entries, codec="null"))
    tree = BTreeReader(file)
    file.reads.clear()
    stats = LookupStats()
    assert entries_in(tree, entries[30_000][0], entries[31_000][0], False, stats) == entries[30_000:31_000]
    assert file.reads == sorted(file.reads)
    assert stats.reads == len(file.reads) < 1000 * 60 // 8192 + 4
    file.reads.clear()
    assert entries_in(tree, entries[30_000][0], entries[31_000][0], True) == entries[30_000:31_000]
    assert len(file.reads) < 1000 * 60 // 8192 + 4
    assert entries_in(tree, entries[9][0], entries[8][0], False) == []
    with pytest.raises(BTreeError, match="1 columns"):
        list(tree.runs(("a", "b"), None, False, LookupStats()))


@pytest.mark.parametrize("reverse", [False, True])
def test_a_range_of_a_remote_file_reads_its_leaves_together(reverse: bool) -> None:
    """As many as the entries that the caller expects, then twice as many each time, and none outside of the range."""
    entries = url_entries(60_000)
    file = RemoteBytes(write(URL_SCHEMA, entries, codec="null"))
    tree = BTreeReader(file)
    for count, most in ((100, 1), (3000, 1), (30_000, 10)):
        first, last = entries[20_000][0], entries[20_000 + count][0]
        file.reads.clear()
        found = entries_in(tree, first, last, reverse, expected=min(count, 3000))
        assert found == entries[20_000 : 20_000 + count]
        assert len(file.reads) <= most
        one_by_one = Bytes(file.data)
        assert entries_in(BTreeReader(one_by_one), first, last, reverse) == found
        assert sum(length for _, length in file.reads) < sum(length for _, length in one_by_one.reads) + 2 * 8192


class RemoteBytes(Bytes):
    is_remote = True


def entries_in(
    tree: BTreeReader,
    begin: Key | None,
    end: Key | None,
    reverse: bool,
    stats: LookupStats | None = None,
    expected: int | None = None,
) -> list[Entry]:
    """The entries of a range in key order, by its runs."""
    runs = list(tree.runs(begin, end, reverse, stats or LookupStats(), expected))
    runs = runs[::-1] if reverse else runs
    columns = tree.schema.columns
    if not runs:
        return []
    arrays = tree.decoded(runs, [column.name for column in columns])
    values = [stored_values(array, column.type) for array, column in zip(arrays, columns, strict=True)]
    count = len(tree.schema.keys)
    return [(row[:count], row[count:]) for row in zip(*values, strict=True)]


def test_an_empty_file_answers_nothing() -> None:
    tree = opened(write(URL_SCHEMA, []))
    assert (tree.check(), list(tree.scan()), tree.get(("a",)), tree.sample(3)) == (0, [], [], [])
    assert tree.get_many([]) == []


def test_a_key_of_other_columns_is_refused() -> None:
    with pytest.raises(BTreeError, match="1 columns"):
        opened(write(URL_SCHEMA, url_entries(3))).get(("a", "b"))


def test_a_sample_is_spread_over_the_root() -> None:
    entries = url_entries(1000)
    tree = opened(write(URL_SCHEMA, entries, node_bytes=500))
    sample = tree.sample(4)
    assert 1 <= len(sample) <= 4
    assert all(entry in entries for entry in sample)
    assert tree.sample(0) == []


def test_a_small_file_opens_and_answers_with_one_read() -> None:
    file = Bytes(write(URL_SCHEMA, url_entries(500)))
    stats = LookupStats()
    tree = BTreeReader(file, stats)
    assert file.reads == [(0, min(FIRST_READ_BYTES, file.size))]
    assert (stats.reads, stats.bytes) == (1, min(FIRST_READ_BYTES, file.size))
    tree.get(("https://example.com/000250",), stats)
    assert stats.reads == len(file.reads) <= 2


def test_a_look_up_in_a_large_file_reads_one_leaf() -> None:
    entries = url_entries(60_000)
    file = Bytes(write(URL_SCHEMA, entries, codec="null"))
    tree = BTreeReader(file)
    opening = len(file.reads)
    assert opening <= 2
    for number in (7, 30_000, 59_990):
        file.reads.clear()
        stats = LookupStats()
        assert tree.get((f"https://example.com/{number:06d}",), stats) == [entries[number][1]]
        assert len(file.reads) == stats.reads <= 1
        assert stats.bytes < 20_000
        assert 2 <= stats.nodes <= 4


@pytest.mark.parametrize("ask", [BTreeReader.get_many, BTreeReader.contains_many])
def test_many_keys_walk_the_file_forward_and_read_and_visit_each_node_once(ask: Callable[..., list[Any]]) -> None:
    file = Bytes(write(URL_SCHEMA, url_entries(60_000), codec="null"))
    tree = BTreeReader(file)
    file.reads.clear()
    stats = LookupStats()
    keys: list[Key] = [(f"https://example.com/{number:06d}",) for number in range(0, 60_000, 7)]
    assert all(ask(tree, keys[::-1], stats))
    assert file.reads == sorted(set(file.reads))
    assert stats.reads == len(file.reads)
    assert stats.nodes <= tree.census().nodes


def test_a_key_that_an_upper_node_holds_is_contained_without_a_read() -> None:
    file = Bytes(write(URL_SCHEMA, url_entries(60_000), codec="null"))
    tree = BTreeReader(file)
    ((root, _),) = tree.sample(1)
    file.reads.clear()
    assert tree.contains_many([root]) == [True]
    assert file.reads == []


@pytest.mark.slow
@pytest.mark.parametrize("limit", [5_000, 50_000])
def test_memory_kept_is_said_and_bounded(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gnomon.btree.blocks.DECODED_BYTES", limit)
    tree = opened(write(URL_SCHEMA, url_entries(20_000), node_bytes=1000))
    before = tree.cache_bytes
    tree.get_many([key for key, _ in url_entries(20_000)])
    assert before + limit // 2 < tree.cache_bytes <= before + limit


def test_upper_levels_too_large_for_memory_are_read_node_by_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gnomon.btree.blocks.UPPER_READ_BYTES", 100)
    monkeypatch.setattr("gnomon.btree.blocks.FIRST_READ_BYTES", 64)
    entries = url_entries(3000)
    tree = opened(write(URL_SCHEMA, entries, node_bytes=400))
    assert [tree.get(key) for key, _ in entries[::97]] == [[value] for _, value in entries[::97]]
    assert tree.check() == 3000


class Kept(dict[int, Block]):
    """Leaves by offset. Batches fill it up to `limit` bytes."""

    limit = 1 << 30

    def put(self, offset: int, leaf: Block) -> None:
        self[offset] = leaf

    def get_many(self, offsets: Sequence[int]) -> list[Block | None]:
        return [self.get(offset) for offset in offsets]

    def room(self) -> int:
        return self.limit - sum(leaf.cache_bytes for leaf in self.values())

    def add(self, offset: int, leaf: Block) -> None:
        assert leaf.cache_bytes <= self.room()
        self[offset] = leaf


def test_leaves_that_are_kept_are_not_read_again_and_visits_say_so() -> None:
    entries = url_entries(20_000)
    file, kept = Bytes(write(URL_SCHEMA, entries, node_bytes=4096)), Kept()
    tree = BTreeReader(file, leaves=kept)
    assert not tree.is_whole
    first, second = LookupStats(visits=[]), LookupStats(visits=[])
    key, value = entries[12_345]
    assert tree.get(key, first) == tree.get(key, second) == [value]
    assert (first.reads, second.reads, len(kept)) == (1, 0, 1)
    for stats in (first, second):
        visits = stats.visits or []
        assert [visit.level for visit in visits] == list(range(stats.nodes))
        assert sum(visit.reads for visit in visits) == stats.reads
        assert sum(visit.bytes for visit in visits) == stats.bytes
        assert visits[-1].offset in kept


def test_a_file_that_is_read_whole_is_kept_whole_until_its_leaves_are_forgotten() -> None:
    entries = url_entries(20_000)
    data = write(URL_SCHEMA, entries, node_bytes=4096)
    file = Bytes(data)
    tree = BTreeReader(file, head_bytes=len(data))
    assert tree.is_whole
    assert tree.cache_bytes > len(data) // 2
    some = entries[::997]
    assert tree.get_many([key for key, _ in some]) == [[value] for _, value in some]
    assert file.reads == [(0, len(data))]
    tree.forget_leaves()
    assert not tree.is_whole
    assert tree.get(some[7][0]) == [some[7][1]]
    assert len(file.reads) == 2
