"""Values of recursive types as JSON text, because their Arrow type would be infinite.

A record is an object, a union the bare value, bytes are base64. Decimals, dates, times, timestamps and UUIDs are text.

The number of elements that a batch of rows may hold is limited here, too: a byte count does not limit it, because a
null, or a record of nulls, takes no bytes.
"""

import base64
import json
from typing import Any

import pyarrow as pa

from gnomon.base.errors import check_memory
from gnomon.base.json_forms import date_text, json_float, time_text, timestamp_text
from gnomon.base.varints import decode_signed, decode_unsigned
from gnomon.sources.avro.container import LimitExceeded, Malformed
from gnomon.sources.avro.leaf_arrays import array_of
from gnomon.sources.avro.schema import Array, Leaf, Map, Node, Record, Union

MOST_CELLS = 1 << 25  # elements of arrays and maps, times the columns in each; a list takes about 40 bytes for one
MOST_NESTED = 400  # nesting levels of values, with unions: Python's stack has 1000 calls, including those of callers
NAME_BYTES_A_CELL = 64  # the text of each record repeats the names


class Budget:
    def __init__(self) -> None:
        self._left = MOST_CELLS

    def spend(self, cells: int) -> None:
        self._left -= cells
        if self._left < 0:
            raise LimitExceeded(f"more than {MOST_CELLS} elements of arrays and maps at once")

    def run(self, data: bytes, position: int, value: int, least: int, cells: int, jump: bool) -> tuple[int, int]:
        """The number of elements in a run and the position of the first one.

        `value` is the run's count, not 0, in zigzag form. After a negative count follows the run's length in bytes:
        with `jump` the run is skipped, and the number is 0. An element has at least `least` bytes and makes `cells`
        cells."""
        count = (value >> 1) + (value & 1)
        if value & 1:
            size, position = decode_unsigned(data, position)
            if size & 1 or size >> 1 > len(data) - position:
                raise Malformed("a run of elements longer than the records")
            if jump:
                return 0, position + (size >> 1)
        if count * least > len(data) - position:
            raise Malformed(f"{count} elements where {len(data) - position} bytes are left")
        self.spend(count * cells)
        return count, position


def read_length(data: bytes, position: int) -> tuple[int, int]:
    """The length of a string or of bytes in zigzag order, and the position after it.

    Raises Malformed for a length below 0 or beyond the data."""
    value, position = decode_unsigned(data, position)
    if value & 1:
        raise Malformed("a length below 0")
    if value >> 1 > len(data) - position:
        raise Malformed(f"a length of {value >> 1} bytes where {len(data) - position} are left")
    return value, position


class JsonReader:
    """Reads values of one type, one at a time."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def text(self, data: bytes, position: int, budget: Budget) -> tuple[bytes, int]:
        """The value's text, and the position after it."""
        value, position = self.value(data, position, budget)
        return json.dumps(value, ensure_ascii=False, allow_nan=False).encode(), position

    def value(self, data: bytes, position: int, budget: Budget) -> tuple[Any, int]:
        """The value, in a form that `json` accepts, and the position after it."""
        try:
            return _value(self._node, data, position, budget, 0)
        except RecursionError:  # the callers may already use much of the stack
            raise LimitExceeded("a value of a recursive type nested deeper than Python's stack allows") from None
        except (UnicodeDecodeError, OverflowError, pa.ArrowException) as error:
            check_memory(error)
            raise Malformed(f"in a value of a recursive type: {error}") from error


def _value(node: Node, data: bytes, p: int, budget: Budget, depth: int) -> tuple[Any, int]:
    if isinstance(node, Leaf):
        return _leaf(node, data, p)
    if depth > MOST_NESTED:
        raise LimitExceeded(f"a value of a recursive type nested more than {MOST_NESTED} deep")
    if isinstance(node, Union):
        branch, p = decode_signed(data, p)
        if not 0 <= branch < len(node.branches):
            raise Malformed(f"branch {branch} of a union of {len(node.branches)}")
        return _value(node.branches[branch], data, p, budget, depth + 1)
    if isinstance(node, Record):
        budget.spend(1 + sum(len(name) for name, _ in node.fields) // NAME_BYTES_A_CELL)
        record = {}
        for name, kind in node.fields:
            record[name], p = _value(kind, data, p, budget, depth + 1)
        return record, p
    elements: list[Any] = []
    keys: list[str] = []
    while True:
        count, p = decode_unsigned(data, p)
        if count == 0:
            return (elements if isinstance(node, Array) else dict(zip(keys, elements, strict=True))), p
        count, p = budget.run(data, p, count, 0, 1, False)
        for _ in range(count):
            if isinstance(node, Map):
                if not (isinstance(node.keys, Leaf) and node.keys.kind == "string"):
                    raise LimitExceeded("a map of Iceberg whose keys are no strings, nested too deep")
                key, p = _bytes(data, p)
                keys.append(key.decode())
            element, p = _value(node.values if isinstance(node, Map) else node.items, data, p, budget, depth + 1)
            elements.append(element)


def _bytes(data: bytes, p: int) -> tuple[bytes, int]:
    size, p = read_length(data, p)
    return data[p : p + (size >> 1)], p + (size >> 1)


def _leaf(leaf: Leaf, data: bytes, p: int) -> tuple[Any, int]:
    kind = leaf.kind
    if kind == "null":
        return None, p
    if kind == "long" and not leaf.logical:
        return decode_signed(data, p)
    if kind == "string" and not leaf.logical:
        text, p = _bytes(data, p)
        return text.decode(), p
    raw: int | bytes
    if kind in ("int", "long", "enum"):
        raw, p = decode_unsigned(data, p)
    elif kind in ("string", "bytes"):
        raw, p = _bytes(data, p)
    elif kind == "boolean":
        raw, p = data[p], p + 1
    else:
        size = {"float": 4, "double": 8}.get(kind, leaf.size)
        raw, p = data[p : p + size], p + size
    return _plain(array_of(leaf, [raw])), p


def _plain(one: pa.Array) -> Any:
    """The value of an array of one value, in its JSON form."""
    if pa.types.is_temporal(one.type):
        return _moment(one)
    value = one[0].as_py()
    if isinstance(value, float):
        return json_float(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if pa.types.is_decimal(one.type):
        return format(value, "f")
    return value if isinstance(value, (bool, int, str)) else str(value)


def _moment(one: pa.Array) -> str:
    ticks = one.view(pa.int32() if one.type.bit_width == 32 else pa.int64())[0].as_py()
    if pa.types.is_date32(one.type):
        return date_text(ticks)
    if pa.types.is_time(one.type):
        return time_text(ticks, one.type.unit)
    return timestamp_text(ticks, one.type.unit, one.type.tz is not None)
