"""Keys as requests give them and as answers show them."""

from collections.abc import Mapping
from typing import Any

from service.errors import BadRequest
from shadow.key_forms import shown_key
from shadow.lookup import parse_key
from shadow.spec import IndexSpec


def check_length(key: object, most_bytes: int) -> None:
    """BadRequest for a key with a longer text than is taken."""
    values = key.values() if isinstance(key, Mapping) else key if isinstance(key, list) else (key,)
    for value in values:
        if isinstance(value, str) and len(value) * 4 > most_bytes:  # the most bytes it may have: seldom counted
            size = len(value.encode("utf-8", "surrogatepass"))
            if size > most_bytes:
                raise BadRequest(f"a key value has {size} bytes; at most {most_bytes} (setting max_key_bytes)")


def key_shown(key: object, spec: IndexSpec) -> dict[str, Any]:
    """A key by column name, each value as it stands in the JSON of rows, in whatever form it was given.

    UsageError and KeyTypeError say what is wrong with it."""
    wanted = parse_key(key, spec)
    stored, partitions = iter(wanted.stored), dict(wanted.where)
    return {
        column.name: shown_key(partitions[column.name] if column.partition else next(stored), column)
        for column in spec.keys
    }


def key_given(key: object, spec: IndexSpec) -> object:
    """A key that cannot be shown in that form: as it was given, by column name where that is clear."""
    values = key if isinstance(key, list) else [key]
    if isinstance(key, Mapping) or len(values) != len(spec.keys):
        return key
    return {column.name: value for column, value in zip(spec.keys, values, strict=True)}
