"""Other readers see one of our files as a plain Avro file with equal rows."""

import io
from typing import Any

import fastavro
import polars as pl
import pytest

from btree import format as fmt
from btree.display import to_json
from tests.btree.files import URL_SCHEMA, opened, url_entries, write
from tests.golden.make import COMPOSITE, composite_entries


def _in_file_order(data: bytes) -> list[dict[str, Any]]:
    return [dict(record) for record in fastavro.reader(io.BytesIO(data))]


@pytest.mark.parametrize("codec", ["null", "deflate", "snappy"])
def test_fastavro_and_polars_read_the_same_rows(codec: str) -> None:
    entries = url_entries(2000)
    data = write(URL_SCHEMA, entries, codec=codec, node_bytes=2000)
    ours = sorted((key[0], *value) for key, value in opened(data).scan())
    names = [column.name for column in URL_SCHEMA.columns]
    assert [tuple(row[name] for name in names) for row in sorted(_in_file_order(data), key=lambda r: r["row"])] == ours
    assert sorted(pl.read_avro(io.BytesIO(data)).select(names).rows()) == ours


def test_fastavro_reads_every_logical_type() -> None:
    data = write(COMPOSITE, composite_entries(), codec="null")
    rows = _in_file_order(data)
    assert len(rows) == len(composite_entries())
    for row, (key, value) in zip(rows, composite_entries(), strict=True):
        day, price, ok = key
        at, _, x, raw = value
        assert (row["day"] is None) == (day is None)
        assert (row["ok"], row["x"], row["raw"]) == (ok, x, raw)
        assert (None if row["price"] is None else str(row["price"])) == to_json(price, "decimal(9,2)")
        assert row["at"].isoformat().replace("+00:00", "Z") == to_json(at, "timestamp")
        if day is not None:
            assert row["day"].isoformat() == to_json(day, "date")
        assert row[fmt.LINK_FIELD] is None
