"""A trace says each step of an answer, and the costs of its steps are the costs of the answer, whatever the format."""

import json
from pathlib import Path

import fastavro
import pyarrow as pa
import pyarrow.csv
import pytest

from shadow import FetchStats, StalePointer, Trace, open_index
from shadow.storage import storage_at
from tests.shadow.make_index import index_source, write_source
from tests.shadow.values_folder import write_folder

ROWS = 3000
TABLE = pa.table({"k": pa.array(range(ROWS), pa.int64()), "text": [f"row {n} " * 20 for n in range(ROWS)]})


def made(folder: Path, kind: str) -> tuple[str, object]:
    """An index, and a key that it has."""
    lake, index, keys, key = folder / "lake", folder / "index", ["k"], 1234
    lake.mkdir()
    if kind == "avro":
        schema = {
            "type": "record",
            "name": "row",
            "fields": [{"name": "k", "type": "long"}, {"name": "text", "type": "string"}],
        }
        with (lake / "a.avro").open("wb") as out:
            fastavro.writer(out, schema, TABLE.to_pylist(), sync_interval=4000)
    elif kind == "csv":
        pyarrow.csv.write_csv(TABLE, lake / "a.csv")
        key = "1234"
    elif kind == "values":
        write_folder(index, TABLE, keys)
        return str(index), key
    elif kind == "partitioned":
        write_source(lake, {f"dt={day}/a.parquet": TABLE for day in range(3)})
    else:
        write_source(lake, {"a.parquet": TABLE}, data_page_size=4000, use_dictionary=False)
    if kind == "composite":
        keys, key = ["k", "text"], {"k": 1234, "text": "row 1234 " * 20}
    format = kind if kind in ("avro", "csv") else "parquet"
    index_source(lake, index, keys, buckets=2, format=format, page_maps=kind == "page maps")
    return str(index), key


@pytest.mark.parametrize("kind", ["parquet", "page maps", "composite", "partitioned", "avro", "csv", "values"])
def test_the_steps_cost_what_the_answer_costs(tmp_path: Path, kind: str) -> None:
    place, key = made(tmp_path, kind)
    index = open_index(place)
    for warm in (False, True):
        stats = FetchStats(trace=Trace())
        rows = index.fetch(key, stats=stats)
        assert rows == open_index(place).fetch(key)
        assert rows
        assert stats.trace is not None
        steps = stats.trace.to_json()
        json.dumps(steps)
        for count in ("reads", "bytes"):
            costs = [getattr(one, count) for one in (stats.index, stats.source, stats.source.page_maps)]
            assert sum(step[count] for step in steps) == sum(costs)
        assert sum(step["step"] == "node" for step in steps) == stats.index.nodes
        kinds = {step["step"] for step in steps}
        assert {"key", "index_file", "node"} <= kinds
        assert ({"source_file", "pages", "decode", "key_check"} <= kinds) == (kind != "values")
        assert ("page_map" in kinds) == (kind not in ("values", "csv", "avro"))
        for step in steps:
            assert step["cached"] <= (step["reads"] == 0)
            assert step["microseconds"] >= 0
            if step["step"] == "index_file":
                assert step["cached"] == warm
        files = {step["file"] for step in steps if step["step"] == "pages"}
        lake = storage_at(str(tmp_path / "lake"))
        assert files <= {info.path for info in lake.list()}


def test_a_step_that_fails_is_told(tmp_path: Path) -> None:
    place, key = made(tmp_path, "parquet")
    (tmp_path / "lake/a.parquet").write_bytes(b"another file")
    stats = FetchStats(trace=Trace())
    with pytest.raises(StalePointer):
        open_index(place).fetch(key, stats=stats)
    assert stats.trace is not None
    assert stats.trace.steps[-1].step == "source_file"


def test_the_leaves_of_a_key_of_very_many_entries_are_one_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shadow.hits.MOST_OBJECTS", 100)
    write_folder(tmp_path / "index", pa.table({"k": [1] * 50_000, "v": range(50_000)}), ["k"])
    stats = FetchStats(trace=Trace())
    [answer] = open_index(str(tmp_path / "index")).answer_many([1], limit=2, stats=stats)
    assert (answer.count, answer.rows) == (50_000, [{"k": 1, "v": 0}, {"k": 1, "v": 1}])
    assert stats.trace is not None
    steps = stats.trace.to_json()
    assert sum(step["bytes"] for step in steps) == stats.index.bytes
    assert any(step["step"] == "node" and step["level"] is None for step in steps)
