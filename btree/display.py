"""Stored values in their JSON form, which is also accepted in keys."""

from gnomon.btree.key_types import Json, key_type
from gnomon.btree.keys import Key
from gnomon.btree.schema import Column


def to_json_object(row: Key, columns: tuple[Column, ...]) -> dict[str, Json]:
    """Columns by name."""
    return {column.name: key_type(column.type).to_json(value) for column, value in zip(columns, row, strict=True)}
