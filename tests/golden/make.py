"""The entries of the golden index files; `python -m tests.golden.make` writes the files (see README.md)."""

from pathlib import Path
from typing import Any

from btree import Column, EntrySchema
from btree.keys import Key
from tests.btree.files import Entry, write

FOLDER = Path(__file__).parent

PLAIN = EntrySchema(
    (Column("url", "string"),),
    (Column("data_filename", "string"), Column("data_offset", "bigint"), Column("data_size", "int")),
)
COMPOSITE = EntrySchema(
    (Column("day", "date"), Column("price", "decimal(9,2)"), Column("ok", "boolean")),
    (Column("at", "timestamp"), Column("seen", "timestamp_ntz"), Column("x", "double"), Column("raw", "binary")),
)


def plain_entries() -> list[Entry]:
    """29 keys and a null; one of them 12 times, one not ASCII."""
    keys = sorted([f"https://example.com/{i:02d}" for i in range(27)] + ["é😀", "https://example.com"])
    keys[7:7] = ["https://example.com/05"] * 11
    return [((key,), (f"dt=2026-01-01/part-{i % 3}.parquet", i, 100 + i)) for i, key in enumerate([None, *keys])]


def composite_entries() -> list[Entry]:
    """Nulls in each part of the key, negative and extreme values, every kind of value column."""
    keys: list[Key] = [
        (None, None, None),
        (None, -1, True),
        (-719162, 0, False),
        (0, None, None),
        (0, -999999999, None),
        (0, 127, False),
        (0, 128, None),
        (0, 128, True),
        (20454, 1230, True),
        (20454, 1230, True),
        (2932896, 999999999, True),
    ]
    xs = [0.0, 1.5, float("inf"), float("-inf"), None]
    return [
        (key, (i * 1_000_001, None if i % 4 == 3 else -i, xs[i % 5], bytes(range(i)) if i % 3 else None))
        for i, key in enumerate(keys)
    ]


FILES: dict[str, tuple[EntrySchema, list[Entry], dict[str, Any]]] = {
    "plain_deflate.btree.avro": (PLAIN, plain_entries(), {"node_bytes": 100}),
    "plain_null.btree.avro": (PLAIN, plain_entries(), {"node_bytes": 100, "codec": "null"}),
    "composite_null.btree.avro": (COMPOSITE, composite_entries(), {"node_bytes": 40, "codec": "null"}),
    "empty_deflate.btree.avro": (PLAIN, [], {}),
}


def make() -> None:
    for name, (schema, entries, options) in FILES.items():
        (FOLDER / name).write_bytes(write(schema, entries, **options))


if __name__ == "__main__":
    make()
