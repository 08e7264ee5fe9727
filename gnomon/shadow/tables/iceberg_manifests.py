"""The manifests of an Iceberg snapshot: its live data files and files of deletes, with their sequence numbers. fastavro
reads them, since pyiceberg leaves out where in a Puffin file a deletion vector lies. Files are read through the stores
of Gnomon, with the settings and credentials with which data files are read."""

import io
import json
import math
import struct
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import fastavro
from pyiceberg.io import FileIO, InputFile, InputStream, OutputFile
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.typedef import EMPTY_DICT, Properties

from gnomon.base.errors import Action
from gnomon.btree.key_types import Stored
from gnomon.shadow.errors import SourceError, SourceNotFound, StorageError, UsageError
from gnomon.shadow.storage import OpenFile, below, split, storage_at, words_of

IMPLEMENTATION = f"{__name__}.StorageFileIO"  # the value of pyiceberg's property py-io-impl


class StorageFileIO(FileIO):
    """Reads files of any store that Gnomon knows; writes none."""

    def __init__(self, properties: Properties = EMPTY_DICT) -> None:
        super().__init__(properties)

    def new_input(self, location: str) -> InputFile:
        return _Input(location)

    def new_output(self, location: str) -> OutputFile:
        raise NotImplementedError(location)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        raise NotImplementedError(str(location))


class _Input(InputFile):
    def _opened(self) -> OpenFile:
        above, name = split(storage_at(self.location).root)
        return storage_at(above).open(name)

    def __len__(self) -> int:
        with self._opened() as file:
            return file.size

    def exists(self) -> bool:
        try:
            with self._opened():
                return True
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return False

    def open(self, seekable: bool = True) -> InputStream:
        with self._opened() as file:
            return io.BytesIO(file.read_range(0, file.size))


DATA, POSITION_DELETES, EQUALITY_DELETES = 0, 1, 2  # the content of a file
PARQUET, AVRO, ORC = DATA_FORMATS = ("PARQUET", "AVRO", "ORC")
DELETED = 2  # the status of an entry of a manifest
LOGICAL_TYPE = "logicalType"
MAGIC, SYNC_BYTES = b"Obj\x01", 16
HEADER = fastavro.parse_schema(
    {
        "type": "record",
        "name": "header",
        "fields": [
            {"name": "magic", "type": {"type": "fixed", "name": "magic", "size": len(MAGIC)}},
            {"name": "meta", "type": {"type": "map", "values": "bytes"}},
            {"name": "sync", "type": {"type": "fixed", "name": "sync", "size": SYNC_BYTES}},
        ],
    }
)


class DeleteFile(NamedTuple):
    """A file of deletes: its sequence number, its entry in the manifest, its partition spec, and its partition's values
    in stored form, by the ids of the spec's fields."""

    sequence: int
    entry: Mapping[str, Any]
    spec: int
    partition: Mapping[int, Stored]


class DataFile(NamedTuple):
    """A data file: its bytes, its partition's values as in DeleteFile, and its format."""

    size: int
    partition: Mapping[int, Stored]
    format: str


@dataclass
class Manifests:
    """The live files of a snapshot: data files by location, with their sequence numbers, and files of deletes."""

    data: dict[str, DataFile] = field(default_factory=dict)
    sequences: dict[str, int] = field(default_factory=dict)
    specs: dict[str, int] = field(default_factory=dict)
    deletes: list[DeleteFile] = field(default_factory=list)


class Paths:
    """The paths of files below the table's root, from their locations."""

    def __init__(self, root: str, location: str) -> None:
        self.root = root
        self._prefix = f"{location.rstrip('/')}/"

    def path(self, location: str) -> str:
        if location.startswith(self._prefix):
            return location.removeprefix(self._prefix)
        return below(self.root, storage_at(location).root)


def read_file(source: FileIO, location: str, name: str) -> bytes:
    try:
        with source.new_input(location).open() as stream:
            return stream.read()
    except FileNotFoundError:
        what = "gone, though the table's metadata names it; the version may have expired"
        raise SourceNotFound(what, location) from None
    except (OSError, StorageError) as error:
        what = f"a file of the metadata of {name} cannot be read ({words_of(error)})"
        raise StorageError(what, location, action=Action.RUN_AGAIN_OR_REPAIR) from None


def avro_records(data: bytes, location: str) -> tuple[list[dict[str, Any]], Mapping[str, Any]]:
    """The records of an Avro file, and its schema. Values are as the file has them, the unscaled bytes of a decimal and
    the number of a date: fastavro would give timestamps without a zone one, and cannot give all dates."""
    try:
        stream = io.BytesIO(data)
        reader = fastavro.reader(stream)
        begin = stream.tell()
        meta = {
            "avro.schema": json.dumps(_without_logical_types(reader.writer_schema)).encode(),
            "avro.codec": reader.codec.encode(),
        }
        plain = io.BytesIO()
        header = {"magic": MAGIC, "meta": meta, "sync": data[begin - SYNC_BYTES : begin]}
        fastavro.schemaless_writer(plain, HEADER, header)
        plain.write(data[begin:])
        plain.seek(0)
        return list(fastavro.reader(plain)), reader.writer_schema
    except (ValueError, LookupError, EOFError, TypeError, struct.error, zlib.error) as error:
        raise SourceError(f"not an Avro file of Iceberg ({error!r})", location) from None


def _without_logical_types(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_without_logical_types(one) for one in schema]
    if isinstance(schema, dict):
        return {name: _without_logical_types(one) for name, one in schema.items() if name != LOGICAL_TYPE}
    return schema


def read_manifests(source: FileIO, snapshot: Snapshot | None, name: str) -> Manifests:
    found = Manifests()
    if snapshot is None:
        return found
    lists, _ = avro_records(read_file(source, snapshot.manifest_list, name), snapshot.manifest_list)
    for manifest in lists:
        location = manifest["manifest_path"]
        entries, schema = avro_records(read_file(source, location, name), location)
        partition = _partition_fields(schema)
        for entry in entries:
            if entry["status"] == DELETED:
                continue
            sequence = entry.get("sequence_number")
            sequence = manifest.get("sequence_number") or 0 if sequence is None else sequence
            file, spec = entry["data_file"], manifest.get("partition_spec_id", 0)
            of_file = file["partition"]
            values = {one.number: _stored(of_file.get(one.name), one.is_decimal) for one in partition}
            if file.get("content", DATA) != DATA:
                found.deletes.append(DeleteFile(sequence, file, spec, values))
                continue
            if file["file_format"].upper() not in DATA_FORMATS:
                raise UsageError(
                    f"a data file of format {file['file_format']} is not read",
                    file["file_path"],
                    expected="Parquet, Avro or ORC",
                )
            if file.get("key_metadata") is not None:
                raise UsageError("an encrypted data file is not read", file["file_path"])
            if file["file_path"] in found.data:
                raise UsageError(
                    "a data file that the snapshot lists twice is not read: readers of the table give its rows twice; "
                    "run rewrite_data_files, or roll the table back to before its second commit",
                    file["file_path"],
                )
            found.data[file["file_path"]] = DataFile(file["file_size_in_bytes"], values, file["file_format"].upper())
            found.sequences[file["file_path"]] = sequence
            found.specs[file["file_path"]] = spec
    return found


class _PartitionField(NamedTuple):
    number: int
    name: str
    is_decimal: bool


def _partition_fields(schema: Mapping[str, Any]) -> list[_PartitionField]:
    """The partition fields in a manifest."""
    of_file = next(one["type"] for one in schema["fields"] if one["name"] == "data_file")
    partition = next(one["type"] for one in of_file["fields"] if one["name"] == "partition")
    return [_PartitionField(one["field-id"], one["name"], _is_decimal(one["type"])) for one in partition["fields"]]


def _is_decimal(kind: Any) -> bool:
    choices = kind if isinstance(kind, list) else [kind]
    return any(isinstance(one, dict) and one.get(LOGICAL_TYPE) == "decimal" for one in choices)


def _stored(value: Any, is_decimal: bool) -> Stored:
    """A partition value in stored form, which Avro's plain values are, except decimals."""
    found: Stored = int.from_bytes(value, "big", signed=True) if is_decimal and value is not None else value
    return found if found == found else math.nan


def comparable(values: Iterable[Stored]) -> tuple[tuple[Stored, bool], ...]:
    """Partition values as Iceberg compares them: NaN equals NaN, and -0.0 differs from 0.0."""
    return tuple((one, isinstance(one, float) and math.copysign(1.0, one) < 0) for one in values)
