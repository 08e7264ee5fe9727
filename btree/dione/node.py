"""The nodes of Dione's index files. Keys are in Java's order, and equal keys may have several forms."""

from itertools import product

from gnomon.base import kernel
from gnomon.btree.dione.order import FLOATS, JavaOrder, is_arrow_ordered
from gnomon.btree.hashing import unscaled_bytes
from gnomon.btree.key_types import Stored, key_type
from gnomon.btree.keys import Key
from gnomon.btree.node import ListedKeys, Node, NodeDecoder
from gnomon.btree.schema import FileSchema


class DioneDecoder(NodeDecoder):
    """Makes a `Node` from a block of a Dione file."""

    def __init__(self, schema: FileSchema) -> None:
        super().__init__(schema)
        types = schema.entry.key_types
        self.order = JavaOrder(schema.nulls_last, types)
        self.is_plain = is_arrow_ordered(types)
        self._keys = schema.plan([column.name for column in schema.entry.keys], raw_decimals=True)
        self._is_decimal = [key_type(name).decimal is not None for name in types]
        self._is_float = [name in FLOATS for name in types]

    def node(self, count: int, records: bytes) -> Node:
        """The node whose block holds these records."""
        return Node(self, ListedKeys(self, kernel.locate(records, count, 0, True, *self._keys)), records)

    def probes(self, key: Key) -> list[Key]:
        """The forms of a key that the nodes of this file may hold, in ascending order. A key with a zero of a float
        type has several forms, since -0.0 and 0.0 differ in Java's order."""
        parts = zip(key, self._is_decimal, self._is_float, strict=True)
        return list(product(*[_forms(*part) for part in parts]))


def _forms(part: Stored, is_decimal: bool, is_float: bool) -> tuple[Stored, ...]:
    """The forms of the value of one key column."""
    if part is None:
        return (None,)
    if is_decimal:
        return (unscaled_bytes(int(part)),)
    return (-0.0, 0.0) if is_float and part == 0 else (part,)
