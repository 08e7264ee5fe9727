"""When a node is full, and so how high a tree is."""

import pytest

from btree.shape import LEAST_RECORDS, NODE_BYTES, is_full
from tests.btree.files import URL_SCHEMA, opened, url_entries, write


def test_a_node_is_full_by_bytes_but_not_below_the_least_records() -> None:
    assert is_full(LEAST_RECORDS, NODE_BYTES)
    assert not is_full(LEAST_RECORDS, NODE_BYTES - 1)
    assert not is_full(LEAST_RECORDS - 1, 100 * NODE_BYTES)
    assert is_full(LEAST_RECORDS, 10, node_bytes=10)


@pytest.mark.parametrize(("rows", "height"), [(0, 1), (1, 1), (100, 1), (1000, 2), (40_000, 3)])
def test_height_follows_from_the_bytes(rows: int, height: int) -> None:
    assert opened(write(URL_SCHEMA, url_entries(rows))).census().height == height


@pytest.mark.parametrize("rows", [7, 8, 9, 10, 60, 90, 200, 1500])
def test_the_smallest_nodes_make_no_list_of_levels(rows: int) -> None:
    census = opened(write(URL_SCHEMA, url_entries(rows), node_bytes=1)).census()
    assert census.entries == rows
    assert census.height <= 5


def test_rows_longer_than_a_node_still_share_inner_nodes() -> None:
    entries = [((f"{i:04d}" + "x" * 2 * NODE_BYTES,), ("f", i)) for i in range(200)]
    census = opened(write(URL_SCHEMA, entries)).census()
    assert (census.entries, census.height) == (200, 4)
