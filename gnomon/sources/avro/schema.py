"""The schema in a file's header, as a graph of its types (Avro 1.12, "Schema Declaration", "Logical Types").

It is read as leniently as the bytes of the rows allow: names, enum symbols and defaults are not checked. A logical type
that is invalid or unknown counts as its underlying type, as in the specification.
"""

import json
from dataclasses import dataclass, field, replace
from typing import Any, TypeGuard

from gnomon.sources.avro.container import LimitExceeded, Malformed

PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
RECORDS = ("record", "error")
MOST_NESTED = 200  # nesting levels of declared types
LOGICAL = {  # logical types and the types that they annotate; decimal has its own rules
    "date": ("int",),
    "time-millis": ("int",),
    "time-micros": ("long",),
    "timestamp-millis": ("long",),
    "timestamp-micros": ("long",),
    "timestamp-nanos": ("long",),
    "local-timestamp-millis": ("long",),
    "local-timestamp-micros": ("long",),
    "local-timestamp-nanos": ("long",),
    "uuid": ("string", "fixed"),
    "decimal": ("bytes", "fixed"),
}
UUID_BYTES = 16
DECIMAL_DIGITS = 4300  # Python converts no longer number to text


@dataclass(eq=False)
class Leaf:
    """A type without inner types. `kind` is a primitive's name, "fixed" or "enum"; `name` is its name in a union."""

    kind: str
    name: str
    size: int = 0  # bytes, for a fixed
    symbols: tuple[str, ...] = ()
    logical: str = ""
    precision: int = 0
    scale: int = 0


@dataclass(eq=False)
class Record:
    """`ids` has the field ids of fields, as Iceberg writes them, by name."""

    name: str
    fields: list[tuple[str, "Node"]] = field(default_factory=list)
    ids: dict[str, int] = field(default_factory=dict)


@dataclass(eq=False)
class Array:
    items: "Node"
    name: str = "array"


@dataclass(eq=False)
class Map:
    """The keys are strings, but for Iceberg's maps."""

    values: "Node"
    name: str = "map"
    keys: "Node" = field(default_factory=lambda: Leaf("string", "string"))


@dataclass(eq=False)
class Union:
    branches: list["Node"]
    name: str = "union"


Node = Leaf | Record | Array | Map | Union


def parse_schema(text: bytes, of_iceberg: bool = False) -> Node:
    """The type of a row. A record that contains itself is a cycle in the graph. `of_iceberg` reads the attributes of
    Iceberg's files, too: timestamps without a zone (`adjust-to-utc`) and maps whose keys are no strings, which are
    arrays of records (logical type `map`)."""
    try:
        declared = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Malformed(f"not JSON ({error})") from error
    return _Names(of_iceberg).node(declared, "", 0)


class _Names:
    """The named types seen so far, by full name."""

    def __init__(self, of_iceberg: bool) -> None:
        self._known: dict[str, Node] = {}
        self._of_iceberg = of_iceberg

    def node(self, declared: Any, namespace: str, depth: int) -> Node:
        if depth > MOST_NESTED:
            raise LimitExceeded(f"types nested more than {MOST_NESTED} deep")
        if isinstance(declared, str):
            return self._named(declared, namespace)
        if isinstance(declared, list):
            if not declared:
                raise Malformed("a union of no types")
            return Union([self.node(branch, namespace, depth + 1) for branch in declared])
        if not isinstance(declared, dict):
            raise Malformed(f"{declared!r} is not a type")
        kind = declared.get("type")
        if not isinstance(kind, str):  # Rust's writer annotates a fixed around the type that it declares
            inner = self.node(kind, namespace, depth + 1)
            return self._leaf(replace(inner), declared) if isinstance(inner, Leaf) and not inner.logical else inner
        if kind == "array":
            items = self.node(declared.get("items"), namespace, depth + 1)
            if self._of_iceberg and declared.get("logicalType") == "map" and _is_entry(items):
                return Map(items.fields[1][1], keys=items.fields[0][1])
            return Array(items)
        if kind == "map":
            return Map(self.node(declared.get("values"), namespace, depth + 1))
        if kind in RECORDS:
            return self._record(declared, namespace, depth)
        if kind == "enum":
            return self._keep(declared, namespace, Leaf("enum", "", symbols=_symbols(declared)))[0]
        if kind == "fixed":
            size = declared.get("size")
            if not _is_count(size):
                raise Malformed(f"a fixed of size {size!r}")
            return self._keep(declared, namespace, self._leaf(Leaf("fixed", "", size=size), declared))[0]
        if kind in PRIMITIVES:
            return self._leaf(Leaf(kind, kind), declared)
        return self._named(kind, namespace)

    def _leaf(self, leaf: Leaf, declared: dict[str, Any]) -> Leaf:
        found = _annotated(leaf, declared)
        if self._of_iceberg and found.logical.startswith("timestamp-") and declared.get("adjust-to-utc") is False:
            found.logical = f"local-{found.logical}"
        return found

    def _named(self, name: str, namespace: str) -> Node:
        if name in PRIMITIVES:
            return Leaf(name, name)
        for full in (f"{namespace}.{name}", name) if namespace and "." not in name else (name,):
            if full in self._known:
                return self._known[full]
        raise Malformed(f"unknown type {name[:80]!r}")

    def _keep(self, declared: dict[str, Any], namespace: str, node: Leaf | Record) -> tuple[Node, str]:
        """Record a named type. Returns it with the namespace that applies within it."""
        name, space = declared.get("name"), declared.get("namespace")
        if not _is_text(name):
            raise Malformed(f"a type without a name: {str(declared)[:80]}")
        if "." in name:
            space = name.rpartition(".")[0]
        elif not isinstance(space, str):
            space = namespace
        node.name = name if "." in name or not space else f"{space}.{name}"
        self._known[node.name] = node
        return node, space

    def _record(self, declared: dict[str, Any], namespace: str, depth: int) -> Node:
        record = Record("")
        _, space = self._keep(declared, namespace, record)
        fields = declared.get("fields")
        if not isinstance(fields, list):
            raise Malformed(f"record {record.name} without fields")
        for one in fields:
            name = one.get("name") if isinstance(one, dict) else None
            if not _is_text(name):
                raise Malformed(f"record {record.name}: a field without a name")
            # Some writers annotate the field instead of its type. No reader honours that, so neither does this one.
            record.fields.append((name, self.node(one.get("type"), space, depth + 1)))
            if _is_count(one.get("field-id")):
                record.ids[name] = one["field-id"]
        return record


def is_null(node: Node) -> bool:
    return isinstance(node, Leaf) and node.kind == "null"


def _is_entry(node: Node) -> TypeGuard[Record]:
    """Whether a type is that of the entries of a map."""
    return isinstance(node, Record) and [name for name, _ in node.fields] == ["key", "value"]


def _is_count(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 31


def _symbols(declared: dict[str, Any]) -> tuple[str, ...]:
    symbols = declared.get("symbols")
    if not isinstance(symbols, list) or not all(map(_is_text, symbols)):
        raise Malformed(f"an enum without symbols: {str(declared)[:80]}")
    return tuple(symbols)


def _annotated(leaf: Leaf, declared: dict[str, Any]) -> Leaf:
    """The leaf with its logical type, where that is valid."""
    logical = declared.get("logicalType")
    if not isinstance(logical, str) or leaf.kind not in LOGICAL.get(logical, ()):
        return leaf
    if logical == "uuid" and leaf.kind == "fixed" and leaf.size != UUID_BYTES:
        return leaf
    if logical == "decimal":
        precision, scale = declared.get("precision"), declared.get("scale", 0)
        if not (_is_count(precision) and _is_count(scale) and max(scale, 1) <= precision <= DECIMAL_DIGITS):
            return leaf
        leaf.precision, leaf.scale = precision, scale
    leaf.logical = logical
    return leaf


def _is_text(value: object) -> TypeGuard[str]:
    """Whether the value is valid text. JSON can hold half of a surrogate pair, which is not."""
    return isinstance(value, str) and not any("\ud800" <= character <= "\udfff" for character in value)
