"""A build of a flat index merges small segments with its new one, in its own commit.

A segment is merged when it has at most FACTOR times the rows merged so far, the smallest first. So each segment that
stays has more than FACTOR times the rows of the next smaller one: n rows have about log2(n) segments at most, whatever
the number of builds, and an entry is written about log2(n) times.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from gnomon.shadow.commit import Changes, Current, made_for, new_segment_id, publish
from gnomon.shadow.errors import CommitLost, ConcurrentCommit
from gnomon.shadow.maintenance.rewrite_segments import rewrite
from gnomon.shadow.metadata import IndexSpec, Segment, Snapshot, View
from gnomon.shadow.storage import Storage

FACTOR = 2


class Published(NamedTuple):
    """The newest snapshot, and whether this build committed it: false if nothing was left to do."""

    snapshot: Snapshot
    is_committed: bool


def publish_build(
    storage: Storage, spec: IndexSpec, view: View | None, changes: Changes, segment_id: str, current: Current | None
) -> Published:
    """Commit a build, as `publish` does. Where others have replaced a segment that it merges, the new segment is
    committed alone; the next build merges it."""
    parent = view.snapshot if view else None
    if view is not None and spec.flat and changes.source_files:
        ours = Segment(segment_id, tuple(changes.index_files), tuple(changes.source_files))
        before = [replace(one, dead=one.dead | changes.dead.get(one.id, frozenset())) for one in view.segments]
        chosen = segments_to_merge(ours, before)
        if chosen:
            try:
                return _publish_merged(storage, spec, view.snapshot, changes, [*chosen, ours], current)
            except CommitLost:  # the lost snapshot named files of the new segment
                raise
            except ConcurrentCommit:
                pass
    snapshot = publish(storage, spec, parent, changes, segment_id, current)
    return Published(snapshot, snapshot.commit_id == segment_id)


def segments_to_merge(ours: Segment, segments: Sequence[Segment]) -> list[Segment]:
    """The segments to merge with a new one, in their order."""
    total, chosen = _rows(ours), set()
    for segment in sorted(segments, key=_rows):
        if _rows(segment) > FACTOR * total:
            break
        if segment.live:
            total += _rows(segment)
            chosen.add(segment.id)
    return [segment for segment in segments if segment.id in chosen]


def _rows(segment: Segment) -> int:
    return sum(file.rows for file in segment.live.values())


def _publish_merged(
    storage: Storage,
    spec: IndexSpec,
    parent: Snapshot,
    changes: Changes,
    segments: Sequence[Segment],
    current: Current | None,
) -> Published:
    segment_id = new_segment_id()
    with made_for(storage, parent):
        files = rewrite(storage, spec, segments, spec, segment_id)
    merged = replace(
        changes,
        index_files=files.all,
        source_files=[file for segment in segments for file in segment.live.values()],
        replaced=frozenset(segment.id for segment in segments[:-1]),
    )
    snapshot = publish(storage, spec, parent, merged, segment_id, current)
    return Published(snapshot, snapshot.commit_id == segment_id)
