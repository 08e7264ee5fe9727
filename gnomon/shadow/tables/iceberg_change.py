"""Deletes of rows in Iceberg tables, with new files or without: one commit. Version 2 gets position deletes, version 3
deletion vectors, and a table that asks for copy-on-write gets its data files rewritten. The rules are those of
https://iceberg.apache.org/spec/ and https://iceberg.apache.org/puffin-spec/."""

import hashlib
import json
import secrets
import zlib
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.conversions import to_bytes
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation
from pyiceberg.types import LongType
from pyroaring import BitMap64

from gnomon.base.readers import RangeFile
from gnomon.shadow.errors import SourceError, SourceNotFound, TableChanged, UnsupportedFormat, UsageError
from gnomon.shadow.storage import Storage, in_order, source_storage, storage_at
from gnomon.shadow.tables.iceberg import MANIFEST_BYTES, load_table, version_of
from gnomon.shadow.tables.iceberg_append import LINEAGE, data_files, new_fields, statistics_of
from gnomon.shadow.tables.iceberg_deletes import VECTOR_MAGIC, deleted_rows
from gnomon.shadow.tables.iceberg_files import (
    AVRO,
    DATA,
    EQUALITY_DELETES,
    FILE_PATH_ID,
    PARQUET,
    POSITION_DELETES,
    PUFFIN,
    ContentFile,
    Deletes,
    LiveFiles,
    Manifest,
    ManifestReader,
    Paths,
    comparable,
    only_file,
)
from gnomon.shadow.tables.iceberg_snapshot import (
    APPEND,
    ATTEMPT,
    DELETES,
    FileEntry,
    Prepared,
    Removed,
    as_pairs,
    conclude,
    last_number,
    partition_type,
    partition_values,
    prepare,
    refused,
)
from gnomon.shadow.tables.lake_append import Change, Deleted, Look, NewFile, TableCommit, attempts, changed, shape_of
from gnomon.shadow.tables.rewritten import rewrite
from gnomon.sources import open_source
from gnomon.sources.avro import numbers_of_rows
from gnomon.sources.types import FIELD_ID

VECTORS, POSITIONS, COPY_ON_WRITE = "deletion vectors", "position deletes", "copy-on-write"
DELETE_MODE, UPSERT_MODES = "write.delete.mode", ("write.merge.mode", "write.update.mode")
GRANULARITY = "write.delete.granularity"  # "file" or "partition"
# A reader of one data file reads a whole file of position deletes; by the bounds of its paths it skips the others.
POSITIONS_IN_FILE = 10_000
POSITION_ID, ROW_ID = 2147483545, 2147483645  # field ids: of the column pos, and of a row's position in its file
PUFFIN_MAGIC, VECTOR_TYPE = b"PFA1", "deletion-vector-v1"
DELETES_SCHEMA = pa.schema(
    [
        pa.field("file_path", pa.string(), False, {FIELD_ID: str(FILE_PATH_ID)}),
        pa.field("pos", pa.int64(), False, {FIELD_ID: str(POSITION_ID)}),
    ],
    {"delete-type": "position"},  # as Iceberg's own library marks it
)


def check_deletes(place: str) -> str:
    """The way in which rows of the table are deleted: "deletion vectors", "position deletes" or "copy-on-write".
    UsageError, with the reason, for a table whose rows are not deleted."""
    name = f"iceberg:{place}"
    if "/" in place:
        what = "no rows can be deleted from this table: its index names a metadata file, and no catalog to commit to"
        raise UsageError(f"{what}; build another index, of iceberg:CATALOG.namespace.table", name)
    return _way(load_table(place, name, None), name, with_files=False)


def _way(table: Table, name: str, with_files: bool) -> str:
    if (why := refused(table)) is not None:
        _refuse(why, name)
    if table.format_version == 1:
        _refuse("it has format version 1, which has no deletes; upgrade it to version 2", name)
    modes = UPSERT_MODES if with_files else (DELETE_MODE,)
    mode = next((table.properties[one] for one in modes if one in table.properties), "merge-on-read")
    if mode == COPY_ON_WRITE:
        return COPY_ON_WRITE
    return VECTORS if table.format_version >= 3 else POSITIONS


def _refuse(why: str, where: str) -> NoReturn:
    raise UsageError(f"no rows can be deleted from this table: {why}; delete them with its own engine", where)


def commit_change(place: str, planned: TableCommit, files: Sequence[NewFile], look: Look) -> Change | None:
    """Delete rows and add files in one commit; None where this commit is done already. `look` is called in each
    attempt, and the commit asserts that the table is at the version that it saw. Errors as in
    `lake_append.commit_to_table`."""
    name = planned.name
    for _ in attempts(name):
        table = load_table(place, name, None)
        if last_number(table, name, planned.uuid, planned.writer) >= planned.number:
            return None
        found = look()
        if not _is_of(table, found):
            table = load_table(place, name, None)
            if last_number(table, name, planned.uuid, planned.writer) >= planned.number or not _is_of(table, found):
                continue
        try:
            way = _way(table, name, bool(files))
            added = data_files(table, name, files) if files else []
        except UsageError as error:
            raise changed(error.what, name) from None
        attempt = _Attempt(table, planned, found, way)
        with closing(table.catalog):
            prepared = _prepared(attempt, added)
            try:
                is_done = conclude(prepared, planned, place, _commit)
            except TableChanged:
                attempt.discard()
                raise
        if is_done:
            return attempt.change(prepared)
        if is_done is False:
            attempt.discard()
    raise AssertionError("attempts() raises the error of the last one")


def _prepared(attempt: "_Attempt", added: Sequence[FileEntry]) -> Prepared:
    """The commit of an attempt. Its files are removed again where one cannot be written."""
    try:
        return attempt.prepare(added)
    except Exception as error:
        attempt.discard()
        if isinstance(error, (UsageError, UnsupportedFormat)):
            raise changed(error.what, error.path or attempt.planned.name) from None
        raise


def _commit(prepared: Prepared) -> None:
    prepared.send()


def _is_of(table: Table, found: Deleted) -> bool:
    """Whether rows were found at the version of the table. Its metadata file may differ: a property may be new."""
    return version_of(table, table.current_snapshot())[:2] == found.version[:2]


def clear_attempts(place: str, planned: TableCommit) -> None:
    """Remove the files of attempts that did not commit. Nothing is removed unless the commit is in the table and its
    snapshot, which names the attempt that did commit, is known."""
    table = load_table(place, planned.name, None)
    if last_number(table, planned.name, planned.uuid, planned.writer) < planned.number:
        return
    named = f"{planned.writer}/{planned.number}"
    summaries = [one.summary.additional_properties for one in table.snapshots() if one.summary is not None]
    kept = {one.get(ATTEMPT) for one in summaries if one.get(APPEND) == named}
    if not kept or None in kept:
        return
    storage, folder = storage_at(table.location_provider().data_path, planned.name), _folder(planned)
    tokens = {info.path.removeprefix(f"{folder}/").partition("/")[0] for info in storage.list(folder, hidden=True)}
    for token in sorted(tokens - kept):
        storage.delete_folder(f"{folder}/{token}")


def _folder(planned: TableCommit) -> str:
    """The folder of all attempts of a commit, below the folder of data."""
    return f"gnomon-{hashlib.sha256(planned.writer.encode()).hexdigest()[:16]}-{planned.number}"


# -- an attempt --------------------------------------------------------------------------------------------------------


_Hit = tuple[ContentFile, BitMap64]
"""A data file, and rows of it, numbered as in pointers."""


@dataclass
class _Attempt:
    """One attempt of a commit. `found` has the rows to delete, at the version of `table`."""

    table: Table
    planned: TableCommit
    found: Deleted
    way: str
    token: str = field(default_factory=lambda: secrets.token_hex(8))
    rows: int = 0  # deleted
    files: int = 0  # that had them
    size: int = 0  # bytes written beside the metadata

    @cached_property
    def _data(self) -> str:
        """The location of the folder of data."""
        return str(self.table.location_provider().data_path)

    @cached_property
    def _storage(self) -> Storage:
        return storage_at(self._data, self.planned.name)

    @cached_property
    def _paths(self) -> Paths:
        location = self.table.metadata.location
        return Paths(storage_at(location).root, location)

    def discard(self) -> None:
        """Remove the files of this attempt, as far as the store lets it, after a commit that failed for certain."""
        with suppress(Exception):
            self._storage.delete_folder(f"{_folder(self.planned)}/{self.token}")

    def change(self, prepared: Prepared) -> Change:
        return Change(self.rows, self.files, self.size + prepared.bytes, self.way)

    def prepare(self, new: Sequence[FileEntry]) -> Prepared:
        """Write all files of the attempt."""
        if not self.found.rows and not self.found.dropped:
            return prepare(self.table, self.planned, self.token, new)
        head = self.table.current_snapshot()
        specs, name = self.table.specs(), self.planned.name
        live, reader = LiveFiles([], Deletes([], specs)), ManifestReader(MANIFEST_BYTES, self.table.io)
        if head is not None:
            live = reader.live_files(head.manifest_list, specs, name)
        hits = self._hits(live)
        removed = self._dropped(live.deletes)
        if self.way == POSITIONS:
            added = self._position_deletes(hits)
        else:
            hits = self._with_older(hits, live)
            removed |= {one for data, _ in hits for one in _only_of(data, live.deletes)}
            if self.way == COPY_ON_WRITE:
                removed |= {Removed(DATA, data.path) for data, _ in hits}
                added = self._rewritten(hits)
            else:
                added = self._vectors(hits)
        self.size = sum({one.record["file_path"]: one.record["file_size_in_bytes"] for one in added}.values())
        is_replaced = bool(self.found.dropped) and not new
        has_data = any(one.record["content"] == DATA for one in (*new, *added))
        operation = Operation.REPLACE if is_replaced else Operation.OVERWRITE if has_data else Operation.DELETE
        return prepare(self.table, self.planned, self.token, [*new, *added], removed, operation, reader)

    def _hits(self, live: LiveFiles) -> list[_Hit]:
        """The data files with rows to delete, in the order of their paths. SourceError where the version has not each
        of them once."""
        wanted = {path: rows for path, rows in self.found.rows.items() if len(rows)}
        hits: dict[str, _Hit] = {}
        for data in live.data:
            path = self._paths.path(data.path)
            if path not in wanted:
                continue
            if path in hits:
                raise SourceError("rows to delete in a data file that the table's version lists twice", data.path)
            if data.key_metadata is not None:
                _refuse("this data file is encrypted", data.path)
            hits[path] = data, wanted[path]
        if lost := sorted(wanted.keys() - hits.keys()):
            raise SourceError("rows to delete in a data file that the table's version does not have", lost[0])
        self.rows, self.files = sum(len(rows) for _, rows in hits.values()), len(hits)
        return [hits[path] for path in sorted(hits)]

    def _dropped(self, deletes: Deletes) -> set[Removed]:
        """The files of equality deletes that the rows replace."""
        known = {one.path for one in deletes.files if one.content == EQUALITY_DELETES}
        if lost := sorted(self.found.dropped - known):
            raise SourceError("a file of equality deletes that the table's version does not have", lost[0])
        return {Removed(DELETES, location) for location in self.found.dropped}

    def _with_older(self, hits: Sequence[_Hit], live: LiveFiles) -> list[_Hit]:
        """The data files with all their deleted rows, also those of deletion vectors and position deletes before."""
        of_hits = LiveFiles([Manifest(data for data, _ in hits)], live.deletes)
        older = deleted_rows(self.table.io, of_hits, self._paths, self.planned.name)
        both = [(data, rows, older.get(self._paths.path(data.path), BitMap64())) for data, rows in hits]
        self.rows = sum(len(rows - before) for _, rows, before in both)
        return [(data, rows | before) for data, rows, before in both]

    def _ordinals(self, data: ContentFile, rows: BitMap64) -> BitMap64:
        """The ordinals of rows in their file, from their numbers in pointers. SourceError for rows that it lacks."""
        numbers = np.array(rows.to_array(), np.int64)
        if data.format == AVRO:
            try:
                with source_storage(self._paths.root).open(self._paths.path(data.path)) as reader:
                    of_all = numbers_of_rows(reader, np.arange(data.records))
            except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
                raise SourceNotFound("gone, so that its rows cannot be deleted", data.path) from None
            found = np.searchsorted(of_all, numbers)
            is_known = np.isin(numbers, of_all)
        else:
            found, is_known = numbers, numbers < data.records
        if not is_known.all():
            what = f"a row of the {data.records:,} rows that the table has of this file"
            raise SourceError("rows to delete", data.path, expected=what, found=str(numbers[~is_known][0]))
        return BitMap64(found.astype(np.uint64))

    def _put(self, file: str, data: bytes) -> str:
        """Write a file of the attempt. Returns its location."""
        path = f"{_folder(self.planned)}/{self.token}/{file}"
        self._storage.put_new(path, [data])
        return f"{self._data}/{path}"

    def _entry(
        self, data: ContentFile, location: str, kind: str, size: int, sequence: int | None = None, **members: Any
    ) -> FileEntry:
        """The entry of a file of `size` bytes in the partition of a data file: deletes, if `members` do not differ."""
        record = {"content": POSITION_DELETES, "file_path": location, "file_format": kind, "file_size_in_bytes": size}
        partition = partition_values(partition_type(self.table, data.spec).fields, data.partition)
        return FileEntry(data.spec, partition, record | members, sequence)

    # -- position deletes

    def _position_deletes(self, hits: Sequence[_Hit]) -> list[FileEntry]:
        """Write the position deletes. A file has those of a partition, in the order of the data files' paths, up to
        POSITIONS_IN_FILE; if the table asks for it, those of one data file."""
        by_file = self.table.properties.get(GRANULARITY) == "file"
        partitions: dict[object, list[_Hit]] = {}
        for data, rows in sorted(hits, key=lambda hit: hit[0].path):
            partitions.setdefault((data.spec, comparable(data.partition)), []).append((data, rows))
        groups: list[list[_Hit]] = []
        for listed in partitions.values():
            count = POSITIONS_IN_FILE
            for data, rows in listed:
                if by_file or count + len(rows) > POSITIONS_IN_FILE:
                    groups.append([])
                    count = 0
                groups[-1].append((data, rows))
                count += len(rows)
        writes = [partial(self._deletes_of, place, group) for place, group in enumerate(groups)]
        return [self._entry(*found[:4], **found[4]) for found in in_order(writes, settled=True)]

    def _deletes_of(self, place: int, hits: Sequence[_Hit]) -> tuple[ContentFile, str, str, int, dict[str, Any]]:
        ordinals = {data.path: self._ordinals(data, rows) for data, rows in hits}
        paths = sorted(ordinals)
        lengths = [len(ordinals[path]) for path in paths]
        codes = pa.array(np.repeat(np.arange(len(paths), dtype=np.int32), lengths))
        positions = np.concatenate([np.array(ordinals[path].to_array(), np.int64) for path in paths])
        columns = [pa.DictionaryArray.from_arrays(codes, pa.array(paths)), pa.array(positions)]
        out = pa.BufferOutputStream()
        schema = DELETES_SCHEMA.set(0, DELETES_SCHEMA.field(0).with_type(columns[0].type))
        pq.write_table(pa.Table.from_arrays(columns, schema=schema), out, compression="zstd", store_schema=False)
        data = out.getvalue().to_pybytes()
        location = self._put(f"{place:05d}-deletes.parquet", data)
        low, high = (
            {FILE_PATH_ID: path.encode(), POSITION_ID: to_bytes(LongType(), int(position))}
            for path, position in ((paths[0], positions.min()), (paths[-1], positions.max()))
        )
        members = {
            "record_count": len(positions),
            "lower_bounds": as_pairs(low),
            "upper_bounds": as_pairs(high),
            "referenced_data_file": paths[0] if len(paths) == 1 else None,
        }
        return hits[0][0], location, "PARQUET", len(data), members

    # -- deletion vectors

    def _vectors(self, hits: Sequence[_Hit]) -> list[FileEntry]:
        """Write the deletion vectors, all to one Puffin file."""
        if not hits:
            return []
        ordinals = list(in_order([partial(self._ordinals, data, rows) for data, rows in hits]))
        blobs = [vector_of(rows) for rows in ordinals]
        offsets = [len(PUFFIN_MAGIC) + sum(map(len, blobs[:place])) for place in range(len(blobs))]
        described = [
            {
                "type": VECTOR_TYPE,
                "fields": [ROW_ID],
                "snapshot-id": -1,
                "sequence-number": -1,
                "offset": offset,
                "length": len(blob),
                "properties": {"referenced-data-file": data.path, "cardinality": str(len(rows))},
            }
            for (data, _), rows, blob, offset in zip(hits, ordinals, blobs, offsets, strict=True)
        ]
        footer = json.dumps({"blobs": described, "properties": {"created-by": "Gnomon"}}).encode()
        ending = [PUFFIN_MAGIC, footer, len(footer).to_bytes(4, "little"), bytes(4), PUFFIN_MAGIC]  # no flag is set
        content = b"".join([PUFFIN_MAGIC, *blobs, *ending])
        location = self._put(f"vectors.{PUFFIN}", content)
        return [
            self._entry(
                data,
                location,
                "PUFFIN",
                len(content),
                record_count=len(rows),
                referenced_data_file=data.path,
                content_offset=offset,
                content_size_in_bytes=len(blob),
            )
            for (data, _), rows, blob, offset in zip(hits, ordinals, blobs, offsets, strict=True)
        ]

    # -- copy-on-write

    def _rewritten(self, hits: Sequence[_Hit]) -> list[FileEntry]:
        """Write the data files anew without their deleted rows. A file without rows is left out."""
        for data, _ in hits:
            if data.format != PARQUET:
                _refuse(f"it asks for copy-on-write, and this data file has the format {data.format}", data.path)
        writes = [partial(self._without, place, data, rows) for place, (data, rows) in enumerate(hits)]
        written = in_order(writes, [data.size for data, _ in hits], settled=True)
        return [one for one in written if one is not None]

    def _without(self, place: int, data: ContentFile, rows: BitMap64) -> FileEntry | None:
        """A data file without some of its rows. It keeps its sequence number, so that the equality deletes of the old
        file apply to it."""
        gone = self._ordinals(data, rows)
        if len(gone) == data.records:
            return None
        source, path = source_storage(self._paths.root), self._paths.path(data.path)
        to = f"{_folder(self.planned)}/{self.token}/{place:05d}.parquet"
        more = partial(_with_lineage, data) if data.first_row_id is not None else None
        try:
            size = rewrite(source, path, self._storage, to, gone, more)
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            raise SourceNotFound("gone, so that its rows cannot be deleted", data.path) from None
        statistics = self._statistics(to)
        return self._entry(
            data,
            f"{self._data}/{to}",
            "PARQUET",
            size,
            data.sequence,
            content=DATA,
            sort_order_id=data.sort_order_id,
            **{"record_count": data.records - len(gone), **statistics},
        )

    def _statistics(self, path: str) -> dict[str, Any]:
        """The statistics of a rewritten file; none if a column is not as in the table's schema, as in older files."""
        with self._storage.open(path) as reader:
            try:
                known = {one.name: shape_of(one) for one in new_fields(self.table.schema(), self.planned.name)}
            except UsageError:
                return {}
            schema = open_source(reader, "parquet", {}).schema
            if any(known.get(one.name) != shape_of(one) for one in schema if one.name not in LINEAGE):
                return {}
            return statistics_of(self.table, pq.ParquetFile(RangeFile(reader)).metadata)


def _with_lineage(data: ContentFile, rows: pa.Table, first: int) -> pa.Table:
    """Rows of a data file with their ids, and the sequence numbers of the commits that changed them last."""
    ids = pa.array(np.arange(first, first + rows.num_rows) + data.first_row_id)
    for (name, number), values in zip(LINEAGE.items(), (ids, pa.repeat(data.sequence, rows.num_rows)), strict=True):
        values, at = values.cast(pa.int64()), rows.schema.get_field_index(name)
        if at >= 0:
            rows = rows.set_column(at, rows.schema.field(at), pc.coalesce(rows.column(at), values))
        else:
            rows = rows.append_column(pa.field(name, pa.int64(), True, {FIELD_ID: str(number)}), values)
    return rows


def vector_of(rows: BitMap64) -> bytes:
    """A deletion vector, as `iceberg_deletes.deletion_vector` reads it."""
    content = VECTOR_MAGIC + rows.serialize()
    return len(content).to_bytes(4, "big") + content + zlib.crc32(content).to_bytes(4, "big")


def _only_of(data: ContentFile, deletes: Deletes) -> Iterator[Removed]:
    """The deletion vector and the position deletes that delete rows of this data file alone."""
    for one in deletes.of(data):
        if one.content == POSITION_DELETES and (one.format == PUFFIN or only_file(one) == data.path):
            yield Removed(DELETES, one.path, one.content_offset)
