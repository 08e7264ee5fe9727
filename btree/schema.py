"""The Avro record schema of an entry: key columns, value columns, the link."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from gnomon.base.records_python import BOOLEAN, BYTES, DOUBLE, FLOAT, INT, LINK, LONG, NUMBER, TEXT, field_plan
from gnomon.btree.errors import BTreeError
from gnomon.btree.format import LINK_FIELD
from gnomon.btree.key_types import is_key_type, key_type, key_types

RECORD_NAME, RECORD_NAMESPACE = "keyValueSchema", "na"  # Dione's
RECORD_DOC = "an entry of a B-Tree node; metadata links to the child node"
STORED_KINDS = {"string": TEXT, "int": INT, "date": INT}  # of columns whose values `locate` brings to their stored form
KINDS = {"int": LONG, "long": LONG, "bytes": BYTES, "boolean": BOOLEAN, "float": FLOAT, "double": DOUBLE}
AVRO_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True)
class Column:
    """A column of an index file: its name in the file, its type (Spark's name), and whether it may hold nulls."""

    name: str
    type: str
    nullable: bool = True


@dataclass(frozen=True)
class EntrySchema:
    """Key columns in key order, then value columns. Dione's header text requires at least one of each."""

    keys: tuple[Column, ...]
    values: tuple[Column, ...]

    def __post_init__(self) -> None:
        names = [column.name for column in self.columns]
        if not self.keys or not self.values:
            raise BTreeError("an index file has at least one key column and one value column")
        taken = {LINK_FIELD}
        for name in names:
            if not AVRO_NAME.fullmatch(name) or name in taken:
                raise BTreeError(f"{name!r} cannot be a column of an index file: not an Avro name, or reserved")
            taken.add(name)
        for column in self.columns:
            if not is_key_type(column.type):
                raise BTreeError(f"cannot be of type {column.type}", column=column.name)

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.keys + self.values

    @property
    def key_types(self) -> tuple[str, ...]:
        return tuple(column.type for column in self.keys)

    def to_avro(self, doc: str = RECORD_DOC, null_first: bool = True) -> dict[str, object]:
        """The record schema, as Avro's JSON. Nulls come first in the unions of Gnomon's files, and last in those of
        Dione's."""
        fields: list[dict[str, object]] = []
        for column in self.columns:
            kind = key_type(column.type).avro
            union = ["null", kind] if null_first else [kind, "null"]
            fields.append({"name": column.name, "type": union if column.nullable else kind})
        fields.append({"name": LINK_FIELD, "type": ["null", "long"]})
        return {"type": "record", "name": RECORD_NAME, "namespace": RECORD_NAMESPACE, "doc": doc, "fields": fields}

    def to_json(self, doc: str = RECORD_DOC, null_first: bool = True) -> bytes:
        """The schema as in the header of a file."""
        return json.dumps(self.to_avro(doc, null_first), separators=(",", ":")).encode()


_PLAIN_NAMES = {"int": "int", "long": "bigint", "string": "string", "boolean": "boolean"}
_PLAIN_NAMES |= {"float": "float", "double": "double", "bytes": "binary"}
_LOGICAL_NAMES = {
    (kind.avro["type"], kind.avro["logicalType"]): kind.name for kind in key_types() if isinstance(kind.avro, dict)
}
_LINK_TYPES = (["null", "long"], ["long", "null"])


def type_of_avro(schema: object) -> str:
    """The column type of an Avro field's schema without its null branch. Raises BTreeError for another kind."""
    base, logical = (schema.get("type"), schema.get("logicalType")) if isinstance(schema, dict) else (schema, None)
    name = _PLAIN_NAMES.get(base) if isinstance(base, str) else None
    if name is None:
        raise BTreeError(f"an index file cannot hold a column of Avro type {_short(schema)}")
    if isinstance(schema, dict) and (base, logical) == ("bytes", "decimal"):
        name = f"decimal({schema.get('precision')},{schema.get('scale', 0)})"
        if not is_key_type(name):
            raise BTreeError(f"an index file cannot hold a column of Avro type {_short(schema)}")
        return name
    return _LOGICAL_NAMES.get((str(base), str(logical)), name)  # Avro ignores an unknown logical type


def _short(schema: object) -> str:
    shown = repr(schema)
    return shown if len(shown) <= 80 else shown[:77] + "..."


@dataclass(frozen=True)
class FileField:
    """A field of the records in a file: its column, and the index of null in its union (None: no union)."""

    column: Column
    null_branch: int | None

    @property
    def plain_type(self) -> str:
        """The Avro type of its values in the file: without logical type, and bytes for text."""
        base = key_type(self.column.type).avro
        plain = str(base["type"] if isinstance(base, dict) else base)
        return "bytes" if plain == "string" else plain


class Plan(NamedTuple):
    """How to read some columns of a record (`gnomon.base.records_python`), and their number."""

    fields: bytes
    columns: int


@dataclass(frozen=True)
class FileSchema:
    """The records of one file: its own field order and unions, and the entry schema that results."""

    entry: EntrySchema
    fields: tuple[FileField | None, ...]  # in file order; None is the link
    link_type: object

    @property
    def nulls_last(self) -> tuple[bool, ...]:
        """For each key column, whether null is its greatest value: Avro orders a union by branch."""
        branch = {field.column.name: field.null_branch for field in self.fields if field}
        return tuple(branch[key.name] == 1 for key in self.entry.keys)

    def plan(self, columns: Sequence[str], raw_decimals: bool = False, stored: bool = False) -> "Plan":
        """How to read these columns of a record. With `raw_decimals` decimals stay bytes. With `stored`, text is
        decoded and numbers of 32 bits are checked."""
        places = {name: place for place, name in enumerate(columns)}
        parts = []
        for field in self.fields:
            if field is None:
                parts.append(field_plan(LINK, 0 if self.link_type == ["null", "long"] else 1, None))
                continue
            place = places.get(field.column.name)
            is_number = place is not None and key_type(field.column.type).decimal is not None and not raw_decimals
            kind = NUMBER if is_number else KINDS[field.plain_type]
            kind = STORED_KINDS.get(field.column.type, kind) if stored and place is not None else kind
            parts.append(field_plan(kind, field.null_branch, place))
        return Plan(b"".join(parts), len(columns))


def file_schema(avro: dict[str, object], keys: Sequence[str], values: Sequence[str]) -> FileSchema:
    """The schema of a file, from its record schema and the names of its key and value fields. BTreeError for a schema
    that an index file cannot have."""
    listed = avro.get("fields")
    if avro.get("type") != "record" or not isinstance(listed, list):
        raise BTreeError("the schema of an index file is not a record")
    fields: list[FileField | None] = []
    link_type: object = None
    for field in listed:
        if not isinstance(field, dict):
            raise BTreeError("a field of the schema is not an object")
        if field.get("name") == LINK_FIELD:
            link_type = _without_attributes(field.get("type"))
            fields.append(None)
        else:
            fields.append(_file_field(str(field.get("name")), field.get("type")))
    if link_type not in _LINK_TYPES or fields.count(None) > 1:
        raise BTreeError(f"the schema has no field {LINK_FIELD} of null or long")
    columns = {field.column.name: field.column for field in fields if field}
    missing = [name for name in [*keys, *values] if name not in columns]
    if missing or len(columns) != len(fields) - 1:
        raise BTreeError(f"the schema has no field {', '.join(missing[:5])}" if missing else "a field occurs twice")
    entry = EntrySchema(tuple(columns[k] for k in keys), tuple(columns[v] for v in values))
    return FileSchema(entry, tuple(fields), link_type)


def _without_attributes(union: object) -> object:
    """The branches of a union by name: {"type": "long"} is "long"."""
    if not isinstance(union, list):
        return union
    return [branch["type"] if isinstance(branch, dict) and list(branch) == ["type"] else branch for branch in union]


def _file_field(name: str, schema: object) -> FileField:
    if not AVRO_NAME.fullmatch(name):
        raise BTreeError(f"{name[:80]!r} is not an Avro name")
    if not isinstance(schema, list):
        return FileField(Column(name, type_of_avro(schema), nullable=False), None)
    if len(schema) != 2 or schema.count("null") != 1:
        raise BTreeError(f"an index file cannot hold the union {_short(schema)}", column=name)
    null = schema.index("null")
    return FileField(Column(name, type_of_avro(schema[1 - null])), null)
