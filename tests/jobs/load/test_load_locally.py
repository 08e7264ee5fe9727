"""jobs/load/load_locally.py: the rows of many keys, in this process."""

import datetime as dt
import os
import sys
from itertools import permutations
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gnomon.base.errors import GnomonError
from gnomon.jobs.build import build
from gnomon.jobs.load import ERROR, LoadCounters, LoadRequest, load, load_locally
from gnomon.shadow import UsageError
from gnomon.shadow.errors import StalePointer, UnsupportedFormat
from gnomon.shadow.lookup import batch as batch_module
from tests.opened import open_index
from tests.profiles import cases
from tests.shadow.make_index import index_source, write_source

MODULE = sys.modules[load_locally.__module__]


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """A source with duplicate keys within a file, across files and partitions, null keys, and its index."""
    rows = [(i % 70 if i % 13 else None, i) for i in range(300)]
    for part in range(3):
        some = rows[part::3]
        table = pa.table({"k": pa.array([k for k, _ in some], pa.int32()), "n": [n for _, n in some]})
        write_source(tmp_path / "source", {f"dt={part}/a.parquet": table})
    index_source(tmp_path / "source", tmp_path / "index", ["k"])
    return tmp_path


def rows_of(lake: Path, keys: pa.Table, **options: Any) -> list[dict[str, Any]]:
    loaded: list[dict[str, Any]] = load(None, lake / "index", keys, **options).read_all().to_pylist()
    return sorted(loaded, key=repr)


def expected(keys: list[int | None], left: bool = False, null_safe: bool = False) -> list[dict[str, Any]]:
    source = [(i % 70 if i % 13 else None, i, str(i % 3)) for i in range(300)]
    found = []
    for tag, key in enumerate(keys):
        mine = [(n, dt) for k, n, dt in source if k == key and (k is not None or null_safe)]
        found += [{"k": key, "tag": tag, "n": n, "dt": dt} for n, dt in mine or ([(None, None)] if left else [])]
    return sorted(found, key=repr)


KEYS = [5, 5, 69, 70, -1, None, 0, 2**31 - 1]


@pytest.mark.parametrize("how", ["inner", "left"])
@pytest.mark.parametrize("null_safe", [False, True])
@pytest.mark.parametrize("portion", [1, 3, 1000])
def test_a_load_is_a_join_with_duplicates_and_nulls(
    lake: Path, monkeypatch: pytest.MonkeyPatch, how: str, null_safe: bool, portion: int
) -> None:
    monkeypatch.setattr(MODULE, "PORTION_ROWS", portion)
    monkeypatch.setattr(MODULE, "RUN_ROWS", 2)
    keys = pa.table({"k": pa.array(KEYS, pa.int32()), "tag": range(len(KEYS))})
    found = rows_of(lake, keys, how=how, null_safe=null_safe)
    assert found == expected(KEYS, how == "left", null_safe)


def test_a_load_gives_the_same_batches_and_counts_on_one_core_and_on_two(
    lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_module, "WORTH_KEYS", 1)
    keys = pa.table({"k": pa.array([i % 75 for i in range(1000)], pa.int32()), "tag": range(1000)})
    loads = []
    for count in (1, 2):
        monkeypatch.setattr(MODULE, "cores", lambda count=count: count)
        counters = LoadCounters()
        found = load(None, lake / "index", keys, how="left", counters=counters)
        loads.append(([batch.to_pylist() for batch in found], counters))
    assert loads[1] == loads[0]
    assert loads[0][1].matched > 900


def test_only_the_columns_asked_for_are_there(lake: Path) -> None:
    keys = pa.table({"k": [5]})
    assert rows_of(lake, keys, columns=["dt"])[0] == {"k": 5, "dt": "0"}
    assert load(None, lake / "index", keys, ["dt", "k"]).schema == pa.schema([("k", pa.int64()), ("dt", pa.string())])
    with pytest.raises(UsageError, match="the source has no column x; it has k, n, dt"):
        load(None, lake / "index", keys, ["x"])


@pytest.mark.parametrize(
    ("keys", "options", "why"),
    [
        ({"x": [1]}, {}, "keys: the key column k is missing; it has x"),
        ({"k": [1], "n": [1]}, {}, "keys: the source has a column n, too"),
        ({"k": [1]}, {"how": "outer"}, "how: expected inner or left, found 'outer'"),
        ({"k": [1]}, {"unreadable": "no"}, "unreadable: expected fail or report, found 'no'"),
        ({"k": [1], ERROR: [1]}, {"unreadable": "report"}, "there is a column data_error already"),
        ({"k": [1], "__gnomon_x": [1]}, {}, "names that begin with __gnomon_ are taken"),
        ({"k": [[1]]}, {}, "keys: the key column k is list.*, the index's is int; cast it"),
        ({"k": ["1", "one"]}, {}, "keys: key column k: expected int, found 'one'"),
        ({"k": [str(2**31)]}, {}, "keys: key column k: expected int, found '2147483648'"),
    ],
)
def test_what_cannot_be_joined_is_refused(lake: Path, keys: Any, options: Any, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        load(None, lake / "index", pa.table(keys), **options).read_all()


def test_a_session_is_refused_where_there_is_no_spark(lake: Path) -> None:
    with pytest.raises(UsageError, match="a session of Spark was given"):
        load("session", lake / "index", pa.table({"k": [1]}))  # type: ignore[arg-type]


def test_rows_of_a_changed_file_fail_or_are_reported(lake: Path) -> None:
    (lake / "source/dt=1/a.parquet").unlink()
    keys = pa.table({"k": [5]})
    with pytest.raises(StalePointer, match="the file is gone since it was indexed"):
        rows_of(lake, keys)
    counters = LoadCounters()
    request = LoadRequest(unreadable="report")
    loaded = load_locally(
        open_index(lake / "index"), keys.schema, iter(keys.to_batches()), request, counters
    ).read_all()
    gone = [row for row in loaded.to_pylist() if row[ERROR] is not None]
    assert [(row["n"], row["dt"]) for row in gone] == [(None, None)] * counters.unreadable
    assert 0 < len(gone) < loaded.num_rows == counters.rows
    assert {row["dt"] for row in loaded.to_pylist() if row[ERROR] is None} == {"0", "2"}
    assert (counters.keys, counters.matched) == (1, 1)


def test_columns_have_the_widest_type_of_the_files(tmp_path: Path) -> None:
    write_source(tmp_path / "source", {"a.parquet": pa.table({"k": [1], "v": pa.array([2**40], pa.int64())})})
    index_source(tmp_path / "source", tmp_path / "index", ["k"])
    write_source(tmp_path / "source", {"b.parquet": pa.table({"k": [2], "v": pa.array([7], pa.int16())})})
    index_source(tmp_path / "source", tmp_path / "index", ["k"])
    loaded = load(None, tmp_path / "index", pa.table({"k": [1, 2]})).read_all()
    assert loaded.schema.field("v").type == pa.int64()
    assert sorted(loaded["v"].to_pylist()) == [7, 2**40]


def test_kinds_that_do_not_mix_are_refused(tmp_path: Path) -> None:
    write_source(tmp_path / "source", {"a.parquet": pa.table({"k": [1], "v": ["text"]})})
    index_source(tmp_path / "source", tmp_path / "index", ["k"])
    write_source(tmp_path / "source", {"b.parquet": pa.table({"k": [2], "v": [7]})})
    index_source(tmp_path / "source", tmp_path / "index", ["k"])
    with pytest.raises(UnsupportedFormat, match=r"a\.parquet: column v is string here and int64 in newer files"):
        load(None, tmp_path / "index", pa.table({"k": [1, 2]})).read_all()
    assert load(None, tmp_path / "index", pa.table({"k": [1, 2]}), columns=["k"]).read_all().num_rows == 2


def test_a_composite_key_with_a_partition_column_is_found_in_its_partition(tmp_path: Path) -> None:
    for day in (1, 2):
        table = pa.table({"k": ["a", "b"], "n": [day, 10 * day]})
        write_source(tmp_path / "source", {f"dt={day}/a.parquet": table})
    index_source(tmp_path / "source", tmp_path / "index", ["dt", "k"])
    keys = pa.table({"k": ["a", "b", "a", "c"], "dt": ["1", "2", "3", "1"]})
    assert rows_of(tmp_path, keys) == [{"k": "a", "dt": "1", "n": 1}, {"k": "b", "dt": "2", "n": 20}]
    as_numbers = pa.table({"k": ["b"], "dt": [2]})
    assert rows_of(tmp_path, as_numbers) == [{"k": "b", "dt": 2, "n": 20}]


def test_keys_may_come_in_any_number_of_batches_and_none(lake: Path) -> None:
    schema = pa.schema([("k", pa.int64())])
    none = pa.RecordBatchReader.from_batches(schema, iter([]))
    assert load(None, lake / "index", none).read_all().num_rows == 0
    many = pa.RecordBatchReader.from_batches(schema, (pa.record_batch({"k": [k]}) for k in range(70)))
    assert load(None, lake / "index", many).read_all().num_rows == 300 - 24


def test_a_damaged_page_is_an_error_that_names_the_file(lake: Path) -> None:
    path = lake / "source/dt=0/a.parquet"
    stat, data = path.stat(), bytearray(path.read_bytes())
    begin = pq.ParquetFile(path).metadata.row_group(0).column(1).data_page_offset
    data[begin : begin + 20] = bytes(20)
    path.write_bytes(data)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    with pytest.raises(Exception, match=r"dt=0/a\.parquet"):
        rows_of(lake, pa.table({"k": list(range(70))}))


MOMENT = dt.datetime(2024, 3, 10, 2, 30, tzinfo=dt.UTC)
KINDS = {
    "ms": pa.timestamp("ms", "UTC"), "us": pa.timestamp("us"), "ns": pa.timestamp("ns"),
    "utc": pa.timestamp("us", "UTC"), "berlin": pa.timestamp("us", "Europe/Berlin"),
    "listed": pa.list_(pa.timestamp("us")), "listed utc": pa.list_(pa.timestamp("us", "UTC")),
    "date": pa.date32(), "text": pa.string(),
}  # fmt: skip


@pytest.mark.parametrize(("one", "other"), cases(permutations(KINDS, 2)))
def test_moments_of_two_files_are_one_column_for_a_load_and_for_a_table(tmp_path: Path, one: str, other: str) -> None:
    for number, name in enumerate((one, other)):
        value = "noon" if name == "text" else MOMENT.date() if name == "date" else MOMENT
        array = pa.array([[value]] if "listed" in name else [value], KINDS[name])
        write_source(tmp_path / "s", {f"{number}.parquet": pa.table({"k": [number], "at": array})})
    build(None, str(tmp_path / "s"), str(tmp_path / "index"), ["k"], buckets=1)
    index, alike = open_index(str(tmp_path / "index")), len({"listed" in one, "listed" in other}) == 1
    if not alike or {one, other} & {"date", "text"}:
        with pytest.raises(GnomonError, match="column at"):
            index.table_many([0, 1])
        with pytest.raises(GnomonError, match="column at"):
            load(None, str(tmp_path / "index"), pa.table({"k": [0, 1]})).read_all()
        return
    table = index.table_many([0, 1], ["at"])["at"]
    rows = load(None, str(tmp_path / "index"), pa.table({"k": [0, 1]})).read_all().sort_by("k")["at"]
    assert table.to_pylist() == rows.to_pylist()
    if "listed" not in one:
        zones = {KINDS[one].tz, KINDS[other].tz}
        unit = max(KINDS[one].unit, KINDS[other].unit, key=("ms", "us", "ns").index)
        assert table.type == rows.type == pa.timestamp(unit, zones.pop() if len(zones) == 1 else "UTC")
        assert set(table.cast(pa.timestamp("s", "UTC")).to_pylist()) == {MOMENT}


@pytest.mark.parametrize("zone", [None, "UTC"])
def test_a_moment_that_nanoseconds_do_not_hold_is_refused_beside_them(tmp_path: Path, zone: str | None) -> None:
    early = pa.array([dt.datetime(1, 1, 1)], pa.timestamp("us"))
    write_source(tmp_path / "s", {"a.parquet": pa.table({"k": [0], "at": early})})
    write_source(tmp_path / "s", {"b.parquet": pa.table({"k": [1], "at": pa.array([1], pa.timestamp("ns", zone))})})
    build(None, str(tmp_path / "s"), str(tmp_path / "index"), ["k"], buckets=1)
    with pytest.raises(GnomonError, match="column at"):
        open_index(str(tmp_path / "index")).table_many([0, 1])
    with pytest.raises(GnomonError, match=r"column at, row 0: .* does not hold"):
        load(None, str(tmp_path / "index"), pa.table({"k": [0, 1]})).read_all()
