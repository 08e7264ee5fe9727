"""The comparison of a source's current files with the files that a snapshot covers."""

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import NamedTuple

from gnomon.shadow.errors import SourceError, SourceNotFound, StorageError, UsageError
from gnomon.shadow.metadata.manifests import Segment, SourceFileEntry
from gnomon.shadow.metadata.spec import CatalogSource, IndexSpec, LakeTableSource, OneFile, Source, source_named
from gnomon.shadow.storage import (
    FileInfo,
    Place,
    Readable,
    SourceStorage,
    Storage,
    difference,
    is_absolute,
    is_hidden,
    is_in_doubt,
    is_local,
    join,
    source_storage,
    split,
    storage_at,
    vendor_of,
)
from gnomon.shadow.tables import (
    LakeSource,
    LakeTable,
    PlainFiles,
    Table,
    TableSource,
    TableVersion,
    partition_columns,
    table_among,
    table_around,
)
from gnomon.sources import open_source

Files = list[FileInfo]


class Listing(NamedTuple):
    """The data files of a source, ordered by path, and the table (Delta, Iceberg ...) that they belong to, if any."""

    files: list[FileInfo]
    lake_table: LakeTable | None


@dataclass(frozen=True)
class SourceRoot:
    """A source and the storage of its root."""

    storage: Readable
    source: TableSource = field(default_factory=PlainFiles)

    def now(self) -> "SourceRoot":
        """The same source, but the metadata of a table is read again."""
        return replace(self, source=self.source.now())

    def list(self) -> list[FileInfo]:
        """The current data files, ordered by path. Empty files do not count, as in engines. SourceNotFound when there
        are none; a table may be empty."""
        return self._list()[0]

    def listing(self) -> Listing:
        """The current data files, and the table that they belong to. Errors as in `list`."""
        files, skipped = self._list()
        if self.source.versions is not None:  # it is the table
            return Listing(files, None)
        paths = [info.path for info in (*files, *skipped) if not is_absolute(info.path)]
        return Listing(files, table_among(self.storage.root, paths) or table_around(_real(self.storage.root)))

    def _list(self) -> tuple[Files, Sequence[FileInfo]]:
        """The data files, and the other files, which engines skip."""
        found, skipped = self.source.list(self.storage)
        files = [info for info in found if info.size or self.source.file_name]  # a source of one file may be empty
        for info in files:
            if not info.path.isascii() and not _is_text(info.path):
                raise SourceNotFound(f"the file name {info.path!r} is not UTF-8; rename it", self.storage.root)
        return files, skipped

    def partitions(self, files: Sequence[FileInfo]) -> tuple[str, ...]:
        """The source's partition columns."""
        if self.source.types is not None:
            return tuple(self.source.types)
        return partition_columns([info.path for info in files], self.storage.root)

    def partition_of(self, path: str, partitioned: bool) -> str:
        """The partition of a file, from its folders or the table; "" where there are no partition columns."""
        return self.source.partition_of(path, partitioned)

    @property
    def types(self) -> Mapping[str, str]:
        """The partition columns with their types, in order. Empty where only the folders name them: then they are
        text."""
        return self.source.types or {}

    @property
    def location(self) -> str:
        return join(self.storage.root, self.source.file_name)

    @property
    def name(self) -> str:
        """The name by which `build` accepts the source."""
        return self.source.source_name or self.location


def _is_text(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:  # a local file name may have any bytes
        return False
    return True


def source_root(location: Place) -> SourceRoot:
    """The root of a source given as a folder or as one file."""
    storage = storage_at(location)
    above, name = split(storage.root)
    if not name:
        return SourceRoot(SourceStorage(storage))
    try:
        file = storage_at(above).open(name)
    except (FileNotFoundError, NotADirectoryError):
        raise SourceNotFound("no such file or folder", storage.root, expected="the root of the source") from None
    except IsADirectoryError:
        return SourceRoot(SourceStorage(storage))
    file.close()
    if is_hidden(name):
        raise SourceNotFound("engines skip a file of this name; rename it, or index a copy of it", storage.root)
    return SourceRoot(source_storage(above), PlainFiles(name))


def source_of(
    spec: IndexSpec, folders: Mapping[str, str] | None = None, version: TableVersion | None = None
) -> SourceRoot:
    """The source of an index, which is not read yet: a look-up may never need it. Parameters as in `table_of`.
    UsageError for a key-value folder, which has no source."""
    spec.entries.check_source("a key-value folder has no source (write_btree made it); expected the index of a source")
    source = table_of(spec, folders, version)
    place = spec.source.location
    return SourceRoot(source_storage(split(place)[0] if source.file_name else place), source)


def moved_to(source: Source, root: SourceRoot) -> Source:
    """The source of an index whose files lie at another root now, maybe in a table of another name."""
    return source_named(root.location, root.source.name, isinstance(source, OneFile), source.as_files)


def table_of(
    spec: IndexSpec, folders: Mapping[str, str] | None = None, version: TableVersion | None = None
) -> TableSource:
    """The table of an index. `folders` are the known folders of a catalog table's partitions; without them the source
    cannot be listed. `version` is the version of a lake table, None for the newest."""
    source = spec.source
    if isinstance(source, LakeTableSource):
        return LakeSource(source.of, version, spec.partitions)
    if isinstance(source, CatalogSource):
        return Table(source.of, folders or {}, spec.partition_types, spec.schema)
    return PlainFiles(split(source.location)[1] if isinstance(source, OneFile) else "")


def check_apart(root: SourceRoot, index: Storage, what: str = "index") -> None:
    """Raise UsageError where the files of an index, or another output, would become files of the source."""
    if root.source.file_name:
        return
    for place in (root.storage.root, *root.source.folders_elsewhere):
        try:
            below = PurePosixPath(_real(index.root)).relative_to(_real(place))
        except ValueError:
            continue
        if not any(map(is_hidden, below.parts)):
            raise UsageError(
                f"the {what} would lie among the files of its source {place}; name a folder outside of "
                "it, or one that begins with _",
                index.root,
            )
    vendor = vendor_of(index.root)
    if vendor is not None and vendor.credential(index.root) is not None:
        words = (
            f"the {what} would lie in the folder of {vendor.name}, whose catalog vends credentials for the table alone"
        )
        raise UsageError(f"{words}; name a folder outside of it", index.root)


def _real(root: str) -> str:
    """The root, with the symbolic links of a local path resolved."""
    return os.path.realpath(root) if is_local(root) else root


@dataclass(frozen=True)
class Diff:
    """The difference between the source's files and a snapshot. A build indexes `new` and `changed` files. `dead` has,
    for each segment, the ordinals of all its dead files: changed, vanished, or dead before. `lake_table` is the table
    of the source's files, if the listing looked for one. `newer` is the version of a lake table, where the snapshot
    covers another one."""

    new: tuple[FileInfo, ...]
    changed: tuple[FileInfo, ...]
    vanished: tuple[str, ...]
    dead: dict[str, frozenset[int]]
    lake_table: LakeTable | None = None
    newer: TableVersion | None = None

    @property
    def to_index(self) -> tuple[FileInfo, ...]:
        return self.new + self.changed

    @property
    def is_empty(self) -> bool:
        return not (self.new or self.changed or self.vanished or self.newer)

    def only(self, paths: Collection[str]) -> "Diff":
        """The difference with only these files to index. The entries of other changed files are dead nevertheless."""
        new, changed = (tuple(info for info in some if info.path in paths) for some in (self.new, self.changed))
        gone = tuple(info.path for info in self.changed if info.path not in paths)
        return replace(self, new=new, changed=changed, vanished=self.vanished + gone)

    def applied_to(self, segments: Iterable[Segment]) -> list[Segment]:
        """The segments without the files that are changed or gone, and without masks."""
        return [replace(one, dead=one.dead | self.dead.get(one.id, frozenset()), masks={}) for one in segments]


def within(root: SourceRoot, difference: Diff, segments: Iterable[Segment], partitions: Collection[str]) -> Diff:
    """The part of a difference in some partitions. Files of other partitions stay covered or uncovered."""
    before = {segment.id: segment for segment in segments}
    named = {file.path: file.partition for segment in before.values() for file in segment.live.values()}

    def is_chosen(path: str) -> bool:
        return root.partition_of(path, True) in partitions or named.get(path) in partitions

    dead = {
        name: frozenset(
            ordinal
            for ordinal in ordinals
            if ordinal in before[name].dead or is_chosen(before[name].source_files[ordinal].path)
        )
        for name, ordinals in difference.dead.items()
    }
    new, changed = ([info for info in files if is_chosen(info.path)] for files in (difference.new, difference.changed))
    vanished = tuple(filter(is_chosen, difference.vanished))
    return replace(difference, new=tuple(new), changed=tuple(changed), vanished=vanished, dead=dead)


def without_vanished(difference: Diff, segments: Iterable[Segment]) -> Diff:
    """The difference without vanished files, whose entries stay live."""
    gone = set(difference.vanished)
    by_id = {segment.id: segment for segment in segments}
    dead = {
        name: frozenset(
            ordinal
            for ordinal in ordinals
            if ordinal in by_id[name].dead or by_id[name].source_files[ordinal].path not in gone
        )
        for name, ordinals in difference.dead.items()
    }
    return replace(difference, vanished=(), dead=dead)


class DigestChecks:
    """Decides whether a local file that differs from the recorded one only in its ctime is unchanged. It compares the
    digest of the file's metadata, which it reads once for each state of the file. Threads may share it."""

    def __init__(self, storage: Readable, format: str, options: Mapping[str, str]) -> None:
        self._storage, self._format, self._options = storage, format, options
        self._known: dict[tuple[FileInfo, str], bool] = {}

    def is_same(self, entry: SourceFileEntry, info: FileInfo) -> bool:
        """Whether a file without a `difference` from the one on record is the same file."""
        if not is_in_doubt(entry, info):
            return True
        checked = (info, entry.digest)
        if checked not in self._known:
            found = digest_and_rows(self._storage, info, self._format, self._options)
            self._known[checked] = found is not None and found[0] == entry.digest and found[1] in (None, entry.rows)
        return self._known[checked]


def digest_and_rows(
    storage: Readable, info: FileInfo, format: str, options: Mapping[str, str]
) -> tuple[str, int | None] | None:
    """The digest of a file's metadata, and its number of rows if the metadata has it; None where the file cannot be
    read, or changed."""
    try:
        with storage.open(info.path, known=info) as reader:
            source = open_source(reader, format, options)
    except (SourceError, StorageError, OSError):  # the build reports files that cannot be read
        return None
    return source.digest, source.rows


def diff(
    files: Iterable[FileInfo],
    segments: Iterable[Segment],
    source: TableSource | None = None,
    digest_checks: DigestChecks | None = None,
) -> Diff:
    """Compare a listing with the covered files, by path and fingerprint; with `digest_checks` also by ctime; with
    `source` also by partition."""
    now = {info.path: info for info in files}
    covered: set[str] = set()
    changed: list[FileInfo] = []
    vanished: list[str] = []
    dead: dict[str, frozenset[int]] = {}
    for segment in segments:
        gone = set(segment.dead)
        for ordinal, entry in enumerate(segment.source_files):
            if ordinal in segment.dead:
                continue
            info = now.get(entry.path)
            if info is None:
                vanished.append(entry.path)
            elif (
                difference(entry, info)
                or (source is not None and not source.is_still_in(entry.path, entry.partition))
                or (digest_checks is not None and not digest_checks.is_same(entry, info))
            ):
                changed.append(info)
            else:
                covered.add(entry.path)
                continue
            gone.add(ordinal)
        dead[segment.id] = frozenset(gone)
    rewritten = {info.path for info in changed}
    new = [info for path, info in now.items() if path not in covered and path not in rewritten]
    return Diff(tuple(new), tuple(changed), tuple(sorted(vanished)), dead)
