"""Writes Avro files like an existing one of the source, with its exact schema and codec.

`encode` gives the bytes of the values of an Arrow column, one bytes object for each row. A value is encoded from its
column's own array. A nested value costs no Python object except its bytes.
"""

import bz2
import json
import lzma
import secrets
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import types

from gnomon.base.arrow import compute as pc
from gnomon.base.compression import RAW_DEFLATE, zstd
from gnomon.base.readers import RangeReader
from gnomon.base.varints import encode_signed
from gnomon.sources.avro.container import CRC_BYTES, LZ4_SIZE_BYTES, MAGIC, SYNC_BYTES, LimitExceeded, Malformed
from gnomon.sources.avro.reader import CODEC_KEY, SCHEMA_KEY, open_avro
from gnomon.sources.avro.rows import VALUE, row_schema
from gnomon.sources.avro.schema import Array, Leaf, Map, Node, Record, Union, is_null, parse_schema
from gnomon.sources.contract import Options
from gnomon.sources.errors import UnsupportedFormat
from gnomon.sources.types import Column, Unfit, arrays_of, holds, plan_columns

Pieces = list[bytes]
WIDTHS = {"int": pa.int32(), "long": pa.int64()}


FALSE_TRUE = (b"\0", b"\1")
BLOCK_BYTES = 64 << 10  # bytes of records; Java's writers have 16 to 64 KB
USUAL_CODEC = "snappy"  # Spark's
ROOT = "topLevelRecord"  # as Spark names it


def encode(node: Node, array: pa.Array) -> Pieces:
    """The bytes of each value. `array` has the type in which Gnomon's reader returns the node's values. Unfit where the
    node has no such value."""
    if isinstance(node, Union):
        return _union(node, array)
    if isinstance(node, Leaf) and node.kind == "null":
        return [b""] * len(array)
    if array.null_count:
        raise Unfit(f"expected {node.name or 'a value'}, found a null")
    if isinstance(node, Record):
        columns = [encode(one, column) for (_, one), column in zip(node.fields, array.flatten(), strict=True)]
        return [b"".join(parts) for parts in zip(*columns, strict=True)] if columns else [b""] * len(array)
    if isinstance(node, Array):
        return _runs(pc.list_value_length(array).to_pylist(), encode(node.items, array.flatten()))
    if isinstance(node, Map):
        return _map(node, array)
    return _leaf(node, array)


def _union(node: Union, array: pa.Array) -> Pieces:
    if types.is_union(array.type):
        pieces: Pieces = [b""] * len(array)
        rows = slice(array.offset, array.offset + len(array))  # the type codes and offsets of a union ignore slices
        codes = np.frombuffer(array.buffers()[1], np.int8)[rows]
        offsets = np.frombuffer(array.buffers()[2], np.int32)[rows]
        for code, branch in enumerate(node.branches):
            mine = np.flatnonzero(codes == code)
            values = encode(branch, array.field(code).take(pa.array(offsets[mine])))
            for place, value in zip(mine.tolist(), values, strict=True):
                pieces[place] = encode_signed(code) + value
        return pieces
    place = next((i for i, one in enumerate(node.branches) if not is_null(one)), 0)
    nulls = [i for i, one in enumerate(node.branches) if is_null(one)]
    if array.null_count and not nulls:
        raise Unfit("expected a value, found a null")
    if array.null_count == len(array):
        return [encode_signed(nulls[0])] * len(array) if nulls else []
    head = encode_signed(place)
    some = iter(encode(node.branches[place], array.drop_null() if array.null_count else array))
    if not array.null_count:
        return [head + value for value in some]
    none = encode_signed(nulls[0])
    return [head + next(some) if valid else none for valid in array.is_valid().to_pylist()]


def may_be_null(node: Node) -> bool:
    """Whether null is a value of the type."""
    return is_null(node) or (isinstance(node, Union) and any(map(is_null, node.branches)))


def _runs(lengths: Sequence[int], items: Pieces) -> Pieces:
    """Each list as one run of its items, and the end mark."""
    pieces, at = [], 0
    for length in lengths:
        pieces.append(encode_signed(length) + b"".join(items[at : at + length]) + b"\0" if length else b"\0")
        at += length
    return pieces


def _map(node: Map, array: pa.MapArray) -> Pieces:
    offsets = array.offsets.to_numpy()
    begin, count = (int(offsets[0]), int(offsets[-1] - offsets[0])) if len(offsets) else (0, 0)
    keys = encode(Leaf("string", "string"), array.keys.slice(begin, count))
    values = encode(node.values, array.items.slice(begin, count))
    return _runs(np.diff(offsets).tolist(), [key + value for key, value in zip(keys, values, strict=True)])


def _leaf(leaf: Leaf, array: pa.Array) -> Pieces:
    if leaf.kind in WIDTHS:
        return list(map(encode_signed, array.view(WIDTHS[leaf.kind]).to_pylist()))
    if leaf.kind == "boolean":
        return [FALSE_TRUE[value] for value in array.to_pylist()]
    if leaf.kind in ("float", "double"):
        data = array.to_numpy().astype("<f4" if leaf.kind == "float" else "<f8").tobytes()
        return _cut(data, 4 if leaf.kind == "float" else 8)
    if leaf.kind == "enum":
        return [encode_signed(place) for place in _symbols(leaf, array)]
    if leaf.logical == "decimal":
        return _decimals(leaf, array)
    if leaf.logical == "uuid":
        array = (
            array.storage
            if leaf.kind == "fixed"
            else pa.array([str(value) for value in array.to_pylist()], pa.string())
        )
    values = array.cast(pa.binary()).to_pylist()
    return values if leaf.kind == "fixed" else [encode_signed(len(value)) + value for value in values]


def _cut(data: bytes, width: int) -> Pieces:
    return [data[at : at + width] for at in range(0, len(data), width)]


def _symbols(leaf: Leaf, array: pa.Array) -> list[int]:
    places = pc.index_in(array.cast(pa.string()), pa.array(leaf.symbols, pa.string()))
    if places.null_count:
        value = array.filter(places.is_null())[0].as_py()
        raise Unfit(f"expected one of the enum's {', '.join(leaf.symbols)}, found {value!r}")
    return list(places.to_pylist())


def _decimals(leaf: Leaf, array: pa.Array) -> Pieces:
    if types.is_string(array.type):
        unscaled = [int(text.replace(".", "")) for text in array.to_pylist()]
    else:
        width = array.type.byte_width
        data = array.buffers()[1].to_pybytes()[array.offset * width : (array.offset + len(array)) * width]
        unscaled = [int.from_bytes(value, "little", signed=True) for value in _cut(data, width)]
    if leaf.kind == "fixed":
        try:
            return [value.to_bytes(leaf.size, "big", signed=True) for value in unscaled]
        except OverflowError:
            raise Unfit(f"expected a decimal of {leaf.size} bytes, found a longer one") from None
    made = [
        value.to_bytes((value if value >= 0 else ~value).bit_length() // 8 + 1, "big", signed=True)
        for value in unscaled
    ]
    return [encode_signed(len(value)) + value for value in made]


def _deflate(data: bytes) -> bytes:
    stream = zlib.compressobj(wbits=RAW_DEFLATE)
    return stream.compress(data) + stream.flush()


PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "null": lambda data: data,
    "deflate": _deflate,
    "bzip2": bz2.compress,
    "xz": lzma.compress,
    "snappy": lambda data: (
        pa.Codec("snappy").compress(data, asbytes=True) + zlib.crc32(data).to_bytes(CRC_BYTES, "big")
    ),
    "zstandard": zstd.compress,
    "lz4": lambda data: len(data).to_bytes(LZ4_SIZE_BYTES, "little") + pa.Codec("lz4_raw").compress(data, asbytes=True),
}


@dataclass(frozen=True)
class AvroStyle:
    """How Avro files are written. `text` is the writer's schema, unchanged from the file; empty without a file."""

    text: bytes = b""
    codec: str = USUAL_CODEC
    ending: str = ".avro"

    @property
    def columns(self) -> Sequence[str]:
        return row_schema(self.text).arrow.names if self.text else []

    def open(self, schema: pa.Schema, path: str) -> "AvroWriter":
        return AvroWriter(self, schema, path)


def avro_style(reader: RangeReader | None, options: Options) -> AvroStyle:
    """The style of a file; without a file, snappy, and types as Spark writes them."""
    if reader is None:
        return AvroStyle()
    header = open_avro(reader, options).header
    codec = header.metadata.get(CODEC_KEY, b"null").decode()
    return AvroStyle(header.metadata[SCHEMA_KEY], codec)


class AvroWriter:
    """Writes Avro files. A block is compressed when it is full."""

    def __init__(self, style: AvroStyle, schema: pa.Schema, path: str) -> None:
        self._path = path
        text = style.text or json.dumps({"type": "record", "name": ROOT, "fields": []}).encode()
        self._columns = plan_columns(_fields(text, path), schema, natural, path)
        text = _with_columns(text, self._columns, path)
        self._nodes = _nodes(parse_schema(text))
        self._fields = row_schema(text).arrow
        for column, field in zip(self._columns, self._fields, strict=True):
            if column.given and holds(field.type, lambda kind: isinstance(kind, pa.JsonType)):
                raise UnsupportedFormat("a recursive type, which Gnomon does not write", path, column=field.name)
        self._pack, self._sync = PACKERS[style.codec], secrets.token_bytes(SYNC_BYTES)
        metadata = {CODEC_KEY: style.codec.encode(), SCHEMA_KEY: text}
        entries = b"".join(_text(key.encode()) + _text(value) for key, value in metadata.items())
        self._out = bytearray(MAGIC + encode_signed(len(metadata)) + entries + b"\0" + self._sync)
        self._rows: Pieces = []
        self._held = 0

    @property
    def size(self) -> int:
        return len(self._out) + self._held

    def write(self, batch: pa.RecordBatch) -> None:
        arrays = arrays_of(self._columns, batch, self._path)
        columns = []
        for column, node, array in zip(self._columns, self._nodes, arrays, strict=True):
            try:
                columns.append(encode(node, array))
            except Unfit as error:
                raise UnsupportedFormat(str(error), self._path, column=column.field.name) from None
        for parts in zip(*columns, strict=True):
            row = b"".join(parts)
            self._rows.append(row)
            self._held += len(row)
            if self._held >= BLOCK_BYTES:
                self._end_block()

    def _end_block(self) -> None:
        if self._rows:
            packed = self._pack(b"".join(self._rows))
            self._out += encode_signed(len(self._rows)) + encode_signed(len(packed)) + packed + self._sync
        self._rows, self._held = [], 0

    def finish(self) -> bytes:
        self._end_block()
        return bytes(self._out)


def _text(data: bytes) -> bytes:
    return encode_signed(len(data)) + data


def _nodes(root: Node) -> list[Node]:
    return [node for _, node in root.fields] if isinstance(root, Record) else [root]


def _fields(text: bytes, path: str) -> pa.Schema:
    """The columns of a schema, with their nullability."""
    arrow = row_schema(text).arrow
    if len(set(arrow.names)) < len(arrow):
        raise UnsupportedFormat(
            f"columns that share a name, of {', '.join(arrow.names)}; Gnomon writes no such file", path
        )
    nodes = _nodes(parse_schema(text))
    return pa.schema([field.with_nullable(may_be_null(node)) for field, node in zip(arrow, nodes, strict=True)])


def _with_columns(text: bytes, columns: Sequence[Column], path: str) -> bytes:
    """The schema text with the columns that the file lacks, and with the new types of columns that change; unchanged if
    there are none."""
    if all(column.kept for column in columns):
        return text
    declared = json.loads(text)
    if not (isinstance(declared, dict) and isinstance(declared.get("fields"), list)):
        raise UnsupportedFormat(
            f"the rows of the source's files are not records but {VALUE}; no column can be added", path
        )
    names, known = count(), declared["fields"]
    for place, column in enumerate(columns):
        if column.kept:
            continue
        kind = declare(column.field.type, column.field.name, names)
        made = {"name": column.field.name, "type": ["null", kind] if column.field.nullable else kind}
        made |= {"default": None} if column.field.nullable else {}
        known[place : place + 1] = [made]
    changed = json.dumps(declared, ensure_ascii=False).encode()
    try:
        row_schema(changed)
    except (Malformed, LimitExceeded) as error:
        raise UnsupportedFormat(f"its schema cannot take other columns: {error}", path) from None
    return changed


MOMENTS = {"ms": "millis", "us": "micros", "ns": "nanos"}


def natural(kind: pa.DataType) -> pa.DataType:
    """The type in which Gnomon's reader returns the values of a new column."""
    if types.is_struct(kind):
        return pa.struct([one.with_type(natural(one.type)) for one in kind])
    if types.is_map(kind) and types.is_string(kind.key_type):
        return pa.map_(pa.string(), natural(kind.item_type))
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return pa.list_(natural(kind.value_type))
    if types.is_integer(kind) and kind.bit_width <= 64 and not types.is_uint64(kind):
        return pa.int64() if types.is_int64(kind) or types.is_uint32(kind) else pa.int32()
    if types.is_large_string(kind) or types.is_string_view(kind):
        return pa.string()
    if types.is_large_binary(kind) or types.is_binary_view(kind):
        return pa.binary()
    if types.is_timestamp(kind) and kind.unit in MOMENTS:
        return pa.timestamp(kind.unit, "UTC" if kind.tz else None)
    plain = (types.is_null, types.is_boolean, types.is_float32, types.is_float64, types.is_string, types.is_binary)
    others = (types.is_fixed_size_binary, types.is_date32, types.is_decimal)
    times = kind in (pa.time32("ms"), pa.time64("us"), pa.uuid())
    if times or any(is_kind(kind) for is_kind in (*plain, *others)):
        return kind
    raise TypeError("Avro has no such type")


def declare(kind: pa.DataType, name: str, names: "count[int]") -> Any:
    """The Avro type of a column of a `natural` type."""
    if types.is_struct(kind):
        fields = [{"name": one.name, "type": ["null", declare(one.type, one.name, names)]} for one in kind]
        return {"type": "record", "name": f"record{next(names)}", "namespace": f"{ROOT}.added", "fields": fields}
    if types.is_map(kind):
        return {"type": "map", "values": ["null", declare(kind.item_type, name, names)]}
    if types.is_list(kind):
        return {"type": "array", "items": ["null", declare(kind.value_type, name, names)]}
    if types.is_fixed_size_binary(kind):
        return {"type": "fixed", "name": f"fixed{next(names)}", "namespace": f"{ROOT}.added", "size": kind.byte_width}
    if types.is_decimal(kind):
        return {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
    if types.is_timestamp(kind):
        return {"type": "long", "logicalType": f"{'' if kind.tz else 'local-'}timestamp-{MOMENTS[kind.unit]}"}
    logical = {pa.date32(): ("int", "date"), pa.time32("ms"): ("int", "time-millis")}
    logical |= {pa.time64("us"): ("long", "time-micros"), pa.uuid(): ("string", "uuid")}
    if kind in logical:
        return {"type": logical[kind][0], "logicalType": logical[kind][1]}
    plain = {pa.int32(): "int", pa.int64(): "long", pa.float32(): "float", pa.float64(): "double"}
    plain |= {pa.bool_(): "boolean", pa.string(): "string", pa.binary(): "bytes", pa.null(): "null"}
    return plain[kind]
