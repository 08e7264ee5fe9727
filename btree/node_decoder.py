"""Decoders of one node: they find its records with their keys and links, which is all that a look-up needs.

fastavro makes an object of every field of every record. A look-up compares keys and follows links, and skips the rest.
The schema determines which bytes to skip. So a function is generated and cached for each schema, as `dataclasses`
generates one for each class. It reads a node three times as fast as fastavro.
"""

import struct
from functools import lru_cache
from textwrap import indent
from typing import NamedTuple, Protocol, cast

from gnomon.btree.key_types import Stored, key_type
from gnomon.btree.schema import FileField, FileSchema


class Located(NamedTuple):
    """The records of a node: the begin of each (and the end of the last), its key columns, its link."""

    starts: list[int]
    columns: list[list[Stored]]  # text as its UTF-8 bytes, decimals as integers
    links: list[int | None]


class Locate(Protocol):
    """Locates `count` records from byte `at` on. With `is_all`, no bytes may follow them. ValueError or IndexError
    where the bytes are invalid."""

    def __call__(self, data: bytes, count: int, at: int = 0, is_all: bool = True) -> Located: ...


NULL_BRANCH, SECOND_BRANCH = 0, 2  # branches of a union, as varints
LONG = """\
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
PASS_LONG = """\
while data[at] > 127:
    at += 1
at += 1
"""
TEXT = f"""\
{LONG}if n & 1:
    raise ValueError("a negative length")
begin = at
at += n >> 1
"""
UNION = """\
branch = data[at]
at += 1
if branch == {value}:
{found}elif branch == {null}:
{nothing}else:
    raise ValueError("an unknown branch of a union")
"""
FUNCTION = """\
def locate(data, count, at=0, is_all=True):
    starts = [at]
    keys = [[] for _ in range({keys})]
    {adds} = [key.append for key in keys] + [starts.append]
    links = []
    link = links.append
    for _ in range(count):
{record}        mark(at)
    if is_all and at != len(data):
        raise ValueError("bytes that belong to no record")
    return Located(starts, keys, links)
"""
INDENT = " " * 8
VALUES = {  # the expression of a value, after the code above has run
    "int": "(n >> 1) ^ -(n & 1)",
    "long": "(n >> 1) ^ -(n & 1)",
    "bytes": "data[begin:at]",
    "boolean": "data[at - 1] != 0",
    "float": "float32(data, at - 4)[0]",
    "double": "float64(data, at - 8)[0]",
}
WIDTHS = {"boolean": 1, "float": 4, "double": 8}


def locator(schema: FileSchema, raw_decimals: bool = False) -> Locate:
    """The function that locates the records of nodes of this schema. With `raw_decimals` decimals stay bytes."""
    keys = {column.name: i for i, column in enumerate(schema.entry.keys)}
    record = "".join(
        _link_code(schema) if field is None else _field_code(field, keys.get(field.column.name), raw_decimals)
        for field in schema.fields
    )
    adds = ", ".join([f"add{i}" for i in range(len(keys))] + ["mark"])
    return _function(FUNCTION.format(keys=len(keys), adds=adds, record=indent(record, INDENT)))


@lru_cache(256)
def _function(code: str) -> Locate:
    names: dict[str, object] = {
        "Located": Located,
        "integer": _integer,
        "float32": struct.Struct("<f").unpack_from,
        "float64": struct.Struct("<d").unpack_from,
    }
    exec(code, names)  # contains our own words and numbers only: no name or value of a file
    return cast(Locate, names["locate"])


def _integer(data: bytes) -> int:
    return int.from_bytes(data, "big", signed=True)


def _field_code(field: FileField, key: int | None, raw_decimals: bool) -> str:
    """The code for a field. `key` is its index among the key columns, if it is one."""
    kind = field.plain_type
    if kind in WIDTHS:
        code = f"at += {WIDTHS[kind]}\n"
    elif kind == "bytes":
        code = TEXT
    else:
        code = PASS_LONG if key is None else LONG
    nothing = "pass\n"
    if key is not None:
        add = f"add{key}"
        value = VALUES[kind]
        is_number = key_type(field.column.type).decimal and not raw_decimals
        code += f"{add}(integer({value}))\n" if is_number else f"{add}({value})\n"
        nothing = f"{add}(None)\n"
    return code if field.null_branch is None else _union_code(field.null_branch, code, nothing)


def _link_code(schema: FileSchema) -> str:
    null = 0 if schema.link_type == ["null", "long"] else 1
    return _union_code(null, f"{LONG}link({VALUES['long']})\n", "link(None)\n")


def _union_code(null: int, found: str, nothing: str) -> str:
    branches = (NULL_BRANCH, SECOND_BRANCH) if null == 0 else (SECOND_BRANCH, NULL_BRANCH)
    step = " " * 4
    return UNION.format(value=branches[1], null=branches[0], found=indent(found, step), nothing=indent(nothing, step))
