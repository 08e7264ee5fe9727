"""Appends to Iceberg tables by pyiceberg: one commit that adds the files and sets the writer's number, a property of
the table. pyiceberg's own retries are off: they would add the files a second time after a race."""

import io
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from functools import partial
from typing import Any, NamedTuple, NoReturn, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import types as arrow_types
from pyiceberg import types as iceberg_types
from pyiceberg.conversions import to_bytes
from pyiceberg.exceptions import (
    BadRequestError,
    CommitFailedException,
    RESTError,
    ValidationError,
)
from pyiceberg.io import OutputFile
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
)
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestEntry,
    ManifestEntryStatus,
    write_manifest,
)
from pyiceberg.schema import Schema
from pyiceberg.table import Table, Transaction
from pyiceberg.transforms import IdentityTransform, Transform, UnknownTransform
from pyiceberg.typedef import Record

from gnomon.base.errors import Action
from gnomon.shadow.errors import StorageError, UsageError
from gnomon.shadow.storage import storage_at, words_of
from gnomon.shadow.tables.iceberg import SIMPLE, load_table
from gnomon.shadow.tables.lake_append import (
    AppendTarget,
    NewFile,
    Split,
    TableCommit,
    attempts,
    changed,
    check_files,
    outcome,
    refuse,
)
from gnomon.sources import open_source
from gnomon.sources.types import FIELD_ID

NEWEST_WRITTEN = 2  # version of the format; pyiceberg writes no row lineage, which version 3 asks for
DATA_FOLDER = "data"
CODEC_PROPERTY, DEFAULT_CODEC = "write.parquet.compression-codec", "zstd"
CODECS = {"zstd": "ZSTD", "snappy": "SNAPPY", "gzip": "GZIP", "brotli": "BROTLI", "lz4": "LZ4", "uncompressed": "NONE"}
RETRIES_PROPERTY = "commit.retry.num-retries"
REFUSED = (BadRequestError, ValidationError)  # after any other error the commit may still arrive
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
    if table.format_version > NEWEST_WRITTEN:
        refuse(f"it has format version {table.format_version}, and pyiceberg writes {NEWEST_WRITTEN} at most", name)
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
        fields=_fields(table.schema(), name),
        codec=CODECS.get(table.properties.get(CODEC_PROPERTY, DEFAULT_CODEC).lower(), CODECS[DEFAULT_CODEC]),
        split=Split(tuple(one.column for one in hidden), partial(_split, hidden)) if hidden else None,
    )


def _folder_of(values: Mapping[str, str | None]) -> str:
    """All partitions share a folder: only the metadata tells them apart."""
    return DATA_FOLDER


def last_number(place: str, uuid: str, writer: str) -> int:
    """As `lake_append.last_number`."""
    name = f"iceberg:{place}"
    return _last_number(load_table(place, name, None), name, uuid, writer)


def _last_number(table: Table, name: str, uuid: str, writer: str) -> int:
    found = str(table.metadata.table_uuid)
    if found != uuid:
        raise changed(f"the table was replaced: expected the table with id {uuid}, found {found}", name)
    return int(table.properties.get(writer, "0"))


def check_commit(place: str, planned: TableCommit, files: Sequence[NewFile]) -> None:
    """As `lake_append.check_commit`: the entries go to a manifest in memory."""
    table = load_table(place, planned.name, None)
    entries = _data_files(table, planned.name, files)
    if not entries:  # no manifest is empty
        return
    try:
        with write_manifest(2, table.spec(), table.schema(), _Memory(), 0, "null") as manifest:
            for one in entries:
                manifest.add(ManifestEntry.from_args(status=ManifestEntryStatus.ADDED, snapshot_id=0, data_file=one))
    except Exception as error:
        what = f"the new rows cannot be entries of its metadata ({type(error).__name__}: {words_of(error)})"
        raise UsageError(f"{what}; no row was appended", planned.name) from error


def commit(place: str, planned: TableCommit, files: Sequence[NewFile]) -> None:
    """As `lake_append.commit_to_table`. The commit asserts that the branch still has the head which was read."""
    name = planned.name
    for _ in attempts(name):
        table = load_table(place, name, None)
        if _last_number(table, name, planned.uuid, planned.writer) >= planned.number:
            return
        try:
            added = _data_files(table, name, files)
        except UsageError as error:
            raise changed(error.what, name) from None
        with closing(table.catalog):
            prepared = _prepared(table, planned, added)
            try:
                _commit(prepared)
            except CommitFailedException:
                continue
            except REFUSED as error:
                raise changed(f"the catalog refuses the commit ({words_of(error)})", name) from None
            except Exception as error:
                last = partial(last_number, place, planned.uuid, planned.writer)
                if (failed := outcome(planned, last, error)) is not None:
                    raise failed from error
        return


def _prepared(table: Table, planned: TableCommit, added: Sequence[DataFile]) -> Transaction:
    """A commit whose manifests are written; nothing was sent to the catalog. StorageError where the store failed,
    TableChanged for files that cannot be entries of the table."""
    table.metadata.properties[RETRIES_PROPERTY] = "0"  # in memory only: a commit sends changes
    transaction = table.transaction()
    named = {"gnomon.append": f"{planned.writer}/{planned.number}"}
    try:
        transaction.set_properties({planned.writer: str(planned.number)})
        with transaction.update_snapshot(snapshot_properties=named).fast_append() as append:
            _keep_committed(table, append)
            for file in added:
                append.append_data_file(file)
    except MemoryError:
        raise
    except (OSError, RESTError, pa.ArrowException) as error:
        what = f"its manifests cannot be written, so that nothing was committed ({words_of(error)})"
        raise StorageError(what, planned.name, action=Action.RUN_AGAIN) from error
    except Exception as error:
        what = f"the new files cannot be entries of its metadata ({type(error).__name__}: {words_of(error)})"
        raise changed(what, planned.name) from error
    return transaction


def _commit(prepared: Transaction) -> None:
    prepared.commit_transaction()


class _Memory(OutputFile):
    """A file that keeps nothing, to which a manifest is written as a trial."""

    def __init__(self) -> None:
        super().__init__("memory")

    def __len__(self) -> int:
        return 0

    def exists(self) -> bool:
        return False

    def to_input_file(self) -> NoReturn:
        raise FileNotFoundError(self.location)

    def create(self, overwrite: bool = False) -> io.BytesIO:
        return io.BytesIO()


def _keep_committed(table: Table, append: Any) -> None:
    """Keep pyiceberg from removing the manifests of a failed commit, unless the table shows that it did fail. A client
    that sends a commit again after a lost reply reports a conflict with its own first commit."""
    remove = append._clean_all_uncommitted

    def remove_unless_committed() -> None:
        with suppress(Exception):  # a table that cannot be read now keeps the files: at worst, nothing needs them
            if table.refresh().snapshot_by_id(append._snapshot_id) is None:
                remove()

    append._clean_all_uncommitted = remove_unless_committed


def _data_files(table: Table, name: str, files: Sequence[NewFile]) -> list[DataFile]:
    """The entries of new files. UsageError for a table that is not written, and for values without a partition;
    TableChanged where the files are not those of the append, or do not fit the table."""
    fields, spec = _fields(table.schema(), name), _spec_fields(table, name)
    check_files(storage_at(table.metadata.location).root, files, fields)
    return [_data_file(table, file, spec) for file in files]


def _data_file(table: Table, file: NewFile, spec: Sequence[_Field]) -> DataFile:
    """The entry of a new file, with the statistics of its footer. TableChanged where its rows are of several
    partitions."""
    schema, location = table.schema(), f"{table.metadata.location.rstrip('/')}/{file.path}"
    with table.io.new_input(location).open() as stream:
        metadata = pq.read_metadata(stream)
    statistics = data_file_statistics_from_parquet_metadata(
        metadata, compute_statistics_plan(schema, table.properties), parquet_path_to_id_mapping(schema)
    )
    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=location,
        file_format=FileFormat.PARQUET,
        partition=Record(*_partition(storage_at(table.metadata.location).root, file, spec)),
        file_size_in_bytes=file.size,
        sort_order_id=None,
        spec_id=table.spec().spec_id,
        equality_ids=None,
        key_metadata=None,
        **statistics.to_serialized_dict(),
    )


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


def _fields(schema: Schema, name: str) -> pa.Schema:
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
