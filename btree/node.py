"""One block: its records, searched by bisection. Values are decoded on request."""

import io
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice, product
from operator import le
from typing import Any, NamedTuple

import fastavro

from gnomon.base.varints import encode_signed
from gnomon.btree.hashing import unscaled_bytes
from gnomon.btree.key_types import Stored, key_type
from gnomon.btree.keys import Key, KeyOrder, OrderKey, has_signed_bytes
from gnomon.btree.node_decoder import Located, locator
from gnomon.btree.schema import Column, FileSchema

RECORD_BYTES = 300  # approximate memory of a record besides its bytes

Row = dict[str, Any]


class Probe(NamedTuple):
    """A wanted key, in the forms that nodes compare."""

    order: OrderKey
    plain: Any  # None where only `order` compares: a part is null or a float


class NodeDecoder:
    """Makes a `Node` of the records of a block. There is one per file, for its own schema."""

    def __init__(self, schema: FileSchema, as_java: bool = False) -> None:
        """`as_java`: the keys are in Java's order, as in a file of Dione's."""
        # A block is `count` records. An Avro array has a count before and a zero after them, so one call decodes them
        # all.
        self._array = fastavro.parse_schema({"type": "array", "items": schema.plain_avro()})
        self._locate = locator(schema, raw_decimals=as_java)
        self._keys = [(column.name, _converter(column)) for column in schema.entry.keys]
        self._values = [(column.name, _converter(column)) for column in schema.entry.values]
        types = schema.entry.key_types
        floats = [name in ("float", "double") for name in types]
        self._raw_decimals = [as_java and key_type(name).decimal is not None for name in types]
        self._both_zeros = [as_java and is_float for is_float in floats]
        self.order = KeyOrder(schema.nulls_last, types if as_java else ())
        # Arrow compares keys as Java does, with these exceptions.
        self.is_arrow_ordered = not as_java or not any(floats + [has_signed_bytes(name) for name in types])
        # Keys without nulls, floats and signed bytes compare in their form in the file.
        self.is_plain = self.is_arrow_ordered and not any(floats)

    def node(self, count: int, records: bytes) -> "Node":
        """The node whose block holds these records. ValueError, IndexError or struct.error on damaged bytes."""
        return Node(self, self._locate(records, count), records)

    def cut(self, count: int, records: bytes, most: int) -> Iterator[tuple[int, bytes]]:
        """The records in pieces of at most `most`: `(count, bytes)`."""
        begin = 0
        for left in range(count, 0, -most):
            some = min(left, most)
            end = self._locate(records, some, begin, False).starts[-1] if some < left else len(records)
            yield some, records[begin:end]
            begin = end

    def rows(self, count: int, records: bytes) -> list[Row]:
        """The records in their form in the file: text as its UTF-8 bytes, decimals as bytes."""
        stream = io.BytesIO(b"".join([encode_signed(count), records, b"\x00"]))
        rows: list[Row] = fastavro.schemaless_reader(stream, self._array, None)
        return rows

    def key_of(self, row: Row) -> Key:
        """The key of a record in stored form. ValueError for a value that its type does not have."""
        return _stored(row, self._keys)

    def value_of(self, row: Row) -> Key:
        """The value of a record in stored form. ValueError for a value that its type does not have."""
        return _stored(row, self._values)

    def probes(self, key: Key) -> list[Probe]:
        """The probes for a key in stored form, in nodes of this file. There is one, or several in ascending order where
        the file holds equal keys as different ones: in Java's order -0.0 and 0.0 differ."""
        raw = tuple([part.encode() if isinstance(part, str) else part for part in key])
        if self.is_plain and None not in raw:
            return [Probe(self.order(raw), raw[0] if len(raw) == 1 else raw)]
        parts = zip(raw, self._raw_decimals, self._both_zeros, strict=True)
        return [Probe(self.order(one), None) for one in product(*[_as_in_file(*part) for part in parts])]


class Node:
    """Records of one block."""

    def __init__(self, decoder: NodeDecoder, located: Located, records: bytes) -> None:
        self._decoder = decoder
        self._records = records
        self._starts = located.starts
        self._columns = columns = located.columns
        self.links = located.links
        self._plain: Sequence[Any] | None = None
        if decoder.is_plain and not any(None in column for column in columns):
            self._plain = columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))
        self._ordered: list[OrderKey] | None = None
        self.cache_bytes = len(records) + RECORD_BYTES * len(self)

    def __len__(self) -> int:
        return len(self.links)

    def is_ordered(self, record: int, other: "Node", others: int) -> bool:
        """Whether the key of a record is at most that of another node's record."""
        if self._plain is not None and other._plain is not None:
            return bool(self._plain[record] <= other._plain[others])
        return self._order(record) <= other._order(others)

    def _order(self, record: int) -> OrderKey:
        """The key of a record, in a form that compares with keys of any node."""
        return self._decoder.order(tuple([column[record] for column in self._columns]))

    def is_sorted(self) -> bool:
        """Whether the keys do not decrease."""
        keys = self._plain if self._plain is not None else self._orders()
        return all(map(le, keys, islice(keys, 1, None)))

    def find(self, probe: Probe) -> tuple[int, int]:
        """The records with this key: the first, and one past the last."""
        keys: Sequence[Any]
        if self._plain is not None and probe.plain is not None:
            keys, wanted = self._plain, probe.plain
        else:
            keys, wanted = self._orders(), probe.order
        first = bisect_left(keys, wanted)
        return first, bisect_right(keys, wanted, lo=first)

    def _orders(self) -> list[OrderKey]:
        if self._ordered is None:
            self._ordered = [self._order(record) for record in range(len(self))]
        return self._ordered

    def rows(self, first: int, last: int) -> list[Row]:
        """Records from `first` to before `last`, in their form in the file."""
        return self._decoder.rows(last - first, self.bytes(first, last)) if first < last else []

    def bytes(self, first: int, last: int) -> bytes:
        """The bytes of records from `first` to before `last`, not decoded."""
        return self._records[self._starts[first] : self._starts[last]]

    def values(self, first: int, last: int) -> list[Key]:
        """The values of records in stored form. ValueError for a value that its type does not have."""
        return [self._decoder.value_of(row) for row in self.rows(first, last)]

    def entries(self, first: int, last: int) -> list[tuple[Key, Key]]:
        """The keys and values of records in stored form. ValueError for a value that its type does not have."""
        return [(self._decoder.key_of(row), self._decoder.value_of(row)) for row in self.rows(first, last)]


def _as_in_file(part: Stored, is_raw_decimal: bool, both_zeros: bool) -> tuple[Stored, ...]:
    """The forms of a part of a key in a file that is in Java's order."""
    if part is None:
        return (None,)
    if is_raw_decimal:
        return (unscaled_bytes(int(part)),)
    return (-0.0, 0.0) if both_zeros and part == 0 else (part,)


Converter = Callable[[Any], Stored]


def _converter(column: Column) -> Converter | None:
    """The conversion of a value from its form in the file to its stored form; None where they are the same."""
    kind = key_type(column.type).decimal
    if kind:
        return partial(_decimal, 10**kind.precision)
    return _text if column.type == "string" else _int if column.type in ("int", "date") else None


def _text(data: bytes) -> str:
    return data.decode()


def _int(value: int) -> int:
    if not -(1 << 31) <= value < 1 << 31:  # Avro's int is a long on disk
        raise ValueError(f"{value} exceeds 32 bits")
    return value


def _decimal(limit: int, data: bytes) -> int:
    value = int.from_bytes(data, "big", signed=True)
    if abs(value) >= limit:
        raise ValueError("a decimal of more digits than its type has")
    return value


def _stored(row: Row, fields: list[tuple[str, Converter | None]]) -> Key:
    return tuple(
        [row[name] if convert is None or row[name] is None else convert(row[name]) for name, convert in fields]
    )
