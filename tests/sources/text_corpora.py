"""The options of the text files in the corpora, and the comparison of their listed values with read ones."""

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
    """The options with which the expected rows were read: the header, if any, is the first row."""
    options = {"whole_file": "true"}
    if entry["format"] == "json":
        return options
    match = NOTE.match(entry["note"])
    quote = '"' if match and match["quotes"] == "yes" else ""
    return {**options, "header": "false", "delimiter": match["delimiter"] if match else ",", "quote": quote}


def agree(listed: Any, got: Any, kind: pa.DataType, canon: ModuleType) -> bool:
    """Whether a listed JSON value equals the value read in its column's type. Text is as in the file, missing values
    are null."""
    if isinstance(listed, dict) and set(listed) == {"$f"}:  # beyond a double of the reference reader
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
    """Whether a CSV row, a list of texts, equals a read row, which has null for empty or missing texts."""
    if isinstance(listed, list) and (not schema or schema.names[0] == "_c0"):
        values = [value or "" for value in got.values()]
        return values == listed + [""] * (len(values) - len(listed))
    if not isinstance(listed, dict) or (schema.names == ["value"] and schema.field(0).metadata):
        (value,) = got.values()
        return agree(listed, value, schema.field(0).type, canon)
    return agree(listed, got, pa.struct(list(schema)), canon)
