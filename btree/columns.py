"""Decode the records of many blocks to Arrow columns at once, for scans and for matches of many keys.

Records that cannot be decoded in this way raise `Unclear`. They are then decoded block by block (`RowColumns`), which
finds the damage, if any, and its position."""

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from gnomon.base import kernel
from gnomon.base.records_python import BOOLEAN, BYTES, DOUBLE, FLOAT, Output
from gnomon.btree.blocks import BlockFile
from gnomon.btree.errors import BTreeError, Irregular
from gnomon.btree.key_types import key_type
from gnomon.btree.keys import DECIMAL_BYTES, Bools, Ints
from gnomon.btree.node import Row
from gnomon.btree.schema import KINDS, FileField, FileSchema
from gnomon.btree.traversal import LONG_BLOCK

Bytes = npt.NDArray[np.uint8]

NO_LINK = np.iinfo(np.int64).min
LARGEST_INT = (1 << 31) - 1  # bytes of the records that are decoded together
DTYPES: dict[int, npt.DTypeLike] = {BOOLEAN: np.uint8, FLOAT: np.float32, DOUBLE: np.float64}
CELL_BYTES = 24  # memory of one column of a record
CHUNK_BYTES = 64 * 1024 * 1024  # approximate memory that is decoded together; a single node may take more
CUT_RECORDS = 1 << 9
# measured: decoding the i-th records of any number of nodes at once; decoding one record alone
STEP_US, ROW_US = 70.0, 2.0


class Unclear(Exception):
    """These bytes cannot be decoded here: they are damaged, or in a form that no known writer uses."""


class OutOfRange(BTreeError):
    """A value exceeds the type of its column."""


class VectorColumns:
    """Columns of the records of many nodes, decoded at once. Records count from 0, through all nodes."""

    def __init__(
        self, schema: FileSchema, counts: Ints, records: Sequence[bytes], columns: Collection[str] | None = None
    ) -> None:
        """`counts` is the number of records in the bytes of each node; `columns` are the columns to decode, by default
        all. Raises Unclear."""
        total = int(counts.sum())
        self.links = np.full(total, NO_LINK)  # link of each record
        self._fields = {
            field.column.name: field
            for field in schema.fields
            if field and (columns is None or field.column.name in columns)
        }
        self._bytes = b"".join(records)
        if len(self._bytes) > LARGEST_INT or total > len(self._bytes):
            raise Unclear
        self._outputs = {name: _output(field, total) for name, field in self._fields.items()}
        outputs = [self._outputs.get(field.column.name) if field else Output(self.links) for field in schema.fields]
        sizes = np.fromiter(map(len, records), np.int64, len(records))
        linked = np.zeros(len(counts), np.uint8)
        if not kernel.record_columns(self._bytes, counts, sizes, schema.plan(()).fields, outputs, linked):
            raise Unclear
        self.has_link = linked.astype(np.bool_)  # for each node

    def take(self, name: str, order: Ints) -> pa.Array:
        """A column of the records in `order`. OutOfRange or ArrowInvalid for a value that its type does not have."""
        output, field = self._outputs[name], self._fields[name]
        nulls = None if output.valid is None or output.valid.all() else output.valid[order] == 0
        if output.lengths is None:
            return _typed(output.values[order], nulls, field.column.type)
        if key_type(field.column.type).decimal:
            numbers = _decimals(np.frombuffer(self._bytes, np.uint8), output.values[order], output.lengths[order])
            return _decimal_array(numbers, nulls, field.column.type)
        # The gaps between the texts count as texts, too, so that the bytes need no copy; `take` skips the gaps.
        offsets = np.empty(2 * len(output.values) + 1, np.int32)
        offsets[0:-1:2] = output.values
        offsets[1::2] = output.values + output.lengths
        offsets[-1] = len(self._bytes)
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(self._bytes)]
        texts = pa.Array.from_buffers(pa.binary(), 2 * len(output.values), buffers)
        return texts.take(pa.array(2 * order, mask=nulls)).cast(key_type(field.column.type).arrow)


def _output(field: FileField, records: int) -> Output:
    """The arrays for the values of a field."""
    kind = KINDS[field.plain_type]
    values = np.zeros(records, DTYPES.get(kind, np.int64))
    lengths = np.zeros(records, np.int64) if kind == BYTES else None
    return Output(values, lengths, None if field.null_branch is None else np.ones(records, np.uint8))


class RowColumns:
    """Columns of nodes that were decoded one by one; `rows` are the records as stored in the file."""

    def __init__(self, schema: FileSchema, rows: Sequence[Row]) -> None:
        self._types = {column.name: column.type for column in schema.entry.columns}
        self._places = {column.name: place for place, column in enumerate(schema.entry.columns)}
        self._rows = rows

    def take(self, name: str, order: Ints) -> pa.Array:
        """A column of the records in `order`. OutOfRange or ArrowInvalid for a value that its type does not have."""
        type_name = self._types[name]
        place = self._places[name]
        values = [self._rows[record][place] for record in order.tolist()]
        if key_type(type_name).decimal:
            nulls = np.fromiter((value is None for value in values), np.bool_, len(values))
            numbers = np.frombuffer(b"".join([_little_endian(value or b"") for value in values]), np.uint8)
            return _decimal_array(numbers.reshape(-1, DECIMAL_BYTES), nulls, type_name)
        if type_name in ("string", "binary"):
            return pa.array(values, pa.binary()).cast(key_type(type_name).arrow)
        arrow = key_type(type_name).arrow
        raw = {32: pa.int32(), 64: pa.int64()}[arrow.bit_width] if pa.types.is_temporal(arrow) else arrow
        try:
            return pa.array(values, raw).view(arrow)
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


# -- a batch of blocks -------------------------------------------------------------------------------------------------


class RecordBlocks(NamedTuple):
    """The blocks that records in key order come from."""

    offsets: Sequence[int]  # offset of each block
    firsts: Ints  # index of each block's first record, in key order; one more than there are blocks
    is_leaf: Sequence[bool]  # whether the block is a leaf: the records after it are of another block

    def offset_of(self, record: int) -> int:
        return self.offsets[int(np.searchsorted(self.firsts, record, side="right")) - 1]


class BlockBatch:
    """Blocks that are decoded together: whole leaves, and the needed records of inner nodes."""

    def __init__(self) -> None:
        self.index: dict[int, int] = {}  # offset of a block: number of its part
        self.offsets: list[int] = []
        self.is_leaf: list[bool] = []
        self.begins: list[int] = []  # index of the first record
        self.counts: list[int] = []
        self.records: list[bytes] = []
        self._bytes = self._records = 0

    def add_inner(self, offset: int, begin: int, count: int, records: bytes) -> None:
        """Add `count` records of a node, from record `begin` on."""
        self._add(offset, False, begin, count, records)

    def add_leaf(self, offset: int, count: int, records: bytes) -> None:
        self._add(offset, True, 0, count, records)

    def _add(self, offset: int, is_leaf: bool, begin: int, count: int, records: bytes) -> None:
        self.index[offset] = len(self.offsets)
        self.offsets.append(offset)
        self.is_leaf.append(is_leaf)
        self.begins.append(begin)
        self.counts.append(count)
        self.records.append(records)
        self._bytes += len(records)
        self._records += count

    def size(self, columns: int) -> int:
        """Approximate memory of the blocks when decoded."""
        return self._bytes + self._records * columns * CELL_BYTES


class Decoded(NamedTuple):
    """Decoded blocks: their columns, the first record of each part, and the link of each record (or NO_LINK)."""

    columns: Columns
    first: Ints
    links: Ints


def decode(file: BlockFile, blocks: BlockBatch, columns: Collection[str] | None = None) -> Decoded:
    """Decode the given columns (by default all) of the records of these blocks. The records have the order of decoding.
    Irregular where a block that was added as a leaf has links; DamagedIndexFile where a block is damaged."""
    part, counts, records = _cut(file, blocks)
    begins = np.searchsorted(part, np.arange(len(blocks.counts)))  # the first piece of each part
    is_cut = np.diff(begins, append=len(part))[part] > 1
    # the pieces of one part are decoded the same way
    single = np.empty(0, np.int64) if kernel.COMPILED else _long_parts(np.where(is_cut, 0, counts))
    while True:
        many = np.setdiff1d(np.arange(len(counts)), single)
        try:
            vector = VectorColumns(file.schema, counts[many], [records[i] for i in many], columns)
            break
        except Unclear:
            single = np.arange(len(counts))
    rows: list[Row] = []
    links: list[int] = []
    for i in single:
        node = file.decode(blocks.offsets[part[i]], int(counts[i]), records[i])
        rows += node.rows(0, len(node))
        own = [node.keys.link(record) for record in range(len(node))]
        links += [NO_LINK if link is None else link for link in own]
        if blocks.is_leaf[part[i]] and any(link is not None for link in own):
            raise _linked_leaf(file, blocks.offsets[part[i]])
    for i in part[many[vector.has_link]]:
        if blocks.is_leaf[i]:
            raise _linked_leaf(file, blocks.offsets[i])
    turn = np.concatenate([many, single])
    first = np.empty(len(counts), np.int64)
    first[turn] = np.cumsum(counts[turn]) - counts[turn]
    first = first[begins]
    if not len(single):
        return Decoded(vector, first, vector.links)
    joined = JoinedColumns(vector, int(counts[many].sum()), RowColumns(file.schema, rows))
    return Decoded(joined, first, np.concatenate([vector.links, np.array(links, np.int64)]))


def _linked_leaf(file: BlockFile, offset: int) -> Irregular:
    return file.irregular("a leaf with links, at a level whose other leaves have none", offset)


def _cut(file: BlockFile, blocks: BlockBatch) -> tuple[Ints, Ints, list[bytes]]:
    """The blocks in pieces: the part of each piece, the number of its records, and the records. Most blocks are one
    piece."""
    part: list[int] = []
    counts: list[int] = []
    records: list[bytes] = []
    for i, (offset, count, data) in enumerate(zip(blocks.offsets, blocks.counts, blocks.records, strict=True)):
        pieces = file.cut(offset, count, data, CUT_RECORDS) if count > LONG_BLOCK else [(count, data)]
        for some, piece in pieces:
            part.append(i)
            counts.append(some)
            records.append(piece)
    return np.array(part, np.int64), np.array(counts, np.int64), records


def _long_parts(counts: Ints) -> Ints:
    """The blocks to decode one by one: those much longer than the others. Joint decoding takes one step for each record
    of the longest block."""
    falling = np.argsort(-counts, kind="stable")
    steps = np.append(counts[falling], 0)  # steps that remain if the n longest blocks are left out
    alone = np.concatenate([[0], np.cumsum(counts[falling])])
    best = int(np.argmin(alone * ROW_US + steps * STEP_US))
    return falling[:best]


def take(file: BlockFile, columns: Columns, name: str, order: Ints, pieces: RecordBlocks) -> pa.Array:
    """A column of the records in `order`, which come from these pieces. DamagedIndexFile for a value that its type does
    not have."""
    try:
        return columns.take(name, order)
    except (pa.ArrowInvalid, OutOfRange):
        pass
    for piece, offset in enumerate(pieces.offsets):
        try:
            columns.take(name, order[pieces.firsts[piece] : pieces.firsts[piece + 1]])
        except OutOfRange as error:
            raise file.damaged(f"the block cannot be decoded ({error})", offset) from None
        except pa.ArrowInvalid:
            types = {column.name: column.type for column in file.schema.entry.columns}
            what = "text that is not UTF-8" if types[name] == "string" else "more digits than its type has"
            raise file.damaged(what, offset, column=name) from None
    raise file.damaged("cannot be read", pieces.offsets[0], column=name)
