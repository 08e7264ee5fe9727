"""One block: its records, searched by bisection. A look-up compares keys and follows links, so only these are decoded;
values are decoded on request.

The nodes of Dione's files have Java's order of keys: nulls may be greatest, bytes compare signed (a decimal is compared
as its bytes), -0.0 comes before 0.0, and NaN is the greatest number. So equal keys may have several forms."""

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice, product
from operator import le
from typing import Any, Protocol, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from gnomon.base import kernel
from gnomon.base.hashes_python import unscaled_bytes
from gnomon.base.records_python import Located
from gnomon.btree.errors import BTreeError
from gnomon.btree.key_types import Stored, key_type
from gnomon.btree.keys import Key, OrderKey, adjacent, order_key
from gnomon.btree.schema import Column, FileSchema

# errors on damaged bytes
UNREADABLE = (ValueError, IndexError, struct.error)
MOST_COMPILED = 8  # key columns that `kernel.RecordKeys` compares
RECORD_BYTES = 300  # approximate memory of a record besides its bytes

Row = tuple[Any, ...]  # the columns of a record, in the order of the entry's schema
SIGNED_TO_UNSIGNED = bytes(byte ^ 0x80 for byte in range(256))
LARGEST_LONG = (1 << 63) - 1
FLOATS = ("float", "double")


class NodeDecoder:
    """Makes a `Node` of the records of a block. There is one per file, for its own schema."""

    order: Callable[[Key], OrderKey] = staticmethod(order_key)  # of the keys as nodes hold them

    def __init__(self, schema: FileSchema) -> None:
        entry = schema.entry
        self._keys = schema.plan([column.name for column in entry.keys])
        self._values = schema.plan([column.name for column in entry.values], stored=True)
        self._entries = schema.plan([column.name for column in entry.columns], stored=True)
        self._rows = schema.plan([column.name for column in entry.columns], raw_decimals=True)
        self._convert_keys = [_converter(column) for column in entry.keys]
        self._convert_values = [_converter(column) for column in entry.values]
        # Keys without nulls and floats compare in their form in the file.
        self.is_plain = not any(name in FLOATS for name in entry.key_types)
        # Whether the keys of nodes are `kernel.RecordKeys`.
        self.is_compiled = kernel.RecordKeys is not None and len(entry.keys) <= MOST_COMPILED

    def node(self, count: int, records: bytes) -> "Node":
        """The node whose block holds these records. On damaged bytes, this and the following methods raise an error of
        `UNREADABLE`."""
        if self.is_compiled:
            return Node(self, kernel.RecordKeys(records, count, *self._keys), records)
        return Node(self, ListedKeys(self, kernel.locate(records, count, 0, True, *self._keys)), records)

    def check(self, key: Key) -> None:
        """Raise BTreeError for a key of another number of columns."""
        if len(key) != len(self._convert_keys):
            raise BTreeError(f"a key of this file has {len(self._convert_keys)} columns")

    def probes(self, key: Key) -> list[Key]:
        """The forms of a key that the nodes of this file may hold, in ascending order; text is its UTF-8 bytes.
        BTreeError for a key of another number of columns."""
        self.check(key)
        return [tuple([part.encode() if isinstance(part, str) else part for part in key])]

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

    __slots__ = ("_decoder", "_records", "cache_bytes", "keys")

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


Converter = Callable[[int], Stored]


def _converter(column: Column) -> Converter | None:
    """The check of a decimal's digits; None for other types, whose stored form `kernel.locate` makes."""
    kind = key_type(column.type).decimal
    return partial(_decimal, 10**kind.precision) if kind else None


def _decimal(limit: int, value: int) -> int:
    if abs(value) >= limit:
        raise ValueError("a decimal of more digits than its type has")
    return value


def _stored(columns: Sequence[Sequence[Any]], converters: Sequence[Converter | None]) -> list[Key]:
    """The rows of columns, in stored form."""
    made = list(columns)
    for i, convert in enumerate(converters):
        if convert is not None:
            made[i] = [None if value is None else convert(value) for value in columns[i]]
    return list(zip(*made, strict=True))


# -- Dione's order of keys ---------------------------------------------------------------------------------------------


class JavaOrder:
    """The order of the keys in one file; decimals are given as their bytes in the file."""

    def __init__(self, nulls_last: Sequence[bool], types: Sequence[str]) -> None:
        """For each key column: whether null is its greatest value, and its type."""
        self._columns = list(zip(nulls_last, map(has_signed_bytes, types), strict=True))

    def __call__(self, key: Key) -> OrderKey:
        """A tuple that Python compares in this file's key order."""
        out: list[tuple[int, Stored]] = []
        for value, (null_last, signed) in zip(key, self._columns, strict=True):
            if value is None:
                out.append((3 if null_last else 0, None))
            elif signed and isinstance(value, bytes):
                out.append((1, value.translate(SIGNED_TO_UNSIGNED)))
            elif isinstance(value, float) and value == value:
                out.append((1, _total_order(value)))
            else:
                out += order_key((value,))
        return tuple(out)


def _total_order(value: float) -> int:
    """An integer that compares as Java's Double.compare does: the bits, inverted for negative numbers."""
    bits: int = struct.unpack("<q", struct.pack("<d", value))[0]
    return bits if bits >= 0 else bits ^ LARGEST_LONG


def has_signed_bytes(type_name: str) -> bool:
    """Whether Java compares values of this type as signed bytes."""
    return type_name == "binary" or key_type(type_name).decimal is not None


def is_arrow_ordered(types: Sequence[str]) -> bool:
    """Whether Arrow compares keys of these types as Java does, nulls aside."""
    return not any(name in FLOATS or has_signed_bytes(name) for name in types)


def adjacent_nulls_last(columns: Sequence[pa.Array]) -> tuple[np.ndarray, np.ndarray]:
    """`keys.adjacent` with nulls greatest: whether a value is null compares before the value."""
    return adjacent([part for column in columns for part in (column.is_null(), column)])


def total_order(key: pa.Array) -> pa.Array:
    """A column of floats as integers that compare as Java does; another column as it is."""
    if not pa.types.is_floating(key.type):
        return key
    double = key.cast(pa.float64())
    bits: npt.NDArray[np.int64] = double.fill_null(0.0).to_numpy(zero_copy_only=False).view(np.int64)
    return pa.array(np.where(bits < 0, bits ^ LARGEST_LONG, bits), pa.int64(), mask=double.is_null().to_numpy(False))


# -- Dione's nodes -----------------------------------------------------------------------------------------------------


class DioneDecoder(NodeDecoder):
    """Makes a `Node` of the records of a block of a Dione file."""

    def __init__(self, schema: FileSchema) -> None:
        super().__init__(schema)
        types = schema.entry.key_types
        self.order = JavaOrder(schema.nulls_last, types)
        self.is_plain = is_arrow_ordered(types)
        self.is_compiled = False  # `kernel.RecordKeys` has our order of keys
        self._keys = schema.plan([column.name for column in schema.entry.keys], raw_decimals=True)
        self._is_decimal = [key_type(name).decimal is not None for name in types]
        self._is_float = [name in FLOATS for name in types]

    def probes(self, key: Key) -> list[Key]:
        """A key with a zero of a float type has several forms, since -0.0 and 0.0 differ in Java's order."""
        parts = zip(*super().probes(key), self._is_decimal, self._is_float, strict=True)
        return list(product(*[_forms(*part) for part in parts]))


def _forms(part: Stored, is_decimal: bool, is_float: bool) -> tuple[Stored, ...]:
    """The forms of the value of one key column."""
    if part is None:
        return (None,)
    if is_decimal:
        return (unscaled_bytes(int(part)),)
    return (-0.0, 0.0) if is_float and part == 0 else (part,)
