"""Small Parquet files of every kind that writers can make, for the tests of `gnomon.sources.parquet`."""

import datetime as dt
import decimal
import io
from collections.abc import Mapping
from functools import cache
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.sources.corpora import ROOT, files_of

ROWS = 300


def written(table: pa.Table, **options: Any) -> bytes:
    """A file with several row groups of several tiny pages, unless `options` change that."""
    settings = {"row_group_size": 128, "data_page_size": 256, "write_batch_size": 16, **options}
    buffer = io.BytesIO()
    pq.write_table(table, buffer, **settings)
    return buffer.getvalue()


def flat_table(rows: int = ROWS) -> pa.Table:
    return pa.table(
        {
            "id": pa.array(range(rows), pa.int64()),
            "name": [None if i % 11 == 3 else f"name {i % 17}" for i in range(rows)],
            "text": [f"{i}" * (i % 9) for i in range(rows)],
            "score": [None if i % 5 == 0 else i / 3 for i in range(rows)],
            "flag": [None if i % 7 == 0 else i % 2 == 0 for i in range(rows)],
            "nothing": pa.array([None] * rows, pa.int32()),
        }
    )


def nested_table(rows: int = ROWS) -> pa.Table:
    kind = pa.struct([("x", pa.int32()), ("tags", pa.list_(pa.string()))])
    return pa.table(
        {
            "id": pa.array(range(rows), pa.int64()),
            "numbers": [None if i % 6 == 5 else [j if j % 2 else None for j in range(i % 4)] for i in range(rows)],
            "point": pa.array(
                [None if i % 8 == 1 else {"x": i, "tags": [f"t{i}"] * (i % 3)} for i in range(rows)], kind
            ),
            "map": pa.array([[(f"k{i}", i)] * (i % 2) for i in range(rows)], pa.map_(pa.string(), pa.int64())),
        }
    )


def typed_table(rows: int = 40) -> pa.Table:
    """One column of every flat type that Parquet keeps."""
    day = dt.date(2020, 1, 1)
    instants = [dt.datetime(2020, 1, 1) + dt.timedelta(hours=i, microseconds=i) for i in range(rows)]
    columns: dict[str, pa.Array] = {
        "large_string": pa.array([f"v{i}" for i in range(rows)], pa.large_string()),
        "large_binary": pa.array([bytes([i]) for i in range(rows)], pa.large_binary()),
        "fixed": pa.array([bytes([i]) * 5 for i in range(rows)], pa.binary(5)),
        "uuid": pa.array([bytes([i]) * 16 for i in range(rows)], pa.uuid()),
        "uint8": pa.array(range(rows), pa.uint8()),
        "uint64": pa.array([2**64 - 1 - i for i in range(rows)], pa.uint64()),
        "half": pa.array([float(i) for i in range(rows)], pa.float16()),
        "decimal": pa.array([decimal.Decimal(i) / 100 for i in range(rows)], pa.decimal128(20, 2)),
        "big_decimal": pa.array([decimal.Decimal(i) for i in range(rows)], pa.decimal256(60, 0)),
        "date": pa.array([day + dt.timedelta(days=i) for i in range(rows)]),
        "time": pa.array(range(rows), pa.time64("us")),
        "duration": pa.array(range(rows), pa.duration("ms")),
        "instant": pa.array(instants, pa.timestamp("us", "Europe/Paris")),
        "local": pa.array(range(rows), pa.timestamp("ns")),
        "null": pa.nulls(rows),
    }
    return pa.table(columns)


FUZZED: tuple[dict[str, Any], ...] = (
    {},
    {"write_page_index": True, "compression": "zstd"},
    {"data_page_version": "2.0", "compression": "gzip"},
    {"data_page_version": "2.0", "write_page_index": True, "use_dictionary": False, "compression": "none"},
    {"write_page_index": True, "dictionary_pagesize_limit": 64, "compression": "lz4"},
    {"use_dictionary": False, "compression": "brotli", "row_group_size": 10},
)
FUZZED_BYTES = 20_000  # larger files of the corpora are not tried: most changes would hit their data


@cache
def seeds() -> list[tuple[bytes, Mapping[str, str]]]:
    """Sound files for the fuzzer: ours, and the small ones of the corpora, if present."""
    tables = (flat_table(40), nested_table(40), typed_table())
    files = [written(table, **options) for table in tables for options in FUZZED]
    foreign = [ROOT / entry.values[0]["file"] for entry in files_of("parquet", "good")]
    files += [path.read_bytes() for path in foreign if path.stat().st_size < FUZZED_BYTES]
    return [(data, {}) for data in files]
