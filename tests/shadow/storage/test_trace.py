"""A trace has each step of an answer, and the costs of its steps are the costs of the answer, in every format."""

import json
from pathlib import Path

import fastavro
import pyarrow as pa
import pyarrow.csv
import pytest

from gnomon.jobs.build import write_btree
from gnomon.shadow import FetchStats, StalePointer, Trace, open_index
from gnomon.shadow.storage import ReadStats, TracedReader, storage_at
from tests.shadow.far_store import FarFile, FarStorage
from tests.shadow.make_index import index_source, write_source
from tests.shadow.memory_store import MemoryOpenFile

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
        write_btree(TABLE, index, keys, buckets=2)
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
        assert sum(step.get("count", 1) for step in steps if step["step"] == "node") == stats.index.nodes
        assert all(value is not None for step in steps for value in step.values())
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
    monkeypatch.setattr("gnomon.shadow.lookup.point.MOST_OBJECTS", 100)
    write_btree(pa.table({"k": [1] * 50_000, "v": range(50_000)}), tmp_path / "index", ["k"], buckets=2)
    stats = FetchStats(trace=Trace())
    [answer] = open_index(str(tmp_path / "index")).answer_many([1], limit=2, stats=stats)
    assert (answer.count, answer.rows) == (50_000, [{"k": 1, "v": 0}, {"k": 1, "v": 1}])
    assert stats.trace is not None
    steps = stats.trace.to_json()
    assert sum(step["bytes"] for step in steps) == stats.index.bytes
    assert any(step["step"] == "node" and "level" not in step for step in steps)


@pytest.mark.parametrize("hits", [0, 1, 30])
def test_steps_that_are_alike_are_told_as_one_with_their_sums(tmp_path: Path, hits: int) -> None:
    """One key in many partitions: the filter of each is read."""
    days = 60
    tables = {f"dt={day:03}/a.parquet": pa.table({"k": [day, -1 if day < hits else -2]}) for day in range(days)}
    write_source(tmp_path / "lake", tables)
    index_source(tmp_path / "lake", tmp_path / "index", ["k"], buckets=1)
    index = open_index(str(tmp_path / "index"))
    for _ in range(2):  # cold, warm
        stats = FetchStats(trace=Trace())
        assert len(index.fetch(-1, stats=stats)) == hits
        assert stats.trace is not None
        steps = stats.to_json()["steps"]
        assert len(steps) < 30
        assert sum(step.get("count", 1) for step in steps) == len(stats.trace.steps)
        [absent] = [step for step in steps if step.get("answer") == "absent"]
        assert (absent["count"], "file" in absent) == (days - hits, False)
        assert absent["end_us"] >= absent["begin_us"]
        for name in ("reads", "bytes", "microseconds"):
            assert sum(step[name] for step in steps) == sum(getattr(step, name) for step in stats.trace.steps)
        assert [step["begin_us"] for step in steps] == sorted(step["begin_us"] for step in steps)
        json.dumps(steps)
    if hits == 1:
        assert {step["file"] for step in steps if step["step"] == "key_check"} == {"dt=000/a.parquet"}


def test_a_traced_answer_names_the_file_of_each_row(tmp_path: Path) -> None:
    tables = {f"dt={day}/a.parquet": pa.table({"k": [1, day, 1]}) for day in range(5, 8)}
    write_source(tmp_path / "lake", tables)
    index_source(tmp_path / "lake", tmp_path / "index", ["k"])
    index = open_index(str(tmp_path / "index"))
    [answer] = index.answer_many([1], stats=FetchStats(trace=Trace()), limit=5)
    assert list(answer.files) == [f"dt={row['dt']}/a.parquet" for row in answer.rows]
    assert len(answer.files) == 5
    assert list(index.answer_many([1])[0].files) == []


def test_a_traced_reader_is_otherwise_the_same_and_reads_nothing_for_no_ranges() -> None:
    stats, trace = ReadStats(), Trace()
    reader = FarFile(FarStorage(), "a", MemoryOpenFile("/far/a", b"0123456789", 0, stats), stats)
    traced = TracedReader(trace, reader, "a", stats, 1)
    assert (traced.name, traced.size, traced.is_remote) == ("/far/a", 10, True)
    assert traced.read_ranges([]) == []
    assert trace.steps == []
    assert traced.read_ranges([(8, 2), (0, 1)]) == [b"89", b"0"]
    assert [(step.step, step.reads, step.bytes) for step in trace.steps] == [("pages", 2, 3)]
