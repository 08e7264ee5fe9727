"""Avro files for tests: written by fastavro, or built block by block for content that no writer writes."""

import io
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any

import fastavro

from tests.sources.corpora import files_of, reader_of

SYNC = bytes(range(200, 216))
ROWS = 97
LONGEST_SEED = 8 << 10  # bytes

FLAT = {
    "type": "record",
    "name": "lake.Row",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": ["null", "string"]},
        {"name": "score", "type": ["double", "null"]},
        {"name": "flag", "type": "boolean"},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B", "C"]}},
        {"name": "small", "type": ["null", "int"]},
        {"name": "raw", "type": "bytes"},
        {"name": "ratio", "type": "float"},
        {"name": "pad", "type": {"type": "fixed", "name": "Pad", "size": 3}},
        {"name": "text", "type": "string"},
    ],
}
NESTED = {
    "type": "record",
    "name": "Nested",
    "fields": [
        {"name": "id", "type": "int"},
        {"name": "tags", "type": {"type": "array", "items": ["null", "string"]}},
        {"name": "lists", "type": ["null", {"type": "array", "items": {"type": "array", "items": "int"}}]},
        {"name": "map", "type": {"type": "map", "values": ["null", "long"]}},
        {
            "name": "point",
            "type": [
                "null",
                {
                    "type": "record",
                    "name": "Point",
                    "fields": [
                        {"name": "x", "type": "int"},
                        {"name": "labels", "type": {"type": "map", "values": {"type": "array", "items": "string"}}},
                        {"name": "u", "type": ["int", "string"]},
                    ],
                },
            ],
        },
        {"name": "again", "type": {"type": "array", "items": "Point"}},
        {"name": "mixed", "type": ["null", "long", "string", {"type": "array", "items": "int"}, "Point"]},
        {"name": "nothing", "type": "null"},
        {"name": "last", "type": "string"},
    ],
}


def flat_rows(count: int = ROWS) -> list[dict[str, Any]]:
    return [
        {
            "id": (-1) ** i * i * 10**8,
            "name": None if i % 5 == 0 else f"näme {i % 7}",
            "score": None if i % 4 == 1 else i / 3,
            "flag": i % 3 == 0,
            "kind": "ABC"[i % 3],
            "small": None if i % 6 == 0 else i - 50,
            "raw": bytes(range(i % 9)),
            "ratio": i / 4,
            "pad": bytes([i % 256] * 3),
            "text": f"{i} " * (i % 40),
        }
        for i in range(count)
    ]


LIST = {
    "type": "record",
    "name": "List",
    "fields": [{"name": "v", "type": "long"}, {"name": "next", "type": ["null", "List"]}],
}
TREE = {  # types that JSON can show, and others
    "type": "record",
    "name": "Tree",
    "fields": [
        {"name": "at", "type": {"type": "long", "logicalType": "time-micros"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 80, "scale": 2}},
        {"name": "cost", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "id", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "any", "type": ["null", "double", "string", {"type": "map", "values": "bytes"}]},
        {"name": "kids", "type": {"type": "array", "items": "Tree"}},
    ],
}
CODECS = ("null", "deflate", "bzip2", "xz", "snappy", "zstandard")


def nested_rows(mapping: Callable[[list[tuple[str, Any]]], Any], count: int = ROWS) -> list[dict[str, Any]]:
    """Nested rows. `mapping` makes a map from pairs: `dict` for fastavro, `list` for pyarrow."""
    rows = []
    for i in range(count):
        labels = mapping([(f"k{j}", ["v"] * j) for j in range(i % 3)])
        point = {"x": i, "labels": labels, "u": i if i % 2 else f"u{i}"}
        rows.append(
            {
                "id": i,
                "tags": [None if j % 2 else f"t{j}" for j in range(i % 4)],
                "lists": None if i % 3 == 0 else [[1, 2], [], [i]],
                "map": mapping([(f"m{j}", None if j == 1 else j) for j in range(i % 5)]),
                "point": None if i % 4 == 0 else point,
                "again": [point] * (i % 3),
                "mixed": [None, i, f"s{i}", [i, i + 1], point][i % 5],
                "nothing": None,
                "last": f"end {i}",
            }
        )
    return rows


def written(schema: Any, rows: Iterable[Any], codec: str = "deflate", block_bytes: int = 300) -> bytes:
    """A file of fastavro, in blocks of about `block_bytes`."""
    out = io.BytesIO()
    fastavro.writer(out, schema, rows, codec=codec, sync_interval=block_bytes, sync_marker=SYNC)
    return out.getvalue()


def number(value: int) -> bytes:
    """An Avro int or long."""
    left = (value << 1) ^ (value >> 63)
    out = bytearray()
    while left > 127:
        out.append(left & 127 | 128)
        left >>= 7
    out.append(left)
    return bytes(out)


def sized(data: bytes) -> bytes:
    """An Avro bytes or string."""
    return number(len(data)) + data


def header(schema: Any, codec: str = "null", sync: bytes = SYNC, more: Mapping[str, bytes] | None = None) -> bytes:
    text = schema if isinstance(schema, bytes) else json.dumps(schema).encode()
    metadata = {"avro.schema": text, "avro.codec": codec.encode(), **(more or {})}
    pairs = b"".join(sized(key.encode()) + sized(value) for key, value in metadata.items())
    return b"Obj\x01" + number(len(metadata)) + pairs + number(0) + sync


def block(count: int, payload: bytes, sync: bytes = SYNC) -> bytes:
    return number(count) + number(len(payload)) + payload + sync


def container(schema: Any, payloads: Sequence[tuple[int, bytes]], codec: str = "null") -> bytes:
    """A file of these blocks (number of rows, payload)."""
    return header(schema, codec) + b"".join(block(count, payload) for count, payload in payloads)


def records(schema: Any, rows: Iterable[Any]) -> bytes:
    """The bytes of rows in a block. Logical types are given in their stored types."""
    parsed = fastavro.parse_schema(schema)
    out = io.BytesIO()
    for row in rows:
        fastavro.schemaless_writer(out, parsed, row)
    return out.getvalue()


@cache
def avro_seeds() -> list[tuple[bytes, Mapping[str, str]]]:
    """Files for the fuzzer: one of each codec and shape, and the small ones of other writers, if present."""
    own = [written(FLAT, flat_rows(30), codec) for codec in CODECS]
    own += [written(NESTED, nested_rows(dict, 12), codec) for codec in ("null", "deflate")]
    row = {"v": 1, "next": {"v": -2, "next": {"v": 3, "next": None}}}
    own += [written(LIST, [row] * 5, "null"), written("string", ["a", "b" * 90], "snappy")]
    leaf = number(5) + sized(b"\xfb") + sized(b"\1\2") + number(9) + sized(b"0" * 32)
    tree = leaf + b"\2" + bytes(8) + number(2) + (leaf + b"\4" + sized(b"t") + b"\0") * 2 + b"\0"
    own += [container(TREE, [(2, tree * 2), (1, tree)])]
    small = [param.values[0] for param in files_of("avro", "good") if int(param.values[0]["size"]) <= LONGEST_SEED]
    return [(data, {}) for data in [*own, *(reader_of(entry).data for entry in small)]]
