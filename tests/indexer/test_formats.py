"""The jobs on sources of every format: build, nightly build, look-up, load; splits, rows that only the scan counts."""

import csv
import datetime as dt
import io
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import fastavro
import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import gnomon.jobs.files.source_files as files_module
from gnomon.indexer import build, join_with_index, load, load_by_index
from gnomon.shadow import SpecMismatch, StalePointer, UsageError
from gnomon.shadow.storage import storage_at
from gnomon.shadow.verify.snapshot import verify
from gnomon.sources import FORMATS
from tests.opened import open_index
from tests.profiles import cases
from tests.sources.orc_files import by_pyorc
from tests.sources.sequence_files import written as sequence_file

Rows = list[tuple[int, str]]
AVRO = {
    "type": "record",
    "name": "Row",
    "fields": [{"name": "id", "type": "long"}, {"name": "text", "type": ["null", "string"]}],
}


def as_table(rows: Rows) -> pa.Table:
    schema = pa.schema([("id", pa.int64()), ("text", pa.string())])
    return pa.table([[i for i, _ in rows], [text for _, text in rows]], schema=schema)


def as_parquet(rows: Rows) -> bytes:
    out = io.BytesIO()
    pq.write_table(as_table(rows), out, row_group_size=90)
    return out.getvalue()


def as_avro(rows: Rows) -> bytes:
    out = io.BytesIO()
    records = [{"id": i, "text": text} for i, text in rows]
    fastavro.writer(out, AVRO, records, codec="deflate", sync_interval=1000)
    return out.getvalue()


def as_orc(rows: Rows) -> bytes:
    out = io.BytesIO()
    orc.write_table(as_table(rows), out, stripe_size=4096, batch_size=64)
    return out.getvalue()


def as_sequence(rows: Rows) -> bytes:
    values = [(i, text) for i, text in rows]
    return sequence_file(values, "LongWritable", "Text", "DefaultCodec", blocks=True, every=20)


def as_csv(rows: Rows) -> bytes:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n", quoting=csv.QUOTE_ALL).writerows([("id", "text"), *rows])
    return out.getvalue().encode()


def as_jsonl(rows: Rows) -> bytes:
    return "".join(json.dumps({"id": i, "text": text}, ensure_ascii=False) + "\n" for i, text in rows).encode()


class Case(NamedTuple):
    """The writer of a format's files, and the data to read them back: names of the columns of number and text, the type
    of the number, options of the build."""

    write: Callable[[Rows], bytes]
    number: str = "id"
    text: str = "text"
    kind: type = int
    options: Mapping[str, str] = {}


CASES = {
    "parquet": Case(as_parquet),
    "avro": Case(as_avro),
    "orc": Case(as_orc),
    "sequence": Case(as_sequence, "key", "value"),
    "csv": Case(as_csv, kind=str),
    "jsonl": Case(as_jsonl),
}


def test_every_format_is_tried() -> None:
    assert set(CASES) == set(FORMATS)


@pytest.fixture(params=cases(CASES))
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def case(name: str) -> Case:
    return CASES[name]


def rows_of(begin: int, end: int) -> Rows:
    return [(i % 350, f'é line {i}\nof, "{begin}"' * (1 + i % 3)) for i in range(begin, end)]


ENDINGS = {"csv": ".csv", "jsonl": ".jsonl"}


@pytest.fixture
def lake(tmp_path: Path, name: str, case: Case) -> dict[str, Rows]:
    """Three files in two partitions; some numbers are in several of them."""
    lake = {"dt=2026-01-01/a": rows_of(0, 300), "dt=2026-01-01/b": rows_of(300, 310), "dt=a%2Fb/c": rows_of(310, 500)}
    return {put(tmp_path / "source", path, rows, name, case): rows for path, rows in lake.items()}


def put(source: Path, path: str, rows: Rows, name: str, case: Case) -> str:
    target = source / f"{path}{ENDINGS.get(name, '')}"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(case.write(rows))
    return str(target.relative_to(source))


def expected(lake: Mapping[str, Rows], case: Case, number: int) -> list[dict[str, Any]]:
    days = {path: path.split("/")[0].removeprefix("dt=").replace("%2F", "/") for path in lake}
    return [
        {case.number: case.kind(i), case.text: text, "dt": days[path]}
        for path, rows in lake.items()
        for i, text in rows
        if i == number
    ]


@pytest.mark.parametrize("split_bytes", [1 << 30, 900])
def test_each_row_is_found_by_its_key_and_loaded_by_it(
    spark: SparkSession,
    tmp_path: Path,
    lake: dict[str, Rows],
    case: Case,
    name: str,
    split_bytes: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(files_module, "LEAST_SPLIT", split_bytes)
    monkeypatch.setattr(files_module, "LARGEST_SPLIT", split_bytes)
    source, place = str(tmp_path / "source"), str(tmp_path / "index")
    result = build(spark, source, place, [case.number], buckets=2)
    assert (result.rows, result.rows_indexed, result.new_files) == (500, 500, 3)
    index = open_index(place)
    assert index.spec.format == name
    assert [file.rows for file in index.view.covered.values()] == [len(rows) for rows in lake.values()]
    wanted = [*range(0, 351, 13), 349]
    for number, rows in zip(wanted, index.fetch_many([str(n) for n in wanted]), strict=True):
        assert rows == expected(lake, case, number), number
    assert verify(storage_at(place), None).faults == []

    keys = spark.createDataFrame([(n,) for n in wanted], f"`{case.number}` bigint")
    loaded = load(spark, place, keys, columns=[case.text, "dt"]).collect()
    found = sorted((int(row[case.number]), row[case.text], row["dt"]) for row in loaded)
    assert found == sorted((n, row[case.text], row["dt"]) for n in wanted for row in expected(lake, case, n))
    if split_bytes > 1000:
        return
    pointers = join_with_index(spark, place, keys).drop("dt")
    by_index = load_by_index(spark, place, pointers.union(pointers), [case.text, "dt"]).collect()
    assert sorted((int(row[case.number]), row[case.text], row["dt"]) for row in by_index) == sorted(found * 2)


def test_the_nightly_build_sees_what_changed_and_a_stale_file_is_refused(
    tmp_path: Path, lake: dict[str, Rows], case: Case, name: str
) -> None:
    source, place = str(tmp_path / "source"), str(tmp_path / "index")
    build(None, source, place, [case.text, case.number], flat=True)
    assert not build(None, source, place, [case.text, case.number]).committed
    index = open_index(place)
    first, *_, last = lake
    key = {case.text: lake[last][0][1], case.number: case.kind(lake[last][0][0])}
    assert len(index.fetch(key)) == 1
    lake[first] = rows_of(0, 250)
    put(tmp_path / "source", first.partition(".")[0], lake[first], name, case)
    (tmp_path / "source" / last).unlink()
    with pytest.raises(StalePointer, match="gone since it was indexed"):
        index.fetch(key)
    empty = put(tmp_path / "source", "dt=3/d", [], name, case)
    is_there = (tmp_path / "source" / empty).stat().st_size > 0  # an empty file does not count
    if is_there:
        lake[empty] = []
    result = build(None, source, place, [case.text, case.number])
    assert (result.new_files, result.changed_files, result.vanished_files, result.rows) == (int(is_there), 1, 1, 260)
    assert open_index(place).fetch(key) == []
    assert verify(storage_at(place), None).faults == []
    with pytest.raises(SpecMismatch, match="format"):
        build(None, source, place, [case.text, case.number], format="parquet" if name != "parquet" else "avro")


def test_types_of_csv_are_inferred_when_asked_for_and_widened_by_later_files(
    spark: SparkSession, tmp_path: Path
) -> None:
    source, index = tmp_path / "source", str(tmp_path / "index")
    source.mkdir()
    (source / "a.csv").write_text("id,n,day\n1,5,2020-01-31\n2,,\n")
    build(spark, str(source), index, ["id"], options={"infer_schema": "true"})
    (source / "b.csv").write_text("id,n,day\n3,2147483648,2020-02-01\n")
    build(spark, str(source), index, ["id"])
    opened = open_index(index)
    assert opened.spec.schema == "id int, n bigint, day date"
    assert opened.fetch(1) == [{"id": 1, "n": 5, "day": dt.date(2020, 1, 31)}]
    assert opened.fetch(3) == [{"id": 3, "n": 2147483648, "day": dt.date(2020, 2, 1)}]
    loaded = load(spark, index, spark.createDataFrame([(2,), (3,)], "id int"))
    assert sorted(loaded.collect()) == [(2, None, None), (3, 2147483648, dt.date(2020, 2, 1))]
    (source / "c.csv").write_text("id,n,day\nx,5,2020-01-31\n")
    with pytest.raises(UsageError, match=r"c.csv: column id is string, elsewhere in the source it is int"):
        build(spark, str(source), index, ["id"])


def test_orc_files_of_which_some_reach_beyond_nanoseconds_make_one_table(spark: SparkSession, tmp_path: Path) -> None:
    source, index, by_time = tmp_path / "source", str(tmp_path / "index"), str(tmp_path / "by_time")
    source.mkdir()
    near = [(i, dt.datetime(2020, 1, 1 + i, tzinfo=dt.UTC)) for i in range(9)]
    far = [(9 + i, dt.datetime(9999, 1, 1 + i, tzinfo=dt.UTC)) for i in range(9)]
    for name, rows in (("a", near), ("b", far)):
        (source / f"{name}.orc").write_bytes(by_pyorc("struct<id:bigint,t:timestamp>", rows))
    build(spark, str(source), index, ["id"])
    expected = [(i, moment.replace(tzinfo=None)) for i, moment in near + far]
    ids = spark.createDataFrame([(i,) for i, _ in expected], "id bigint")
    assert sorted(load(spark, index, ids).collect()) == expected
    with pytest.raises(UsageError, match=r"b.orc: column t is timestamp\[us\], elsewhere in the source"):
        build(spark, str(source), by_time, ["t"])
    build(spark, str(source), by_time, ["t"], options={"timestamp_unit": "us"})
    assert open_index(by_time).fetch("9999-01-03") == [{"id": 11, "t": dt.datetime(9999, 1, 3)}]
    times = spark.createDataFrame([(moment,) for _, moment in expected], "t timestamp_ntz")
    assert sorted(row.id for row in load(spark, by_time, times).collect()) == list(range(18))


def test_rows_of_a_key_keep_the_order_of_files_that_are_new_and_changed(tmp_path: Path) -> None:
    """New files are numbered before changed ones, whatever their names."""
    schema = {"type": "record", "name": "r", "fields": [{"name": "k", "type": "long"}, {"name": "v", "type": "string"}]}
    (tmp_path / "lake").mkdir()

    def write(name: str, word: str) -> None:
        with (tmp_path / "lake" / name).open("wb") as out:
            fastavro.writer(out, schema, [{"k": i % 3, "v": f"{word} {i}"} for i in range(30)])

    write("a.avro", "first")
    build(None, str(tmp_path / "lake"), str(tmp_path / "index"), ["k"], buckets=1)
    write("a.avro", "changed")
    write("b.avro", "new")
    build(None, str(tmp_path / "lake"), str(tmp_path / "index"), ["k"])
    assert verify(storage_at(str(tmp_path / "index")), None).faults == []
    found = [row["v"] for row in open_index(str(tmp_path / "index")).fetch(1)]
    assert found == [f"{word} {i}" for word in ("new", "changed") for i in range(1, 30, 3)]
