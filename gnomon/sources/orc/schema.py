"""ORC's tree of types, and the Arrow types of its columns."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa

from gnomon.sources.orc.errors import Damage, Unsupported
from gnomon.sources.orc.protobuf import fields, message, number, numbers, text

BOOLEAN, BYTE, SHORT, INT, LONG, FLOAT, DOUBLE, STRING, BINARY, TIMESTAMP = range(10)
LIST, MAP, STRUCT, UNION, DECIMAL, DATE, VARCHAR, CHAR, INSTANT, GEOMETRY, GEOGRAPHY = range(10, 21)

PLAIN: dict[int, pa.DataType] = {
    BOOLEAN: pa.bool_(),
    BYTE: pa.int8(),
    SHORT: pa.int16(),
    INT: pa.int32(),
    LONG: pa.int64(),
    FLOAT: pa.float32(),
    DOUBLE: pa.float64(),
    STRING: pa.string(),
    VARCHAR: pa.string(),
    CHAR: pa.string(),
    BINARY: pa.binary(),
    GEOMETRY: pa.binary(),
    GEOGRAPHY: pa.binary(),
    DATE: pa.date32(),
}
CHILDREN = {LIST: 1, MAP: 2}  # the number of children, for kinds with a fixed number
DEEPEST = 150  # levels of nesting: each takes some of Python's stack
MOST_BRANCHES = 127  # branches of a union: Arrow's type codes have 7 bits
MOST_DIGITS = 38  # digits of a decimal
HIVE_11_DECIMAL = (38, 6)  # precision and scale of a type without them, as in pyarrow


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
    if root.kind != STRUCT:
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


def _check(raw: RawType) -> None:
    if raw.kind == STRUCT and len(raw.names) != len(raw.subtypes):
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
    if raw.kind in (TIMESTAMP, INSTANT):
        return pa.timestamp("us" if wide else "ns", "UTC" if raw.kind == INSTANT else None), 0
    if raw.kind == DECIMAL:
        precision, scale = (raw.precision, raw.scale) if raw.precision else HIVE_11_DECIMAL
        if precision > MOST_DIGITS or scale > precision:
            raise Unsupported(f"decimal({precision}, {scale}), the limit is {MOST_DIGITS} digits")
        return pa.decimal128(precision, scale), scale
    if raw.kind == LIST:
        return pa.list_(arrow_field("item", children[0])), 0
    if raw.kind == MAP:
        return pa.map_(children[0].arrow, children[1].arrow), 0
    if raw.kind == STRUCT:
        return pa.struct([arrow_field(name, child) for name, child in zip(raw.names, children, strict=True)]), 0
    if raw.kind == UNION:
        if not 0 < len(children) <= MOST_BRANCHES:
            raise Unsupported(f"a union of {len(children)} types, expected 1 to {MOST_BRANCHES}")
        return pa.dense_union([pa.field(f"_union_{i}", child.arrow) for i, child in enumerate(children)]), 0
    raise Unsupported(f"unknown type kind {raw.kind}")
