"""Scan tasks in the JSON of Iceberg's REST protocol, and the types of its columns beside those of an index."""

import uuid
from collections.abc import Collection, Mapping, Sequence
from decimal import Context, Decimal
from typing import Any

from pyiceberg import types as iceberg_types
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import IdentityTransform

from gnomon.base.json_forms import date_text, time_text, timestamp_text
from gnomon.service.catalog.filters import Filter, Stored, single_fields, to_json
from gnomon.shadow.metadata import KeyColumn
from gnomon.shadow.tables.iceberg_files import (
    BOUNDS,
    COUNTS,
    DATA,
    EQUALITY_DELETES,
    POSITION_DELETES,
    ContentFile,
    Deletes,
)

EXACT = Context(prec=80)  # more digits than any decimal
CONTENT = {DATA: "data", POSITION_DELETES: "position-deletes", EQUALITY_DELETES: "equality-deletes"}
# The type of a key column of an index on a column of a table, and the type that it is mapped from, if any.
KEY_TYPES: Mapping[type[iceberg_types.IcebergType], tuple[str, str | None]] = {
    iceberg_types.BooleanType: ("boolean", None),
    iceberg_types.IntegerType: ("int", None),
    iceberg_types.LongType: ("bigint", None),
    iceberg_types.FloatType: ("float", None),
    iceberg_types.DoubleType: ("double", None),
    iceberg_types.DateType: ("date", None),
    iceberg_types.TimeType: ("bigint", "time(us)"),
    iceberg_types.TimestampType: ("timestamp_ntz", None),
    iceberg_types.TimestamptzType: ("timestamp", None),
    iceberg_types.StringType: ("string", None),
    iceberg_types.UUIDType: ("string", None),
    iceberg_types.BinaryType: ("binary", None),
    iceberg_types.FixedType: ("binary", None),
}


def key_column_of(
    column: KeyColumn, ids: Mapping[tuple[str, ...], int], table: TableMetadata, schema: Schema
) -> int | None:
    """The field id of an index's key column in the schema of a scan; `ids` has those that the index recorded. None
    where another column has its name in a schema of the table, or where it has another type: a file may have either."""
    found: dict[tuple[int, str], iceberg_types.IcebergType] = {}
    for one in (*table.schemas, schema):
        field = _field_at(one.fields, column.place)
        if field is not None:
            found[field.field_id, str(field.field_type)] = field.field_type
    if len(found) != 1:
        return None
    [((number, _), kind)] = found.items()
    if column.partition:  # no id of it is on record
        specs = (field for spec in table.partition_specs for field in spec.fields)
        is_same = any(one.source_id == number and isinstance(one.transform, IdentityTransform) for one in specs)
    else:
        is_same = ids.get(column.place) == number
    if isinstance(kind, iceberg_types.DecimalType):
        expected: tuple[str, str | None] | None = (f"decimal({kind.precision},{kind.scale})", None)
    else:
        expected = KEY_TYPES.get(type(kind))
    own = (column.type, None if column.partition else column.source_type)
    is_there = any(field.field_id == number for field in single_fields(schema.fields))
    return number if is_same and is_there and expected is not None and own == expected else None


def _field_at(fields: Sequence[iceberg_types.NestedField], path: Sequence[str]) -> iceberg_types.NestedField | None:
    """The field of a path that begins at one of these fields, through structs; None where there is none."""
    found = next((field for field in fields if field.name == path[0]), None)
    if found is None or len(path) == 1:
        return found
    kind = found.field_type
    return _field_at(kind.fields, path[1:]) if isinstance(kind, iceberg_types.StructType) else None


def key_value(kind: iceberg_types.IcebergType, value: Stored) -> Stored:
    """A value of a filter as the key of an index."""
    if isinstance(kind, iceberg_types.UUIDType) and isinstance(value, bytes):
        return str(uuid.UUID(bytes=value))
    return value


class PartitionJson:
    """The values of partitions in JSON, each by the type of its field. Without `nulls`, a partition with a null is the
    empty list, for clients that read no null there: pyiceberg 0.12."""

    def __init__(self, table: TableMetadata, nulls: bool = True) -> None:
        self._nulls = nulls
        fields = {field.field_id: field.field_type for schema in table.schemas for field in schema.fields}
        for schema in table.schemas:  # fields within structs, too
            fields.update({number: schema.find_type(number) for number in schema.field_ids if number not in fields})
        current = next(one for one in table.schemas if one.schema_id == table.current_schema_id)
        fields.update({number: current.find_type(number) for number in current.field_ids})
        self._types = {
            spec.spec_id: [
                one.transform.result_type(fields[one.source_id]) if one.source_id in fields else None
                for one in spec.fields
            ]
            for spec in table.partition_specs
        }

    def of(self, file: ContentFile) -> list[Any]:
        """The partition of a file."""
        if not self._nulls and None in file.partition:
            return []
        return [value_json(kind, value) for kind, value in zip(self._types[file.spec], file.partition, strict=True)]


def value_json(kind: iceberg_types.IcebergType | None, value: Any) -> Any:
    """A value in Iceberg's JSON form for single values. A field whose column is gone has the form of its value."""
    if value is None:
        return None
    if isinstance(kind, iceberg_types.UUIDType) and isinstance(value, bytes):
        return str(uuid.UUID(bytes=value))
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(kind, iceberg_types.DecimalType):
        return format(Decimal(value).scaleb(-kind.scale, EXACT), "f")
    if isinstance(kind, iceberg_types.DateType):
        return date_text(value)
    if isinstance(kind, iceberg_types.TimeType):
        return time_text(value, "us")
    if isinstance(kind, iceberg_types.TimestampType):
        return timestamp_text(value, "us", utc=False)
    if isinstance(kind, iceberg_types.TimestamptzType):
        return f"{timestamp_text(value, 'us', utc=False)}+00:00"
    return value


def tasks_json(
    files: Sequence[ContentFile],
    residuals: Sequence[Filter],
    deletes: Deletes,
    partitions: PartitionJson,
    stats: Collection[int] | None,
    with_residuals: bool,
) -> tuple[list[Any], list[Any]]:
    """The files of deletes that apply to some data files, and the task of each data file, which names its deletes by
    their places. `stats` has the columns whose statistics are told; None for no statistics."""
    places: dict[tuple[str, int | None], int] = {}
    shown: list[Any] = []
    tasks = []
    for file, residual in zip(files, residuals, strict=True):
        task: dict[str, Any] = {"data-file": _file_json(file, partitions, stats)}
        references = []
        for one in deletes.of(file):
            key = one.path, one.content_offset
            if key not in places:
                places[key] = len(shown)
                shown.append(_file_json(one, partitions, None))
            references.append(places[key])
        if references:
            task["delete-file-references"] = references
        if with_residuals:
            task["residual-filter"] = to_json(residual)
        tasks.append(task)
    return shown, tasks


def _file_json(file: ContentFile, partitions: PartitionJson, stats: Collection[int] | None) -> dict[str, Any]:
    found = {
        "content": CONTENT[file.content],
        "spec-id": file.spec,
        "partition": partitions.of(file),
        "file-path": file.path,
        "file-format": file.format,
        "file-size-in-bytes": file.size,
        "record-count": file.records,
        "key-metadata": file.key_metadata.hex() if file.key_metadata is not None else None,
        "split-offsets": file.split_offsets,
        "equality-ids": file.equality_ids,
        "sort-order-id": file.sort_order_id,
        "first-row-id": file.first_row_id,
        "referenced-data-file": file.referenced_data_file if file.content != DATA else None,
        "content-offset": file.content_offset,
        "content-size-in-bytes": file.content_size,
    }
    found = {name: value for name, value in found.items() if value is not None}
    if stats is not None:
        maps = file.maps
        for name in (*COUNTS, *BOUNDS, "column_sizes"):
            chosen = {number: value for number, value in maps.get(name, {}).items() if number in stats}
            if chosen:
                values = [value.hex() if isinstance(value, bytes) else value for value in chosen.values()]
                found[name.replace("_", "-")] = {"keys": [*chosen], "values": values}
    return found
