"""Iceberg tables: pyiceberg finds the table and its metadata file, and fastavro reads the manifests, since pyiceberg
leaves out where in a Puffin file a deletion vector lies. The rules are those of https://iceberg.apache.org/spec/."""

import io
import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg import types as iceberg_types
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.io import FileIO
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import StaticTable, Table
from pyiceberg.table.name_mapping import MappedField, NameMapping
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.transforms import IdentityTransform
from pyroaring import BitMap64

from gnomon.btree.key_types import is_key_type, key_type
from gnomon.shadow.errors import ShadowError, SourceError, SourceNotFound, StorageError, UsageError
from gnomon.shadow.storage import below, storage_at
from gnomon.shadow.tables.iceberg_io import IMPLEMENTATION
from gnomon.shadow.tables.lake_source import (
    EqualityDeletes,
    LakeContent,
    LakeFile,
    TableVersion,
    ddl_of,
    field_of,
    folders_of,
)
from gnomon.sources.types import FIELD_ID

DATA, POSITION_DELETES, EQUALITY_DELETES = 0, 1, 2  # the content of a file
DELETED = 2  # the status of an entry of a manifest
VECTOR_MAGIC = b"\xd1\xd3\x39\x64"
NO_PARTITION = ("binary",)  # types that a folder's name cannot have

SIMPLE: dict[type[iceberg_types.IcebergType], pa.DataType] = {
    iceberg_types.BooleanType: pa.bool_(),
    iceberg_types.IntegerType: pa.int32(),
    iceberg_types.LongType: pa.int64(),
    iceberg_types.FloatType: pa.float32(),
    iceberg_types.DoubleType: pa.float64(),
    iceberg_types.StringType: pa.string(),
    iceberg_types.UUIDType: pa.string(),  # as Spark has it
    iceberg_types.BinaryType: pa.binary(),
    iceberg_types.FixedType: pa.binary(),
    iceberg_types.DateType: pa.date32(),
    iceberg_types.TimeType: pa.time64("us"),
    iceberg_types.TimestampType: pa.timestamp("us"),
    iceberg_types.TimestamptzType: pa.timestamp("us", "UTC"),
}


class DeleteFile(NamedTuple):
    """A file of deletes: its sequence number, its entry in the manifest, its partition spec, and its partition's values
    by the ids of the spec's fields."""

    sequence: int
    entry: Mapping[str, Any]
    spec: int
    partition: Mapping[int, object]


@dataclass
class Manifests:
    """The live files of a snapshot: data files by location, with their sequence numbers, and files of deletes."""

    data: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    sequences: dict[str, int] = field(default_factory=dict)
    specs: dict[str, int] = field(default_factory=dict)
    deletes: list[DeleteFile] = field(default_factory=list)


def read_content(place: str, version: TableVersion | None) -> LakeContent:
    """The table of a catalog (`CATALOG.namespace.table`), of a metadata file, or of a table's folder, at a snapshot, or
    the newest one."""
    name = f"iceberg:{place}"
    table = load_table(place, name, version)
    wanted = version.version if version is not None else ""
    if version is not None and wanted and version.metadata:
        with suppress(SourceNotFound):  # the table may have removed the file
            table, wanted = load_table(version.metadata, name, None), ""  # with the columns of that time
    root = storage_at(table.metadata.location).root
    is_static = "/" in place
    snapshot = _snapshot(table, wanted, name)
    found = _manifests(table.io, snapshot, name)
    schema = table.schema()
    if wanted and snapshot is not None and snapshot.schema_id is not None:
        schema = table.schemas()[snapshot.schema_id]
    used = set(found.specs.values()) or {table.spec().spec_id}  # of a table without files, those of its first ones
    types = _partition_types(schema, [table.specs()[spec] for spec in used], name)
    names = _names(table.name_mapping())
    fields = [_field(one, names.get(one.field_id, ()), names, name) for one in schema.fields if one.name not in types]
    paths = _Paths(root, table.metadata.location)
    return LakeContent(
        version=_version(table, snapshot),
        name=f"iceberg:{root}" if is_static else name,
        root=root,
        files=_files(found, paths, table, types, schema, name),
        types=types,
        columns=ddl_of(fields, name),
        deleted=partial(_deleted, table.io, found, paths, name),
        equality_deletes=partial(_equality_deletes, table, schema, found, paths, name),
    )


def newest_version(place: str, known: TableVersion) -> TableVersion:
    """The newest version, by a read of the metadata file that the catalog or the folder names."""
    table = load_table(place, f"iceberg:{place}", known)
    return _version(table, table.current_snapshot())


def _version(table: Table, snapshot: Snapshot | None) -> TableVersion:
    version = "" if snapshot is None else str(snapshot.snapshot_id)
    return TableVersion(str(table.metadata.table_uuid), version, storage_at(table.metadata_location).root)


def load_table(place: str, name: str, known: TableVersion | None) -> Table:
    """The table. A folder without `version-hint.text` says nothing of its newest metadata file: then the one of the
    known version counts."""
    try:
        if "/" not in place:
            catalog, _, identifier = place.partition(".")
            if not identifier:
                raise UsageError("", name, expected="iceberg:CATALOG.namespace.table, or the path of a metadata file")
            return load_catalog(catalog).load_table(identifier)
        properties = {"py-io-impl": IMPLEMENTATION}
        try:
            return StaticTable.from_metadata(place, properties)
        except FileNotFoundError:
            if known is None or not known.metadata or place.endswith(".json"):
                raise
            return StaticTable.from_metadata(known.metadata, properties)
    except NoSuchTableError as error:
        raise SourceNotFound(f"the catalog has no such table ({_line(error)})", name) from None
    except FileNotFoundError as error:
        raise SourceNotFound(
            f"no metadata file there ({_line(error)}); name one, as iceberg:/path/to/table/metadata/v3.metadata.json",
            name,
        ) from None
    except ShadowError:
        raise
    except Exception as error:
        raise StorageError(f"its metadata cannot be read ({type(error).__name__}: {_line(error)})", name) from error


def _line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


def _snapshot(table: Table, version: str, name: str) -> Snapshot | None:
    if not version:
        return table.current_snapshot()
    found = table.snapshot_by_id(int(version)) if version.isdecimal() else None
    if found is None:
        known = ", ".join(str(one.snapshot_id) for one in table.snapshots()) or "none"
        raise SourceNotFound("table version", name, expected=f"one of its snapshots ({known})", found=repr(version))
    return found


# -- files -------------------------------------------------------------------------------------------------------------


class _Paths:
    """The paths of files below the table's root, from their locations."""

    def __init__(self, root: str, location: str) -> None:
        self._root = root
        self._prefix = f"{location.rstrip('/')}/"

    def path(self, location: str) -> str:
        if location.startswith(self._prefix):
            return location.removeprefix(self._prefix)
        return below(self._root, storage_at(location).root)


def _read(source: FileIO, location: str, name: str) -> bytes:
    try:
        with source.new_input(location).open() as stream:
            return stream.read()
    except FileNotFoundError:
        what = "gone, though the table's metadata names it; the version may have expired"
        raise SourceNotFound(what, location) from None
    except (OSError, StorageError) as error:
        raise StorageError(f"a file of the metadata of {name} cannot be read ({_line(error)})", location) from None


def _avro(data: bytes, location: str) -> tuple[list[dict[str, Any]], Mapping[str, Any]]:
    """The records of an Avro file, and its schema."""
    try:
        reader = fastavro.reader(io.BytesIO(data))
        return list(reader), reader.writer_schema
    except (ValueError, LookupError, EOFError, TypeError, struct.error, zlib.error) as error:
        raise SourceError(f"not an Avro file of Iceberg ({error!r})", location) from None


def _manifests(source: FileIO, snapshot: Snapshot | None, name: str) -> Manifests:
    found = Manifests()
    if snapshot is None:
        return found
    lists, _ = _avro(_read(source, snapshot.manifest_list, name), snapshot.manifest_list)
    for manifest in lists:
        location = manifest["manifest_path"]
        entries, schema = _avro(_read(source, location, name), location)
        partition = _partition_names(schema)
        for entry in entries:
            if entry["status"] == DELETED:
                continue
            sequence = entry.get("sequence_number")
            sequence = manifest.get("sequence_number") or 0 if sequence is None else sequence
            file, spec = entry["data_file"], manifest.get("partition_spec_id", 0)
            values = {number: file["partition"].get(of) for number, of in partition.items()}
            if file.get("content", DATA) != DATA:
                found.deletes.append(DeleteFile(sequence, file, spec, values))
                continue
            if file["file_format"].upper() != "PARQUET":
                raise UsageError(
                    f"a data file of format {file['file_format']} is not read", file["file_path"], expected="Parquet"
                )
            if file.get("key_metadata") is not None:
                raise UsageError("an encrypted data file is not read", file["file_path"])
            found.data[file["file_path"]] = {"size": file["file_size_in_bytes"], "partition": values}
            found.sequences[file["file_path"]] = sequence
            found.specs[file["file_path"]] = spec
    return found


def _partition_names(schema: Mapping[str, Any]) -> dict[int, str]:
    """The names of the partition fields in a manifest, by field id."""
    of_file = next(one["type"] for one in schema["fields"] if one["name"] == "data_file")
    partition = next(one["type"] for one in of_file["fields"] if one["name"] == "partition")
    return {one["field-id"]: one["name"] for one in partition["fields"]}


def _files(
    found: Manifests, paths: _Paths, table: Table, types: Mapping[str, str], schema: Schema, name: str
) -> dict[str, LakeFile]:
    ids = {schema.find_field(column).field_id: column for column in types}
    numbers = {
        number: [(ids[f.source_id], f.field_id) for f in spec.fields if _is_identity(f) and f.source_id in ids]
        for number, spec in table.specs().items()
    }
    folders: dict[tuple[object, ...], str] = {}
    files = {}
    for location, file in found.data.items():
        values = {column: file["partition"].get(number) for column, number in numbers[found.specs[location]]}
        key = tuple(values.get(column) for column in types)
        if key not in folders:
            folders[key] = folders_of({column: _text(values.get(column), kind) for column, kind in types.items()})
        files[paths.path(location)] = LakeFile(file["size"], folders[key])
    return files


def _text(value: object, kind: str) -> object:
    """A partition value in the text form of its type."""
    one = key_type(kind)
    return None if value is None else one.to_json(one.to_stored(value, ""))


def _is_identity(one: Any) -> bool:
    return isinstance(one.transform, IdentityTransform)


def _partition_types(schema: Schema, specs: Sequence[PartitionSpec], name: str) -> dict[str, str]:
    """The columns whose identity is a partition field of all these specs, with their types. Other transforms make no
    columns: their sources lie in the files."""
    found = {}
    for one in schema.fields:
        if specs and all(any(_is_identity(f) and f.source_id == one.field_id for f in spec.fields) for spec in specs):
            kind = ddl_of([pa.field("a", _type(one.field_type, one.name, {}, name))], name).removeprefix("a ")
            is_uuid = isinstance(one.field_type, iceberg_types.UUIDType)
            if is_key_type(kind) and kind not in NO_PARTITION and not is_uuid:
                found[one.name] = kind
    return found


# -- columns -----------------------------------------------------------------------------------------------------------


def _names(mapping: NameMapping | None) -> dict[int, tuple[str, ...]]:
    """The names of each field in files without field ids."""
    found: dict[int, tuple[str, ...]] = {}

    def add(fields: Iterable[MappedField]) -> None:
        for one in fields:
            if one.field_id is not None:
                found[one.field_id] = tuple(one.names)
            add(one.fields)

    add(mapping.root if mapping is not None else ())
    return found


def _field(
    one: iceberg_types.NestedField, names: tuple[str, ...], all_names: Mapping[int, tuple[str, ...]], name: str
) -> pa.Field:
    if one.initial_default is not None:
        raise UsageError(
            f"column {one.name} has the default {one.initial_default!r} in files that lack it, which is not read", name
        )
    return field_of(one.name, _type(one.field_type, one.name, all_names, name), one.field_id, names)


def _type(kind: iceberg_types.IcebergType, column: str, names: Mapping[int, tuple[str, ...]], name: str) -> pa.DataType:
    if isinstance(kind, iceberg_types.StructType):
        return pa.struct([_field(one, names.get(one.field_id, ()), names, name) for one in kind.fields])
    if isinstance(kind, iceberg_types.ListType):
        return pa.list_(_type(kind.element_type, column, names, name))
    if isinstance(kind, iceberg_types.MapType):
        return pa.map_(_type(kind.key_type, column, names, name), _type(kind.value_type, column, names, name))
    if isinstance(kind, iceberg_types.DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    if type(kind) not in SIMPLE:
        raise UsageError(f"column {column} of type {kind} is not read", name)
    return SIMPLE[type(kind)]


# -- deletes -----------------------------------------------------------------------------------------------------------


def _deleted(source: FileIO, found: Manifests, paths: _Paths, name: str) -> dict[str, BitMap64]:
    """The deleted rows of each data file. A deletion vector holds all deletes by position of its file, so that older
    files of position deletes count no more for it."""
    deleted: dict[str, BitMap64] = {}
    vectors: set[str] = set()
    for delete in found.deletes:
        file = delete.entry
        if file["content"] == POSITION_DELETES and file["file_format"].upper() == "PUFFIN":
            location = file["referenced_data_file"]
            if _applies(found, location, delete.sequence):
                deleted[location] = _vector(_read(source, file["file_path"], name), file)
                vectors.add(location)
    for delete in found.deletes:
        file = delete.entry
        if file["content"] == POSITION_DELETES and file["file_format"].upper() != "PUFFIN":
            for location, numbers in _positions(_read(source, file["file_path"], name), file):
                if location not in vectors and _applies(found, location, delete.sequence):
                    deleted[location] = deleted.get(location, BitMap64()) | BitMap64(numbers)
    return {paths.path(location): numbers for location, numbers in deleted.items() if len(numbers)}


def _equality_deletes(
    table: Table, schema: Schema, found: Manifests, paths: _Paths, name: str
) -> list[EqualityDeletes]:
    """The deletes by values. A file of them applies to data files with a lower sequence number, and, if its partition
    spec has fields, of the same spec and partition."""
    deletes = []
    for delete in found.deletes:
        file, where = delete.entry, delete.entry["file_path"]
        if file["content"] != EQUALITY_DELETES:
            continue
        if file["file_format"].upper() != "PARQUET":
            raise UsageError(
                f"equality deletes of format {file['file_format']} are not read", where, expected="Parquet"
            )
        columns = {number: schema.find_column_name(number) for number in file["equality_ids"]}
        try:
            rows = pq.read_table(pa.BufferReader(_read(table.io, where, name)))
        except (pa.ArrowException, OSError) as error:
            raise SourceError(f"a damaged file of equality deletes ({_line(error)})", where) from None
        places = {int((one.metadata or {}).get(FIELD_ID, -1)): i for i, one in enumerate(rows.schema)}
        if any(column is None or number not in places for number, column in columns.items()):
            raise UsageError("equality deletes by a column that the table no longer has are not read", where)
        everywhere = table.specs()[delete.spec].is_unpartitioned()
        files = frozenset(
            paths.path(location)
            for location, sequence in found.sequences.items()
            if sequence < delete.sequence
            and (
                everywhere
                or (found.specs[location], found.data[location]["partition"]) == (delete.spec, delete.partition)
            )
        )
        values = [rows.column(places[number]) for number in columns]
        deletes.append(EqualityDeletes(where, pa.table(values, names=list(columns.values())), files))
    return deletes


def _applies(found: Manifests, location: str, sequence: int) -> bool:
    """Whether deletes by position with this sequence number are of a live file."""
    return location in found.sequences and found.sequences[location] <= sequence


def _vector(data: bytes, file: Mapping[str, Any]) -> BitMap64:
    """A deletion vector, the blob deletion-vector-v1 of a Puffin file: the length of magic and bitmap, the magic, a
    64-bit Roaring bitmap in the portable form, and the CRC of magic and bitmap; the numbers are big-endian."""
    offset, size, where = file["content_offset"], file["content_size_in_bytes"], file["file_path"]
    blob = data[offset : offset + size]
    content = blob[4:-4]
    if len(blob) != size or size < 12 or int.from_bytes(blob[:4], "big") != len(content):
        raise SourceError("", where, offset, expected=f"a deletion vector of {size} bytes", found=f"{len(blob)} bytes")
    crc, found = int.from_bytes(blob[-4:], "big"), zlib.crc32(content)
    if content[:4] != VECTOR_MAGIC or crc != found:
        raise SourceError("damaged deletion vector", where, offset, expected=f"CRC {crc:08x}", found=f"{found:08x}")
    return BitMap64.deserialize(content[4:])


def _positions(data: bytes, file: Mapping[str, Any]) -> Iterable[tuple[str, np.ndarray[Any, Any]]]:
    """Yield each data file of a file of position deletes, with the numbers of its deleted rows."""
    where, kind = file["file_path"], file["file_format"].upper()
    if kind == "PARQUET":
        try:
            table = pq.read_table(pa.BufferReader(data), columns=["file_path", "pos"])
        except (pa.ArrowException, OSError) as error:
            raise SourceError(f"a damaged file of position deletes ({_line(error)})", where) from None
        named, numbers = table.column("file_path"), table.column("pos").to_numpy()
    elif kind == "AVRO":
        rows, _ = _avro(data, where)
        named = pa.chunked_array([pa.array([row["file_path"] for row in rows], pa.string())])
        numbers = np.array([row["pos"] for row in rows], np.int64)
    else:
        raise UsageError(f"position deletes of format {kind} are not read", where, expected="Parquet, Avro or Puffin")
    codes = named.combine_chunks().dictionary_encode()
    order = np.argsort(codes.indices.to_numpy(), kind="stable")
    cuts = np.flatnonzero(np.diff(codes.indices.to_numpy()[order])) + 1
    for share in np.split(order, cuts) if len(order) else ():
        yield codes.dictionary[int(codes.indices[int(share[0])].as_py())].as_py(), numbers[share].astype(np.uint64)
