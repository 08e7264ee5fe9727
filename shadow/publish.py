"""The commit: the list of a segment, and the next snapshot, put create-only.

Before it no look-up sees anything of a build; after it, everything. What a crash leaves is never named by a snapshot,
and no later build stumbles over it: names are fresh each time.
"""

import datetime as dt
import secrets
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from shadow.coverage import check_apart, source_of
from shadow.errors import AlreadyExists, DamagedMetadata, ShadowError, SpecMismatch
from shadow.index_files import write_index_file
from shadow.segments import IndexFileEntry, Segment, SegmentRef, SourceFileEntry, read_segment, write_segment
from shadow.snapshots import Snapshot, commit, snapshot_numbers, utc_now
from shadow.spec import SPEC_PATH, IndexSpec, create_spec, read_spec
from shadow.storage import Storage

__all__ = ["BuildFailed", "Changes", "ConcurrentCommit", "new_segment_id", "publish", "write_index_file"]


class BuildFailed(ShadowError):
    """What was written is not what was read; nothing was committed."""


class ConcurrentCommit(ShadowError):
    """Another commit won the next snapshot number; nothing of ours is visible."""


@dataclass(frozen=True)
class Changes:
    """What a build adds and takes away. `dead` holds all dead ordinals of the segments it names."""

    operation: str
    index_files: Sequence[IndexFileEntry]
    source_files: Sequence[SourceFileEntry]
    dead: Mapping[str, frozenset[int]]
    columns: Mapping[str, str]
    batch: str | None = None
    counts: Mapping[str, int] | None = None


def new_segment_id() -> str:
    """A fresh name, ordered by time."""
    return f"{dt.datetime.now(dt.UTC):%Y%m%dT%H%M%S}-{secrets.token_hex(6)}"


def publish(storage: Storage, spec: IndexSpec, parent: Snapshot | None, changes: Changes, segment_id: str) -> Snapshot:
    """Commit what a build wrote as the next snapshot, and return it.

    BuildFailed when the entries are not exactly the rows of the source files, partition by partition;
    ConcurrentCommit when another build was first."""
    _check_counts(changes)
    if parent is None:
        check_apart(source_of(spec), storage)
        _write_spec(storage, spec)
    refs = [_with_dead(ref, changes.dead.get(ref.id, frozenset())) for ref in (parent.segments if parent else ())]
    if changes.source_files:
        segment = Segment(segment_id, tuple(changes.index_files), tuple(changes.source_files))
        refs.append(write_segment(storage, segment))
    segments = _live(storage, refs)
    snapshot = Snapshot(
        number=(parent.number if parent else 0) + 1,
        operation=changes.operation,
        segments=tuple(ref for ref in refs if ref.id in segments),
        partitions=_rows_by_partition(segments.values()),
        columns=dict(changes.columns),
        spec_crc32=parent.spec_crc32 if parent else spec.checksum,
        committed_at=utc_now(),
        batch=changes.batch,
        counts=dict(changes.counts or {}),
    )
    try:
        commit(storage, snapshot)
    except AlreadyExists:
        raise ConcurrentCommit(
            f"{storage.root}: another build committed snapshot {snapshot.number} first; nothing was changed, "
            "run it again"
        ) from None
    if parent is None:
        _restore_spec(storage, spec)
    return snapshot


def _check_counts(changes: Changes) -> None:
    rows: Counter[str] = Counter()
    entries: Counter[str] = Counter()
    for source in changes.source_files:
        rows[source.partition] += source.rows
    for file in changes.index_files:
        entries[file.partition] += file.entries
    if len({(file.partition, file.bucket) for file in changes.index_files}) < len(changes.index_files):
        raise BuildFailed("a bucket was written to two index files; nothing was committed")
    for partition in rows.keys() | entries.keys():
        if rows[partition] != entries[partition]:
            raise BuildFailed(
                f"partition {partition or '(none)'}: the source has {rows[partition]} rows, the scan brought "
                f"{entries[partition]}; nothing was committed"
            )


def _with_dead(ref: SegmentRef, dead: frozenset[int]) -> SegmentRef:
    """What is dead stays dead."""
    return replace(ref, dead=tuple(sorted(dead.union(ref.dead))))


def _live(storage: Storage, refs: Sequence[SegmentRef]) -> dict[str, Segment]:
    """The segments that still cover a file, by id. BuildFailed where two cover the same one."""
    segments = {ref.id: read_segment(storage, ref) for ref in refs}
    paths = Counter(path for segment in segments.values() for path in segment.live)
    twice = [path for path, count in paths.items() if count > 1]
    if twice:
        raise BuildFailed(f"{twice[0]}: indexed though the index covers it already; nothing was committed")
    return {segment.id: segment for segment in segments.values() if segment.live}


def _rows_by_partition(segments: Iterable[Segment]) -> dict[str, int]:
    rows: Counter[str] = Counter()
    for segment in segments:
        for source in segment.live.values():
            rows[source.partition] += source.rows
    return dict(sorted(rows.items()))


def _write_spec(storage: Storage, spec: IndexSpec) -> None:
    """The spec is written with the first commit. One left by a build that never committed counts for nothing."""
    try:
        create_spec(storage, spec)
    except SpecMismatch:
        if snapshot_numbers(storage):
            raise
        left_behind = read_spec(storage)
        storage.delete(SPEC_PATH)
        create_spec(storage, spec)
        if snapshot_numbers(storage):  # it was not left behind: its build has committed just now
            _restore_spec(storage, left_behind)
            raise


def _restore_spec(storage: Storage, spec: IndexSpec) -> None:
    """Put the spec back where a first build of another one, at the same time, has just replaced it. Each of the two
    looks for what the other did after it did its own, so that one of them sees it."""
    try:
        create_spec(storage, spec)
    except (SpecMismatch, DamagedMetadata):  # it is the other's, or being replaced
        storage.delete(SPEC_PATH)
        create_spec(storage, spec)
