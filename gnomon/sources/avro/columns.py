"""The columns of a schema: how a value is read, skipped or left out, and how the values become Arrow arrays.

`read`, `skip` and `fill` write lines of a decoder (`codegen`). The decoder appends raw values to lists: numbers in
zigzag form, strings and fixed-length values as bytes, None for null. `build` makes Arrow arrays of the lists.
`nested_columns` has the columns that contain columns.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import pyarrow as pa

from gnomon.sources.avro.arrow_buffers import text_array
from gnomon.sources.avro.codegen import Program
from gnomon.sources.avro.leaf_arrays import array_of
from gnomon.sources.avro.recursive_json import JsonReader
from gnomon.sources.avro.schema import Leaf, Node

Lists = Mapping[int, Sequence[Any]]


class Column(Protocol):
    """A field, an element or a branch. `name` is its name in a union; `least` the number of bytes of its shortest
    value; `leaves` the number of innermost columns within it, at least 1."""

    name: str
    type: pa.DataType
    least: int
    leaves: int

    def read(self, program: Program) -> None:
        """Write lines that read a value into the lists."""

    def skip(self, program: Program) -> None:
        """Write lines that skip a value."""

    def fill(self, program: Program) -> None:
        """Write lines that add a placeholder, for a column of a null record."""

    def build(self, lists: Lists, length: int) -> pa.Array:
        """The array of the `length` values read. ValueError (Malformed, or pyarrow's) for a value that the type does
        not have."""


class _LeafColumn:
    """The common part of all columns with one list."""

    leaves = 1
    least = 1

    def __init__(self, leaf: Leaf, number: int) -> None:
        """`number` is that of the list."""
        self.name = leaf.name
        self.type = array_of(leaf, []).type
        self._leaf = leaf
        self._list = number

    def fill(self, program: Program) -> None:
        program.append(self._list, "None")

    def build(self, lists: Lists, length: int) -> pa.Array:
        return array_of(self._leaf, lists[self._list])


class Null:
    name = "null"
    type = pa.null()
    least = 0
    leaves = 1

    def read(self, program: Program) -> None:
        """A null has no bytes."""

    skip = fill = read

    def build(self, lists: Lists, length: int) -> pa.Array:
        return pa.nulls(length)


class NumberColumn(_LeafColumn):
    """An int, a long, or the index of an enum's symbol."""

    def read(self, program: Program) -> None:
        program.number()
        program.append(self._list, "v")

    def skip(self, program: Program) -> None:
        program.skip_number()


class BooleanColumn(_LeafColumn):
    """A boolean."""

    def read(self, program: Program) -> None:
        program.append(self._list, "b[p]")
        program.line("p += 1")

    def skip(self, program: Program) -> None:
        program.line("p += 1")


class FixedColumn(_LeafColumn):
    """Values of a fixed number of bytes: float, double, fixed."""

    def __init__(self, leaf: Leaf, number: int, width: int) -> None:
        super().__init__(leaf, number)
        self.least = width

    def read(self, program: Program) -> None:
        program.append(self._list, f"b[p:p + {self.least}]")
        program.line(f"p += {self.least}")

    def skip(self, program: Program) -> None:
        program.line(f"p += {self.least}")


class BytesColumn(_LeafColumn):
    """Values that their length precedes: string, bytes."""

    def read(self, program: Program) -> None:
        program.length()
        program.line("q = p + (v >> 1)")
        program.append(self._list, "b[p:q]")
        program.line("p = q")

    def skip(self, program: Program) -> None:
        program.length()
        program.line("p += v >> 1")


class JsonColumn:
    """Values of recursive types, as JSON text."""

    leaves = 1
    least = 0  # nothing better is known of a recursive type

    def __init__(self, node: Node, number: int) -> None:
        self.name = node.name
        self.type: pa.DataType = pa.json_()
        self._reader = JsonReader(node)
        self._list = number

    def read(self, program: Program) -> None:
        program.line(f"v, p = {program.constant(self._reader.text)}(b, p, budget)")
        program.append(self._list, "v")

    def skip(self, program: Program) -> None:
        program.line(f"_, p = {program.constant(self._reader.value)}(b, p, budget)")

    def fill(self, program: Program) -> None:
        program.append(self._list, "None")

    def build(self, lists: Lists, length: int) -> pa.Array:
        return pa.ExtensionArray.from_storage(self.type, text_array(lists[self._list]))


def leaf_column(leaf: Leaf, number: int) -> Column:
    """The column of a type without inner types; `number` is that of its list."""
    if leaf.kind == "null":
        return Null()
    if leaf.kind == "boolean":
        return BooleanColumn(leaf, number)
    if leaf.kind in ("string", "bytes"):
        return BytesColumn(leaf, number)
    if leaf.kind in ("float", "double", "fixed"):
        return FixedColumn(leaf, number, {"float": 4, "double": 8}.get(leaf.kind, leaf.size))
    return NumberColumn(leaf, number)
