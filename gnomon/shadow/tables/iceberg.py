"""Iceberg tables, found by pyiceberg: the live files of a snapshot, their partitions and columns."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from functools import partial
from importlib.metadata import version as release_of
from typing import Any

import pyarrow as pa
import requests
from pydantic import ValidationError
from pyiceberg import types as iceberg_types
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.conversions import to_json
from pyiceberg.exceptions import (
    AuthorizationExpiredError,
    ForbiddenError,
    NoSuchIdentifierError,
    NoSuchNamespaceError,
    NoSuchTableError,
    NotInstalledError,
    OAuthError,
    RESTError,
    ServerError,
    ServiceUnavailableError,
    TooManyRequestsError,
    UnauthorizedError,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import StaticTable, Table
from pyiceberg.table.name_mapping import MappedField, NameMapping
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.transforms import IdentityTransform

from gnomon.base.errors import Action
from gnomon.btree.key_types import is_key_type
from gnomon.shadow.errors import ShadowError, SourceNotFound, StorageError, UsageError
from gnomon.shadow.storage import Credential, Storage, below, is_absolute, join, storage_at, without_secrets, words_of
from gnomon.shadow.tables.iceberg_credentials import is_rest, renewed, settle
from gnomon.shadow.tables.iceberg_deletes import deleted_rows, equality_deletes
from gnomon.shadow.tables.iceberg_files import (
    DATA_FORMATS,
    IMPLEMENTATION,
    OF,
    ORC,
    Deletes,
    LiveFiles,
    ManifestReader,
    Paths,
    comparable,
)
from gnomon.shadow.tables.lake_source import MAIN, ddl_of, field_of
from gnomon.shadow.tables.partitions import typed_folders
from gnomon.shadow.tables.table_source import LakeContent, LakeFile, TableHistory, TableVersion

GONE = (FileNotFoundError, NotADirectoryError, IsADirectoryError)
NO_TABLE = (NoSuchTableError, NoSuchNamespaceError, NoSuchIdentifierError)
NO_ACCESS = (UnauthorizedError, ForbiddenError, OAuthError, AuthorizationExpiredError)
NO_ANSWER = (ServerError, ServiceUnavailableError, TooManyRequestsError)
# Properties that name the folder of new files; the last two are of older versions of Iceberg.
DATA_PATHS = ("write.data.path", "write.object-storage.path", "write.folder-storage.path")
MANIFEST_BYTES = 1 << 24  # of manifests that are kept while a table is read
HINT = "metadata/version-hint.text"
NUMBERED = re.compile(r"metadata/v(\d+)\.(?:gz\.)?metadata\.json")

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


def read_content(place: str, version: TableVersion | None, partitions: Collection[str] | None = None) -> LakeContent:
    """The table of a catalog (`CATALOG.namespace.table`), of a metadata file, or of a table's folder, at a snapshot, or
    the newest one. With `partitions`, which may be some of the table's partition columns, the others lie in the
    files."""
    name = f"iceberg:{place}"
    table = load_table(place, name, version)
    wanted = version.version if version is not None else ""
    if version is not None and wanted and version.metadata:
        with suppress(SourceNotFound):  # the table may have removed the file
            table = load_table(version.metadata, name, None)
            current = table.current_snapshot()
            if current is not None and str(current.snapshot_id) == wanted:
                wanted = ""  # with the columns of that time, which may be newer than the snapshot's
    root = storage_at(table.metadata.location).root
    is_static = "/" in place
    snapshot = _snapshot(table, wanted, name)
    live = _live_files(table, snapshot, name)
    schema = table.schema()
    if wanted and snapshot is not None and snapshot.schema_id is not None:
        schema = table.schemas()[snapshot.schema_id]
    used = {file.spec for file in live.data} or {
        table.spec().spec_id
    }  # a table without files: the spec of its first files
    types = _partition_types(schema, [table.specs()[spec] for spec in used], name)
    if partitions is not None and types.keys() >= set(partitions):
        types = {column: types[column] for column in partitions}
    names = _names(table.name_mapping())
    fields = {one.field_id: _field(one, names.get(one.field_id, ()), names, name) for one in schema.fields}
    paths = Paths(root, table.metadata.location)
    _check_orc(live, schema)
    return LakeContent(
        version=version_of(table, snapshot, table.schema() if place.endswith(".json") else schema),
        name=f"iceberg:{root}" if is_static else name,
        root=root,
        files=_files(live, paths, table, types, schema),
        types=types,
        columns=ddl_of([one for one in fields.values() if one.name not in types], name),
        deleted=partial(deleted_rows, table.io, live, paths, name),
        equality_deletes=partial(equality_deletes, table, fields, live, paths, name),
        folders=_folders(root, table),
        own_columns=_own_columns(table, snapshot, schema, types, name),
    )


def _own_columns(table: Table, snapshot: Snapshot | None, schema: Schema, types: Mapping[str, str], name: str) -> str:
    """The columns of a snapshot's own schema, as DDL, "" where it is `schema`."""
    own = schema if snapshot is None or snapshot.schema_id is None else table.schemas()[snapshot.schema_id]
    if own.schema_id == schema.schema_id:
        return ""
    names = _names(table.name_mapping())
    fields = (_field(one, names.get(one.field_id, ()), names, name) for one in own.fields if one.name not in types)
    return ddl_of(fields, name)


def _folders(root: str, table: Table) -> tuple[str, ...]:
    """The folders outside the table's root in which its properties put new files."""
    named = [storage_at(table.properties[one]).root for one in DATA_PATHS if one in table.properties]
    return tuple(one for one in dict.fromkeys(named) if one != root and is_absolute(below(root, one)))


def newest_version(place: str, known: TableVersion) -> TableVersion:
    """The newest version, by a read of the metadata file that the catalog or the folder names."""
    table = load_table(place, f"iceberg:{place}", known)
    return version_of(table, table.current_snapshot())


def is_before(version: TableVersion, known: TableVersion) -> bool:
    """False: a rollback makes an older snapshot the current one."""
    return False


def count_rows(place: str, version: TableVersion) -> int:
    """The live rows of a snapshot, counted by pyiceberg, which reads neither equality deletes nor all formats."""
    name = f"iceberg:{place}"
    try:
        table = _static(version.metadata, name)
        return table.scan(snapshot_id=int(version.version)).count() if version.version else 0
    except Exception as error:
        raise UsageError(f"pyiceberg cannot count its rows ({words_of(error)})", name) from error


def vended(place: str) -> Sequence[Credential] | UsageError:
    """The credentials that the catalog of a table vends for its files, none where it vends none; the reason where its
    files cannot be opened at all. StorageError where the catalog does not answer."""
    name = f"iceberg:{place}"
    if not is_rest(place.partition(".")[0]):
        return ()
    found = renewed(name)
    if found is None:
        try:
            load_table(place, name, None)
        except UsageError as error:
            if error.action is not Action.VEND:
                raise
            return error
        found = renewed(name)
    return found or ()


def read_history(place: str, known: TableVersion) -> TableHistory:
    """The snapshots that the newest metadata names: the table's own line by its log of snapshots, each other branch and
    tag by its ancestors, and snapshots that no line leads to, each alone. A snapshot has expired if another one names
    it as its parent, and the metadata does not have it."""
    table = load_table(place, f"iceberg:{place}", known)
    by_id = {one.snapshot_id: one for one in table.snapshots()}

    def ancestors(number: int | None) -> list[int]:
        found: list[int] = []
        while number in by_id and number not in found:
            found.append(number)
            number = by_id[number].parent_snapshot_id
        return found[::-1]

    current = table.current_snapshot()
    logged = [entry.snapshot_id for entry in table.history() if entry.snapshot_id in by_id]
    own = ancestors(current.snapshot_id if current is not None else None)
    main = [one for one in own if one not in logged] + logged
    main += own[-1:] if main[-1:] != own[-1:] else []
    branches, seen = {MAIN: main}, set(main)
    for ref, at in sorted(table.metadata.refs.items()):
        if aside := [one for one in ancestors(at.snapshot_id) if one not in main]:
            branches[ref] = aside
            seen.update(aside)
    branches |= {f"snapshot {one}": [one] for one in by_id if one not in seen}
    parents = [one.parent_snapshot_id for one in by_id.values()]
    expired = dict.fromkeys(str(one) for one in parents if one is not None and one not in by_id)
    newest = version_of(table, current)
    return TableHistory(
        {name: [newest._replace(version=str(one)) for one in line] for name, line in branches.items()}, list(expired)
    )


def version_of(table: Table, snapshot: Snapshot | None, schema: Schema | None = None) -> TableVersion:
    """The version. Its metadata file is the newest one, or, where `schema` is older than the table's, the one that had
    this snapshot first: a version has the columns of its metadata file. (A table that is named by a metadata file may
    have no other way to its newest one, so that the version keeps this file.)"""
    version = "" if snapshot is None else str(snapshot.snapshot_id)
    file = table.metadata_location
    if schema is not None and snapshot is not None and schema.schema_id != table.schema().schema_id:
        later = [one for one in table.metadata.metadata_log if one.timestamp_ms >= snapshot.timestamp_ms]
        file = min(later, key=lambda one: one.timestamp_ms).metadata_file if later else ""
    return TableVersion(str(table.metadata.table_uuid), version, storage_at(file).root if file else "")


def load_table(place: str, name: str, known: TableVersion | None) -> Table:
    """The table. In a folder whose newest metadata file is unknown, that of the known version is read."""
    try:
        if "/" not in place:
            catalog, _, identifier = place.partition(".")
            if "." not in identifier:
                raise UsageError("", name, expected="iceberg:CATALOG.namespace.table, or the path of a metadata file")
            with closing(_catalog(catalog, name)) as opened:  # it connects again if the table is used to commit
                table = opened.load_table(identifier)
                settle(table, name)
                return table
        try:
            return _static(place if place.endswith(".json") else _newest_file(place), name)
        except GONE:
            if known is None or not known.metadata or place.endswith(".json"):
                raise
            return _static(known.metadata, name)
    except NO_TABLE as error:
        what = f"the catalog has no such table ({words_of(error)})"
        raise SourceNotFound(what, name, action=Action.NAME_TABLE) from None
    except GONE as error:
        if "/" not in place:
            what = f"the catalog names a metadata file that is gone ({words_of(error)})"
            raise SourceNotFound(what, name, action=Action.RESTORE_OR_REPAIR) from None
        raise SourceNotFound(
            f"no metadata file there ({words_of(error)}); name one, as iceberg:/path/to/t/metadata/v3.metadata.json",
            name,
        ) from None
    except ShadowError:
        raise
    except (requests.ConnectionError, requests.Timeout) as error:
        url = "" if error.request is None else f" at {without_secrets(str(error.request.url))}"
        what = f"the catalog cannot be reached{url} ({_root_cause(error)})"
        raise StorageError(what, name, action=Action.CHECK_CATALOG_RUNS) from error
    except Exception as error:
        if (unread := _unread(error, name)) is not None:
            raise unread from None
        if isinstance(error, ValidationError):  # its text has values of the catalog's answer, which may be secrets
            first = error.errors(include_input=False)[0]
            what = f"the answer of its catalog is not understood: {'.'.join(map(str, first['loc']))}: {first['msg']}"
            raise StorageError(what, name, action=Action.CHECK_CATALOG_SETTINGS) from None
        what = f"its metadata cannot be read ({type(error).__name__}: {words_of(error)})"
        raise StorageError(what, name, action=_advice(error, Action.RUN_AGAIN_OR_REPAIR)) from error


def _static(metadata: str, name: str) -> StaticTable:
    """The table of this name as a metadata file has it."""
    return StaticTable.from_metadata(metadata, {"py-io-impl": IMPLEMENTATION, OF: name})


def _unread(error: BaseException, name: str) -> UsageError | None:
    """The error of a table with metadata of which pyiceberg does not know a member or its value; None for others."""
    ours, theirs = (release_of(package) for package in ("gnomon-index", "pyiceberg"))
    known = f"Gnomon {ours} with pyiceberg {theirs}"
    while not isinstance(error, ValidationError):
        if "Could not parse" in str(error):
            return UsageError(f"{known} does not read it: {words_of(error)}", name, action=Action.UPGRADE_OR_DROP)
        if (before := error.__cause__ or error.__context__) is None:
            return None
        error = before
    first = error.errors()[0]
    if first["type"] == "union_tag_invalid":
        what = f"the table has format version {first['ctx']['tag']}; {known} reads 1 to 3"
        return UsageError(what, name, action=Action.UPGRADE_OR_KEEP_FORMAT)
    if "Unsupported" not in first["msg"]:
        return None
    what = f"the table has {'.'.join(map(str, first['loc'][1:]))} {first['input']!r}; {known} does not read it"
    return UsageError(what, name, action=Action.UPGRADE_OR_DROP)


def _catalog(catalog: str, name: str) -> Catalog:
    """The catalog of this name. StorageError where its settings are missing or wrong."""
    try:
        return load_catalog(catalog)
    except (requests.ConnectionError, requests.Timeout):
        raise
    except NotInstalledError as error:
        raise StorageError(f"the catalog cannot be opened ({words_of(error)})", name) from error
    except Exception as error:
        what = f"the catalog cannot be opened ({type(error).__name__}: {words_of(error)})"
        raise StorageError(what, name, action=_advice(error, Action.CHECK_CATALOG_SETTINGS)) from error


def _advice(error: Exception, otherwise: Action) -> Action:
    """The advice for an error of a catalog."""
    if isinstance(error, NO_ACCESS):
        return Action.CHECK_CATALOG_ACCESS
    if isinstance(error, NO_ANSWER):
        return Action.CHECK_CATALOG_RUNS
    return Action.CHECK_CATALOG_SETTINGS if isinstance(error, RESTError) else otherwise


def _newest_file(folder: str) -> str:
    """The newest metadata file in a table's folder, as Java finds it: `version-hint.text` may lag behind or be missing.
    FileNotFoundError where the files have no numbers and no hint names one."""
    storage = storage_at(folder)
    matches = [NUMBERED.fullmatch(info.path) for info in storage.list("metadata")]
    listed = {int(match[1]): match[0] for match in matches if match}
    try:
        hint = storage.read(HINT).decode().strip()
    except (FileNotFoundError, NotADirectoryError):
        hint = str(max(listed, default=""))
    if not hint:
        raise FileNotFoundError(join(storage.root, HINT))
    if not hint.isdecimal():
        name = f"metadata/{hint}" if hint.endswith(".metadata.json") else f"metadata/{hint}.metadata.json"
        return join(storage.root, name)
    number, newest = int(hint), listed.get(int(hint)) or _file_of(storage, int(hint))
    if newest is None:
        raise FileNotFoundError(join(storage.root, f"metadata/v{number}.metadata.json"))
    # A store that answers wrongly once, to the listing or to the look, does not take the table back.
    while (later := listed.get(number + 1) or _file_of(storage, number + 1)) is not None:
        number, newest = number + 1, later
    return join(storage.root, newest)


def _file_of(storage: Storage, number: int) -> str | None:
    for ending in ("metadata.json", "gz.metadata.json"):
        path = f"metadata/v{number}.{ending}"
        with suppress(FileNotFoundError, NotADirectoryError), storage.open(path):
            return path
    return None


def _root_cause(error: BaseException) -> str:
    """The first line of the error that an error began with."""
    while (before := error.__cause__ or error.__context__) is not None:
        error = before
    return f"{type(error).__name__}: {words_of(error)}"


def _snapshot(table: Table, version: str, name: str) -> Snapshot | None:
    if not version:
        return table.current_snapshot()
    found = table.snapshot_by_id(int(version)) if version.isdecimal() else None
    if found is None:
        known = ", ".join(str(one.snapshot_id) for one in table.snapshots()) or "none"
        raise SourceNotFound("table version", name, expected=f"one of its snapshots ({known})", found=repr(version))
    return found


# -- files -------------------------------------------------------------------------------------------------------------


def _live_files(table: Table, snapshot: Snapshot | None, name: str) -> LiveFiles:
    """The live files of a snapshot. UsageError for data files that are not read."""
    specs = table.specs()
    if snapshot is None:
        return LiveFiles([], Deletes([], specs))
    live = ManifestReader(MANIFEST_BYTES, table.io).live_files(snapshot.manifest_list, specs, name)
    seen: set[str] = set()
    for file in live.data:
        if file.format not in DATA_FORMATS:
            raise UsageError(
                f"a data file of format {file.format} is not read", file.path, expected="Parquet, Avro or ORC"
            )
        if file.key_metadata is not None:
            raise UsageError("an encrypted data file is not read", file.path)
        if file.path in seen:
            raise UsageError(
                "a data file that the snapshot lists twice is not read: readers of the table give its rows twice; "
                "run rewrite_data_files, or roll the table back to before its second commit",
                file.path,
            )
        seen.add(file.path)
    return live


def _files(
    live: LiveFiles, paths: Paths, table: Table, types: Mapping[str, str], schema: Schema
) -> dict[str, LakeFile]:
    ids = {schema.find_field(column).field_id: column for column in types}
    top = {one.field_id for one in schema.fields}
    places = {  # of the partition columns of the index among the fields of each spec, and of other constants
        number: [(ids[f.source_id], at) for at, f in enumerate(spec.fields) if _is_identity(f) and f.source_id in ids]
        for number, spec in table.specs().items()
    }
    others = {
        number: [
            (schema.find_column_name(f.source_id), at)
            for at, f in enumerate(spec.fields)
            if _is_identity(f) and f.source_id not in ids and f.source_id in top
        ]
        for number, spec in table.specs().items()
    }
    folders: dict[tuple[object, ...], str] = {}
    files = {}
    for file in live.data:
        values = {column: file.partition[at] for column, at in places[file.spec]}
        key = comparable(values.get(column) for column in types)
        if key not in folders:
            folders[key] = typed_folders({column: values.get(column) for column in types}, types)
        constants = tuple(str(name) for name, at in others[file.spec] if file.partition[at] is not None)
        files[paths.path(file.path)] = LakeFile(file.size, folders[key], file.format, constants)
    return files


def _check_orc(live: LiveFiles, schema: Schema) -> None:
    """Raise UsageError for an ORC file of a table with UUIDs, which look like bytes there."""
    where = next((file.path for file in (*live.data, *live.deletes.files) if file.format == ORC), None)
    for number in schema.field_ids if where is not None else ():
        if isinstance(schema.find_type(number), iceberg_types.UUIDType):
            raise UsageError("a UUID in an ORC file is not read", where, column=schema.find_column_name(number))


def _is_identity(one: Any) -> bool:
    return isinstance(one.transform, IdentityTransform)


def _partition_types(schema: Schema, specs: Sequence[PartitionSpec], name: str) -> dict[str, str]:
    """The columns that all these specs partition by with the identity transform, with their types. Partition fields
    with other transforms are not partition columns here: their source columns lie in the files."""
    found = {}
    for one in schema.fields:
        if specs and all(any(_is_identity(f) and f.source_id == one.field_id for f in spec.fields) for spec in specs):
            kind = ddl_of([pa.field("a", _type(one.field_type, one.name, {}, name))], name).removeprefix("a ")
            is_uuid = isinstance(one.field_type, iceberg_types.UUIDType)
            if is_key_type(kind) and not is_uuid:
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
    default = None
    if one.initial_default is not None:
        if not isinstance(one.field_type, iceberg_types.PrimitiveType):
            raise UsageError(f"column {one.name} has a default of type {one.field_type}, which is not read", name)
        default = to_json(one.field_type, one.initial_default)
    return field_of(one.name, _type(one.field_type, one.name, all_names, name), one.field_id, names, default)


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
