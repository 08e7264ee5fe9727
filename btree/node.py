"""One decoded block: its records, searched by bisection."""

import io
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from itertools import islice
from operator import le
from typing import Any, NamedTuple

import fastavro

from btree.format import LINK_FIELD
from btree.keys import Key, KeyOrder, OrderKey, Stored, decimal_type
from btree.schema import Column, FileSchema

RECORD_BYTES = 500  # of memory that a decoded record takes beside its text, measured roughly

Row = dict[str, Any]


class Probe(NamedTuple):
    """A key asked for, in the forms that nodes compare."""

    order: OrderKey
    plain: Any  # None where only `order` compares: a part is null or a float


class NodeDecoder:
    """Turns the records of a block into a `Node`; made once per file from its own schema."""

    def __init__(self, schema: FileSchema, signed_bytes: bool = False) -> None:
        # A block is `count` records; an Avro array is the same with a count before it and a zero after it, so
        # that one call decodes them all.
        self._array = fastavro.parse_schema({"type": "array", "items": schema.plain_avro()})
        self.keys = [(column.name, _converter(column)) for column in schema.entry.keys]
        self.values = [(column.name, _converter(column)) for column in schema.entry.values]
        self.decimals = {column.name for column in schema.entry.keys if decimal_type(column.type)}
        signed = [signed_bytes and column.type == "binary" for column in schema.entry.keys]
        self.order = KeyOrder(schema.nulls_last, signed)
        # Keys without nulls, floats and signed bytes compare as they come from the file.
        self.is_plain = not any(signed) and not any(column.type in ("float", "double") for column in schema.entry.keys)

    def decode(self, count: bytes, records: bytes) -> "Node":
        """The node whose block holds these records; `count` is their number as a varint. Raises what fastavro
        raises on damaged bytes, ValueError when bytes are left over."""
        stream = io.BytesIO(b"".join([count, records, b"\x00"]))
        rows: list[Row] = fastavro.schemaless_reader(stream, self._array, None)
        if stream.tell() != len(count) + len(records) + 1:
            raise ValueError("bytes left over after the last record")
        return Node(self, rows, len(records))

    def probe(self, key: Key) -> Probe:
        """A key in stored form, to be looked for in nodes of this file."""
        raw = tuple([part.encode() if isinstance(part, str) else part for part in key])
        if not self.is_plain or None in raw:
            return Probe(self.order(raw), None)
        return Probe(self.order(raw), raw[0] if len(raw) == 1 else raw)


class Node:
    """Records of one block. `columns` holds the key columns: decimals as integers, text as its UTF-8 bytes."""

    def __init__(self, decoder: NodeDecoder, rows: list[Row], size: int) -> None:
        self._decoder = decoder
        self._rows = rows
        self.links: list[int | None] = [row[LINK_FIELD] for row in rows]
        self.columns = [
            [_integer(row[name]) for row in rows] if name in decoder.decimals else [row[name] for row in rows]
            for name, _ in decoder.keys
        ]
        self._plain: Sequence[Any] | None = None
        if decoder.is_plain and not any(None in column for column in self.columns):
            self._plain = self.columns[0] if len(self.columns) == 1 else list(zip(*self.columns, strict=True))
        self._ordered: list[OrderKey] | None = None
        self.cache_bytes = size + RECORD_BYTES * len(rows)

    def __len__(self) -> int:
        return len(self._rows)

    def order(self, record: int) -> OrderKey:
        """The key of a record, as keys of any node compare."""
        return self._decoder.order(tuple([column[record] for column in self.columns]))

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
            self._ordered = [self.order(record) for record in range(len(self))]
        return self._ordered

    def key(self, record: int) -> Key:
        """The key of a record in stored form. UnicodeDecodeError where text is none."""
        return _stored(self._rows[record], self._decoder.keys)

    def value(self, record: int) -> Key:
        """The value of a record in stored form. UnicodeDecodeError where text is none."""
        return _stored(self._rows[record], self._decoder.values)

    def check_text(self) -> None:
        """Decode every text. UnicodeDecodeError where one is none."""
        for name, convert in [*self._decoder.keys, *self._decoder.values]:
            if convert is _text:
                for row in self._rows:
                    _text(row[name])


Converter = Callable[[Any], Stored]


def _converter(column: Column) -> Converter | None:
    """From a value as it lies in the file to its stored form; None where they are the same."""
    return _text if column.type == "string" else _integer if decimal_type(column.type) else None


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode()


def _integer(data: bytes | None) -> int | None:
    return None if data is None else int.from_bytes(data, "big", signed=True)


def _stored(row: Row, fields: list[tuple[str, Converter | None]]) -> Key:
    return tuple([row[name] if convert is None else convert(row[name]) for name, convert in fields])
