"""Which field of a file is a field of a table: by the table's record of it, or by its name.

A table that renames its columns records each one's field id in files, its names there, or both, as JSON in the comment
of the DDL: `price decimal(9,2) COMMENT '{"id": 7}'`. With an id, a file whose fields have ids is matched by them, as
Iceberg and Delta ask; another file by the names. Without a record, names match without regard to case.

The record also has the default of a column, `{"id": 7, "default": "12.50"}`: the value of all rows of files that lack
the column, in Iceberg's form of single values in JSON."""

import datetime as dt
import json
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

import pyarrow as pa
from pyarrow import types

from gnomon.sources.types.ddl import COMMENT

FIELD_ID = b"PARQUET:field_id"  # key in a field's metadata, from Arrow
ORC_FIELD_ID = b"iceberg.id"  # key in the metadata of a field of an ORC file, from Iceberg


class Record(NamedTuple):
    """A table's record of a field: its field id in files, and its names in files without field ids."""

    id: int | None
    names: tuple[str, ...]


def matching(found: Sequence[pa.Field], wanted: Iterable[pa.Field]) -> list[tuple[pa.Field, list[int]]]:
    """Each wanted field, with the places of the found fields that match it: mostly one; none where the file lacks it;
    several where the match is ambiguous."""
    by_letters: dict[str, list[int]] = {}
    by_name: dict[str, list[int]] = {}
    by_id: dict[int, list[int]] = {}
    for place, field in enumerate(found):
        by_letters.setdefault(field.name.lower(), []).append(place)
        by_name.setdefault(field.name, []).append(place)
        number = field_id(field)
        if number is not None:
            by_id.setdefault(number, []).append(place)
    pairs = []
    for field in wanted:
        record = record_of(field)
        if record is None:
            places = by_letters.get(field.name.lower(), [])
        elif record.id is not None and by_id:
            places = by_id.get(record.id, [])
        else:
            places = [place for name in record.names for place in by_name.get(name, ())]
        pairs.append((field, places))
    return pairs


def field_id(field: pa.Field) -> int | None:
    """The field id of a field of a file; None where it has none."""
    metadata = field.metadata or {}
    number = metadata.get(FIELD_ID, metadata.get(ORC_FIELD_ID))
    return None if number is None else int(number)


def record_of(field: pa.Field) -> Record | None:
    """The record of a field; None where the table has none."""
    comment = (field.metadata or {}).get(COMMENT, b"")
    if not comment.startswith(b"{"):
        return None
    content = json.loads(comment)
    return Record(content.get("id"), tuple(content.get("names", ())))


def default_of(field: pa.Field) -> pa.Scalar | None:
    """The value of a field in files that lack it; None for null."""
    comment = (field.metadata or {}).get(COMMENT, b"")
    value = json.loads(comment).get("default") if comment.startswith(b"{") else None
    return None if value is None else pa.scalar(_from_json(value, field.type), field.type)


def default_array(field: pa.Field, rows: int) -> pa.Array:
    """The values of a field for the rows of a file that lacks it."""
    default = default_of(field)
    return pa.nulls(rows, field.type) if default is None else pa.repeat(default, rows)


def _from_json(value: Any, kind: pa.DataType) -> Any:
    """A single value in the form that Arrow takes."""
    if types.is_decimal(kind):
        return Decimal(value)
    if types.is_date(kind):
        return dt.date.fromisoformat(value)
    if types.is_timestamp(kind):
        return dt.datetime.fromisoformat(value)
    if types.is_binary(kind):
        return bytes.fromhex(value)
    if types.is_integer(kind) and isinstance(value, str):  # a time, which is declared as its microseconds
        time = dt.time.fromisoformat(value)
        return ((time.hour * 60 + time.minute) * 60 + time.second) * 1_000_000 + time.microsecond
    return value


def has_field_ids(columns: Iterable[pa.Field]) -> bool:
    """Whether a table records field ids of its columns."""
    records = (record_of(column) for column in columns)
    return any(record is not None and record.id is not None for record in records)


def has_records(kind: pa.DataType) -> bool:
    """Whether a type has fields with a table's record."""
    if types.is_struct(kind):
        return any(record_of(field) is not None or has_records(field.type) for field in kind)
    return any(has_records(kind.field(i).type) for i in range(kind.num_fields))


def lacks_names(found: Sequence[pa.Field], wanted: Iterable[pa.Field]) -> bool:
    """Whether a file has no field ids, and the table records ids alone: its columns cannot be matched."""
    records = [record for record in map(record_of, wanted) if record is not None]
    has_ids = any(field_id(field) is not None for field in found)
    return bool(records) and not has_ids and not any(record.names for record in records)
