"""ORC through the public functions: `open_source(...)`, `fetch`, `scan`, for all features of writers."""

import datetime as dt
import decimal
import io
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from zoneinfo import ZoneInfo

import cramjam
import lzallright
import numpy as np
import pyarrow as pa
import pytest
from pyarrow import orc

from gnomon.shadow.values.row_values import python_values
from gnomon.sources import DamagedSource, StalePointer, UnsupportedFormat, detect, open_source
from tests.profiles import cases
from tests.sources.orc_files import (
    ROWS,
    by_pyorc,
    flat_table,
    nested_table,
    odd_types,
    patched_footer,
    striped,
    typed_table,
    with_codec,
    written,
)
from tests.sources.readers import BytesReader
from tests.sources.source_contract import Sample, SourceContract

WRITERS: dict[str, dict[str, Any]] = {
    "version 0.12": {},
    "version 0.11": {"file_version": "0.11"},
    "dictionaries": {"dictionary_key_size_threshold": 1.0},
    "dictionaries, version 0.11": {"dictionary_key_size_threshold": 1.0, "file_version": "0.11"},
    "one group of rows": {"row_index_stride": 10_000},
    "groups of one row": {"row_index_stride": 1},
    "bloom filters": {"bloom_filter_columns": [0, 1]},
    **{codec: {"compression": codec} for codec in ("uncompressed", "snappy", "lz4", "zstd")},
}


@pytest.fixture(params=cases(WRITERS), scope="module")
def options(request: pytest.FixtureRequest) -> dict[str, Any]:
    return WRITERS[request.param]


class TestFlatColumns(SourceContract):
    @pytest.fixture
    def sample(self, options: dict[str, Any]) -> Sample:
        table = flat_table()
        return Sample(written(table, **options), "orc", table.to_pylist(), one_row_bytes=8_000)


class TestStripes(SourceContract):
    @pytest.fixture
    def sample(self) -> Sample:
        table = flat_table()
        return Sample(striped(table, compression="uncompressed"), "orc", table.to_pylist(), one_row_bytes=3_500)


class TestNestedColumns(SourceContract):
    @pytest.fixture(params=["0.11", "0.12"])
    def sample(self, request: pytest.FixtureRequest) -> Sample:
        table = nested_table()
        return Sample(written(table, file_version=request.param), "orc", table.to_pylist(), one_row_bytes=6_000)


class TestNoRowIndex(SourceContract):
    """A fetch decodes from the first row of the stripe."""

    @pytest.fixture
    def sample(self) -> Sample:
        rows = [(i, None if i % 5 == 0 else f"text {i}") for i in range(ROWS)]
        data = by_pyorc("struct<id:bigint,text:string>", rows, row_index_stride=0)
        expected: list[dict[str, object]] = [{"id": i, "text": text} for i, text in rows]
        return Sample(data, "orc", expected, one_row_bytes=2_000)


class TestUnionsAndTimeZones(SourceContract):
    @pytest.fixture
    def sample(self) -> Sample:
        data = odd_types()
        return Sample(data, "orc", orc.read_table(io.BytesIO(data)).to_pylist(), one_row_bytes=6_000)


@pytest.mark.parametrize("version", ["0.11", "0.12"])
@pytest.mark.parametrize("codec", ["uncompressed", "zlib", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("make", [flat_table, nested_table, typed_table])
def test_values_and_types_are_what_pyarrow_reads_of_the_whole_file(make: Any, codec: str, version: str) -> None:
    data = written(make(), compression=codec, file_version=version)
    whole = orc.read_table(io.BytesIO(data))
    reader = BytesReader(data)
    source = open_source(reader, "orc")
    assert source.schema == whole.schema
    table = source.fetch(reader, [(row, 0) for row in range(ROWS)], source.schema.names)
    assert table.equals(whole)
    assert pa.Table.from_batches(source.scan(reader, source.schema.names)).select(source.schema.names).equals(whole)


def test_runs_of_every_kind_and_width_are_read() -> None:
    dice = np.random.default_rng(3)
    columns = {}
    for bits in (1, 2, 3, 5, 8, 9, 13, 16, 17, 24, 25, 30, 32, 39, 48, 55, 63):
        columns[f"plain {bits}"] = dice.integers(0, 1 << bits, 1500)
        columns[f"signed {bits}"] = dice.integers(-(1 << bits - 1), 1 << bits - 1, 1500)
        columns[f"rising {bits}"] = np.cumsum(dice.integers(0, (1 << bits) // 1500 + 2, 1500))
        columns[f"spikes {bits}"] = np.where(dice.random(1500) < 0.02, 1 << bits - 1, dice.integers(-9, 9, 1500))
        columns[f"repeats {bits}"] = np.repeat(dice.integers(0, 1 << bits, 500), dice.integers(1, 13, 500))[:1500]
    table = pa.table({name: values[:1500] for name, values in columns.items()})
    for version in ("0.11", "0.12"):
        reader = BytesReader(written(table, file_version=version, row_index_stride=700))
        source = open_source(reader, "orc")
        assert source.fetch(reader, [(row, 0) for row in range(1500)], table.column_names).equals(table)
        for row in (0, 511, 512, 699, 700, 1399, 1400, 1499):
            assert source.fetch(reader, [(row, 0)], table.column_names).equals(table.slice(row, 1))


@pytest.mark.parametrize("kind", [3, 6], ids=["LZO", "Brotli"])
def test_codecs_that_our_writers_lack_are_read(kind: int) -> None:
    pack = lzallright.LZOCompressor().compress if kind == 3 else lambda data: bytes(cramjam.brotli.compress(data))
    for table in (flat_table().select(["id", "text"]), pa.table({"text": ["hello world " * 20] * ROWS})):
        data = with_codec(written(table, compression="uncompressed", row_index_stride=10_000), kind, pack)
        reader = BytesReader(data)
        source = open_source(reader, "orc")
        assert source.fetch(reader, [(row, 0) for row in range(ROWS)], table.column_names).equals(table)
    if kind == 3:  # pyarrow has no Brotli, and fails on the LZO of the other table
        assert orc.read_table(io.BytesIO(data)).equals(table)


def test_a_projection_reads_its_own_columns_alone() -> None:
    reader = BytesReader(striped(typed_table()))
    source = open_source(reader, "orc")
    names = source.schema.names
    source.fetch(reader, [(3, 0)], names)
    costs = {}
    for asked in (names, ["int8"], ["bool", "int16"]):
        reader.forget()
        assert source.fetch(reader, [(3, 0)], asked).schema.names == asked
        costs[len(asked)] = reader.bytes_read
    assert costs[1] < costs[2] < costs[len(names)] / 10


def test_a_first_fetch_takes_two_rounds_and_later_ones_one() -> None:
    reader = BytesReader(written(flat_table()))
    source = open_source(reader, "orc")
    assert reader.rounds == 1
    reader.forget()
    source.fetch(reader, [(5, 0), (200, 0)], source.schema.names)
    assert reader.rounds == 2
    reader.forget()
    source.fetch(reader, [(70, 0), (299, 0)], source.schema.names)
    assert reader.rounds == 1


def test_rows_of_many_stripes_are_read_in_one_round() -> None:
    table = flat_table(3000)
    reader = BytesReader(striped(table))
    source = open_source(reader, "orc")
    pointers = [(row, 0) for row in range(0, 3000, 100)]
    source.fetch(reader, pointers, ["id", "text"])
    reader.forget()
    assert source.fetch(reader, pointers, ["id"])["id"].to_pylist() == list(range(0, 3000, 100))
    assert reader.rounds == 1


def test_one_row_of_a_long_column_reads_its_group_of_rows() -> None:
    dice = np.random.default_rng(5)
    table = pa.table({"id": dice.integers(0, 1 << 60, 200_000)})
    for codec in ("uncompressed", "zstd"):
        reader = BytesReader(written(table, compression=codec, row_index_stride=10_000))
        source = open_source(reader, "orc")
        source.fetch(reader, [(0, 0)], ["id"])
        reader.forget()
        assert source.fetch(reader, [(123_456, 0)], ["id"]).equals(table.slice(123_456, 1))
        assert reader.rounds == 1
        assert reader.bytes_read < 10_000 * 8 + (2 * 65_536 if codec == "zstd" else 5_200)


def test_a_run_that_goes_on_in_the_next_chunk_is_read_to_its_end() -> None:
    """Groups of rows end anywhere in runs and chunks; each row is fetched alone."""
    dice = np.random.default_rng(6)
    table = pa.table({"id": dice.integers(0, 1 << 60, 30_000)})
    reader = BytesReader(written(table, row_index_stride=1000))
    source = open_source(reader, "orc")
    for row in range(0, 30_000, 333):
        assert source.fetch(reader, [(row, 0)], ["id"]).equals(table.slice(row, 1))


def test_timestamps_are_the_wall_clock_of_the_writers_zone() -> None:
    """Also in summer, on the days when clocks change, after 2037, and before time zones existed."""
    moments = [
        dt.datetime(2015, 1, 1, tzinfo=dt.UTC),
        *(dt.datetime(2021, 3, 14, 9, 45, tzinfo=dt.UTC) + dt.timedelta(minutes=10 * i) for i in range(4)),
        *(dt.datetime(2021, 11, 7, 8, 45, tzinfo=dt.UTC) + dt.timedelta(minutes=10 * i) for i in range(4)),
        dt.datetime(2050, 7, 1, 12, tzinfo=dt.UTC),
        dt.datetime(1850, 7, 1, 12, tzinfo=dt.UTC),
        dt.datetime(1969, 12, 31, 23, 59, 58, 500_000, tzinfo=dt.UTC),
    ]
    for name in ("America/Los_Angeles", "Asia/Kolkata", "Australia/Lord_Howe", "UTC"):
        data = by_pyorc("struct<t:timestamp>", [(moment,) for moment in moments], name)
        reader = BytesReader(data)
        source = open_source(reader, "orc")
        assert source.schema.field("t").type == pa.timestamp("ns")
        got = source.fetch(reader, [(row, 0) for row in range(len(moments))], ["t"])["t"].cast(pa.timestamp("us"))
        clock = [moment.astimezone(ZoneInfo(name)).replace(tzinfo=None) for moment in moments]
        assert got.to_pylist() == clock


def test_instants_do_not_depend_on_the_writers_zone() -> None:
    moment = dt.datetime(2021, 7, 1, 12, tzinfo=dt.UTC)
    reader = BytesReader(by_pyorc("struct<t:timestamp with local time zone>", [(moment,)], "America/Los_Angeles"))
    source = open_source(reader, "orc")
    assert source.schema.field("t").type == pa.timestamp("ns", "UTC")
    assert source.fetch(reader, [(0, 0)], ["t"])["t"].cast(pa.timestamp("us", "UTC")).to_pylist() == [moment]


def test_timestamps_that_nanoseconds_do_not_reach_come_in_microseconds() -> None:
    moments = [dt.datetime(1, 1, 2, 3, tzinfo=dt.UTC), dt.datetime(9999, 12, 30, tzinfo=dt.UTC)]
    reader = BytesReader(by_pyorc("struct<t:timestamp>", [(moment,) for moment in moments]))
    source = open_source(reader, "orc")
    assert source.schema.field("t").type == pa.timestamp("us")
    got = source.fetch(reader, [(0, 0), (1, 0)], ["t"])["t"].to_pylist()
    assert got == [moment.replace(tzinfo=None) for moment in moments]


@pytest.mark.parametrize("calendar", [0, 1, 2])
def test_old_dates_of_java_writers_are_those_of_its_calendar(calendar: int) -> None:
    """The calendar is Julian before 1582-10-15, unless the footer declares the proleptic one."""
    days = [-719_164, -141_428, -141_427, 0]
    seconds = [day * 86_400 + 3_661 for day in days]
    table = pa.table({"d": pa.array(days, pa.date32()), "t": pa.array(seconds, pa.timestamp("s"))})
    data = written(table, compression="uncompressed")
    reader = BytesReader(patched_footer(data, lambda key, value: 0 if key == 9 else value, (11, calendar)))
    source = open_source(reader, "orc")
    got = source.fetch(reader, [(row, 0) for row in range(4)], ["d", "t"])
    hybrid = ["0001-01-01", "1582-10-04", "1582-10-15", "1970-01-01"]
    proleptic = ["0000-12-30", "1582-10-14", "1582-10-15", "1970-01-01"]
    expected = proleptic if calendar == 2 else hybrid
    assert [str(value) for value in python_values(got["d"])] == expected
    assert [str(value)[:10] for value in python_values(got["t"])] == expected


def test_types_nested_deeply_are_read_and_deeper_ones_refused() -> None:
    for depth, fine in ((140, True), (160, False)):
        value: Any = 7
        for _ in range(depth):
            value = [value]
        data = by_pyorc(f"struct<v:{'array<' * depth}int{'>' * depth}>", [(value,)])
        reader = BytesReader(data)
        if fine:
            source = open_source(reader, "orc")
            assert source.fetch(reader, [(0, 0)], ["v"])["v"].to_pylist() == [value]
        else:
            with pytest.raises(UnsupportedFormat, match="nested deeper than 150"):
                open_source(reader, "orc")


def test_decimals_come_at_the_scale_of_their_type() -> None:
    numbers = [decimal.Decimal(text) for text in ("0", "-0.01", "12345678901234567890.12", "-99999999999999999999.99")]
    table = pa.table({"d": pa.array([*numbers, None], pa.decimal128(22, 2))})
    reader = BytesReader(written(table))
    source = open_source(reader, "orc")
    assert source.fetch(reader, [(row, 0) for row in range(5)], ["d"]).equals(table)


def test_a_union_shows_its_value_alone() -> None:
    reader = BytesReader(odd_types())
    source = open_source(reader, "orc")
    column = source.fetch(reader, [(row, 0) for row in range(8)], ["u"])["u"]
    assert pa.types.is_union(column.type)
    assert python_values(column) == [0, "s1", [2, 2], None, 4, "s5", [], None]


def test_a_map_with_a_null_key_is_refused_by_name() -> None:
    """Such a map ends the process in pyarrow's own reader and in an Arrow array."""
    reader = BytesReader(by_pyorc("struct<m:map<string,int>,n:int>", [({"a": 1}, 1), ({None: 2}, 2)]))
    source = open_source(reader, "orc")
    assert python_values(source.fetch(reader, [(0, 0)], ["m"])["m"]) == [{"a": 1}]
    with pytest.raises(UnsupportedFormat, match="column 'm' in stripe 0: a map has a null key"):
        source.fetch(reader, [(1, 0)], ["m"])
    assert source.fetch(reader, [(1, 0)], ["n"]).to_pylist() == [{"n": 2}]


@pytest.mark.slow
def test_rows_too_large_to_be_read_together_are_read_alone() -> None:
    table = pa.table({"blob": [bytes([row]) * (20 << 20) for row in range(5)], "n": range(5)})
    reader = BytesReader(written(table, compression="zstd"))
    source = open_source(reader, "orc")
    batches = list(source.scan(reader, ["blob", "n"]))
    assert max(batch.nbytes for batch in batches) < 41 << 20
    assert pa.Table.from_batches(batches).select(["blob", "n"]).equals(table)
    assert source.fetch(reader, [(row, 0) for row in range(5)], ["blob", "n"]).equals(table)


def test_lists_too_long_to_be_read_together_are_read_alone() -> None:
    lengths = [3, 3 << 20, 0, 3 << 20, 5]
    offsets = np.concatenate(([0], np.cumsum(lengths)))
    values = pa.array(np.zeros(offsets[-1], np.int64))
    table = pa.table({"list": pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values)})
    reader = BytesReader(written(table, compression="zstd"))
    source = open_source(reader, "orc")
    assert pa.Table.from_batches(source.scan(reader, ["list"])).select(["list"]).equals(table)
    assert source.fetch(reader, [(row, 0) for row in range(5)], ["list"]).equals(table)


@pytest.mark.parametrize("pointer", [(-1, 0), (ROWS, 0), (0, 1), (1 << 40, 0)])
def test_a_pointer_that_the_file_does_not_have_is_stale(pointer: tuple[int, int]) -> None:
    reader = BytesReader(written(flat_table()), "lake/file")
    source = open_source(reader, "orc")
    with pytest.raises(StalePointer, match="lake/file"):
        source.fetch(reader, [pointer], ["id"])


def test_a_file_without_rows_gives_none() -> None:
    reader = BytesReader(written(flat_table(0).cast(flat_table().schema)))
    source = open_source(reader, "orc")
    assert source.rows == 0
    assert list(source.scan(reader, source.schema.names)) == []
    assert source.fetch(reader, [], ["id"]).num_rows == 0


def test_of_columns_that_share_a_name_the_first_is_read() -> None:
    table = pa.table([pa.array([1]), pa.array(["x"])], names=["a", "b"])
    data = written(table, compression="uncompressed").replace(b"\x1a\x01b", b"\x1a\x01a")
    reader = BytesReader(data)
    source = open_source(reader, "orc")
    assert source.schema.names == ["a"]
    assert source.fetch(reader, [(0, 0)], ["a"]).to_pylist() == [{"a": 1}]


def test_the_bytes_are_known_as_orc() -> None:
    assert detect(BytesReader(written(flat_table()), "lake/anything")) == "orc"


def test_threads_share_a_file() -> None:
    table = striped(flat_table())
    reader = BytesReader(table)
    source = open_source(reader, "orc")

    def one(row: int) -> list[dict[str, object]]:
        rows: list[dict[str, object]] = source.fetch(BytesReader(table), [(row, 0)], source.schema.names).to_pylist()
        return rows

    with ThreadPoolExecutor(8) as pool:
        got = list(pool.map(one, range(ROWS)))
    assert [row for (row,) in got] == flat_table().to_pylist()


def test_what_is_learnt_of_stripes_is_counted_as_cache() -> None:
    reader = BytesReader(striped(flat_table(3000)))
    source = open_source(reader, "orc")
    before = source.cache_bytes
    source.fetch(reader, [(row, 0) for row in range(0, 3000, 50)], ["id"])
    assert before < source.cache_bytes < 200_000


class Failing(BytesReader):
    """A store that fails after the file was opened."""

    def read_ranges(self, ranges: Any) -> list[bytes]:
        raise ConnectionError("the store went away")


def test_an_error_of_the_store_is_passed_on_as_it_is() -> None:
    reader = Failing(written(flat_table()))
    source = open_source(reader, "orc")
    with pytest.raises(ConnectionError, match="went away"):
        source.fetch(reader, [(0, 0)], ["id"])
    with pytest.raises(ConnectionError, match="went away"):
        list(source.scan(reader, ["id"]))


def test_a_writers_zone_that_is_not_known_refuses_the_column_alone() -> None:
    data = by_pyorc(
        "struct<t:timestamp,n:int>", [(dt.datetime(2020, 1, 1, tzinfo=dt.UTC), 1)], "Asia/Tokyo", compression=0
    )
    reader = BytesReader(data.replace(b"Asia/Tokyo", b"Asia/Tokio"))
    source = open_source(reader, "orc")
    with pytest.raises(UnsupportedFormat, match="column 't' in stripe 0: the writer's time zone 'Asia/Tokio' is not"):
        source.fetch(reader, [(0, 0)], ["t"])
    assert source.fetch(reader, [(0, 0)], ["n"]).to_pylist() == [{"n": 1}]


def test_a_root_that_is_no_struct_is_refused() -> None:
    reader = BytesReader(by_pyorc("int", [1, 2], compression=0), "lake/int")  # type: ignore[list-item]
    with pytest.raises((UnsupportedFormat, DamagedSource), match="the root is of type kind 3"):
        open_source(reader, "orc")
