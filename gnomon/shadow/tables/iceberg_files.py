"""The live files of an Iceberg snapshot, data files and files of deletes, from its manifests.

Manifests never change, so each is read once and kept, bounded by bytes; a new snapshot reads its list of manifests and
the manifests that are new in it. A file takes about 600 bytes of memory, and 40 more for each column that has
statistics: these are kept packed and are unpacked where they are needed.

fastavro reads the manifests, since pyiceberg leaves out where in a Puffin file a deletion vector lies. Files are read
through the stores of Gnomon, with the settings and credentials with which data files are read."""

import io
import json
import math
import struct
import zlib
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple, TypeVar

import fastavro
import msgspec
from pyiceberg.io import FileIO, InputFile, InputStream, OutputFile, OutputStream
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.transforms import VoidTransform
from pyiceberg.typedef import EMPTY_DICT, Properties

from gnomon.base.errors import Action
from gnomon.btree.key_types import Stored
from gnomon.shadow.errors import SourceError, SourceNotFound, StorageError
from gnomon.shadow.storage import ByteCache, OpenFile, Storage, below, host, in_order, storage_at, words_of
from gnomon.sources.nested import Path, origin_at
from gnomon.sources.types import parse_ddl

IMPLEMENTATION = f"{__name__}.StorageFileIO"  # the value of pyiceberg's property py-io-impl
OF = "gnomon.table"


class StorageFileIO(FileIO):
    """Files of any store that Gnomon knows, which are written create-only. It connects to each store once. The property
    OF is the name of the table whose files they are: the credentials that its catalog vends open them."""

    def __init__(self, properties: Properties = EMPTY_DICT) -> None:
        super().__init__(properties)
        self._of = str(properties.get(OF, ""))
        self._stores: dict[str, Storage] = {}

    def new_input(self, location: str) -> InputFile:
        return self._file(location)

    def new_output(self, location: str) -> OutputFile:
        return self._file(location)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        file = self._file(location if isinstance(location, str) else location.location)
        file.storage.delete(file.path)

    def _file(self, location: str) -> "_File":
        root = storage_at(location).root
        place = host(root)
        if place not in self._stores:
            self._stores[place] = storage_at(place, self._of)
        return _File(location, self._stores[place], below(place, root))


class _File(InputFile, OutputFile):
    def __init__(self, location: str, storage: Storage, path: str) -> None:
        super().__init__(location)
        self.storage, self.path = storage, path

    def _opened(self) -> OpenFile:
        return self.storage.open(self.path)

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

    def to_input_file(self) -> InputFile:
        return self

    def create(self, overwrite: bool = False) -> OutputStream:
        return _Written(lambda data: self.storage.put_new(self.path, [data]))


class _Written(io.BytesIO):
    """A new file, which is put as a whole when it is closed, unless an error ends the `with` block."""

    def __init__(self, put: Callable[[bytes], None]) -> None:
        super().__init__()
        self._put: Callable[[bytes], None] | None = put

    def __exit__(self, kind: Any, error: Any, at: Any) -> None:
        if kind is not None:
            self._put = None
        self.close()

    def close(self) -> None:
        put, self._put = self._put, None
        if put is not None:
            put(self.getvalue())
        super().close()


DATA, POSITION_DELETES, EQUALITY_DELETES = 0, 1, 2  # the content of a file
PARQUET, AVRO, ORC = DATA_FORMATS = ("parquet", "avro", "orc")
PUFFIN = "puffin"  # the format of deletion vectors
FILE_PATH_ID = 2147483546  # of the column file_path in a file of position deletes
EXISTING, ADDED, DELETED = 0, 1, 2  # the status of an entry of a manifest
OVERHEAD_BYTES = 600  # of a file in memory, besides its texts and statistics
REMEMBERED = 8  # things worked out from a manifest, for indexes and their snapshots
COUNTS = ("value_counts", "null_value_counts", "nan_value_counts")
BOUNDS = ("lower_bounds", "upper_bounds")
MAPS = (*COUNTS, *BOUNDS, "column_sizes")
T = TypeVar("T")
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


class PartitionField(NamedTuple):
    """A partition field in a manifest: its field id and its name."""

    number: int
    name: str
    is_decimal: bool

    def stored(self, partition: Mapping[str, Any]) -> Stored:
        """Its value of a file in stored form, which Avro's plain values are, except decimals."""
        value = partition.get(self.name)
        found: Stored = int.from_bytes(value, "big", signed=True) if self.is_decimal and value is not None else value
        return found if found == found else math.nan


def partition_fields(schema: Mapping[str, Any]) -> list[PartitionField]:
    """The partition fields in a manifest."""
    of_file = next(one["type"] for one in schema["fields"] if one["name"] == "data_file")
    partition = next(one["type"] for one in of_file["fields"] if one["name"] == "partition")
    return [PartitionField(one["field-id"], one["name"], _is_decimal(one["type"])) for one in partition["fields"]]


def _is_decimal(kind: Any) -> bool:
    choices = kind if isinstance(kind, list) else [kind]
    return any(isinstance(one, dict) and one.get(LOGICAL_TYPE) == "decimal" for one in choices)


def comparable(values: Iterable[Stored]) -> tuple[tuple[Stored, bool], ...]:
    """Partition values as Iceberg compares them: NaN equals NaN, and -0.0 differs from 0.0."""
    return tuple((one, isinstance(one, float) and math.copysign(1.0, one) < 0) for one in values)


# -- the live files of a snapshot --------------------------------------------------------------------------------------


class ContentFile(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A data file or a file of deletes, as its manifest has it. `partition` has the values of the fields of its spec in
    stored form. `snapshot` is the one that added it, and `is_added` says that its manifest was written for that."""

    content: int
    path: str
    format: str
    size: int
    records: int
    spec: int
    partition: tuple[Stored, ...]
    sequence: int
    snapshot: int | None
    is_added: bool
    packed: bytes  # its statistics, as `MAPS` names them
    key_metadata: bytes | None = None
    split_offsets: tuple[int, ...] | None = None
    equality_ids: tuple[int, ...] | None = None
    sort_order_id: int | None = None
    first_row_id: int | None = None
    referenced_data_file: str | None = None
    content_offset: int | None = None
    content_size: int | None = None

    @property
    def maps(self) -> dict[str, dict[int, Any]]:
        """The statistics, by their names in a manifest."""
        return _UNPACK(self.packed)

    @property
    def cache_bytes(self) -> int:
        return OVERHEAD_BYTES + len(self.path) + len(self.packed) + 8 * len(self.split_offsets or ())


_UNPACK = msgspec.msgpack.Decoder(dict[str, dict[int, Any]]).decode


class Manifest:
    """The live data files of one manifest, and its files of deletes, which lie in manifests of their own as a rule."""

    def __init__(self, files: Iterable[ContentFile]) -> None:
        of_all = tuple(files)
        self.files = tuple(file for file in of_all if file.content == DATA)
        self.deletes = tuple(file for file in of_all if file.content != DATA)
        self.cache_bytes = sum(file.cache_bytes for file in of_all)
        self._remembered: dict[object, Any] = {}

    def by_path_below(self, root: str, paths: Paths) -> Mapping[str, Sequence[int]]:
        """The places of each file, by its path as an index of a source with this root has it. A table may list a file
        twice."""

        def make() -> Mapping[str, Sequence[int]]:
            found: dict[str, list[int]] = {}
            for place, file in enumerate(self.files):
                found.setdefault(paths.path(file.path), []).append(place)
            return found

        return self.remembered(root, make)

    def remembered(self, key: object, make: Callable[[], T]) -> T:
        """What `make` returns, kept for the last few keys."""
        found: T | None = self._remembered.get(key)
        if found is None:
            found = make()
            self._remembered = {**dict([*self._remembered.items()][1 - REMEMBERED :]), key: found}
        return found


class Deletes:
    """The files of deletes of a snapshot, in the order of its manifests, and the data files that each applies to."""

    def __init__(self, files: Sequence[ContentFile], specs: Mapping[int, PartitionSpec]) -> None:
        self.files = files
        self._vectors: dict[str, ContentFile] = {}
        self._positions: dict[object, list[ContentFile]] = {}  # by data file, or by partition
        self._equality: dict[object, list[ContentFile]] = {}  # by partition; None: everywhere
        for file in sorted(files, key=lambda one: one.sequence):
            if file.content == EQUALITY_DELETES:
                everywhere = all(isinstance(one.transform, VoidTransform) for one in specs[file.spec].fields)
                self._equality.setdefault(None if everywhere else _place(file), []).append(file)
            elif file.format == PUFFIN and file.referenced_data_file is not None:
                self._vectors[file.referenced_data_file] = file
            else:
                self._positions.setdefault(only_file(file) or _place(file), []).append(file)
        self._sequences = {
            id(files): [file.sequence for file in files]
            for files in (*self._positions.values(), *self._equality.values())
        }

    def of(self, data: ContentFile) -> list[ContentFile]:
        """The files of deletes that apply to a data file. A deletion vector has all position deletes of its file."""
        if not self._equality and not self._positions and not self._vectors:
            return []
        place = _place(data)
        found = self._since(self._equality.get(None), data.sequence + 1)
        found += self._since(self._equality.get(place), data.sequence + 1)
        vector = self._vectors.get(data.path)
        if vector is not None and vector.sequence >= data.sequence:
            return [*found, vector]
        found += self._since(self._positions.get(data.path), data.sequence)
        return found + [one for one in self._since(self._positions.get(place), data.sequence) if _may_name(one, data)]

    def _since(self, files: list[ContentFile] | None, sequence: int) -> list[ContentFile]:
        return [] if files is None else files[bisect_left(self._sequences[id(files)], sequence) :]


def _place(file: ContentFile) -> object:
    return file.spec, comparable(file.partition)


def only_file(deletes: ContentFile) -> str | None:
    """The one data file of a file of position deletes, as its entry or its bounds name it; None if it may have several.
    Its deletes apply whatever the partition is."""
    if deletes.referenced_data_file is not None:
        return deletes.referenced_data_file
    low, high = (deletes.maps.get(name, {}).get(FILE_PATH_ID) for name in BOUNDS)
    return str(low, "utf-8") if low is not None and low == high else None


def _may_name(deletes: ContentFile, data: ContentFile) -> bool:
    """Whether a file of position deletes may have rows of a data file, by the bounds of the paths in it."""
    low, high = (deletes.maps.get(name, {}).get(FILE_PATH_ID) for name in BOUNDS)
    path = data.path.encode()
    return (low is None or low <= path) and (high is None or path <= high)


class LiveFiles:
    """The live files of one snapshot: manifests of data files in the order of the snapshot, and the deletes."""

    def __init__(self, manifests: Sequence[Manifest], deletes: Deletes) -> None:
        self.manifests = manifests
        self.deletes = deletes
        self.count = sum(len(manifest.files) for manifest in manifests)
        self.cache_bytes = sum(one.cache_bytes for one in manifests) + sum(one.cache_bytes for one in deletes.files)

    @property
    def data(self) -> Iterator[ContentFile]:
        """The data files."""
        return (file for manifest in self.manifests for file in manifest.files)


class ManifestReader:
    """Reads manifests of any table from `source`, and keeps them in `cache_bytes` of memory."""

    def __init__(self, cache_bytes: int, source: FileIO) -> None:
        self._manifests: ByteCache[Manifest] = ByteCache(cache_bytes)
        self._lists: ByteCache[_List] = ByteCache(max(cache_bytes // 16, 1))
        self._io = source

    def live_files(self, manifest_list: str, specs: Mapping[int, PartitionSpec], name: str) -> LiveFiles:
        """The files of the snapshot with this list of manifests. SourceNotFound where a file of the metadata is gone,
        StorageError where one cannot be read, SourceError for a damaged one."""
        records = self.records(manifest_list, name)
        found = list(in_order([partial(self.read, record, specs, name) for record in records]))
        deletes = [file for manifest in found for file in manifest.deletes]
        return LiveFiles([manifest for manifest in found if manifest.files], Deletes(deletes, specs))

    def records(self, manifest_list: str, name: str) -> Sequence[Mapping[str, Any]]:
        """The entries of a list of manifests."""
        with self._lists.use(manifest_list, lambda: _List(self._io, manifest_list, name)) as found:
            return found.records

    def read(self, record: Mapping[str, Any], specs: Mapping[int, PartitionSpec], name: str) -> Manifest:
        """The live files of the manifest that an entry of a list names."""
        path = record["manifest_path"]
        key = path, record.get("sequence_number"), record.get("first_row_id")
        with self._manifests.use(key, lambda: Manifest(self._files(record, specs, name))) as found:
            return found

    def _files(self, record: Mapping[str, Any], specs: Mapping[int, PartitionSpec], name: str) -> Iterator[ContentFile]:
        path = record["manifest_path"]
        entries, schema = avro_records(read_file(self._io, path, name), path)
        fields = {one.number: one for one in partition_fields(schema)}
        spec_id, next_row = record.get("partition_spec_id", 0), record.get("first_row_id")
        if spec_id not in specs:
            raise SourceError(f"a manifest of {name} with an unknown partition spec", path, found=str(spec_id))
        order = [fields.get(one.field_id) for one in specs[spec_id].fields]
        for entry in entries:
            if entry["status"] == DELETED:
                continue
            file, first_row = entry["data_file"], None
            if next_row is not None:
                first_row = file.get("first_row_id")
                if first_row is None:
                    first_row, next_row = next_row, next_row + file["record_count"]
            sequence = entry.get("sequence_number")
            sequence = record.get("sequence_number") or 0 if sequence is None else sequence
            snapshot = entry.get("snapshot_id")
            maps = {map_name: _as_map(file.get(map_name)) for map_name in MAPS}
            yield ContentFile(
                content=file.get("content") or DATA,
                path=file["file_path"],
                format=file["file_format"].lower(),
                size=file["file_size_in_bytes"],
                records=file["record_count"],
                spec=spec_id,
                partition=tuple(None if one is None else one.stored(file["partition"]) for one in order),
                sequence=sequence,
                snapshot=record.get("added_snapshot_id") if snapshot is None else snapshot,
                is_added=entry["status"] == ADDED,
                packed=msgspec.msgpack.encode({map_name: one for map_name, one in maps.items() if one is not None}),
                key_metadata=file.get("key_metadata"),
                split_offsets=_as_tuple(file.get("split_offsets")),
                equality_ids=_as_tuple(file.get("equality_ids")),
                sort_order_id=file.get("sort_order_id"),
                first_row_id=first_row,
                referenced_data_file=file.get("referenced_data_file"),
                content_offset=file.get("content_offset"),
                content_size=file.get("content_size_in_bytes"),
            )


class _List:
    """The entries of a list of manifests."""

    def __init__(self, source: FileIO, path: str, name: str) -> None:
        data = read_file(source, path, name)
        self.records, _ = avro_records(data, path)
        self.cache_bytes = 1000 * len(self.records)


@lru_cache(64)
def column_ids(columns: str, paths: Sequence[Path]) -> Mapping[Path, int]:
    """The field ids of columns, and of fields of structs, that an index of an Iceberg table has on record, as DDL."""
    table = parse_ddl(columns)
    origins = {path: (origin_at(table, path) or (None,))[-1] for path in paths}
    return {path: number for path, number in origins.items() if isinstance(number, int)}


def _as_map(found: Any) -> dict[int, Any] | None:
    """A map of a manifest, which Avro has as a list of pairs."""
    return None if found is None else {one["key"]: one["value"] for one in found}


def _as_tuple(found: Iterable[int] | None) -> tuple[int, ...] | None:
    return None if found is None else tuple(found)
