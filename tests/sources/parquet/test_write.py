"""Parquet files that are written in the style of a file of their source."""

import uuid
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gnomon.sources import UnsupportedFormat, open_source, open_writer, style_of
from gnomon.sources.parquet import write as writing
from tests.sources.readers import BytesReader
from tests.sources.written import rows_of, write, written


def parquet(table: pa.Table, **options: Any) -> BytesReader:
    out = pa.BufferOutputStream()
    pq.write_table(table, out, **options)
    return BytesReader(out.getvalue().to_pybytes(), "lake/part.parquet")


def metadata_of(file: BytesReader) -> pq.FileMetaData:
    return pq.read_metadata(pa.BufferReader(file.data))


def columns_of(file: BytesReader) -> list[Any]:
    group = metadata_of(file).row_group(0)
    return [group.column(i) for i in range(group.num_columns)]


TABLE = pa.table({"n": [1, 2, None], "text": ["a", None, ""]})


@pytest.mark.parametrize("codec", ["NONE", "SNAPPY", "GZIP", "BROTLI", "ZSTD", "LZ4"])
def test_the_codec_is_that_of_the_file(codec: str) -> None:
    file = written(TABLE, "parquet", {}, like=parquet(TABLE, compression=codec))
    assert {one.compression for one in columns_of(file)} == {codec.replace("NONE", "UNCOMPRESSED")}


def test_every_column_has_a_page_index_and_statistics() -> None:
    file = written(TABLE, "parquet", {}, like=parquet(TABLE))
    assert all(one.has_offset_index and one.has_column_index and one.is_stats_set for one in columns_of(file))


@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
@pytest.mark.parametrize("zone", ["UTC", None])
def test_timestamps_are_of_the_unit_and_kind_that_the_file_has(unit: str, zone: str | None) -> None:
    table = pa.table({"at": pa.array([0, -1, 1_700_000_000_000, None], pa.timestamp(unit, zone))})
    own = parquet(table, store_schema=False)
    file = written(table, "parquet", {}, like=own)
    assert (
        metadata_of(file).schema.column(0).logical_type.to_json()
        == metadata_of(own).schema.column(0).logical_type.to_json()
    )
    assert b"ARROW:schema" not in (metadata_of(file).metadata or {})


def test_int96_stays_int96() -> None:
    moments = pa.array([0, -1, 253_402_300_799_999_999, -62_135_596_800_000_000, None], pa.timestamp("us", "UTC"))
    table = pa.table({"at": moments, "n": range(5)})
    own = parquet(table, use_deprecated_int96_timestamps=True, store_schema=False)
    assert rows_of(own, "parquet", {})["at"].type == pa.timestamp("us", "UTC")
    file = written(rows_of(own, "parquet", {}), "parquet", {}, like=own)
    assert columns_of(file)[0].physical_type == "INT96"
    assert rows_of(file, "parquet", {}) == rows_of(own, "parquet", {})


def test_int96_beside_a_new_timestamp_becomes_an_instant_of_microseconds() -> None:
    own = parquet(
        pa.table({"at": pa.array([0], pa.timestamp("us"))}), use_deprecated_int96_timestamps=True, store_schema=False
    )
    table = pa.table({"at": pa.array([5], pa.timestamp("us", "UTC")), "local": pa.array([7], pa.timestamp("us"))})
    file = written(table, "parquet", {}, like=own)
    assert [one.physical_type for one in columns_of(file)] == ["INT64", "INT64"]
    assert rows_of(file, "parquet", {}) == table


def test_types_that_spark_does_not_have_are_kept() -> None:
    table = pa.table(
        {
            "u8": pa.array([0, 255, None], pa.uint8()),
            "u32": pa.array([0, 2**32 - 1, None], pa.uint32()),
            "u64": pa.array([0, 2**64 - 1, None], pa.uint64()),
            "half": pa.array([1.5, float("nan"), None], pa.float16()),
            "fixed": pa.array([b"abc", b"\0\0\0", None], pa.binary(3)),
            "uuid": pa.array([uuid.UUID(int=1).bytes, uuid.UUID(int=2**128 - 1).bytes, None], pa.uuid()),
            "time": pa.array([0, 86_399_999_999, None], pa.time64("us")),
            "large": pa.array(["a", "", None], pa.large_string()),
            "wide": pa.array([Decimal(10**75), Decimal(-1), None], pa.decimal256(76, 0)),
            "lists": pa.array([[1], [], None], pa.large_list(pa.uint16())),
            "pairs": pa.array([[1, 2], [3, 4], None], pa.list_(pa.int8(), 2)),
        }
    )
    own = parquet(table)
    file = written(table, "parquet", {}, like=own)
    assert open_source(file, "parquet").schema == open_source(own, "parquet").schema
    assert [str(metadata_of(f).schema.column(i).logical_type) for f in (own, file) for i in range(5)][:5] == [
        str(metadata_of(file).schema.column(i).logical_type) for i in range(5)
    ]
    spark = {"u8": pa.int16(), "u32": pa.int64(), "u64": pa.decimal128(20, 0), "large": pa.string()}  # as it has them
    cast = pa.table(
        {name: table[name].cast(spark.get(name, table[name].type)) for name in ("u8", "u32", "u64", "large")}
    )
    same = parquet(table.select(cast.column_names))
    again = write("parquet", style_of(same, "parquet"), table.select(cast.column_names).schema, cast.to_batches())
    assert rows_of(again, "parquet", {}) == table.select(cast.column_names)


def test_required_columns_field_ids_and_names_within_are_kept() -> None:
    schema = pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False, metadata={"PARQUET:field_id": "7"}),
            pa.field(
                "list", pa.list_(pa.field("array", pa.int32(), nullable=False, metadata={"PARQUET:field_id": "9"}))
            ),
            pa.field("record", pa.struct([pa.field("must", pa.string(), nullable=False)])),
        ]
    )
    rows = [{"id": 1, "list": [1, 2], "record": {"must": "x"}}, {"id": 2, "list": None, "record": None}]
    own = parquet(pa.Table.from_pylist(rows, schema), use_compliant_nested_type=False, store_schema=False)
    loose = pa.schema(
        [("id", pa.int64()), ("list", pa.list_(pa.int32())), ("record", pa.struct([("must", pa.string())]))]
    )
    batches = pa.Table.from_pylist(rows, loose).to_batches()
    file = write("parquet", style_of(own, "parquet"), loose, batches)
    schemas = [pq.ParquetFile(pa.BufferReader(one.data)).schema for one in (own, file)]
    assert str(schemas[0]).partition("\n")[2] == str(schemas[1]).partition("\n")[2]
    assert rows_of(file, "parquet", {}).to_pylist() == rows
    writer = open_writer(style_of(own, "parquet"), loose, "lake/new")
    with pytest.raises(UnsupportedFormat, match=r"^lake/new: column id: required in the source's files: found a null"):
        writer.write(pa.RecordBatch.from_pylist([{"id": None}], loose))
    with pytest.raises(
        UnsupportedFormat,
        match=r"^lake/new: column id: required in the source's files, and the rows have no such column",
    ):
        open_writer(style_of(own, "parquet"), pa.schema([loose.field("list")]), "lake/new")


def test_sparks_notes_are_kept_where_the_columns_are_the_same() -> None:
    columns, version = "org.apache.spark.sql.parquet.row.metadata", "org.apache.spark.version"
    for spark, kept in (("4.0.1", True), ("3.0.3", False), ("2.4.8", False)):
        out = pa.BufferOutputStream()
        with pq.ParquetWriter(out, TABLE.schema, store_schema=False) as writer:
            writer.write_table(TABLE)
            writer.add_key_value_metadata({columns: "{...}", version: spark, "pandas": "{}"})
        own = BytesReader(out.getvalue().to_pybytes(), "lake/part.parquet")
        found = metadata_of(written(TABLE, "parquet", {}, like=own)).metadata
        assert found[columns.encode()] == b"{...}"
        assert (version.encode() in found) == kept
        assert b"pandas" not in found
        wider = TABLE.append_column("more", [[1, 2, 3]])
        assert columns.encode() not in (metadata_of(written(wider, "parquet", {}, like=own)).metadata or {})


def test_decimals_are_integers_where_the_file_has_them_so() -> None:
    table = pa.table({"price": pa.array([Decimal("1.50"), None], pa.decimal128(10, 2))})
    for whole, kind in ((True, "INT64"), (False, "FIXED_LEN_BYTE_ARRAY")):
        file = written(table, "parquet", {}, like=parquet(table, store_decimal_as_integer=whole))
        assert columns_of(file)[0].physical_type == kind


def test_row_groups_and_pages_are_of_bounded_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "GROUP_BYTES", 4 << 20)
    table = pa.table({"id": range(600), "text": [f"{i:020d}" * 1000 for i in range(600)]})
    file = write("parquet", style_of(None, "parquet"), table.schema, table.to_batches(max_chunksize=400))
    metadata = metadata_of(file)
    assert metadata.num_rows == 600
    assert 3 <= metadata.num_row_groups <= 5
    source = open_source(file, "parquet")
    file.forget()
    assert source.fetch(file, [(300, 0)], ["id"]).to_pylist() == [{"id": 300}]
    assert rows_of(file, "parquet", {}) == table


def test_what_cannot_be_read_is_not_written() -> None:
    own = parquet(pa.table([[1], [2]], names=["a", "a"]))
    with pytest.raises(UnsupportedFormat, match=r"^lake/part.parquet: columns that share a name"):
        style_of(own, "parquet")
