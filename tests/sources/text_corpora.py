"""How the text files among the corpora are read, and when a value listed for one is the value that was read."""

import json
import re
from collections.abc import Mapping
from decimal import Decimal
from types import ModuleType
from typing import Any

import pyarrow as pa
from pyarrow import types

NOTE = re.compile(r"delimiter '(?P<delimiter>.+?)', quotes (?P<quotes>yes|no), .*, (?P<encoding>utf8|latin-1)")


def options_of(entry: dict[str, str]) -> Mapping[str, str]:
    """How the expected rows were read: the header, if any, as the first of them."""
    options = {"whole_file": "true"}
    if entry["format"] == "json":
        return options
    match = NOTE.match(entry["note"])
    quote = '"' if match and match["quotes"] == "yes" else ""
    return {**options, "header": "false", "delimiter": match["delimiter"] if match else ",", "quote": quote}


def agree(listed: Any, got: Any, kind: pa.DataType, canon: ModuleType) -> bool:
    """Whether a JSON value is the one that was read in its column's type: as it stands in the file where that is text,
    nulls for what is not there."""
    if isinstance(listed, dict) and set(listed) == {"$f"}:  # beyond a double, for the reader that was asked
        return isinstance(got, str | Decimal) or bool(canon.same(listed, canon.canon(got)))
    if listed is None or got is None:
        return listed is None and got is None
    if types.is_string(kind):
        return got == listed if isinstance(listed, str) else bool(canon.same(listed, json.loads(got)))
    if types.is_struct(kind):
        fields = {field.name: field.type for field in kind}
        return set(listed) <= set(fields) and all(
            agree(listed.get(name), got[name], field, canon) for name, field in fields.items()
        )
    if types.is_list(kind):
        return len(listed) == len(got) and all(
            agree(one, two, kind.value_type, canon) for one, two in zip(listed, got, strict=True)
        )
    if types.is_decimal(kind):
        return Decimal(repr(listed)) == got or listed == float(got)
    return listed == got and isinstance(listed, bool) == isinstance(got, bool)


def row_agrees(listed: Any, got: dict[str, Any], schema: pa.Schema, canon: ModuleType) -> bool:
    """A CSV row is a list of texts: what is empty, or not there, is null to us."""
    if isinstance(listed, list) and (not schema or schema.names[0] == "_c0"):
        values = [value or "" for value in got.values()]
        return values == listed + [""] * (len(values) - len(listed))
    if not isinstance(listed, dict) or (schema.names == ["value"] and schema.field(0).metadata):
        (value,) = got.values()
        return agree(listed, value, schema.field(0).type, canon)
    return agree(listed, got, pa.struct(list(schema)), canon)
