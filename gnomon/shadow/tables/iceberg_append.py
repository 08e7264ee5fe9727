"""Appends to Iceberg tables: one commit that adds the files and sets the writer's number, a property of the table."""

import secrets
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from typing import Any, NamedTuple, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import types as arrow_types
from pyiceberg import types as iceberg_types
from pyiceberg.conversions import to_bytes
from pyiceberg.io.pyarrow import (
    StatisticsCollector,
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    match_metrics_mode,
    parquet_path_to_id_mapping,
)
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform, Transform, UnknownTransform

from gnomon.shadow.errors import UsageError
from gnomon.shadow.storage import storage_at, words_of
from gnomon.shadow.tables import iceberg_snapshot
from gnomon.shadow.tables.iceberg import SIMPLE, load_table
from gnomon.shadow.tables.iceberg_files import DATA
from gnomon.shadow.tables.iceberg_snapshot import FileEntry, Prepared, as_pairs, conclude, prepare, refused, try_entries
from gnomon.shadow.tables.lake_append import (
    AppendTarget,
    NewFile,
    Split,
    TableCommit,
    attempts,
    changed,
    check_files,
    refuse,
)
from gnomon.sources import open_source
from gnomon.sources.types import FIELD_ID

DATA_FOLDER = "data"
LINEAGE = {"_row_id": 2147483540, "_last_updated_sequence_number": 2147483539}  # columns of rewritten files: field ids
CODEC_PROPERTY, DEFAULT_CODEC = "write.parquet.compression-codec", "zstd"
CODECS = {"zstd": "ZSTD", "snappy": "SNAPPY", "gzip": "GZIP", "brotli": "BROTLI", "lz4": "LZ4", "uncompressed": "NONE"}
NOT_WRITTEN = (iceberg_types.UUIDType, iceberg_types.FixedType)


class _Field(NamedTuple):
    """A field of the partition spec: its source column, the column's type, and the transform."""

    column: str
    kind: iceberg_types.IcebergType
    transform: Transform[Any, Any]


def append_target(place: str, partitions: Mapping[str, str]) -> AppendTarget:
    """As `lake_append.append_target`."""
    name = f"iceberg:{place}"
    if "/" in place:
        what = "no rows can be appended to this table: its index names a metadata file, and no catalog to commit to"
        raise UsageError(f"{what}; build another index, of iceberg:CATALOG.namespace.table", name)
    table = load_table(place, name, None)
    if (why := refused(table)) is not None:
        refuse(why, name)
    fields = _spec_fields(table, name)
    identity = {one.column for one in fields if isinstance(one.transform, IdentityTransform)}
    if lost := [column for column in partitions if column not in identity]:
        what = f"its partitioning changed: {lost[0]} is no identity partition of new files any more"
        refuse(f"{what}, and the index follows with the first build after such a file", name)
    hidden = [one for one in fields if one.column not in partitions]
    twice = [one for one in fields if one.column in partitions and not isinstance(one.transform, IdentityTransform)]
    if twice:
        refuse(f"{twice[0].column} is a partition column and has the transform {twice[0].transform}, too", name)
    return AppendTarget(
        uuid=str(table.metadata.table_uuid),
        folder_of=_folder_of,
        fields=new_fields(table.schema(), name),
        codec=CODECS.get(table.properties.get(CODEC_PROPERTY, DEFAULT_CODEC).lower(), CODECS[DEFAULT_CODEC]),
        split=Split(tuple(one.column for one in hidden), partial(_split, hidden)) if hidden else None,
    )


def _folder_of(values: Mapping[str, str | None]) -> str:
    """All partitions share a folder: only the metadata tells them apart."""
    return DATA_FOLDER


def last_number(place: str, uuid: str, writer: str) -> int:
    """As `lake_append.last_number`."""
    name = f"iceberg:{place}"
    return iceberg_snapshot.last_number(load_table(place, name, None), name, uuid, writer)


def check_commit(place: str, planned: TableCommit, files: Sequence[NewFile]) -> None:
    """As `lake_append.check_commit`: the entries go to a manifest in memory."""
    table = load_table(place, planned.name, None)
    entries = data_files(table, planned.name, files)
    try:
        try_entries(table, entries)
    except Exception as error:
        what = f"the new rows cannot be entries of its metadata ({type(error).__name__}: {words_of(error)})"
        raise UsageError(f"{what}; no row was appended", planned.name) from error


def commit(place: str, planned: TableCommit, files: Sequence[NewFile]) -> None:
    """As `lake_append.commit_to_table`. The commit asserts that the branch still has the head which was read."""
    name = planned.name
    for _ in attempts(name):
        table = load_table(place, name, None)
        if iceberg_snapshot.last_number(table, name, planned.uuid, planned.writer) >= planned.number:
            return
        try:
            added = data_files(table, name, files)
        except UsageError as error:
            raise changed(error.what, name) from None
        with closing(table.catalog):
            if conclude(prepare(table, planned, secrets.token_hex(8), added), planned, place, _commit):
                return


def _commit(prepared: Prepared) -> None:
    prepared.send()


def data_files(table: Table, name: str, files: Sequence[NewFile]) -> list[FileEntry]:
    """The entries of new files. UsageError for a table that is not written, and for values without a partition;
    TableChanged where the files are not those of the append, or do not fit the table."""
    fields, spec = new_fields(table.schema(), name), _spec_fields(table, name)
    check_files(storage_at(table.metadata.location).root, files, fields)
    return [_data_file(table, file, spec) for file in files]


def _data_file(table: Table, file: NewFile, spec: Sequence[_Field]) -> FileEntry:
    """The entry of a new file, with the statistics of its footer. TableChanged where its rows are of several
    partitions."""
    location = f"{table.metadata.location.rstrip('/')}/{file.path}"
    with table.io.new_input(location).open() as stream:
        statistics = statistics_of(table, pq.read_metadata(stream))
    record = {
        "content": DATA,
        "file_path": location,
        "file_format": "PARQUET",
        "file_size_in_bytes": file.size,
        **statistics,
    }
    partition = tuple(_partition(storage_at(table.metadata.location).root, file, spec))
    return FileEntry(table.spec().spec_id, partition, record)


def statistics_of(table: Table, metadata: pq.FileMetaData) -> dict[str, Any]:
    """The members of the entry of a Parquet file that its footer has: rows, counts, bounds. Its columns are those of
    the table, and maybe those of row lineage."""
    schema = table.schema()
    plan, ids = compute_statistics_plan(schema, table.properties), parquet_path_to_id_mapping(schema)
    for column, number in LINEAGE.items():
        plan[number] = StatisticsCollector(number, iceberg_types.LongType(), match_metrics_mode("none"), column)
        ids[column] = number
    found = data_file_statistics_from_parquet_metadata(metadata, plan, ids).to_serialized_dict()
    return {key: as_pairs(value) if isinstance(value, dict) else value for key, value in found.items()}


# -- partitions --------------------------------------------------------------------------------------------------------


def _spec_fields(table: Table, name: str) -> list[_Field]:
    """The fields of the current partition spec. UsageError for one that is not written."""
    columns = {one.field_id: one for one in table.schema().fields}
    found = []
    for field in table.spec().fields:
        column = columns.get(field.source_id)
        if column is None:
            refuse(f"its partition field {field.name} is of a field within a column, or of a dropped column", name)
        if isinstance(field.transform, UnknownTransform) or not field.transform.can_transform(column.field_type):
            refuse(f"its partition field {field.name} has the transform {field.transform}, which is not known", name)
        found.append(_Field(column.name, column.field_type, field.transform))
    return found


def _split(fields: Sequence[_Field], arrays: Sequence[pa.Array]) -> pa.Array:
    """A text for each row, the same for rows with the same partition values."""
    texts = []
    for field, array in zip(fields, arrays, strict=True):
        codes, values = _transformed(field, array)
        texts.append(pa.array([repr(value) for value in values], pa.string()).take(codes))
    return pc.binary_join_element_wise(*texts, "\n")


def _transformed(field: _Field, array: pa.Array) -> tuple[pa.Array, list[Any]]:
    """The partition value of each row: its place in a list of values, which may have a value twice. pyiceberg's
    transform runs once for each distinct value of the array."""
    encoded = _physical(array).dictionary_encode(null_encoding="encode")
    return encoded.indices, [_partition_value(field, value) for value in encoded.dictionary.to_pylist()]


def _partition_value(field: _Field, value: Any) -> Any:
    """The partition value of a value. UsageError where there is none of the transform's type: a truncation below the
    smallest number, an hour that 32 bits do not hold."""
    kind = field.transform.result_type(field.kind)
    try:
        found = field.transform.transform(field.kind)(value)
        if found is not None:
            to_bytes(cast(iceberg_types.PrimitiveType, kind), found)
    except (ArithmeticError, AttributeError, TypeError, ValueError, struct.error) as error:
        raise UsageError(
            f"batch: column {field.column}: the value {value!r} has no partition by {field.transform}, whose values "
            f"are of type {kind} ({error}); no row was appended"
        ) from None
    return found


def _physical(array: pa.Array) -> pa.Array:
    """Days and microseconds as numbers, as pyiceberg's transforms take them."""
    if arrow_types.is_date(array.type):
        return array.cast(pa.int32())
    if arrow_types.is_timestamp(array.type):
        return array.cast(pa.timestamp("us", array.type.tz)).cast(pa.int64())
    return array.cast(pa.int64()) if arrow_types.is_time(array.type) else array


def _partition(root: str, file: NewFile, spec: Sequence[_Field]) -> list[Any]:
    """The partition values of a file, from its rows."""
    if not spec:
        return []
    found: list[set[Any]] = [set() for _ in spec]
    with storage_at(root).open(file.path) as reader:
        source = open_source(reader, "parquet", {})
        columns = list(dict.fromkeys(field.column for field in spec))
        for batch in source.scan(reader, columns):
            for field, values in zip(spec, found, strict=True):
                values.update(_transformed(field, batch.column(columns.index(field.column)))[1])
    for field, values in zip(spec, found, strict=True):
        if len(values) != 1:
            what = (
                f"its rows have {len(values)} values of {field.transform} of {field.column}: the partitioning changed"
            )
            raise changed(what, f"{root}/{file.path}")
    return [next(iter(values)) for values in found]


# -- columns -----------------------------------------------------------------------------------------------------------


def new_fields(schema: Schema, name: str) -> pa.Schema:
    """The columns of new files, with their field ids. UsageError for one that is not written."""
    return pa.schema(_arrow_fields(schema.fields, name, nested=False))


def _arrow_fields(fields: Iterable[iceberg_types.NestedField], name: str, nested: bool) -> Iterator[pa.Field]:
    for one in fields:
        if one.required and nested:
            refuse(f"it has a field {one.name} within a column that must not be null, which is not checked here", name)
        yield _arrow_field(one.name, one.field_type, one.field_id, not one.required, name)


def _arrow_field(column: str, kind: iceberg_types.IcebergType, number: int, nullable: bool, name: str) -> pa.Field:
    return pa.field(column, _arrow(column, kind, name), nullable, {FIELD_ID: str(number).encode()})


def _arrow(column: str, kind: iceberg_types.IcebergType, name: str) -> pa.DataType:
    if isinstance(kind, iceberg_types.StructType):
        return pa.struct(list(_arrow_fields(kind.fields, name, nested=True)))
    if isinstance(kind, iceberg_types.ListType):
        return pa.list_(next(_arrow_fields([kind.element_field], name, nested=True)))
    if isinstance(kind, iceberg_types.MapType):
        key = _arrow_field("key", kind.key_type, kind.key_id, False, name)
        return pa.map_(key, next(_arrow_fields([kind.value_field], name, nested=True)))
    if isinstance(kind, iceberg_types.DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    if isinstance(kind, NOT_WRITTEN) or type(kind) not in SIMPLE:
        refuse(f"{column} is of type {kind}, which is not written", name)
    return SIMPLE[type(kind)]
