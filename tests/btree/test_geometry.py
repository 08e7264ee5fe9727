"""The size of full nodes and the height of trees: arithmetic, compared with files."""

import numpy as np
import pyarrow as pa
import pytest

from gnomon.btree import BTreeReader, BTreeWriter, Column, EntrySchema
from gnomon.btree.blocks import FIRST_READ_BYTES, LONGEST_GUESS_BYTES, UPPER_READ_BYTES, LookupStats
from gnomon.btree.geometry import (
    GROWING_BYTES,
    LEAST_RECORDS,
    LONG_INNER_BYTES,
    MOST_LEAST_RECORDS,
    NODE_BYTES,
    head_guess,
    is_full,
    leaf_target,
)
from tests.btree.files import URL_SCHEMA, Bytes, opened, url_entries, write
from tests.btree.tree_model import tree_of

NARROW = EntrySchema((Column("k", "bigint", False),), (Column("v", "bigint", False),))


def test_an_inner_node_is_full_by_bytes_but_not_below_the_least_records() -> None:
    assert is_full(MOST_LEAST_RECORDS, NODE_BYTES)
    assert not is_full(MOST_LEAST_RECORDS, NODE_BYTES - 1)
    assert not is_full(MOST_LEAST_RECORDS - 1, 100 * NODE_BYTES)
    assert is_full(LEAST_RECORDS, 10, node_bytes=10)
    assert not is_full(LEAST_RECORDS - 1, 10, node_bytes=10)


def test_of_very_long_records_two_fill_an_inner_node() -> None:
    assert is_full(2, LONG_INNER_BYTES)
    assert not is_full(1, 3 * LONG_INNER_BYTES)


def test_leaves_grow_with_the_levels_above_them() -> None:
    assert leaf_target(0) == leaf_target(GROWING_BYTES) == NODE_BYTES
    assert leaf_target(2 * GROWING_BYTES) == 2 * NODE_BYTES
    assert leaf_target(3 * GROWING_BYTES // 2, 100) == 150


@pytest.mark.parametrize("record_bytes", [12, 30, 100])
@pytest.mark.parametrize("entries", [1_000_000, 10_000_000, 100_000_000])
def test_a_look_up_in_100_m_entries_visits_4_nodes_in_2_reads(entries: int, record_bytes: int) -> None:
    tree = tree_of(entries, record_bytes)
    assert tree.height <= 4
    assert tree.upper_bytes <= UPPER_READ_BYTES  # one read, even if they do not compress
    assert tree.leaf_bytes <= LONGEST_GUESS_BYTES  # and one read for a leaf
    assert tree.nodes <= 16 * entries**0.5 * 1.1


def test_long_records_make_no_higher_tree() -> None:
    assert tree_of(100_000_000, 1000).height <= 4
    assert tree_of(10_000_000, 5000).height <= 4


@pytest.mark.parametrize("node_bytes", [1, 300, 2000])
@pytest.mark.parametrize("rows", [0, 1, 7, 8, 9, 10, 60, 90, 200, 1500, 9000])
def test_the_arithmetic_is_the_writers(rows: int, node_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gnomon.btree.geometry.GROWING_BYTES", 3000)
    keys = np.arange(rows) + 2**40  # six bytes each
    writer = BTreeWriter(NARROW, codec="null", node_bytes=node_bytes)
    writer.write(pa.table({"k": keys, "v": keys}))
    file = writer.finish()
    tree = tree_of(rows, 6 + 6 + 1, node_bytes)
    assert (file.height, file.nodes) == (tree.height, max(tree.nodes, 0))
    assert opened(b"".join(file.chunks)).census().height == tree.height


@pytest.mark.parametrize(("rows", "height"), [(0, 1), (1, 1), (100, 1), (1000, 2), (40_000, 3)])
def test_height_follows_from_the_bytes(rows: int, height: int) -> None:
    assert opened(write(URL_SCHEMA, url_entries(rows))).census().height == height


def test_rows_longer_than_a_node_still_share_inner_nodes() -> None:
    entries = [((f"{i:04d}" + "x" * 2 * NODE_BYTES,), ("f", i)) for i in range(200)]
    census = opened(write(URL_SCHEMA, entries)).census()
    assert (census.entries, census.height) == (200, 3)


@pytest.mark.parametrize("codec", ["deflate", "null"])
def test_a_cold_look_up_in_2_m_narrow_entries_makes_2_reads(codec: str) -> None:
    rows = 2_000_000
    writer = BTreeWriter(NARROW, codec=codec)
    for begin in range(0, rows, 250_000):
        keys = np.arange(begin, begin + 250_000) * 3
        writer.write(pa.table({"k": keys, "v": keys * 1_000_003 % 999_983}))
    file = writer.finish()
    data = Bytes(b"".join(file.chunks))
    for head_bytes in (file.head_bytes, None):
        for key in (300, 3_000_000, 5_999_997):
            stats, data.reads = LookupStats(), []
            tree = BTreeReader(data, stats, head_bytes)
            assert tree.get((key,), stats) == [(key * 1_000_003 % 999_983,)]
            assert (stats.nodes <= 4, stats.reads, len(data.reads)) == (True, 2, 2)
            opening = stats.bytes
            tree.get((key - 99,), stats)  # the last key is above the leaves
            assert stats.reads == 3, "with the upper levels in memory a look-up reads one leaf"
            assert stats.bytes - opening < 3 * NODE_BYTES
    assert file.height == tree_of(rows, 8).height


def test_the_first_read_is_guessed_from_the_size_of_the_file() -> None:
    for entries in (10_000, 1_000_000, 100_000_000):
        tree = tree_of(entries, 100)
        file_bytes, upper_bytes = entries * 24, int(0.33 * tree.upper_bytes)  # web-crawl entries, deflated
        guess = max(FIRST_READ_BYTES, head_guess(file_bytes))
        assert upper_bytes <= guess <= 2 * upper_bytes + FIRST_READ_BYTES
