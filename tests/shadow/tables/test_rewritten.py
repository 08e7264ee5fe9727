"""A rewritten data file has the rows that stay, and is otherwise like the old one."""

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyroaring import BitMap64

from gnomon.shadow.errors import AlreadyExists, StorageError
from gnomon.shadow.storage import storage_at
from gnomon.shadow.tables.rewritten import rewrite
from gnomon.sources import UnsupportedFormat
from gnomon.sources.types import FIELD_ID

GONE = [0, 3, 4, 9, 17, 29]


def field(name: str, kind: pa.DataType, number: int, nullable: bool = True) -> pa.Field:
    return pa.field(name, kind, nullable, {FIELD_ID: str(number).encode()})


ITEM = pa.struct([field("a", pa.int8(), 12, nullable=False)])
SCHEMA = pa.schema(
    [
        field("id", pa.int64(), 1, nullable=False),
        field("uid", pa.uuid(), 2),
        field("fixed", pa.binary(5), 3),
        field("time", pa.time64("us"), 4),
        field("nanos", pa.timestamp("ns"), 5),
        field("price", pa.decimal128(10, 2), 6),
        field("tags", pa.map_(pa.string(), pa.int32()), 7),
        field("items", pa.list_(pa.field("element", ITEM, False, {FIELD_ID: b"11"})), 8),
        field("day", pa.date32(), 9),
        field("text", pa.string(), 10),
    ]
)


def rows(count: int) -> pa.Table:
    values: dict[str, list[Any]] = {
        "id": list(range(count)),
        "uid": [bytes(15) + bytes([i]) for i in range(count)],
        "fixed": [b"%05d" % i for i in range(count)],
        "time": [dt.time(1, 2, i) for i in range(count)],
        "nanos": [np.datetime64("2020-01-01T00:00:00.000000001") + i for i in range(count)],
        "price": [Decimal(i) / 4 if i % 5 else None for i in range(count)],
        "tags": [[("a", i)] if i % 2 else None for i in range(count)],
        "items": [[{"a": 1}] * (i % 3) for i in range(count)],
        "day": [dt.date(1200, 1, 1 + i % 28) for i in range(count)],
        "text": ["x" * (i % 4) for i in range(count)],
    }
    arrays = [pa.array(values[one.name], one.type) for one in SCHEMA]
    return pa.table(arrays, schema=SCHEMA)


def shape(path: Path) -> str:
    """The schema of a file with types, logical types, repetition and field ids."""
    return str(pq.ParquetFile(path).schema).split("\n", 1)[1]


@pytest.mark.parametrize("codec", ["zstd", "snappy", "none"])
def test_a_rewritten_file_has_the_rows_that_stay_and_the_form_of_the_old_one(tmp_path: Path, codec: str) -> None:
    notes = {"org.apache.spark.legacyDateTime": "", "org.apache.spark.version": "2.4.8", "writer.time.zone": "UTC"}
    with pq.ParquetWriter(tmp_path / "old", SCHEMA, compression=codec) as writer:
        writer.write_table(rows(30), row_group_size=8)
        writer.add_key_value_metadata(notes)
    store = storage_at(str(tmp_path))
    size = rewrite(store, "old", store, "below/new", BitMap64(GONE))
    new = tmp_path / "below/new"
    assert size == new.stat().st_size
    stays = [i for i in range(30) if i not in GONE]
    assert pq.read_table(new).equals(pq.read_table(tmp_path / "old").take(stays))
    assert shape(new) == shape(tmp_path / "old")
    found = pq.ParquetFile(new).metadata
    assert found.row_group(0).column(0).compression == {"none": "UNCOMPRESSED"}.get(codec, codec.upper())
    assert {key.encode(): value.encode() for key, value in notes.items()}.items() <= found.metadata.items()
    with pytest.raises(AlreadyExists):
        rewrite(store, "old", store, "below/new", BitMap64(GONE))


def test_columns_that_are_added_get_their_field_ids_and_the_rows_their_old_ordinals(tmp_path: Path) -> None:
    pq.write_table(rows(30), tmp_path / "old", row_group_size=8)

    def more(found: pa.Table, first: int) -> pa.Table:
        return found.append_column(
            field("_row", pa.int64(), 99), pa.array(range(first, first + len(found)), pa.int64())
        )

    store = storage_at(str(tmp_path))
    rewrite(store, "old", store, "new", BitMap64(GONE), more)
    table = pq.read_table(tmp_path / "new")
    assert table["_row"].to_pylist() == table["id"].to_pylist() == [i for i in range(30) if i not in GONE]
    assert table.schema.field("_row").metadata == {FIELD_ID: b"99"}


def test_int96_stays_int96_in_all_its_years(tmp_path: Path) -> None:
    days = [dt.datetime(year, 1, 2, 3, 4, 5, 678901) for year in (1, 1600, 1970, 2024, 9999)]
    table = pa.table({"id": range(5), "at": pa.array(days, pa.timestamp("us")), "in": [[day] for day in days]})
    pq.write_table(table, tmp_path / "old", use_deprecated_int96_timestamps=True)
    store = storage_at(str(tmp_path))
    rewrite(store, "old", store, "new", BitMap64([2]))
    assert shape(tmp_path / "new") == shape(tmp_path / "old")
    found = pq.ParquetFile(tmp_path / "new", coerce_int96_timestamp_unit="us").read()
    assert found["at"].to_pylist() == [day for day in days if day.year != 1970]
    assert found["in"].to_pylist() == [[day] for day in days if day.year != 1970]


@pytest.mark.parametrize("nested", [False, True])
def test_int96_with_nanoseconds_is_refused(tmp_path: Path, nested: bool) -> None:
    at = pa.array([1000, None, 3001], pa.timestamp("ns"))
    column = pa.StructArray.from_arrays([at], ["x"]) if nested else at
    pq.write_table(pa.table({"id": range(3), "at": column}), tmp_path / "old", use_deprecated_int96_timestamps=True)
    store = storage_at(str(tmp_path))
    with pytest.raises(UnsupportedFormat, match="INT96 timestamps have nanoseconds, which would be lost"):
        rewrite(store, "old", store, "new", BitMap64([0]))
    assert not (tmp_path / "new").exists()


def test_rows_that_the_file_lacks_are_refused(tmp_path: Path) -> None:
    pq.write_table(rows(3), tmp_path / "old")
    store = storage_at(str(tmp_path))
    with pytest.raises(StorageError, match=r"rows to delete that are not in this file.*ordinals below 3.*found 3"):
        rewrite(store, "old", store, "new", BitMap64([1, 3]))


def test_all_rows_may_go(tmp_path: Path) -> None:
    pq.write_table(rows(3), tmp_path / "old")
    store = storage_at(str(tmp_path))
    rewrite(store, "old", store, "new", BitMap64(range(3)))
    assert pq.read_table(tmp_path / "new").num_rows == 0
    assert shape(tmp_path / "new") == shape(tmp_path / "old")
