"""Batches of every format, read in the types of their source."""

import datetime as dt
import gzip
import json
import os
import random
import shutil
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import gnomon.jobs.dedup.batch_plan as files_module
from gnomon.commands.failures import one_line
from gnomon.indexer import append_new, batch_digest, build, filter_new, read_batch
from gnomon.shadow import Index, SourceNotFound, UsageError, open_index
from gnomon.shadow.errors import DamagedSource, OptionError, SourceError, StalePointer, UnsupportedFormat
from gnomon.shadow.storage import FileInfo, storage_at
from tests.indexer.test_formats import CASES, ENDINGS, Rows, put
from tests.shadow.make_index import index_source, write_source
from tests.spark_fixtures import in_workers
from tests.stores.process import Store

ODD = "a.b `C`"  # a column name
DAY = dt.date(2026, 1, 2)


def index_of(root: Path, tables: dict[str, pa.Table], keys: list[str]) -> Index:
    write_source(root / "source", tables)
    index_source(root / "source", root / "index", keys, 2, [])
    return open_index(str(root / "index"))


@pytest.fixture
def index(tmp_path: Path) -> Index:
    """The index of a partitioned source of `id bigint, text string`."""
    table = pa.table({"id": pa.array([1], pa.int64()), "text": ["x"]})
    return index_of(tmp_path, {"dt=2026-01-01/a.parquet": table}, ["id"])


def typed(tmp_path: Path) -> Index:
    """The index of a source with a column of each kind of type."""
    columns = {
        "id": pa.array([1], pa.int64()),
        "n": pa.array([1.5], pa.float64()),
        "price": pa.array([Decimal("1.25")], pa.decimal128(12, 2)),
        "day": pa.array([DAY]),
        "at": pa.array([dt.datetime(2026, 1, 2, tzinfo=dt.UTC)], pa.timestamp("us", "UTC")),
        "flag": pa.array([True]),
        "tags": pa.array([[1]], pa.list_(pa.int64())),
        "who": pa.array([{"name": "x", "age": 1}], pa.struct([("name", pa.string()), ("age", pa.int32())])),
        ODD: pa.array(["odd"]),
    }
    return index_of(tmp_path, {"a.parquet": pa.table(columns)}, ["id"])


def written(path: Path, content: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def parquet(path: Path, **columns: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)
    return path


def types_of(frame: DataFrame) -> dict[str, str]:
    return {field.name: field.dataType.simpleString() for field in frame.schema}


def in_order(frame: DataFrame) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in frame.collect()]


def refused(frame: DataFrame) -> str:
    """The error, on one line, of the job that reads a batch."""
    with pytest.raises(Exception, match=r"Damaged|Unsupported|Stale") as caught:
        frame.collect()
    return one_line(caught.value)


@pytest.mark.spark
@pytest.mark.parametrize("name", CASES)
def test_a_batch_of_every_format_gives_its_rows_in_order_in_the_types_of_the_source(
    spark: SparkSession, tmp_path: Path, index: Index, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From a flat folder, one file, and partition folders, divided into splits."""
    case, batch = CASES[name], tmp_path / "batch"
    rows: Rows = [(i % 350, f'é line {i}\nof, "it"' * (1 + i % 3)) for i in range(500)]
    parts = {"a": rows[:300], "b": rows[300:310], "c": [], "d": rows[310:]}
    for path, part in parts.items():
        put(batch, f"flat/{path}", part, name, case)
    put(batch, "one", rows, name, case)
    written(batch / "flat/_SUCCESS", "no data")
    written(batch / "flat/.hidden/a.parquet", "no data")
    kinds = [(case.number, "bigint"), (case.text, "string")]
    for place in ("flat", f"one{ENDINGS.get(name, '')}"):
        most = (8 if place == "flat" else 1) << 10
        monkeypatch.setattr(files_module, "LEAST_SPLIT", most)
        monkeypatch.setattr(files_module, "LARGEST_SPLIT", most)
        frame = read_batch(spark, str(batch / place), index)
        assert sorted(types_of(frame).items()) == kinds
        found = in_order(frame.withColumn("place", F.monotonically_increasing_id()))
        assert [row[:2] for row in found] == rows
        assert [row[2] for row in found] == sorted({row[2] for row in found})
    assert (found[-1][2] >= len(rows)) == (name != "csv"), "in several tasks, where quotes do not forbid it"
    monkeypatch.undo()
    for day, part in (("2026-01-01", rows[:9]), ("a%2Fb", rows[9:12]), ("__HIVE_DEFAULT_PARTITION__", rows[12:14])):
        put(batch, f"days/dt={day}/x", part, name, case)
    frame = read_batch(spark, str(batch / "days"), index)
    assert sorted(types_of(frame).items()) == sorted([*kinds, ("dt", "string")])
    days = [*["2026-01-01"] * 9, None, None, *["a/b"] * 3]  # in the order of their folders
    found = in_order(frame)
    assert found == [(*row, day) for row, day in zip(rows[:9] + rows[12:14] + rows[9:12], days, strict=True)]


@pytest.mark.spark
def test_values_of_text_are_of_the_sources_types(spark: SparkSession, tmp_path: Path) -> None:
    index = typed(tmp_path)
    wanted = types_of(spark.read.parquet(str(tmp_path / "source")))
    moment = dt.datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=dt.UTC)
    values = {"id": 12, "n": 2.0, "price": Decimal("1.20"), "day": DAY, "at": moment, "flag": True}
    lines = [
        {"id": 12, "n": 2, "price": 1.2, "day": "2026-01-02", "at": "2026-01-02T03:04:05.000006Z", "flag": True}
        | {"tags": [1, 2], "who": {"age": 7}, ODD: 5},
        {"id": 13},
    ]
    rows = written(tmp_path / "batch/a.jsonl", "".join(json.dumps(line) + "\n" for line in lines))
    frame = read_batch(spark, str(rows), index)
    assert types_of(frame) == wanted
    found = frame.withColumn("at", F.unix_micros("at")).collect()
    micros = {"at": int(moment.timestamp()) * 1_000_000 + 6}
    nested = {"tags": [1, 2], "who": {"name": None, "age": 7}, ODD: "5"}
    assert found[0].asDict(recursive=True) == values | micros | nested
    assert found[1].asDict() == {**dict.fromkeys(wanted), "id": 13}

    header = f"{ODD},at,day,flag,id,n,price,extra"
    text = f'{header}\n"",2026-01-02 03:04:05.000006,2026-01-02,true,12,2,1.2,x\n,,,,13\n'
    for path, content in (("a.csv", text.encode()), ("b.csv.gz", gzip.compress(text.encode()))):
        frame = read_batch(spark, str(written(tmp_path / path, content)), index, options={"ragged": "true"})
        assert types_of(frame) == {name: wanted.get(name, "string") for name in header.split(",")}
        found = frame.withColumn("at", F.unix_micros("at")).collect()
        assert found[0].asDict() == values | micros | {ODD: "", "extra": "x"}
        assert found[1].asDict() == {**dict.fromkeys(header.split(",")), "id": 13}


@pytest.mark.spark
def test_text_that_does_not_fit_is_an_error_that_names_file_column_and_place(
    spark: SparkSession, tmp_path: Path
) -> None:
    index = typed(tmp_path)
    for name, content, expected in (
        ("a.csv", "id,n\n1,2\nx,3\n", "a.csv at byte 9: column id: expected an integer of 64 bits, found 'x'"),
        ("b.csv", "id,price\n1,1.234\n", "b.csv at byte 9: column price: expected a decimal(12,2), found '1.234'"),
        ("c.csv", "id,n\n" + "1,2\n" * 30_000 + "1,2,3\n", "c.csv at byte 120005: a record of 3 fields"),
        ("d.jsonl", '{"id":1}\n{"id":1.5}\n', "d.jsonl at byte 9: column id: expected an integer of 64 bits"),
        ("e.jsonl", '{"id":1,"flag":"no"}\n', "e.jsonl at byte 0: column flag: expected bool"),
        ("f.jsonl", '{"id":1}\n{"id":\n', "f.jsonl at byte 9: a line that is not one JSON value"),
    ):
        path = written(tmp_path / name, content)
        if name.startswith("f"):  # formats whose column names are read first
            with pytest.raises(DamagedSource, match=expected):
                read_batch(spark, str(path), index)
        else:
            assert expected in refused(read_batch(spark, str(path), index))


@pytest.mark.spark
def test_columns_of_a_text_that_the_source_has_otherwise_or_not_are_kept_for_the_caller_to_refuse(
    spark: SparkSession, tmp_path: Path
) -> None:
    index = typed(tmp_path)
    line = {"id": 1, "more": 1, "who": {"name": "x", "height": 1}}
    rows = written(tmp_path / "a.jsonl", json.dumps(line) + "\n")
    found = types_of(read_batch(spark, str(rows), index))
    assert (found["more"], found["who"]) == ("bigint", "struct<height:bigint,name:string>")
    keyless = types_of(read_batch(spark, str(written(tmp_path / "b.jsonl", '{"n":1}\n')), index))
    wanted = types_of(spark.read.parquet(str(tmp_path / "source")))
    assert keyless == {name: kind for name, kind in wanted.items() if name != "id"}
    fields = written(tmp_path / "a.csv", "x,y\n1,2,3\n")  # its columns are not matched by place
    assert types_of(read_batch(spark, str(fields), index)) == {"x": "string", "y": "string", "_c2": "string"}
    nested = written(tmp_path / "b.csv", "id,tags\n1,2\n")
    assert types_of(read_batch(spark, str(nested), index)) == {"id": "bigint", "tags": "string"}
    with pytest.raises(UsageError, match=r"more is not a column of the source; who is struct<.*>, expected struct"):
        append_new(spark, index.location, read_batch(spark, str(rows), index), "b")


@pytest.mark.spark
def test_typed_values_are_widened_to_the_sources_types_and_nothing_else_is_done_to_them(
    spark: SparkSession, tmp_path: Path
) -> None:
    index = typed(tmp_path)
    person = pa.struct([("name", pa.string())])
    fitting = {
        "id": pa.array([7, 8], pa.int32()),
        "n": pa.array([0.5, None], pa.float32()),
        "price": pa.array([Decimal("9.5"), None], pa.decimal128(10, 1)),
        "day": pa.array([DAY, None]),
        "at": pa.array([0, None], pa.timestamp("ms", "Asia/Tokyo")),
        "tags": pa.array([[1], None], pa.large_list(pa.int8())),
        "who": pa.array([{"name": "y"}, None], person),
        ODD: pa.array(["é", None], pa.large_string()),
    }
    frame = read_batch(spark, str(parquet(tmp_path / "a.parquet", **fitting)), index)
    wanted = types_of(spark.read.parquet(str(tmp_path / "source")))
    assert types_of(frame) == {name: wanted[name] for name in fitting}
    first, second = frame.withColumn("at", F.unix_micros("at")).collect()
    numbers = {"id": 7, "n": 0.5, "price": Decimal("9.50"), "day": DAY, "at": 0, "tags": [1]}
    assert first.asDict(recursive=True) == numbers | {"who": {"name": "y", "age": None}, ODD: "é"}
    assert second.asDict() == dict.fromkeys(fitting) | {"id": 8}

    other = {
        "id": pa.array([2], pa.float64()),
        "n": pa.array([1], pa.int64()),
        "price": pa.array([Decimal("1.125")], pa.decimal128(12, 3)),
        "day": pa.array([dt.datetime(2026, 1, 2)], pa.timestamp("us")),
        "at": pa.array([dt.datetime(2026, 1, 2)], pa.timestamp("us")),
        "flag": pa.array([1], pa.int32()),
        "who": pa.array([{"name": "x", "height": 1}]),
        ODD: pa.array([1], pa.int32()),
        "ODD": ["x"],
    }
    found = types_of(read_batch(spark, str(parquet(tmp_path / "b.parquet", **other)), index))
    assert found == {
        "id": "double",
        "n": "bigint",
        "price": "decimal(12,3)",
        "day": "timestamp_ntz",
        "at": "timestamp_ntz",
        "flag": "int",
        "who": "struct<name:string,height:bigint>",
        ODD: "int",
        "ODD": "string",
    }
    fine = parquet(tmp_path / "c.parquet", id=[1, 2], at=pa.array([1_000, 1_001], pa.timestamp("ns", "UTC")))
    message = refused(read_batch(spark, str(fine), index))
    assert "c.parquet: column at, row 1: timestamp[us, tz=UTC] does not hold " in message


@pytest.mark.spark
def test_files_may_differ_in_columns_and_in_the_width_of_numbers(
    spark: SparkSession, tmp_path: Path, index: Index
) -> None:
    batch = tmp_path / "batch"
    parquet(batch / "a.parquet", id=pa.array([1], pa.int32()), other=pa.array([1], pa.int16()))
    parquet(batch / "b.parquet", text=["x"], other=pa.array([2], pa.int64()), id=pa.array([2], pa.int64()))
    parquet(batch / "c.parquet", text=pa.nulls(1), nothing=pa.nulls(1))
    frame = read_batch(spark, str(batch), index)
    assert types_of(frame) == {"id": "bigint", "other": "bigint", "text": "string", "nothing": "string"}
    assert in_order(frame) == [(1, 1, None, None), (2, 2, "x", None), (None, None, None, None)]
    (batch / "b.parquet").unlink()
    written(batch / "d.parquet", parquet(tmp_path / "d", other=["text"]).read_bytes())
    with pytest.raises(UsageError, match=r"column other is int16 in a.parquet, string in d.parquet; expected one"):
        read_batch(spark, str(batch), index)
    for csv, text in (("a", "id,text\n1,x\n"), ("b", "text,id\ny,2\n"), ("c", "")):
        written(tmp_path / f"texts/{csv}.csv", text)
    assert in_order(read_batch(spark, str(tmp_path / "texts"), index)) == [(1, "x"), (2, "y")]


@pytest.mark.spark
def test_the_sources_partition_columns_may_be_in_the_files_and_folders_come_first(
    spark: SparkSession, tmp_path: Path, index: Index
) -> None:
    inside = parquet(tmp_path / "in.parquet", dt=pa.array([DAY]), id=[1])
    assert types_of(read_batch(spark, str(inside), index)) == {"dt": "date", "id": "bigint"}
    lines = written(tmp_path / "in.jsonl", '{"id":1,"dt":20260101}\n')
    assert in_order(read_batch(spark, str(lines), index).select("dt", "id", "text")) == [("20260101", 1, None)]
    parquet(tmp_path / "both/dt=2026-01-03/a.parquet", dt=["other"], id=[1])
    assert in_order(read_batch(spark, str(tmp_path / "both"), index)) == [(1, "2026-01-03")]
    parquet(tmp_path / "both/a.parquet", dt=["other"], id=[1])
    with pytest.raises(SourceNotFound, match="do not share the same partition columns"):
        read_batch(spark, str(tmp_path / "both"), index)


@pytest.mark.spark
def test_csv_without_a_header_has_the_sources_columns_in_their_order_and_options_are_those_of_the_source(
    spark: SparkSession, tmp_path: Path, index: Index
) -> None:
    bare = str(written(tmp_path / "bare.csv", "7;x;2026-01-01\n8\n"))
    options = {"header": "false", "delimiter": ";", "ragged": "true"}
    frame = read_batch(spark, bare, index, options=options)
    assert types_of(frame) == {"id": "bigint", "text": "string", "dt": "string"}
    assert in_order(frame) == [(7, "x", "2026-01-01"), (8, None, None)]
    given = read_batch(spark, bare, index, "csv", {**options, "schema": "text int, b string"})
    assert types_of(given) == {"text": "int", "b": "string"}
    with pytest.raises(OptionError, match="option delimeter: format csv has no such option"):
        read_batch(spark, bare, index, options={"delimeter": ";"})

    written(tmp_path / "texts/a.csv", "id|n\n1|2\n")
    options = {"delimiter": "|", "infer_schema": "true"}
    build(spark, str(tmp_path / "texts"), str(tmp_path / "by_text"), ["id"], options=options)
    batch = read_batch(spark, str(written(tmp_path / "b.csv", "n|id\n3|4\n")), open_index(str(tmp_path / "by_text")))
    assert (types_of(batch), in_order(batch)) == ({"n": "int", "id": "int"}, [(3, 4)])
    lines = written(tmp_path / "empty.jsonl", "")
    assert types_of(read_batch(spark, str(lines), index)) == {"id": "bigint", "text": "string", "dt": "string"}


@pytest.mark.spark
def test_damage_and_change_are_errors_and_never_fewer_rows(spark: SparkSession, tmp_path: Path, index: Index) -> None:
    rows = [(i, f"text {i}" * 9) for i in range(900)]
    for name in ("parquet", "orc"):  # formats with a footer
        path = written(tmp_path / f"short/{name}", CASES[name].write(rows)[:-30])
        with pytest.raises(SourceError, match=str(path)):
            read_batch(spark, str(path), index)
    for name in ("avro", "sequence"):
        content = CASES[name].write(rows)
        middle = len(content) // 2
        for kind, damaged in (("short", content[:-30]), ("odd", content[:middle] + bytes(40) + content[middle + 40 :])):
            path = written(tmp_path / f"{kind}/{name}", damaged)
            assert str(path) in refused(read_batch(spark, str(path), index))
    path = parquet(tmp_path / "batch/a.parquet", id=[1], text=["x"])
    parquet(tmp_path / "batch/b.parquet", id=[2], text=["y"])
    frame = read_batch(spark, str(tmp_path / "batch"), index)
    assert len(frame.collect()) == 2
    parquet(path, id=[3], text=["xyz"])
    assert "a.parquet: the file changed while the batch was read; run it again" in refused(frame)
    path.unlink()
    assert "a.parquet: the file vanished while the batch was read" in refused(frame)


@pytest.mark.spark
def test_a_batch_that_is_not_one_is_refused(spark: SparkSession, tmp_path: Path, index: Index) -> None:
    (tmp_path / "empty").mkdir()
    written(tmp_path / "mixed/a.csv", "id\n1\n")
    written(tmp_path / "mixed/b.jsonl", '{"id":1}\n')
    written(tmp_path / "other/a", CASES["avro"].write([(1, "x")]))
    parquet(tmp_path / "other/b", id=[1])
    written(tmp_path / "strange/a", "what?")
    for place, kind, says in (
        ("nowhere", SourceNotFound, "nowhere: no such file or folder; expected a batch"),
        ("empty", SourceNotFound, "empty: no data files there"),
        ("mixed", UnsupportedFormat, "b.jsonl: a file of format jsonl among csv ones"),
        ("other", UnsupportedFormat, "b: a file of format parquet among avro ones"),
        ("strange", UnsupportedFormat, "strange/a: the bytes match no supported format"),
    ):
        with pytest.raises(kind, match=says):
            read_batch(spark, str(tmp_path / place), index)
        with pytest.raises(kind, match=says):
            batch_digest(str(tmp_path / place))
    with pytest.raises(SourceNotFound, match="empty"):
        read_batch(spark, "", index)
    with pytest.raises(UsageError, match=r"format: expected one of auto, parquet, .*, found 'xml'"):
        read_batch(spark, str(tmp_path / "other"), index, "xml")


def test_a_copy_of_a_batch_has_its_name_and_another_batch_has_not(tmp_path: Path) -> None:
    for name, case in CASES.items():
        batch, copy = tmp_path / name, tmp_path / f"{name} again"
        for path, rows in (("dt=1/a", [(1, "x")]), ("dt=2/b", [(2, 'a "quote')])):
            put(batch, path, rows, name, case)
        shutil.copytree(batch, copy)
        first = next(copy.rglob("*/a*"))
        os.utime(first, (0, 0))
        digest = batch_digest(str(batch))
        assert digest == batch_digest(str(copy)) == batch_digest(f"file://{copy}")
        assert len(bytes.fromhex(digest)) == 8
        changed = first.rename(first.parent.parent / f"dt=2/{first.name}")
        assert batch_digest(str(copy)) != digest, "another partition"
        put(copy, "dt=2/a", [(1, "y")], name, case)
        assert batch_digest(str(copy)) not in (digest, batch_digest(str(changed))), "another value"
    odd = written(tmp_path / "odd.csv", 'a|"b\n1|2\n')  # with any quotes
    assert len(batch_digest(str(odd))) == 16


@pytest.fixture
def lake(s3: Store, s3_root: str, spark: SparkSession) -> Iterator[str]:
    """A folder on a store that Spark's Python workers can reach."""
    with in_workers(spark, s3.variables):
        yield s3_root


@pytest.mark.spark
def test_a_batch_may_lie_on_another_store(spark: SparkSession, lake: str, index: Index) -> None:
    storage, noise = storage_at(f"{lake}/batch"), random.Random(7)
    rows = [(i, f"{noise.random()}") for i in range(300)]
    storage.put_new("dt=2026-01-02/a", [CASES["avro"].write(rows[:200])])
    storage.put_new("dt=2026-01-02/b", [CASES["avro"].write(rows[200:])])
    frame = read_batch(spark, f"{lake}/batch", index)
    assert in_order(frame) == [(*row, "2026-01-02") for row in rows]
    assert filter_new(spark, index.location, frame).count() == 299
    assert len(batch_digest(f"{lake}/batch")) == 16
    storage.delete("dt=2026-01-02/b")
    storage.put_new("dt=2026-01-02/b", [CASES["avro"].write(rows[199:])])
    with pytest.raises(Exception, match="dt=2026-01-02/b") as caught:
        frame.collect()
    assert StalePointer.__name__ in str(caught.value)


def test_tasks_read_runs_of_pieces_in_order_of_about_equal_length() -> None:
    noise = random.Random(7)
    for sizes, tasks in (([5], 8), ([0] * 20, 8), ([10] * 100, 8), ([noise.randrange(50) for _ in range(1_000)], 8)):
        files = [
            files_module.BatchFile(FileInfo(f"{i}", size, 0), {}, pa.schema([]), {}, [(0, size)])
            for i, size in enumerate(sizes)
        ]
        shares = files_module.task_shares(files, tasks)
        assert [ordinal for share in shares for ordinal, _ in share] == list(range(len(sizes)))
        assert len(shares) == min(len(sizes), max(tasks, len(sizes) // 64))
        lengths = [sum(end - begin for _, (begin, end) in share) for share in shares]
        assert max(lengths) <= sum(sizes) / len(shares) + max(sizes) + 1
