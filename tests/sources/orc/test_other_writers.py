"""ORC files of particular writers, with features that the specification allows or does not mention."""

import datetime as dt
import decimal
from typing import Any

import cramjam
import pyarrow as pa
import pytest

from gnomon.sources import OptionError, UnsupportedFormat, open_source
from tests.sources.orc_files import by_pyorc, encoded, patched_footer, with_codec, written
from tests.sources.readers import BytesReader

LZ4 = 4  # a CompressionKind


def read(data: bytes) -> pa.Table:
    reader = BytesReader(data)
    source = open_source(reader, "orc")
    return source.fetch(reader, [(row, 0) for row in range(source.rows or 0)], source.schema.names)


@pytest.mark.parametrize("length", range(1, 9))
def test_a_chunk_in_lz4_ends_where_its_bytes_do(length: int) -> None:
    """Footers of odd and even length: neither is padded to the block size."""
    table = pa.table({f"{'n' * length}{i}": [1, 2, 3] for i in range(9)})
    plain = written(table, compression="uncompressed", row_index_stride=10_000)
    assert read(with_codec(plain, LZ4, lambda part: bytes(cramjam.lz4.compress_block(part, store_size=False)))) == table


def test_timestamps_are_read_as_far_as_nanoseconds_reach() -> None:
    reach = [
        -9_223_286_400_000_000_000,
        -7_900_000_000_000_000_001,
        1_420_070_400_000_000_000,
        9_223_286_399_999_999_999,
    ]
    table = pa.table({"t": pa.array(reach, pa.timestamp("ns"))})
    assert read(written(table)).equals(table)


def test_decimals_passed_over_may_go_on_in_the_next_chunk() -> None:
    values = [decimal.Decimal(i**9 % 10**30).scaleb(-10) for i in range(20_000)]
    table = pa.table({"d": pa.array(values, pa.decimal128(38, 10))})
    reader = BytesReader(written(table, row_index_stride=1_000))
    source = open_source(reader, "orc")
    for row in range(999, 20_000, 1_000):
        assert source.fetch(reader, [(row, 0)], ["d"]).equals(table.slice(row, 1)), row


def test_decimals_that_stand_as_integers_are_of_version_2_whatever_the_stripe_says() -> None:
    """Java's writer of the next format declares DIRECT, and writes the encoding that others call DIRECT_V2."""
    numbers = [1, 300, -300, 300, 12, 12, 12, 12, 0]
    data = written(pa.table({"d": pa.array(numbers, pa.int64())}), compression="uncompressed", row_index_stride=10_000)
    direct, direct_2 = b"\x12\x04\x08\x00\x10\x00", b"\x12\x04\x08\x02\x10\x00"  # encodings in the stripe's footer
    assert data.count(direct_2) == 1
    data = data.replace(direct_2, direct)

    def as_decimals(key: int, value: Any) -> Any:
        is_bigint = key == 4 and value.startswith(b"\x08\x04")
        return encoded([(1, 14), (5, 3), (6, 2)]) if is_bigint else value

    data = patched_footer(data, as_decimals)
    script = data[-1 - data[-1] : -1]
    assert script.count(b"\x22\x02\x00\x0c") == 1
    script = script.replace(b"\x22\x02\x00\x0c", b"\x22\x03\x01\x8f\x4e")  # version 1.9999
    data = data[: -1 - data[-1]] + script + bytes([len(script)])
    assert read(data)["d"].to_pylist() == [decimal.Decimal(number).scaleb(-2) for number in numbers]


@pytest.mark.parametrize(("zone", "hours"), [("America/Los_Angeles", -8), ("Asia/Kolkata", 5.5), ("Europe/Dublin", 0)])
def test_before_1900_the_clock_of_java_writers_shows_standard_time(zone: str, hours: float) -> None:
    """Java's old time zones have no local mean time; those of C++ do."""
    moment = dt.datetime(1800, 7, 1, 12, tzinfo=dt.UTC)
    data = by_pyorc("struct<t:timestamp>", [(moment,)], zone, compression=0)
    by_java = patched_footer(data, lambda key, value: 0 if key == 9 else value, (11, 2))  # writer, calendar
    clock = (moment + dt.timedelta(hours=hours)).replace(tzinfo=None)
    assert read(by_java)["t"].cast(pa.timestamp("us")).to_pylist() == [clock]
    assert read(data)["t"].cast(pa.timestamp("us")).to_pylist() != [clock]


def test_timestamps_of_all_files_come_in_microseconds_when_asked_for() -> None:
    """So files with times beyond the range of nanoseconds have the same type as others."""
    near, far = dt.datetime(2020, 1, 1, 1, 2, 3, 4, tzinfo=dt.UTC), dt.datetime(1, 1, 3, tzinfo=dt.UTC)
    for moment in (near, far):
        reader = BytesReader(by_pyorc("struct<t:timestamp,l:array<timestamp>>", [(moment, [moment])]))
        source = open_source(reader, "orc", {"timestamp_unit": "us"})
        assert source.schema.types == [pa.timestamp("us"), pa.list_(pa.timestamp("us"))]
        clock = moment.replace(tzinfo=None)
        assert source.fetch(reader, [(0, 0)], ["t", "l"]).to_pylist() == [{"t": clock, "l": [clock]}]
    fine = BytesReader(written(pa.table({"t": pa.array([1_000, 1_001], pa.timestamp("ns"))})))
    with pytest.raises(UnsupportedFormat, match="column 't': a timestamp finer than a microsecond"):
        list(open_source(fine, "orc", {"timestamp_unit": "us"}).scan(fine, ["t"]))
    with pytest.raises(OptionError, match="option timestamp_unit: expected us, found 'ms'"):
        open_source(fine, "orc", {"timestamp_unit": "ms"})


def test_a_timestamp_out_of_reach_that_no_statistics_tell_of_is_refused_with_the_cure() -> None:
    data = by_pyorc("struct<t:timestamp>", [(dt.datetime(9999, 1, 3, tzinfo=dt.UTC),)], compression=0)
    reader = BytesReader(patched_footer(data, lambda key, value: b"" if key == 7 else value))  # statistics
    source = open_source(reader, "orc")
    with pytest.raises(UnsupportedFormat, match=r"column 't'.* the option timestamp_unit=us may read it") as caught:
        source.fetch(reader, [(0, 0)], ["t"])
    assert caught.value.offset is not None
    source = open_source(reader, "orc", {"timestamp_unit": "us"})
    assert source.fetch(reader, [(0, 0)], ["t"])["t"].to_pylist() == [dt.datetime(9999, 1, 3)]
