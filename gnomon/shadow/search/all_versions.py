"""Every row of some keys in all versions of a lake table: the rows that are live, and the deleted rows whose bytes are
still in a data file.

The index answers for the files that its kept snapshots cover, live or not. Other files of the table's versions are
scanned, one at a time. Then the deletes of each version say when a row was live."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from pyroaring import BitMap

from gnomon.btree.blocks import LookupStats
from gnomon.btree.key_types import Stored
from gnomon.btree.keys import key_array, stored_array
from gnomon.shadow.errors import (
    OF_ONE_FILE,
    DamagedMetadata,
    NewerFormat,
    ShadowError,
    SnapshotNotFound,
    SourceError,
    SourceNotFound,
    SpecMismatch,
    StorageError,
    UsageError,
)
from gnomon.shadow.lookup import Lookup, ParsedKey, Search, parse_keys
from gnomon.shadow.metadata import (
    STAGING_FOLDER,
    IndexSpec,
    Segment,
    Snapshot,
    View,
    open_view,
    rows_by_partition,
    snapshot_numbers,
)
from gnomon.shadow.search.table_versions import (
    HEAD_BYTES,
    Listing,
    Row,
    TableAt,
    VersionReader,
    check_columns,
    equals,
    format_of,
    is_metadata,
    listing_of,
)
from gnomon.shadow.storage import Place, Storage, below, join, source_storage, storage_at
from gnomon.shadow.tables import (
    MAIN,
    LakeSource,
    TableVersion,
    stored_partition,
)
from gnomon.shadow.values import given_keys
from gnomon.sources import open_source
from gnomon.sources.types import parse_ddl

CACHE_BYTES = 32 << 20  # of index files
LIVE, FILE_REMOVED, ROW_DELETED, NO_VERSION = "live", "file removed", "row deleted", "in no version"
INTEGERS = {"tinyint", "smallint", "int", "bigint"}
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
    `current` those of the newest one, `equality_deletes` files of such deletes, all by their whole paths. `unsearched`
    are other files below the table that may have rows, in a format that is not searched. Each of `failures` makes the
    result incomplete."""

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
    unsearched: list[str] = field(default_factory=list)
    failures: list[Exception] = field(default_factory=list)


class _File(NamedTuple):
    """A data file: its bytes, its partition, the columns whose values only the metadata has, and the numbers, within
    this search, of the versions that list it."""

    size: int
    partition: str
    constants: tuple[str, ...]
    versions: BitMap


def find_all_versions(index: Place | Storage, keys: Any, orphans: bool = False) -> AllVersions:
    """The rows of some keys in all versions of the table of an index. Each version's metadata is read twice, and each
    file that no kept snapshot of the index covers once. `orphans` also scans the Parquet, ORC and Avro files in the
    table's folders that no version lists.

    UsageError for an index of another source, for an invalid key, and where another table has taken the table's place;
    SourceNotFound and StorageError where the table's newest metadata cannot be read. Errors of single files and
    versions are in the result."""
    storage = storage_at(index)
    newest = open_view(storage)
    known = newest.snapshot.table
    if known is None:
        raise UsageError(
            "not the index of a Delta or Iceberg table; the files of other sources have no versions", storage.root
        )
    return _Search(storage, newest, known, parse_keys(given_keys(keys), newest.spec), orphans).result()


class _Search:
    """The search for some keys."""

    def __init__(
        self, storage: Storage, newest: View, known: TableVersion, wanted: Sequence[ParsedKey], orphans: bool
    ) -> None:
        self._storage = storage
        self._spec = newest.spec
        self._wanted = wanted
        names = [column.name for column in self._spec.stored_keys]
        self._values = [{**dict(zip(names, one.stored, strict=True)), **dict(one.where)} for one in wanted]
        self._orphans = orphans
        self._found = AllVersions()
        self._views = self._kept_views(newest)
        history = LakeSource(self._spec.source.table).history(known)
        at = next((line[-1].metadata for line in history.branches.values() if line), known.metadata)
        metadata = below(self._spec.source.location, at).rpartition("/")[0] if "/" in at else ""
        self._metadata_folder = f"{metadata or 'metadata'}/"  # of Iceberg
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
        self._folders: set[str] = set()  # outside the root
        self._of_form: set[str] = set()
        # Files with their partitions, by the columns and the partition types of their version (`_note_form`).
        self._other_forms: dict[tuple[str, tuple[tuple[str, str], ...]], dict[str, str]] = {}
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
        rest = {path: self._files[path].partition for path in sorted(self._of_form - covered)}
        rows |= self._rows_of_scans(rest, self._spec)
        for (columns, types), paths in self._other_forms.items():
            rows |= self._rows_of_scans(paths, replace(self._spec, schema=columns, partition_types=dict(types)))
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
                listing = listing_of(version)
                self._check_place(listing.root)
                for path, file in listing.files.items():
                    if path not in self._files:
                        self._files[path] = _File(file.size, file.partition, file.constants, BitMap())
                    self._files[path].versions.add(number)
                    where = join(self._root.root, path)
                    if version.source is not None:
                        self._found.listed.add(where)
                    if version.name == newest:
                        self._found.current.add(where)
                self._note_form(listing)
                if listing.own_columns:
                    self._note_form(listing._replace(columns=listing.own_columns))
                self._readable.add(version.name)
                self._folders.update(listing.folders)
                if self._orphans:
                    self._found.equality_deletes |= {storage_at(one).root for one in listing.equality_deletes()}
            except (ShadowError, SourceError) as error:
                self._found.failures.append(error)

    def _check_place(self, root: str) -> None:
        """Raise SpecMismatch for a table that was moved: its paths are not those of the index."""
        if root not in ("", self._root.root):
            what = "the table was moved; make its index in another folder"
            raise SpecMismatch(what, self._spec.source.table, expected=self._root.root, found=root)

    def _note_form(self, listing: Listing) -> None:
        """Note the files of a version whose key columns are those of the index, and, aside, of one in which a key
        column had another id or name in files, or was a partition column and is none, or the reverse."""
        keys, own, theirs = self._spec.keys, parse_ddl(self._spec.schema), parse_ddl(listing.columns)
        types = self._spec.partition_types if listing.types is None else listing.types
        in_folders = [key.name for key in keys if key.name in types]
        are_same = listing.types is None or all(
            key.origin_in(theirs) == key.origin_in(own) for key in self._spec.stored_keys
        )
        files = {path: file.partition for path, file in listing.files.items()}
        if are_same and in_folders == [key.name for key in keys if key.partition]:
            self._of_form.update(files)
        else:
            self._other_forms.setdefault((listing.columns, tuple(types.items())), {}).update(files)

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

    def _rows_of_scans(self, partitions: Mapping[str, str], spec: IndexSpec) -> Rows:
        """The rows of the keys in files of versions, by a scan of each file's key columns. `partitions` has the files
        with their partitions, `spec` is that of the index, with the columns of these versions."""
        rows: Rows = {}
        newest = self._lines[MAIN][-1:]
        for path, partition in partitions.items():
            file = self._files[path]
            try:
                values = self._partition(path, partition, spec)
                possible = [
                    place
                    for place, wanted in enumerate(self._values)
                    if all(_are_same(wanted.get(name, value), value) for name, value in values.items())
                ]
                if not possible:
                    continue
                rows |= self._rows_in(path, file.size, possible, spec, values)
                self._found.scanned += 1
            except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
                where = join(self._root.root, path)
                if any(self._numbers[name] in file.versions for name in newest):
                    what = "gone, though the newest version of the table names it"
                    self._found.failures.append(SourceNotFound(what, where))
                elif where not in self._found.gone:
                    self._found.gone.append(where)
            except OF_A_FILE as error:
                self._found.failures.append(error)
        return rows

    def _partition(self, path: str, partition: str, spec: IndexSpec) -> dict[str, Stored]:
        """The partition values of a file, by column. SourceError where they cannot be compared with the key."""
        values = stored_partition(partition, spec.partition_types)
        for key in self._spec.keys:
            kinds = {key.type, spec.partition_type(key.name)}
            if key.name in values and len(kinds) > 1 and not kinds <= INTEGERS:
                raise SourceError(
                    "a partition column of an older version has another type, so that keys are not compared with it",
                    join(self._root.root, path),
                    column=key.name,
                    expected=key.type,
                    found=spec.partition_type(key.name),
                )
        return values

    def _rows_of_orphans(self, known: set[str]) -> Rows:
        """The rows of the keys in other files of the table's folders than the known ones: by their first bytes, or else
        their ending, Parquet, ORC and Avro files. Files of equality deletes hold keys as data files do."""
        rows: Rows = {}
        root = self._root.root
        others = {info.path: info.size for info in self._root.list(hidden=True)}
        for folder in sorted(self._folders):
            listed = storage_at(folder, root).list(hidden=True)
            others |= {below(root, join(folder, info.path)): info.size for info in listed}
        for deletes in self._found.equality_deletes:
            others.setdefault(below(root, deletes), -1)
        for path, size in others.items():
            if path in self._files and self._files[path].size not in (size, -1) and size != -1:
                what = "the file is not the one that the table lists, so that the index does not answer for it"
                expected, found = f"{self._files[path].size:,} bytes", f"{size:,}"
                self._found.failures.append(SourceError(what, join(root, path), expected=expected, found=found))
        for path in sorted(others.keys() - known):
            if others[path] == 0 or self._is_metadata(path):
                continue
            try:
                format = self._format(path, others[path])
                if format == "":
                    self._found.unsearched.append(join(self._root.root, path))
                elif format is not None:
                    spec = replace(self._spec, format=format)
                    rows |= self._rows_in(path, others[path], range(len(self._wanted)), spec)
                    self._found.scanned += 1
            except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
                continue  # removed meanwhile
            except OF_A_FILE as error:
                self._found.failures.append(error)
        return rows

    def _is_metadata(self, path: str) -> bool:
        return is_metadata(path, self._spec.source.table.startswith("delta:"), self._metadata_folder)

    def _format(self, path: str, size: int) -> str | None:
        """As in `format_of`."""
        with self._reader.opened_bytes(path, size) as reader:
            return format_of(path.rpartition("/")[2], reader.read_range(0, min(HEAD_BYTES, reader.size)))

    def _rows_in(
        self, path: str, size: int, places: Sequence[int], spec: IndexSpec, folders: Mapping[str, Stored] | None = None
    ) -> Rows:
        """The rows of the keys at these places in a file. `folders` has the partition values of a file of the table,
        which has nulls in a key column that it lacks. Of another file they are None; a column that it lacks may have
        any value there."""
        rows: Rows = {}
        with self._reader.opened(path, size, spec) as (source, reader):
            columns = [key for key in self._spec.keys if folders is None or key.name not in folders]
            there = [key for key in columns if key.name in source.schema.names]
            lost = [key for key in columns if key not in there]
            if folders is None and any(key in self._spec.stored_keys for key in lost):
                stored = [key.name for key in there if key in self._spec.stored_keys]
                self._check_lacks(path, set(open_source(reader, spec.format).schema.names), stored)
                if not stored:
                    return rows
            elif folders is not None and (
                only := [key.name for key in lost if key.name in self._files[path].constants]
            ):
                what = "the file lacks a key column whose value only the table's metadata has; rewrite the file"
                raise SourceError(what, join(self._root.root, path), column=only[0])
            for batch in source.scan(reader, [key.name for key in there]):
                found = [key_array(batch.column(key.name), key.type, key.name) for key in there]
                for place in places:
                    wanted = self._values[place]
                    if folders is not None and any(wanted[key.name] is not None for key in lost):
                        continue
                    same = np.ones(batch.num_rows, bool)
                    for key, values in zip(there, found, strict=True):
                        same &= equals(values, stored_array([wanted[key.name]], key.type))
                    numbers = batch.column(len(there)).filter(pa.array(same))
                    rows |= {(path, number): place for number in numbers.to_pylist()}
        return rows

    def _check_lacks(self, path: str, names: set[str], there: Sequence[str]) -> None:
        """As in `check_columns`, unless it is known why the file has only some columns of the key, or none."""
        where = join(self._root.root, path)
        in_metadata = path.startswith(("_delta_log/", self._metadata_folder))
        if there or in_metadata or path.startswith(f"{STAGING_FOLDER}/") or where in self._found.equality_deletes:
            return
        check_columns(where, names, [column.name for column in self._spec.stored_keys])

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


def _are_same(one: Stored, other: Stored) -> bool:
    return one == other or (one != one and other != other)  # NaN equals NaN


def _whole(segment: Segment, spec: IndexSpec) -> Segment:
    """A segment of a kept snapshot in which dead files and masked rows are live, too. Source files of a folder without
    a live file are left out, since a vacuum removes the index files of such a folder."""
    index_files = tuple(segment.by_bucket.values())
    folders = {spec.folder_of(file.partition) for file in segment.live.values()}
    files = tuple(file for file in segment.source_files if spec.folder_of(file.partition) in folders)
    return Segment(segment.id, index_files, files)
