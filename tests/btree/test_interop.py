"""Other readers read our files as plain Avro files with equal rows, and ignore our checksums."""

import io
from typing import Any

import fastavro
import polars as pl
import pytest

from gnomon.btree import format as fmt
from gnomon.btree.key_types import key_type
from tests.btree.files import URL_SCHEMA, opened, url_entries, write
from tests.golden.make import COMPOSITE, composite_entries


def _in_file_order(data: bytes) -> list[dict[str, Any]]:
    return [dict(record) for record in fastavro.reader(io.BytesIO(data))]


NAMES = [column.name for column in URL_SCHEMA.columns]


def typical_file(codec: str, count: int) -> tuple[bytes, list[tuple[Any, ...]]]:
    """A file with a null, text beyond ASCII and duplicates, and its rows."""
    entries = [((None,), (None, -1)), *url_entries(count, copies=2), (("é😀",), ("ü", 2**62))]
    return write(URL_SCHEMA, entries, codec=codec, node_bytes=2000), [(*key, *value) for key, value in entries]


@pytest.mark.parametrize("codec", ["null", "deflate", "snappy", "zstandard"])
def test_fastavro_reads_the_same_rows(codec: str) -> None:
    data, rows = typical_file(codec, 1000)
    found = [tuple(row[name] for name in NAMES) for row in _in_file_order(data)]
    assert sorted(found, key=lambda row: row[2]) == rows
    assert list(opened(data).scan()) == [((url,), (file, row)) for url, file, row in rows]


@pytest.mark.parametrize("codec", ["null", "deflate", "snappy"])
def test_polars_reads_the_same_rows(codec: str) -> None:
    data, rows = typical_file(codec, 1000)
    assert pl.read_avro(io.BytesIO(data)).select(NAMES).sort("row").rows() == rows


def test_fastavro_reads_every_logical_type() -> None:
    data = write(COMPOSITE, composite_entries(), codec="null")
    rows = _in_file_order(data)
    assert len(rows) == len(composite_entries())
    for row, (key, value) in zip(rows, composite_entries(), strict=True):
        day, price, ok = key
        at, _, x, raw = value
        assert (row["day"] is None) == (day is None)
        assert (row["ok"], row["x"], row["raw"]) == (ok, x, raw)
        assert (None if row["price"] is None else str(row["price"])) == key_type("decimal(9,2)").to_json(price)
        assert row["at"].isoformat().replace("+00:00", "Z") == key_type("timestamp").to_json(at)
        if day is not None:
            assert row["day"].isoformat() == key_type("date").to_json(day)
        assert row[fmt.LINK_FIELD] is None
