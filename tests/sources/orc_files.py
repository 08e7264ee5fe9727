"""Small ORC files of every kind that writers can make, for the tests of `gnomon.sources.orc`."""

import datetime as dt
import decimal
import functools
import io
from collections.abc import Callable, Sequence
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyorc
from pyarrow import orc

from gnomon.sources.orc.metadata import parse_footer, parse_postscript
from gnomon.sources.orc.schema import fields, message
from tests.sources.corpora import files_of, reader_of
from tests.sources.parquet_files import flat_table

ROWS = 300
FOREIGN_BYTES = 100_000  # most bytes of a mutated foreign file: larger ones take too long


def written(table: pa.Table, **options: Any) -> bytes:
    """A file of ORC's C++ writer through pyarrow, with several groups of rows unless `options` change that."""
    settings = {"row_index_stride": 64, "compression": "zlib", "compression_block_size": 64 << 10, **options}
    buffer = io.BytesIO()
    orc.write_table(table, buffer, **settings)
    return buffer.getvalue()


def striped(table: pa.Table, **options: Any) -> bytes:
    """The same in several stripes: the writer checks a stripe's size after each batch."""
    return written(table, **{"stripe_size": 1024, "batch_size": 64, **options})


def by_pyorc(schema: str, rows: list[tuple[Any, ...]], zone: str = "UTC", **options: Any) -> bytes:
    """A file of ORC's C++ writer through pyorc, which has types that pyarrow does not write."""
    buffer = io.BytesIO()
    settings = {"row_index_stride": 10_000, "timezone": ZoneInfo(zone), **options}
    with pyorc.Writer(buffer, schema, **settings) as writer:
        writer.writerows(rows)
    return buffer.getvalue()


def nested_table(rows: int = ROWS) -> pa.Table:
    kind = pa.struct([("x", pa.int32()), ("tags", pa.list_(pa.string()))])
    return pa.table(
        {
            "id": pa.array(range(rows), pa.int64()),
            "numbers": [None if i % 6 == 5 else [j if j % 2 else None for j in range(i % 4)] for i in range(rows)],
            "record": pa.array(
                [None if i % 5 == 4 else {"x": i, "tags": None if i % 3 else [f"t{i}", None]} for i in range(rows)],
                kind,
            ),
            "map": pa.array(
                [None if i % 7 == 6 else [(f"k{j}", j) for j in range(i % 3)] for i in range(rows)],
                pa.map_(pa.string(), pa.int64()),
            ),
        }
    )


def typed_table(rows: int = ROWS) -> pa.Table:
    """A column of every type that pyarrow writes, with a null in each."""

    def column(kind: pa.DataType, make: Any) -> pa.Array:
        return pa.array([None if i % 13 == 7 else make(i) for i in range(rows)], kind)

    day, moment = dt.date(1995, 6, 15), dt.datetime(1969, 12, 31, 23, 59, 58, 250_000)
    return pa.table(
        {
            "bool": column(pa.bool_(), lambda i: i % 3 == 0),
            "int8": column(pa.int8(), lambda i: i % 256 - 128),
            "int16": column(pa.int16(), lambda i: (i * 7919) % 65536 - 32768),
            "int32": column(pa.int32(), lambda i: (i * 104729 * 7919) % (1 << 32) - (1 << 31)),
            "int64": column(pa.int64(), lambda i: (i * 104729**3) % (1 << 64) - (1 << 63)),
            "steps": column(pa.int64(), lambda i: 1000 + 7 * i),
            "falling": column(pa.int64(), lambda i: 10_000 - i * (i % 3 + 1)),
            "spikes": column(pa.int64(), lambda i: 1 << 40 if i % 97 == 5 else i % 50),
            "float": column(pa.float32(), lambda i: i / 7),
            "double": column(pa.float64(), lambda i: -i / 7),
            "string": column(pa.string(), lambda i: "é" * (i % 5)),
            "binary": column(pa.binary(), lambda i: bytes([i % 256, 0, 255])),
            "decimal": column(pa.decimal128(9, 2), lambda i: decimal.Decimal(i - 150).scaleb(-2)),
            "wide": column(pa.decimal128(38, 10), lambda i: decimal.Decimal((i - 150) * 10**30 + i).scaleb(-10)),
            "date": column(pa.date32(), lambda i: day + dt.timedelta(days=i * 100)),
            "timestamp": column(pa.timestamp("ns"), lambda i: moment + dt.timedelta(milliseconds=i * i * 11)),
            "instant": column(pa.timestamp("ns", "UTC"), lambda i: moment + dt.timedelta(microseconds=i * 10**9 + i)),
        }
    )


def odd_types() -> bytes:
    """Content that pyarrow does not write: unions, padded texts, a writer's time zone, repeated bytes."""
    kind = (
        "struct<tiny:tinyint,u:uniontype<int,string,array<int>>,c:char(5),v:varchar(9),at:timestamp,"
        "i:timestamp with local time zone>"
    )
    moment = dt.datetime(2020, 6, 15, 12, 30, tzinfo=dt.UTC)
    rows = [
        (
            i // 40,
            (i, f"s{i}", [i] * (i % 3), None)[i % 4],
            f"c{i % 7}",
            "v" * (i % 10),
            *[moment + dt.timedelta(hours=i)] * 2,
        )
        for i in range(ROWS)
    ]
    return by_pyorc(kind, rows, "America/Los_Angeles")


@functools.cache
def seeds() -> list[bytes]:
    """The seeds of the fuzzer: our files in every codec, and small foreign ones, if present."""
    ours = [
        written(make(80), compression=codec, file_version=version, row_index_stride=stride)
        for make in (flat_table, nested_table, typed_table)
        for codec in ("uncompressed", "zlib", "snappy", "lz4", "zstd")
        for version, stride in (("0.11", 20), ("0.12", 16), ("0.12", 10_000))
    ]
    foreign = [reader_of(each.values[0]).data for each in files_of("orc", "good", "encrypted", "other-reader")]
    return [*ours, odd_types(), *(data for data in foreign if len(data) <= FOREIGN_BYTES)]


def with_codec(data: bytes, kind: int, pack: Callable[[bytes], bytes]) -> bytes:
    """An uncompressed file of one stripe without row indexes, packed with a codec that the C++ writer lacks."""

    def chunk(part: bytes) -> bytes:
        body = pack(part)
        if len(body) >= len(part):  # stays plain
            return (len(part) << 1 | 1).to_bytes(3, "little") + part if part else b""
        return (len(body) << 1).to_bytes(3, "little") + body

    tail = data[-1 - data[-1] : -1]
    postscript = parse_postscript(tail)
    footer_bytes = data[-1 - data[-1] - postscript.footer_length : -1 - data[-1]]
    footer = parse_footer(footer_bytes, postscript, len(data))
    (place,) = footer.stripes
    stripe_footer = data[place.footer_offset : place.footer_offset + place.footer_length]
    out, at, changed = bytearray(b"ORC"), place.offset, []
    for key, value in fields(stripe_footer):
        if key == 1:
            stream = dict(fields(message(value)))
            length = int(stream[3])  # type: ignore[arg-type]
            packed = chunk(data[at : at + length])
            at += length
            out += packed
            stream[3] = len(packed)
            changed.append((key, encoded(list(stream.items()))))
        else:
            changed.append((key, value))  # type: ignore[arg-type]
    data_length = len(out) - 3
    packed_footer = chunk(encoded(changed))
    out += packed_footer
    stripe = {1: 3, 2: 0, 3: data_length, 4: len(packed_footer), 5: place.rows}
    whole = [
        (key, encoded(list(stripe.items())) if key == 3 else value)
        for key, value in fields(footer_bytes)
        if key not in (1, 2, 7)
    ]
    packed_whole = chunk(encoded(whole))
    script = encoded([(1, len(packed_whole)), (2, kind), (3, 1 << 18), (4, 0), (4, 12), (5, 0), (6, 9), (8000, b"ORC")])
    return bytes(out) + packed_whole + script + bytes([len(script)])


def patched_footer(data: bytes, change: Callable[[int, Any], Any], *more: tuple[int, int]) -> bytes:
    """An uncompressed file with changed fields of its footer, and `more` after them."""
    script = dict(fields(data[-1 - data[-1] : -1]))
    start = len(data) - 1 - data[-1] - int(script[1])  # type: ignore[call-overload]
    footer = encoded([*((key, change(key, value)) for key, value in fields(data[start : -1 - data[-1]])), *more])
    script[1] = len(footer)
    ending = encoded(list(script.items()))
    return data[:start] + footer + ending + bytes([len(ending)])


def encoded(parts: Sequence[tuple[int, int | bytes]]) -> bytes:
    """A protocol buffers message."""
    out = bytearray()
    for key, value in parts:
        out += varint(key << 3 | (0 if isinstance(value, int) else 2))
        out += varint(value) if isinstance(value, int) else varint(len(value)) + value
    return bytes(out)


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
