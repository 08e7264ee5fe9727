"""Shared parts of the tests of writers: rows with values of all kinds, and functions to write and read them."""

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal

import pyarrow as pa

from gnomon.sources import RangeReader, Style, check_written, open_source, open_writer, style_of
from gnomon.sources.types.ddl import to_ddl
from tests.sources.readers import BytesReader

NAN, INF = float("nan"), float("inf")
TEXTS = [
    "",
    "plain",
    " spaces ",
    'a "quote", and more',
    "two\nlines",
    "two\r\nlines",
    "\r",
    "\t",
    "žluťoučký 🐎",
    "null",
    None,
]
FLOATS = [0.0, -0.0, NAN, INF, -INF, 1.0, 0.1, 5e-324, 1.7976931348623157e308, 123456789012345680.0, None]
LONGS = [0, 1, -1, 2**63 - 1, -(2**63), 63, 64, -64, -65, 8192, None]
MOMENTS = [0, 1, 1_500_000, 253_402_300_799_999_999, 1_700_000_000_000_000, 86_400_000_000, 999, 60_000_000, 2, 3, None]
OLD = [-1, -1_500_001, -62_135_596_800_000_000, *MOMENTS[3:]]  # before 1970


def flat() -> dict[str, pa.Array]:
    """Columns of types that all formats have."""
    days = [0, 1, -1, 18_000, 2_932_896, -141_427, 7, 8, 9, 10, None]
    small = [0, 1, -1, 127, -128, 5, 6, 7, 8, 9, None]
    return {
        "id": pa.array(range(11), pa.int64()),
        "long": pa.array(LONGS, pa.int64()),
        "int": pa.array([0, 2**31 - 1, -(2**31), *small[3:]], pa.int32()),
        "float": pa.array([0.0, -0.0, NAN, INF, -INF, 1.0, 0.1, 1.4e-45, 3.4028234e38, 16777216.0, None], pa.float32()),
        "double": pa.array(FLOATS, pa.float64()),
        "boolean": pa.array([True, False, None] * 3 + [True, None]),
        "text": pa.array(TEXTS),
        "date": pa.array(days, pa.int32()).view(pa.date32()),
        "instant": pa.array(MOMENTS, pa.int64()).view(pa.timestamp("us", "UTC")),
        "local": pa.array(MOMENTS, pa.int64()).view(pa.timestamp("us")),
        "price": pa.array(
            [Decimal("0.00"), Decimal("-0.01"), Decimal("99999999.99"), *[Decimal("1.10")] * 7, None],
            pa.decimal128(10, 2),
        ),
        "tiny": pa.array([Decimal("1E-18"), Decimal("0E-18"), *[Decimal(10**20 - 1)] * 8, None], pa.decimal128(38, 18)),
        "nothing": pa.nulls(11, pa.string()),
    }


def small() -> dict[str, pa.Array]:
    values = [0, 1, -1, 127, -128, 5, 6, 7, 8, 9, None]
    return {"byte": pa.array(values, pa.int8()), "short": pa.array(values, pa.int16())}


def blobs() -> dict[str, pa.Array]:
    return {"bytes": pa.array([b"", b"\0\xff", b"x" * 300, *[b"a"] * 7, None])}


def old() -> dict[str, pa.Array]:
    return {"before": pa.array(OLD, pa.int64()).view(pa.timestamp("us", "UTC"))}


def nested() -> dict[str, pa.Array]:
    inner = pa.struct([("n", pa.int64()), ("d", pa.float64()), ("day", pa.date32()), ("t", pa.string())])
    one = {"n": 1, "d": NAN, "day": dt.date(2020, 2, 29), "t": 'x"\n'}
    none = {"n": None, "d": None, "day": None, "t": None}
    return {
        "record": pa.array([one, none, None, *[one] * 8], inner),
        "list": pa.array([[1, None], [], None, *[[2]] * 8], pa.list_(pa.int64())),
        "records": pa.array([[one, None], [], None, *[[none, one]] * 8], pa.list_(inner)),
        "map": pa.array(
            [[("a", 1.5), ("ž", None)], [], None, *[[("b", -0.0)]] * 8], pa.map_(pa.string(), pa.float64())
        ),
        "deep": pa.array(
            [[[("k", ["x", None])]], [None], None, *[[]] * 8], pa.list_(pa.map_(pa.string(), pa.list_(pa.string())))
        ),
        "moments": pa.array([[0, None], [], None, *[[5]] * 8], pa.list_(pa.timestamp("us", "UTC"))),
        "prices": pa.array([[Decimal("1.5")], [], None, *[[None]] * 8], pa.list_(pa.decimal128(20, 1))),
    }


@dataclass(frozen=True)
class Case:
    """A format with its columns; `by_ddl`: the option `schema` has their types."""

    format: str
    columns: Mapping[str, pa.Array]
    by_ddl: bool = False
    more: Mapping[str, str] = field(default_factory=dict)

    @property
    def table(self) -> pa.Table:
        return pa.table(dict(self.columns))

    def options(self, schema: pa.Schema | None = None) -> Mapping[str, str]:
        ddl = {"schema": to_ddl(self.table.schema if schema is None else schema)} if self.by_ddl else {}
        return {**ddl, **self.more}


CASES = {
    "parquet": Case("parquet", flat() | small() | blobs() | old() | nested()),
    "avro": Case("avro", flat() | blobs() | old() | nested()),
    "orc": Case("orc", flat() | small() | blobs() | nested()),
    "csv": Case("csv", flat() | small() | old(), by_ddl=True),
    "jsonl": Case("jsonl", flat() | small() | blobs() | old() | nested(), by_ddl=True),
}


def write(format: str, style: Style, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> BytesReader:
    """A file of the batches."""
    path = f"new{style.ending}"
    writer = open_writer(style, schema, path)
    for batch in batches:
        writer.write(batch)
    return BytesReader(writer.finish(), path)


def written(table: pa.Table, format: str, options: Mapping[str, str], like: RangeReader | None = None) -> BytesReader:
    """A file of the table in the style of `like`, written in batches of three rows."""
    batches = table.to_batches(max_chunksize=3)
    file = write(format, style_of(like, format, options), table.schema, batches)
    check_written(file.data, format, options, file.name, batches)
    return file


def rows_of(file: BytesReader, format: str, options: Mapping[str, str], names: Sequence[str] | None = None) -> pa.Table:
    """The rows that our reader returns."""
    source = open_source(file, format, options)
    columns = list(names or source.schema.names)
    return pa.Table.from_batches(source.scan(file, columns)).select(columns)
