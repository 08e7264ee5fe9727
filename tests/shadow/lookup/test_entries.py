"""shadow/lookup/entries.py: the entries of a key."""

import datetime as dt
import uuid
from pathlib import Path

import pyarrow as pa
import pytest

from gnomon.jobs.build import write_btree
from gnomon.shadow import UnknownColumn, open_index
from tests.shadow.make_index import index_source, write_source

DAY = dt.date(2026, 1, 1)


def test_values_are_rows_in_the_order_of_the_columns(tmp_path: Path) -> None:
    write_btree(pa.table({"v": ["x", "y", "z"], "k": [1, 2, 2], "d": [DAY, None, DAY]}), tmp_path, ["k"], buckets=2)
    index = open_index(str(tmp_path))
    assert index.get(1) == index.fetch("1") == [{"v": "x", "k": 1, "d": DAY}]
    assert index.fetch_many([2, 9, 1], ["d", "v"]) == [
        [{"d": None, "v": "y"}, {"d": DAY, "v": "z"}],
        [],
        [{"d": DAY, "v": "x"}],
    ]
    assert index.get(2, []) == [{}, {}]
    [answer] = index.answer_many([2], limit=1)
    assert (len(answer.rows), answer.count) == (1, 2)
    with pytest.raises(UnknownColumn, match="no column w; they have v, k, d"):
        index.get(1, ["w"])


def test_entries_of_an_index_show_keys_as_its_source_does(tmp_path: Path) -> None:
    key = uuid.UUID(int=7)
    table = pa.table({"id": pa.array([key.bytes], pa.uuid()), "data_size": ["of the source"]})
    write_source(tmp_path / "source", {"dt=1/a.parquet": table})
    index_source(tmp_path / "source", tmp_path / "index", ["id"], include=["data_size"])
    index = open_index(str(tmp_path / "index"))
    [entry] = index.get(key)
    assert entry == {
        "id": str(key),
        "data_size": "of the source",
        "dt": "1",
        "data_filename": "dt=1/a.parquet",
        "data_offset": 0,
        "data_sub_offset": 0,
    }
    assert len(index.get(key, where={"dt": 1})) == len(index.get(key))
