"""Small trees of every shape, for damage byte by byte."""

from typing import Any

from gnomon.btree import Column, EntrySchema
from tests.btree.files import URL_SCHEMA, Entry, url_entries

CODECS = ["null", "deflate", "snappy", "zstandard"]
PAIR = EntrySchema((Column("day", "date"), Column("price", "decimal(9,2)")), (Column("x", "double"),))
NARROW = EntrySchema((Column("k", "bigint", False),), (Column("v", "bigint", False),))

# Each shape of tree: schema, entries, options of the writer.
SHAPES: dict[str, tuple[EntrySchema, list[Entry], dict[str, Any]]] = {
    "one node": (URL_SCHEMA, url_entries(4), {}),
    "two levels, duplicates": (URL_SCHEMA, url_entries(6, copies=2), {"node_bytes": 120}),
    "three levels": (NARROW, [((i * 1000,), (i,)) for i in range(27)], {"node_bytes": 1}),
    "a run that spills": (NARROW, [((i // 9,), (i,)) for i in range(18)], {"node_bytes": 20, "node_limit": 25}),
    "nulls in composite keys": (
        PAIR,
        [((None, None), (1.5,)), ((None, 7), (None,)), ((3, None), (0.0,)), ((3, -5), (2.0,)), ((4, 9), (3.0,))],
        {"node_bytes": 10},
    ),
    "no entry": (NARROW, [], {}),
}
