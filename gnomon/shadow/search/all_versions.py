"""Every row of some keys in all versions of a lake table: the rows that are live, and the deleted rows whose bytes are
still in a data file.

The index answers for the files that its kept snapshots cover, live or not. Other files of the table's versions are
scanned, one at a time. Then the deletes of each version say when a row was live."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from pyroaring import BitMap

from gnomon.btree.blocks import LookupStats
from gnomon.btree.key_types import key_type
from gnomon.btree.keys import key_array, stored_array
from gnomon.shadow.errors import (
    OF_ONE_FILE,
    DamagedMetadata,
    NewerFormat,
    ShadowError,
    SnapshotNotFound,
    SourceError,
    SourceNotFound,
    StorageError,
    UsageError,
)
from gnomon.shadow.lookup import Lookup, ParsedKey, Search, parse_key
from gnomon.shadow.metadata import (
    IndexSpec,
    Segment,
    Snapshot,
    View,
    open_view,
    rows_by_partition,
    snapshot_numbers,
)
from gnomon.shadow.search.table_versions import Row, TableAt, VersionReader, equality_files, equals, files_of
from gnomon.shadow.storage import Storage, join, source_storage, storage_at
from gnomon.shadow.tables import (
    MAIN,
    LakeSource,
    TableVersion,
    stored_partition,
)

CACHE_BYTES = 32 << 20  # of index files
LIVE, FILE_REMOVED, ROW_DELETED, NO_VERSION = "live", "file removed", "row deleted", "in no version"
METADATA_FOLDERS = ("_delta_log/", "metadata/")
DATA_ENDINGS = ("parquet", "orc", "avro")
OF_A_FILE = (*OF_ONE_FILE, StorageError, SourceNotFound)

Rows = dict[Row, int]  # for each row, the index of its key among the requested keys


@dataclass(frozen=True)
class VersionedRow:
    """A row of a key during consecutive versions of one line of history.

    `key` is the place of the key among the requested keys. `file` is a whole path or URL, `row` the number of the row
    in it. The row is live from `first` to `last`; `removed_by` is the next version, or None while the newest version
    has the row. `how` is one of LIVE, FILE_REMOVED, ROW_DELETED and NO_VERSION: no version has this row live. `on_disk`
    says whether the file exists, and so the bytes of the row."""

    key: int
    file: str
    row: int
    branch: str
    first: str | None
    last: str | None
    removed_by: str | None
    how: str
    on_disk: bool

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass
class AllVersions:
    """The rows of the keys, by key, file and row number.

    `versions` are the versions that were searched. `expired` are versions whose metadata is gone: only the kept
    snapshots of the index still have their files. `gone` are files of older versions that no longer exist and that no
    kept snapshot of the index covers: their rows are unknown. `scanned` files had to be read; the index answered for
    `indexed` files, in which the keys have `entries` entries. `listed` are the data files of readable versions,
    `current` those of the newest one, `equality_deletes` files of such deletes, all by their whole paths. Each of
    `failures` makes the result incomplete."""

    rows: list[VersionedRow] = field(default_factory=list)
    versions: list[str] = field(default_factory=list)
    expired: list[str] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)
    indexed: int = 0
    scanned: int = 0
    entries: int = 0
    listed: set[str] = field(default_factory=set)
    current: set[str] = field(default_factory=set)
    equality_deletes: set[str] = field(default_factory=set)
    failures: list[Exception] = field(default_factory=list)


class _File(NamedTuple):
    """A data file: its bytes (-1: unknown), its partition, and the numbers, within this search, of the versions that
    list it."""

    size: int
    partition: str
    versions: BitMap


def find_all_versions(storage: Storage, keys: Sequence[object], orphans: bool = False) -> AllVersions:
    """The rows of some keys in all versions of the table of an index. Each version's metadata is read twice, and each
    file that no kept snapshot of the index covers once. `orphans` also scans the Parquet files below the
    table's location that no version lists.

    UsageError for an index of another source, for an invalid key, and where another table has taken the table's place;
    SourceNotFound and StorageError where the table's newest metadata cannot be read. Errors of single files and
    versions are in the result."""
    newest = open_view(storage)
    known = newest.snapshot.table
    if known is None:
        raise UsageError(
            "not the index of a Delta or Iceberg table; the files of other sources have no versions", storage.root
        )
    return _Search(storage, newest, known, [parse_key(key, newest.spec) for key in keys], orphans).result()


class _Search:
    """The search for some keys."""

    def __init__(
        self, storage: Storage, newest: View, known: TableVersion, wanted: Sequence[ParsedKey], orphans: bool
    ) -> None:
        self._storage = storage
        self._spec = newest.spec
        self._wanted = wanted
        self._orphans = orphans
        self._found = AllVersions()
        self._views = self._kept_views(newest)
        history = LakeSource(self._spec.source.table).history(known)
        uuid = next((line[-1].uuid for line in history.branches.values() if line), known.uuid)
        if uuid != known.uuid:
            raise UsageError(
                "another table is there now; make its index in another folder",
                self._spec.source.table,
                expected=f"table {known.uuid}",
                found=uuid,
            )
        self._versions: dict[str, TableAt] = {}
        self._lines = {branch: [one.version for one in line] for branch, line in history.branches.items()}
        of_table = {one.version: one for line in history.branches.values() for one in line}
        older = {view.snapshot.table.version: view for view in self._views if view.snapshot.table is not None}
        before = [name for name in older if name and name not in of_table]
        for name in before:
            self._versions[name] = TableAt(name, None, older[name])
        for name, one in of_table.items():
            self._versions[name] = TableAt(name, LakeSource(self._spec.source.table, one, self._spec.partitions))
        self._lines[MAIN] = [*before, *self._lines.get(MAIN, [])]  # the table expires its oldest versions
        self._found.expired = [*history.expired, *(name for name in before if name not in history.expired)]
        self._found.versions = [name for name in self._versions if name not in before]
        self._numbers = {name: number for number, name in enumerate(self._versions)}
        self._readable: set[str] = set()
        self._files: dict[str, _File] = {}
        self._root = source_storage(self._spec.source.location)
        self._reader = VersionReader(self._root, self._spec)

    def _kept_views(self, newest: View) -> list[View]:
        """The kept snapshots of the index, the oldest first."""
        views = []
        for number in snapshot_numbers(self._storage):
            if number == newest.snapshot.number:
                views.append(newest)
                continue
            try:
                views.append(open_view(self._storage, number))
            except (DamagedMetadata, NewerFormat) as error:
                self._found.failures.append(error)
            except SnapshotNotFound:  # a vacuum removed it just now
                continue
        return views

    def result(self) -> AllVersions:
        self._list_files()
        rows, covered = self._rows_of_index()
        rows |= self._rows_of_scans(sorted(self._files.keys() - covered))
        if self._orphans:
            rows |= self._rows_of_orphans(covered | self._files.keys())
        deleted = self._deleted(rows)
        there = {path: self._is_there(path) for path in sorted({path for path, _ in rows})}
        for path, row in sorted(rows, key=lambda one: (rows[one], one)):
            key, without = rows[path, row], deleted.get((path, row), BitMap())
            self._found.rows += self._intervals(key, (path, row), without, there[path])
        return self._found

    # -- versions and files --------------------------------------------------------------------------------------------

    def _list_files(self) -> None:
        """The files of all versions. A version that cannot be read is a failure."""
        newest = self._lines[MAIN][-1] if self._lines[MAIN] else None
        for version in self._versions.values():
            number = self._numbers[version.name]
            try:
                for path, size, partition in files_of(version):
                    if path not in self._files:
                        self._files[path] = _File(size, partition, BitMap())
                    self._files[path].versions.add(number)
                    where = join(self._root.root, path)
                    if version.source is not None:
                        self._found.listed.add(where)
                    if version.name == newest:
                        self._found.current.add(where)
                self._readable.add(version.name)
            except (ShadowError, SourceError) as error:
                self._found.failures.append(error)

    def _is_there(self, path: str) -> bool:
        try:
            with self._root.open(path):
                return True
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return False
        except (StorageError, OSError) as error:
            self._found.failures.append(error)
            return True  # not known to be gone

    # -- rows ----------------------------------------------------------------------------------------------------------

    def _rows_of_index(self) -> tuple[Rows, set[str]]:
        """The rows that the kept snapshots of the index hold, dead and masked ones too, and the paths of the files
        that these snapshots cover. The files of a damaged index file are not covered, and the damage is a failure."""
        rows: Rows = {}
        covered: set[str] = set()
        lookup = Lookup(self._storage, CACHE_BYTES)
        for view in reversed(self._views):
            for segment in view.segments:
                whole = _whole(segment, view.spec)
                added = {file.path for file in whole.source_files} - covered
                if not added:
                    continue
                counts = rows_by_partition((whole,), {})
                snapshot: Snapshot = replace(view.snapshot, segments=(), partitions=counts, masks=None)
                try:
                    of_keys = Search(lookup, View(snapshot, (whole,)), self._wanted).find(LookupStats())
                except OF_A_FILE as error:
                    self._found.failures.append(error)
                    continue
                found = [(place, hit) for place, hits in enumerate(of_keys) for hit in hits if hit.file.path in added]
                rows |= {(hit.file.path, hit.pointer.data_offset): place for place, hit in found}
                covered |= added
        self._found.indexed, self._found.entries = len(covered), len(rows)
        return rows, covered

    def _rows_of_scans(self, paths: Sequence[str]) -> Rows:
        """The rows of the keys in files of versions, by a scan of each file's key columns."""
        rows: Rows = {}
        newest = self._lines[MAIN][-1:]
        for path in paths:
            file = self._files[path]
            values = stored_partition(file.partition, self._spec.partition_types)
            possible = [
                place
                for place, wanted in enumerate(self._wanted)
                if all(values.get(name) == value for name, value in wanted.where)
            ]
            if not possible:
                continue
            try:
                rows |= self._rows_in(path, file.size, possible, self._spec)
                self._found.scanned += 1
            except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
                where = join(self._root.root, path)
                if any(self._numbers[name] in file.versions for name in newest):
                    what = "gone, though the newest version of the table names it"
                    self._found.failures.append(SourceNotFound(what, where))
                else:
                    self._found.gone.append(where)
            except OF_A_FILE as error:
                self._found.failures.append(error)
        return rows

    def _rows_of_orphans(self, known: set[str]) -> Rows:
        """The rows of the keys in data files below the table's location that are not known. Files of equality deletes
        hold keys as data files do."""
        rows: Rows = {}
        for version in self._versions.values():
            try:
                self._found.equality_deletes |= {storage_at(one).root for one in equality_files(version)}
            except (ShadowError, SourceError) as error:
                self._found.failures.append(error)
        for info in self._root.list(hidden=True):
            ending = info.path.rpartition(".")[2]
            if ending not in DATA_ENDINGS or info.path.startswith(METADATA_FOLDERS) or info.path in known:
                continue
            spec = replace(self._spec, format=ending)
            try:
                rows |= self._rows_in(info.path, info.size, range(len(self._wanted)), spec, of_table=False)
                self._found.scanned += 1
            except OF_A_FILE as error:
                self._found.failures.append(error)
        return rows

    def _rows_in(self, path: str, size: int, places: Sequence[int], spec: IndexSpec, of_table: bool = True) -> Rows:
        """The rows of the keys at these places in a file. A file of the table that lacks a key column has nulls there;
        another file that lacks all of them has no row."""
        rows: Rows = {}
        columns = self._spec.stored_keys
        with self._reader.opened(path, size, spec) as (source, reader):
            there = [column.name for column in columns if column.name in source.schema.names]
            if not there and not of_table:
                return rows
            for batch in source.scan(reader, there):
                found = [
                    key_array(batch.column(column.name), column.type, column.name)
                    if column.name in there
                    else pa.nulls(batch.num_rows, key_type(column.type).arrow)
                    for column in columns
                ]
                for place in places:
                    same = np.ones(batch.num_rows, bool)
                    for column, values, value in zip(columns, found, self._wanted[place].stored, strict=True):
                        same &= equals(values, stored_array([value], column.type))
                    numbers = batch.column(len(there)).filter(pa.array(same))
                    rows |= {(path, number): place for number in numbers.to_pylist()}
        return rows

    # -- deletes -------------------------------------------------------------------------------------------------------

    def _deleted(self, rows: Rows) -> dict[Row, BitMap]:
        """For each row, the numbers of the versions that list its file and have deleted the row."""
        found: dict[Row, BitMap] = {}
        for version in self._versions.values():
            number = self._numbers[version.name]
            listed = {
                row: self._wanted[place]
                for row, place in rows.items()
                if row[0] in self._files and number in self._files[row[0]].versions
            }
            if not listed or version.name not in self._readable:
                continue
            try:
                for row in self._reader.deleted(version, listed):
                    found.setdefault(row, BitMap()).add(number)
            except (*OF_A_FILE, ShadowError) as error:
                self._found.failures.append(error)
                self._readable.remove(version.name)
        return found

    # -- the history of a row ------------------------------------------------------------------------------------------

    def _intervals(self, key: int, row: Row, deleted: BitMap, on_disk: bool) -> list[VersionedRow]:
        """The versions between which a row is live, in each line of history."""
        path, number = row
        listed = self._files[path].versions if path in self._files else BitMap()
        where, found = join(self._root.root, path), []
        for branch, line in self._lines.items():
            begin: str | None = None
            last = ""
            for name in (name for name in line if name in self._readable):
                version = self._numbers[name]
                if version in listed and version not in deleted:
                    begin, last = begin or name, name
                elif begin is not None:
                    how = ROW_DELETED if version in listed else FILE_REMOVED
                    found.append(VersionedRow(key, where, number, branch, begin, last, name, how, on_disk))
                    begin = None
            if begin is not None:
                found.append(VersionedRow(key, where, number, branch, begin, last, None, LIVE, on_disk))
        return found or [VersionedRow(key, where, number, "", None, None, None, NO_VERSION, on_disk)]


def _whole(segment: Segment, spec: IndexSpec) -> Segment:
    """A segment of a kept snapshot in which dead files and masked rows are live, too. Source files of a folder without
    a live file are left out, since a vacuum removes the index files of such a folder."""
    index_files = tuple(segment.by_bucket.values())
    folders = {spec.folder_of(file.partition) for file in segment.live.values()}
    files = tuple(file for file in segment.source_files if spec.folder_of(file.partition) in folders)
    return Segment(segment.id, index_files, files)
