"""shadow/at_hand.py: what an open index knows of a key without a wait."""

from pathlib import Path

import pyarrow as pa
import pytest

from gnomon.shadow import FetchStats, OpenIndex
from gnomon.shadow import index_for_jobs as at_hand
from gnomon.shadow.lookup import parse_key
from gnomon.shadow.storage import LocalStorage
from tests.opened import open_index
from tests.shadow.make_index import index_source, write_source


@pytest.fixture
def index(tmp_path: Path) -> OpenIndex:
    """An index of two partitions: each key may lie in both."""
    for day, keys in (("dt=1", ["a", "b"]), ("dt=2", ["c"])):
        write_source(tmp_path / "lake", {f"{day}/p.parquet": pa.table({"k": keys})})
    index_source(tmp_path / "lake", tmp_path / "shadow", ["k"], buckets=1)
    return open_index(str(tmp_path / "shadow"))


def denies(index: OpenIndex, key: str) -> bool:
    return index.at_hand.denies(parse_key(key, index.spec), FetchStats())


def test_a_key_is_denied_once_all_its_filters_are_in_memory_and_nothing_is_read_then(
    index: OpenIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not index.at_hand.is_ready
    assert not denies(index, "absent")
    stats = FetchStats()
    assert not index.contains("absent", stats=stats)
    assert index.at_hand.is_ready
    monkeypatch.setattr(LocalStorage, "open", None)
    found = FetchStats()
    assert index.at_hand.denies(parse_key("absent", index.spec), found)
    assert (found.snapshot, found.index.filter_checks) == (stats.snapshot, stats.index.filter_checks)
    assert (found.index.reads, found.index.nodes) == (0, 0)


def test_a_key_that_has_rows_is_never_denied(index: OpenIndex) -> None:
    for _ in range(3):
        assert not any(denies(index, key) for key in "abc")
        assert all(key in index for key in "abc")
        assert "absent" not in index


def test_no_key_is_denied_without_filters(tmp_path: Path, index: OpenIndex) -> None:
    without = open_index(index.location, filters=False)
    assert "absent" not in without
    assert not denies(without, "absent")


def test_a_key_of_many_filters_is_left_to_a_look_up(index: OpenIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "absent" not in index
    monkeypatch.setattr(at_hand, "MOST_FILTERS", 1)
    assert not denies(index, "absent")
