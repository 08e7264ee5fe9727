"""Delta Lake tables, read by deltalake: the live files of a version, and the deletion vectors of its files."""

import json
import os
import re
import weakref
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from hashlib import blake2b
from importlib.metadata import version as release_of
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import quote

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError
from deltalake.query import QueryBuilder
from pyroaring import BitMap64

from gnomon.base.errors import Action
from gnomon.btree.key_types import Stored, is_key_type, key_type
from gnomon.shadow.errors import ShadowError, SourceNotFound, StorageError, Unreachable, UsageError
from gnomon.shadow.storage import (
    Storage,
    access_action,
    endpoint_of,
    is_local,
    join,
    storage_at,
    words_of,
)
from gnomon.shadow.tables.delta_log import (
    CHECKPOINT_HINT,
    LOG,
    VECTOR_ONLY,
    file_path,
    log_file,
    read_adds,
    read_vectors,
)
from gnomon.shadow.tables.lake_source import MAIN, ddl_of, field_of
from gnomon.shadow.tables.partitions import partition_stored, typed_folders
from gnomon.shadow.tables.table_source import LakeContent, LakeFile, TableHistory, TableVersion

MAPPING = "delta.columnMapping."  # of properties of the table, and of the metadata of its columns
# The features of which readers must know: those that deltalake and the readers here read right.
READ_FEATURES = {
    "columnMapping",
    "deletionVectors",
    "timestampNtz",
    "typeWidening",
    "typeWidening-preview",
    "v2Checkpoint",
    "vacuumProtocolCheck",
    "variantShredding",
    "variantShredding-preview",
    "variantType",
    "variantType-preview",
}
# In an error of deltalake: features that it does not know, and a table whose catalog has its versions.
UNKNOWN_FEATURE = re.compile(r"(?:Feature '|Unsupported table features required: )(?P<name>[^'\n]+)")
OF_CATALOG = "Max catalog version is required"
OTHER_READERS = re.compile(r"minimum reader version")
# In an error of deltalake's store: it refuses access, has no such bucket, or does not answer.
NO_ACCESS = re.compile("privileges|ExpiredToken|AccessDenied|Unauthorized|Forbidden|credential", re.IGNORECASE)
NO_BUCKET = re.compile("NoSuchBucket|ContainerNotFound|specified bucket does not exist")
NO_ANSWER = re.compile(r"HTTP error|status code: (5\d\d|408|409|412|429)")
NO_FOLDER = "Invalid table location"
NO_CHECKPOINT = "_last_checkpoint hint but didn't find any checkpoints"  # the same
DECODED = re.compile(r"%[0-9A-Fa-f]{2}|[\\\x00-\x1f\x7f]")  # deltalake reads them as other characters
PLAIN_IN_URL = "/:=@!$&'()*+,;~[]|\\"
VOID = "void"
VECTORS = "deletionVectors"  # a feature of the protocol
READ_BY_DELTALAKE = 500  # files with a vector; with some more, its reader never ends
DIGEST_BYTES = 64 * 1024
LOG_FILE = re.compile(rf"{LOG}/(\d{{20}})\.(json|checkpoint\..*parquet|checkpoint\..*json)")
SIMPLE = {
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}

UNITY = ("unity:", "uc:")


def read_content(place: str, version: TableVersion | None, partitions: Collection[str] | None = None) -> LakeContent:
    """The table at a path or URL, at a version, or the newest. Its partition columns are never in the files."""
    if place.startswith(UNITY):
        what = (
            "tables of Unity Catalog are not read by their Delta names; name the table's location, as delta:s3://.., "
        )
        raise UsageError(
            f"{what}or, by the catalog's Iceberg REST endpoint, iceberg:CATALOG.schema.table", f"delta:{place}"
        )
    root, name = storage_at(place).root, f"delta:{place}"
    wanted = version.version if version is not None else ""
    if wanted and not wanted.isdecimal():
        raise UsageError("table version", name, expected="a number", found=repr(wanted))
    with delta_errors(name):
        try:
            table = open_table(root, int(wanted) if wanted else None)
        except DeltaError:
            if wanted and int(wanted) < (first := _first_version(storage_at(root), open_table(root).version())):
                what = f"version {wanted} is no longer in the table's log"
                raise SourceNotFound(what, name, expected=f"version {first} or later") from None
            raise
        metadata, schema = table.metadata(), json.loads(table.schema().to_json())
        adds = pa.table(table.get_add_actions(flatten=True))
    mode = metadata.configuration.get(f"{MAPPING}mode", "none")
    fields, partitions = schema["fields"], list(metadata.partition_columns)
    known = {field["name"]: _partition_type(name, field) for field in fields if field["name"] in partitions}
    types = {column: known[column] for column in partitions}
    in_files = [_field(name, field, mode) for field in with_values(fields) if field["name"] not in partitions]
    return LakeContent(
        version=version_of(table, storage_at(root)),
        name=f"delta:{root}",
        root=root,
        files=_files(root, adds, types),
        types=types,
        columns=ddl_of(in_files, name),
        deleted=partial(_deleted, table, root),
    )


def count_rows(place: str, version: TableVersion) -> int:
    """The live rows of a version, counted by deltalake's own query engine."""
    name = f"delta:{place}"
    with delta_errors(name):
        table = open_table(storage_at(place).root, int(version.version))
        if len(_deleted(table, storage_at(place).root)) > READ_BY_DELTALAKE:
            what = f"deltalake cannot count its rows: more than {READ_BY_DELTALAKE} files have deletion vectors"
            raise UsageError(what, name)
        counted = QueryBuilder().register("counted", table).execute("select count(*) from counted").read_all()
    return int(pa.table(counted).column(0)[0].as_py())


def open_table(root: str, version: int | None = None, to_commit: bool = False) -> DeltaTable:
    """The table at a root, at its newest version or another. UsageError where deltalake would read another folder or
    refuse a sound log. Unreachable where a store lists the log without its newest versions: rows would be missing, and
    an append would add theirs again."""
    table, storage = _open_table(root, version, to_commit), storage_at(root)
    if unknown := sorted(set(table.protocol().reader_features or ()) - READ_FEATURES):
        raise _unread(f"the feature {', '.join(unknown)}", f"delta:{root}")
    if version is None and storage.is_remote and _is_there(storage, table.version() + 1):
        newer = table.version() + 1
        table = _open_table(root, version, to_commit)
        if table.version() < newer:
            what = "the store does not list this version of the table, which is there"
            raise Unreachable(what, join(root, log_file(newer)), action=Action.RUN_AGAIN)
    return table


def _open_table(root: str, version: int | None, to_commit: bool) -> DeltaTable:
    """The table as deltalake lists it.

    deltalake decodes percent sequences of a root's name once too often, takes a backslash for a slash, and refuses a
    log whose `_last_checkpoint` names a checkpoint that is gone. A local table is then read through a folder of links,
    which lives as long as the table. A commit writes through the link of the log."""
    if is_local(root) and DECODED.search(os.path.realpath(root)):
        return _open_links(root, version, with_hint=True)
    try:
        return DeltaTable(_url(root), version=version, storage_options=store_options(root))
    except DeltaError as error:
        if NO_CHECKPOINT not in str(error):
            raise
        if is_local(root) and not to_commit:
            return _open_links(root, version, with_hint=False)
        what = "names a checkpoint that is gone; remove this file, from which readers find a checkpoint faster"
        raise UsageError(what, join(root, f"{LOG}/{CHECKPOINT_HINT}")) from None


def _url(root: str) -> str:
    """A root as deltalake takes it: a local path, or a URL with its escapes."""
    if is_local(root):
        return root
    if DECODED.search(root):
        raise UsageError("deltalake takes a percent sequence in a name for another character; move the table", root)
    scheme, colon, rest = root.partition("://")
    return f"{scheme}{colon}{quote(rest, safe=PLAIN_IN_URL)}"


def _open_links(root: str, version: int | None, with_hint: bool) -> DeltaTable:
    """A local table, read in a temporary folder of links to its files, if wanted without the hint of its log."""
    if not os.path.isdir(os.path.join(root, LOG)):
        raise TableNotFoundError(root)
    links = TemporaryDirectory(prefix="gnomon-delta-")
    for entry in os.scandir(root):
        if entry.name != LOG or with_hint:
            os.symlink(entry.path, os.path.join(links.name, entry.name))
            continue
        os.mkdir(os.path.join(links.name, LOG))
        for file in os.scandir(entry.path):
            if file.name != CHECKPOINT_HINT:
                os.symlink(file.path, os.path.join(links.name, LOG, file.name))
    table = DeltaTable(links.name, version=version)
    weakref.finalize(table, links.cleanup)
    return table


def store_options(root: str) -> dict[str, str] | None:
    """The options of the store that deltalake does not take from the environment itself: an endpoint without TLS."""
    endpoint = endpoint_of(root)
    return {"allow_http": "true"} if endpoint.startswith("http://") else None


def newest_version(place: str, known: TableVersion) -> TableVersion:
    """The newest version. Versions are numbered without gaps, and the log loses its oldest files first: where the file
    of the known version is as it was and the next one is not there, the known version is the newest. Then nothing else
    is read."""
    storage, name = storage_at(place), f"delta:{place}"
    is_there = known.metadata and known.metadata == _digest(storage, int(known.version))
    if is_there and not _digest(storage, int(known.version) + 1):
        return known
    with delta_errors(name):
        return version_of(open_table(storage.root), storage)


def is_before(version: TableVersion, known: TableVersion) -> bool:
    """Whether a version is older than a known one: a table that was restored has a new number."""
    return int(version.version) < int(known.version)


def read_history(place: str, known: TableVersion) -> TableHistory:
    """The versions of the table, by a listing of its log. Versions before the first checkpoint in the log are expired,
    unless the log still begins with version 0."""
    storage, name = storage_at(place), f"delta:{place}"
    with delta_errors(name):
        newest = version_of(open_table(storage.root), storage)
    first = _first_version(storage, int(newest.version))
    versions = [newest._replace(version=str(one), metadata="") for one in range(first, int(newest.version) + 1)]
    return TableHistory({MAIN: versions}, [str(one) for one in range(first)])


def _first_version(storage: Storage, newest: int) -> int:
    """The first version that the log still has."""
    names = [LOG_FILE.fullmatch(info.path) for info in storage.list(LOG, hidden=True)]
    commits = {int(match[1]) for match in names if match and match[2] == "json"}
    begins = {int(match[1]) for match in names if match and match[2] != "json"} | ({0} & commits)
    return min(begins, default=newest)


def version_of(table: DeltaTable, storage: Storage) -> TableVersion:
    return TableVersion(str(table.metadata().id), str(table.version()), _digest(storage, table.version()))


def _is_there(storage: Storage, version: int) -> bool:
    try:
        storage.open(log_file(version)).close()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def _digest(storage: Storage, version: int) -> str:
    """The digest of the size and the beginning of a version's file in the log; "" where there is no such file."""
    try:
        with storage.open(log_file(version)) as file:
            begin = file.read_range(0, min(file.size, DIGEST_BYTES))
            return blake2b(begin + file.size.to_bytes(8, "big"), digest_size=16).hexdigest()
    except (FileNotFoundError, NotADirectoryError):
        return ""


@contextmanager
def delta_errors(name: str) -> Iterator[None]:
    """Raise the errors of deltalake as those of a source."""
    try:
        yield
    except TableNotFoundError as error:
        raise SourceNotFound(
            f"no Delta table there ({words_of(error)})", name, expected="a folder with _delta_log"
        ) from None
    except ShadowError:
        raise
    except (DeltaError, OSError) as error:
        words = words_of(error)
        if (found := UNKNOWN_FEATURE.search(words)) is not None:
            raise _unread(f"the feature {found['name']}", name) from None
        if OF_CATALOG in words:
            raise _unread("the feature catalogManaged: the catalog has the newest versions", name) from None
        if OTHER_READERS.search(words):
            raise _unread(f"another version of the protocol ({words})", name) from None
        if NO_FOLDER in words:
            raise SourceNotFound(f"no Delta table there ({words})", name, expected="a folder with _delta_log") from None
        raise StorageError(f"its log cannot be read ({words})", name, action=_advice(name, words)) from None


def _unread(what: str, name: str) -> UsageError:
    """The error of a table whose readers must know what is not known here: its rows would be read wrong."""
    ours, theirs = (release_of(package) for package in ("gnomon-index", "deltalake"))
    known = f"the table has {what}; Gnomon {ours} with deltalake {theirs} does not read it"
    return UsageError(known, name, action=Action.UPGRADE_OR_DROP)


def _advice(name: str, words: str) -> Action:
    """The advice for a user whose table has a log that cannot be read."""
    if NO_ACCESS.search(words):
        return access_action(name.removeprefix("delta:"), words)
    if NO_BUCKET.search(words):
        return Action.MAKE_BUCKET
    return Action.RUN_AGAIN_ANSWERING if NO_ANSWER.search(words) else Action.RUN_AGAIN_OR_REPAIR


def _files(root: str, adds: pa.Table, types: Mapping[str, str]) -> dict[str, LakeFile]:
    paths = [file_path(root, path) for path in adds.column("path").to_pylist()]
    folders: Sequence[str] = [""] * len(paths)
    if types:
        columns = [_values(adds.column(f"partition.{name}"), kind) for name, kind in types.items()]
        folders = [typed_folders(dict(zip(types, values, strict=True)), types) for values in zip(*columns, strict=True)]
    sizes = adds.column("size_bytes").to_pylist()
    return {path: LakeFile(size, folder) for path, size, folder in zip(paths, sizes, folders, strict=True)}


def _values(column: pa.ChunkedArray, kind: str) -> list[Stored]:
    return partition_stored(column.combine_chunks().cast(key_type(kind).arrow), kind)


def _partition_type(name: str, field: Mapping[str, Any]) -> str:
    kind = column_type(name, field["name"], field["type"], "none")
    found = ddl_of([pa.field("a", kind)], name).removeprefix("a ")
    if not is_key_type(found):
        raise UsageError(f"a partition column of type {found} ({field['name']}) is not read", name)
    return found


def _field(name: str, field: Mapping[str, Any], mode: str) -> pa.Field:
    """A column in the files: by its field id or its physical name, where the table maps columns."""
    known = field.get("metadata", {})
    kind = column_type(name, field["name"], field["type"], mode)
    if mode == "id":
        return field_of(field["name"], kind, int(known[f"{MAPPING}id"]), ())
    if mode == "name":
        return field_of(field["name"], kind, None, (known[f"{MAPPING}physicalName"],))
    return pa.field(field["name"], kind)


def with_values(fields: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The columns of a table, or the fields of a struct, without those of type void: engines leave them out."""
    return [field for field in fields if not _is_void(field["type"])]


def _is_void(kind: Any) -> bool:
    if isinstance(kind, str):
        return kind == VOID
    return kind["type"] == "struct" and bool(kind["fields"]) and not with_values(kind["fields"])


def column_type(name: str, column: str, kind: Any, mode: str) -> pa.DataType:
    if isinstance(kind, str):
        if kind in SIMPLE:
            return SIMPLE[kind]
        if kind.startswith("decimal("):
            precision, scale = (int(part) for part in kind[len("decimal(") : -1].split(","))
            return pa.decimal128(precision, scale)
    elif kind["type"] == "struct":
        return pa.struct([_field(name, field, mode) for field in with_values(kind["fields"])])
    elif kind["type"] == "array":
        return pa.list_(column_type(name, column, kind["elementType"], mode))
    elif kind["type"] == "map":
        parts = (column_type(name, column, kind[part], mode) for part in ("keyType", "valueType"))
        return pa.map_(*parts)
    shown = kind if isinstance(kind, str) else kind.get("type")
    raise UsageError(f"column {column} of type {shown} is not read", name)


def _deleted(table: DeltaTable, root: str) -> dict[str, BitMap64]:
    """The deleted rows of each file that has a deletion vector. deltalake does not read them: its own reader waits
    forever for more vectors than READ_BY_DELTALAKE."""
    if VECTORS not in (table.protocol().reader_features or ()):
        return {}
    paths = [file_path(root, one) for one in pa.table(table.get_add_actions()).column("path").to_pylist()]
    storage = storage_at(root)
    return read_vectors(storage, read_adds(storage, table.version(), paths, VECTOR_ONLY))
