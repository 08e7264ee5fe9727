"""One snapshot of an index, opened: its spec and its live segments. Immutable."""

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product

from gnomon.base.errors import Action
from gnomon.btree.key_types import Stored
from gnomon.shadow.errors import (
    DamagedMetadata,
    IndexNotFound,
    NewerFormat,
    PartitionNotFound,
    ShadowError,
    SnapshotNotFound,
    StorageError,
    UnknownColumn,
    UsageError,
)
from gnomon.shadow.metadata.manifests import SEGMENT_FOLDER, Segment, SegmentFile, SourceFileEntry
from gnomon.shadow.metadata.masks import MASKS_FOLDER
from gnomon.shadow.metadata.snapshots import (
    SPEC_PATH,
    Snapshot,
    read_newest,
    read_segments,
    read_snapshot,
    read_spec,
    snapshot_numbers,
)
from gnomon.shadow.metadata.spec import IndexSpec, check_names, no_column
from gnomon.shadow.storage import Storage, looking_again
from gnomon.shadow.tables import NULL_VALUE, check_where, matches, shortened, stored_partition

MOST_KEPT = 1 << 20  # partitions, times the buckets whose index files are known
UNCHANGING = (SEGMENT_FOLDER, MASKS_FOLDER)  # folders of files that a snapshot names with size and CRC


@dataclass(frozen=True)
class View:
    """One snapshot with its segments. A look-up uses no other state of the index."""

    snapshot: Snapshot
    segments: tuple[Segment, ...]

    @cached_property
    def spec(self) -> IndexSpec:
        return self.snapshot.spec

    @cached_property
    def partitions(self) -> tuple[str, ...]:
        """The partition folders with live rows, ordered."""
        return tuple(sorted(self.snapshot.partitions))

    @cached_property
    def partition_values(self) -> dict[str, dict[str, Stored]]:
        """The values of each of `partitions` by column, in stored form."""
        return {partition: stored_partition(partition, self.spec.partition_types) for partition in self.partitions}

    @cached_property
    def _values_of(self) -> dict[str, frozenset[Stored]]:
        """The values of each partition column."""
        of_each = self.partition_values.values()
        return {name: frozenset(values.get(name) for values in of_each) for name in self.spec.partitions}

    def where(self, asked: Mapping[str, object] | None) -> dict[str, frozenset[Stored]]:
        """The partition values that a `where` names, as `partitions.check_where` finds them. PartitionNotFound also
        where no partition has the values of all columns together."""
        there = self._values_of  # made in any case, so that `AtHand.is_ready` is true after a look-up
        if asked is None:
            return {}
        where = check_where(asked, self.spec.partitions, self.spec.partition_types, there)
        if len(where) > 1 and not any(matches(values, where) for values in self.partition_values.values()):
            named = " and ".join(f"{name}={shortened(str(value))}" for name, value in asked.items())
            raise PartitionNotFound(f"where: no partition has {named} together")
        return where

    def partitions_of(
        self, where: Mapping[str, Collection[Stored]], key: Sequence[tuple[str, Stored]]
    ) -> Collection[str]:
        """The partitions, in order, that have the values of a `where` and a key's values of partition columns."""
        named: Collection[str]
        if not key:
            named = self._everywhere
        else:
            columns, values = zip(*key, strict=True)
            named = self.partitions_by(columns).get(values, ())
        if not where:
            return named
        return dict.fromkeys(name for name in named if matches(self.partition_values[name], where)).keys()

    @cached_property
    def _everywhere(self) -> Collection[str]:
        """All partitions, in order."""
        return self.partition_values.keys()

    def partitions_by(self, columns: tuple[str, ...]) -> Mapping[tuple[Stored, ...], Collection[str]]:
        """The partitions, in order, by their values of some partition columns."""
        if columns not in self._partitions_by:
            found: dict[tuple[Stored, ...], dict[str, None]] = {}
            for partition, values in self.partition_values.items():
                found.setdefault(tuple(values.get(name) for name in columns), {})[partition] = None
            for null in [one for one in found if None in one]:  # by Hive's name of null, too, if it is no value here
                choices = product(*((None, NULL_VALUE) if value is None else (value,) for value in null))
                found |= {names: found[null] for names in choices if names not in found}
            self._partitions_by[columns] = found
        return self._partitions_by[columns]

    @cached_property
    def _partitions_by(self) -> dict[tuple[str, ...], Mapping[tuple[Stored, ...], Collection[str]]]:
        return {}

    @cached_property
    def index_files(self) -> dict[tuple[str, int], list[SegmentFile]]:
        """The index files that look-ups may open, by folder and bucket, in the order of the segments."""
        files: dict[tuple[str, int], list[SegmentFile]] = {}
        for segment in self.segments:
            for place, file in segment.by_bucket.items():
                files.setdefault(place, []).append(SegmentFile(segment, file))
        return files

    def files_of(self, folder: str, bucket: int) -> Sequence[SegmentFile]:
        """The index files of a folder that may hold keys of a bucket of the spec, in the order of the segments."""
        return self.index_files.get((folder, bucket % self.spec.buckets_in(folder)), ())

    def files_in(self, partitions: Collection[str], bucket: int) -> Sequence[SegmentFile]:
        """The index files of some partitions that may hold keys of a bucket, by partition, then by segment."""
        if partitions is not self._everywhere:
            return self._found_in(partitions, bucket)
        found = self._of_buckets.get(bucket)
        if found is None:
            if len(self._of_buckets) * len(partitions) > MOST_KEPT:
                self._of_buckets.clear()
            found = self._of_buckets[bucket] = self._found_in(partitions, bucket)
        return found

    def _found_in(self, partitions: Collection[str], bucket: int) -> Sequence[SegmentFile]:
        return [file for folder in self.spec.folders_of(partitions) for file in self.files_of(folder, bucket)]

    @cached_property
    def _of_buckets(self) -> dict[int, Sequence[SegmentFile]]:
        """The index files of all partitions, by bucket, as far as look-ups have asked."""
        return {}

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The source's columns, partition columns last."""
        in_files = [name for name in self.snapshot.columns if name not in self.spec.partitions]
        return (*in_files, *self.spec.partitions)

    def checked_columns(self, columns: Sequence[str] | None) -> Sequence[str]:
        """The requested columns, each once; all for None. UnknownColumn where the source has no such column."""
        if columns is None:
            return self.columns
        check_names("columns", columns)
        unknown = [name for name in columns if name not in self.columns]
        if unknown:
            raise UnknownColumn(no_column(unknown, self.columns))
        return list(dict.fromkeys(columns))

    @cached_property
    def covered(self) -> dict[str, SourceFileEntry]:
        """The live source files, by path; a path is live in one segment only."""
        return {path: file for segment in self.segments for path, file in segment.live.items()}

    @cached_property
    def unmasked(self) -> "View":
        """The same snapshot with the rows that its table has deleted."""
        if not any(segment.masks for segment in self.segments):
            return self
        return View(self.snapshot, tuple(replace(segment, masks={}) for segment in self.segments))

    @cached_property
    def filter_bytes(self) -> int:
        """Bytes of all Bloom filters that look-ups may read."""
        files = (file for segment in self.segments for file in segment.by_bucket.values())
        return sum(file.filter.size for file in files if file.filter is not None)

    @cached_property
    def index_bytes(self) -> int:
        """Bytes of all index files that look-ups may open."""
        return sum(file.size for segment in self.segments for file in segment.by_bucket.values())

    @property
    def source_files(self) -> int:
        return sum(len(self.spec.entries.source_files(segment)) for segment in self.segments)


def open_view(storage: Storage, number: int | None = None) -> View:
    """The newest snapshot, or the given one. IndexNotFound before the first commit."""
    spec = read_spec(storage)
    if number is None:
        view = newest_view(storage)
    else:
        snapshot = read_snapshot(storage, number)
        try:
            view = View(snapshot, read_segments(storage, snapshot))
        except DamagedMetadata:
            with looking_again():
                read_snapshot(storage, number)  # raises SnapshotNotFound if a vacuum removed it
            raise
    if view is None:
        raise IndexNotFound("no snapshot yet, its first build has not ended", storage.root, action=Action.BUILD_AGAIN)
    check_spec(storage, spec, view.snapshot)
    return view


def newest_good_view(storage: Storage) -> tuple[View, Exception | None]:
    """The newest snapshot that can be opened, and the error of the newest of all, if that cannot be opened. Raises that
    error where no snapshot can be opened."""
    try:
        return open_view(storage), None
    except (IndexNotFound, StorageError, UsageError):
        raise
    except ShadowError as error:
        for number in reversed(snapshot_numbers(storage)[:-1]):
            with suppress(DamagedMetadata, NewerFormat, SnapshotNotFound):
                return open_view(storage, number), error
        raise


def newest_view(storage: Storage) -> View | None:
    """The newest snapshot, without a check of the spec's file; None before the first commit."""
    snapshot, segments = read_newest(storage)
    return View(snapshot, segments) if snapshot is not None else None


def check_spec(storage: Storage, spec: IndexSpec, snapshot: Snapshot) -> None:
    """Raise DamagedMetadata where the spec's file is not the one that the snapshot was built with."""
    if spec.entries is snapshot.spec.entries and spec.entries.columns_may_change:
        return
    if not spec.is_like(snapshot.spec):
        raise DamagedMetadata(
            f"not the spec that snapshot {snapshot.number} was built with",
            f"{storage.root}/{SPEC_PATH}",
            action=Action.BUILD_SPEC,
        )
