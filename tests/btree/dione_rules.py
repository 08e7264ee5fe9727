"""Files by Dione's rules, of more kinds than its vectors have: a separate encoder, independent of `btree`.

Order, shape and links are the same as in the Java writer on Avro 1.11: fields are compared one by one, unions by
branch, text by unsigned and bytes by signed bytes, floats by `Double.compare`.
"""

import bz2
import json
import lzma
import math
import struct
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

SYNC = bytes(range(100, 116))
Row = dict[str, Any]
Field = tuple[str, Any]  # name and Avro type


def _deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(6, zlib.DEFLATED, -15)
    return packer.compress(data) + packer.flush()


PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "null": bytes,
    "deflate": _deflate,
    "bzip2": bz2.compress,
    "xz": lzma.compress,
}


def _long(value: int) -> bytes:
    rest = (value << 1 ^ value >> 63) & (1 << 64) - 1
    out = b""
    while rest > 127:
        out += bytes([rest & 127 | 128])
        rest >>= 7
    return out + bytes([rest])


def _branch(union: Sequence[Any], value: Any) -> int:
    return next(i for i, kind in enumerate(union) if (kind == "null") == (value is None))


def _name(kind: Any) -> str:
    return str(kind["type"] if isinstance(kind, dict) else kind)


def _bytes(kind: Any, value: Any) -> bytes:
    """The bytes of a value of type bytes. A decimal is its unscaled number."""
    if isinstance(value, int):
        bits = (value if value >= 0 else ~value).bit_length()
        return value.to_bytes(bits // 8 + 1, "big", signed=True)
    return bytes(value)


def _encoded(kind: Any, value: Any) -> bytes:
    if isinstance(kind, list):
        branch = _branch(kind, value)
        return _long(branch) + (b"" if value is None else _encoded(kind[branch], value))
    name = _name(kind)
    if name in ("int", "long"):
        return _long(value)
    if name == "boolean":
        return bytes([value])
    if name in ("float", "double"):
        return struct.pack("<f" if name == "float" else "<d", value)
    data = value.encode() if name == "string" else _bytes(kind, value)
    return _long(len(data)) + data


def rank(kind: Any, value: Any) -> Any:
    """The value that Java compares."""
    if isinstance(kind, list):
        branch = _branch(kind, value)
        return (branch,) if value is None else (branch, rank(kind[branch], value))
    name = _name(kind)
    if name == "string":
        return value.encode()
    if name == "bytes":
        return [byte - 256 if byte > 127 else byte for byte in _bytes(kind, value)]
    if name in ("float", "double"):
        return (value != value, 0 if value != value else value, math.copysign(1, value))
    return value


@dataclass
class _Node:
    rows: list[Row] = field(default_factory=list)
    children: dict[int, "_Node"] = field(default_factory=dict)


def _tree(rows: Sequence[Row], interval: int, height: int) -> _Node:
    open_nodes = [_Node()]
    for row in rows:
        while len(open_nodes) > 1 and len(open_nodes[-1].rows) >= interval:
            open_nodes.pop()
        node = open_nodes[-1]
        node.rows.append(row)
        if len(open_nodes) < height:
            node.children[len(node.rows) - 1] = child = _Node()
            open_nodes.append(child)
    return open_nodes[0]


def dione_file(
    keys: Sequence[Field],
    values: Sequence[Field],
    rows: Sequence[Row],
    interval: int,
    height: int,
    codec: str = "deflate",
    link: Sequence[Any] = ("null", "long"),
) -> bytes:
    """The file of sorted rows."""
    fields = [*keys, *values]
    blocks: list[bytes] = []

    def place(node: _Node) -> int:
        links = {i: place(child) for i, child in node.children.items() if child.rows}
        records = b"".join(
            b"".join(_encoded(kind, row[name]) for name, kind in fields) + _encoded(list(link), links.get(i))
            for i, row in enumerate(node.rows)
        )
        payload = PACKERS[codec](records)
        blocks.append(_long(len(node.rows)) + _long(len(payload)) + payload + SYNC)
        return sum(map(len, blocks))

    if rows:
        place(_tree(rows, interval, height))
    schema = {
        "type": "record",
        "name": "keyValueSchema",
        "namespace": "na",
        "doc": "doc",
        "fields": [{"name": name, "type": kind} for name, kind in [*fields, ("metadata", list(link))]],
    }
    names = [",".join(name for name, _ in part) for part in (keys, values)]
    metadata = {
        "avro.schema": json.dumps(schema),
        "avro.codec": codec,
        "btree.spec.kv": "|".join(names),
        "data_bytes": str(sum(map(len, blocks))),
    }
    pairs = [_long(len(text)) + text for pair in metadata.items() for text in map(str.encode, pair)]
    return b"Obj\x01" + _long(len(metadata)) + b"".join(pairs) + b"\x00" + SYNC + b"".join(blocks[::-1])
