"""Columns that contain columns: records, arrays, maps, unions. `ColumnFactory` makes the columns of a schema."""

from collections.abc import Callable, Sequence
from itertools import count

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from gnomon.sources.avro.arrow_buffers import Bitmap, bitmap, numbers, offsets_of
from gnomon.sources.avro.codegen import Program
from gnomon.sources.avro.columns import Column, JsonColumn, Lists, leaf_column
from gnomon.sources.avro.errors import LimitExceeded, Malformed
from gnomon.sources.avro.schema import Array, Leaf, Map, Node, Record, Union
from gnomon.sources.types import FIELD_ID, int32s

MOST_LEAVES = 20_000  # innermost columns: a type that is named repeatedly makes any number
MOST_NESTED = 40  # nesting levels of columns: deeper values are read as JSON
MOST_BRANCHES = 128  # branches of an Arrow union: a union of more is read as JSON


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
        nulls = [_is_null(branch) for branch in node.branches]
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


def _is_null(node: Node) -> bool:
    return isinstance(node, Leaf) and node.kind == "null"


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


class ArrayColumn:
    """An array: runs of elements. Each run has its count first; a count of 0 ends them."""

    least = 1

    def __init__(self, columns: ColumnFactory, array: Array, within: tuple[Node, ...]) -> None:
        self.name = array.name
        self._element = columns.column(array.items, within)
        self._lengths = columns.list()
        self.leaves = self._element.leaves
        self.type = pa.list_(pa.field("item", self._element.type))

    def read(self, program: Program) -> None:
        _read_runs(program, [self._element], self._lengths)

    def skip(self, program: Program) -> None:
        _skip_runs(program, [self._element])

    def fill(self, program: Program) -> None:
        program.append(self._lengths, "None")

    def build(self, lists: Lists, length: int) -> pa.Array:
        valid, offsets = _offsets(lists[self._lengths])
        element = self._element.build(lists, int(offsets[-1]))
        return pa.Array.from_buffers(self.type, length, [valid, pa.py_buffer(offsets)], children=[element])


class MapColumn:
    """A map: a list of keys, each with its value."""

    least = 1

    def __init__(self, columns: ColumnFactory, node: Map, within: tuple[Node, ...]) -> None:
        self.name = node.name
        self._key = columns.column(node.keys, within)
        self._value = columns.column(node.values, within)
        self._lengths = columns.list()
        self.leaves = self._key.leaves + self._value.leaves
        self.type = pa.map_(self._key.type, self._value.type)

    def read(self, program: Program) -> None:
        _read_runs(program, [self._key, self._value], self._lengths)

    def skip(self, program: Program) -> None:
        _skip_runs(program, [self._key, self._value])

    def fill(self, program: Program) -> None:
        program.append(self._lengths, "None")

    def build(self, lists: Lists, length: int) -> pa.Array:
        valid, offsets = _offsets(lists[self._lengths])
        entries = int(offsets[-1])
        fields = [self.type.key_field, self.type.item_field]
        children = [self._key.build(lists, entries), self._value.build(lists, entries)]
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
        nulls = [code for code, branch in enumerate(union.branches) if _is_null(branch)]
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


def _read_runs(program: Program, columns: Sequence[Column], lengths: int) -> None:
    """Write lines that read runs of elements with these columns, and append their number to list `lengths`."""
    program.line("c = 0")
    with program.block("while True:"):
        _begin_run(program, columns, jump=False)
        program.line("c += v")
        with program.function("b, p, n") as name:
            with program.block("for _ in range(n):"):
                for column in columns:
                    column.read(program)
            program.line("return p")
        program.line(f"p = {name}(b, p, v)")
    program.append(lengths, "c")


def _skip_runs(program: Program, columns: Sequence[Column]) -> None:
    """Write lines that skip runs of elements, in one step where a run states its length in bytes."""
    with program.block("while True:"):
        _begin_run(program, columns, jump=True)
        with program.function("b, p, n") as name:
            with program.block("for _ in range(n):"):
                for column in columns:
                    column.skip(program)
            program.line("return p")
        program.line(f"p = {name}(b, p, v)")


def _begin_run(program: Program, columns: Sequence[Column], *, jump: bool) -> None:
    """Write lines that read a run's count into `v`, and end the loop where it is 0."""
    least, cells = sum(column.least for column in columns), sum(column.leaves for column in columns)
    program.number()
    program.line("if v == 0: break")
    program.line(f"v, p = run(b, p, v, {least}, {cells}, {jump})")


def _offsets(lengths: Sequence[int | None]) -> tuple[Bitmap, npt.NDArray[np.int32]]:
    """The bitmap of the lists that are not null, and the offset of each list among the elements of all lists."""
    valid, counts = numbers(lengths)
    return valid, offsets_of(counts)
