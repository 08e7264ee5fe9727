"""The entries of the golden index files; `python -m tests.golden.make` writes the files (see README.md)."""

from pathlib import Path
from typing import Any

from gnomon.btree import Column, EntrySchema
from gnomon.btree.dione import DioneWriter
from gnomon.btree.keys import Key
from tests.btree.files import SYNC, Entry, batch, write

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


def run_entries() -> list[Entry]:
    """40 entries of one key between two others."""
    keys = ["a", *["b"] * 40, "c"]
    return [((key,), ("part-0.parquet", i, None)) for i, key in enumerate(keys)]


# What today's writer makes: schema, entries, options.
FILES: dict[str, tuple[EntrySchema, list[Entry], dict[str, Any]]] = {
    "sealed_plain_deflate.btree.avro": (PLAIN, plain_entries(), {"node_bytes": 100}),
    "sealed_plain_null.btree.avro": (PLAIN, plain_entries(), {"node_bytes": 100, "codec": "null"}),
    "sealed_plain_snappy.btree.avro": (PLAIN, plain_entries(), {"node_bytes": 100, "codec": "snappy"}),
    "sealed_plain_zstandard.btree.avro": (PLAIN, plain_entries(), {"node_bytes": 100, "codec": "zstandard"}),
    "sealed_composite_null.btree.avro": (COMPOSITE, composite_entries(), {"node_bytes": 40, "codec": "null"}),
    "sealed_split_run_null.btree.avro": (PLAIN, run_entries(), {"node_bytes": 60, "node_limit": 200, "codec": "null"}),
    "sealed_empty_deflate.btree.avro": (PLAIN, [], {}),
}
# What an earlier one made, before files had checksums: schema and entries.
EARLIER: dict[str, tuple[EntrySchema, list[Entry]]] = {
    "plain_deflate.btree.avro": (PLAIN, plain_entries()),
    "plain_null.btree.avro": (PLAIN, plain_entries()),
    "composite_null.btree.avro": (COMPOSITE, composite_entries()),
    "empty_deflate.btree.avro": (PLAIN, []),
}
DIONE = "dione_i3_h3_null.btree.avro"  # of the same entries, with the null last


def dione_file() -> bytes:
    """The plain entries as Dione's writer lays them out."""
    null, *others = plain_entries()
    writer = DioneWriter(PLAIN, interval=3, height=3, codec="null", sync=SYNC)
    writer.write(batch(PLAIN, [*others, null]))
    return b"".join(writer.finish().chunks)


def make() -> None:
    for name, (schema, entries, options) in FILES.items():
        (FOLDER / name).write_bytes(write(schema, entries, **options))
    (FOLDER / DIONE).write_bytes(dione_file())


if __name__ == "__main__":
    make()
