"""The columns of a schema: how a value of each is read, skipped or left out, and how the values become Arrow.

`read`, `skip` and `fill` write lines of a decoder (`program.py`). What it reads it appends to lists, raw: numbers in
zigzag form, strings and all of fixed length as bytes, None for null. `build` makes Arrow arrays of the lists. What has
columns within is in `nested.py`.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import pyarrow as pa

from sources.avro.arrow_buffers import text_array
from sources.avro.codegen import Program
from sources.avro.leaf_arrays import array_of
from sources.avro.recursive_json import JsonReader
from sources.avro.schema import Leaf, Node

Lists = Mapping[int, Sequence[Any]]


class Column(Protocol):
    """A field, an element, a branch. `name` is what a union calls it; `least` are the bytes of its shortest value,
    `leaves` the columns within it that have none within, at least 1."""

    name: str
    type: pa.DataType
    least: int
    leaves: int

    def read(self, program: Program) -> None:
        """Read a value into the lists."""

    def skip(self, program: Program) -> None:
        """Pass over a value."""

    def fill(self, program: Program) -> None:
        """Stand in for a value, of a column in a record that is null."""

    def build(self, lists: Lists, length: int) -> pa.Array:
        """The `length` values read. ValueError (Malformed, of pyarrow) where one is none of the type."""


class _Leaf:
    """What the columns of one list have in common."""

    leaves = 1
    least = 1

    def __init__(self, leaf: Leaf, number: int) -> None:
        """`number`: of the list."""
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
        """It has no bytes."""

    skip = fill = read

    def build(self, lists: Lists, length: int) -> pa.Array:
        return pa.nulls(length)


class Number(_Leaf):
    """An int, a long, or the place of an enum's symbol."""

    def read(self, program: Program) -> None:
        program.number()
        program.append(self._list, "v")

    def skip(self, program: Program) -> None:
        program.skip_number()


class Byte(_Leaf):
    """A boolean."""

    def read(self, program: Program) -> None:
        program.append(self._list, "b[p]")
        program.line("p += 1")

    def skip(self, program: Program) -> None:
        program.line("p += 1")


class Wide(_Leaf):
    """Values of so many bytes each: float, double, fixed."""

    def __init__(self, leaf: Leaf, number: int, width: int) -> None:
        super().__init__(leaf, number)
        self.least = width

    def read(self, program: Program) -> None:
        program.append(self._list, f"b[p:p + {self.least}]")
        program.line(f"p += {self.least}")

    def skip(self, program: Program) -> None:
        program.line(f"p += {self.least}")


class Text(_Leaf):
    """Values that begin with their length: string, bytes."""

    def read(self, program: Program) -> None:
        program.length()
        program.line("q = p + (v >> 1)")
        program.append(self._list, "b[p:q]")
        program.line("p = q")

    def skip(self, program: Program) -> None:
        program.length()
        program.line("p += v >> 1")


class Json:
    """Values that no Arrow type of their own holds, as JSON text."""

    leaves = 1
    least = 0  # of a type within itself nothing better is known

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
    """The column of a type without types in it; `number` is that of its list."""
    if leaf.kind == "null":
        return Null()
    if leaf.kind == "boolean":
        return Byte(leaf, number)
    if leaf.kind in ("string", "bytes"):
        return Text(leaf, number)
    if leaf.kind in ("float", "double", "fixed"):
        return Wide(leaf, number, {"float": 4, "double": 8}.get(leaf.kind, leaf.size))
    return Number(leaf, number)
