"""One block: its records, searched by bisection. A look-up compares keys and follows links, so only these are decoded;
values are decoded on request."""

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from operator import le
from typing import Any, Protocol, Self

from gnomon.base import kernel
from gnomon.base.records_python import Located
from gnomon.btree.key_types import Stored, key_type
from gnomon.btree.keys import Key, OrderKey, order_key
from gnomon.btree.schema import Column, FileSchema

# errors on damaged bytes
UNREADABLE = (ValueError, IndexError, struct.error)
MOST_COMPILED = 8  # key columns that `kernel.RecordKeys` compares
RECORD_BYTES = 300  # approximate memory of a record besides its bytes

Row = tuple[Any, ...]  # the columns of a record, in the order of the entry's schema


class NodeDecoder:
    """Makes a `Node` of the records of a block. There is one per file, for its own schema."""

    order: Callable[[Key], OrderKey] = staticmethod(order_key)  # of the keys as nodes hold them

    def __init__(self, schema: FileSchema) -> None:
        entry = schema.entry
        self._keys = schema.plan([column.name for column in entry.keys])
        self._values = schema.plan([column.name for column in entry.values])
        self._entries = schema.plan([column.name for column in entry.columns])
        self._rows = schema.plan([column.name for column in entry.columns], raw_decimals=True)
        self._convert_keys = [_converter(column) for column in entry.keys]
        self._convert_values = [_converter(column) for column in entry.values]
        # Keys without nulls and floats compare in their form in the file.
        self.is_plain = not any(name in ("float", "double") for name in entry.key_types)
        self._compiled = kernel.RecordKeys is not None and len(entry.keys) <= MOST_COMPILED

    def node(self, count: int, records: bytes) -> "Node":
        """The node whose block holds these records. On damaged bytes, this and the following methods raise an error of
        `UNREADABLE`."""
        if self._compiled:
            return Node(self, kernel.RecordKeys(records, count, *self._keys), records)
        return Node(self, ListedKeys(self, kernel.locate(records, count, 0, True, *self._keys)), records)

    def cut(self, count: int, records: bytes, most: int) -> Iterator[tuple[int, bytes]]:
        """The records in pieces of at most `most`: `(count, bytes)`."""
        begin = 0
        for left in range(count, 0, -most):
            some = min(left, most)
            end = kernel.locate(records, some, begin, False, *self._keys)[0][-1] if some < left else len(records)
            yield some, records[begin:end]
            begin = end

    def rows(self, count: int, records: bytes, begin: int = 0) -> list[Row]:
        """`count` records from a byte on, in their form in the file: text as its UTF-8 bytes, decimals as bytes."""
        return list(zip(*kernel.locate(records, count, begin, False, *self._rows)[1], strict=True))

    def values(self, count: int, records: bytes, begin: int) -> list[Key]:
        """The values of `count` records in stored form. ValueError for a value that its type does not have."""
        columns = kernel.locate(records, count, begin, False, *self._values)[1]
        return _stored(columns, self._convert_values)

    def entries(self, count: int, records: bytes, begin: int) -> list[tuple[Key, Key]]:
        """The keys and values of `count` records in stored form. ValueError for a value that its type does not
        have."""
        columns = kernel.locate(records, count, begin, False, *self._entries)[1]
        split = len(self._convert_keys)
        keys, values = _stored(columns[:split], self._convert_keys), _stored(columns[split:], self._convert_values)
        return list(zip(keys, values, strict=True))


class Keys(Protocol):
    """The keys of the records of a node, with where each record begins, and its link."""

    @property
    def cache_bytes(self) -> int: ...

    def __len__(self) -> int: ...

    def start(self, record: int) -> int:
        """The byte at which a record begins. For the number of records, the byte at which the last record ends."""

    def link(self, record: int) -> int | None: ...

    def next_link(self, begin: int) -> int:
        """One past the first record with a link from `begin` on, or past the last record."""

    def is_sorted(self) -> bool:
        """Whether the keys do not decrease."""

    def is_ordered(self, record: int, other: Self, others: int) -> bool:
        """Whether the key of `record` is at most the key of the record `others` of another node."""

    def find(self, probe: Key) -> tuple[int, int]:
        """The records with a key: the first, and one past the last."""


class ListedKeys:
    """`Keys` in Python lists, where `kernel.RecordKeys` cannot compare them."""

    def __init__(self, decoder: NodeDecoder, located: Located) -> None:
        """`located` has the keys: text as its UTF-8 bytes, decimals as integers."""
        self._decoder = decoder
        self._starts, self._columns, self._links = located
        columns = self._columns
        self._plain: Sequence[Any] | None = None
        if decoder.is_plain and not any(None in column for column in columns):
            self._plain = columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))
        self._ordered: list[OrderKey] | None = None
        self.cache_bytes = self._starts[-1] + RECORD_BYTES * len(self)

    def __len__(self) -> int:
        return len(self._links)

    def start(self, record: int) -> int:
        return self._starts[record]

    def link(self, record: int) -> int | None:
        return self._links[record]

    def next_link(self, begin: int) -> int:
        for end, link in enumerate(islice(self._links, begin, None), begin + 1):
            if link is not None:
                return end
        return len(self._links)

    def is_sorted(self) -> bool:
        keys = self._plain if self._plain is not None else self._orders()
        return all(map(le, keys, islice(keys, 1, None)))

    def is_ordered(self, record: int, other: Self, others: int) -> bool:
        if self._plain is not None and other._plain is not None:
            return bool(self._plain[record] <= other._plain[others])
        return self._order(record) <= other._order(others)

    def _order(self, record: int) -> OrderKey:
        """The key of a record, in a form that compares with keys of any node."""
        return self._decoder.order(tuple([column[record] for column in self._columns]))

    def find(self, probe: Key) -> tuple[int, int]:
        keys: Sequence[Any]
        wanted: Any
        if self._plain is not None and None not in probe:
            keys, wanted = self._plain, probe[0] if len(probe) == 1 else probe
        else:
            keys, wanted = self._orders(), self._decoder.order(probe)
        first = bisect_left(keys, wanted)
        return first, bisect_right(keys, wanted, lo=first)

    def _orders(self) -> list[OrderKey]:
        if self._ordered is None:
            self._ordered = [self._order(record) for record in range(len(self))]
        return self._ordered


class Node:
    """Records of one block."""

    def __init__(self, decoder: NodeDecoder, keys: Keys, records: bytes) -> None:
        self._decoder = decoder
        self._records = records
        self.keys = keys
        self.cache_bytes = keys.cache_bytes

    def __len__(self) -> int:
        return len(self.keys)

    def rows(self, first: int, last: int) -> list[Row]:
        """Records from `first` to before `last`, in their form in the file."""
        return self._decoder.rows(last - first, self._records, self.keys.start(first)) if first < last else []

    def bytes(self, first: int, last: int) -> bytes:
        """The bytes of records from `first` to before `last`, not decoded."""
        return self._records[self.keys.start(first) : self.keys.start(last)]

    def values(self, first: int, last: int) -> list[Key]:
        """The values of records in stored form. ValueError for a value that its type does not have."""
        return self._decoder.values(last - first, self._records, self.keys.start(first)) if first < last else []

    def entries(self, first: int, last: int) -> list[tuple[Key, Key]]:
        """The keys and values of records in stored form. ValueError for a value that its type does not have."""
        return self._decoder.entries(last - first, self._records, self.keys.start(first)) if first < last else []


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


def _decimal(limit: int, value: int) -> int:
    if abs(value) >= limit:
        raise ValueError("a decimal of more digits than its type has")
    return value


def _stored(columns: Sequence[Sequence[Any]], converters: Sequence[Converter | None]) -> list[Key]:
    """The rows of columns, in stored form."""
    made = [
        column if convert is None else [None if value is None else convert(value) for value in column]
        for column, convert in zip(columns, converters, strict=True)
    ]
    return list(zip(*made, strict=True))
