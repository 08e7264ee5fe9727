"""Answers as of the newest version of a lake table, by an index that covers an older one.

The files that the table added since are indexed in memory, the files that it removed are left out, and the rows that it
deleted are masked. The work is bounded: an index that is too far behind is an error, never a part of an answer."""

import os
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

import pyarrow as pa

from gnomon.base.errors import Action
from gnomon.base.later import Later
from gnomon.base.readers import MemoryFile
from gnomon.shadow.errors import IndexBehind, StalePointer, UsageError
from gnomon.shadow.fetch import Fetcher
from gnomon.shadow.metadata import (
    IndexSpec,
    KeyColumn,
    Segment,
    SourceFileEntry,
    SourceRoot,
    View,
    diff,
    rows_by_partition,
)
from gnomon.shadow.storage import ANY_TIME, NO_INODE, FileInfo, OpenFile, ReadStats, Storage, join, source_storage
from gnomon.shadow.tables import LakeContent, LakeSource, TableVersion, check_constants
from gnomon.sources import open_source
from gnomon.sources.nested import WrongPath
from gnomon.sources.types import parse_ddl

if TYPE_CHECKING:
    from gnomon.shadow import maintenance, write
else:  # of an index behind its table alone
    maintenance, write = Later("gnomon.shadow.maintenance"), Later("gnomon.shadow.write")

NEWEST = "newest-"  # the beginning of the ids of segments in memory
KEPT = 2  # versions whose index files stay in memory
FETCHER_BYTES = 16 << 20  # for metadata of files that are indexed in memory


@dataclass(frozen=True)
class ReadThroughLimits:
    """How far the index may be behind the table: added files, and their rows."""

    files: int = 1_000
    rows: int = 1_000_000


class LayeredStorage:
    """The storage of an index, with index files of newer versions in memory."""

    def __init__(self, below: Storage) -> None:
        self._below = below
        self.files: dict[str, bytes] = {}

    def __getattr__(self, name: str) -> object:
        return getattr(self._below, name)

    @property
    def root(self) -> str:
        return self._below.root

    @property
    def is_remote(self) -> bool:
        return self._below.is_remote

    def open(self, path: str, stats: ReadStats | None = None, known: FileInfo | None = None) -> OpenFile:
        data = self.files.get(path)
        return self._below.open(path, stats, known) if data is None else _MemoryFile(data, path)

    def read(self, path: str) -> bytes:
        data = self.files.get(path)
        return self._below.read(path) if data is None else data

    def put_new(self, path: str, chunks: Iterable[bytes]) -> None:
        """Put a file into memory. Look-ups never write to the storage of the index."""
        self.files[path] = b"".join(chunks)


class _MemoryFile(MemoryFile):
    """A file in memory, with the interface of an open file of a storage."""

    mtime_ns, etag, ctime_ns, inode = ANY_TIME, "", 0, NO_INODE

    def close(self) -> None:
        """Close nothing."""

    def __enter__(self) -> "_MemoryFile":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def check_has_versions(view: View, where: str) -> None:
    """Raise UsageError for an index whose source has no versions, so that its newest one could not be read."""
    if view.snapshot.table is None:
        raise UsageError(
            f"newest: {view.spec.source.name or 'a key-value folder'} has no versions, as a Delta or Iceberg table has",
            where,
            action=Action.BUILD_FOR_NEW_FILES,
        )


class NewestVersion:
    """The newest version of the table of an index. Threads may share it.

    Each call reads the table's newest version, which is one small read. Calls that come during a read wait for the
    next one together: an answer is never older than its question."""

    def __init__(self, storage: LayeredStorage, limits: ReadThroughLimits) -> None:
        self._storage = storage
        self._limits = limits
        self._lock = threading.Lock()
        self._read_at = float("-inf")  # when the last read began
        self._newest: TableVersion | None = None
        self._made: dict[tuple[str, TableVersion], View] = {}

    def view(self, base: View) -> View:
        """The view of the newest version; `base` itself if it covers that version. IndexBehind where the index is too
        far behind, or does not fit the table any more; SourceNotFound and StorageError as in `LakeSource.content`."""
        known = base.snapshot.table
        if known is None:
            return base
        asked = time.monotonic()
        with self._lock:
            if self._newest is None or self._read_at < asked:
                began = time.monotonic()
                self._newest = LakeSource(base.spec.source.table).newest(known)
                self._read_at = began
            if self._newest == known:
                return base
            key = (base.snapshot.commit_id, self._newest)
            if key not in self._made:
                try:
                    self._made[key] = self._view(base, self._newest)
                except UsageError as error:  # a build would refuse this table, too
                    raise IndexBehind(str(error), action=Action.BUILD_AGAIN) from None
                self._forget()
            return self._made[key]

    def _forget(self) -> None:
        """Drop the index files of older versions."""
        while len(self._made) > KEPT:
            del self._made[next(iter(self._made))]
        needed = {
            path
            for view in self._made.values()
            for segment in view.segments
            for file in segment.index_files
            for path in (file.path, file.filter.path if file.filter is not None else "")
        }
        self._storage.files = {path: data for path, data in self._storage.files.items() if path in needed}

    def _view(self, base: View, newest: TableVersion) -> View:
        # Without the version: with the table's current columns.
        table = LakeSource(base.spec.source.table, newest._replace(version=""), base.spec.partitions)
        content = table.content
        spec = _spec_at(base.spec, base.snapshot.table, content)
        root = SourceRoot(source_storage(content.root), table)
        difference = diff(root.list(), base.segments, table)
        self._check(base, content, len(difference.to_index), "files", self._limits.files)
        fetcher = Fetcher(root.storage, spec, FETCHER_BYTES)
        added = [_entry(root, spec, info, content) for info in difference.to_index]
        self._check(base, content, sum(file.rows for file in added), "rows", self._limits.rows)
        segment_id = f"{NEWEST}{os.urandom(8).hex()}"
        names = [column.name for column in (*spec.stored_keys, *spec.include)]

        def scan(file: SourceFileEntry) -> Iterator[list[pa.Array]]:
            return write.stored_columns(spec, fetcher.scan(file, names), join(root.location, file.path))

        written, rows = write.index_locally(cast(Storage, self._storage), spec, segment_id, scan, added)
        older = difference.applied_to(base.segments)
        covered = [replace(file, rows=count) for file, count in zip(added, rows, strict=True)]
        ours = Segment(segment_id, tuple(written), tuple(covered))
        masks = maintenance.masks_at(cast(Storage, self._storage), spec, [*older, ours], content)
        segments = tuple(replace(one, masks=masks) for one in (*older, ours) if one.live)
        snapshot = replace(
            base.snapshot,
            spec=spec,
            table=content.version,
            partitions=rows_by_partition(segments, masks),
            columns={field.name: str(field.type) for field in parse_ddl(spec.schema)},
        )
        return View(snapshot, segments)

    def _check(self, base: View, content: LakeContent, count: int, unit: str, most: int) -> None:
        if count > most:
            covered = base.snapshot.table.version if base.snapshot.table is not None else "none"
            raise IndexBehind(
                f"snapshot {base.snapshot.number} covers version {covered} of the table, and version "
                f"{content.version.version} has {count:,} {unit} more; at most {most:,} are read without an index",
                base.spec.source.table,
                action=Action.BUILD_AGAIN,
            )


def read_through(view: View) -> Segment | None:
    """The segment in memory that a view of a newer version has; None if it has none."""
    return next((segment for segment in view.segments if segment.id.startswith(NEWEST)), None)


def _entry(root: SourceRoot, spec: IndexSpec, info: FileInfo, content: LakeContent) -> SourceFileEntry:
    """The entry of a file. The rows of an Avro file are an estimate: only a scan counts them."""
    try:
        with root.storage.open(info.path, known=info) as reader:
            source = open_source(reader, spec.format, spec.read_options)
    except (FileNotFoundError, NotADirectoryError):
        what, where = "gone, though the table's metadata names it", join(root.location, info.path)
        raise StalePointer(what, where, action=Action.RESTORE_OR_REPAIR) from None
    check_constants(content, info.path, source.schema.names)
    partition = root.partition_of(info.path, bool(spec.partitions))
    rows = source.rows if source.rows is not None else info.size // source.row_bytes
    return SourceFileEntry(info.path, partition, rows, info.size, info.mtime_ns, source.digest, info.etag)


def _spec_at(spec: IndexSpec, known: TableVersion | None, content: LakeContent) -> IndexSpec:
    """The spec with the columns of a version. IndexBehind where the entries of the index do not fit the table any
    more."""
    columns = parse_ddl(content.columns)
    before = parse_ddl(spec.schema)
    indexed = (*spec.stored_keys, *spec.include)
    changed = [column.name for column in indexed if _kind(column, columns) != _kind(column, before)]
    if known is None or content.version.uuid != known.uuid:
        raise IndexBehind("another table is there now", spec.source.table, action=Action.BUILD_FULL_OR_ELSEWHERE)
    if changed:
        raise IndexBehind(
            "its columns changed since it was indexed",
            spec.source.table,
            column=", ".join(changed),
            action=Action.BUILD_ELSEWHERE,
        )
    lost = [name for name in spec.partitions if name not in content.types and name in columns.names]
    if lost:
        raise IndexBehind(
            "the table is not partitioned by it any more, so that the index has to be built first",
            spec.source.table,
            column=", ".join(lost),
            action=Action.BUILD_AGAIN,
        )
    if dict(content.types) != dict(spec.partition_types):
        raise IndexBehind(
            "its partition columns changed since it was indexed",
            spec.source.table,
            action=Action.BUILD_FULL_OR_ELSEWHERE,
        )
    return replace(spec, schema=content.columns)


def _kind(column: KeyColumn, columns: pa.Schema) -> tuple[object, ...]:
    """The type of an indexed column in a table with these columns, and what tells it in files; None where it has no
    such column."""
    try:
        field = column.field_in(columns)
    except WrongPath:
        field = None
    return (None if field is None else field.type), column.origin_in(columns)
