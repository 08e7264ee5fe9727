"""The schema tree of a footer: top-level columns, the leaves below each, and the Arrow types that a writer recorded.

Schema elements are kept as bytes, so that a generated footer repeats them exactly. The exception is a logical type that
Hive 4 writes by mistake.
"""

import base64
import binascii
from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa

from gnomon.base.errors import check_memory
from gnomon.sources.parquet import thrift
from gnomon.sources.parquet.thrift import Decoder, ThriftError

OPTIONAL, REPEATED = 1, 2  # FieldRepetitionType; the default is required
DEPTH_LIMIT = 1000  # levels; pyarrow refuses columns deeper than 100
BOOLEAN, BINARY, FIXED_BYTES = 0, 6, 7  # physical types (Type in parquet.thrift)
WIDTHS = {1: 4, 2: 8, 3: 12, 4: 4, 5: 8}  # bytes of a value of INT32, INT64, INT96, FLOAT, DOUBLE
DECIMAL = 5  # ConvertedType
LOGICAL_TYPE = 10  # field of an element, the last one
# LogicalType of leaves that hold only nulls. Hive 4 gives it to the entries of maps, and pyarrow refuses it.
UNKNOWN = 11
END = bytes([thrift.STOP])  # ends a struct
DECIMAL128_DIGITS, DECIMAL128_BYTES = 38, 16
ARROW_SCHEMA = b"ARROW:schema"
VIEWS = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}


class Element(NamedTuple):
    """One node of the tree, in depth-first order. `kind` is the physical type of a leaf, None for a group; `width` the
    length of a fixed one, in bytes."""

    name: str
    kind: int | None
    width: int
    repetition: int
    children: int
    padded_decimal: bool
    raw: bytes


class Leaf(NamedTuple):
    """A column of values, with one chunk in each row group. `width`: bytes of a value of a fixed length, else 0.
    `repetitions` and `definitions`: the highest levels (parquet-format, Nested Encoding)."""

    ordinal: int
    kind: int
    path: tuple[bytes, ...]
    width: int
    repetitions: int
    definitions: int


class Column(NamedTuple):
    """A top-level column with its subtree. `flat`: one leaf, not repeated, so that each value is a row.
    `padded_decimal`: a decimal in more bytes than its digits need, and more than pyarrow reads."""

    ordinal: int
    name: str
    elements: tuple[bytes, ...]
    leaves: tuple[Leaf, ...]
    flat: bool
    padded_decimal: bool


def read_elements(decoder: Decoder, wire: int) -> list[Element]:
    elements = []
    for _ in range(decoder.structs(wire)):
        start = decoder.position
        name, numbers = b"", dict.fromkeys((1, 2, 3, 5, 6, 8), -1)
        before, logical, behind = start, -1, start  # the bytes of the last field, and its type if it is the logical one
        for field_id, field_wire in decoder.fields():
            before, logical = behind, -1
            if field_id in numbers and thrift.I8 <= field_wire <= thrift.I64:
                numbers[field_id] = decoder.number(field_wire)
            elif field_id == 4 and field_wire == thrift.BINARY:
                name = decoder.text(field_wire)
            elif field_id == LOGICAL_TYPE and field_wire == thrift.STRUCT:
                logical = next(iter(decoder.struct()), -1)
            else:
                decoder.skip(field_wire)
            behind = decoder.position
        is_mistake = logical == UNKNOWN and numbers[1] < 0
        kind, width, repetition, children, converted, precision = numbers.values()
        if not -1 <= repetition <= REPEATED:
            raise ThriftError(f"schema element {name!r} has the unknown repetition {repetition}")
        elements.append(
            Element(
                name=name.decode("utf-8", "replace"),
                kind=None if kind < 0 else kind,
                width=width,
                repetition=repetition,
                children=children,
                padded_decimal=kind == FIXED_BYTES
                and converted == DECIMAL
                and precision <= DECIMAL128_DIGITS
                and width > DECIMAL128_BYTES,
                raw=decoder.data[start:before] + END if is_mistake else decoder.data[start : decoder.position],
            )
        )
    return elements


def columns_of(elements: Sequence[Element]) -> tuple[Column, ...]:
    """The root's children. The tree has to end within `elements` and be no deeper than `DEPTH_LIMIT`."""
    if not elements:
        raise ThriftError("the footer has no schema")
    columns: list[Column] = []
    position, leaf_count = 1, 0
    for ordinal in range(elements[0].children):
        end, leaves = _leaves_below(elements, position, leaf_count)
        top = elements[position]
        flat = top.kind is not None and top.repetition != REPEATED
        raw = tuple(element.raw for element in elements[position:end])
        padded = any(element.padded_decimal for element in elements[position:end])
        columns.append(Column(ordinal, top.name, raw, leaves, flat, padded))
        position, leaf_count = end, leaf_count + len(leaves)
    return tuple(columns)


def _leaves_below(elements: Sequence[Element], start: int, first_leaf: int) -> tuple[int, tuple[Leaf, ...]]:
    """`(position after the subtree at start, its leaves)`, without recursion."""
    leaves: list[Leaf] = []
    path: list[bytes] = []
    levels = [(0, 0)]  # the highest repetition and definition level, per level of groups
    open_groups: list[int] = []  # children still to come, per level
    position = start
    while True:
        if position >= len(elements):
            raise ThriftError(f"the schema tree needs more than its {len(elements)} elements")
        element = elements[position]
        position += 1
        if element.kind is not None and element.children > 0:
            raise ThriftError(f"schema element {element.name!r} is a leaf and has children")
        repetitions = levels[-1][0] + (element.repetition == REPEATED)
        definitions = levels[-1][1] + (element.repetition in (OPTIONAL, REPEATED))
        if element.kind is None and element.children > 0:
            if len(path) >= DEPTH_LIMIT:
                raise ThriftError(f"the schema is nested deeper than {DEPTH_LIMIT} levels")
            path.append(element.name.encode())
            levels.append((repetitions, definitions))
            open_groups.append(element.children)
            continue
        if element.kind is not None:
            width = element.width if element.kind == FIXED_BYTES else WIDTHS.get(element.kind, 0)
            full_path = (*path, element.name.encode())
            leaves.append(Leaf(first_leaf + len(leaves), element.kind, full_path, width, repetitions, definitions))
        while open_groups:
            open_groups[-1] -= 1
            if open_groups[-1]:
                break
            open_groups.pop()
            path.pop()
            levels.pop()
        if not open_groups:
            return position, tuple(leaves)


def stored_fields(text: bytes | None, count: int) -> list[pa.Field] | None:
    """The Arrow fields that the writer recorded, in the types of `_plain_type`; None where there are none, or not one
    for each of `count` columns."""
    if text is None:
        return None
    try:
        schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))
    except (pa.ArrowException, OSError, binascii.Error) as error:
        check_memory(error)
        raise ThriftError(f"the Arrow schema in the footer cannot be read: {error}") from error
    if len(schema) != count:
        return None
    try:
        return [field.with_type(_plain_type(field.type)) for field in schema]
    except UnicodeDecodeError as error:
        raise ThriftError(f"the Arrow schema in the footer has a time zone that is not valid text: {error}") from error


def arrow_metadata(fields: Sequence[pa.Field]) -> bytes:
    """The encoded key-value entry that makes pyarrow use these fields."""
    text = base64.b64encode(pa.schema(fields).serialize().to_pybytes())
    return thrift.struct([(1, thrift.BINARY, thrift.binary(ARROW_SCHEMA)), (2, thrift.BINARY, thrift.binary(text))])


def _plain_type(kind: pa.DataType) -> pa.DataType:
    """The type with dictionaries replaced by their values, since pages of one column have different ones, and views by
    the viewed type, since pyarrow cannot take rows of a view."""
    if pa.types.is_dictionary(kind):
        return _plain_type(kind.value_type)
    if kind in VIEWS:
        return VIEWS[kind]
    if pa.types.is_timestamp(kind):
        return pa.timestamp(kind.unit, kind.tz)  # the zone is read here: an invalid one fails with a UnicodeDecodeError
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_plain_type(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(
            kind.key_field.with_type(_plain_type(kind.key_type)),
            kind.item_field.with_type(_plain_type(kind.item_type)),
            keys_sorted=kind.keys_sorted,
        )
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(_plain_value_field(kind), kind.list_size)
    if pa.types.is_large_list(kind) or pa.types.is_large_list_view(kind):
        return pa.large_list(_plain_value_field(kind))
    if pa.types.is_list(kind) or pa.types.is_list_view(kind):
        return pa.list_(_plain_value_field(kind))
    return kind


def _plain_value_field(kind: pa.DataType) -> pa.Field:
    return kind.value_field.with_type(_plain_type(kind.value_type))
