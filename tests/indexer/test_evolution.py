"""Files of one source that differ in their columns: by name, missing is null; and keys of types that Spark lacks, in
each format that has them."""

import datetime as dt
import io
import json
import re
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from gnomon.indexer import build, load
from gnomon.service.settings.table import Settings
from gnomon.shadow import UsageError, open_index
from tests.service.lake import Client, rows
from tests.sources.sequence_files import written as sequence_file
from tests.spark_fixtures import to_arrow

AVRO_TYPES = {pa.int32(): "int", pa.int64(): "long", pa.string(): "string", pa.float64(): "double"}


def as_parquet(table: pa.Table) -> bytes:
    out = io.BytesIO()
    pq.write_table(table, out)
    return out.getvalue()


def as_orc(table: pa.Table) -> bytes:
    out = io.BytesIO()
    orc.write_table(table, out)
    return out.getvalue()


def as_avro(table: pa.Table) -> bytes:
    fields = [{"name": field.name, "type": ["null", AVRO_TYPES[field.type]]} for field in table.schema]
    out = io.BytesIO()
    fastavro.writer(out, {"type": "record", "name": "Row", "fields": fields}, table.to_pylist())
    return out.getvalue()


def as_jsonl(table: pa.Table) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in table.to_pylist()).encode()


def as_csv(table: pa.Table) -> bytes:
    lines = [table.column_names, *(row.values() for row in table.to_pylist())]
    return "".join(",".join(map(str, line)) + "\n" for line in lines).encode()


WRITERS: dict[str, Callable[[pa.Table], bytes]] = {
    "parquet": as_parquet,
    "orc": as_orc,
    "avro": as_avro,
    "jsonl": as_jsonl,
    "csv": as_csv,
}


def put(folder: Path, name: str, format: str, table: pa.Table) -> None:
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.{format}").write_bytes(WRITERS[format](table))


@pytest.mark.parametrize("format", WRITERS)
def test_columns_of_files_meet_by_name_and_a_missing_one_is_null(
    spark: SparkSession, tmp_path: Path, format: str
) -> None:
    source, place = tmp_path / "source", str(tmp_path / "index")
    put(source, "a", format, pa.table({"k": [1], "x": ["a"], "n": pa.array([1], pa.int32())}))
    put(source, "b", format, pa.table({"more": [0.5], "n": pa.array([2**40]), "k": [2]}))
    put(source, "c", format, pa.table({"k": [3], "n": pa.array([3], pa.int32())}))
    build(spark, str(source), place, ["k"], include=["x"])
    text = str if format == "csv" else lambda value: value
    expected = [
        {"k": text(1), "x": "a", "n": text(1), "more": None},
        {"k": text(2), "x": None, "n": text(2**40), "more": text(0.5)},
        {"k": text(3), "x": None, "n": text(3), "more": None},
    ]
    assert open_index(place).fetch_many(["1", "2", "3"]) == [[row] for row in expected]
    keys = spark.createDataFrame([("1",), ("2",), ("3",)], "k string")
    loaded = to_arrow(load(spark, place, keys)).sort_by("k").to_pylist()
    assert loaded == [{**row, "k": str(row["k"])} for row in expected]


@pytest.mark.parametrize("format", ["parquet", "orc", "avro"])
def test_a_key_that_is_wider_in_another_file_is_refused_by_name_of_the_file(tmp_path: Path, format: str) -> None:
    source = tmp_path / "source"
    put(source, "a", format, pa.table({"k": pa.array([1], pa.int32())}))
    put(source, "b", format, pa.table({"k": pa.array([2], pa.int64())}))
    with pytest.raises(UsageError, match=rf"b\.{format}: column k is int64, elsewhere in the source it is int$"):
        build(None, str(source), str(tmp_path / "index"), ["k"])


# Name: type in Avro, the value in the file, its text, another form.
UUID_TEXT = "00010203-0405-0607-0809-0a0b0c0d0e0f"
AVRO_KEYS: dict[str, tuple[Any, Any, str, Any]] = {
    "id": ({"type": "string", "logicalType": "uuid"}, UUID_TEXT, UUID_TEXT, bytes(range(16))),
    "fixed": ({"type": "fixed", "name": "F", "size": 2}, b"\xff\0", "/wA=", b"\xff\0"),
    "ms": ({"type": "int", "logicalType": "time-millis"}, 45_000_005, "12:30:00.005", dt.time(12, 30, 0, 5000)),
    "us": ({"type": "long", "logicalType": "time-micros"}, 1, "00:00:00.000001", dt.time(0, 0, 0, 1)),
    "ns": ({"type": "long", "logicalType": "timestamp-nanos"}, 1, "1970-01-01T00:00:00.000000001Z", 1),
    "kind": ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B", "B", "B"),
}


def avro_of_keys() -> tuple[bytes, str, dict[str, tuple[str, Any]]]:
    fields = [{"name": name, "type": kind} for name, (kind, *_) in AVRO_KEYS.items()]
    row = {name: value for name, (_, value, *_) in AVRO_KEYS.items()}
    out = io.BytesIO()
    fastavro.writer(out, {"type": "record", "name": "Row", "fields": fields}, [row])
    return out.getvalue(), "", {name: (text, other) for name, (_, _, text, other) in AVRO_KEYS.items()}


def orc_of_keys() -> tuple[bytes, str, dict[str, tuple[str, Any]]]:
    """ORC's timestamps are nanoseconds."""
    table = pa.table({"at": pa.array([1], pa.timestamp("ns")), "z": pa.array([1001], pa.timestamp("ns", "UTC"))})
    keys = {"at": ("1970-01-01T00:00:00.000000001", 1), "z": ("1970-01-01T00:00:00.000001001Z", 1001)}
    return as_orc(table), "", keys


def text_of_keys(form: str) -> tuple[bytes, str, dict[str, tuple[str, Any]]]:
    values = {"t": "12:30:00.000005", "d": "1.50", "day": "2026-1-1"}
    lines = [",".join(values), ",".join(values.values())] if form == "csv" else [json.dumps(values)]
    keys = {
        "t": ("12:30:00.000005", dt.time(12, 30, 0, 5)),
        "d": ("1.5", Decimal("1.500")),
        "day": ("2026-01-01", dt.date(2026, 1, 1)),
    }
    return ("\n".join(lines) + "\n").encode(), "t time, d decimal(5,2), day date", keys


def sequence_of_keys() -> tuple[bytes, str, dict[str, tuple[str, Any]]]:
    return (
        sequence_file([(b"\xff\0", 0.5)], "BytesWritable", "FloatWritable"),
        "",
        {
            "key": ("/wA=", b"\xff\0"),
            "value": ("0.5", 0.5),
        },
    )


KEYED = {
    "avro": avro_of_keys,
    "orc": orc_of_keys,
    "csv": lambda: text_of_keys("csv"),
    "jsonl": lambda: text_of_keys("jsonl"),
    "sequence": sequence_of_keys,
}


@pytest.mark.parametrize("format", KEYED)
def test_a_row_is_found_by_keys_of_every_type_that_its_format_has(
    spark: SparkSession, tmp_path: Path, format: str
) -> None:
    content, schema, keys = KEYED[format]()
    (tmp_path / "source").mkdir()
    (tmp_path / f"source/a.{format}").write_bytes(content)
    place = str(tmp_path / "index")
    options = {"schema": schema} if schema else {}
    build(spark, str(tmp_path / "source"), place, list(keys), format=format, options=options)
    index = open_index(place)
    texts, others = ({name: forms[i] for name, forms in keys.items()} for i in (0, 1))
    [row] = index.fetch(texts)
    for other in (others, row, *({**texts, name: value} for name, value in others.items())):
        assert index.fetch(other) == [row]
    client = Client(Settings(indexes=[place]))
    assert [one["rows"] for one in client.post({"keys": [texts]}).json()["results"]] == [
        [in_json := rows_of(client, texts)]
    ]
    assert client.post({"keys": [in_json]}).json()["results"][0]["rows"] == [in_json]
    frame = spark.createDataFrame([tuple(texts.values())], list(texts))
    assert load(spark, place, frame, []).count() == 1


def rows_of(client: Client, texts: dict[str, str]) -> dict[str, Any]:
    query = "&".join(
        f"{name}={re.sub('[+/=]', lambda one: f'%{ord(one[0]):02x}', text)}" for name, text in texts.items()
    )
    [row] = rows(client.get(f"/rows?{query}"))
    return row
