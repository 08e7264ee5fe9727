"""The columns of a schema: how a value is read, skipped or left out, and how the values become Arrow arrays.
`ColumnFactory` makes the columns.

`read`, `skip` and `fill` write lines of a decoder, as a `Program`: Python source that `rows` compiles for a schema
and a choice of columns. It contains only generated names and numbers, never a name or a value of the file. Its
variables: `b` is the bytes, `p` the position in them, `v` the last number read; `a3` appends to list 3; the others are
the arguments of `make`. The decoder appends raw values to lists: numbers in zigzag form, strings and fixed-length
values as bytes, None for null. `build` makes Arrow arrays of the lists.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from gnomon.sources.avro.container import LimitExceeded, Malformed
from gnomon.sources.avro.leaf_arrays import Bitmap, array_of, bitmap, numbers, offsets_of, text_array
from gnomon.sources.avro.recursive_json import JsonReader
from gnomon.sources.avro.schema import Array, Leaf, Map, Node, Record, Union, is_null
from gnomon.sources.types import FIELD_ID, int32s

INDENT = "    "
ARGUMENTS = "lists, constants, unsigned, length, wrong, budget"  # the arguments of `make`
Lists = Mapping[int, Sequence[Any]]
MOST_LEAVES = 20_000  # innermost columns: a type that is named repeatedly makes any number
MOST_NESTED = 40  # nesting levels of columns: deeper values are read as JSON
MOST_BRANCHES = 128  # branches of an Arrow union: a union of more is read as JSON


class Program:
    """Python source with the functions of a decoder. `lists`: numbers of the lists to which it appends; `constants`:
    the objects that it uses."""

    def __init__(self) -> None:
        self.lists: set[int] = set()
        self.constants: list[object] = []
        self._done: list[str] = []
        self._open: list[list[str]] = []  # the lines of each open function, the innermost last
        self._indents: list[int] = []
        self._functions = 0

    def line(self, text: str) -> None:
        self._open[-1].append(INDENT * self._indents[-1] + text)

    def append(self, number: int, value: str) -> None:
        """Add a line that appends `value` to list `number`."""
        self.lists.add(number)
        self.line(f"a{number}({value})")

    def constant(self, value: object) -> str:
        """The variable of the source that holds this object."""
        self.constants.append(value)
        return f"k{len(self.constants) - 1}"

    def number(self) -> None:
        """Add lines that read a number into `v`, in zigzag form."""
        self.line("v = b[p]; p += 1")
        with self.block("if v > 127:"):
            self.line("if b[p] < 128: v = v & 127 | b[p] << 7; p += 1")  # two bytes: no call
            self.line("else: v, p = unsigned(b, p - 1)")

    def skip_number(self) -> None:
        self.line("while b[p] > 127: p += 1")
        self.line("p += 1")

    def length(self) -> None:
        """Add lines that read the length of a string into `v`, in zigzag form: twice the length."""
        self.line("v = b[p]; p += 1")
        self.line("if v & 129: v, p = length(b, p - 1)")

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Indent the lines that follow `head`, a line that ends in a colon."""
        self.line(head)
        self._indents[-1] += 1
        self.line("pass")  # a value without bytes may add no other line
        yield
        self._indents[-1] -= 1

    @contextmanager
    def function(self, arguments: str) -> Iterator[str]:
        """Begin a function of the program, which may be within the code of another one. Gives its name."""
        name = f"f{self._functions}"
        self._functions += 1
        self._open.append([])
        self._indents.append(1)
        with self.block(f"def {name}({arguments}):"):
            yield name
        self._done += self._open.pop()
        self._indents.pop()

    def text(self, answer: str) -> str:
        """The whole program: a function `make` of ARGUMENTS that returns `answer`, the names of functions."""
        head = [f"def make({ARGUMENTS}):", f"{INDENT}run = budget.run"]
        head += [f"{INDENT}a{number} = lists[{number}].append" for number in sorted(self.lists)]
        head += [f"{INDENT}k{i} = constants[{i}]" for i in range(len(self.constants))]
        return "\n".join([*head, *self._done, f"{INDENT}return {answer}", ""])


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


class _ListColumn:
    """The common part of all columns with one list."""

    leaves = 1
    least = 1

    def __init__(self, name: str, kind: pa.DataType, number: int) -> None:
        """`number` is that of the list."""
        self.name = name
        self.type = kind
        self._list = number

    def fill(self, program: Program) -> None:
        program.append(self._list, "None")


class _LeafColumn(_ListColumn):
    def __init__(self, leaf: Leaf, number: int) -> None:
        super().__init__(leaf.name, array_of(leaf, []).type, number)
        self._leaf = leaf

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


class JsonColumn(_ListColumn):
    """Values of recursive types, as JSON text."""

    least = 0  # nothing better is known of a recursive type

    def __init__(self, node: Node, number: int) -> None:
        super().__init__(node.name, pa.json_(), number)
        self._reader = JsonReader(node)

    def read(self, program: Program) -> None:
        program.line(f"v, p = {program.constant(self._reader.text)}(b, p, budget)")
        program.append(self._list, "v")

    def skip(self, program: Program) -> None:
        program.line(f"_, p = {program.constant(self._reader.value)}(b, p, budget)")

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


class ColumnFactory:
    """Makes the columns of a schema, and numbers their lists."""

    def __init__(self) -> None:
        self._numbers = count()
        self._leaves = 0

    def column(self, node: Node, within: tuple[Node, ...] = (), *, nullable: bool = False) -> Column:
        """The column of a type. `within`: the types that contain it. A type that contains itself is read as JSON."""
        beyond = isinstance(node, Union) and len(node.branches) > MOST_BRANCHES
        if isinstance(node, Leaf) or node in within or len(within) >= MOST_NESTED or beyond:
            self._count_leaf()
            return leaf_column(node, self.list()) if isinstance(node, Leaf) else JsonColumn(node, self.list())
        within = (*within, node)
        if isinstance(node, Record):
            if not node.fields:
                self._count_leaf()
            return RecordColumn(self, node, within, nullable)
        if isinstance(node, Array):
            return ArrayColumn(self, node, within)
        if isinstance(node, Map):
            return MapColumn(self, node, within)
        nulls = [is_null(branch) for branch in node.branches]
        if len(nulls) <= 2 and sum(nulls) >= len(nulls) - 1:
            return NullableColumn(self, node, within, nulls.index(False) if False in nulls else 0)
        return UnionColumn(self, node, within)

    def _count_leaf(self) -> None:
        self._leaves += 1
        if self._leaves > MOST_LEAVES:
            raise LimitExceeded(f"the schema has more than {MOST_LEAVES} columns, including nested ones")

    def list(self) -> int:
        """The number of a new list."""
        return next(self._numbers)


def wrong_branch(branch: int) -> None:
    """Raise Malformed for a union branch that does not exist. Decoders call it."""
    raise Malformed(f"branch {(branch >> 1) ^ -(branch & 1)} of a union")


def arrow_field(record: Record, name: str, column: Column) -> pa.Field:
    """A field of a record in Arrow, with its field id as metadata."""
    number = record.ids.get(name)
    return pa.field(name, column.type, metadata=None if number is None else {FIELD_ID: str(number).encode()})


class RecordColumn:
    """A record, as a struct."""

    def __init__(self, columns: ColumnFactory, record: Record, within: tuple[Node, ...], nullable: bool) -> None:
        self.name = record.name
        self.fields = [(name, columns.column(node, within)) for name, node in record.fields]
        self.type = pa.struct([arrow_field(record, name, column) for name, column in self.fields])
        self.least = sum(column.least for _, column in self.fields)
        self.leaves = max(sum(column.leaves for _, column in self.fields), 1)
        self._valid = columns.list() if nullable else None

    def read(self, program: Program) -> None:
        if self._valid is not None:
            program.append(self._valid, "1")
        for _, column in self.fields:
            column.read(program)

    def skip(self, program: Program) -> None:
        for _, column in self.fields:
            column.skip(program)

    def fill(self, program: Program) -> None:
        if self._valid is not None:
            program.append(self._valid, "0")
        for _, column in self.fields:
            column.fill(program)

    def build(self, lists: Lists, length: int) -> pa.Array:
        children = [column.build(lists, length) for _, column in self.fields]
        valid = None if self._valid is None else bitmap(np.array(lists[self._valid], np.bool_))
        return pa.Array.from_buffers(self.type, length, [valid], children=children)


class _RunsColumn:
    """Runs of elements. Each run has its count first; a count of 0 ends them. `elements` are the columns of an
    element."""

    least = 1

    def __init__(self, columns: ColumnFactory, name: str, elements: Sequence[Column]) -> None:
        self.name = name
        self._elements = elements
        self._lengths = columns.list()
        self.leaves = sum(column.leaves for column in elements)

    def read(self, program: Program) -> None:
        program.line("c = 0")
        with program.block("while True:"):
            self._run(program, reading=True)
        program.append(self._lengths, "c")

    def skip(self, program: Program) -> None:
        """Skip the runs, in one step where a run states its length in bytes."""
        with program.block("while True:"):
            self._run(program, reading=False)

    def fill(self, program: Program) -> None:
        program.append(self._lengths, "None")

    def _run(self, program: Program, *, reading: bool) -> None:
        """Write lines for one run, with its count in `v`. They end the loop where it is 0."""
        least = sum(column.least for column in self._elements)
        program.number()
        program.line("if v == 0: break")
        program.line(f"v, p = run(b, p, v, {least}, {self.leaves}, {not reading})")
        if reading:
            program.line("c += v")
        with program.function("b, p, n") as name:
            with program.block("for _ in range(n):"):
                for column in self._elements:
                    (column.read if reading else column.skip)(program)
            program.line("return p")
        program.line(f"p = {name}(b, p, v)")

    def _offsets(self, lists: Lists) -> tuple[Bitmap, npt.NDArray[np.int32]]:
        """The bitmap of the lists that are not null, and the offset of each list among the elements of all lists."""
        valid, counts = numbers(lists[self._lengths])
        return valid, offsets_of(counts)


class ArrayColumn(_RunsColumn):
    def __init__(self, columns: ColumnFactory, array: Array, within: tuple[Node, ...]) -> None:
        super().__init__(columns, array.name, [columns.column(array.items, within)])
        self.type = pa.list_(pa.field("item", self._elements[0].type))

    def build(self, lists: Lists, length: int) -> pa.Array:
        valid, offsets = self._offsets(lists)
        element = self._elements[0].build(lists, int(offsets[-1]))
        return pa.Array.from_buffers(self.type, length, [valid, pa.py_buffer(offsets)], children=[element])


class MapColumn(_RunsColumn):
    """A map: a list of keys, each with its value."""

    def __init__(self, columns: ColumnFactory, node: Map, within: tuple[Node, ...]) -> None:
        super().__init__(columns, node.name, [columns.column(each, within) for each in (node.keys, node.values)])
        self.type = pa.map_(*(column.type for column in self._elements))

    def build(self, lists: Lists, length: int) -> pa.Array:
        valid, offsets = self._offsets(lists)
        entries = int(offsets[-1])
        children = [column.build(lists, entries) for column in self._elements]
        fields = [self.type.key_field, self.type.item_field]
        pairs = pa.Array.from_buffers(pa.struct(fields), entries, [None], children=children)
        return pa.Array.from_buffers(self.type, length, [valid, pa.py_buffer(offsets)], children=[pairs])


class NullableColumn:
    """A union of one type with null, in either order, or of one type only."""

    least = 1

    def __init__(self, columns: ColumnFactory, union: Union, within: tuple[Node, ...], place: int) -> None:
        """`place` is the branch that is not null."""
        self._inner = columns.column(union.branches[place], within, nullable=True)
        self._place = place
        self._null = 1 - place if len(union.branches) > 1 else None
        self.name = self._inner.name
        self.type = self._inner.type
        self.leaves = self._inner.leaves

    def read(self, program: Program) -> None:
        self._branch(program, self._inner.read, self._inner.fill)

    def skip(self, program: Program) -> None:
        self._branch(program, self._inner.skip, None)

    def fill(self, program: Program) -> None:
        self._inner.fill(program)

    def build(self, lists: Lists, length: int) -> pa.Array:
        return self._inner.build(lists, length)

    def _branch(
        self, program: Program, some: Callable[[Program], None], none: Callable[[Program], None] | None
    ) -> None:
        program.number()
        with program.block(f"if v == {2 * self._place}:"):
            some(program)
        if self._null is not None:
            with program.block(f"elif v == {2 * self._null}:"):
                if none is not None:
                    none(program)
        with program.block("else:"):
            program.line("wrong(v)")


class UnionColumn:
    """A union of several types, perhaps with null: a dense union, with a column for each branch."""

    least = 1

    def __init__(self, columns: ColumnFactory, union: Union, within: tuple[Node, ...]) -> None:
        self.name = union.name
        self._codes = columns.list()
        self._branches = [columns.column(branch, within) for branch in union.branches]
        self.leaves = 1 + sum(branch.leaves for branch in self._branches)
        self.type = pa.dense_union([pa.field(branch.name, branch.type) for branch in self._branches])
        nulls = [code for code, branch in enumerate(union.branches) if is_null(branch)]
        self._filler = nulls[0] if nulls else 0

    def read(self, program: Program) -> None:
        self._dispatch(program, reading=True)

    def skip(self, program: Program) -> None:
        self._dispatch(program, reading=False)

    def _dispatch(self, program: Program, *, reading: bool) -> None:
        program.number()
        for code, branch in enumerate(self._branches):
            with program.block(f"{'elif' if code else 'if'} v == {2 * code}:"):
                if reading:
                    program.append(self._codes, str(code))
                    branch.read(program)
                else:
                    branch.skip(program)
        with program.block("else:"):
            program.line("wrong(v)")

    def fill(self, program: Program) -> None:
        program.append(self._codes, str(self._filler))
        self._branches[self._filler].fill(program)

    def build(self, lists: Lists, length: int) -> pa.Array:
        codes = np.array(lists[self._codes], dtype=np.int8)
        offsets = np.zeros(length, dtype=np.int32)
        children = []
        for code, branch in enumerate(self._branches):
            mine = codes == code
            used = int(mine.sum())
            offsets[mine] = np.arange(used, dtype=np.int32)
            children.append(branch.build(lists, used))
        kinds = pa.Array.from_buffers(pa.int8(), length, [None, pa.py_buffer(codes)])
        names = [branch.name for branch in self._branches]
        return pa.UnionArray.from_dense(kinds, int32s(offsets), children, names)
