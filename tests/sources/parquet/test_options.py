"""Parquet files of pyarrow's writer with all its options: scan and fetch give the rows that pyarrow reads.

The number of a case determines it: some columns of random types and nulls, and random options of the writer."""

import datetime as dt
import io
from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gnomon.shadow.values.row_values import python_values
from gnomon.sources import open_source
from tests.sources.readers import BytesReader

CASES = 240
ROWS = (0, 1, 2, 31, 32, 33, 64, 127, 128, 129, 256, 257, 600)
DELTA, BYTES = ("PLAIN", "DELTA_BINARY_PACKED"), ("PLAIN", "DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY")
START = dt.datetime(2020, 1, 1)


class Kind(NamedTuple):
    """A type, a maker of its random values, and the possible encodings of its leaf (`suffix` after the column's
    name)."""

    type: pa.DataType
    value: Callable[[Random], Any]
    encodings: tuple[str, ...]
    suffix: str = ""


KINDS = (
    Kind(pa.int64(), lambda r: r.choice([0, -1, r.randint(-(2**63), 2**63 - 1)]), (*DELTA, "BYTE_STREAM_SPLIT")),
    Kind(pa.int32(), lambda r: r.choice([r.randint(-(2**31), 2**31 - 1), r.randint(0, 9)]), DELTA),
    Kind(pa.string(), lambda r: r.choice(["", "a", "abc" * r.randint(0, 9), str(r.random())]), BYTES),
    Kind(pa.binary(), lambda r: r.randbytes(r.randint(0, 12)), BYTES),
    Kind(pa.float64(), lambda r: r.choice([0.0, -0.0, r.random()]), ("PLAIN", "BYTE_STREAM_SPLIT")),
    Kind(pa.bool_(), lambda r: r.random() < 0.5, ("PLAIN", "RLE")),
    Kind(pa.timestamp("us"), lambda r: START + dt.timedelta(microseconds=r.randint(0, 10**14)), DELTA),
    Kind(pa.date32(), lambda r: START.date() + dt.timedelta(days=r.randint(-9999, 9999)), DELTA),
    Kind(pa.list_(pa.int64()), lambda r: [r.randint(0, 5) for _ in range(r.randint(0, 3))], DELTA, ".list.element"),
    Kind(pa.list_(pa.string()), lambda r: [r.choice([None, "", "ab"])] * r.randint(0, 3), BYTES, ".list.element"),
    Kind(pa.struct([("p", pa.int64())]), lambda r: {"p": r.choice([None, r.randint(0, 5)])}, DELTA, ".p"),
)


def made(number: int) -> tuple[bytes, dict[str, Any]]:
    """The file of a case, and the options that it was written with."""
    random = Random(number)
    rows, encodings, columns = random.choice(ROWS), {}, {}
    for name in ("A", "a.b", "value")[: random.randint(1, 3)]:
        kind, nulls = random.choice(KINDS), random.choice([0, 0, 0.1, 0.5, 0.9, 1])
        values = [None if random.random() < nulls else kind.value(random) for _ in range(rows)]
        if random.random() < 0.3:  # long runs of one value
            values = [values[i // 40 * 40] for i in range(rows)]
        columns[name] = pa.array(values, kind.type)
        encodings[f"{name}{kind.suffix}"] = random.choice(kind.encodings)
    options: dict[str, Any] = {
        "compression": random.choice(["none", "snappy", "zstd", "gzip", "lz4", "brotli"]),
        "data_page_version": random.choice(["1.0", "2.0"]),
        "version": random.choice(["1.0", "2.4", "2.6"]),
        "write_batch_size": random.choice([1, 16, 100, 1024]),
        "data_page_size": random.choice([10, 100, 1000, 1 << 20]),
        "dictionary_pagesize_limit": random.choice([1, 100, 1 << 20]),
        "row_group_size": random.choice([10, 100, 1000]),
        "write_page_index": random.random() < 0.5,
        "write_statistics": random.random() < 0.5,
        "store_schema": random.random() < 0.8,
        "write_page_checksum": random.random() < 0.3,
    }
    encoded = random.random() < 0.6
    options |= {"use_dictionary": False, "column_encoding": encodings} if encoded else {"use_dictionary": True}
    out = io.BytesIO()
    pq.write_table(pa.table(columns), out, **options)
    return out.getvalue(), options


def texts(array: pa.ChunkedArray) -> list[str]:
    return [repr(value) for value in python_values(array.combine_chunks())]


@pytest.mark.parametrize("first", range(0, CASES, 40))
def test_what_pyarrow_writes_and_reads_is_scanned_and_fetched(first: int) -> None:
    compared = 0
    for number in range(first, first + 40):
        data, options = made(number)
        try:
            expected = pq.read_table(io.BytesIO(data))
        except pa.ArrowInvalid:  # pyarrow's reader fails on lists whose first page has no rows
            continue
        compared += 1
        random, reader = Random(number), BytesReader(data, f"case-{number}")
        file = open_source(reader, "parquet")
        names = random.sample(expected.column_names, random.randint(1, expected.num_columns))
        batches = list(file.scan(reader, names))
        assert sum(batch.num_rows for batch in batches) == file.rows, (number, options)
        pointers = []
        for batch in batches:
            offsets, sub_offsets = batch.columns[len(names) :][:2]
            pointers += zip(offsets.to_pylist(), sub_offsets.to_pylist(), strict=True)
        if not pointers:
            continue
        scanned = pa.Table.from_batches(batches)
        for place, name in enumerate(names):
            assert texts(scanned.column(place)) == texts(expected[name]), (number, name, options)
        for size in (1, 20):
            places = [random.randrange(len(pointers)) for _ in range(size)]
            found = file.fetch(reader, [pointers[place] for place in places], expected.column_names)
            for name in expected.column_names:
                assert texts(found[name]) == texts(expected[name].take(places)), (number, name, options)
    assert compared > 30
