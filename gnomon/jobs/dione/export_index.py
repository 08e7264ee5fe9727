"""The export of an index in Dione's format."""

import hashlib
import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from gnomon.btree import BTreeError
from gnomon.btree.dione import check_hashed
from gnomon.btree.schema import Column, EntrySchema
from gnomon.jobs.dione.dione_index import DATA_TABLE, KEYS, MORE_FIELDS, SEPARATOR
from gnomon.jobs.dione.export_folder import ExportedFiles, ExportFolder, hadoop_location
from gnomon.shadow.errors import ShadowError, UsageError
from gnomon.shadow.metadata import POINTER_TYPES, IndexSpec, View, check_apart, open_view, source_of
from gnomon.shadow.storage import Place, Storage, patiently, storage_at
from gnomon.shadow.tables import partition_folders, partition_values
from gnomon.shadow.write import MEMORY_BYTES
from gnomon.sources import POINTER_COLUMNS

FORMATS = ("parquet", "orc", "avro", "sequence")
SCHEMA_PATH = ".btree.avsc"  # the columns of the files, for Hive
RECORD_DOC = "doc"


@dataclass(frozen=True)
class Exported:
    """The result of an export. It wrote `files` files for the partitions `written`, whose source files have changed
    since the last export, and removed the partitions `removed`. `rows` counts the rows of all partitions. `statement`
    declares the table in Hive or Spark."""

    rows: int
    partitions: int
    files: int
    written: Sequence[str]
    removed: Sequence[str]
    statement: str


@patiently()
def export_dione(
    index: Place, folder: Place, table: str = "NAME", data_table: str = "", memory: int = MEMORY_BYTES
) -> Exported:
    """Write the newest snapshot of an index to a folder as an index of Dione. A later export to the same folder writes
    only the partitions whose source files or exported files have changed. In the `statement`, `table` is the name of
    the index table, and `data_table` the name of the data table, which the index of a catalog table knows.

    UsageError for an index that Dione cannot hold; StalePointer where a Parquet file has changed since it was indexed;
    ConcurrentCommit where another export to this folder began meanwhile; other errors as in a scan of the index. While
    a partition is written, Dione's readers may not find its keys."""
    storage, out = storage_at(index), storage_at(folder)
    export = ExportFolder(out)  # before the snapshot is read: of two exports, the later one has the newer snapshot
    view = open_view(storage)
    schema = _checked(view)
    check_apart(source_of(view.spec), out)
    data = view.spec.source.table or data_table
    if not data:
        raise UsageError("Dione finds the data by its table's name; name it (--data-table)", view.spec.source.name)
    now, folders = _digests(view, schema), _folders(view)
    unchanged = export.unchanged(now)
    changed = {partition: name for partition, name in folders.items() if name not in unchanged}
    removed = sorted(export.partitions.keys() - now.keys())
    try:
        export.begin(unchanged, [*removed, *changed.values()])
        files = ExportedFiles(storage, view, schema, export, changed, memory).write() if changed else 0
        export.put_schema(SCHEMA_PATH, json.dumps(schema.to_avro(RECORD_DOC, null_first=False), indent=2))
        export.end(now, unchanged)
    except BaseException:
        with suppress(ShadowError):  # the first error is the one to show
            export.remove_written()
        raise
    statement = _statement(view.spec, schema, out, table, data)
    return Exported(view.snapshot.rows, len(now), files, list(changed.values()), removed, statement)


# -- what Dione can hold -----------------------------------------------------------------------------------------------


def _checked(view: View) -> EntrySchema:
    """The columns of the files. UsageError for an index that Dione cannot hold."""
    spec = view.spec
    spec.entries.check_source("a key-value folder has no pointers, which an index of Dione's has")
    if view.snapshot.table is not None or spec.format not in FORMATS:
        what = "a lake table" if view.snapshot.table is not None else f"files of format {spec.format}"
        raise UsageError(f"Dione indexes no {what}", spec.source.name, expected=f"one of {', '.join(FORMATS)}")
    if not spec.partitions:
        raise UsageError("Dione indexes no source without partitions", spec.source.name)
    chosen = [column.name for column in spec.keys if column.partition]
    if chosen:
        raise UsageError("a key of Dione's has no partition columns", column=chosen[0])
    keys = tuple(Column(column.name, column.type) for column in spec.stored_keys)
    values = tuple(Column(column.name, column.type) for column in spec.include)
    pointers = tuple(Column(name, kind) for name, kind in zip(POINTER_COLUMNS, POINTER_TYPES, strict=True))
    for column in values:
        if column.type.startswith("decimal"):
            raise UsageError("an index of Dione's has no decimals", column=column.name, found=column.type)
    try:
        check_hashed(keys)
        return EntrySchema(keys, (*values, *pointers))
    except BTreeError as error:
        raise UsageError(error.what, column=error.column, found=error.found) from None


def _folder(partition: str) -> str:
    """The folder of a partition, as Spark names it. UsageError for a value with a character that Spark escapes: Dione's
    reader looks for the unescaped name."""
    values = partition_values(partition)
    plain = "/".join(f"{name}={text}" for name, text in values.items())
    if None in values.values() or partition_folders({name: text or "" for name, text in values.items()}) != plain:
        raise UsageError("Dione's reader finds no partition with an empty value or an escaped character", partition)
    return plain


def _folders(view: View) -> dict[str, str]:
    """The folder in the export of each partition with rows. UsageError for two partitions with the same values."""
    folders: dict[str, str] = {}
    partitions: dict[str, str] = {}
    for partition in sorted({file.partition for file in view.covered.values() if file.rows}):
        folder = _folder(partition)
        if folder in partitions:
            what = f"folders {partitions[folder]} and {partition} are one partition to Dione"
            raise UsageError(what, view.spec.source.name)
        folders[partition], partitions[folder] = folder, partition
    return folders


def _digests(view: View, schema: EntrySchema) -> dict[str, str]:
    """For each folder of `_folders`, a text that changes with what its files are made of: the files of the source, the
    place of the source, which pointers name, and the columns."""
    files: dict[str, list[list[object]]] = {}
    for file in view.covered.values():
        if file.rows:
            files.setdefault(file.partition, []).append([file.path, file.size, file.mtime_ns, file.etag, file.digest])
    of_all = [hadoop_location(source_of(view.spec).storage.root), schema.to_json(RECORD_DOC, null_first=False).decode()]
    return {
        _folder(partition): hashlib.blake2b(json.dumps([*of_all, *sorted(some)]).encode(), digest_size=16).hexdigest()
        for partition, some in files.items()
    }


def _statement(spec: IndexSpec, schema: EntrySchema, out: Storage, table: str, data_table: str) -> str:
    """The statement that declares the table, with the properties by which Dione finds the data."""
    columns = ", ".join(f"`{column.name}` {column.type}" for column in schema.columns)
    partitions = ", ".join(f"`{name}` {spec.partition_type(name)}" for name in spec.partitions)
    root = hadoop_location(out.root)
    properties = {**table_properties(spec, data_table), "avro.schema.url": f"{root}/{SCHEMA_PATH}"}
    shown = ", ".join(f"{_text(name)} = {_text(value)}" for name, value in properties.items())
    return (
        f"CREATE EXTERNAL TABLE IF NOT EXISTS {table} ({columns}) PARTITIONED BY ({partitions}) "
        f"STORED AS AVRO LOCATION {_text(root)} TBLPROPERTIES ({shown})"
    )


def table_properties(spec: IndexSpec, data_table: str) -> dict[str, str]:
    """The properties by which Dione knows the data and the columns of an index table."""
    return {
        DATA_TABLE: spec.source.table or data_table,
        KEYS: SEPARATOR.join(column.name for column in spec.stored_keys),
        MORE_FIELDS: SEPARATOR.join(column.name for column in spec.include),
    }


def _text(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
