"""Decode the records of many nodes to Arrow columns at once, for scans.

Each node has a cursor, and record i of every node is decoded in the same few numpy calls. So Python does the work of
one node. Records that cannot be decoded in this way raise `Unclear`. The caller then decodes the nodes one by one
(`RowColumns`), which finds the damage, if any, and its position."""

from collections.abc import Collection, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from gnomon.base.varints import LONGEST_VARINT, OverlongVarint, decode_signed_array, skip_array
from gnomon.btree.errors import BTreeError
from gnomon.btree.key_types import key_type
from gnomon.btree.keys import DECIMAL_BYTES
from gnomon.btree.schema import FileField, FileSchema

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Bytes = npt.NDArray[np.uint8]

NO_LINK = np.iinfo(np.int64).min
NULL, VALUE = 0, 2  # a union's branch byte: 0 and 1 as varints
TEXT, LONG, BOOLEAN, FLOAT, DOUBLE = "bytes", "long", "boolean", "float", "double"
WIDTHS = {FLOAT: 4, DOUBLE: 8}


class Unclear(Exception):
    """These bytes cannot be decoded here: they are damaged, or in a form that no known writer uses."""


class OutOfRange(BTreeError):
    """A value exceeds the type of its column."""


class _Cells:
    """The values of one field, or their positions: an entry for each record. A field that is not `wanted` is
    skipped."""

    def __init__(self, field: FileField, records: int, wanted: bool) -> None:
        self.wanted = wanted
        records = records if wanted else 0
        self.kind = LONG if field.plain_type == "int" else field.plain_type
        self.null_branch = field.null_branch
        dtype = {BOOLEAN: np.uint8, FLOAT: np.float32, DOUBLE: np.float64}.get(self.kind, np.int64)
        self.values = np.zeros(records, dtype)  # for TEXT, the positions of the bytes
        self.lengths = np.zeros(records, np.int64) if self.kind == TEXT else None
        self.valid: Bools | None = None  # None: no value is null

    def put(self, data: Bytes, cursor: Ints, ends: Ints, at: Ints) -> None:
        """Decode a value at each cursor, and advance the cursors. `at` has the index of each record."""
        if self.null_branch is None:
            self._put_values(data, cursor, ends, at)
            return
        branch = data.take(cursor)
        cursor += 1
        valid = branch == (VALUE if self.null_branch == 0 else NULL)
        if valid.all():
            self._put_values(data, cursor, ends, at)
            return
        if not (branch[~valid] == (NULL if self.null_branch == 0 else VALUE)).all():
            raise Unclear
        if self.wanted:
            if self.valid is None:
                self.valid = np.ones(len(self.values), np.bool_)
            self.valid[at[~valid]] = False
            if self.kind == TEXT:
                self.values[at] = cursor
        some = cursor[valid]
        self._put_values(data, some, ends[valid], at[valid])
        cursor[valid] = some

    def _put_values(self, data: Bytes, cursor: Ints, ends: Ints, at: Ints) -> None:
        if not self.wanted:
            self._pass(data, cursor, ends)
        elif self.kind == LONG:
            self.values[at] = decode_signed_array(data, cursor)
        elif self.kind == TEXT and self.lengths is not None:
            lengths = decode_signed_array(data, cursor)
            if ((lengths < 0) | (lengths > ends - cursor)).any():
                raise Unclear
            self.values[at] = cursor
            self.lengths[at] = lengths
            cursor += lengths
        elif self.kind == BOOLEAN:
            flags = data.take(cursor)
            if (flags > 1).any():
                raise Unclear
            self.values[at] = flags
            cursor += 1
        else:
            width = WIDTHS[self.kind]
            numbers = np.ndarray(len(data) - width + 1, f"<f{width}", data.data, strides=(1,))
            self.values[at] = numbers[cursor]
            cursor += width

    def _pass(self, data: Bytes, cursor: Ints, ends: Ints) -> None:
        """Advance past a value at each cursor."""
        if self.kind == LONG:
            skip_array(data, cursor)
        elif self.kind == TEXT:
            lengths = decode_signed_array(data, cursor)
            if ((lengths < 0) | (lengths > ends - cursor)).any():
                raise Unclear
            cursor += lengths
        else:
            cursor += WIDTHS.get(self.kind, 1)


class VectorColumns:
    """Columns of the records of many nodes, decoded at once. Records count from 0, through all nodes."""

    def __init__(
        self, schema: FileSchema, counts: Ints, records: Sequence[bytes], columns: Collection[str] | None = None
    ) -> None:
        """`counts` is the number of records in the bytes of each node; `columns` are the columns to decode, by default
        all. Raises Unclear."""
        self._schema = schema
        self.links = np.full(int(counts.sum()), NO_LINK)  # link of each record
        self.has_link = np.zeros(len(counts), np.bool_)  # for each node
        # a cursor may leave its node before the check sees it
        padding = (LONGEST_VARINT + 1) * (len(schema.fields) + 1)
        self._bytes = b"".join([*records, bytes(padding)])
        self._cells = {
            field.column.name: _Cells(field, len(self.links), columns is None or field.column.name in columns)
            for field in schema.fields
            if field
        }
        try:
            self._decode(counts, np.fromiter(map(len, records), np.int64, len(records)))
        except (IndexError, OverlongVarint):
            raise Unclear from None

    def _decode(self, counts: Ints, sizes: Ints) -> None:
        data = np.frombuffer(self._bytes, np.uint8)
        null_link = self._schema.link_type == ["null", "long"]
        link = _Link(NULL if null_link else VALUE)
        # the nodes with the most records first, so that finished ones are at the end
        order = np.argsort(-counts, kind="stable")
        falling = counts[order]
        ends = np.cumsum(sizes)[order]
        cursor = ends - sizes[order]
        at = (np.cumsum(counts) - counts)[order]
        fields = [None if field is None else self._cells[field.column.name] for field in self._schema.fields]
        for step in range(int(counts.max(initial=0))):
            left = int(np.searchsorted(-falling, -step))  # nodes of more than `step` records
            if left < len(cursor):
                if (cursor[left:] != ends[left : len(cursor)]).any():
                    raise Unclear
                cursor, at = cursor[:left], at[:left]
            for field in fields:
                if field is None:
                    linked, links = link.read(data, cursor)
                    self.has_link[order[linked]] = True
                    self.links[at[linked]] = links
                else:
                    field.put(data, cursor, ends[:left], at)
            at += 1
            if (cursor > ends[:left]).any():
                raise Unclear
        if (cursor != ends[: len(cursor)]).any():
            raise Unclear

    def take(self, name: str, order: Ints) -> pa.Array:
        """A column of the records in `order`. OutOfRange or ArrowInvalid for a value that its type does not have."""
        cells = self._cells[name]
        field = next(field for field in self._schema.fields if field and field.column.name == name)
        nulls = None if cells.valid is None else ~cells.valid[order]
        if cells.lengths is None:
            return _typed(cells.values[order], nulls, field.column.type)
        if key_type(field.column.type).decimal:
            numbers = _decimals(np.frombuffer(self._bytes, np.uint8), cells.values[order], cells.lengths[order])
            return _decimal_array(numbers, nulls, field.column.type)
        # The bytes between two texts count as a text, too, which is not taken: one gather in Arrow.
        offsets = np.empty(2 * len(cells.values) + 1, np.int32)
        offsets[0:-1:2] = cells.values
        offsets[1::2] = cells.values + cells.lengths
        offsets[-1] = len(self._bytes)
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(self._bytes)]
        texts = pa.Array.from_buffers(pa.binary(), 2 * len(cells.values), buffers)
        return texts.take(pa.array(2 * order, mask=nulls)).cast(key_type(field.column.type).arrow)


class _Link:
    """The link of each record."""

    def __init__(self, null: int) -> None:
        self._null = null

    def read(self, data: Bytes, cursor: Ints) -> tuple[Ints, Ints]:
        """The cursors that had a link, and the links."""
        branch = data.take(cursor)
        cursor += 1
        linked = np.flatnonzero(branch != self._null)
        if not len(linked):
            return linked, linked
        if (branch[linked] != VALUE - self._null).any():
            raise Unclear
        some = cursor[linked]
        links = decode_signed_array(data, some)
        cursor[linked] = some
        return linked, links


class RowColumns:
    """Columns of nodes that were decoded one by one; `rows` are the records as stored in the file."""

    def __init__(self, schema: FileSchema, rows: Sequence[dict[str, Any]]) -> None:
        self._types = {column.name: column.type for column in schema.entry.columns}
        self._rows = rows

    def take(self, name: str, order: Ints) -> pa.Array:
        """A column of the records in `order`. OutOfRange or ArrowInvalid for a value that its type does not have."""
        type_name = self._types[name]
        values = [self._rows[record][name] for record in order.tolist()]
        if key_type(type_name).decimal:
            nulls = np.fromiter((value is None for value in values), np.bool_, len(values))
            numbers = np.frombuffer(b"".join([_little_endian(value or b"") for value in values]), np.uint8)
            return _decimal_array(numbers.reshape(-1, DECIMAL_BYTES), nulls, type_name)
        if type_name in ("string", "binary"):
            return pa.array(values, pa.binary()).cast(key_type(type_name).arrow)
        raw = {"date": pa.int32(), "timestamp": pa.int64(), "timestamp_ntz": pa.int64()}.get(type_name)
        try:
            return pa.array(values, raw or key_type(type_name).arrow).view(key_type(type_name).arrow)
        except (pa.ArrowInvalid, OverflowError):
            raise OutOfRange(f"a value that {type_name} cannot hold") from None


class Columns(Protocol):
    """Columns of records that count from 0."""

    def take(self, name: str, order: Ints) -> pa.Array: ...


class JoinedColumns:
    """The `count` records of `first`, followed by those in `second`."""

    def __init__(self, first: Columns, count: int, second: Columns) -> None:
        self._first, self._count, self._second = first, count, second

    def take(self, name: str, order: Ints) -> pa.Array:
        """A column of the records in `order`, from either."""
        in_first = order < self._count
        joined = [self._first.take(name, order[in_first]), self._second.take(name, order[~in_first] - self._count)]
        turn = np.empty(len(order), np.int64)
        turn[np.concatenate([np.flatnonzero(in_first), np.flatnonzero(~in_first)])] = np.arange(len(order))
        return pa.concat_arrays(joined).take(pa.array(turn))


# -- Arrow ---------------------------------------------------------------------------------------------------------


def _typed(values: npt.NDArray[Any], nulls: Bools | None, type_name: str) -> pa.Array:
    kind = key_type(type_name).arrow
    if type_name == "boolean":
        return pa.array(values.astype(np.bool_), mask=nulls)
    if type_name in ("int", "date"):
        narrow = values.astype(np.int32)
        if (narrow != values).any():
            raise OutOfRange(f"a value that {type_name} cannot hold")
        return pa.array(narrow, mask=nulls).view(kind)
    return pa.array(values, mask=nulls).view(kind)


def _decimals(data: Bytes, starts: Ints, lengths: Ints) -> Bytes:
    """Big-endian two's complements of any length, as little-endian ones of 16 bytes, one per row."""
    if (lengths > DECIMAL_BYTES).any():
        raise OutOfRange(f"a decimal of more than {DECIMAL_BYTES} bytes")
    sign = np.where((lengths > 0) & (data.take(starts, mode="clip") > 0x7F), 0xFF, 0).astype(np.uint8)
    out = np.empty((len(starts), DECIMAL_BYTES), np.uint8)
    last = starts + lengths - 1
    for place in range(DECIMAL_BYTES):
        out[:, place] = np.where(lengths > place, data.take(last - place, mode="clip"), sign)
    return out


def _little_endian(data: bytes) -> bytes:
    try:
        return int.from_bytes(data, "big", signed=True).to_bytes(DECIMAL_BYTES, "little", signed=True)
    except OverflowError:
        raise OutOfRange(f"a decimal of more than {DECIMAL_BYTES} bytes") from None


def _decimal_array(numbers: Bytes, nulls: Bools | None, type_name: str) -> pa.Array:
    valid = None
    if nulls is not None and nulls.any():
        numbers = np.where(nulls[:, None], np.uint8(0), numbers)
        valid = pa.py_buffer(np.packbits(~nulls, bitorder="little"))
    buffers = [valid, pa.py_buffer(np.ascontiguousarray(numbers))]
    array = pa.Array.from_buffers(key_type(type_name).arrow, len(numbers), buffers)
    array.validate(full=True)  # raises for more digits than the type has
    return array
