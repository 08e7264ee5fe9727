"""Parquet through the public functions: `open_source(...)`, `fetch`, `scan`, for all features of writers."""

import datetime as dt
import io
import struct
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gnomon.sources import DamagedSource, StalePointer, UnsupportedFormat, open_source
from gnomon.sources.parquet import reader as parquet_reader
from gnomon.sources.parquet import whole_reads
from tests.profiles import cases
from tests.sources.parquet_files import ROWS, flat_table, nested_table, typed_table, written
from tests.sources.readers import BytesReader
from tests.sources.source_contract import Sample, SourceContract

DELTA = {"id": "DELTA_BINARY_PACKED", "name": "DELTA_BYTE_ARRAY", "text": "DELTA_LENGTH_BYTE_ARRAY"}
WRITERS: dict[str, dict[str, Any]] = {
    "v1": {},
    "v1 page index": {"write_page_index": True},
    "v2": {"data_page_version": "2.0"},
    "v2 page index, checksums": {"data_page_version": "2.0", "write_page_index": True, "write_page_checksum": True},
    "checksums": {"write_page_checksum": True},
    "no dictionary": {"use_dictionary": False, "write_page_index": True},
    "dictionary given up mid-chunk": {"dictionary_pagesize_limit": 64},
    "dictionary given up mid-chunk, page index": {"dictionary_pagesize_limit": 64, "write_page_index": True},
    "delta encodings": {"use_dictionary": False, "column_encoding": {**DELTA, "score": "BYTE_STREAM_SPLIT"}},
    "no statistics": {"write_statistics": False},
    "no Arrow schema": {"store_schema": False},
    "one row group": {"row_group_size": 10_000},
    "a row group for each row": {"row_group_size": 1},
    **{f"{codec} v1": {"compression": codec} for codec in ("none", "gzip", "brotli", "zstd", "lz4")},
    **{
        f"{codec} v2": {"compression": codec, "data_page_version": "2.0", "write_page_index": True}
        for codec in ("none", "gzip", "brotli", "zstd", "lz4")
    },
}


@pytest.fixture(params=cases(WRITERS), scope="module")
def options(request: pytest.FixtureRequest) -> dict[str, Any]:
    return WRITERS[request.param]


class TestFlatColumns(SourceContract):
    @pytest.fixture
    def sample(self, options: dict[str, Any]) -> Sample:
        table = flat_table()
        return Sample(written(table, **options), "parquet", table.to_pylist(), one_row_bytes=12_000)


class TestNestedColumns(SourceContract):
    """A fetch of them reads the column's chunk of the row group."""

    @pytest.fixture
    def sample(self) -> Sample:
        table = nested_table()
        rows = pq.read_table(io.BytesIO(written(table))).to_pylist()
        return Sample(written(table, write_page_checksum=True), "parquet", rows, one_row_bytes=12_000)


def test_types_are_what_pyarrow_reads_of_the_whole_file() -> None:
    data = written(typed_table(), row_group_size=16)
    reader = BytesReader(data)
    source = open_source(reader, "parquet")
    whole = pq.read_table(io.BytesIO(data))
    assert source.schema == whole.schema
    table = source.fetch(reader, [(row, 0) for row in range(40)], source.schema.names)
    assert table.equals(whole)


def test_dictionary_columns_and_views_come_as_the_values_they_stand_for() -> None:
    words = pa.array(["a", "b", None, "a"])
    tags = pa.list_(pa.dictionary(pa.int8(), pa.string()))
    table = pa.table(
        {
            "dictionary": words.dictionary_encode(),
            "view": words.cast(pa.string_view()),
            "tags": pa.array([["x", "y"], None, [], ["x"]], tags),
        }
    )
    reader = BytesReader(written(table))
    source = open_source(reader, "parquet")
    assert source.schema.types == [pa.string(), pa.string(), pa.list_(pa.field("element", pa.string()))]
    fetched = source.fetch(reader, [(row, 0) for row in (3, 2, 1, 0)], source.schema.names)
    assert fetched.to_pylist() == table.to_pylist()[::-1]
    assert next(source.scan(reader, source.schema.names))["view"].to_pylist() == words.to_pylist()


def test_int96_far_from_today_does_not_wrap() -> None:
    years = [dt.datetime(1, 1, 1), dt.datetime(1600, 5, 5, 1, 2, 3, 4), None, dt.datetime(9999, 12, 31, 23, 59, 59)]
    table = pa.table({"at": pa.array(years, pa.timestamp("us"))})
    reader = BytesReader(written(table, use_deprecated_int96_timestamps=True))
    source = open_source(reader, "parquet")
    instants = [year and year.replace(tzinfo=dt.UTC) for year in years]  # as Spark, their writer, defines them
    assert source.schema.field("at").type == pa.timestamp("us", "UTC")
    assert source.fetch(reader, [(i, 0) for i in range(4)], ["at"])["at"].to_pylist() == instants
    assert next(source.scan(reader, ["at"]))["at"].to_pylist() == instants


def test_of_columns_that_share_a_name_the_first_answers() -> None:
    table = pa.Table.from_arrays([pa.array([1, 2]), pa.array(["x", "y"]), pa.array([3, 4])], ["a", "b", "a"])
    reader = BytesReader(written(table))
    source = open_source(reader, "parquet")
    assert source.schema.names == ["a", "b"]
    assert source.fetch(reader, [(1, 0)], ["a", "b"]).to_pylist() == [{"a": 2, "b": "y"}]


def test_names_with_dots_and_other_scripts_are_columns_like_any_other() -> None:
    table = pa.table({"a.b": ["x", "y"], "naïve 名": [[1], [2]], "a": [{"b": 1}, {"b": 2}]})
    reader = BytesReader(written(table))
    source = open_source(reader, "parquet")
    assert source.fetch(reader, [(1, 0)], source.schema.names).to_pylist() == table.to_pylist()[1:]


def test_a_name_that_holds_a_nul_is_refused_for_its_column_alone() -> None:
    reader = BytesReader(written(pa.table({"a\0b": [1], "c": [{"x\0": 1}], "d": [2]})), "lake/nul")
    source = open_source(reader, "parquet")
    assert source.fetch(reader, [(0, 0)], ["d"]).to_pylist() == [{"d": 2}]
    for name in ("a\0b", "c"):
        with pytest.raises(UnsupportedFormat, match="contains a NUL"):
            source.fetch(reader, [(0, 0)], [name])


def test_a_column_may_be_asked_for_twice_and_none_at_all() -> None:
    reader = BytesReader(written(flat_table()))
    source = open_source(reader, "parquet")
    twice = source.fetch(reader, [(7, 0)], ["id", "id"])
    assert [column.to_pylist() for column in twice.columns] == [[7], [7]]
    assert source.fetch(reader, [(7, 0), (7, 0)], []).num_rows == 2
    assert sum(batch.num_rows for batch in source.scan(reader, [])) == ROWS


@pytest.mark.parametrize("rows", [0, 1])
def test_empty_files_and_empty_row_groups_have_no_rows_to_point_at(rows: int) -> None:
    schema = pa.schema([("a", pa.int64()), ("b", pa.list_(pa.string()))])
    buffer = io.BytesIO()
    with pq.ParquetWriter(buffer, schema) as writer:
        writer.write_table(schema.empty_table())
        writer.write_table(pa.table({"a": list(range(rows)), "b": [["x"]] * rows}, schema))
        writer.write_table(schema.empty_table())
    reader = BytesReader(buffer.getvalue())
    source = open_source(reader, "parquet")
    assert source.rows == rows
    assert [batch["a"].to_pylist() for batch in source.scan(reader, ["a", "b"])] == [[0]] * rows
    assert source.fetch(reader, [(0, 0)] * rows, ["a", "b"]).to_pylist() == [{"a": 0, "b": ["x"]}] * rows


@pytest.mark.parametrize("pointer", [(ROWS, 0), (-1, 0), (0, 1), (1 << 62, 0)])
def test_a_pointer_no_row_has_is_stale(pointer: tuple[int, int]) -> None:
    reader = BytesReader(written(flat_table()), "lake/a.parquet")
    source = open_source(reader, "parquet")
    with pytest.raises(StalePointer, match=r"lake/a.parquet: no row at pointer .* has 300"):
        source.fetch(reader, [(0, 0), pointer], ["id"])


def test_a_column_the_file_does_not_have_is_the_callers_mistake() -> None:
    reader = BytesReader(written(flat_table()), "lake/a.parquet")
    with pytest.raises(KeyError, match=r"lake/a.parquet: no column 'nope'; it has id, name"):
        open_source(reader, "parquet").fetch(reader, [(0, 0)], ["nope"])


def test_a_store_that_fails_is_not_called_damage() -> None:
    class FailingReader(BytesReader):
        failing = False

        def _bytes(self, offset: int, length: int) -> bytes:
            if self.failing:
                raise ConnectionResetError("the store went away")
            return super()._bytes(offset, length)

    reader = FailingReader(written(flat_table()))
    source = open_source(reader, "parquet")
    reader.failing = True
    with pytest.raises(ConnectionResetError, match="the store went away"):
        source.fetch(reader, [(0, 0)], ["id"])
    with pytest.raises(ConnectionResetError, match="the store went away"):
        list(source.scan(reader, ["id"]))


def test_an_encrypted_footer_is_refused() -> None:
    data = written(flat_table())
    with pytest.raises(UnsupportedFormat, match="lake/secret: the footer is encrypted"):
        open_source(BytesReader(data[:-4] + b"PARE", "lake/secret"), "parquet")


def test_an_unknown_codec_is_refused_for_its_column_alone() -> None:
    data = written(flat_table(), compression="snappy", row_group_size=10_000)
    codec_of_id = b"\x18\x02id\x15"  # the column's path, then field 4 of the chunk's metadata
    assert data.count(codec_of_id + b"\x02") == 1
    changed = data.replace(codec_of_id + b"\x02", codec_of_id + b"\x06")  # LZO
    reader = BytesReader(changed, "lake/lzo")
    source = open_source(reader, "parquet")
    assert source.fetch(reader, [(3, 0)], ["text"]).to_pylist() == [{"text": "333"}]
    with pytest.raises(UnsupportedFormat, match="lake/lzo: column id: row group 0: compression codec 3"):
        source.fetch(reader, [(3, 0)], ["id"])
    with pytest.raises(UnsupportedFormat, match="lake/lzo: column id: row group 0: compression codec 3"):
        list(source.scan(reader, ["text", "id"]))


def test_a_footer_larger_than_the_first_read_takes_one_read_more() -> None:
    wide = pa.table({f"column {i:04}": [i] for i in range(1500)})
    reader = BytesReader(written(wide))
    source = open_source(reader, "parquet")
    assert reader.rounds == 2
    assert source.fetch(reader, [(0, 0)], ["column 1234"]).to_pylist() == [{"column 1234": 1234}]
    small = BytesReader(written(flat_table()))
    open_source(small, "parquet")
    assert small.rounds == 1


def test_a_page_index_that_came_with_the_footer_is_not_read_again() -> None:
    reader = BytesReader(written(flat_table(20_000), write_page_index=True, row_group_size=5000, data_page_size=4096))
    source = open_source(reader, "parquet")
    assert reader.rounds == 1
    assert source.fetch(reader, [(12_345, 0)], ["id", "text"])["id"].to_pylist() == [12_345]
    assert reader.rounds == 2


def test_cache_bytes_grow_with_the_pages_mapped_and_only_then() -> None:
    reader = BytesReader(written(flat_table()))
    source = open_source(reader, "parquet")
    before = source.cache_bytes
    source.fetch(reader, [(0, 0)], ["id"])
    mapped = source.cache_bytes
    assert before < mapped
    source.fetch(reader, [(1, 0)], ["id"])
    assert source.cache_bytes == mapped


def test_threads_may_share_a_file() -> None:
    table = flat_table()
    reader = BytesReader(written(table, row_group_size=16))
    source = open_source(reader, "parquet")
    rows = table.to_pylist()

    def one(row: int) -> bool:
        return source.fetch(reader, [(row, 0)], table.column_names).to_pylist() == [rows[row]]

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(one, range(ROWS)))


@pytest.mark.parametrize("claim", [0, 1 << 31])
def test_a_footer_length_that_cannot_be_is_damage(claim: int) -> None:
    data = written(flat_table())
    broken = data[:-8] + struct.pack("<I", claim & 0xFFFFFFFF) + b"PAR1"
    with pytest.raises(DamagedSource, match="lake/a"):
        open_source(BytesReader(broken, "lake/a"), "parquet")


def test_a_scan_decodes_fewer_of_long_rows_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    table = pa.table({"text": [f"{i:05}" * 200 for i in range(400)], "l": [[i] for i in range(400)]})
    data = written(table, row_group_size=400, use_dictionary=False, compression="none")
    sizes = {}
    for limit in (64 << 20, 100_000):
        monkeypatch.setattr(whole_reads, "BATCH_BYTES", limit)
        reader = BytesReader(data)
        batches = list(open_source(reader, "parquet").scan(reader, ["text", "l"]))
        assert pa.Table.from_batches(batches).select(["text", "l"]) == table
        sizes[limit] = [batch.num_rows for batch in batches if batch.num_rows]
    assert sizes[64 << 20] == [400]
    assert 80 < max(sizes[100_000]) <= 100


def test_pages_that_are_decoded_on_all_cores_give_the_same_rows_and_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    table = pa.table({name: [f"{name} {row}" * (row % 7) for row in range(3000)] for name in "abc"})
    data = written(table, row_group_size=1000, data_page_size=1 << 10, use_dictionary=False)
    pointers = [(row, 0) for row in range(0, table.num_rows, 3)]
    found, errors = [], []
    monkeypatch.setattr(pa, "cpu_count", lambda: 4)
    for much in (1 << 60, 0):
        monkeypatch.setattr(parquet_reader, "MUCH_BYTES", much)
        source, reader = open_source(BytesReader(data), "parquet"), BytesReader(data)
        found.append(source.fetch(reader, pointers, table.column_names))
        reader.data = data[:2000] + bytes(3000) + data[5000:]
        with pytest.raises(DamagedSource) as caught:
            source.fetch(reader, pointers, table.column_names)
        errors.append(str(caught.value))
    assert found[0].to_pylist() == table.to_pylist()[::3] == found[1].to_pylist()
    assert errors[0] == errors[1]
