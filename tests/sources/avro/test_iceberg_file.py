"""Avro files of an Iceberg table: pointers of one number, the rows that deletes name, and Iceberg's types."""

import datetime as dt
import json
import uuid
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from gnomon.sources import DECLARED, DamagedSource, StalePointer, UnsupportedFormat, open_source
from gnomon.sources.avro import numbers_of_rows, open_iceberg_avro
from tests.sources.avro_files import SYNC, block, container, header, number, records, sized, written
from tests.sources.readers import BytesReader

ROW = {
    "type": "record",
    "name": "table",
    "fields": [
        {"name": "old_name", "type": "long", "field-id": 1},
        {"name": "text", "type": ["null", "string"], "field-id": 2},
    ],
}
DDL = """id bigint COMMENT '{"id": 1}', text string COMMENT '{"id": 2}', later date COMMENT '{"id": 3}'"""


def rows(count: int) -> list[dict[str, Any]]:
    return [{"old_name": i, "text": None if i % 7 == 0 else f"text {i}" * (i % 5)} for i in range(count)]


def test_scan_fetch_and_deletes_agree_on_the_number_of_each_row() -> None:
    reader = BytesReader(written(ROW, rows(500), block_bytes=300))
    file = open_source(reader, "parquet", {DECLARED: DDL})
    assert file.schema.names == ["id", "text"]
    scanned = pa.Table.from_batches(list(file.scan(reader, ["id"])))
    assert scanned["id"].to_pylist() == list(range(500))
    assert set(scanned["data_sub_offset"].to_pylist()) == {0}
    numbers = scanned["data_offset"].to_numpy()
    assert (np.diff(numbers) > 0).all()
    assert len(set(file.units(numbers).tolist())) > 20, "blocks"
    assert (numbers_of_rows(reader, np.arange(500)) == numbers).all()
    some = np.array([0, 3, 4, 250, 498, 499])
    assert (numbers_of_rows(reader, some) == numbers[some]).all()
    assert numbers_of_rows(reader, some[:0]).tolist() == []
    places = [499, 0, 250, 250, 3]
    pointers = [(int(numbers[place]), 0) for place in places]
    assert file.fetch(reader, pointers, ["id"])["id"].to_pylist() == places


def test_each_row_is_scanned_by_one_split() -> None:
    reader = BytesReader(written(ROW, rows(500), block_bytes=300))
    file = open_iceberg_avro(reader)
    parts = [file.scan(reader, ["old_name"], split) for split in file.splits(1000)]
    assert [row for part in parts for batch in part for row in batch.column(0).to_pylist()] == list(range(500))


def test_a_delete_of_a_row_beyond_the_file_is_refused() -> None:
    reader = BytesReader(written(ROW, rows(50), block_bytes=300))
    with pytest.raises(DamagedSource, match="a row that the file does not have: expected a row below 50, found row 50"):
        numbers_of_rows(reader, np.array([4, 50]))


def test_damaged_blocks_are_refused_where_deletes_are_counted() -> None:
    data = written(ROW, rows(50), block_bytes=300)
    at = data.rindex(SYNC, 0, len(data) - len(SYNC))  # the marker before the last block
    broken = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
    with pytest.raises(DamagedSource, match=f"at byte {at}: expected the sync marker"):
        numbers_of_rows(BytesReader(broken), np.array([49]))


@pytest.mark.parametrize("pointer", [(0, 0), (1 << 60, 0), (-1, 0)])
def test_a_pointer_to_no_row_is_stale(pointer: tuple[int, int]) -> None:
    reader = BytesReader(written(ROW, rows(50)))
    with pytest.raises(StalePointer, match="pointer"):
        open_iceberg_avro(reader).fetch(reader, [pointer], ["old_name"])
    [first, *_] = numbers_of_rows(reader, np.array([0]))
    with pytest.raises(StalePointer, match="no row at pointer"):
        open_iceberg_avro(reader).fetch(reader, [(int(first), 1)], ["old_name"])


def test_a_block_of_too_many_rows_is_refused() -> None:
    """A row of no bytes lets a small block have any number of them."""
    schema = {"type": "record", "name": "table", "fields": [{"name": "id", "type": "null", "field-id": 1}]}
    reader = BytesReader(container(schema, [((1 << 20) + 1, b"")]))
    with pytest.raises(UnsupportedFormat, match="a block of more than 1,048,576 rows"):
        list(open_iceberg_avro(reader).scan(reader, ["id"]))


def test_icebergs_types_are_those_of_the_table() -> None:
    """Timestamps without a zone, a map whose keys are numbers, and UUIDs."""
    micros = {"type": "long", "logicalType": "timestamp-micros"}
    entry = {
        "type": "record",
        "name": "k6_v7",
        "fields": [
            {"name": "key", "type": "int", "field-id": 6},
            {"name": "value", "type": ["null", "string"], "field-id": 7},
        ],
    }
    fixed = {"type": "fixed", "name": "uuid_fixed", "size": 16, "logicalType": "uuid"}
    kinds = [
        micros | {"adjust-to-utc": False},
        micros | {"adjust-to-utc": True},
        {"type": "array", "logicalType": "map", "items": entry},
        fixed,
    ]
    fields = [{"name": f"f{i}", "type": kind, "field-id": i} for i, kind in enumerate(kinds)]
    schema = {"type": "record", "name": "table", "fields": fields}
    one = uuid.UUID(int=7)
    pairs = number(2) + number(5) + number(1) + sized(b"five") + number(-1) + number(0) + number(0)
    reader = BytesReader(container(schema, [(1, number(-1) + number(1_000_000) + pairs + one.bytes)]))
    types = ["timestamp_ntz", "timestamp", "map<int,string>", "string"]
    ddl = ", ".join(f"""f{i} {kind} COMMENT '{json.dumps({"id": i})}'""" for i, kind in enumerate(types))
    file = open_source(reader, "parquet", {DECLARED: ddl})
    numbers = numbers_of_rows(reader, np.array([0]))
    [row] = file.fetch(reader, [(int(numbers[0]), 0)], [f"f{i}" for i in range(4)]).to_pylist()
    before = dt.datetime(1969, 12, 31, 23, 59, 59, 999999)
    assert row == {
        "f0": before,
        "f1": dt.datetime(1970, 1, 1, 0, 0, 1, tzinfo=dt.UTC),
        "f2": [(5, "five"), (-1, None)],
        "f3": str(one),
    }
    plain = open_source(reader, "avro").schema
    assert (plain.field("f0").type, pa.types.is_list(plain.field("f2").type)) == (pa.timestamp("us", "UTC"), True)


def test_a_file_without_field_ids_is_refused() -> None:
    schema = {"type": "record", "name": "table", "fields": [{"name": "id", "type": "long"}]}
    reader = BytesReader(header(schema) + block(1, records(schema, [{"id": 1}])))
    with pytest.raises(UnsupportedFormat, match="the avro file has no field ids"):
        open_source(reader, "parquet", {DECLARED: DDL})
