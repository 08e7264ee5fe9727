"""Encodes Arrow columns as the bytes of Avro values, one bytes object for each row. `write` joins the columns of a row.

A value is encoded from its column's own array. A nested value costs no Python object except its bytes.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from gnomon.base.varints import encode_signed
from gnomon.sources.avro.schema import Array, Leaf, Map, Node, Record, Union
from gnomon.sources.types import Unfit

Pieces = list[bytes]
WIDTHS = {"int": pa.int32(), "long": pa.int64()}


FALSE_TRUE = (b"\0", b"\1")


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
    place = next((i for i, one in enumerate(node.branches) if not _is_null(one)), 0)
    nulls = [i for i, one in enumerate(node.branches) if _is_null(one)]
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


def _is_null(node: Node) -> bool:
    return isinstance(node, Leaf) and node.kind == "null"


def may_be_null(node: Node) -> bool:
    """Whether null is a value of the type."""
    return _is_null(node) or (isinstance(node, Union) and any(map(_is_null, node.branches)))


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
