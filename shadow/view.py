"""One snapshot of an index, opened: its spec and its live segments. Immutable."""

from dataclasses import dataclass, replace
from functools import cached_property

from shadow.errors import DamagedMetadata, IndexNotFound
from shadow.partitions import partition_values
from shadow.segments import Segment, SourceFileEntry
from shadow.snapshots import Snapshot, read_newest, read_segments, read_snapshot
from shadow.spec import SPEC_PATH, IndexSpec, read_spec_and_checksum
from shadow.storage import Storage


@dataclass(frozen=True)
class View:
    """What look-ups use: they see this snapshot and nothing else."""

    spec: IndexSpec
    snapshot: Snapshot
    segments: tuple[Segment, ...]

    @cached_property
    def partitions(self) -> tuple[str, ...]:
        """The partition folders with live rows, ordered."""
        return tuple(sorted(self.snapshot.partitions))

    @cached_property
    def partition_values(self) -> dict[str, dict[str, str | None]]:
        """Column to value of each of `partitions`."""
        return {partition: partition_values(partition) for partition in self.partitions}

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The source's columns, partition columns last."""
        in_files = [name for name in self.snapshot.columns if name not in self.spec.partitions]
        return (*in_files, *self.spec.partitions)

    @cached_property
    def covered(self) -> dict[str, SourceFileEntry]:
        """The source files that count, by path; a path is live in one segment only."""
        return {path: file for segment in self.segments for path, file in segment.live.items()}

    @cached_property
    def filter_bytes(self) -> int:
        """Length of all key filters that look-ups may consult."""
        files = (file for segment in self.segments for file in segment.by_bucket.values())
        return sum(file.filter.size for file in files if file.filter is not None)

    @property
    def source_files(self) -> int:
        return sum(len(segment.live) for segment in self.segments)


def open_view(storage: Storage, number: int | None = None) -> View:
    """The newest snapshot, or the one asked for. IndexNotFound before the first commit."""
    spec, checksum = read_spec_and_checksum(storage)
    if number is None:
        snapshot, segments = read_newest(storage)
    else:
        snapshot = read_snapshot(storage, number)
        segments = read_segments(storage, snapshot)
    if snapshot is None:
        raise IndexNotFound(f"{storage.root}: no snapshot yet, its first build has not ended; run gnomon build again")
    if snapshot.spec_crc32 != checksum:
        raise DamagedMetadata(
            f"{storage.root}/{SPEC_PATH}: not the spec that snapshot {snapshot.number} was built with (checksum "
            f"{checksum}, expected {snapshot.spec_crc32}); restore it or rebuild the index"
        )
    return View(spec_at(spec, snapshot), snapshot, segments)


def spec_at(spec: IndexSpec, snapshot: Snapshot) -> IndexSpec:
    """The spec with what is the snapshot's own."""
    return replace(spec, buckets=snapshot.buckets, source=snapshot.source)
