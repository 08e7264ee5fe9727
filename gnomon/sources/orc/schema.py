"""ORC's tree of types, and the Arrow types of its columns; Protocol Buffers' wire format, of which ORC's postscript,
footers and row indexes are.

A message is read field by field; unknown fields are skipped. Every length is checked against the bytes left. So hostile
bytes raise `Damage`, and never hang or exhaust memory.
"""

from collections.abc import Iterator, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

import pyarrow as pa

from gnomon.base.varints import OverlongVarint, decode_unsigned, from_zigzag
from gnomon.sources.orc.streams import Damage, Unsupported

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5

Value = int | bytes


class Kind(IntEnum):
    """The kinds of types, by their numbers in the footer. INSTANT is a timestamp of a zone."""

    BOOLEAN, BYTE, SHORT, INT, LONG, FLOAT, DOUBLE, STRING, BINARY, TIMESTAMP = range(10)
    LIST, MAP, STRUCT, UNION, DECIMAL, DATE, VARCHAR, CHAR, INSTANT, GEOMETRY, GEOGRAPHY = range(10, 21)


PLAIN: dict[int, pa.DataType] = {
    Kind.BOOLEAN: pa.bool_(),
    Kind.BYTE: pa.int8(),
    Kind.SHORT: pa.int16(),
    Kind.INT: pa.int32(),
    Kind.LONG: pa.int64(),
    Kind.FLOAT: pa.float32(),
    Kind.DOUBLE: pa.float64(),
    Kind.STRING: pa.string(),
    Kind.VARCHAR: pa.string(),
    Kind.CHAR: pa.string(),
    Kind.BINARY: pa.binary(),
    Kind.GEOMETRY: pa.binary(),
    Kind.GEOGRAPHY: pa.binary(),
    Kind.DATE: pa.date32(),
}
CHILDREN: dict[int, int] = {Kind.LIST: 1, Kind.MAP: 2}  # the number of children, for kinds with a fixed number
DEEPEST = 150  # levels of nesting: each takes some of Python's stack
MOST_BRANCHES = 127  # branches of a union: Arrow's type codes have 7 bits
MOST_DIGITS = 38  # digits of a decimal
HIVE_11_DECIMAL = (38, 6)  # precision and scale of a type without them, as in pyarrow


def fields(data: bytes) -> Iterator[tuple[int, Value]]:
    """`(field number, value)` of each field: an integer (varint and fixed, unsigned), or bytes."""
    position, end = 0, len(data)
    while position < end:
        key, position = varint(data, position)
        wire = key & 7
        if wire == VARINT:
            number, position = varint(data, position)
            yield key >> 3, number
            continue
        if wire == BYTES:
            length, position = varint(data, position)
        elif wire in (FIXED64, FIXED32):
            length = 8 if wire == FIXED64 else 4
        else:
            raise Damage(f"unknown wire type {wire} of field {key >> 3}")
        if length > end - position:
            raise Damage(f"field {key >> 3} claims {length} bytes, {end - position} are left")
        value = data[position : position + length]
        position += length
        yield key >> 3, value if wire == BYTES else int.from_bytes(value, "little")


def varint(data: bytes, position: int) -> tuple[int, int]:
    """`(unsigned number, position after it)`."""
    try:
        return decode_unsigned(data, position)
    except OverlongVarint as error:
        raise Damage(str(error)) from None
    except IndexError:
        raise Damage("the bytes end inside a number") from None


def number(value: Value) -> int:
    """A field that has to be an unsigned integer."""
    if isinstance(value, int):
        return value
    raise Damage("bytes where a number belongs")


def signed(value: Value) -> int:
    """A field that has to be an sint64 (zigzag)."""
    return from_zigzag(number(value))


def message(value: Value) -> bytes:
    """A field that has to be a message, a text or bytes."""
    if isinstance(value, bytes):
        return value
    raise Damage("a number where bytes belong")


def text(value: Value) -> str:
    """A field that has to be text. Bytes that are not UTF-8 are replaced."""
    return message(value).decode(errors="replace")


def numbers_in(data: bytes, *wanted: int) -> list[int]:
    """The integers of a message in these fields; 0 for a field that it lacks. The last one counts where one repeats."""
    found = dict.fromkeys(wanted, 0)
    found |= {each: number(value) for each, value in fields(data) if each in found}
    return list(found.values())


def numbers(value: Value) -> list[int]:
    """An entry of a repeated integer field: one, or several packed."""
    if isinstance(value, int):
        return [value]
    found, position = [], 0
    while position < len(value):
        each, position = varint(value, position)
        found.append(each)
    return found


class RawType(NamedTuple):
    """A type as stored in the footer; `subtypes` are ordinals."""

    kind: int
    subtypes: tuple[int, ...]
    names: tuple[str, ...]
    precision: int
    scale: int
    attributes: Mapping[str, str]


class Type(NamedTuple):
    """A type with its children. `column` is its number in preorder, which streams, encodings and statistics use. If the
    type cannot be read, `arrow` is null and `refusal` says why."""

    column: int
    kind: int
    children: tuple["Type", ...]
    arrow: pa.DataType
    scale: int
    attributes: Mapping[str, str]
    refusal: str | None = None

    def tree(self) -> Iterator["Type"]:
        """This type and all types below it, in preorder."""
        yield self
        for child in self.children:
            yield from child.tree()


def read_type(data: bytes) -> RawType:
    """The type in a `Type` message."""
    kind = precision = scale = 0
    subtypes: list[int] = []
    names: list[str] = []
    attributes = {}
    for field, value in fields(data):
        if field == 1:
            kind = number(value)
        elif field == 2:
            subtypes += numbers(value)
        elif field == 3:
            names.append(text(value))
        elif field == 5:
            precision = number(value)
        elif field == 6:
            scale = number(value)
        elif field == 7:
            pair = dict(fields(message(value)))
            attributes[text(pair.get(1, b""))] = text(pair.get(2, b""))
    return RawType(kind, tuple(subtypes), tuple(names), precision, scale, attributes)


def columns_of(types: Sequence[RawType], wide: frozenset[int]) -> list[tuple[str, Type]]:
    """The fields of the root struct. `wide`: columns of timestamps that exceed nanoseconds in 64 bits."""
    if not types:
        raise Damage("no types")
    root = types[0]
    if root.kind != Kind.STRUCT:
        raise Unsupported(f"the root is of type kind {root.kind}, expected a struct")
    _check(root)
    found, follows = [], 1
    for name, ordinal in zip(root.names, root.subtypes, strict=True):
        tree = _tree(types, ordinal, follows, wide, 1)
        follows = ordinal + sum(1 for _ in tree.tree())
        found.append((name, tree))
    if follows != len(types):
        raise Damage(f"{len(types)} types, but the tree has {follows}")
    return found


def arrow_field(name: str, tree: Type) -> pa.Field:
    """The column in Arrow, with the type's attributes (Iceberg's ids) as its metadata."""
    return pa.field(name, tree.arrow, metadata=dict(tree.attributes) or None)


def narrowed_type(tree: Type, path: Sequence[str]) -> Type:
    """The type with the field of a path alone; the path begins below it. KeyError where it has no such field."""
    if not path:
        return tree
    place = tree.arrow.get_field_index(path[0]) if tree.kind == Kind.STRUCT and tree.refusal is None else -1
    if place < 0:
        raise KeyError(path[0])
    child = narrowed_type(tree.children[place], path[1:])
    return tree._replace(children=(child,), arrow=pa.struct([tree.arrow.field(place).with_type(child.arrow)]))


def _check(raw: RawType) -> None:
    if raw.kind == Kind.STRUCT and len(raw.names) != len(raw.subtypes):
        raise Damage(f"a struct of {len(raw.subtypes)} fields with {len(raw.names)} names")
    if raw.kind in CHILDREN and len(raw.subtypes) != CHILDREN[raw.kind]:
        raise Damage(f"a type of kind {raw.kind} with {len(raw.subtypes)} children")
    if raw.kind in PLAIN and raw.subtypes:
        raise Damage(f"a type of kind {raw.kind} with children")


def _tree(types: Sequence[RawType], ordinal: int, expected: int, wide: frozenset[int], depth: int) -> Type:
    """The tree of a type. Types are stored in preorder: each child begins where the previous one ended."""
    if ordinal != expected or ordinal >= len(types):
        raise Damage(f"found type {ordinal}, expected type {expected} of {len(types)}")
    if depth > DEEPEST:
        raise Unsupported(f"nested deeper than {DEEPEST}")
    raw = types[ordinal]
    _check(raw)
    children, follows = [], ordinal + 1
    for subtype in raw.subtypes:
        child = _tree(types, subtype, follows, wide, depth + 1)
        follows += sum(1 for _ in child.tree())
        children.append(child)
    refusal = next((child.refusal for child in children if child.refusal), None)
    arrow, scale = pa.null(), 0
    try:
        if refusal is None:
            arrow, scale = _arrow(raw, children, ordinal in wide)
    except Unsupported as error:
        refusal = str(error)
    return Type(ordinal, raw.kind, tuple(children), arrow, scale, raw.attributes, refusal)


def _arrow(raw: RawType, children: Sequence[Type], wide: bool) -> tuple[pa.DataType, int]:
    """`(Arrow type, decimal scale)`."""
    if raw.kind in PLAIN:
        return PLAIN[raw.kind], 0
    if raw.kind in (Kind.TIMESTAMP, Kind.INSTANT):
        return pa.timestamp("us" if wide else "ns", "UTC" if raw.kind == Kind.INSTANT else None), 0
    if raw.kind == Kind.DECIMAL:
        precision, scale = (raw.precision, raw.scale) if raw.precision else HIVE_11_DECIMAL
        if precision > MOST_DIGITS or scale > precision:
            raise Unsupported(f"decimal({precision}, {scale}), the limit is {MOST_DIGITS} digits")
        return pa.decimal128(precision, scale), scale
    if raw.kind == Kind.LIST:
        return pa.list_(arrow_field("item", children[0])), 0
    if raw.kind == Kind.MAP:
        return pa.map_(children[0].arrow, children[1].arrow), 0
    if raw.kind == Kind.STRUCT:
        return pa.struct([arrow_field(name, child) for name, child in zip(raw.names, children, strict=True)]), 0
    if raw.kind == Kind.UNION:
        if not 0 < len(children) <= MOST_BRANCHES:
            raise Unsupported(f"a union of {len(children)} types, expected 1 to {MOST_BRANCHES}")
        return pa.dense_union([pa.field(f"_union_{i}", child.arrow) for i, child in enumerate(children)]), 0
    raise Unsupported(f"unknown type kind {raw.kind}")
