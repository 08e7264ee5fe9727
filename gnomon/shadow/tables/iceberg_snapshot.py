"""Commits of Iceberg tables, of the format versions 1 to 3, through any catalog of pyiceberg. A commit makes a
snapshot, by the rules of https://iceberg.apache.org/spec/: manifests of the files that it adds, the manifests of the
files that it removes written anew, and the list of all manifests. pyiceberg itself writes neither deletes nor version
3."""

import io
import json
import math
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from typing import Any, NamedTuple, cast

import fastavro
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.conversions import to_bytes
from pyiceberg.exceptions import BadRequestError, CommitFailedException, RESTError, ValidationError
from pyiceberg.manifest import (
    DATA_FILE_TYPE,
    MANIFEST_LIST_FILE_SCHEMAS,
    data_file_with_partition,
    manifest_entry_schema_with_data_file,
)
from pyiceberg.table import Table, TableProperties
from pyiceberg.table.metadata import TableMetadata, TableMetadataV3
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssertCurrentSchemaId,
    AssertDefaultSpecId,
    AssertRefSnapshotId,
    AssertTableUUID,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
)
from pyiceberg.types import DecimalType, IntegerType, ListType, NestedField, PrimitiveType, StructType
from pyiceberg.utils.decimal import decimal_required_bytes, decimal_to_bytes, unscaled_to_decimal
from pyiceberg.utils.properties import property_as_bool
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

from gnomon.base.errors import Action
from gnomon.btree.key_types import Stored
from gnomon.shadow.errors import ShadowError, SourceError, StorageError, UsageError
from gnomon.shadow.storage import in_order, words_of
from gnomon.shadow.tables.iceberg import load_table
from gnomon.shadow.tables.iceberg_files import (
    ADDED,
    DATA,
    DELETED,
    EQUALITY_DELETES,
    EXISTING,
    PUFFIN,
    ManifestReader,
    avro_records,
    comparable,
    partition_fields,
    read_file,
)
from gnomon.shadow.tables.lake_append import TableCommit, changed, outcome
from gnomon.shadow.tables.lake_source import MAIN

FORMAT_VERSIONS = (1, 2, 3)
APPEND, ATTEMPT = "gnomon.append", "gnomon.attempt"  # in the summary of a snapshot: the commit, and its attempt
REFUSED = (BadRequestError, ValidationError)  # after any other error the commit may still arrive
REFERENCED_DATA_FILE, EQUALITY_IDS = 143, 135  # field ids
DELETES = 1  # the content of a manifest with files of deletes
CODEC = "deflate"
FILE_COUNTS = ("added_files_count", "existing_files_count", "deleted_files_count")
ROW_COUNTS = ("added_rows_count", "existing_rows_count", "deleted_rows_count")
TOTALS = {  # of a summary: the counts that a snapshot adds and removes
    "total-data-files": ("added-data-files", "deleted-data-files"),
    "total-records": ("added-records", "deleted-records"),
    "total-delete-files": ("added-delete-files", "removed-delete-files"),
    "total-position-deletes": ("added-position-deletes", "removed-position-deletes"),
    "total-equality-deletes": ("added-equality-deletes", "removed-equality-deletes"),
    "total-files-size": ("added-files-size", "removed-files-size"),
}


class FileEntry(NamedTuple):
    """A file to add, or the entry of one. `partition` has a value for each field of its spec: dates and times are
    numbers, decimals are Decimal. `record` has the other members of a data file in a manifest, in Avro's form.
    `sequence` is the sequence number of its rows, None for that of the commit."""

    spec: int
    partition: tuple[Any, ...]
    record: Mapping[str, Any]
    sequence: int | None = None


_INT_IDS = NestedField(
    EQUALITY_IDS, "equality_ids", ListType(136, IntegerType(), element_required=True), required=False
)
"""As in the specification; pyiceberg has it with longs, which Iceberg's own library does not read."""


class Removed(NamedTuple):
    """A file that a snapshot removes: the content of its manifest, its location, and its offset in a Puffin file."""

    content: int
    path: str
    offset: int | None = None


@dataclass(frozen=True)
class Prepared:
    """A commit whose files are written; nothing was sent to the catalog. `snapshot` is the id of its snapshot. A commit
    of nothing has one, too: else a program that sleeps could set the writer's number back, since the head of the branch
    is all that a commit can assert. `files` are locations of metadata, `bytes` their size."""

    table: Table
    requirements: tuple[Any, ...]
    updates: tuple[Any, ...]
    snapshot: int
    files: Sequence[str] = ()
    bytes: int = 0

    def send(self) -> None:
        """Commit by the catalog, once. Then remove old metadata files, if the table asks for it."""
        table = self.table
        done = table.catalog.commit_table(table, self.requirements, self.updates)
        if property_as_bool(done.metadata.properties, TableProperties.METADATA_DELETE_AFTER_COMMIT_ENABLED, False):
            before, after = ({one.metadata_file for one in of.metadata_log} for of in (table.metadata, done.metadata))
            for location in before - after:
                with suppress(Exception):
                    table.io.delete(location)

    def discard(self) -> None:
        """Remove the files, as far as the store lets it."""
        for location in self.files:
            with suppress(Exception):
                self.table.io.delete(location)


def last_number(table: Table, name: str, uuid: str, writer: str) -> int:
    """The number of a writer's last commit in the table; 0 where it has none. TableChanged where another table has the
    name."""
    found = str(table.metadata.table_uuid)
    if found != uuid:
        raise changed(f"the table was replaced: expected the table with id {uuid}, found {found}", name)
    return int(table.properties.get(writer, "0"))


def refused(table: Table) -> str | None:
    """Why no snapshot can be made of the table; None where one can."""
    if table.format_version not in FORMAT_VERSIONS:
        return f"it has format version {table.format_version}, and none after {FORMAT_VERSIONS[-1]} is written"
    if keys := sorted(key for key in table.properties if key.startswith("encryption.")):
        return f"it is encrypted ({keys[0]} is set)"
    if isinstance(table.metadata, TableMetadataV3) and table.metadata.next_row_id is None:
        return "its metadata has no next-row-id, which format version 3 requires"
    if table.format_version == 3 and not isinstance(table.catalog, RestCatalog):
        try:
            table.metadata.model_dump_json()
        except NotImplementedError:
            return "it has format version 3, which pyiceberg writes through REST catalogs alone"
    return None


def conclude(prepared: Prepared, planned: TableCommit, place: str, send: Callable[[Prepared], None]) -> bool | None:
    """Send a commit by `send`. True where it is in the table, False where it is not and never will be: its metadata
    files are removed. None where another commit came first, and this one's files may be needed. TableChanged where the
    catalog refuses it, StorageError where it may arrive later."""
    name = planned.name
    try:
        send(prepared)
    except CommitFailedException:
        # A client that sends a commit again after a lost reply reports a conflict with its own first commit.
        return _is_there(prepared, planned, place)
    except REFUSED as error:
        prepared.discard()
        raise changed(f"the catalog refuses the commit ({words_of(error)})", name) from None
    except Exception as error:
        last = partial(_newest_number, planned, place)
        if (failed := outcome(planned, last, error)) is not None:
            raise failed from error
        return _is_there(prepared, planned, place)
    return True


def _newest_number(planned: TableCommit, place: str) -> int:
    return last_number(load_table(place, planned.name, None), planned.name, planned.uuid, planned.writer)


def _is_there(prepared: Prepared, planned: TableCommit, place: str) -> bool | None:
    """Whether the table has a commit that ended with a conflict. None where the table cannot be read now."""
    try:
        table = load_table(place, planned.name, None)
    except ShadowError:
        return None
    if table.snapshot_by_id(prepared.snapshot) is not None:
        return True
    prepared.discard()
    return False


# -- the files of a snapshot -------------------------------------------------------------------------------------------


def prepare(
    table: Table,
    planned: TableCommit,
    token: str,
    added: Sequence[FileEntry],
    removed: Collection[Removed] = (),
    operation: Operation = Operation.APPEND,
    reader: ManifestReader | None = None,
) -> Prepared:
    """Write the files of a snapshot on top of the table's current one; `token` is part of their names. `added` are data
    files and files of deletes; new data files are of the table's current schema and spec. `reader` may have kept old
    manifests. Errors: StorageError where the store failed, SourceError for damaged metadata, TableChanged for files
    that cannot be entries of the table."""
    head, metadata = table.current_snapshot(), table.metadata
    at = {"ref": MAIN, "snapshot-id": None if head is None else head.snapshot_id}
    requirements: list[Any] = [AssertTableUUID(uuid=metadata.table_uuid), AssertRefSnapshotId.model_validate(at)]
    if any(one.record["content"] == DATA for one in added):
        requirements += [
            AssertCurrentSchemaId.model_validate({"current-schema-id": metadata.current_schema_id}),
            AssertDefaultSpecId.model_validate({"default-spec-id": metadata.default_spec_id}),
        ]
    number = SetPropertiesUpdate(updates={planned.writer: str(planned.number)})
    written = _Snapshot(table, planned, token, head)
    try:
        snapshot = written.write(added, set(removed), operation, reader or ManifestReader(0, table.io))
    except BaseException as error:
        Prepared(table, (), (), written.id, written.files).discard()
        if isinstance(error, (MemoryError, ShadowError)) or not isinstance(error, Exception):
            raise
        if isinstance(error, (OSError, RESTError)):
            what = f"its manifests cannot be written, so that nothing was committed ({words_of(error)})"
            raise StorageError(what, planned.name, action=Action.RUN_AGAIN) from error
        what = f"the new files cannot be entries of its metadata ({type(error).__name__}: {words_of(error)})"
        raise changed(what, planned.name) from error
    branch = table.metadata.refs.get(MAIN)
    kept = {} if branch is None else branch.model_dump(by_alias=True, exclude_none=True)
    kept |= {"ref-name": MAIN, "type": SnapshotRefType.BRANCH, "snapshot-id": snapshot.snapshot_id}
    moved = SetSnapshotRefUpdate.model_validate(kept)
    updates = (number, AddSnapshotUpdate(snapshot=snapshot), moved)
    return Prepared(table, tuple(requirements), updates, snapshot.snapshot_id, tuple(written.files), written.size)


def try_entries(table: Table, entries: Sequence[FileEntry]) -> None:
    """Make the manifests of new files in memory. Any error of Avro or pyiceberg where they cannot be written."""
    for spec in {one.spec for one in entries}:
        of_spec = [_new_entry(one, 0) for one in entries if one.spec == spec]
        _manifest(table, spec, DATA, of_spec)
        _summaries(partition_type(table, spec), [file.partition for _, file in of_spec])


Entry = tuple[Mapping[str, Any], FileEntry]
"""An entry of a manifest without its file, and the file."""


def _new_entry(file: FileEntry, snapshot: int) -> Entry:
    return {"status": ADDED, "snapshot_id": snapshot, "sequence_number": file.sequence}, file


@dataclass
class _Snapshot:
    """Writes the files of a snapshot. `files` and `size` (bytes) are those written so far."""

    table: Table
    planned: TableCommit
    token: str
    head: Snapshot | None
    files: list[str] = field(default_factory=list)
    size: int = 0

    def __post_init__(self) -> None:
        self.id = self.table.metadata.new_snapshot_id()
        self.sequence = self.table.metadata.next_sequence_number()
        self.locations = self.table.location_provider()
        self.counts: Counter[str] = Counter()
        self.partitions: set[object] = set()

    def write(
        self, added: Sequence[FileEntry], removed: set[Removed], operation: Operation, reader: ManifestReader
    ) -> Snapshot:
        records = list(self._of_new(added))
        records += self._of_old(removed, reader)
        metadata, version = self.table.metadata, self.table.format_version
        first_row = next_row = _next_row(metadata)
        header = {
            "snapshot-id": str(self.id),
            "parent-snapshot-id": "null" if self.head is None else str(self.head.snapshot_id),
            "sequence-number": str(self.sequence),
            "format-version": str(version),
        }
        if next_row is not None:
            header["first-row-id"] = str(next_row)
            for record in records:  # as Iceberg's own library: also rows of manifests from before version 3
                if record["content"] == DATA and record["first_row_id"] is None:
                    record["first_row_id"] = next_row
                    next_row += record["added_rows_count"] + record["existing_rows_count"]
        schema = AvroSchemaConversion().iceberg_to_avro(MANIFEST_LIST_FILE_SCHEMAS[version], "manifest_file")
        manifest_list = self._put(f"snap-{self.id}-1-{self.token}.avro", _avro(schema, records, header))
        members: dict[str, Any] = {
            "snapshot-id": self.id,
            "parent-snapshot-id": None if self.head is None else self.head.snapshot_id,
            "sequence-number": self.sequence,
            "timestamp-ms": max(time.time_ns() // 1_000_000, metadata.last_updated_ms),
            "manifest-list": manifest_list,
            "summary": self._summary(operation),
            "schema-id": metadata.current_schema_id,
        }
        if first_row is not None and next_row is not None:
            members |= {"first-row-id": first_row, "added-rows": next_row - first_row}
        return Snapshot.model_validate(members)

    def _of_new(self, added: Sequence[FileEntry]) -> Iterator[dict[str, Any]]:
        """The manifests of new files: for each spec one of data files, and one of files of deletes."""
        groups: dict[tuple[int, int], list[Entry]] = {}
        for file in added:
            content = DATA if file.record["content"] == DATA else DELETES
            groups.setdefault((file.spec, content), []).append(_new_entry(file, self.id))
            self._count("added", file)
        for (spec, content), entries in groups.items():
            summaries = _summaries(partition_type(self.table, spec), [file.partition for _, file in entries])
            yield self._put_manifest(spec, content, entries, summaries)

    def _of_old(self, removed: set[Removed], reader: ManifestReader) -> list[dict[str, Any]]:
        """The manifests of the snapshot before, in their order. Those that list a removed file are written anew.
        SourceError where the snapshot does not list each removed file once."""
        if self.head is None:
            return []
        name, where, left = self.planned.name, self.head.manifest_list, set(removed)
        records = self._records(where)
        contents, specs = {one.content for one in removed}, self.table.specs()
        places = [at for at, record in enumerate(records) if record["content"] in contents]
        reads = [partial(reader.read, records[at], specs, name) for at in places]
        for at, listed in zip(places, in_order(reads), strict=True):
            record = records[at]
            files = (*listed.files, *listed.deletes)
            if not any(Removed(record["content"], one.path, one.content_offset) in removed for one in files):
                continue
            entries = list(self._anew(record, removed))
            for one in (_key(file) for entry, file in entries if entry["status"] == DELETED):
                if one not in left:
                    raise SourceError("a file to remove that the snapshot lists twice", where, found=one.path)
                left.remove(one)
            spec, summaries = record["partition_spec_id"], record["partitions"]
            records[at] = self._put_manifest(spec, record["content"], entries, summaries)
        if left:
            raise SourceError(
                "a file to remove that the snapshot does not list", where, found=min(one.path for one in left)
            )
        return records

    def _records(self, where: str) -> list[dict[str, Any]]:
        """The records of an old list of manifests, as the table's format version has them."""
        found, schema = avro_records(read_file(self.table.io, where, self.planned.name), where)
        names = {one.get("field-id"): one["name"] for one in schema["fields"]}
        members = MANIFEST_LIST_FILE_SCHEMAS[self.table.format_version].fields
        records = [
            {"content": DATA}
            | {one.name: old.get(names.get(one.field_id, one.name), one.initial_default) for one in members}
            for old in found
        ]
        for one in members:
            if one.required and any(record[one.name] is None for record in records):
                what = f"a list of manifests without {one.name}; run rewrite_manifests in the table's own engine"
                raise UsageError(what, where)
        return records

    def _anew(self, record: Mapping[str, Any], removed: set[Removed]) -> Iterator[Entry]:
        """The live entries of an old manifest, with all that they inherit; those of removed files are deleted ones."""
        path, spec = record["manifest_path"], record["partition_spec_id"]
        entries, schema = avro_records(read_file(self.table.io, path, self.planned.name), path)
        fields = {one.number: one for one in partition_fields(schema)}
        kinds = partition_type(self.table, spec).fields
        next_row = record.get("first_row_id")
        for entry in entries:
            if entry["status"] == DELETED:
                continue
            data = dict(entry["data_file"])
            data["content"] = data.get("content") or DATA
            if next_row is not None and data["content"] == DATA and data.get("first_row_id") is None:
                data["first_row_id"] = next_row
                next_row += data["record_count"]
            stored = [
                fields[one.field_id].stored(data["partition"]) if one.field_id in fields else None for one in kinds
            ]
            file = FileEntry(spec, partition_values(kinds, stored), data)
            is_removed = _key(file) in removed
            if is_removed:
                self._count("removed", file)
            inherited = {
                member: record["sequence_number"] or 0 if entry.get(member) is None else entry[member]
                for member in ("sequence_number", "file_sequence_number")
            }
            snapshot = record["added_snapshot_id"] if entry.get("snapshot_id") is None else entry["snapshot_id"]
            status, snapshot = (DELETED, self.id) if is_removed else (EXISTING, snapshot)
            yield {"status": status, "snapshot_id": snapshot, **inherited}, file

    def _put_manifest(self, spec: int, content: int, entries: Sequence[Entry], summaries: Any) -> dict[str, Any]:
        """Write a manifest. Returns its record for the list of manifests."""
        data = _manifest(self.table, spec, content, entries)
        location = self._put(f"{self.token}-m{len(self.files)}.avro", data)
        rows = {
            status: [file.record["record_count"] for entry, file in entries if entry["status"] == status]
            for status in (ADDED, EXISTING, DELETED)
        }
        sequences = [entry["sequence_number"] for entry, _ in entries if entry["status"] != DELETED]
        return {
            "manifest_path": location,
            "manifest_length": len(data),
            "partition_spec_id": spec,
            "content": content,
            "sequence_number": self.sequence,
            "min_sequence_number": min(
                (self.sequence if one is None else one for one in sequences), default=self.sequence
            ),
            "added_snapshot_id": self.id,
            **dict(zip(FILE_COUNTS, map(len, rows.values()), strict=True)),
            **dict(zip(ROW_COUNTS, map(sum, rows.values()), strict=True)),
            "partitions": summaries,
            "key_metadata": None,
            "first_row_id": None,
        }

    def _put(self, file: str, data: bytes) -> str:
        location = self.locations.new_metadata_location(file)
        self.files.append(location)
        with self.table.io.new_output(location).create() as stream:
            stream.write(data)
        self.size += len(data)
        return location

    def _count(self, change: str, file: FileEntry) -> None:
        """Count a file that the snapshot adds ("added") or removes ("removed")."""
        record, counts = file.record, self.counts
        self.partitions.add((file.spec, comparable(file.partition)))
        is_vector = record["file_format"].upper() == PUFFIN.upper()
        counts[f"{change}-files-size"] += record["content_size_in_bytes" if is_vector else "file_size_in_bytes"]
        if record["content"] == DATA:
            gone = "deleted" if change == "removed" else change
            counts[f"{gone}-data-files"] += 1
            counts[f"{gone}-records"] += record["record_count"]
            return
        kind = "equality" if record["content"] == EQUALITY_DELETES else "position"
        counts[f"{change}-delete-files"] += 1
        counts[f"{change}-dvs" if is_vector else f"{change}-{kind}-delete-files"] += 1
        counts[f"{change}-{kind}-deletes"] += record["record_count"]

    def _summary(self, operation: Operation) -> Summary:
        """The summary: what changed, and the totals if the snapshot before has them."""
        found = {name: str(count) for name, count in sorted(self.counts.items()) if count}
        summary = None if self.head is None else self.head.summary
        previous = {} if summary is None else summary.additional_properties
        found["changed-partition-count"] = str(len(self.partitions))
        for name, (added, gone) in TOTALS.items():
            before = "0" if self.head is None else previous.get(name, "")
            after = int(before) + self.counts[added] - self.counts[gone] if before.isdecimal() else -1
            if after >= 0:
                found[name] = str(after)
        found |= {APPEND: f"{self.planned.writer}/{self.planned.number}", ATTEMPT: self.token}
        return Summary(operation, **found)


def _next_row(metadata: TableMetadata) -> int | None:
    """The first row id of the next snapshot; None before version 3."""
    return metadata.next_row_id if isinstance(metadata, TableMetadataV3) else None


def _key(file: FileEntry) -> Removed:
    content = DATA if file.record["content"] == DATA else DELETES
    return Removed(content, file.record["file_path"], file.record.get("content_offset"))


# -- Avro --------------------------------------------------------------------------------------------------------------


def _manifest(table: Table, spec: int, content: int, entries: Sequence[Entry]) -> bytes:
    kind, version = partition_type(table, spec), table.format_version
    members = [
        _INT_IDS if one.field_id == EQUALITY_IDS else one for one in data_file_with_partition(kind, version).fields
    ]
    if version == 2:  # as in the specification
        members += [one for one in DATA_FILE_TYPE[3].fields if one.field_id == REFERENCED_DATA_FILE]
    described = manifest_entry_schema_with_data_file(version, StructType(*members))
    schema: Any = AvroSchemaConversion().iceberg_to_avro(described, "manifest_entry")
    of_file = next(one["type"] for one in schema["fields"] if one["name"] == "data_file")
    partition = next(one["type"]["fields"] for one in of_file["fields"] if one["name"] == "partition")
    for one in partition:
        for choice in one["type"]:
            if isinstance(choice, dict) and "name" in choice:  # a name may be defined once
                choice["name"] += f"_{one['field-id']}"
    names = [one["name"] for one in partition]
    records = [
        {
            **entry,
            "data_file": {
                **file.record,
                "partition": dict(zip(names, map(_avro_value, kind.fields, file.partition), strict=True)),
            },
        }
        for entry, file in entries
    ]
    header = {
        "schema": table.schema().model_dump_json(),
        "partition-spec": json.dumps(json.loads(table.specs()[spec].model_dump_json())["fields"]),
        "partition-spec-id": str(spec),
        "format-version": str(version),
        "content": "data" if content == DATA else "deletes",
    }
    return _avro(schema, records, header)


def _avro(schema: Any, records: Iterable[Mapping[str, Any]], header: Mapping[str, str]) -> bytes:
    out = io.BytesIO()
    fastavro.writer(out, fastavro.parse_schema(schema), records, codec=CODEC, metadata=dict(header))
    return out.getvalue()


def partition_type(table: Table, spec: int) -> StructType:
    """The types of the partition fields of a spec; of a column that was dropped, its last one."""
    schemas = [table.schema(), *(one for _, one in sorted(table.schemas().items(), reverse=True))]
    fields = []
    for one in table.specs()[spec].fields:
        schema = next((schema for schema in schemas if one.source_id in schema.field_ids), None)
        if schema is None:
            what = f"the column of its partition field {one.name} is in no schema of it any more"
            raise UsageError(what, table.metadata.location)
        kind = one.transform.result_type(schema.find_type(one.source_id))
        fields.append(NestedField(one.field_id, one.name, kind, required=False))
    return StructType(*fields)


def partition_values(fields: Iterable[NestedField], stored: Iterable[Stored]) -> tuple[Any, ...]:
    """Partition values of a `FileEntry`, from values in stored form, in which decimals are unscaled."""
    return tuple(
        unscaled_to_decimal(cast(int, value), one.field_type.scale)
        if isinstance(one.field_type, DecimalType) and value is not None
        else value
        for one, value in zip(fields, stored, strict=True)
    )


def as_pairs(found: Mapping[int, Any]) -> list[dict[str, Any]]:
    """A map of statistics in Avro's form."""
    return [{"key": key, "value": value} for key, value in found.items()]


def _avro_value(one: NestedField, value: Any) -> Any:
    if isinstance(value, Decimal) and isinstance(one.field_type, DecimalType):
        return decimal_to_bytes(value, decimal_required_bytes(one.field_type.precision))
    return value


def _summaries(kind: StructType, partitions: Sequence[tuple[Any, ...]]) -> list[dict[str, Any]]:
    """The bounds of the partition values of a manifest, for each field of its spec."""
    found = []
    for one, values in zip(kind.fields, zip(*partitions, strict=True), strict=True):
        known = sorted((value for value in values if value is not None and value == value), key=_order)
        low, high = (
            (to_bytes(cast(PrimitiveType, one.field_type), end) for end in known[:1] + known[-1:])
            if known
            else (None, None)
        )
        found.append(
            {
                "contains_null": None in values,
                "contains_nan": any(value != value for value in values),
                "lower_bound": low,
                "upper_bound": high,
            }
        )
    return found


def _order(value: Any) -> tuple[Any, float]:
    """The key by which Iceberg orders partition values: -0.0 is below 0.0."""
    return value, math.copysign(1.0, value) if isinstance(value, float) else 0.0
