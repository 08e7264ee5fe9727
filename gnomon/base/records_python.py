"""The loops of `gnomon.base.kernel` over Avro records, in Python. They are the reference of the compiled ones.

A plan says how to read a record: three bytes for each field, in the order of the file. They are its kind; the branch of
null in its union, or NONE where the type is no union; the column that receives its values, or NONE where they are
skipped."""

import struct
from collections.abc import Callable, Sequence
from functools import lru_cache
from textwrap import indent
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from gnomon.base.varints import LONGEST_VARINT, OverlongVarint, decode_signed, decode_signed_array, skip_array

VERSION = 4  # of the functions here: a compiled module of another version is not used
# NUMBER: bytes that are a big-endian integer. `locate` alone has TEXT, bytes in UTF-8, and INT, a number of 32 bits.
LONG, BYTES, BOOLEAN, FLOAT, DOUBLE, NUMBER, LINK, TEXT, INT = range(9)
NONE = 255
FIELD = 3  # bytes of a field in a plan
WIDTHS = {BOOLEAN: 1, FLOAT: 4, DOUBLE: 8}

Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]
Located = tuple[list[int], list[list[Any]], list[int | None]]


class Output(NamedTuple):
    """The arrays that receive a field, with an item for each record. `values` receives the values, or for BYTES their
    positions; `lengths`, for BYTES only, their lengths. `valid`, for a nullable field only, comes filled with ones and
    receives 0 for a null. For a record without a link, `values` is not changed."""

    values: npt.NDArray[Any]
    lengths: Ints | None = None
    valid: Bytes | None = None


def field_plan(kind: int, null_branch: int | None, column: int | None) -> bytes:
    """The part of a plan for one field."""
    return bytes([kind, NONE if null_branch is None else null_branch, NONE if column is None else column])


# -- the records of one node -------------------------------------------------------------------------------------------

PASS_LONG = """\
while data[at] > 127:
    at += 1
at += 1
"""
READ_LONG = """\
n = data[at]
at += 1
if n > 127:
    n &= 127
    shift = 7
    more = data[at]
    while more > 127 and shift < 63:
        n |= (more & 127) << shift
        shift += 7
        at += 1
        more = data[at]
    n |= more << shift
    at += 1
    if n >> 64:
        raise ValueError("a varint of more than 64 bits")
"""
READ_BYTES = f"""\
{READ_LONG}if n & 1:
    raise ValueError("a negative length")
begin = at
at += n >> 1
if at > end:
    raise IndexError("the bytes end inside a record")
"""
READ_UNION = """\
branch = data[at]
at += 1
if branch == {value}:
{found}elif branch == {null}:
{nothing}else:
    raise ValueError("an unknown branch of a union")
"""
FUNCTION = """\
def locate(data, count, at, is_all):
    end = len(data)
    starts = [at]
    columns = [[] for _ in range({columns})]
    {adds} = [column.append for column in columns] + [starts.append]
    links = []
    link = links.append
    for _ in range(count):
{record}        mark(at)
    if is_all and at != end:
        raise ValueError("bytes that belong to no record")
    return starts, columns, links
"""
INDENT = " " * 8
READS = {
    **dict.fromkeys((LONG, LINK, INT), READ_LONG),
    **dict.fromkeys((BYTES, NUMBER, TEXT), READ_BYTES),
}
VALUES = {  # the expression of a value, after the code above has run
    LONG: "(n >> 1) ^ -(n & 1)",
    LINK: "(n >> 1) ^ -(n & 1)",
    BYTES: "data[begin:at]",
    NUMBER: "integer(data[begin:at])",
    TEXT: "data[begin:at].decode()",
    INT: "int32((n >> 1) ^ -(n & 1))",
    BOOLEAN: "data[at - 1] != 0",
    FLOAT: "float32(data, at - 4)[0]",
    DOUBLE: "float64(data, at - 8)[0]",
}


def locate(records: bytes, count: int, at: int, is_all: bool, plan: bytes, columns: int) -> Located:
    """`(starts, columns, links)` of `count` records from byte `at` on: the begin of each, and the end of the last; the
    values of each column of the plan; the link of each, or None.

    With `is_all`, no bytes may follow them. ValueError, IndexError or struct.error where the bytes are invalid."""
    return _function(plan, columns)(records, count, at, is_all)


@lru_cache(256)
def _function(plan: bytes, columns: int) -> Callable[[bytes, int, int, bool], Located]:
    """The function for a plan. It is generated, as `dataclasses` generates one for each class: that is three times as
    fast as a loop over the plan."""
    record = "".join(_field_code(*plan[at : at + FIELD]) for at in range(0, len(plan), FIELD))
    adds = ", ".join([f"add{i}" for i in range(columns)] + ["mark"])
    names: dict[str, object] = {
        "integer": _integer,
        "int32": _int32,
        "float32": struct.Struct("<f").unpack_from,
        "float64": struct.Struct("<d").unpack_from,
    }
    exec(FUNCTION.format(columns=columns, adds=adds, record=indent(record, INDENT)), names)  # has no text of a file
    return cast(Callable[[bytes, int, int, bool], Located], names["locate"])


def _integer(data: bytes) -> int:
    return int.from_bytes(data, "big", signed=True)


def _int32(value: int) -> int:
    if not -(1 << 31) <= value < 1 << 31:  # Avro's int is a long on disk
        raise ValueError(f"{value} exceeds 32 bits")
    return value


def _field_code(kind: int, null_branch: int, column: int) -> str:
    """The code for a field."""
    add = "link" if kind == LINK else None if column == NONE else f"add{column}"
    if kind in WIDTHS:
        code = f"at += {WIDTHS[kind]}\n"
    else:
        code = PASS_LONG if add is None and kind == LONG else READS[kind]
    nothing = "pass\n"
    if add is not None:
        code += f"{add}({VALUES[kind]})\n"
        nothing = f"{add}(None)\n"
    if null_branch == NONE:
        return code
    step = " " * 4
    return READ_UNION.format(
        value=2 - 2 * null_branch, null=2 * null_branch, found=indent(code, step), nothing=indent(nothing, step)
    )


def block_frames(
    data: bytes | memoryview,
    begin: int,
    sync: bytes,
    offsets: Sequence[int],
    first: int,
    most_records: int,
    most_bytes: int,
) -> list[tuple[int, int, int]]:
    """The number of records, and the begin and end of the payload in `data`, of the blocks at some ascending offsets,
    from the offset `first` of the list on. It ends before the first block that is not whole in `data`, which lies at
    `begin`, or that may be damaged: of more than `most_records` or `most_bytes`, or without the sync marker after
    it."""
    found: list[tuple[int, int, int]] = []
    for offset in offsets[first:]:
        try:
            if not begin <= offset:
                break
            count, at = decode_signed(data, offset - begin)
            length, at = decode_signed(data, at)
        except (IndexError, OverlongVarint):
            break
        end = at + length
        if not (1 <= count <= most_records and 1 <= length <= most_bytes and data[end : end + len(sync)] == sync):
            break
        found.append((count, at, end))
    return found


# -- the records of many nodes -----------------------------------------------------------------------------------------


class _Unclear(Exception):
    """The bytes are damaged, or in a form that no known writer uses."""


def record_columns(
    records: bytes, counts: Ints, sizes: Ints, plan: bytes, outputs: Sequence[Output | None], linked: Bytes
) -> bool:
    """Decode the records of many nodes into arrays. Returns False, with some of the arrays filled, where the bytes are
    damaged, or in a form that no known writer uses.

    `counts` has the number of records in each node, `sizes` the number of its bytes in `records`. `outputs` has the
    arrays of each field of the plan, None for one that is skipped. `linked[i]` becomes 1 where a record of node i has a
    link.

    Each node has a cursor, and record i of every node is decoded in the same few numpy calls. So Python does the work
    of one node."""
    fields = [_Field(plan[FIELD * i], plan[FIELD * i + 1], output) for i, output in enumerate(outputs)]
    # a cursor may leave its node before the check sees it
    data = np.frombuffer(records + bytes((LONGEST_VARINT + 1) * (len(fields) + 1)), np.uint8)
    try:
        _decode(data, counts, sizes, fields, linked)
    except (IndexError, OverlongVarint, _Unclear):
        return False
    return True


def _decode(data: Bytes, counts: Ints, sizes: Ints, fields: Sequence["_Field"], linked: Bytes) -> None:
    order = np.argsort(-counts, kind="stable")  # the most records first, so that finished nodes are at the end
    falling = counts[order]
    ends = np.cumsum(sizes)[order]
    cursor = ends - sizes[order]
    at = (np.cumsum(counts) - counts)[order]
    for step in range(int(counts.max(initial=0))):
        left = int(np.searchsorted(-falling, -step))  # nodes of more than `step` records
        if left < len(cursor):
            if (cursor[left:] != ends[left : len(cursor)]).any():
                raise _Unclear
            cursor, at = cursor[:left], at[:left]
        for field in fields:
            found = field.put(data, cursor, ends[:left], at)
            if field.kind == LINK:
                linked[order[:left][found]] = 1
        at += 1
        if (cursor > ends[:left]).any():
            raise _Unclear
    if (cursor != ends[: len(cursor)]).any():
        raise _Unclear


class _Field:
    """A field of records that are decoded together."""

    def __init__(self, kind: int, null_branch: int, output: Output | None) -> None:
        self.kind = kind
        self._null_branch = null_branch
        self._output = output

    def put(self, data: Bytes, cursor: Ints, ends: Ints, at: Ints) -> Ints | slice:
        """Decode a value at each cursor, and advance the cursors. `at` has the index of each record. Returns which
        cursors had a value."""
        if self._null_branch == NONE:
            self._put_values(data, cursor, ends, at)
            return slice(None)
        branch = data.take(cursor)
        cursor += 1
        valid = branch == 2 - 2 * self._null_branch
        if valid.all():
            self._put_values(data, cursor, ends, at)
            return slice(None)
        if not (branch[~valid] == 2 * self._null_branch).all():
            raise _Unclear
        if self._output is not None and self._output.valid is not None:
            self._output.valid[at[~valid]] = 0
            if self.kind == BYTES:
                self._output.values[at] = cursor
        there = np.flatnonzero(valid)
        if len(there):
            some = cursor[there]
            self._put_values(data, some, ends[there], at[there])
            cursor[there] = some
        return there

    def _put_values(self, data: Bytes, cursor: Ints, ends: Ints, at: Ints) -> None:
        output = self._output
        if self.kind in WIDTHS:
            self._put_fixed(data, cursor, at)
        elif self.kind == BYTES:
            lengths = decode_signed_array(data, cursor)
            if ((lengths < 0) | (lengths > ends - cursor)).any():
                raise _Unclear
            if output is not None and output.lengths is not None:
                output.values[at] = cursor
                output.lengths[at] = lengths
            cursor += lengths
        elif output is None:
            skip_array(data, cursor)
        else:
            output.values[at] = decode_signed_array(data, cursor)

    def _put_fixed(self, data: Bytes, cursor: Ints, at: Ints) -> None:
        width = WIDTHS[self.kind]
        if self.kind == BOOLEAN and (data.take(cursor) > 1).any():
            raise _Unclear
        if self._output is not None:
            form = "u1" if self.kind == BOOLEAN else f"<f{width}"
            self._output.values[at] = np.ndarray(len(data) - width + 1, form, data.data, strides=(1,))[cursor]
        cursor += width
