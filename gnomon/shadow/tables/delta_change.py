"""Deletes rows of Delta Lake tables, and adds files in the same commit. The entry of the log is written here, since
deltalake writes no deletion vectors.

A planned commit has one folder, `gnomon<hash of the writer>n<number>`, for the files that its attempts write: for each
attempt, named by a UUID, `deletion_vector_<UUID>.bin`, or `<UUID>/<partition folders>/<n>.parquet` where the table has
no vectors and files are rewritten."""

import datetime as dt
import json
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from hashlib import blake2b
from typing import Any, NamedTuple
from urllib.parse import quote, unquote
from uuid import UUID, uuid4

import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake import __version__ as deltalake_version
from pyroaring import BitMap64

from gnomon.base.errors import Action
from gnomon.base.readers import RangeFile
from gnomon.shadow.errors import AlreadyExists, StorageError, TableChanged, UsageError
from gnomon.shadow.storage import Storage, in_order, join, source_storage, storage_at
from gnomon.shadow.tables.delta import version_of
from gnomon.shadow.tables.delta_append import (
    EXPIRY,
    check_store,
    new_entries,
    number_of,
    open_to_commit,
)
from gnomon.shadow.tables.delta_append import FEATURES as DELTALAKE_FEATURES
from gnomon.shadow.tables.delta_log import (
    Entry,
    log_file,
    read_adds,
    read_commit,
    read_vectors,
    records_of,
    vector_file,
    vector_path,
    with_wide_bounds,
)
from gnomon.shadow.tables.lake_append import Change, Deleted, Look, NewFile, TableCommit, attempts, changed, outcome
from gnomon.shadow.tables.rewritten import rewrite
from gnomon.sources import open_source

VECTORS, REWRITTEN = "deletion vectors", "copy-on-write"
# The writer features of tables of which rows are deleted: a delete has to keep nothing for them, or what it keeps here.
FEATURES = DELTALAKE_FEATURES | {
    "allowColumnDefaults",
    "clustering",
    "domainMetadata",
    "identityColumns",
    "inCommitTimestamp",
    "rowTracking",
    "typeWidening",
    "vacuumProtocolCheck",
}
REFUSED = {
    "delta.appendOnly": "it takes no deletes",
    "delta.enableChangeDataFeed": "its writers must write change files, which is not done here",
}
LATEST_WRITER = 7  # of the protocol
INTERVAL, USUAL_INTERVAL = "delta.checkpointInterval", "100"
APPEND, ATTEMPT = "gnomon.append", "gnomon.attempt"  # members of a commitInfo
LOOKED_BACK = 1000  # versions
LONGEST_BOUND = 32  # characters of a text in the statistics
BOUNDED = {"byte": int, "short": int, "integer": int, "long": int, "date": dt.date, "string": str}


def check_deletes(place: str) -> str:
    """The way in which rows are deleted from a table: "deletion vectors" or "copy-on-write". UsageError, with the
    reason, for a table of which Gnomon deletes no rows."""
    name = f"delta:{place}"
    check_store(place)
    return _way(open_to_commit(place, name), name)


def _way(table: DeltaTable, name: str) -> str:
    protocol, properties = table.protocol(), table.metadata().configuration
    features = set(protocol.writer_features or ())
    if unknown := sorted(features - FEATURES):
        _refuse(f"its writers must know {', '.join(unknown)}", name)
    if protocol.min_writer_version > LATEST_WRITER:
        _refuse(f"its writers must know version {protocol.min_writer_version} of the protocol", name)
    for key, why in REFUSED.items():
        if _is_true(properties, key):
            _refuse(f"{why} ({key} is true)", name)
    if EXPIRY in properties:
        _refuse(f"it forgets which commits it has, so that one could be done twice ({EXPIRY} is set)", name)
    known = features & set(protocol.reader_features or ())
    if "deletionVectors" in known and _is_true(properties, "delta.enableDeletionVectors"):
        return VECTORS
    if "rowTracking" in features:
        _refuse("it tracks its rows (rowTracking), and has no deletion vectors, so that files must be rewritten", name)
    return REWRITTEN


def _refuse(why: str, name: str) -> None:
    raise UsageError(f"no rows can be deleted from this table: {why}; write to it with its own engine", name)


def _is_true(properties: Mapping[str, str | None], key: str) -> bool:
    return (properties.get(key) or "").lower() == "true"


def commit_change(place: str, planned: TableCommit, files: Sequence[NewFile], look: Look) -> Change | None:
    """Delete the rows that `look` finds, and add `files`, in one commit; None where this commit is done already.
    Several programs may call this at the same time. Errors as `lake_append.commit_to_table`; SourceError for a file
    that cannot be rewritten without a loss; those of `look`."""
    name, storage = planned.name, storage_at(place)
    check_store(place)
    for _ in attempts(name):
        opened = _opened(place, planned)
        if opened is None:
            return None
        found = look()
        if found.version[:2] != version_of(opened, storage)[:2]:
            opened = _opened(place, planned)
            if opened is None:
                return None
            if found.version[:2] != version_of(opened, storage)[:2]:
                continue
        try:
            way = _way(opened, name)
            entries = new_entries(opened, place, name, files) if files else []
        except UsageError as error:
            raise changed(error.what, name) from None
        attempt = _Attempt(storage, planned, opened, way, uuid4())
        try:
            actions, change = attempt.write(found, entries)
        except BaseException:
            attempt.remove()
            raise
        version = opened.version() + 1
        try:
            storage.put_new(log_file(version), [f"{_json(action)}\n".encode() for action in actions])
        except AlreadyExists:
            attempt.remove()
            continue
        except Exception as error:
            failed = outcome(planned, lambda: number_of(open_to_commit(place, name), *_of(place, planned)), error)
            if failed is not None:
                raise failed from error
            if (token := _token(storage, version, planned)) != attempt.token:  # another program did it
                if token is not None:
                    attempt.remove()
                return None
        _write_checkpoint(place, name, version)
        return change
    raise AssertionError("attempts end with an error")


def _of(place: str, planned: TableCommit) -> tuple[str, str, str]:
    return place, planned.uuid, planned.writer


def _opened(place: str, planned: TableCommit) -> DeltaTable | None:
    """The table at its newest version; None where the planned commit is done."""
    table = open_to_commit(place, planned.name)
    return None if number_of(table, *_of(place, planned)) >= planned.number else table


def clear_attempts(place: str, planned: TableCommit) -> None:
    """Remove the files of attempts that lost or died, of a planned commit that is in the table. Nothing is removed
    where the commit is not found in the last LOOKED_BACK versions."""
    storage, folder = storage_at(place), _folder(planned)
    paths = [info.path for info in storage.list(folder, hidden=True)]
    if not paths:
        return
    table = open_to_commit(place, planned.name)
    token = None
    with suppress(TableChanged, StorageError):  # StorageError: the log has lost the version
        if number_of(table, *_of(place, planned)) >= planned.number:
            token = _token(storage, table.version(), planned, LOOKED_BACK)
    if token is not None:
        for path in paths:
            if path != vector_path(folder, token) and not path.startswith(f"{folder}/{token}/"):
                storage.delete(path)
        storage.delete_empty(folder)


def _folder(planned: TableCommit) -> str:
    """The folder of a planned commit's files below the root. Its name has letters and digits only."""
    return f"gnomon{blake2b(planned.writer.encode(), digest_size=8).hexdigest()}n{planned.number}"


def _token(storage: Storage, version: int, planned: TableCommit, versions: int = 1) -> UUID | None:
    """The attempt that a planned commit names, among some versions up to this one; None where it is not found.
    StorageError where a version cannot be read."""
    numbers = range(version, max(version - versions, -1), -1)
    for actions in in_order([partial(read_commit, storage, number) for number in numbers]):
        for info in (action["commitInfo"] for action in actions if action.get("commitInfo")):
            if info.get(APPEND) == _mark(planned):
                return UUID(info[ATTEMPT]) if ATTEMPT in info else None
    return None


def _mark(planned: TableCommit) -> str:
    return f"{planned.writer}/{planned.number}"


def _json(action: Mapping[str, Any]) -> str:
    return json.dumps(action, separators=(",", ":"))


class _Hit(NamedTuple):
    """A file with rows to delete: its path, its entry, all rows that are deleted then, and how many of them are new."""

    path: str
    add: Entry
    rows: BitMap64
    fresh: int


class _Attempt:
    """One attempt of a commit: its files, and the entries of the log."""

    def __init__(self, storage: Storage, planned: TableCommit, table: DeltaTable, way: str, token: UUID) -> None:
        self.token = token
        self._storage, self._planned, self._table, self._way = storage, planned, table, way
        self._sources, self._folder = source_storage(storage.root), _folder(planned)
        self._now = time.time_ns() // 1_000_000
        fields = json.loads(table.schema().to_json())["fields"]
        self._types = {  # by the name in files
            field.get("metadata", {}).get("delta.columnMapping.physicalName", field["name"]): field["type"]
            for field in fields
        }

    def write(self, found: Deleted, entries: Sequence[Entry]) -> tuple[list[dict[str, Entry]], Change]:
        """Write the files that the commit needs. Returns its actions."""
        hits = self._hits({path: rows for path, rows in found.rows.items() if rows})
        replaced, written = self._with_vectors(hits) if self._way == VECTORS else self._rewritten(hits)
        actions: list[dict[str, Entry]] = []
        for hit, add in zip(hits, replaced, strict=True):
            actions.append({"remove": self._removed(hit.add)})
            if add is not None:
                actions.append({"add": add})
        actions += [{"add": {**entry, "path": quote(entry["path"], safe="/=")}} for entry in entries]
        planned, rows = self._planned, sum(hit.fresh for hit in hits)
        txn = {"appId": planned.writer, "version": planned.number, "lastUpdated": self._now}
        info = self._info(hits, replaced, entries, written)
        return [{"commitInfo": info}, {"txn": txn}, *actions], Change(rows, len(hits), written, self._way)

    def remove(self) -> None:
        """Remove the files of this attempt. What the store does not let go is left to `clear_attempts`."""
        with suppress(StorageError):
            self._storage.delete(vector_path(self._folder, self.token))
            self._storage.delete_folder(f"{self._folder}/{self.token}")
            self._storage.delete_empty(self._folder)

    def _hits(self, found: Mapping[str, BitMap64]) -> list[_Hit]:
        adds = read_adds(self._storage, self._table.version(), found)
        old, hits = read_vectors(self._storage, adds), []
        for path in sorted(found):
            before = old.get(path, BitMap64())
            rows = before | found[path]
            if len(rows) > len(before):
                hits.append(_Hit(path, adds[path], rows, len(rows) - len(before)))
        return hits

    def _with_vectors(self, hits: Sequence[_Hit]) -> tuple[list[Entry | None], int]:
        """The entry of each file with its new vector, None for a file of which no row stays; the bytes written."""
        counts = list(in_order([partial(self._count, hit) for hit in hits]))
        kept = [hit for hit, count in zip(hits, counts, strict=True) if len(hit.rows) < count]
        if not kept:
            return [None] * len(hits), 0
        file = vector_file(self._folder, self.token, (hit.rows for hit in kept))
        self._storage.put_new(file.path, file.chunks)
        descriptors = iter(file.descriptors)
        replaced = [
            {
                **hit.add,
                "dataChange": True,
                "stats": with_wide_bounds(hit.add.get("stats"), count),
                "deletionVector": next(descriptors),
            }
            if len(hit.rows) < count
            else None
            for hit, count in zip(hits, counts, strict=True)
        ]
        return replaced, sum(map(len, file.chunks))

    def _count(self, hit: _Hit) -> int:
        """The rows of a file with the deleted ones. The file itself is asked where no row would stay, or the table does
        not say."""
        count = records_of(hit.add)
        if count is None or len(hit.rows) >= count:
            count = self._count_in_file(hit.path)
        self._check_rows(hit, count)
        return count

    def _count_in_file(self, path: str) -> int:
        try:
            with self._sources.open(path) as reader:
                return open_source(reader, "parquet").rows or 0
        except FileNotFoundError:
            where = join(self._storage.root, path)
            raise StorageError("this data file of the table is gone", where, action=Action.RESTORE_OR_REPAIR) from None

    def _check_rows(self, hit: _Hit, count: int) -> None:
        if hit.rows.max() >= count:
            raise StorageError(
                "rows to delete that are not in this file",
                join(self._storage.root, hit.path),
                expected=f"ordinals below {count}",
                found=hit.rows.max(),
                action=Action.RUN_AGAIN_OR_REPAIR,
            )

    def _rewritten(self, hits: Sequence[_Hit]) -> tuple[list[Entry | None], int]:
        """As `_with_vectors`, where each file is written again without its deleted rows."""
        calls = [partial(self._rewrite, number, hit) for number, hit in enumerate(hits)]
        replaced = list(in_order(calls, [hit.add["size"] for hit in hits], settled=True))
        return replaced, sum(add["size"] for add in replaced if add is not None)

    def _rewrite(self, number: int, hit: _Hit) -> Entry | None:
        count = self._count_in_file(hit.path)
        self._check_rows(hit, count)
        if len(hit.rows) == count:
            return None
        # Readers may take the values of partitions from the names of the last folders.
        values = hit.add["partitionValues"]
        folders = [part for part in hit.add["path"].split("/")[:-1] if "=" in part][-len(values) :] if values else []
        path = "/".join([self._folder, str(self.token), *folders, f"{number}.parquet"])
        size = rewrite(self._sources, hit.path, self._storage, unquote(path), hit.rows)
        return {
            "path": path,
            "partitionValues": values,
            "size": size,
            "modificationTime": self._now,
            "dataChange": True,
            "stats": self._stats(unquote(path), hit.add.get("stats")),
        }

    def _stats(self, path: str, old: str | None) -> str:
        """The statistics of a rewritten file, from its footer, of the columns that the old ones have. Bounds are only
        of types whose order and text are certain, and of short texts."""
        known = json.loads(old or "{}")
        wanted = {name for key in ("minValues", "maxValues", "nullCount") for name in known.get(key) or ()}
        with self._storage.open(path) as reader:
            footer = pq.ParquetFile(RangeFile(reader)).metadata
        stats: dict[str, Any] = {"numRecords": footer.num_rows, "minValues": {}, "maxValues": {}, "nullCount": {}}
        for place in range(footer.num_columns):
            name = footer.schema.column(place).path
            chunks = [footer.row_group(group).column(place).statistics for group in range(footer.num_row_groups)]
            is_flat = footer.schema.column(place).name == name and isinstance(self._types.get(name), str)
            if name not in wanted or not is_flat or not all(chunks):
                continue
            if all(chunk.has_null_count for chunk in chunks):
                stats["nullCount"][name] = sum(chunk.null_count for chunk in chunks)
            bounds = _bounds(chunks, BOUNDED.get(self._types[name]))
            if bounds is not None:
                stats["minValues"][name], stats["maxValues"][name] = bounds
        return _json(stats)

    def _removed(self, add: Entry) -> Entry:
        kept = ("partitionValues", "size", "tags", "deletionVector", "baseRowId", "defaultRowCommitVersion")
        return {
            "path": add["path"],
            "deletionTimestamp": self._now,
            "dataChange": True,
            "extendedFileMetadata": True,
            **{member: add[member] for member in kept if add.get(member) is not None},
        }

    def _info(
        self, hits: Sequence[_Hit], replaced: Sequence[Entry | None], entries: Sequence[Entry], written: int
    ) -> Entry:
        """The commitInfo."""
        version, planned = self._table.version(), self._planned
        vectors = sum("deletionVector" in add for add in replaced if add is not None)
        old = sum(bool(hit.add.get("deletionVector")) for hit in hits)
        metrics = {
            "numDeletedRows": sum(hit.fresh for hit in hits),
            "numAddedFiles": len(entries) + sum(add is not None for add in replaced) - vectors,
            "numRemovedFiles": len(hits) - vectors,
            "numAddedBytes": written + sum(entry["size"] for entry in entries),
            "numDeletionVectorsAdded": vectors,
            "numDeletionVectorsRemoved": old,
        }
        info: Entry = {}
        if _is_true(self._table.metadata().configuration, "delta.enableInCommitTimestamps"):
            before = [one["commitInfo"] for one in read_commit(self._storage, version) if one.get("commitInfo")]
            info["inCommitTimestamp"] = max(self._now, 1 + max((one.get("inCommitTimestamp") or 0) for one in before))
        return {
            **info,
            "timestamp": self._now,
            "operation": "MERGE" if entries else "DELETE",
            "operationParameters": {"predicate": "[]"},
            "operationMetrics": {key: str(number) for key, number in metrics.items()},
            "engineInfo": f"gnomon (deltalake {deltalake_version})",
            "txnId": str(uuid4()),
            "readVersion": version,
            "isBlindAppend": False,
            APPEND: _mark(planned),
            ATTEMPT: str(self.token),
        }


def _bounds(chunks: Sequence[Any], kind: type | None) -> tuple[Any, Any] | None:
    """The least and the greatest value of a column by the statistics of its chunks; None where they are not certain."""
    if kind is None or not chunks or not all(chunk.has_min_max for chunk in chunks):
        return None
    values = [value for chunk in chunks for value in (chunk.min, chunk.max)]
    if not all(type(value) is kind for value in values):
        return None
    if kind is str:
        if any(len(value) > LONGEST_BOUND for value in values):
            return None
        return min(values, key=str.encode), max(values, key=str.encode)
    low, high = min(values), max(values)
    return (low.isoformat(), high.isoformat()) if kind is dt.date else (low, high)


def _write_checkpoint(place: str, name: str, version: int) -> None:
    """Write a checkpoint where the table wants one at this version. A table without one is read more slowly, and the
    next writer makes it, so that errors count for nothing."""
    with suppress(Exception):
        table = open_to_commit(place, name)
        interval = int(table.metadata().configuration.get(INTERVAL) or USUAL_INTERVAL)
        known = set(table.protocol().writer_features or ()) <= DELTALAKE_FEATURES
        if version % interval == 0 and known and table.version() == version:
            table.create_checkpoint()
